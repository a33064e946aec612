/* driver.h: the CUDA driver, found and opened at run time; what devices it has, and why it does not work. */
#ifndef QN_CUDA_DRIVER_H
#define QN_CUDA_DRIVER_H

#include "base/dynlib.h"
#include "base/error.h"
#include "cuda/cuda_api.h"

typedef struct qn_cuda {
    qn_cuda_api api;
    qn_dynlib lib;
    int version;  /* CUDA version the driver supports: 13000 is 13.0 */
    int n_device; /* visible ones; 0 before qn_cuda_init */
} qn_cuda;

/* Opens libcuda.so.1 and looks the entry points up; calls nothing that needs a device. err names cause and
 * remedy. */
int qn_cuda_load(qn_cuda *out, qn_err *err);

/* Starts the driver and counts devices; none is an error. err names cause and remedy (CUDA_VISIBLE_DEVICES, a
 * driver that does not fit its kernel module, missing device files, ...). */
int qn_cuda_init(qn_cuda *cuda, qn_err *err);

typedef struct qn_cuda_device {
    char name[128];
    int cc; /* 90: compute capability 9.0 */
    int multiprocessors;
    int cooperative_launch; /* 0: blocks of one launch cannot wait for each other */
    int smem_per_block;     /* most bytes a block may opt in to */
    int l2_bytes;
    uint64_t memory; /* bytes */
    qn_cu_device handle;
} qn_cuda_device;

/* Properties of device `index` (0 .. n_device - 1). */
int qn_cuda_device_get(const qn_cuda *cuda, int index, qn_cuda_device *out, qn_err *err);

/* "what: ERROR_NAME (description)" of a failed call, with the remedy where there is a known one; returns -1.
 */
int qn_cuda_fail(const qn_cuda *cuda, qn_cu_result r, const char *what, qn_err *err);

/* What to do about a result; NULL: nothing particular is known. */
const char *qn_cuda_remedy(qn_cu_result r);

/* The kernel module's version ("580.159.03"), from /proc; false: not to be had. */
bool qn_cuda_module_version(char *out, size_t size);

#endif
