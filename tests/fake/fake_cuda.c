// fake_cuda.c: a libcuda.so.1 for tests on machines without one. What it says comes from the environment:
// FAKE_CUINIT (result of cuInit, default 0), FAKE_DEVICES (number, default 1), FAKE_CC (default 90),
// FAKE_VERSION (default 13000). Everything that would need a device fails with 801.
#include <stdio.h>
#include <stdlib.h>

static int number(const char *name, int otherwise)
{
    const char *v = getenv(name);
    return v ? atoi(v) : otherwise;
}

unsigned int cuInit(unsigned int flags)
{
    return flags ? 1 : (unsigned int)number("FAKE_CUINIT", 0);
}

unsigned int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_VERSION", 13000);
    return 0;
}

unsigned int cuGetErrorName(unsigned int r, const char **name)
{
    *name = r == 999 ? "CUDA_ERROR_UNKNOWN" : r == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OTHER";
    return 0;
}

unsigned int cuGetErrorString(unsigned int r, const char **text)
{
    *text = r == 999 ? "unknown error" : "another error";
    return 0;
}

unsigned int cuDeviceGetCount(int *n)
{
    *n = number("FAKE_DEVICES", 1);
    return 0;
}

unsigned int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

unsigned int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Fake card %d", device);
    return 0;
}

unsigned int cuDeviceGetAttribute(int *value, unsigned int attribute, int device)
{
    int cc = number("FAKE_CC", 90);
    *value = attribute == 75 ? cc / 10 : attribute == 76 ? cc % 10 : attribute == 16 ? 132 : 1000 + device;
    return 0;
}

unsigned int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)(141 - device) << 30;
    return 0;
}

// The others, by name only.
#define ABSENT(name)                                                                                         \
    unsigned int name(void);                                                                                 \
    unsigned int name(void)                                                                                  \
    {                                                                                                        \
        return 801;                                                                                          \
    }
ABSENT(cuDevicePrimaryCtxRetain)
ABSENT(cuDevicePrimaryCtxRelease_v2)
ABSENT(cuCtxSetCurrent)
ABSENT(cuCtxGetCurrent)
ABSENT(cuMemGetInfo_v2)
ABSENT(cuMemAlloc_v2)
ABSENT(cuMemFree_v2)
ABSENT(cuMemHostAlloc)
ABSENT(cuMemFreeHost)
ABSENT(cuMemHostGetDevicePointer_v2)
ABSENT(cuMemHostRegister_v2)
ABSENT(cuMemHostUnregister)
ABSENT(cuMemcpyHtoD_v2)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuMemcpyHtoDAsync_v2)
ABSENT(cuMemcpyDtoHAsync_v2)
ABSENT(cuMemcpyDtoDAsync_v2)
ABSENT(cuMemsetD8Async)
ABSENT(cuMemsetD32Async)
ABSENT(cuStreamCreate)
ABSENT(cuStreamDestroy_v2)
ABSENT(cuStreamSynchronize)
ABSENT(cuStreamQuery)
ABSENT(cuStreamWaitEvent)
ABSENT(cuEventCreate)
ABSENT(cuEventDestroy_v2)
ABSENT(cuEventRecord)
ABSENT(cuEventQuery)
ABSENT(cuEventSynchronize)
ABSENT(cuEventElapsedTime)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleUnload)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuFuncGetAttribute)
ABSENT(cuFuncSetAttribute)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuLaunchKernel)
ABSENT(cuStreamBeginCapture_v2)
ABSENT(cuStreamEndCapture)
ABSENT(cuGraphGetNodes)
ABSENT(cuGraphInstantiateWithFlags)
ABSENT(cuGraphUpload)
ABSENT(cuGraphLaunch)
ABSENT(cuGraphExecDestroy)
ABSENT(cuGraphDestroy)
