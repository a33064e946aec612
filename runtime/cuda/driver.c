#include "cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* member, symbol behind "cu", may be absent. Symbols ending in _v2 are the versions that cuda.h declares
 * without it. */
#define ROW(member, symbol, optional)                                                                        \
    {                                                                                                        \
        "cu" symbol, offsetof(qn_cuda_api, member), optional                                                 \
    }
static const qn_symbol symbols[] = {
    ROW(Init, "Init", false),
    ROW(DriverGetVersion, "DriverGetVersion", false),
    ROW(GetErrorName, "GetErrorName", false),
    ROW(GetErrorString, "GetErrorString", false),
    ROW(DeviceGetCount, "DeviceGetCount", false),
    ROW(DeviceGet, "DeviceGet", false),
    ROW(DeviceGetName, "DeviceGetName", false),
    ROW(DeviceGetAttribute, "DeviceGetAttribute", false),
    ROW(DeviceTotalMem, "DeviceTotalMem_v2", false),
    ROW(DevicePrimaryCtxRetain, "DevicePrimaryCtxRetain", false),
    ROW(DevicePrimaryCtxRelease, "DevicePrimaryCtxRelease_v2", false),
    ROW(CtxSetCurrent, "CtxSetCurrent", false),
    ROW(CtxGetCurrent, "CtxGetCurrent", false),
    ROW(MemGetInfo, "MemGetInfo_v2", false),
    ROW(MemAlloc, "MemAlloc_v2", false),
    ROW(MemFree, "MemFree_v2", false),
    ROW(MemHostAlloc, "MemHostAlloc", false),
    ROW(MemFreeHost, "MemFreeHost", false),
    ROW(MemHostGetDevicePointer, "MemHostGetDevicePointer_v2", false),
    ROW(MemHostRegister, "MemHostRegister_v2", false),
    ROW(MemHostUnregister, "MemHostUnregister", false),
    ROW(MemcpyHtoD, "MemcpyHtoD_v2", false),
    ROW(MemcpyDtoH, "MemcpyDtoH_v2", false),
    ROW(MemcpyHtoDAsync, "MemcpyHtoDAsync_v2", false),
    ROW(MemcpyDtoHAsync, "MemcpyDtoHAsync_v2", false),
    ROW(MemcpyDtoDAsync, "MemcpyDtoDAsync_v2", false),
    ROW(MemsetD8Async, "MemsetD8Async", false),
    ROW(MemsetD32Async, "MemsetD32Async", false),
    ROW(StreamCreate, "StreamCreate", false),
    ROW(StreamDestroy, "StreamDestroy_v2", false),
    ROW(StreamSynchronize, "StreamSynchronize", false),
    ROW(StreamQuery, "StreamQuery", false),
    ROW(StreamWaitEvent, "StreamWaitEvent", false),
    ROW(EventCreate, "EventCreate", false),
    ROW(EventDestroy, "EventDestroy_v2", false),
    ROW(EventRecord, "EventRecord", false),
    ROW(EventQuery, "EventQuery", false),
    ROW(EventSynchronize, "EventSynchronize", false),
    ROW(EventElapsedTime, "EventElapsedTime", false),
    ROW(ModuleLoadDataEx, "ModuleLoadDataEx", false),
    ROW(ModuleUnload, "ModuleUnload", false),
    ROW(ModuleGetFunction, "ModuleGetFunction", false),
    ROW(ModuleGetGlobal, "ModuleGetGlobal_v2", false),
    ROW(FuncGetAttribute, "FuncGetAttribute", false),
    ROW(FuncSetAttribute, "FuncSetAttribute", false),
    ROW(OccupancyMaxActiveBlocksPerMultiprocessor, "OccupancyMaxActiveBlocksPerMultiprocessor", false),
    ROW(LaunchKernel, "LaunchKernel", false),
    ROW(LaunchKernelEx, "LaunchKernelEx", true),
    ROW(StreamBeginCapture, "StreamBeginCapture_v2", false),
    ROW(StreamEndCapture, "StreamEndCapture", false),
    ROW(GraphGetNodes, "GraphGetNodes", false),
    ROW(GraphInstantiateWithFlags, "GraphInstantiateWithFlags", false),
    ROW(GraphUpload, "GraphUpload", false),
    ROW(GraphLaunch, "GraphLaunch", false),
    ROW(GraphExecDestroy, "GraphExecDestroy", false),
    ROW(GraphDestroy, "GraphDestroy", false),
    ROW(TensorMapEncodeTiled, "TensorMapEncodeTiled", true),
};

