/* tune.c: which algorithm of cuBLASLt serves each product of a prompt best. Timed once and remembered
 * (codegen/choices.h): the key is a product's shape, the value the algorithm's words. Only an algorithm that
 * the library offers now is taken from there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/choices.h"
#include "cuda/exec.h"

enum { WORDS = 8, TEXT = 256, RUNS = 3 };

static const char *shape_text(const qn_gemm_plan *p, char text[TEXT])
{
    snprintf(text, TEXT, "%d x %d to %d, %d rows, %s", p->n_out, p->n_in, p->ld_out, p->rows,
             p->fp8        ? "fp8"
             : p->bf16     ? "bf16"
             : p->half_out ? "f16 to f16"
                           : "f16");
    return text;
}

static const char *algo_text(const qn_lt_algo *a, char text[TEXT])
{
    int at = 0;
    for (int i = 0; i < WORDS; i++) {
        at += snprintf(text + at, TEXT - (size_t)at, "%s%" PRIx64, i ? " " : "", a->data[i]);
    }
    return text;
}

static int recall(qn_choices *c, const qn_tuning *t, size_t version, qn_err *err)
{
    char head[256];
    snprintf(head, sizeof head, "%.120s; driver %d; cuBLASLt %zu", t->card, t->driver, version);
    return qn_choices_open(c, t->dir, "products", head, err);
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

/* The plan's algorithm as it is remembered; false: not there, or not offered any more. */
static bool take_known(const qn_choices *c, qn_gemm_plan *p)
{
    char key[TEXT], text[TEXT];
    const char *value = qn_choices_get(c, shape_text(p, key));
    for (int a = 0; value && a < p->n_algo; a++) {
        if (strcmp(value, algo_text(&p->algos[a], text)) == 0) {
            p->chosen = a;
            return true;
        }
    }
    return false;
}

static void learn(qn_choices *c, const qn_gemm_plan *p)
{
    char key[TEXT], text[TEXT];
    qn_choices_put(c, shape_text(p, key), algo_text(&p->algos[p->chosen], text));
}

qn_tuned qn_gemm_tune(qn_gemm *g, const qn_tuning *t)
{
    qn_tuned n = {0};
    qn_choices m;
    qn_err ignored;
    qn_cu_event from = NULL, to = NULL;
    double start = qn_cuda_seconds();
    bool ok = recall(&m, t, g->lt.version, &ignored) == 0 &&
              !t->cu->EventCreate(&from, QN_CU_EVENT_DEFAULT) &&
              !t->cu->EventCreate(&to, QN_CU_EVENT_DEFAULT);
    if (m.why.text[0] && t->log) {
        char line[sizeof m.why.text + 32];
        snprintf(line, sizeof line, "%s and was ignored", m.why.text);
        t->log(t->user, 0, line);
    }
    int before = g->n;
    for (int i = 0; ok && i < t->list->n; i++) {
        const qn_cuda_action *a = &t->list->actions[i];
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
        qn_choices_keep(&m, &ignored); /* a folder that cannot be written is no error */
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
    qn_choices_free(&m);
    return n;
}
