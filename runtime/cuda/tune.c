/* tune.c: which algorithm of cuBLASLt serves each product of a prompt best. Timed once; a text file
 * remembers: a line that names the file's key, then a line a product: its shape and the algorithm's words.
 * Only an algorithm that the library offers now is taken from it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/cache.h"
#include "cuda/exec.h"

enum { WORDS = 8, LINE = 320, MOST_LINES = 4096, RUNS = 3 };

typedef struct known {
    int n_in, n_out, ld_out, rows, bf16;
    uint64_t algo[WORDS];
} known;

typedef struct memory {
    char path[QN_PATH_MAX + 64], key[256];
    known *items;
    int n;
} memory;

static bool same_shape(const known *k, const qn_gemm_plan *p)
{
    return k->n_in == p->n_in && k->n_out == p->n_out && k->ld_out == p->ld_out && k->rows == p->rows &&
           k->bf16 == (int)p->bf16;
}

static bool read_line(const char *line, known *k)
{
    int at = 0;
    if (sscanf(line, "%d %d %d %d %d%n", &k->n_in, &k->n_out, &k->ld_out, &k->rows, &k->bf16, &at) != 5) {
        return false;
    }
    for (int i = 0; i < WORDS; i++) {
        int used = 0;
        if (sscanf(line + at, " %16" SCNx64 "%n", &k->algo[i], &used) != 1) {
            return false;
        }
        at += used;
    }
    return true;
}

/* A file that is not there, not ours or not whole holds nothing from the first such line on. */
static bool recall(memory *m, const qn_tuning *t, size_t version)
{
    char digest[17], line[LINE];
    snprintf(m->key, sizeof m->key, "quern products 1; %.120s; driver %d; cuBLASLt %zu", t->card, t->driver,
             version);
    qn_cache_digest(m->key, strlen(m->key), digest);
    snprintf(m->path, sizeof m->path, "%s/products-%s.txt", t->dir, digest);
    m->items = qn_calloc(MOST_LINES, sizeof *m->items);
    FILE *f = m->items ? fopen(m->path, "r") : NULL;
    if (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        bool ours = strcmp(line, m->key) == 0;
        while (ours && m->n < MOST_LINES && fgets(line, sizeof line, f) && read_line(line, &m->items[m->n])) {
            m->n++;
        }
    }
    if (f) {
        fclose(f);
    }
    return m->items != NULL;
}

/* Whole or not at all: another process may read. A folder that cannot be written is no error. */
static void keep(const memory *m)
{
    char temp[QN_PATH_MAX + 96];
    snprintf(temp, sizeof temp, "%s.%ld", m->path, (long)getpid());
    FILE *f = fopen(temp, "w");
    if (!f) {
        return;
    }
    bool ok = fprintf(f, "%s\n", m->key) > 0;
    for (int i = 0; i < m->n; i++) {
        const known *k = &m->items[i];
        ok = ok && fprintf(f, "%d %d %d %d %d", k->n_in, k->n_out, k->ld_out, k->rows, k->bf16) > 0;
        for (int w = 0; w < WORDS; w++) {
            ok = ok && fprintf(f, " %" PRIx64, k->algo[w]) > 0;
        }
        ok = ok && fputc('\n', f) != EOF;
    }
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(temp, m->path) != 0) {
        unlink(temp);
    }
}

/* Milliseconds of one run of the chosen algorithm, the best of RUNS; negative: it failed. */
static float time_one(qn_gemm *g, const qn_tuning *t, const qn_cuda_gemm *q, qn_cu_event from, qn_cu_event to)
{
    qn_err ignored;
    float best = -1.0f;
    for (int i = 0; i <= RUNS; i++) { /* the first is not counted */
        float ms = 0;
        qn_cu_result r = t->cu->EventRecord(from, t->stream);
        if (r || qn_gemm_run(g, q, t->rows, t->stream, &ignored) || t->cu->EventRecord(to, t->stream) ||
            t->cu->EventSynchronize(to) || t->cu->EventElapsedTime(&ms, from, to)) {
            return -1.0f;
        }
        best = i > 0 && (best < 0 || ms < best) ? ms : best;
    }
    return best;
}

