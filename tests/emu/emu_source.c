/* emu_source.c: see emu_source.h. Headers carry `#pragma once`, so one that reads spec:: constants cannot be
 * included by two programs of one file: its text is copied into each program's namespace, with #line so that
 * messages name it. */
#include "emu_source.h"

#include <string.h>

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

uint64_t emu_source_key(const char *text, bool without_variant)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *line = text; *line; line = next_line(line)) {
        if (without_variant &&
            (starts(line, "constexpr int variant = ") || starts(line, "#define QN_VARIANT "))) {
            continue;
        }
        for (const char *c = line; c < next_line(line); c++) {
            h = (h ^ (unsigned char)*c) * 0x100000001b3u;
        }
    }
    return h ? h : 1;
}

/* Name in an #include "NAME" line; false: it is none. */
static bool included(const char *line, char name[64])
{
    return sscanf(line, "#include \"%63[^\"]\"", name) == 1;
}

/* Does the text of a file, or of one it includes, hold a word? ptx.cuh stands for the emulator's own. */
static bool holds(const qn_kernel_files *files, const char *name, const char *word)
{
    const char *text = qn_kernel_files_find(files, name);
    if (!text || strcmp(name, "ptx.cuh") == 0) {
        return false;
    }
    if (strstr(text, word)) {
        return true;
    }
    char inner[64];
    for (const char *line = text; *line; line = next_line(line)) {
        if (included(line, inner) && holds(files, inner, word)) {
            return true;
        }
    }
    return false;
}

bool emu_source_has_variant(const qn_kernel_files *files, const char *kernel)
{
    return holds(files, kernel, "spec::variant") || holds(files, kernel, "QN_VARIANT");
}

static bool specialised(const qn_kernel_files *files, const char *name)
{
    return holds(files, name, "spec::") || holds(files, name, "QN_VARIANT") ||
           strncmp(name, "persistent", 10) == 0 || strcmp(name, "again.cuh") == 0;
}

/* Is a header to be included once for each program of a persistent kernel (again.cuh)? */
static bool again(const qn_kernel_files *files, const char *name)
{
    return specialised(files, name) || holds(files, name, "__syncthreads");
}

const emu_program *emu_source_find(const emu_program *table, int n, const char *text)
{
    for (int pass = 0; pass < 2; pass++) {
        uint64_t key = emu_source_key(text, pass == 1);
        for (int i = 0; i < n; i++) {
            if (table[i].key == key) {
                return &table[i];
            }
        }
    }
    return NULL;
}

void emu_source_headers(FILE *f, const qn_kernel_files *files)
{
    fputs("#include \"emu_device.cuh\"\n", f);
    for (int i = 0; i < files->n_header; i++) {
        if (strcmp(files->names[i], "ptx.cuh") != 0 && !specialised(files, files->names[i])) {
            fprintf(f, "#include \"%s\"\n", files->names[i]);
        }
    }
}

enum { MAX_COPIED = 32 };
typedef struct copier {
    FILE *f;
    const qn_kernel_files *files;
    const char *dir;
    bool persistent;
    char done[MAX_COPIED][64];
    int n_done;
} copier;

/* A header's text may be copied more than once: its guard must not keep the second copy out. */
static void undefine_guard(FILE *f, const char *name)
{
    fputs("#undef QN_", f);
    for (const char *c = name; *c; c++) {
        fputc(*c == '.' ? '_' : *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, f);
    }
    fputc('\n', f);
}

static void copy_text(copier *c, const char *name)
{
    for (int i = 0; i < c->n_done; i++) {
        if (strcmp(c->done[i], name) == 0) {
            return;
        }
    }
    if (c->n_done < MAX_COPIED) {
        snprintf(c->done[c->n_done++], sizeof c->done[0], "%s", name);
    }
    const char *text = qn_kernel_files_find(c->files, name);
    if (!text) {
        fprintf(c->f, "#error \"no kernel source %s\"\n", name);
        return;
    }
    int number = 1;
    char inner[64];
    undefine_guard(c->f, name);
    fprintf(c->f, "#line 1 \"%s/%s\"\n", c->dir, name);
    for (const char *line = text; *line; line = next_line(line), number++) {
        if (included(line, inner)) {
            if (c->persistent ? again(c->files, inner) : specialised(c->files, inner)) {
                copy_text(c, inner);
            }
            fprintf(c->f, "#line %d \"%s/%s\"\n", number + 1, c->dir, name);
        } else if (starts(line, "#pragma once")) {
            fputc('\n', c->f);
        } else {
            fwrite(line, 1, (size_t)(next_line(line) - line), c->f);
        }
    }
    fputc('\n', c->f);
}

/* The text of a persistent kernel (codegen/persistent.c): as it stands, with what it includes copied in, and
 * the words it changes given back their meaning. */
static void persistent_program(FILE *f, const qn_kernel_files *files, const char *dir, const char *text,
                               const char *name)
{
    static const char kernel[] = "#define QN_KERNEL persistent_";
    char header[64];
    fprintf(f, "\nnamespace %s {\n", name);
    for (const char *line = text; *line; line = next_line(line)) {
        if (included(line, header)) {
            copier c = {.f = f, .files = files, .dir = dir, .persistent = true};
            copy_text(&c, header);
            fputs("#line 1 \"persistent program\"\n", f);
        } else if (starts(line, kernel)) {
            fprintf(f, "#define QN_KERNEL emu_%s\n", name);
        } else if (starts(line, "#define QN_VARIANT ")) {
            fputs("#undef QN_VARIANT\n#undef QN_KERNEL\n#undef QN_THREADS\n#undef QN_LAUNCH_THREADS\n"
                  "#undef QN_RING_AT\n#undef QN_RING_BYTES\n",
                  f);
            fwrite(line, 1, (size_t)(next_line(line) - line), f);
        } else if (!starts(line, "#define QN_PERSISTENT")) {
            fwrite(line, 1, (size_t)(next_line(line) - line), f);
        }
    }
    fprintf(f,
            "\n#undef blockIdx\n#undef gridDim\n#undef __syncthreads\n#undef ptx_grid_wait\n#undef QN_ENTRY\n"
            "#define blockIdx emu_builtin.block_idx\n#define gridDim emu_builtin.grid_dim\n"
            "#define QN_ENTRY(...) extern \"C\" void\n"
            "void call(const uint64_t *args)\n{\n    emu_call(emu_%s, args);\n}\n} // namespace %s\n",
            name, name);
}

void emu_source_program(FILE *f, const qn_kernel_files *files, const char *dir, const char *text,
                        const char *kernel, const char *name)
{
    if (strstr(text, "#define QN_PERSISTENT ")) {
        persistent_program(f, files, dir, text, name);
        return;
    }
    fprintf(f, "\nnamespace %s {\n", name);
    for (const char *line = text; *line; line = next_line(line)) {
        if (!starts(line, "#")) {
            fwrite(line, 1, (size_t)(next_line(line) - line), f);
        }
    }
    const char *variant = strstr(text, "#define QN_VARIANT ");
    int number = 0;
    if (variant) {
        sscanf(variant, "#define QN_VARIANT %d", &number);
    }
    fprintf(f, "#undef QN_VARIANT\n#define QN_VARIANT %d\n#undef QN_KERNEL\n#define QN_KERNEL emu_%s\n",
            number, name);
    copier c = {.f = f, .files = files, .dir = dir};
    copy_text(&c, kernel);
    fprintf(f, "\nvoid call(const uint64_t *args)\n{\n    emu_call(emu_%s, args);\n}\n} // namespace %s\n",
            name, name);
}
