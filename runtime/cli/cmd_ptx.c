/* quern ptx: the CUDA programs of a model, listed or dumped as source, PTX, machine code or its listing. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/programs.h"
#include "cli/sass.h"

typedef struct ptx_args {
    qn_target_args target;
    const char *glob, *dir;
    int what; /* index in `whats` */
    bool json;
} ptx_args;

enum { WHAT_LIST, WHAT_PTX, WHAT_SOURCE, WHAT_CUBIN, WHAT_SASS };
static const char *const whats[] = {"list", "ptx", "source", "cubin", "sass", NULL};
static const char *const suffixes[] = {"", "ptx", "cu", "cubin", "sass"};

static const qn_opt ptx_opts[] = {
    {"--kernel", "GLOB", "Only kernels whose symbol matches ('linear_*'). Default: all.", QN_OPT_STR,
     offsetof(ptx_args, glob)},
    {"--what", "NAME",
     "list, ptx, source, cubin, or sass (through nvdisasm or cuobjdump). Default: list; ptx with -o.",
     QN_OPT_CHOICE, offsetof(ptx_args, what), 0, 0, whats},
    {"-o, --output", "DIR",
     "One file a kernel into this folder, named like its cache entry, instead of stdout.", QN_OPT_STR,
     offsetof(ptx_args, dir)},
    {"--json", NULL, "The list as JSON.", QN_OPT_FLAG, offsetof(ptx_args, json)},
    {0},
};

static bool wanted(void *user, const qn_cuda_program *p)
{
    const ptx_args *a = user;
    return a->glob == NULL || fnmatch(a->glob, p->source.symbol, 0) == 0;
}

/* The next constant of a generated source, "constexpr int kind = 1; // rms", as "kind=rms"; false: no more. A
 * persistent kernel has the constants of many, which its own kernels are listed with. */
static bool next_constant(const char **text, char line[256])
{
    const char *at = strstr(*text, "constexpr ");
    if (at == NULL || strstr(*text, "#define QN_PERSISTENT") != NULL) {
        return false;
    }
    const char *name = at + strlen("constexpr "), *end = name + strcspn(name, "\n");
    name += strcspn(name, " ") + 1;
    *text = end;
    const char *semicolon = memchr(name, ';', (size_t)(end - name));
    const char *value = strstr(name, " = ");
    if (semicolon == NULL || value == NULL || value > semicolon) {
        return next_constant(text, line);
    }
    int n_name = (int)strcspn(name, " ["), n_value = (int)(semicolon - value - 3);
    value += 3;
    if (end - semicolon > 5) { /* what follows "; // " says the value in words */
        value = semicolon + 5;
        n_value = (int)(end - value);
    }
    snprintf(line, 256, "%.*s=%.*s", n_name, name, n_value, value);
    return true;
}

static void print_constants(const char *source)
{
    char line[256];
    fputs("   ", stdout);
    while (next_constant(&source, line)) {
        printf("%s%s", strchr(line, ' ') ? "  " : " ", line);
    }
    putchar('\n');
}

static void print_number(int v, int width)
{
    if (v < 0) {
        printf(" %*s", width, "?");
    } else {
        printf(" %*d", width, v);
    }
}

static void print_list(const qn_cuda_programs *p)
{
    printf("%5s %8s %8s %6s %6s %8s %5s  %s\n", "regs", "static", "dynamic", "spill", "stack", "bytes",
           "uses", "kernel");
    for (int i = 0; i < p->low.n_program; i++) {
        const qn_kernel *k = p->kernels[i];
        if (k == NULL) {
            continue;
        }
        for (int e = 0; e < k->n_entry; e++) {
            const qn_kernel_entry *n = &k->entries[e];
            print_number(n->regs, 5);
            print_number(n->smem_static, 8);
            printf(" %8u", qn_cuda_dynamic_shared(&p->low, i));
            print_number(n->spill_stores < 0 ? -1 : n->spill_stores + n->spill_loads, 6);
            print_number(n->stack, 6);
            printf(" %8zu %5d  %s\n", k->cubin.size ? k->cubin.size : k->ptx.size, p->low.programs[i].n_use,
                   n->symbol);
        }
        print_constants(p->low.programs[i].source.text);
        const qn_site *s = qn_program_site(&p->low, i);
        char knobs[QN_KNOB_TEXT];
        if (s != NULL) {
            printf("    %s: %s\n", s->tuned ? "tuned" : "shipped", qn_knobs_text(s->kind, &s->now, knobs));
        }
    }
}

