/* tune_kernels.h: what was chosen of decode's launches by measuring (knobs.h), and the measuring. */
#ifndef QN_CUDA_TUNE_KERNELS_H
#define QN_CUDA_TUNE_KERNELS_H

#include "codegen/choices.h"
#include "cuda/exec.h"

/* What such choices hold for. */
typedef struct qn_kernel_world {
    const char *card;
    int cc, driver;         /* compute capability, CUDA version of the driver */
    int nvrtc[2];           /* its version */
    const qn_arch *arch;    /* what kernels are compiled for */
    const char *kernel_src; /* NULL: the embedded kernel sources */
} qn_kernel_world;

/* The choices kept in a folder; those of a file that is damaged are none (c->why). */
int qn_kernel_choices_open(qn_choices *c, const char *dir, const qn_kernel_world *w, qn_err *err);
/* qn_lower_opts.knobs with `user` such choices: false where nothing is kept, or what is shipped. */
bool qn_kernel_choice(void *user, const qn_site *site, qn_knobs *k);
/* Of a session's card. */
qn_kernel_world qn_kernel_world_of(const qn_cuda_exec *x);

/* qn_exec's tune: backend.h. */
int qn_cuda_tune(qn_exec *e, const qn_tune_opts *o, qn_tune_result *r, qn_err *err);

/* tune_time.c: decode as lowered with some knobs, compiled and loaded apart from the session's own. */
typedef struct qn_tune_build {
    qn_lowered low;
    qn_cu_module *modules;     /* by program; NULL: not built */
    qn_cu_function *functions; /* by program */
    const qn_kernel **kernels; /* by program, the jit's */
} qn_tune_build;

/* sites: [low.n_site], those whose kernels are wanted; NULL: all of decode's launches, without the choice of
 * the next token. */
int qn_tune_build_make(qn_tune_build *b, qn_cuda_exec *x, qn_jit *jit,
                       bool (*knobs)(void *user, const qn_site *site, qn_knobs *k), void *user,
                       const bool *sites, qn_err *err);
void qn_tune_build_free(qn_tune_build *b, qn_cuda_exec *x);

/* All launches of a site, or (site -1) all of a token's, as a graph; NULL: err says why. */
qn_cu_graph_exec qn_tune_capture(const qn_tune_build *b, qn_cuda_exec *x, int site, qn_err *err);

/* Two graphs in turns, `runs` times each: ms[0 .. runs) of a, ms[runs ..) of b. Before each one `before` is
 * launched, which leaves the caches as a token does. positions: [n] at which a run is timed; a time is the
 * sum over them. A run that fails has time 0. */
typedef struct qn_tune_clock {
    qn_cuda_exec *x;
    qn_cu_graph_exec before;
    qn_cu_event from, to;
    const int *positions;
    int n_position;
} qn_tune_clock;
void qn_tune_time(const qn_tune_clock *c, qn_cu_graph_exec a, qn_cu_graph_exec b, int runs, float *ms);

#endif
