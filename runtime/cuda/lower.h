/* lower.h: a plan's steps as device actions: kernel launches and matrix products.
 *
 * Lowering needs no device: addresses come from a qn_cuda_mem, which may be all zero when only the programs
 * are wanted (`quern ptx`, `quern cache warm`, compile tests). Four lists are made. decode: one token, every
 * product a GEMV. few: up to QN_CUDA_FEW rows of the prefill plan with the same kernels. each: the same,
 * where each row is of a sequence of its own. prefill: any number of rows: weights to f16, cuBLASLt, then an
 * epilogue kernel. */
#ifndef QN_CUDA_LOWER_H
#define QN_CUDA_LOWER_H

#include "codegen/backend.h"
#include "codegen/jit.h"
#include "codegen/source.h"
#include "cuda/knobs.h"

enum {
    QN_TMA_CC = 90, /* least compute capability with tensor copies */
    QN_FP8_CC = 89, /* least compute capability with products of e4m3 */
    QN_CUDA_FEW = 8,
    QN_CUDA_ACT_WIDTHS = 512,  /* different widths of products by tensor copies; more are refused */
    QN_CUDA_MAP_BYTES = 128,   /* of a tensor map */
    QN_CUDA_PROMPT_ROWS = 512, /* chunks of up to so many tokens are captured (prompt_graph.c) */
    QN_CUDA_HEAD_FEW = 4,      /* rows of logits up to which the head of a prompt runs as in decode */
    QN_CUDA_ARGS = 28,
    QN_CUDA_MAX_SPLIT = 64,
    QN_CUDA_PHASE_SHARED = 512, /* kernel_src/persistent_begin.cuh */
    QN_CUDA_COUNTER_BYTES = 64, /* from one counter of phases to the next */
    QN_CUDA_RING = 1024,        /* ids: QN_MAX_SEQ a step */
    QN_CUDA_CHOICE_BLOCKS = 64, /* at most */
    QN_CUDA_TOP_K = 100,        /* largest top-k of the fast sampler */
    QN_CUDA_SAMPLE_PASSES = 16  /* launches of the other one: 1 and 5 each for top-k, top-p and draw */
};

enum { QN_CUDA_HEAD_CHUNK = 64 << 20 };

/* Products that come as f16 are multiplied with 2^-shift. Activations are below 2^11
 * (kernel_src/half_row.cuh), so one leaves f16's range only where the magnitudes of a weight's row sum up to
 * 131,008: 10 each over 12,288. */
enum { QN_CUDA_PRODUCT_SHIFT = 12 };

/* How the next tokens are chosen: the largest logit; sample_topk.cu; sample_full.cu. */
typedef enum qn_cuda_choice {
    QN_CHOOSE_BEST,
    QN_CHOOSE_TOP_K,
    QN_CHOOSE_FULL,
    QN_CHOOSE_COUNT
} qn_cuda_choice;

/* Of kernel_src/types.cuh: qn_state. */
typedef struct qn_cuda_state {
    int32_t pos, n_rows, n_out, first_out;
    int32_t token, step, seq, many;
    struct {
        int32_t pos, seq, step, reserved;
    } rows[QN_MAX_SEQ];
} qn_cuda_state;

/* Of kernel_src/sample.cuh: qn_sampling and its flags; what the ring holds instead of a token. */
typedef struct qn_cuda_sampling {
    double inv_temp, top_p, least;
    uint64_t seed;
    float penalty;
    int32_t top_k, last_n, flags;
} qn_cuda_sampling;
enum { QN_SAMPLE_GREEDY = 1, QN_SAMPLE_MARKED = 2 };
#define QN_MARK_BANNED 0x80000000u
enum { QN_CHOSE_NAN = -1, QN_CHOSE_PENDING = -2, QN_CHOSE_INF = -3, QN_CHOSE_NONE = -4 };

