/* compile_table TABLE [--write] [--all] [--cache DIR] [--arch NAME]... DIR...
 *
 * Compiles the programs that the models of the folders need (heads of real models' shapes, golden models),
 * each once, for every architecture, with NVRTC; no GPU is needed. Each must compile, have its symbol, and
 * ask for no more than the architecture has. What a class of programs (a template with the tensor types or
 * head dimensions it is made for) asks for is compared with a table: a spill, local memory or shared memory
 * that the table does not allow, or more than 8 registers above it, fails, as do classes on one side only.
 *
 * --write makes the table anew. --all compiles every program; otherwise a sample that has every
 * specialisation. Exit status 77: everything compiles, but the table is of another NVRTC and was not
 * compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "codegen/jit.h"
#include "shape_model.h"
#include "table_programs.h"

enum { N_ARCH = 7, MAX_CLASSES = 1000, REGISTERS_MARGIN = 8, NOT_COMPARED = 77 };

/* Shared memory a block may have (CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability"). */
static const struct {
    const char *name;
    int shared_kib;
} archs[N_ARCH] = {{"sm_75", 64},   {"sm_80", 163},   {"sm_86", 99},  {"sm_89", 99},
                   {"sm_90a", 227}, {"sm_100a", 227}, {"sm_120a", 99}};

/* What the programs of a class ask for, most of each. */
typedef struct needs {
    bool there;
    int regs, spill, stack, shared;
} needs;

typedef struct class_row {
    char name[200];
    needs of[N_ARCH];
} class_row;

typedef struct tester {
    qn_nvrtc nvrtc;
    const char *table, *cache;
    bool write, all, chosen[N_ARCH];
    table_programs programs;
    class_row *made, *due; /* compiled now; of the table */
    int n_made, n_due, n_failed, n_compiled, n_cached;
    char table_nvrtc[32];
} tester;

static class_row *row_of(class_row *rows, int *n, const char *name, bool add)
{
    int at = 0;
    while (at < *n && strcmp(rows[at].name, name) < 0) {
        at++;
    }
    if (at < *n && strcmp(rows[at].name, name) == 0) {
        return &rows[at];
    }
    if (!add || *n == MAX_CLASSES) {
        return NULL;
    }
    memmove(rows + at + 1, rows + at, sizeof *rows * (size_t)(*n - at));
    memset(&rows[at], 0, sizeof *rows);
    snprintf(rows[at].name, sizeof rows[at].name, "%s", name);
    ++*n;
    return &rows[at];
}

static void more(int *most, int v)
{
    *most = v > *most ? v : *most;
}

static void failed(tester *t, const char *arch, const table_program *p, const char *what)
{
    if (t->n_failed++ < 40) {
        printf("FAILED %s %s (of %s): %s\n", arch, p->symbol, p->model, what);
    }
}

static void look_at(tester *t, int arch, const table_program *p, const qn_kernel *k)
{
    char what[200];
    const qn_kernel_entry *e = qn_kernel_find(k, p->symbol);
    if (!e) {
        failed(t, archs[arch].name, p, "its symbol is not there");
        return;
    }
    int shared = e->smem_static + (int)p->shared, threads = e->threads, warps = (threads + 31) / 32;
    if (e->regs < 0 || e->stack < 0 || threads < 0) {
        failed(t, archs[arch].name, p, "NVRTC's log does not say what it needs");
    }
    if (shared > 1024 * archs[arch].shared_kib) {
        snprintf(what, sizeof what, "%d bytes of shared memory, a block has %d KiB", shared,
                 archs[arch].shared_kib);
        failed(t, archs[arch].name, p, what);
    }
    if ((e->regs + 7) / 8 * 8 * 32 * warps > 65536) {
        snprintf(what, sizeof what, "%d registers in %d threads, there are 65536", e->regs, threads);
        failed(t, archs[arch].name, p, what);
    }
    class_row *r = row_of(t->made, &t->n_made, p->class, true);
    if (!r) {
        failed(t, archs[arch].name, p, "more classes than compile_table.c has room for");
        return;
    }
    needs *n = &r->of[arch];
    n->there = true;
    more(&n->regs, e->regs);
    more(&n->spill, e->spill_stores);
    more(&n->stack, e->stack);
    more(&n->shared, shared);
}

