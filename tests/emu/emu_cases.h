/* emu_cases.h: small plans of one step, over a pairwise covering set of each op's specialisations. emu_gen.c
 * compiles their programs, emu_ops.c runs them; both walk the same list. */
#ifndef QN_EMU_CASES_H
#define QN_EMU_CASES_H

#include "codegen/backend.h"

enum {
    CASE_VOCAB = 64,
    CASE_UBATCH = 16,
    CASE_ROWS = 80, /* most rows of a run, with which n_ubatch grows */
    CASE_TENSORS = 12,
    CASE_ALLOCS = 24,
    CASE_BUFS = 6,
    CASE_MULTIPROCESSORS = 5
};

typedef struct emu_case {
    char name[160];
    bool argmax; /* the decode list is run to its end, and its greedy choice checked */
    qn_model model;
    qn_plans plans;
    qn_buf bufs[CASE_BUFS];  /* 0 x, 1 out, 2 base, 3 logits, 4 y, 5 z */
    float *start[CASE_BUFS]; /* values before the run, [CASE_ROWS][width]; NULL: unwritten */
    qn_kv_cache kv;
    float *k, *v;     /* cache before the run, [rows], f16 values; NULL: empty */
    qn_step steps[4]; /* plans.prefill.n_step of them; the last one's output is compared */
    qn_tensor tensors[CASE_TENSORS];
    int n_tensor;
    qn_exec_opts exec;
    int pos;
    qn_outputs outputs;
    double tol_few, tol_many; /* NMSE of the lists for few rows, and of prefill */
    void *allocs[CASE_ALLOCS];
    int n_alloc;
    uint64_t random;
} emu_case;

/* Calls fn for each case of an op ("linear", or "argmax" for the greedy choice); stops where it returns
 * non-zero, and returns that. The case lives during the call only. */
typedef int (*emu_case_fn)(void *user, emu_case *c);
int emu_cases(const char *op, emu_case_fn fn, void *user);

/* Names that emu_cases takes: each op's, then "argmax"; NULL at the end. */
const char *const *emu_case_ops(void);

/* emu_case_ops.c: levels of the factors of each op, and the case of one choice of them. */
enum { MAX_FACTORS = 16 };
typedef struct emu_factors {
    const char *op;
    int n;
    int levels[MAX_FACTORS];
    int (*make)(emu_case *c, const int *choice); /* 1: not a case */
} emu_factors;
extern const emu_factors emu_all_factors[];

/* emu_case_special.c: rows of that table. */
int emu_make_fp8(emu_case *c, const int *f);
int emu_make_post(emu_case *c, const int *f);
int emu_make_mul(emu_case *c, const int *f);
int emu_make_rescale(emu_case *c, const int *f);
int emu_make_altup(emu_case *c, const int *f);
int emu_make_latent_kv(emu_case *c, const int *f);
/* emu_case_chains.c: as those. */
int emu_make_glu_chain(emu_case *c, const int *f);
int emu_make_act_chain(emu_case *c, const int *f);
int emu_make_rope_chain(emu_case *c, const int *f);

/* For builders: memory that goes with the case, random numbers, tensors. */
void *case_alloc(emu_case *c, size_t bytes);
float case_uniform(emu_case *c); /* in [-1, 1) */
int case_random(emu_case *c, int n);
/* A tensor of n_in x n_out random values of about the size `scale`. */
qn_tensor *case_tensor(emu_case *c, qn_type type, int n_in, int n_out, float scale);
/* Random values for a buffer. */
void case_fill(emu_case *c, int buf, float scale);

#endif
