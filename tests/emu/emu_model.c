/* emu_model MODEL.gguf TOKENS REFERENCE N_VOCAB TOLERANCE MODE: logits of a model through the lowered lists
 * under emulation against those of another engine. MODE: decode (one token after the other, and the greedy
 * choice of each), persistent (the same in one launch a token), ring (the same with sm90a's, whose weights
 * come through a ring), few (chunks for the few-row kernels), prefill (matrix products), mma (by quern's own
 * kernel), mixed (all three in one sequence), many (one token each of several sequences at a time), padded
 * (as mixed, with the grids of captured prompts: the same bits). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_exec.h"
#include "emu_models.h"

enum { MAX_TOKENS = 64, MANY = 3 };

/* Chunks that neither the sequence nor a window is a multiple of; 1: a decode step, negative: by the prefill
 * list. */
static const int decode_chunks[] = {1, 0}, few_chunks[] = {5, 8, 3, 7, 0},
                 prefill_chunks[] = {-13, -3, -16, 0}, mixed_chunks[] = {-11, 1, 1, 6, -9, 1, 0};

static void *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    void *p = malloc(*bytes + 1);
    *bytes = fread(p, 1, *bytes, f);
    fclose(f);
    return p;
}

static int largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

/* Two executors share no memory, so one executor runs all chunks: its list is set before each. */
static int run_all(qn_exec *e, const int32_t *ids, int n, const int *chunks, int n_vocab, float *logits,
                   qn_err *err)
{
    for (int done = 0, c = 0; done < n; c = chunks[c + 1] ? c + 1 : 0) {
        int size = abs(chunks[c]), left = n - done;
        size = size < left ? size : left;
        emu_exec_set_list(e, chunks[c] < 0 ? EMU_LIST_PREFILL : EMU_LIST_FEW);
        qn_run r = {.tokens = ids + done, .n = size, .pos = done, .outputs = QN_OUT_ALL, .stop_after = -1};
        r.phase = chunks[c] == 1 ? QN_PHASE_DECODE : QN_PHASE_PREFILL;
        r.logits = logits + (size_t)done * (size_t)n_vocab;
        if (e->run(e, &r, err)) {
            return qn_fail_prefix(err, "tokens %d to %d", done, done + size - 1);
        }
        const int32_t *ring = (const int32_t *)(uintptr_t)emu_exec_mem(e)->ring;
        if (r.phase == QN_PHASE_DECODE && ring[0] != largest(r.logits, n_vocab)) {
            return qn_fail(err, "token %d: chose %d, the largest logit is %d", done, ring[0],
                           largest(r.logits, n_vocab));
        }
        done += size;
    }
    return 0;
}

/* The same tokens in MANY sequences that begin at different times, one with a prompt, each then a token at a
 * time with the others. logits: [MANY][n][n_vocab]. */
static int run_many(qn_exec *e, const int32_t *ids, int n, int n_vocab, float *logits, qn_err *err)
{
    int done[MANY] = {0};
    float *rows = malloc(sizeof *rows * (size_t)n_vocab * MANY);
    int rc = 0;
    for (int round = 0; done[MANY - 1] < n && rc == 0; round++) {
        int seqs[MANY], n_row = 0;
        int32_t tokens[MANY];
        if (round == 2) { /* a prompt for the second */
            const qn_run r = {.tokens = ids,
                              .n = 5,
                              .phase = QN_PHASE_PREFILL,
                              .outputs = QN_OUT_ALL,
                              .stop_after = -1,
                              .logits = logits + (size_t)n * (size_t)n_vocab};
            rc = qn_exec_select(e, 1, err) || e->run(e, &r, err) ? -1 : 0;
            done[1] = 5;
            continue;
        }
        for (int s = MANY - 1; s >= 0; s--) {
            if (done[s] < n && round >= 3 * s) {
                seqs[n_row] = s;
                tokens[n_row++] = ids[done[s]];
            }
        }
        const qn_run r = {.tokens = tokens,
                          .n = n_row,
                          .phase = QN_PHASE_PREFILL,
                          .outputs = QN_OUT_ALL,
                          .stop_after = -1,
                          .logits = rows,
                          .seqs = seqs};
        rc = e->run(e, &r, err) ? qn_fail_prefix(err, "round %d", round) : 0;
        for (int i = 0; i < n_row && rc == 0; i++) {
            memcpy(logits + ((size_t)seqs[i] * (size_t)n + (size_t)done[seqs[i]]++) * (size_t)n_vocab,
                   rows + (size_t)i * (size_t)n_vocab, sizeof *rows * (size_t)n_vocab);
        }
    }
    free(rows);
    return rc;
}

