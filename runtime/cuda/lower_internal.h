/* lower_internal.h: between lower.c and lower_ops.c. */
#ifndef QN_CUDA_LOWER_INTERNAL_H
#define QN_CUDA_LOWER_INTERNAL_H

#include "cuda/lower.h"

typedef enum lower_mode { LOWER_DECODE, LOWER_FEW, LOWER_PREFILL } lower_mode;

/* A norm that a product left to the one step that reads it (lower_norm_in.c). */
typedef struct left_norm {
    const qn_step *post, *next; /* of the product itself, and behind it of the stream; NULL: none */
    uint64_t x, y, x_out;       /* the stream, what the product left, where the new stream goes */
} left_norm;

typedef struct lowerer {
    qn_lowered *out;
    const qn_plans *plans;
    const qn_lower_opts *opts;
    qn_cuda_list *list;
    const qn_step *step; /* NULL: the choice of the next token */
    lower_mode mode;
    qn_view q8_view; /* activations that stand in 8 bits too; buf < 0: none */
    int q8_made;     /* how often that was done */
    bool q8_rms;     /* they are of a norm that is not divided yet */
    float q8_eps;
    const qn_plan *plan;
    const qn_step *done;  /* the last step that is served together with one before it */
    const qn_step *apart; /* a product whose norm must be a kernel of its own */
    int post_width;       /* of the rows whose norms are made with their product; 0: none so far */
    int q8_turn;          /* which of mem->q8 holds them */
    bool few_rows;        /* of prefill: the head as decode has it */
    bool each;            /* of LOWER_FEW: each row is of a sequence of its own */
    left_norm left;
    int stream_buf; /* decode: the buffer that lies at stream_at now; < 0: each has its own place */
    uint64_t stream_at;
    /* Products of many rows. */
    qn_view h_view;              /* what mem->a16 holds; buf < 0: nothing */
    bool h_bf16, h_q8;           /* in which form */
    qn_view no_f32;              /* a view that was written as 16-bit values only */
    int h_made;                  /* how often a16 was written */
    int w16_turn;                /* area of 16-bit weights last written */
    const qn_step *from_product; /* a step whose input is still the product of the step before */
    bool half_in;                /* the product is f16 */
    bool scaled;                 /* the product's rows wait for their factors in mem->row_scale */
    int w16, min_rows, max_rows; /* of the actions added now */
    qn_cuda_depth depth;
    bool makes_w16;
    qn_err *err;
} lowerer;

/* A launch to add. Zero grid axes and rows_per are 1; rows_axis is set at run time. */
typedef struct launch {
    const char *kernel;  /* template */
    const char *path;    /* qn_cuda_action.path; NULL: "" */
    bool bare;           /* a kernel that serves no op by itself: no fields, only consts */
    const qn_step *also; /* a step that is served together with l->step: its fields too; NULL: none */
    qn_source_const consts[24];
    int n_const;
    uint32_t grid[3], threads, shared;
    int rows_axis;
    bool rows_share;
    uint32_t rows_per;
    uint64_t args[QN_CUDA_ARGS];
    int n_arg;
    int site;      /* qn_cuda_action.site */
    bool resident; /* qn_cuda_action.resident */
    bool rings;    /* qn_cuda_action.rings */
} launch;

int qn_lower_launch(lowerer *l, const launch *k);
int qn_lower_gemm(lowerer *l, const qn_cuda_gemm *g);

/* lower_knobs.c: what is chosen for a launch, which then is a site. `what`: the kernels' name, which the key
 * begins with; the rest is of the step (and `also`, NULL: none). On return k->site is set; NULL: out of
 * memory. */
const qn_knobs *qn_lower_knobs(lowerer *l, launch *k, qn_knob_kind kind, const char *what,
                               const qn_step *also, const qn_knob_room *room, const qn_knobs *shipped);
/* Multiprocessors of the card that shipped knobs are for, whatever card it is. */
enum { QN_LOWER_NOMINAL = 132, QN_LOWER_SHARE_FROM = 32 << 20, QN_LOWER_LEAST_SHARED = 8 };
/* Address of a view's first row; values between its rows; address of a weight (0: NULL). */
uint64_t qn_lower_at(const lowerer *l, qn_view v);
uint64_t qn_lower_stride(const lowerer *l, qn_view v);
/* Are both the same columns of a buffer, and is there one? */
bool qn_lower_same_view(qn_view a, qn_view b);
/* Where the device keeps the number of rows of the step. */
uint64_t qn_lower_row_count(const lowerer *l);
uint64_t qn_lower_weight(const lowerer *l, const qn_tensor *t);