static int compile_arch(tester *t, int arch, qn_err *err)
{
    qn_jit *jit = NULL;
    qn_jit_opts jo = {.nvrtc = &t->nvrtc, .cache_dir = t->cache};
    if (qn_arch_by_name(&jo.arch, &t->nvrtc, archs[arch].name, err) || qn_jit_new(&jit, &jo, err)) {
        return -1;
    }
    int n = 0, rc = 0;
    for (int i = 0; i < t->programs.n && rc == 0; i++) {
        const table_program *p = &t->programs.p[i];
        if (p->variant != jo.arch.variant || !(p->sampled || t->all)) {
            continue;
        }
        n++;
    }
    qn_jit_program *programs = calloc((size_t)n + 1, sizeof *programs);
    const qn_kernel **kernels = calloc((size_t)n + 1, sizeof *kernels);
    const table_program **of = calloc((size_t)n + 1, sizeof *of);
    n = 0;
    for (int i = 0; i < t->programs.n; i++) {
        const table_program *p = &t->programs.p[i];
        if (p->variant == jo.arch.variant && (p->sampled || t->all)) {
            of[n] = p;
            programs[n++] = (qn_jit_program){p->name, p->spec, p->text, p->symbol};
        }
    }
    rc = qn_jit_compile_all(jit, programs, n, kernels, err);
    for (int i = 0; i < n && rc == 0; i++) {
        look_at(t, arch, of[i], kernels[i]);
    }
    t->n_compiled += qn_jit_compiles(jit);
    t->n_cached += n - qn_jit_compiles(jit);
    free(programs);
    free(kernels);
    free(of);
    qn_jit_free(jit);
    return rc ? qn_fail_prefix(err, "%s", archs[arch].name) : 0;
}

static int add_model(void *user, const char *path)
{
    static const int variants[3] = {QN_VARIANT_SM75, QN_VARIANT_SM80, QN_VARIANT_SM90A};
    tester *t = user;
    qn_err err;
    shape_model m;
    if (shape_model_open(&m, path, 0, &err)) {
        printf("FAILED %s\n", err.text);
        return 1;
    }
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = table_add_model(&t->programs, m.plans, m.name, variants[i], &err);
    }
    if (rc) {
        printf("FAILED %s\n", err.text);
    }
    shape_model_close(&m);
    return rc ? 1 : 0;
}

static void print_needs(FILE *f, const needs *n)
{
    if (!n->there) {
        fputs("\t-", f);
        return;
    }
    fprintf(f, "\t%d", n->regs);
    if (n->spill || n->stack) {
        fprintf(f, "+%d/%d", n->spill, n->stack);
    }
    if (n->shared) {
        fprintf(f, ":%d", n->shared);
    }
}

static bool parse_needs(const char *text, needs *n)
{
    int used = 0;
    *n = (needs){.there = strcmp(text, "-") != 0};
    if (!n->there) {
        return true;
    }
    if (sscanf(text, "%d%n", &n->regs, &used) != 1) {
        return false;
    }
    text += used;
    if (*text == '+') {
        if (sscanf(text, "+%d/%d%n", &n->spill, &n->stack, &used) != 2) {
            return false;
        }
        text += used;
    }
    if (*text == ':') {
        if (sscanf(text, ":%d%n", &n->shared, &used) != 1) {
            return false;
        }
        text += used;
    }
    return *text == '\0';
}

static int write_table(const tester *t)
{
    FILE *f = fopen(t->table, "w");
    if (!f) {
        printf("FAILED: %s cannot be written\n", t->table);
        return 1;
    }
    fprintf(
        f,
        "# What the kernels ask for, by class (template, tensor types or head dimensions) and architecture:\n"
        "# registers+spilled bytes/local bytes:bytes of shared memory, most of the class's programs; zeros "
        "left "
        "out.\n"
        "# Written by `cmake --build build --target compile_table_write` (docs/emulation.md); NVRTC %d.%d\n# "
        "class",
        t->nvrtc.major, t->nvrtc.minor);
    for (int a = 0; a < N_ARCH; a++) {
        fprintf(f, "\t%s", archs[a].name);
    }
    fputc('\n', f);
    for (int i = 0; i < t->n_made; i++) {
        fputs(t->made[i].name, f);
        for (int a = 0; a < N_ARCH; a++) {
            print_needs(f, &t->made[i].of[a]);
        }
        fputc('\n', f);
    }
    return fclose(f) ? 1 : 0;
}

static int read_table(tester *t)
{
    FILE *f = fopen(t->table, "r");
    char line[1024];
    if (!f) { /* its version is none's */
        snprintf(t->table_nvrtc, sizeof t->table_nvrtc, "none");
        return 0;
    }
    int rc = 0;
    for (int number = 1; rc == 0 && fgets(line, sizeof line, f); number++) {
        const char *nvrtc = strstr(line, "NVRTC ");
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#') {
            if (nvrtc) {
                snprintf(t->table_nvrtc, sizeof t->table_nvrtc, "%.30s", nvrtc + 6);
            }
            continue;
        }
        char *at = line, *name = strsep(&at, "\t");
        class_row *r = row_of(t->due, &t->n_due, name, true);
        for (int a = 0; a < N_ARCH && rc == 0; a++) {
            const char *word = at ? strsep(&at, "\t") : "";
            if (!r || !parse_needs(word, &r->of[a])) {
                printf("FAILED: %s:%d: '%s' is not what compile_table writes\n", t->table, number, word);
                rc = 1;
            }
        }
    }
    fclose(f);
    return rc;
}