/* Folders where container runtimes, WSL and some distributions put the driver's library, behind the loader's
 * own. */
static const char *const driver_dirs[] = {
    "",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib64-nvidia",
    "/run/opengl-driver/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
};

static int accept_driver(void *user, const qn_dynlib *lib, qn_err *err)
{
    qn_cuda *c = user;
    return qn_dynlib_resolve(lib, &c->api, symbols, sizeof symbols / sizeof *symbols, err);
}

int qn_cuda_load(qn_cuda *out, qn_err *err)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    *out = (qn_cuda){0};
    qn_dirs dirs = {0};
    int rc = 0;
    for (size_t i = 0; i < sizeof driver_dirs / sizeof *driver_dirs && rc == 0; i++) {
        rc = qn_dirs_add(&dirs, i ? "known folders" : "loader path", driver_dirs[i]);
    }
    rc =
        rc ? qn_fail(err, "out of memory") : qn_dynlib_open(&out->lib, &dirs, names, accept_driver, out, err);
    qn_dirs_free(&dirs);
    if (rc != 0) {
        *out = (qn_cuda){0}; /* what a refused library left */
        return qn_fail_prefix(
            err, "no CUDA driver (remedy: install NVIDIA's driver; in a container, start it with "
                 "--gpus all or the like)");
    }
    if (out->api.DriverGetVersion(&out->version) != QN_CU_SUCCESS) {
        out->version = 0;
    }
    return 0;
}

static const struct {
    qn_cu_result result;
    const char *remedy;
} remedies[] = {
    {QN_CU_OUT_OF_MEMORY, "the card's memory is taken: nvidia-smi shows by whom"},
    {QN_CU_STUB_LIBRARY,
     "the libcuda.so.1 that was found is the toolkit's stub: take its stubs folder out of "
     "LD_LIBRARY_PATH"},
    {QN_CU_DEVICE_UNAVAILABLE, "another process holds the card exclusively (nvidia-smi -q -d COMPUTE)"},
    {QN_CU_NO_DEVICE,
     "no card is visible: see nvidia-smi; in a container, start it with --gpus all or the like"},
    {QN_CU_INVALID_DEVICE, "CUDA_VISIBLE_DEVICES names a card that is not there"},
    {QN_CU_OPERATING_SYSTEM, "the device files /dev/nvidia* may be missing or closed to this user"},
    {QN_CU_UNSUPPORTED_PTX_VERSION,
     "the driver is older than NVRTC: update it, or install the NVRTC of its version"},
    {QN_CU_NO_BINARY_FOR_GPU, "the kernel was compiled for another architecture: quern cache clear"},
    {QN_CU_SYSTEM_NOT_READY, "the fabric manager (nvidia-fabricmanager) is not running"},
    {QN_CU_SYSTEM_DRIVER_MISMATCH,
     "libcuda and the kernel module are of different versions, as after an update: reboot"},
    {QN_CU_COMPAT_NOT_SUPPORTED,
     "the forward-compatibility libcuda does not serve this card: take cuda-compat out of "
     "LD_LIBRARY_PATH"},
    {QN_CU_MPS_CONNECTION_FAILED, "the MPS control daemon does not answer"},
    {QN_CU_UNKNOWN,
     "often /dev/nvidia-uvm is missing (sudo modprobe nvidia_uvm), or the machine slept: reload the "
     "module or reboot"},
};