/* Times every algorithm of a plan and chooses; false: the first one does not even run. */
static bool choose(qn_gemm *g, const qn_tuning *t, const qn_cuda_gemm *q, qn_gemm_plan *p, qn_cu_event from,
                   qn_cu_event to)
{
    float first = -1, best = -1;
    int chosen = 0;
    for (int i = 0; i < p->n_algo; i++) {
        p->chosen = i;
        float ms = time_one(g, t, q, from, to);
        first = i == 0 ? ms : first;
        /* Noise must not unseat the library's choice. */
        if (ms >= 0 && (best < 0 || ms < 0.99f * best)) {
            best = ms;
            chosen = i;
        }
    }
    p->chosen = chosen;
    if (t->log) {
        char line[160];
        snprintf(line, sizeof line,
                 "product %d x %d by %d rows: algorithm %d of %d, %.3f ms (the first: %.3f ms)", p->n_out,
                 p->n_in, p->rows, chosen + 1, p->n_algo, (double)best, (double)first);
        t->log(t->user, 1, line);
    }
    return first >= 0;
}

/* The plan's algorithm as the file has it; false: not there, or not offered any more. */
static bool take_known(const memory *m, qn_gemm_plan *p)
{
    for (int i = 0; i < m->n; i++) {
        for (int a = 0; a < p->n_algo && same_shape(&m->items[i], p); a++) {
            if (memcmp(m->items[i].algo, p->algos[a].data, sizeof p->algos[a].data) == 0) {
                p->chosen = a;
                return true;
            }
        }
    }
    return false;
}

static void learn(memory *m, const qn_gemm_plan *p)
{
    int at = 0;
    while (at < m->n && !same_shape(&m->items[at], p)) {
        at++;
    }
    if (at == MOST_LINES) {
        return;
    }
    m->n = at == m->n ? m->n + 1 : m->n;
    m->items[at] = (known){p->n_in, p->n_out, p->ld_out, p->rows, (int)p->bf16, {0}};
    memcpy(m->items[at].algo, p->algos[p->chosen].data, sizeof m->items[at].algo);
}

qn_tuned qn_gemm_tune(qn_gemm *g, const qn_tuning *t)
{
    qn_tuned n = {0};
    memory m = {.n = 0};
    qn_cu_event from = NULL, to = NULL;
    double start = qn_cuda_seconds();
    bool ok = recall(&m, t, g->lt.version) && !t->cu->EventCreate(&from, QN_CU_EVENT_DEFAULT) &&
              !t->cu->EventCreate(&to, QN_CU_EVENT_DEFAULT);
    int before = g->n;
    for (int i = 0; ok && i < t->list->n; i++) {
        const qn_cuda_action *a = &t->list->actions[i];
        qn_err ignored;
        int plans = g->n;
        qn_gemm_plan *p =
            a->is_gemm && a->rows == QN_ROWS_TOKENS ? qn_gemm_find(g, &a->gemm, t->rows, &ignored) : NULL;
        if (!p || g->n == plans) {
            continue; /* no product, one the library refuses (running it says why), or one seen already */
        }
        if (take_known(&m, p)) {
            n.found++;
        } else if (qn_cuda_seconds() - start < t->budget) {
            ok = choose(g, t, &a->gemm, p, from, to);
            if (ok) {
                learn(&m, p);
                n.timed++;
            }
        }
    }
    if (n.timed > 0) {
        mkdir(t->dir, 0777);
        keep(&m);
    }
    if (!ok) { /* an algorithm that fails is not for this card: back to the library's choice everywhere */
        for (int i = before; i < g->n; i++) {
            g->plans[i].chosen = 0;
        }
    }
    if (from) {
        t->cu->EventDestroy(from);
    }
    if (to) {
        t->cu->EventDestroy(to);
    }
    free(m.items);
    return n;
}