static void compare_one(tester *t, const char *name, int arch, const needs *due, const needs *made)
{
    const struct {
        const char *what;
        int due, made, margin;
    } parts[4] = {{"registers", due->regs, made->regs, REGISTERS_MARGIN},
                  {"bytes spilled", due->spill, made->spill, 0},
                  {"bytes of local memory", due->stack, made->stack, 0},
                  {"bytes of shared memory", due->shared, made->shared, 0}};
    if (due->there != made->there) {
        t->n_failed++;
        printf("FAILED %s, %s: %s\n", name, archs[arch].name,
               due->there ? "in the table, but no program is of it" : "not in the table");
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (parts[i].made > parts[i].due + parts[i].margin) {
            t->n_failed++;
            printf("FAILED %s, %s: %d %s, %d in the table\n", name, archs[arch].name, parts[i].made,
                   parts[i].what, parts[i].due);
        }
    }
}

static void compare(tester *t)
{
    static const class_row none;
    for (int i = 0; i < t->n_due; i++) {
        row_of(t->made, &t->n_made, t->due[i].name, true);
    }
    for (int i = 0; i < t->n_made; i++) {
        const class_row *due = row_of(t->due, &t->n_due, t->made[i].name, false);
        for (int a = 0; a < N_ARCH; a++) {
            if (t->chosen[a]) {
                compare_one(t, t->made[i].name, a, due ? &due->of[a] : &none.of[a], &t->made[i].of[a]);
            }
        }
    }
}

static int choose_arch(tester *t, const char *name)
{
    for (int a = 0; a < N_ARCH; a++) {
        if (strcmp(archs[a].name, name) == 0) {
            t->chosen[a] = true;
            return 0;
        }
    }
    fprintf(stderr, "compile_table: no architecture '%s'\n", name);
    return -1;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Models, a sample, compiles. */
static int run(tester *t, char **dirs, int n_dir)
{
    qn_err err;
    if (qn_nvrtc_load(&t->nvrtc, 0, &err)) {
        printf(
            "FAILED %s\n(scripts/fetch-nvrtc.sh fetches one; -DQUERN_NVRTC_TESTS=OFF leaves this test out)\n",
            err.text);
        return 1;
    }
    for (int i = 0; i < n_dir; i++) {
        int rc = shape_models_each(dirs[i], add_model, t, &err);
        if (rc) {
            printf("%s%s\n", rc < 0 ? "FAILED " : "", rc < 0 ? err.text : "");
            return 1;
        }
    }
    table_sample(&t->programs);
    int n_sampled = 0;
    for (int i = 0; i < t->programs.n; i++) {
        n_sampled += t->programs.p[i].sampled;
    }
    printf("%d programs of 3 variants, %d in the sample; NVRTC %d.%d\n", t->programs.n, n_sampled,
           t->nvrtc.major, t->nvrtc.minor);
    fflush(stdout);
    for (int a = 0; a < N_ARCH; a++) {
        double before = cpu_seconds();
        int n = t->n_compiled, cached = t->n_cached;
        if (t->chosen[a] && compile_arch(t, a, &err)) {
            printf("FAILED %s\n", err.text);
            return 1;
        }
        printf("%-8s %d programs compiled, %d from the cache, %.0f s of CPU time\n", archs[a].name,
               t->n_compiled - n, t->n_cached - cached, cpu_seconds() - before);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static tester t;
    char *dirs[16];
    int n_dir = 0;
    bool any = false;
    for (int i = 1; i < argc; i++) {
        bool has = i + 1 < argc;
        if (strcmp(argv[i], "--write") == 0) {
            t.write = true;
        } else if (strcmp(argv[i], "--all") == 0) {
            t.all = true;
        } else if (strcmp(argv[i], "--cache") == 0 && has) {
            t.cache = argv[++i];
        } else if (strcmp(argv[i], "--arch") == 0 && has) {
            any = true;
            if (choose_arch(&t, argv[++i])) {
                return 2;
            }
        } else if (!t.table) {
            t.table = argv[i];
        } else if (n_dir < 16) {
            dirs[n_dir++] = argv[i];
        }
    }
    if (!t.table || n_dir == 0 || (t.write && any)) {
        fprintf(stderr,
                "usage: compile_table TABLE [--write] [--all] [--cache DIR] [--arch NAME]... DIR...\n");
        return 2;
    }
    for (int a = 0; a < N_ARCH && !any; a++) {
        t.chosen[a] = true;
    }
    t.made = calloc(MAX_CLASSES, sizeof *t.made);
    t.due = calloc(MAX_CLASSES, sizeof *t.due);
    if (!t.made || !t.due || (!t.write && read_table(&t)) || run(&t, dirs, n_dir)) {
        return 1;
    }
    char version[32];
    snprintf(version, sizeof version, "%d.%d", t.nvrtc.major, t.nvrtc.minor);
    bool same = strcmp(version, t.table_nvrtc) == 0;
    if (t.write && t.n_failed == 0 && write_table(&t)) {
        return 1;
    }
    if (!t.write && same) {
        compare(&t);
    }
    printf("%d classes, %d failed\n", t.n_made, t.n_failed);
    if (!t.write && !same && t.n_failed == 0) {
        printf("%s is of NVRTC %s, or is not there: numbers were not compared\n", t.table, t.table_nvrtc);
        return NOT_COMPARED;
    }
    return t.n_failed != 0;
}
