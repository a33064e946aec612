// Compares the logits of a real model with a stored reference distribution (format:
// tests/data/real/README.md).
//
//     compare_real REFERENCE LOGITS N_VOCAB FIRST_ROW MAX_KL exact|fast|kl
//
// LOGITS: float32 [n][N_VOCAB]; its rows FIRST_ROW, FIRST_ROW + 1, ... belong to the positions of REFERENCE.
// Fails (exit 1) when the mean of KL(reference || logits) over the positions exceeds MAX_KL, when a logit is
// NaN or Inf, when rows are missing, or when the most likely token differs where the reference's two most
// likely lie more than 0.25 apart. That reference is the F32 distribution for `exact`; for `fast` it is the
// other engine's run of the file as it is; with `kl` such tokens are only counted, as for `fast`. Prints one
// line with the figures. Exit 2: usage, or a file that cannot be read.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_MARGIN 0.25
#define NLP_SCALE  4096.0 // steps per unit of a stored -ln p

typedef struct {
    uint32_t as_is_id; // most likely token of the file as it is
    float as_is_margin, log_rest;
    uint32_t n; // tokens stored
} head;

typedef struct {
    double kl, worst_kl;
    int positions, decided, differ, worst;
    long not_finite;
} result;

static FILE *open_or_exit(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    return f;
}

static void read_or_exit(void *to, size_t size, FILE *f, const char *path)
{
    if (fread(to, 1, size, f) != size) {
        fprintf(stderr, "%s: ends too early\n", path);
        exit(1);
    }
}

// Turns logits into natural log-probabilities; returns the number that are not finite.
static long log_softmax(const float *logits, double *logp, size_t n, size_t *best)
{
    long not_finite = 0;
    double sum = 0;
    *best = 0;
    for (size_t i = 0; i < n; i++) {
        not_finite += !isfinite(logits[i]);
        if (logits[i] > logits[*best])
            *best = i;
    }
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - logits[*best]);
    for (size_t i = 0; i < n; i++)
        logp[i] = (double)logits[i] - logits[*best] - log(sum);
    return not_finite;
}

// KL over the stored tokens and one bin for all others. Dividing by the sum of the stored probabilities takes
// out, to first order, the error of their rounding. logp of the stored tokens is overwritten.
static double kl_binned(const head *h, const uint32_t *ids, const uint16_t *nlp, double *logp, size_t n_vocab)
{
    double kl = 0, others = 0, total = exp(h->log_rest);
    for (uint32_t i = 0; i < h->n; i++)
        total += exp(-nlp[i] / NLP_SCALE);
    for (uint32_t i = 0; i < h->n; i++) {
        double want = -nlp[i] / NLP_SCALE - log(total);
        kl += exp(want) * (want - logp[ids[i]]);
        logp[ids[i]] = -INFINITY;
    }
    for (size_t i = 0; i < n_vocab; i++)
        others += exp(logp[i]);
    double rest = h->log_rest - log(total);
    return kl + exp(rest) * (rest - log(others));
}

static void compare_row(const head *h, const uint32_t *ids, const uint16_t *nlp, const float *logits,
                        size_t n_vocab, int exact, double *logp, result *r)
{
    size_t best;
    r->not_finite += log_softmax(logits, logp, n_vocab, &best);
    double margin = exact ? (nlp[1] - nlp[0]) / NLP_SCALE : h->as_is_margin;
    uint32_t want = exact ? ids[0] : h->as_is_id;
    if (margin > MIN_MARGIN) {
        r->decided++;
        r->differ += best != want;
    }
    double kl = kl_binned(h, ids, nlp, logp, n_vocab);
    r->kl += kl;
    if (!(kl <= r->worst_kl)) {
        r->worst_kl = kl;
        r->worst = r->positions;
    }
    r->positions++;
}

static int compare(const char *ref_path, const char *logits_path, size_t n_vocab, long first_row, int exact,
                   result *r)
{
    FILE *ref = open_or_exit(ref_path), *got = open_or_exit(logits_path);
    float *logits = malloc(n_vocab * sizeof *logits);
    double *logp = malloc(n_vocab * sizeof *logp);
    uint32_t *ids = malloc(n_vocab * sizeof *ids);
    uint16_t *nlp = malloc(n_vocab * sizeof *nlp);
    head h;
    if (!logits || !logp || !ids || !nlp ||
        fseek(got, first_row * (long)(n_vocab * sizeof *logits), SEEK_SET))
        exit(2);
    while (fread(&h, sizeof h, 1, ref) == 1) {
        if (h.n < 2 || h.n >= n_vocab || h.as_is_id >= n_vocab)
            exit(2);
        read_or_exit(ids, h.n * sizeof *ids, ref, ref_path);
        read_or_exit(nlp, h.n * sizeof *nlp, ref, ref_path);
        read_or_exit(logits, n_vocab * sizeof *logits, got, logits_path);
        for (uint32_t i = 0; i < h.n; i++)
            if (ids[i] >= n_vocab)
                exit(2);
        compare_row(&h, ids, nlp, logits, n_vocab, exact, logp, r);
    }
    fclose(ref);
    fclose(got);
    free(logits);
    free(logp);
    free(ids);
    free(nlp);
    return r->positions > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 7 || (strcmp(argv[6], "exact") && strcmp(argv[6], "fast") && strcmp(argv[6], "kl"))) {
        fprintf(stderr, "usage: %s REFERENCE LOGITS N_VOCAB FIRST_ROW MAX_KL exact|fast|kl\n", argv[0]);
        return 2;
    }
    int exact = !strcmp(argv[6], "exact"), tokens = strcmp(argv[6], "kl") != 0;
    double max_kl = strtod(argv[5], NULL);
    result r = {0};
    if (compare(argv[1], argv[2], strtoul(argv[3], NULL, 10), atol(argv[4]), exact, &r)) {
        fprintf(stderr, "%s: empty\n", argv[1]);
        return 2;
    }
    r.kl /= r.positions;
    int ok = r.kl <= max_kl && !r.not_finite && !(tokens && r.differ);
    printf("%s mean KL %.3e (at most %.0e), worst %.1e at %d; argmax differs in %d of %d decided positions "
           "(of %d); "
           "%ld values not finite\n",
           ok ? "ok" : "FAILED", r.kl, max_kl, r.worst_kl, r.worst, r.differ, r.decided, r.positions,
           r.not_finite);
    return !ok;
}
