/* emu_collect.c: see emu_collect.h. */
#include "emu_collect.h"

#include <stdlib.h>
#include <string.h>

uint64_t emu_some_weight(const void *user, const qn_tensor *t)
{
    (void)user;
    return (uint64_t)(uintptr_t)t;
}

uint64_t emu_some_table(const void *user, const float *t)
{
    (void)user;
    return (uint64_t)(uintptr_t)t;
}

void emu_collect_add(emu_collection *l, const qn_cuda_program *p)
{
    char kernel[48];
    snprintf(kernel, sizeof kernel, "%s.cu", p->name);
    uint64_t key = emu_source_key(p->source.text, !emu_source_has_variant(&l->files, kernel));
    for (int i = 0; i < l->n; i++) {
        if (l->programs[i].key == key) {
            return;
        }
    }
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->programs = realloc(l->programs, sizeof *l->programs * (size_t)l->cap);
    }
    emu_listed *q = &l->programs[l->n++];
    memset(q, 0, sizeof *q);
    q->text = strdup(p->source.text);
    q->key = key;
    snprintf(q->kernel, sizeof q->kernel, "%s", kernel);
    snprintf(q->symbol, sizeof q->symbol, "%s", p->source.symbol);
}

static int write_if_new(const char *path, const char *text)
{
    FILE *f = fopen(path, "r");
    if (f) {
        size_t n = strlen(text);
        char *old = malloc(n + 2);
        size_t got = fread(old, 1, n + 1, f);
        bool same = got == n && memcmp(old, text, n) == 0;
        fclose(f);
        free(old);
        if (same) {
            return 0;
        }
    }
    f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) {
        fprintf(stderr, "emu_collect: cannot write %s\n", path);
        return -1;
    }
    return 0;
}

static void program_name(const emu_collection *l, int i, char name[32])
{
    snprintf(name, 32, "%s%llx", l->prefix, (unsigned long long)l->programs[i].key);
}

static int shard_of(const emu_collection *l, int i, int n_shard)
{
    return l->only ? i % n_shard : (int)(l->programs[i].key % (uint64_t)n_shard);
}

int emu_collect_write(const emu_collection *l, const char *kernel_dir, const char *path, int shard,
                      int n_shard)
{
    char *text = NULL, name[32];
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    fputs("// written by emu_collect_write\n", f);
    emu_source_headers(f, &l->files);
    fputs("#include \"emu.h\"\n", f);
    for (int i = 0; i < l->n; i++) {
        if (shard_of(l, i, n_shard) == shard) {
            program_name(l, i, name);
            emu_source_program(f, &l->files, kernel_dir, l->programs[i].text, l->programs[i].kernel, name);
        }
    }
    fputs("\n#line 1 \"shard table\"\nstatic const emu_program table[] = {\n", f);
    for (int i = 0; i < l->n; i++) {
        if (shard_of(l, i, n_shard) == shard) {
            program_name(l, i, name);
            fprintf(f, "    {0x%llxu, \"%s\", %s::call},\n", (unsigned long long)l->programs[i].key,
                    l->programs[i].symbol, name);
        }
    }
    fputs("    {0, \"\", nullptr},\n};\nstatic const bool added = emu_add_programs(table);\n", f);
    fclose(f);
    int rc = write_if_new(path, text);
    free(text);
    return rc;
}