/* Device addresses. */
typedef struct qn_cuda_mem {
    uint64_t state, tokens; /* qn_cuda_state; [n_ubatch] i32 */
    uint64_t *bufs;         /* by buffer index */
    uint64_t *k, *v;        /* by KV cache index */
    uint64_t k16, v16;      /* an 8-bit cache as halves, for the prompt step that reads it */
    uint64_t parts;         /* attention parts */
    /* Zero between launches: [n_ubatch][blocks] parts of attention that have arrived; [few][groups] values of
     * groups that blocks share. */
    uint64_t part_count;
    uint64_t w16[2], a16; /* 16-bit weights and activations of a product; the weights' areas take turns */
    uint64_t row_scale, product;
    uint64_t squares[2];     /* sums of squares of their groups, where a norm was begun with them */
    uint64_t stream;         /* a row of the residual stream, in turns with its buffer: lower_norm_in.c */
    uint64_t row_sums;       /* kernel_src/row_sum.cuh: zero at first, of one width of rows */
    uint64_t q8[2];          /* 8-bit activations, written in turns */
    uint64_t sampling;       /* [n_seq] qn_cuda_sampling */
    uint64_t marks, history; /* [n_seq][n_vocab] u32, [n_seq][n_ctx] i32: kernel_src/sample.cuh */
    uint64_t found, arrived; /* of the choices: candidates by block, blocks that have ended */
    uint64_t sample_work, ring;
    /* By KV cache index: tensor maps of the caches, two each (qn_tma_of, qn_tma_short_of); 0: none. */
    uint64_t *k_map, *v_map;
    uint64_t act_maps; /* maps of a16 by width (qn_cuda_act_widths), QN_CUDA_MAP_BYTES each */
    uint64_t q16;      /* queries as tiles (kernel_src/query_tile.cuh); finite before they are written */
    uint64_t pairs;    /* two words, zero between launches (attention_tma.cu) */
    uint64_t (*weight)(const void *user, const qn_tensor *t); /* 0 for NULL */
    uint64_t (*table)(const void *user, const float *table);
    uint64_t (*half)(const void *user, const qn_tensor *t); /* its 16-bit rows, 0: not kept; NULL: none are */
    /* Of weights kept as e4m3: 1 + the number of its product; 0: it is none. Their largest values. */
    int (*fp8)(const void *user, const qn_tensor *t);
    uint64_t fp8_tops; /* [products] u32: a float's bits */
    const void *user;
} qn_cuda_mem;

/* Bytes of the scratch areas above for a plan. */
typedef struct qn_cuda_sizes {
    int n_w16; /* areas of w16 bytes */
    size_t k16, v16, parts, w16, a16, q16, row_scale, product, q8, squares, part_count, row_sums, stream;
    size_t sampling, marks, history, found, arrived, sample_work;
} qn_cuda_sizes;
qn_cuda_sizes qn_cuda_scratch_sizes(const qn_plans *p, const qn_exec_opts *opts);

/* Weights and tables as they lie on the device, in the order of their first use. */
typedef struct qn_placed {
    const void *key; /* qn_tensor or RoPE table */
    const void *src;
    size_t bytes;
    uint64_t address; /* offset from the first, until there is memory */
    bool planes;      /* repacked on the way */
} qn_placed;

/* Everything the plans read. *bytes: of all. The caller frees *out. */
int qn_cuda_place(qn_placed **out, int *n, const qn_plans *plans, uint64_t *bytes, qn_err *err);
uint64_t qn_placed_at(const qn_placed *p, int n, const void *key); /* address; 0: not there, or NULL */

/* Weights kept as 16-bit rows (half_cache.c): a step's weights back to back. */
typedef struct qn_half_item {
    const qn_tensor *tensor;
    uint64_t at;
    int fp8; /* 1 + the number of its product among those of e4m3 weights; 0: 16-bit rows */
} qn_half_item;

typedef struct qn_half_cache {
    qn_half_item *items;
    int n, n_fp8;
    uint64_t bytes, base; /* base: device address of the first; 0 until it is there */
} qn_half_cache;

/* Which weights a cache holds, and how many bytes they take. */
int qn_half_cache_make(qn_half_cache *c, const qn_plans *p, const qn_exec_opts *opts, qn_err *err);
/* Is a weight of this step one of them? What every token is multiplied with and is no 16-bit row already. */
bool qn_half_kept(const qn_step *s, const qn_tensor *t, const qn_exec_opts *opts);
uint64_t qn_half_cache_at(const qn_half_cache *c, const qn_tensor *t); /* 0: not in it */
int qn_half_cache_fp8(const qn_half_cache *c, const qn_tensor *t);     /* its item's, 0: not in it */
/* Do the products of a step take e4m3 operands? Both sizes of each weight must be multiples of 16. */
bool qn_cuda_takes_fp8(const qn_step *s, const qn_exec_opts *opts);
/* The power of two that brings weights of e4m3 back whose largest is `top` (kernel_src/fp8.cuh). */
float qn_cuda_fp8_up(float top);
void qn_half_cache_free(qn_half_cache *c);
/* The weights that prefill multiplies in a step, in the order of their outputs; returns how many. */
int qn_product_weights(const qn_step *s, const qn_tensor *w[3]);
/* Does prefill multiply a step's weights as they are with 8-bit activations? Every one must be quantised. */
bool qn_cuda_takes_mmq(const qn_step *s, const qn_exec_opts *opts);

