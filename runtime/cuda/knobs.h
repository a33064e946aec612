/* knobs.h: what of a decode launch may be chosen: constants of its program that change how fast it runs, and
 * in some cases the order of its sums, never what it computes. Each launch of the lowered lists that has any
 * is a site; a site's defaults are the shipped ones, the same on every card. */
#ifndef QN_CUDA_KNOBS_H
#define QN_CUDA_KNOBS_H

#include <stdbool.h>
#include <stddef.h>

/* Which kernels a site's launch takes, and so which knobs count:
 *   Q8      linear_q8, glu_q8        warps, slices, ahead (rows), per_sm
 *   HALF    linear_half, glu_half    warps, slices, ahead (pieces of a pair of rows), per_sm
 *   COLS    linear_cols, glu_cols    warps, slices, per_sm
 *   PLAIN   linear, glu              warps
 *   MMA     attention_mma, _rope     warps, ahead (tiles of 16 keys), split, alone, least
 *   ROWS    attention_decode         warps, split */
typedef enum qn_knob_kind {
    QN_KNOBS_Q8,
    QN_KNOBS_HALF,
    QN_KNOBS_COLS,
    QN_KNOBS_PLAIN,
    QN_KNOBS_MMA,
    QN_KNOBS_ROWS,
    QN_KNOBS_KINDS
} qn_knob_kind;

typedef struct qn_knobs {
    int warps;  /* of a block */
    int slices; /* warps that share a row; their sums are added up afterwards, in their order */
    int ahead;  /* rows, pieces or tiles that a warp has asked memory for at a time */
    int per_sm; /* blocks a multiprocessor is to hold: each block's share of the rows follows */
    int split;  /* blocks that share a KV head's keys, at most */
    int alone;  /* tiles of keys that one block takes rather than share them */
    int least;  /* tiles a part has at least */
} qn_knobs;

/* What a site allows. */
typedef struct qn_knob_room {
    int parts;     /* pieces of a row that warps may share: spans (Q8), pieces (HALF), laps (COLS) */
    int most_kept; /* Q8: spans of activations a warp may keep in registers */
    int rows;      /* outputs of the launch; pairs of rows (HALF) */
    int sums;      /* HALF: outputs of a block times slices, at most */
    int split; /* MMA, ROWS: parts that fill the card at hand, a candidate; what is shipped fills a nominal
                  one */
    /* MMA, ROWS: shared memory a warp needs, and for each tile under way; all warps' together; what there is.
     * COLS: a block's, a warp's, and (merge_bytes) a slice's. */
    size_t warp_bytes, tile_bytes, fixed_bytes, merge_bytes, limit;
} qn_knob_room;

enum { QN_KNOB_KEY = 160, QN_KNOB_TEXT = 96, QN_KNOB_CANDIDATES = 16, QN_KNOB_WARPS = 16, QN_KNOB_AHEAD = 4 };

/* A launch with something to choose. */
typedef struct qn_site {
    char key[QN_KNOB_KEY]; /* "linear_q8 in 4096 out 4096 q4_K, 1024 q4_K, 1024 q6_K": kernel, shape and types
                            */
    qn_knob_kind kind;
    qn_knobs shipped, now;
    bool tuned; /* `now` was chosen by measuring */
    qn_knob_room room;
    int n_use; /* launches */
} qn_site;

/* Can a site's kernel be built and launched so? */
bool qn_knobs_fit(qn_knob_kind kind, const qn_knob_room *room, const qn_knobs *k);

/* What is worth measuring beside the shipped values, the most promising first; returns how many. */
int qn_knobs_candidates(const qn_site *s, qn_knobs out[QN_KNOB_CANDIDATES]);

/* Do two choices add in the same order, so that results are equal bit for bit? */
bool qn_knobs_same_sums(qn_knob_kind kind, const qn_knobs *a, const qn_knobs *b);

/* "warps 16, slices 1, ahead 2, blocks 1": the kind's knobs. Returns text. */
const char *qn_knobs_text(qn_knob_kind kind, const qn_knobs *k, char text[QN_KNOB_TEXT]);
/* The other way; false: not such a text. Whether the values fit is qn_knobs_fit's. */
bool qn_knobs_read(qn_knob_kind kind, const char *text, qn_knobs *out);

/* Which of n choices is taken: ms[choice * runs + run], choice 0 the shipped one. Another one must be faster
 * by more than a hundredth and than what the runs of both spread (between their quartiles, added up); 0
 * otherwise. A time that is not above 0 stands for a run that failed, and rules its choice out. */
int qn_knobs_select(const float *ms, int n, int runs);
/* The median of n times; 0 where one is not above 0. */
float qn_knobs_median(const float *ms, int n);

#endif
