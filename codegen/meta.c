#include "codegen/meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void qn_hash_hex(const void *data, size_t size, char out[33])
{
    XXH128_hash_t h = XXH3_128bits(data ? data : "", size);
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

static void print_file(FILE *f, const char *name, const qn_blob *b)
{
    char hash[33];
    qn_hash_hex(b->data, b->size, hash);
    fprintf(f, "%s %zu %s\n", name, b->size, hash);
}

qn_blob qn_meta_format(const qn_kernel *k, const qn_blob *key)
{
    char *body = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&body, &size);
    if (!f) {
        return (qn_blob){0};
    }
    fprintf(f, "arch %s\nmilliseconds %ld\n", k->arch, (long)(k->seconds * 1000 + 0.5));
    print_file(f, "source", &k->source);
    print_file(f, "cubin", &k->cubin);
    print_file(f, "ptx", &k->ptx);
    for (int i = 0; i < k->n_entry; i++) {
        const qn_kernel_entry *e = &k->entries[i];
        fprintf(f, "entry %s %d %d %d %d %d %d\n", e->symbol, e->threads, e->regs, e->smem_static, e->stack,
                e->spill_stores, e->spill_loads);
    }
    fprintf(f, "key %zu\n", key->size);
    fwrite(key->data, 1, key->size, f);
    if (fclose(f) != 0 || !body) {
        free(body);
        return (qn_blob){0};
    }
    char hash[33], head[80];
    qn_hash_hex(body, size, hash);
    int n = snprintf(head, sizeof head, "quern-kernel %d %s\n", QN_CACHE_FORMAT, hash);
    qn_blob out = {malloc((size_t)n + size + 1), (size_t)n + size};
    if (out.data) {
        memcpy(out.data, head, (size_t)n);
        memcpy(out.data + n, body, size);
        out.data[out.size] = '\0';
    }
    free(body);
    return out;
}

/* The next line of the text, as a copy without its newline; false at the end or where it is too long. */
static bool next_line(const char **at, const char *end, char *line, size_t size)
{
    const char *nl = memchr(*at, '\n', (size_t)(end - *at));
    if (!nl || (size_t)(nl - *at) >= size) {
        return false;
    }
    memcpy(line, *at, (size_t)(nl - *at));
    line[nl - *at] = '\0';
    *at = nl + 1;
    return true;
}

static bool parse_file(const char *line, const char *name, qn_meta_file *out)
{
    size_t n = strlen(name);
    int used = 0;
    return strncmp(line, name, n) == 0 &&
           sscanf(line + n, " %zu %32[0-9a-f]%n", &out->size, out->hash, &used) == 2 &&
           strlen(out->hash) == 32 && line[n + (size_t)used] == '\0';
}

static bool parse_entry(const char *line, qn_kernel_entry *e)
{
    int used = 0;
    return sscanf(line, "entry %159s %d %d %d %d %d %d%n", e->symbol, &e->threads, &e->regs, &e->smem_static,
                  &e->stack, &e->spill_stores, &e->spill_loads, &used) == 7 &&
           line[used] == '\0';
}

/* The first line is compared with the one that quern writes, so that no other spelling of it passes. */
static int check_head(const qn_blob *text, const char **at, qn_err *err)
{
    char line[128], right[128], hash[33];
    int format = 0;
    const char *end = text->data + text->size;
    *at = text->data;
    if (!next_line(at, end, line, sizeof line) || sscanf(line, "quern-kernel %d", &format) != 1) {
        return qn_fail(err, "meta has no quern-kernel line");
    }
    if (format != QN_CACHE_FORMAT) {
        return qn_fail(err, "meta is of format %d, not %d", format, QN_CACHE_FORMAT);
    }
    qn_hash_hex(*at, (size_t)(end - *at), hash);
    snprintf(right, sizeof right, "quern-kernel %d %s", QN_CACHE_FORMAT, hash);
    return strcmp(line, right) == 0 ? 0 : qn_fail(err, "meta does not have its hash");
}

int qn_meta_parse(const qn_blob *text, qn_meta *m, qn_kernel *k, qn_err *err)
{
    const char *at, *end = text->data + text->size;
    char line[512];
    long ms = 0;
    if (check_head(text, &at, err) != 0) {
        return -1;
    }
    bool ok = next_line(&at, end, line, sizeof line) && sscanf(line, "arch %19s", k->arch) == 1;
    ok = ok && next_line(&at, end, line, sizeof line) && sscanf(line, "milliseconds %ld", &ms) == 1;
    ok = ok && next_line(&at, end, line, sizeof line) && parse_file(line, "source", &m->source);
    ok = ok && next_line(&at, end, line, sizeof line) && parse_file(line, "cubin", &m->cubin);
    ok = ok && next_line(&at, end, line, sizeof line) && parse_file(line, "ptx", &m->ptx);
    k->seconds = (double)ms / 1000;
    k->n_entry = 0;
    while ((ok = ok && next_line(&at, end, line, sizeof line)) && strncmp(line, "entry ", 6) == 0) {
        ok = k->n_entry < QN_KERNEL_ENTRIES && parse_entry(line, &k->entries[k->n_entry++]);
    }
    if (!ok || sscanf(line, "key %zu", &m->key_size) != 1 || m->key_size != (size_t)(end - at)) {
        return qn_fail(err, "meta is not complete");
    }
    m->key = at;
    return 0;
}