static json_t *json_known(int v)
{
    return v < 0 ? json_null() : json_integer(v);
}

static json_t *json_program(const qn_cuda_programs *p, int i)
{
    const qn_kernel *k = p->kernels[i];
    const qn_cuda_program *g = &p->low.programs[i];
    const qn_kernel_entry *n = qn_kernel_find(k, g->source.symbol);
    char line[256];
    json_t *o = json_object(), *constants = json_array();
    int bad = 0;
    bad |= qn_json_set(o, "symbol", qn_json_str(g->source.symbol));
    bad |= qn_json_set(o, "template", qn_json_str(g->name));
    bad |= qn_json_set(o, "entry", qn_json_str(k->name));
    bad |= qn_json_set(o, "arch", qn_json_str(k->arch));
    bad |= qn_json_set(o, "cached", json_boolean(k->cached));
    bad |= qn_json_set(o, "compile_seconds", qn_json_real(k->seconds));
    if (n != NULL) {
        bad |= qn_json_set(o, "threads", json_known(n->threads));
        bad |= qn_json_set(o, "registers", json_known(n->regs));
        bad |= qn_json_set(o, "shared_static", json_known(n->smem_static));
        bad |= qn_json_set(o, "shared_dynamic", json_integer(qn_cuda_dynamic_shared(&p->low, i)));
        bad |= qn_json_set(o, "spill_stores", json_known(n->spill_stores));
        bad |= qn_json_set(o, "spill_loads", json_known(n->spill_loads));
        bad |= qn_json_set(o, "stack", json_known(n->stack));
    }
    bad |= qn_json_set(o, "cubin_bytes", json_integer((json_int_t)k->cubin.size));
    bad |= qn_json_set(o, "ptx_bytes", json_integer((json_int_t)k->ptx.size));
    bad |= qn_json_set(o, "uses", json_integer(g->n_use));
    bad |= qn_json_set(o, "first_step", qn_json_str(g->first ? g->first->name : "argmax"));
    for (const char *text = g->source.text; next_constant(&text, line);) {
        bad |= json_array_append_new(constants, qn_json_str(line));
    }
    const qn_site *s = qn_program_site(&p->low, i);
    char knobs[QN_KNOB_TEXT];
    if (s != NULL) {
        bad |= qn_json_set(o, "knobs", qn_json_str(qn_knobs_text(s->kind, &s->now, knobs)));
        bad |= qn_json_set(o, "tuned", json_boolean(s->tuned));
    }
    bad |= qn_json_set(o, "constants", constants);
    return qn_json_whole(o, bad);
}

static int print_json(const qn_cuda_programs *p)
{
    json_t *all = json_array();
    int bad = 0;
    for (int i = 0; i < p->low.n_program; i++) {
        if (p->kernels[i] != NULL) {
            bad |= json_array_append_new(all, json_program(p, i));
        }
    }
    return qn_json_print(qn_json_whole(all, bad), JSON_INDENT(2));
}

static int write_blob(const char *dir, const char *name, int what, const qn_blob *b)
{
    char path[QN_PATH_MAX];
    if (dir == NULL) {
        if (what != WHAT_CUBIN) {
            printf("// %s\n", name);
        }
        fwrite(b->data, 1, b->size, stdout);
        return QN_EXIT_OK;
    }
    if (!qn_path_format(path, sizeof path, "%s/%s.%s", dir, name, suffixes[what])) {
        return qn_cli_error("%s: path too long", dir);
    }
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        return qn_cli_error("%s: %s", path, strerror(errno));
    }
    bool whole = fwrite(b->data, 1, b->size, f) == b->size;
    return fclose(f) == 0 && whole ? QN_EXIT_OK : qn_cli_error("%s: %s", path, strerror(errno));
}