/* A program of the list: its index (the source is taken), or -1. */
int qn_lower_program(lowerer *l, const char *name, qn_source *src);
qn_cuda_action *qn_lower_add(lowerer *l);
/* The decode list as one launch: lower_persistent.c. */
int qn_lower_persistent(lowerer *l);
/* lower_ops.c */
uint32_t qn_ceil_div(int64_t a, int64_t b);
/* Places of a row of so many groups (kernel_src/planes.cuh: n_places). */
uint64_t qn_lower_places(uint64_t groups);
uint32_t qn_row_threads(int n); /* threads for n values of one row: 32 to 1024 */
int qn_lower_outputs(const lowerer *l);
int qn_lower_linear_few(lowerer *l);

/* A product whose segments have several types, shared among blocks: a block has rows of one type, as many as
 * its share (`chunk`) of the cost holds, and at least one. cost: of a row of each segment, in 16 bytes. rows:
 * most rows of a block. */
typedef struct qn_cuda_share {
    int64_t chunk;
    int cost[3], rows;
    uint32_t blocks;
} qn_cuda_share;
/* lower_share.c. places: blocks that there is room for at a time. false: one type, with which costs are 1. */
bool qn_lower_share(const qn_spec_linear *sp, const qn_tensor *const w[3], int places, qn_cuda_share *out);

/* lower_post.c. The step after this product, where it is an RMS norm of all its outputs that a residual
 * follows, nobody else reads what the product makes, and the product's launch may make it; NULL: it may not.
 */
const qn_step *qn_lower_post_norm(const lowerer *l);
/* Do the blocks of a launch, made so that per_sm of them fit a multiprocessor by their registers, surely come
 * to be on the card together? */
bool qn_lower_all_resident(const lowerer *l, const launch *k, int per_sm);
/* Constants and arguments of a product that makes the norm behind it; NULL: there is none. */
void qn_lower_add_post(lowerer *l, launch *k, const qn_step *post);

/* lower_norm_in.c. Leaves the norms behind l->step, a product of decode, to the step that reads them, where
 * only that does, as a product of 8-bit activations: l->left; l->step writes its plain product. post: as of
 * qn_lower_post_norm; next: the norm of the stream behind it; where one is NULL, nothing is left. */
bool qn_lower_leave_norm(lowerer *l, const qn_step *post, const qn_step *next);
/* What was left to l->step; next NULL: nothing. */
left_norm qn_lower_left(const lowerer *l);
/* Constants and last arguments of a product that makes such norms (next NULL: none); in the place of 8-bit
 * activations it takes in->y, of their squares in->x. Returns bytes of shared memory for it. */
uint32_t qn_lower_norm_in(const lowerer *l, launch *k, const left_norm *in);

/* Whole groups leave places of a nominal card idle, or its busiest with much more than their share: blocks
 * share groups then. At both ends of each that costs a fence and an atomic addition, about a microsecond:
 * what a large product gains and a small one does not. */
bool qn_lower_shares_groups(const lowerer *l, const qn_knobs *k, int n_in, int n_out, int grain);

/* Products of many rows: lower_products.c. */
int qn_lower_linear_many(lowerer *l);
int qn_lower_glu_many(lowerer *l);
int qn_lower_glu_act(lowerer *l, bool raw);
/* The 16-bit form that the readers of view v take as it is, where l->step writes it: 1 f16, 2 bf16, 0: none.
 */
int qn_lower_half_form(const lowerer *l, qn_view v);
/* Are the products of step s one of the library, which may come as f16? */
bool qn_lower_as_half(const lowerer *l, const qn_step *s);
/* lower_rows.c: steps of many rows that 16 bytes fit. Do these kernels serve step s (norm, glu, rope_kv)? A
 * glu only where its readers take 16-bit rows. */