static int run_model(const char *path, const int32_t *ids, int n, const int *chunks, qn_exec_opts o,
                     int variant, bool padded, int n_vocab, float *logits, qn_err *err)
{
    qn_model *m;
    qn_plans *p = NULL;
    qn_exec *e = NULL;
    qn_model_opts mo = {.n_ctx = EMU_MODEL_CTX};
    int n_program;
    emu_exec_opts eo = {.variant = variant, .multiprocessors = EMU_MULTIPROCESSORS, .seed = 1};
    eo.programs = emu_programs(&n_program);
    eo.n_program = n_program;
    eo.padded = padded;
    if (qn_model_load(&m, path, &mo, err)) {
        return -1;
    }
    int rc = qn_plans_build(&p, m, err) || emu_exec_new(&e, p, &o, &eo, err) ? -1 : 0;
    rc = rc       ? rc
         : chunks ? run_all(e, ids, n, chunks, n_vocab, logits, err)
                  : run_many(e, ids, n, n_vocab, logits, err);
    if (e) {
        e->free(e);
    }
    qn_plans_free(p);
    qn_model_free(m);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: emu_model MODEL.gguf TOKENS REFERENCE N_VOCAB TOLERANCE MODE\n");
        return 2;
    }
    size_t id_bytes, ref_bytes;
    int32_t *ids = read_file(argv[2], &id_bytes);
    float *ref = read_file(argv[3], &ref_bytes);
    int n_vocab = atoi(argv[4]), n = ids ? (int)(id_bytes / 4) : 0;
    double tolerance = atof(argv[5]), d2 = 0, ref2 = 0;
    const char *mode = argv[6];
    bool ring = strcmp(mode, "ring") == 0, persistent = ring || strcmp(mode, "persistent") == 0;
    int variant = ring ? QN_VARIANT_SM90A : QN_VARIANT_SM80;
    const int *chunks = strcmp(mode, "decode") == 0 || persistent                  ? decode_chunks
                        : strcmp(mode, "few") == 0                                 ? few_chunks
                        : strcmp(mode, "prefill") == 0 || strcmp(mode, "mma") == 0 ? prefill_chunks
                        : strcmp(mode, "many") == 0                                ? NULL
                                                                                   : mixed_chunks;
    if (!ids || !ref || n < 1 || n > MAX_TOKENS || ref_bytes != sizeof(float) * (size_t)n * (size_t)n_vocab) {
        fprintf(stderr, "emu_model: %s or %s is missing or of the wrong size\n", argv[2], argv[3]);
        return 1;
    }
    int copies = chunks ? 1 : MANY;
    float *logits = calloc((size_t)copies * (size_t)n * (size_t)n_vocab, sizeof(float));
    qn_err err;
    qn_exec_opts o = {.n_ctx = EMU_MODEL_CTX, .n_ubatch = EMU_MODEL_UBATCH, .persistent = persistent};
    o.flash_attention = ring; /* prompts have none of the others' kernels here */
    o.prefill = strcmp(mode, "mma") == 0 ? QN_PREFILL_MMA : QN_PREFILL_AUTO;
    o.weight_cache = chunks == prefill_chunks ? QN_WEIGHT_CACHE_ON : QN_WEIGHT_CACHE_OFF;
    o.n_seq = chunks ? 1 : MANY;
    bool padded = strcmp(mode, "padded") == 0;
    float *plain = padded ? calloc((size_t)n * (size_t)n_vocab, sizeof(float)) : NULL;
    if ((padded && run_model(argv[1], ids, n, chunks, o, variant, false, n_vocab, plain, &err)) ||
        run_model(argv[1], ids, n, chunks, o, variant, padded, n_vocab, logits, &err)) {
        fprintf(stderr, "emu_model: %s\n", err.text);
        return 1;
    }
    if (padded && memcmp(plain, logits, sizeof(float) * (size_t)n * (size_t)n_vocab) != 0) {
        fprintf(stderr, "emu_model: padded rows change the logits\n");
        return 1;
    }
    free(plain);
    for (int i = 0; i < copies * n * n_vocab; i++) {
        double want = (double)ref[i % (n * n_vocab)], d = (double)logits[i] - want;
        d2 += d * d;
        ref2 += want * want;
    }
    emu_counts c = emu_totals();
    printf("%s: NMSE %.2e, at most %.1e; %llu launches, %llu threads, %.1f M accesses checked\n", mode,
           d2 / ref2, tolerance, (unsigned long long)c.launches, (unsigned long long)c.threads,
           1e-6 * (double)c.accesses);
    free(ids);
    free(ref);
    free(logits);
    return d2 / ref2 <= tolerance ? 0 : 1;
}