static int dump_one(const ptx_args *a, const qn_kernel *k, const qn_disassembler *d)
{
    const qn_blob *blobs[] = {NULL, &k->ptx, &k->source, &k->cubin, NULL};
    if (a->what != WHAT_SASS && a->what != WHAT_CUBIN) {
        return write_blob(a->dir, k->name, a->what, blobs[a->what]);
    }
    if (k->cubin.size == 0) {
        return qn_cli_error("%s: %s gives PTX only, no machine code; give --arch sm_XY", k->name, k->arch);
    }
    if (a->what == WHAT_CUBIN) {
        return write_blob(a->dir, k->name, a->what, &k->cubin);
    }
    qn_blob listing;
    qn_err err;
    if (qn_disassemble(d, &k->cubin, &listing, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    int rc = write_blob(a->dir, k->name, a->what, &listing);
    free(listing.data);
    return rc;
}

static int dump(const ptx_args *a, const qn_cuda_programs *p, const qn_disassembler *d)
{
    int rc = QN_EXIT_OK, n = 0;
    if (a->dir != NULL && mkdir(a->dir, 0777) != 0 && errno != EEXIST) {
        return qn_cli_error("%s: %s", a->dir, strerror(errno));
    }
    for (int i = 0; i < p->low.n_program && rc == QN_EXIT_OK; i++) {
        if (p->kernels[i] != NULL) {
            rc = dump_one(a, p->kernels[i], d);
            n++;
        }
    }
    if (rc == QN_EXIT_OK && a->dir != NULL) {
        qn_cli_note("%d files in %s", n, a->dir);
    }
    return rc;
}

static int show(const ptx_args *a, const qn_cuda_target *target, const qn_cuda_programs *p,
                const qn_disassembler *d)
{
    int n = 0;
    for (int i = 0; i < p->low.n_program; i++) {
        n += p->kernels[i] != NULL;
    }
    if (n == 0) {
        return qn_cli_error("--kernel '%s' matches none of the model's %d kernels", a->glob,
                            p->low.n_program);
    }
    if (a->what == WHAT_CUBIN && a->dir == NULL && (n > 1 || isatty(STDOUT_FILENO))) {
        return qn_cli_error("%d binary files: give -o DIR, or a --kernel that matches one and a pipe", n);
    }
    if (a->what != WHAT_LIST) {
        return dump(a, p, d);
    }
    if (a->json) {
        return print_json(p);
    }
    char text[192];
    printf("%d kernels for %s\n", n, qn_target_text(target, text));
    print_list(p);
    return QN_EXIT_OK;
}

static int run(ptx_args *a)
{
    static qn_cuda_target target;
    static qn_cuda_programs programs;
    static qn_disassembler d;
    qn_loaded l;
    qn_exec_opts opts;
    qn_err err;
    if (a->what == WHAT_SASS && qn_disassembler_find(&d, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    if (qn_target_load(&a->target, true, &l, &opts, &target) != 0) {
        return QN_EXIT_ERROR;
    }
    int rc = qn_cuda_programs_make(&programs, l.model->plans, &opts, &target, wanted, a, &err);
    qn_cli_progress_end();
    if (rc != 0) {
        rc = qn_cli_error("%s", err.text);
    } else {
        rc = show(a, &target, &programs, &d);
        qn_cuda_programs_free(&programs);
    }
    qn_loaded_free(&l);
    return rc;
}

int qn_cmd_ptx(int argc, char **argv)
{
    ptx_args a = {.target = qn_target_args_defaults};
    const qn_opt_group groups[] = {{"Kernels", ptx_opts, &a},
                                   qn_target_group(&a.target),
                                   qn_load_group(&a.target.model),
                                   qn_common_group};
    const qn_usage usage = {
        "ptx",
        "MODEL [--kernel GLOB] [--arch sm_XY] [--what ptx|source|cubin|sass] [-o DIR]",
        "Lists the kernels that a run of the model on a GPU uses, with what they ask of the card "
        "and what they are specialised on, or dumps them. Needs NVRTC and no GPU.",
        groups,
        sizeof groups / sizeof *groups,
        1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.target.model, "ptx", positional[0]);
    if (rc < 0) {
        a.what = a.what == WHAT_LIST && a.dir != NULL ? WHAT_PTX : a.what;
        rc = run(&a);
    }
    qn_ints_free(&a.target.model.end_tokens);
    return rc;
}