const char *qn_cuda_remedy(qn_cu_result r)
{
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
        if (remedies[i].result == r) {
            return remedies[i].remedy;
        }
    }
    return NULL;
}

int qn_cuda_fail(const qn_cuda *cuda, qn_cu_result r, const char *what, qn_err *err)
{
    const char *name = NULL, *text = NULL, *remedy = qn_cuda_remedy(r);
    if (cuda->api.GetErrorName(r, &name) != QN_CU_SUCCESS || !name) {
        name = "error";
    }
    if (cuda->api.GetErrorString(r, &text) != QN_CU_SUCCESS || !text) {
        text = "no description";
    }
    return qn_fail(err, "%s: %s %u (%s)%s%s%s", what, name, r, text, remedy ? " (remedy: " : "",
                   remedy ? remedy : "", remedy ? ")" : "");
}

int qn_cuda_init(qn_cuda *cuda, qn_err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    qn_cu_result r = cuda->api.Init(0);
    int n = 0;
    if (r == QN_CU_SUCCESS) {
        r = cuda->api.DeviceGetCount(&n);
    }
    if (visible && (r == QN_CU_NO_DEVICE || r == QN_CU_INVALID_DEVICE || (r == QN_CU_SUCCESS && n == 0))) {
        return qn_fail(
            err,
            "CUDA_VISIBLE_DEVICES is set to '%s' and shows no card (remedy: unset it, or name one that "
            "nvidia-smi -L lists)",
            visible);
    }
    if (r != QN_CU_SUCCESS) {
        return qn_cuda_fail(cuda, r, "the CUDA driver does not start", err);
    }
    if (n == 0) {
        return qn_cuda_fail(cuda, QN_CU_NO_DEVICE, "the CUDA driver has no device", err);
    }
    cuda->n_device = n;
    return 0;
}

int qn_cuda_device_get(const qn_cuda *cuda, int index, qn_cuda_device *out, qn_err *err)
{
    *out = (qn_cuda_device){0};
    if (index < 0 || index >= cuda->n_device) {
        return qn_fail(err, "device %d: there are %d (0 is the first)", index, cuda->n_device);
    }
    int major = 0, minor = 0;
    size_t memory = 0;
    const struct {
        unsigned int attribute;
        int *value;
    } wanted[] = {
        {QN_CU_ATTR_CC_MAJOR, &major},
        {QN_CU_ATTR_CC_MINOR, &minor},
        {QN_CU_ATTR_MULTIPROCESSORS, &out->multiprocessors},
        {QN_CU_ATTR_SMEM_PER_BLOCK_OPTIN, &out->smem_per_block},
        {QN_CU_ATTR_L2_BYTES, &out->l2_bytes},
        {QN_CU_ATTR_COOPERATIVE_LAUNCH, &out->cooperative_launch},
    };
    qn_cu_result r = cuda->api.DeviceGet(&out->handle, index);
    r = r ? r : cuda->api.DeviceGetName(out->name, sizeof out->name, out->handle);
    r = r ? r : cuda->api.DeviceTotalMem(&memory, out->handle);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !r; i++) {
        r = cuda->api.DeviceGetAttribute(wanted[i].value, wanted[i].attribute, out->handle);
    }
    if (r) {
        char what[40];
        snprintf(what, sizeof what, "device %d", index);
        return qn_cuda_fail(cuda, r, what, err);
    }
    out->cc = 10 * major + minor;
    out->memory = memory;
    return 0;
}

bool qn_cuda_module_version(char *out, size_t size)
{
    FILE *f = fopen("/proc/driver/nvidia/version", "re");
    char line[256];
    bool ok = f && fgets(line, sizeof line, f);
    if (f) {
        fclose(f);
    }
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  ...": the first word with two points or
     * one. */
    for (char *rest = NULL, *word = ok ? strtok_r(line, " \t\n", &rest) : NULL; word;
         word = strtok_r(NULL, " \t\n", &rest)) {
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            return (size_t)snprintf(out, size, "%s", word) < size;
        }
    }
    return false;
}
