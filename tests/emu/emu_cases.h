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
    CASE_SEQS = 2, /* sequences of a case's executors */
    CASE_MULTIPROCESSORS = 5
};

typedef struct emu_case {
    char name[160];
    int variant;  /* hardware variant that it runs on */
    int few_rows; /* rows in the list for few: 2 to 8 */
    bool argmax;  /* the decode list is run to its end, and its greedy choice checked */
    qn_model model;
    qn_plans plans;
    qn_buf bufs[CASE_BUFS];  /* 0 x, 1 out, 2 base, 3 logits, 4 y, 5 z */
    float *start[CASE_BUFS]; /* values before the run, [CASE_ROWS or rows][width]; NULL: unwritten */
    qn_kv_cache kv;
    float *k, *v;     /* cache before the run, [rows], f16 values; NULL: empty */
    qn_step steps[4]; /* plans.prefill.n_step of them; the last one's output is compared */
    qn_tensor tensors[CASE_TENSORS];
    int n_tensor;
    qn_exec_opts exec;
    int seq, pos; /* the selected sequence, and its length before the run */
    qn_outputs outputs;
    int rows;          /* a large case: rows of a prompt, with as many start values; 0: it is none */
    const int *sample; /* [n_sample] rows of them that are compared */
    int n_sample;
    double tol_few, tol_many; /* NMSE of the lists for few rows, and of prefill */
    void *allocs[CASE_ALLOCS];
    int n_alloc;
    uint64_t random;
} emu_case;

/* The next cases are built without values: for one who only counts them. */
void emu_cases_empty(bool empty);
/* Calls fn for each case of an op ("linear", or "argmax" for the greedy choice); stops where it returns
 * non-zero, and returns that. The case lives during the call only. */
typedef int (*emu_case_fn)(void *user, emu_case *c);
int emu_cases(const char *op, emu_case_fn fn, void *user);

/* Ways of lowering beside the usual one. */
typedef struct emu_route {
    qn_prefill prefill;
    bool f32, no_fuse, tma, f32_products;
    int tokens; /* rows of a tile of product_wgmma.cu, of attention_tma.cu (0: 128); EMU_FEW_TYPES: see below
                 */
} emu_route;
/* Are such plans run that way on a variant? Its own products of prompts: sm90a's are those of warpgroups;
 * tiles wider than 64, and EMU_FEW_TYPES, only with a type of each kind; of attention_tma.cu's tiles of 64,
 * and EMU_FEW_TYPES, heads of up to 128, and without a window (a ring would be longer). A product and the
 * step that reads it: as the library makes it, with f16 or f32 between the two, on sm80. */
enum { EMU_FEW_TYPES = 1 };
bool emu_case_has_route(const qn_plans *plans, int variant, const emu_route *r);

/* Names that emu_cases takes: each op's, then "argmax"; NULL at the end. */
const char *const *emu_case_ops(void);

/* emu_case_ops.c: levels of the factors of each op, and the case of one choice of them. */
enum { MAX_FACTORS = 16 };
typedef struct emu_factors {
    const char *op;
    int n;
    int levels[MAX_FACTORS];
    int (*make)(emu_case *c, const int *choice); /* 1: not a case */
    bool any_variant; /* the hardware variant is no factor: kernels do not ask for it */
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
int emu_make_rope_attention(emu_case *c, const int *f);
/* The same on sm_90a where queries come as tiles: heads that rope_rows.cu takes, f16 caches, no window. */
int emu_make_tile_attention(emu_case *c, const int *f);

/* The folder of the shapes' heads; the build's, unless another is set. */
void emu_set_shapes(const char *dir);
/* emu_case_shapes.c: cases of an op from the steps of real models' shapes. */
int emu_shape_cases(int op, int *n_case, emu_case_fn fn, void *user);

/* Fills a case whose step has a spec (of an op that real models have; which `real` became); false: the op has
 * only cases of its own. */
bool emu_case_of_spec(emu_case *c, const qn_spec *s, const qn_spec *real);

/* A case without anything but an op; and the end of one. */
void case_init(emu_case *c, int op, uint64_t seed);
void case_free(emu_case *c);
/* The KV cache of the first step; random keys and values in it, large ones where no query may look. */
void case_attention_cache(emu_case *c, int n_kv, int k_dim, int v_dim, int window);
void case_fill_cache(emu_case *c);

/* For builders: memory that goes with the case, random numbers, tensors. */
void *case_alloc(emu_case *c, size_t bytes);
float case_uniform(emu_case *c); /* in [-1, 1) */
int case_random(emu_case *c, int n);
bool case_is_empty(void); /* emu_cases_empty */
/* A tensor of n_in x n_out random values of about the size `scale`. */
qn_tensor *case_tensor(emu_case *c, qn_type type, int n_in, int n_out, float scale);
/* Scales the weights of a gate so that its products with values of about 1 are of about 2: where all gates of
 * a row lie far below 0, e to the power of them magnifies whatever is left of a rounding. */
void case_gate(qn_tensor *t);
/* Random values for a buffer. */
void case_fill(emu_case *c, int buf, float scale);
/* Makes the second row small: there a norm's sum of squares is of about 1. */
void case_small_row(emu_case *c, int buf);

#endif
