/* programs.h: the CUDA programs of a model without a session: lowered, and compiled for any architecture. No
 * GPU is needed; `quern ptx`, `quern plan --kernels` and `quern cache warm` stand on this. */
#ifndef QN_CUDA_PROGRAMS_H
#define QN_CUDA_PROGRAMS_H

#include "cuda/driver.h"
#include "cuda/lower.h"

/* What the programs are for. */
typedef struct qn_cuda_target {
    bool has_device; /* device is filled: the programs are for it where `arch` is not given */
    qn_cuda_device device;
    int driver_major;    /* CUDA version of its driver; 0 without one */
    int driver;          /* the same whole: 13000 */
    int multiprocessors; /* launch shapes are for that many */
    bool has_nvrtc;
    qn_nvrtc nvrtc;
    qn_arch arch; /* without NVRTC only cc, name and variant mean something */
} qn_cuda_target;

/* The target: `arch` ("sm_90a"), or the device's, or sm_90a where there is no device; `variant` as in
 * qn_exec_opts. need_nvrtc: a missing NVRTC is an error; otherwise an explicit arch is taken by its name
 * only. */
int qn_cuda_target_find(qn_cuda_target *out, int device, const char *arch, const char *variant,
                        bool need_nvrtc, qn_err *err);

/* Fills every address of *m that is not a function's: no two are alike. m->bufs, k and v (k_map, v_map) have
 * room for the plans' buffers and KV caches. Which arguments of a program differ between its launches is as
 * in a run then, and no address is below 2^32. */
void qn_cuda_placeholders(qn_cuda_mem *m, const qn_plans *plans);

/* Lowers the plans for the target with placeholder addresses: launch shapes and sources are those of a run
 * with the same options, pointers are not. */
int qn_cuda_lower_only(qn_lowered *out, const qn_plans *plans, const qn_exec_opts *opts,
                       const qn_cuda_target *target, qn_err *err);

typedef struct qn_cuda_programs {
    qn_lowered low;
    qn_jit *jit;
    const qn_kernel **kernels; /* by program; NULL where `wanted` said no */
    char cache[QN_PATH_MAX];   /* folder the kernels went to; "": memory only */
    double seconds;            /* spent on compiling and looking up */
    int n_cached, n_compiled;
} qn_cuda_programs;

/* Lowers and compiles through the cache (opts->cache, opts->kernel_src). wanted(user, p): is the program
 * asked for; NULL: all. progress: qn_jit_opts. */
int qn_cuda_programs_make(qn_cuda_programs *out, const qn_plans *plans, const qn_exec_opts *opts,
                          const qn_cuda_target *target, bool (*wanted)(void *user, const qn_cuda_program *p),
                          void *user, qn_err *err);
void qn_cuda_programs_free(qn_cuda_programs *p);

/* Most dynamic shared memory a launch of the program asks for, bytes. */
uint32_t qn_cuda_dynamic_shared(const qn_lowered *l, int program);

#endif
