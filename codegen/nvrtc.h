/* nvrtc.h: the run-time compiler, found and opened at run time; and the target a kernel is compiled for. */
#ifndef QN_CODEGEN_NVRTC_H
#define QN_CODEGEN_NVRTC_H

#include <stdbool.h>

#include "base/dynlib.h"
#include "base/error.h"
#include "codegen/nvrtc_api.h"

enum { QN_NVRTC_MIN_MAJOR = 12, QN_NVRTC_ARCHS = 64 };

typedef struct qn_nvrtc {
    qn_nvrtc_api api;
    qn_dynlib lib;              /* place and file */
    char builtins[QN_PATH_MAX]; /* the libnvrtc-builtins it uses */
    int major, minor;           /* 13, 0 */
    int n_arch;                 /* ascending: 75, 80, ... */
    int archs[QN_NVRTC_ARCHS];
} qn_nvrtc;

/* Finds NVRTC (12.0 or newer). driver_major > 0: one that is not newer than that CUDA version is preferred,
 * since an older driver may refuse what a newer compiler makes. On failure err says what was looked for and
 * the remedy. */
int qn_nvrtc_load(qn_nvrtc *out, int driver_major, qn_err *err);

/* The hardware variants of the kernels (QN_VARIANT in kernel_src/). */
enum { QN_VARIANT_SM75 = 75, QN_VARIANT_SM80 = 80, QN_VARIANT_SM90A = 90 };

typedef struct qn_arch {
    char name[20]; /* "sm_90a"; "compute_90" where only PTX can be made */
    int cc;        /* compute capability the code is for: 75, 90, ... */
    bool ptx_only;
    int variant; /* best of QN_VARIANT_* for it */
} qn_arch;

/* Target for a device of compute capability cc (90: 9.0). A card newer than this NVRTC gets the highest
 * supported architecture below it, as PTX, which the driver then compiles. */
int qn_arch_for_device(qn_arch *out, const qn_nvrtc *nvrtc, int cc, qn_err *err);

/* Target by name: "sm_75" ... "sm_120a", "compute_80". One that this NVRTC does not know is an error that
 * lists those it does. */
int qn_arch_by_name(qn_arch *out, const qn_nvrtc *nvrtc, const char *name, qn_err *err);

/* A variant by name ("sm75", "sm80", "sm90a") that runs on the target; anything else is an error. */
int qn_variant_by_name(int *out, const qn_arch *arch, const char *name, qn_err *err);
const char *qn_variant_name(int variant);

#endif