bool qn_lower_takes_rows(const lowerer *l, const qn_step *s);
int qn_lower_norm_rows(lowerer *l);
int qn_lower_glu_rows(lowerer *l, int half, bool f32);
int qn_lower_linear_rows(lowerer *l);
int qn_lower_rope_rows(lowerer *l);
/* lower_attention.c: does rope_rows.cu write the queries of this step as tiles, for attention_tma.cu behind
 * it? */
bool qn_lower_query_tiles(const lowerer *l, const qn_step *rope);
/* lower_fp8.c: as products of 16-bit operands; a weight's way into e4m3 rows, or (find) its largest value. */
int qn_lower_products_fp8(lowerer *l, qn_view in, const qn_tensor *const *w, int n, uint64_t out, int ld_out);
int qn_lower_fp8_weight(lowerer *l, const qn_tensor *t, bool find);
/* lower_wgmma.c: the first of n weights, and those behind it of its type: g->out = a16 * w^T. Returns how
 * many it took; -1: error. */
int qn_lower_wgmma(lowerer *l, const qn_tensor *const *w, int n, const qn_cuda_gemm *g);
int qn_lower_half(lowerer *l, const qn_tensor *t); /* a kept weight's way into 16-bit rows */
/* What the readers of view v, which l->step writes, take: 0 f32 only, 1 f16, 2 bf16; *f32: does anybody take
 * f32? The 16-bit form goes to mem->a16 and row_scale, and stands from now on. */
int qn_lower_half_out(lowerer *l, qn_view v, bool *f32);
/* Is the view read, or overwritten only later, behind step `s`? */
bool qn_lower_read_later(const lowerer *l, const qn_step *s, qn_view v);

/* 8-bit activations: does a step make them (qn_lower_q8_at: where)? The buffers alternate, since a step may
 * read one form while it writes the next. */
bool qn_lower_q8_target(lowerer *l, qn_view out);
/* Address of the 8-bit activations that stand. */
uint64_t qn_lower_q8_at(const lowerer *l);

/* Attention: lower_attention.c (many rows), lower_attention_few.c. */
int qn_lower_attention_prefill(lowerer *l);
int qn_lower_attention(lowerer *l);
/* This step's rope_kv and the attention after it in one kernel, where that serves them: *done. */
int qn_lower_attention_rope(lowerer *l, bool *done);
/* Bytes of shared memory a block may ask for: the least of the cards that the variant is for has them. */
size_t qn_lower_shared_limit(int variant);

/* May phases of the decode list that is lowered now take their weights through a ring (kernel_src/ring.cuh)?
 */
bool qn_lower_rings(const lowerer *l);

/* Rows of `in` as 8-bit groups at dst: lower_ops.c. */
int qn_lower_quantise(lowerer *l, qn_view in, uint64_t dst);

/* By qn_op_id: adds the actions of l->step in l->mode. */
extern int (*const qn_lower_ops[QN_OP_COUNT])(lowerer *l);
/* lower_special.c: rows of that table. */
int qn_lower_mix(lowerer *l);
int qn_lower_mul(lowerer *l);
int qn_lower_rescale(lowerer *l);
int qn_lower_altup(lowerer *l);
int qn_lower_latent_kv(lowerer *l);
/* The way of a quantised weight into planes; l->list takes it. */
int qn_lower_repack(lowerer *l, const qn_tensor *t);
/* lower_cols.c: do few rows go through the weights at once? Makes such a launch of one for 8-bit activations
 * whose first constants are "warps", "slices" and "per_sm" and whose third argument is the outputs of a
 * block; `sets`: weight rows an output. */
bool qn_lower_in_columns(const lowerer *l);
int qn_lower_columns(lowerer *l, launch *k, const char *kernel, int n_in, int n_out, int grain, int sets);
/* lower_half.c: products of few rows whose weights (those of w[n] that are not NULL) are all f16 or all bf16,
 * with rows that 16 bytes fit. */
bool qn_lower_takes_half(const lowerer *l, qn_view in, const qn_tensor *const *w, int n);
int qn_lower_linear_half(lowerer *l);
int qn_lower_glu_half(lowerer *l);
/* The choices of the next token: lower_choice.c; the greedy one goes to the end of the decode list too. */
int qn_lower_choices(lowerer *l, const qn_plan *decode);
void qn_cuda_choice_sizes(qn_cuda_sizes *z, int n_vocab, const qn_exec_opts *opts);

#endif