typedef struct qn_cuda_gemm {
    uint64_t a, w, out; /* [rows][n_in], [n_out][n_in] 16-bit; [rows][ld_out] f32, or f16 */
    int n_in, n_out, ld_out;
    bool bf16;
    bool half_out; /* out is f16, times 2^-QN_CUDA_PRODUCT_SHIFT */
    int fp8;       /* e4m3 operands: 1 + the number of the weights' power of two; 0: 16-bit ones */
    qn_rows rows;
} qn_cuda_gemm;

/* Where a chunk begins: at a position up to QN_CUDA_SHALLOW, or behind it. */
typedef enum qn_cuda_depth { QN_DEPTH_ANY, QN_DEPTH_SHALLOW, QN_DEPTH_DEEP } qn_cuda_depth;
enum { QN_CUDA_SHALLOW = 512 };

typedef struct qn_cuda_action {
    const qn_step *step; /* NULL: the choice of the next token */
    const char *path;    /* how a product is computed, for people: "gemv", "cuBLASLt f16"; "" elsewhere */
    bool is_gemm;
    qn_cuda_gemm gemm;
    int program; /* index into qn_lowered.programs */
    uint32_t grid[3], threads, shared;
    const qn_tensor *repack; /* made of this weight at load: its planes (args[0]: its blocks, set at run time)
                              * or its kept 16-bit rows */
    int w16;                 /* 1, 2: the area of 16-bit weights that it writes or reads; 0: none */
    bool makes_w16;          /* it writes them: may run beside what does not read that area */
    int min_rows, max_rows;  /* runs for so many rows only; max_rows 0: no limit */
    qn_cuda_depth depth;     /* and for chunks that begin there only */
    bool cooperative;        /* all blocks must be on the card at once */
    bool resident;           /* the same, and its shape sees to it: launched as others are */
    int rows_axis;           /* grid axis that is set to the number of rows at run time; -1: none */
    uint32_t rows_per;       /* rows that one block of that axis serves */
    bool rows_share;         /* the second axis is divided by the number of rows */
    bool rings;              /* as a phase it can take weights through a ring (kernel_src/ring.cuh) */
    qn_rows rows;
    uint64_t args[QN_CUDA_ARGS]; /* every kernel parameter is a pointer or an i64 */
    int n_arg;
    const uint64_t *words; /* a last parameter: so many words by value; NULL: there is none */
    int site;              /* 1 + index into qn_lowered.sites; 0: there is nothing to choose */
} qn_cuda_action;

/* Of kernel_src/persistent_begin.cuh: qn_phase. */
typedef struct qn_cuda_phase {
    int32_t program;
    uint32_t n_block, before, waiter;
    uint64_t own[QN_CUDA_ARGS]; /* words */
} qn_cuda_phase;

typedef struct qn_cuda_list {
    qn_cuda_action *actions;
    int n, cap;
} qn_cuda_list;

typedef struct qn_cuda_program {
    qn_source source;
    char name[40];        /* of the template, without ".cu" */
    const qn_step *first; /* a step that uses it; NULL: the choice of the next token */
    int n_use;
} qn_cuda_program;

typedef struct qn_lowered {
    qn_cuda_list decode, few, prefill;
    qn_cuda_list each;                    /* few, where each row is of a sequence of its own */
    qn_cuda_list choose[QN_CHOOSE_COUNT]; /* behind decode, few or each; decode has the first in it */
    qn_cuda_list repack;                  /* one action a quantised weight */
    qn_cuda_list halves;                  /* one action a weight kept as 16-bit or e4m3 rows */
    qn_cuda_list tops;                    /* before them: the largest values of those kept as e4m3 */
    /* Decode as one launch (where asked for): an action with arguments phases [n_phase], n_phase and counters
     * [1 + n_phase] of QN_CUDA_COUNTER_BYTES each, zero at first; the caller sets both addresses. */
    qn_cuda_list persistent;
    qn_cuda_list persistent_steps; /* the same without its last phase, the choice; counters of its own */
    qn_cuda_phase *phases;
    uint64_t *words; /* [n_word] arguments that all phases of a program have alike */
    int n_phase, n_word;
    qn_cuda_program *programs;
    int n_program, cap_program;
    qn_site *sites;
    int n_site, cap_site;
} qn_lowered;

typedef struct qn_lower_opts {
    const qn_exec_opts *exec;
    const qn_cuda_mem *mem;
    int variant;          /* QN_VARIANT_* */
    bool no_fuse;         /* norms are kernels of their own */
    bool f32_activations; /* products of few rows take f32 activations for every weight type */
    bool persistent;      /* the decode list as one launch too */
    int multiprocessors;  /* for launch shapes only, never for constants */
    int product_tokens;   /* tile of product_wgmma.cu for any number of rows; 0: by rows */
    int64_t share_from;   /* weights from which on a product's blocks share groups; 0: QN_LOWER_SHARE_FROM */
    size_t head_chunk;    /* most bytes of the head as 16-bit rows at a time; 0: QN_CUDA_HEAD_CHUNK */
    /* What stands in place of a site's shipped knobs: fills *k and returns true. Values that do not fit are
     * not taken; phases of the persistent kernel have the shipped ones always. NULL: nothing does. */
    bool (*knobs)(void *user, const qn_site *site, qn_knobs *k);
    void *knobs_user;
} qn_lower_opts;

/* Have 8-bit rows of n values a step for every 16 of them (kernel_src/quantise.cuh: FINE)? Rows narrower than
 * QN_CUDA_FINE_BELOW: products of theirs are bound by neither bytes nor instructions, so the better steps are
 * free there, and small models need them. */
enum { QN_CUDA_FINE_BELOW = 2048 };
bool qn_cuda_fine(const qn_exec_opts *opts, int n);

/* Bytes of a row of `heads` heads of `dim` values in a KV cache (kernel_src/kv_q8.cuh). */
size_t qn_cuda_kv_bytes(qn_cache_type type, int heads, int dim);

/* `dim` values into a head of a row and out of it. */
void qn_cuda_kv_put(qn_cache_type type, const float *x, uint8_t *head, int dim);
void qn_cuda_kv_get(qn_cache_type type, const uint8_t *head, float *x, int dim);

/* What attention_tma.cu copies of a cache at a time: boxes of 64 values, so many positions, dim / 64, one
 * head. keys 0: it does not serve this cache. */
typedef struct qn_tma {
    int keys, stages, boxes; /* boxes: copies a tile */
    uint64_t dims[4],
        strides[3]; /* values; bytes between positions, between 64s of dimensions, between heads */
    uint32_t box[4];
} qn_tma;
qn_tma qn_tma_of(const qn_kv_cache *kv, const qn_exec_opts *opts);
/* The same of its shape for few pairs of a head and rows: 64 query rows, 64 keys. Its map lies behind the
 * other's. keys 0: there is none. */
qn_tma qn_tma_short_of(const qn_kv_cache *kv, const qn_exec_opts *opts);

/* Heads whose queries may come to it as tiles of 128 rows (kernel_src/query_tile.cuh), and bytes of a tile.
 */
bool qn_cuda_tiles_dim(int k_dim);
size_t qn_cuda_query_tile_bytes(int k_dim);

/* Does product_wgmma.cu multiply this weight, as planes or as f16 rows? */
bool qn_cuda_takes_wgmma(const qn_tensor *t, const qn_exec_opts *opts);
/* Widths of the activations that it reads as tensors, each once, into widths[QN_CUDA_ACT_WIDTHS]; returns how
 * many there are (more than that: too many). */
int qn_cuda_act_widths(const qn_plans *p, const qn_exec_opts *opts, int *widths);
/* What it copies of rows of n_in values at a time: 64 values of 64 rows. */
qn_tma qn_act_tma_of(int n_in, const qn_exec_opts *opts);

/* Bytes of a weight on the device: planes of a quantised one (kernel_src/planes.cuh), its own bytes
 * otherwise. */
uint64_t qn_cuda_weight_bytes(const qn_tensor *t);
bool qn_cuda_is_planes(const qn_tensor *t);

int qn_lower(qn_lowered *out, const qn_plans *plans, const qn_lower_opts *opts, qn_err *err);
void qn_lowered_free(qn_lowered *l);
/* Rows of the captured prompt that serves so many (prompt_graph.c); more than QN_CUDA_PROMPT_ROWS have none.
 */
int qn_cuda_bucket(int rows, int n_ubatch);
/* Does an action run for this many rows, the first of them at position `pos`? */
bool qn_cuda_runs(const qn_cuda_action *a, int rows, int pos);

#endif
