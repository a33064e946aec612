/* cuda_api.h: own declarations of the driver entry points and types that quern uses. tests/cuda_headers.c
 * holds them against the real header where a toolkit exists. Names are the driver's, with qn_cu_ and QN_CU_
 * in front. */
#ifndef QN_CUDA_CUDA_API_H
#define QN_CUDA_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int qn_cu_result; /* CUresult */
enum {
    QN_CU_SUCCESS = 0,
    QN_CU_INVALID_VALUE = 1,
    QN_CU_OUT_OF_MEMORY = 2,
    QN_CU_STUB_LIBRARY = 34,
    QN_CU_DEVICE_UNAVAILABLE = 46,
    QN_CU_NO_DEVICE = 100,
    QN_CU_INVALID_DEVICE = 101,
    QN_CU_INVALID_IMAGE = 200,
    QN_CU_NO_BINARY_FOR_GPU = 209,
    QN_CU_INVALID_PTX = 218,
    QN_CU_UNSUPPORTED_PTX_VERSION = 222,
    QN_CU_OPERATING_SYSTEM = 304,
    QN_CU_NOT_FOUND = 500,
    QN_CU_NOT_READY = 600,
    QN_CU_LAUNCH_FAILED = 719,
    QN_CU_NOT_PERMITTED = 800,
    QN_CU_NOT_SUPPORTED = 801,
    QN_CU_SYSTEM_NOT_READY = 802,
    QN_CU_SYSTEM_DRIVER_MISMATCH = 803,
    QN_CU_COMPAT_NOT_SUPPORTED = 804,
    QN_CU_MPS_CONNECTION_FAILED = 805,
    QN_CU_UNKNOWN = 999,
};

typedef int qn_cu_device;
typedef unsigned long long qn_cu_ptr; /* device address */
typedef struct CUctx_st *qn_cu_context;
typedef struct CUmod_st *qn_cu_module;
typedef struct CUfunc_st *qn_cu_function;
typedef struct CUstream_st *qn_cu_stream;
typedef struct CUevent_st *qn_cu_event;
typedef struct CUgraph_st *qn_cu_graph;
typedef struct CUgraphNode_st *qn_cu_graph_node;
typedef struct CUgraphExec_st *qn_cu_graph_exec;

enum { /* CUdevice_attribute */
       QN_CU_ATTR_MULTIPROCESSORS = 16,
       QN_CU_ATTR_INTEGRATED = 18,
       QN_CU_ATTR_MEMORY_CLOCK_KHZ = 36,
       QN_CU_ATTR_MEMORY_BUS_BITS = 37,
       QN_CU_ATTR_L2_BYTES = 38,
       QN_CU_ATTR_CC_MAJOR = 75,
       QN_CU_ATTR_CC_MINOR = 76,
       QN_CU_ATTR_SMEM_PER_MULTIPROCESSOR = 81,
       QN_CU_ATTR_COOPERATIVE_LAUNCH = 95,
       QN_CU_ATTR_SMEM_PER_BLOCK_OPTIN = 97,
};

enum {
    QN_CU_FUNC_NUM_REGS = 4,
    QN_CU_FUNC_LOCAL_BYTES = 3,
    QN_CU_FUNC_SHARED_BYTES = 1,
    QN_CU_FUNC_MAX_DYNAMIC_SMEM = 8
};
enum { QN_CU_STREAM_NON_BLOCKING = 1, QN_CU_EVENT_DEFAULT = 0, QN_CU_EVENT_DISABLE_TIMING = 2 };
enum { QN_CU_CAPTURE_GLOBAL = 0, QN_CU_CAPTURE_THREAD_LOCAL = 1, QN_CU_CAPTURE_RELAXED = 2 };
enum { QN_CU_HOST_ALLOC_PORTABLE = 1, QN_CU_HOST_ALLOC_MAPPED = 2 };
enum { QN_CU_HOST_REGISTER_PORTABLE = 1, QN_CU_HOST_REGISTER_READ_ONLY = 8 };
enum { /* CUjit_option */
       QN_CU_JIT_INFO_LOG = 3,
       QN_CU_JIT_INFO_LOG_BYTES = 4,
       QN_CU_JIT_ERROR_LOG = 5,
       QN_CU_JIT_ERROR_LOG_BYTES = 6,
};
enum {
    QN_CU_LAUNCH_COOPERATIVE = 2,
    QN_CU_LAUNCH_CLUSTER_DIMENSION = 4,
    QN_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6
};

/* CUlaunchAttribute: one property of a launch. */
typedef struct qn_cu_launch_attribute {
    unsigned int id; /* QN_CU_LAUNCH_* */
    char pad[4];
    union {
        char bytes[64];
        int cooperative;
        struct {
            unsigned int x, y, z;
        } cluster;
        int programmatic_serialization;
    } value;
} qn_cu_launch_attribute;

/* CUlaunchConfig. */
typedef struct qn_cu_launch_config {
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    qn_cu_stream stream;
    qn_cu_launch_attribute *attributes;
    unsigned int n_attribute;
} qn_cu_launch_config;

/* CUtensorMap: what TMA reads of a tensor; filled by TensorMapEncodeTiled only. */
typedef struct qn_cu_tensor_map {
    _Alignas(128) uint64_t opaque[16]; /* toolkits before 13 ask for 64 */
} qn_cu_tensor_map;
enum { QN_CU_TENSOR_U8 = 0, QN_CU_TENSOR_F16 = 6, QN_CU_TENSOR_F32 = 7, QN_CU_TENSOR_BF16 = 9 };
enum { QN_CU_INTERLEAVE_NONE = 0, QN_CU_L2_PROMOTION_256B = 3, QN_CU_OOB_ZERO = 0 };
enum { QN_CU_SWIZZLE_NONE = 0, QN_CU_SWIZZLE_32B = 1, QN_CU_SWIZZLE_64B = 2, QN_CU_SWIZZLE_128B = 3 };

typedef qn_cu_result qn_fn_cuInit(unsigned int flags);
typedef qn_cu_result qn_fn_cuDriverGetVersion(int *version);
typedef qn_cu_result qn_fn_cuGetErrorName(qn_cu_result, const char **);
typedef qn_cu_result qn_fn_cuGetErrorString(qn_cu_result, const char **);
typedef qn_cu_result qn_fn_cuDeviceGetCount(int *);
typedef qn_cu_result qn_fn_cuDeviceGet(qn_cu_device *, int ordinal);
typedef qn_cu_result qn_fn_cuDeviceGetName(char *name, int size, qn_cu_device);
typedef qn_cu_result qn_fn_cuDeviceGetAttribute(int *value, unsigned int attribute, qn_cu_device);
typedef qn_cu_result qn_fn_cuDeviceTotalMem(size_t *, qn_cu_device);
typedef qn_cu_result qn_fn_cuDevicePrimaryCtxRetain(qn_cu_context *, qn_cu_device);
typedef qn_cu_result qn_fn_cuDevicePrimaryCtxRelease(qn_cu_device);
typedef qn_cu_result qn_fn_cuCtxSetCurrent(qn_cu_context);
typedef qn_cu_result qn_fn_cuCtxGetCurrent(qn_cu_context *);
typedef qn_cu_result qn_fn_cuMemGetInfo(size_t *free_bytes, size_t *total);
typedef qn_cu_result qn_fn_cuMemAlloc(qn_cu_ptr *, size_t);
typedef qn_cu_result qn_fn_cuMemFree(qn_cu_ptr);
typedef qn_cu_result qn_fn_cuMemHostAlloc(void **, size_t, unsigned int flags);
typedef qn_cu_result qn_fn_cuMemFreeHost(void *);
typedef qn_cu_result qn_fn_cuMemHostGetDevicePointer(qn_cu_ptr *, void *host, unsigned int flags);
typedef qn_cu_result qn_fn_cuMemHostRegister(void *, size_t, unsigned int flags);
typedef qn_cu_result qn_fn_cuMemHostUnregister(void *);
typedef qn_cu_result qn_fn_cuMemcpyHtoD(qn_cu_ptr, const void *, size_t);
typedef qn_cu_result qn_fn_cuMemcpyDtoH(void *, qn_cu_ptr, size_t);
typedef qn_cu_result qn_fn_cuMemcpyHtoDAsync(qn_cu_ptr, const void *, size_t, qn_cu_stream);
typedef qn_cu_result qn_fn_cuMemcpyDtoHAsync(void *, qn_cu_ptr, size_t, qn_cu_stream);
typedef qn_cu_result qn_fn_cuMemcpyDtoDAsync(qn_cu_ptr, qn_cu_ptr, size_t, qn_cu_stream);
typedef qn_cu_result qn_fn_cuMemsetD8Async(qn_cu_ptr, unsigned char, size_t n, qn_cu_stream);
typedef qn_cu_result qn_fn_cuMemsetD32Async(qn_cu_ptr, unsigned int, size_t n, qn_cu_stream);
typedef qn_cu_result qn_fn_cuStreamCreate(qn_cu_stream *, unsigned int flags);
typedef qn_cu_result qn_fn_cuStreamDestroy(qn_cu_stream);
typedef qn_cu_result qn_fn_cuStreamSynchronize(qn_cu_stream);
typedef qn_cu_result qn_fn_cuStreamQuery(qn_cu_stream);
typedef qn_cu_result qn_fn_cuStreamWaitEvent(qn_cu_stream, qn_cu_event, unsigned int flags);
typedef qn_cu_result qn_fn_cuEventCreate(qn_cu_event *, unsigned int flags);
typedef qn_cu_result qn_fn_cuEventDestroy(qn_cu_event);
typedef qn_cu_result qn_fn_cuEventRecord(qn_cu_event, qn_cu_stream);
typedef qn_cu_result qn_fn_cuEventQuery(qn_cu_event);
typedef qn_cu_result qn_fn_cuEventSynchronize(qn_cu_event);
typedef qn_cu_result qn_fn_cuEventElapsedTime(float *milliseconds, qn_cu_event start, qn_cu_event end);
typedef qn_cu_result qn_fn_cuModuleLoadDataEx(qn_cu_module *, const void *image, unsigned int n_option,
                                              unsigned int *options, void **values);
typedef qn_cu_result qn_fn_cuModuleUnload(qn_cu_module);
typedef qn_cu_result qn_fn_cuModuleGetFunction(qn_cu_function *, qn_cu_module, const char *name);
typedef qn_cu_result qn_fn_cuModuleGetGlobal(qn_cu_ptr *, size_t *bytes, qn_cu_module, const char *name);
typedef qn_cu_result qn_fn_cuFuncGetAttribute(int *value, unsigned int attribute, qn_cu_function);
typedef qn_cu_result qn_fn_cuFuncSetAttribute(qn_cu_function, unsigned int attribute, int value);
typedef qn_cu_result qn_fn_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, qn_cu_function,
                                                                       int block_size, size_t dynamic_smem);
typedef qn_cu_result qn_fn_cuLaunchKernel(qn_cu_function, unsigned int grid_x, unsigned int grid_y,
                                          unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                          unsigned int block_z, unsigned int shared_bytes, qn_cu_stream,
                                          void **params, void **extra);
typedef qn_cu_result qn_fn_cuLaunchKernelEx(const qn_cu_launch_config *, qn_cu_function, void **params,
                                            void **extra);
typedef qn_cu_result qn_fn_cuStreamBeginCapture(qn_cu_stream, unsigned int mode);
typedef qn_cu_result qn_fn_cuStreamEndCapture(qn_cu_stream, qn_cu_graph *);
typedef qn_cu_result qn_fn_cuGraphGetNodes(qn_cu_graph, qn_cu_graph_node *, size_t *n);
typedef qn_cu_result qn_fn_cuGraphInstantiateWithFlags(qn_cu_graph_exec *, qn_cu_graph,
                                                       unsigned long long flags);
typedef qn_cu_result qn_fn_cuGraphUpload(qn_cu_graph_exec, qn_cu_stream);
typedef qn_cu_result qn_fn_cuGraphLaunch(qn_cu_graph_exec, qn_cu_stream);
typedef qn_cu_result qn_fn_cuGraphExecDestroy(qn_cu_graph_exec);
typedef qn_cu_result qn_fn_cuGraphDestroy(qn_cu_graph);
typedef qn_cu_result qn_fn_cuTensorMapEncodeTiled(qn_cu_tensor_map *, unsigned int type, unsigned int rank,
                                                  void *base, const uint64_t *dims, const uint64_t *strides,
                                                  const unsigned int *box,
                                                  const unsigned int *element_strides,
                                                  unsigned int interleave, unsigned int swizzle,
                                                  unsigned int l2_promotion, unsigned int oob);

typedef struct qn_cuda_api {
    qn_fn_cuInit *Init;
    qn_fn_cuDriverGetVersion *DriverGetVersion;
    qn_fn_cuGetErrorName *GetErrorName;
    qn_fn_cuGetErrorString *GetErrorString;
    qn_fn_cuDeviceGetCount *DeviceGetCount;
    qn_fn_cuDeviceGet *DeviceGet;
    qn_fn_cuDeviceGetName *DeviceGetName;
    qn_fn_cuDeviceGetAttribute *DeviceGetAttribute;
    qn_fn_cuDeviceTotalMem *DeviceTotalMem;
    qn_fn_cuDevicePrimaryCtxRetain *DevicePrimaryCtxRetain;
    qn_fn_cuDevicePrimaryCtxRelease *DevicePrimaryCtxRelease;
    qn_fn_cuCtxSetCurrent *CtxSetCurrent;
    qn_fn_cuCtxGetCurrent *CtxGetCurrent;
    qn_fn_cuMemGetInfo *MemGetInfo;
    qn_fn_cuMemAlloc *MemAlloc;
    qn_fn_cuMemFree *MemFree;
    qn_fn_cuMemHostAlloc *MemHostAlloc;
    qn_fn_cuMemFreeHost *MemFreeHost;
    qn_fn_cuMemHostGetDevicePointer *MemHostGetDevicePointer;
    qn_fn_cuMemHostRegister *MemHostRegister;
    qn_fn_cuMemHostUnregister *MemHostUnregister;
    qn_fn_cuMemcpyHtoD *MemcpyHtoD;
    qn_fn_cuMemcpyDtoH *MemcpyDtoH;
    qn_fn_cuMemcpyHtoDAsync *MemcpyHtoDAsync;
    qn_fn_cuMemcpyDtoHAsync *MemcpyDtoHAsync;
    qn_fn_cuMemcpyDtoDAsync *MemcpyDtoDAsync;
    qn_fn_cuMemsetD8Async *MemsetD8Async;
    qn_fn_cuMemsetD32Async *MemsetD32Async;
    qn_fn_cuStreamCreate *StreamCreate;
    qn_fn_cuStreamDestroy *StreamDestroy;
    qn_fn_cuStreamSynchronize *StreamSynchronize;
    qn_fn_cuStreamQuery *StreamQuery;
    qn_fn_cuStreamWaitEvent *StreamWaitEvent;
    qn_fn_cuEventCreate *EventCreate;
    qn_fn_cuEventDestroy *EventDestroy;
    qn_fn_cuEventRecord *EventRecord;
    qn_fn_cuEventQuery *EventQuery;
    qn_fn_cuEventSynchronize *EventSynchronize;
    qn_fn_cuEventElapsedTime *EventElapsedTime;
    qn_fn_cuModuleLoadDataEx *ModuleLoadDataEx;
    qn_fn_cuModuleUnload *ModuleUnload;
    qn_fn_cuModuleGetFunction *ModuleGetFunction;
    qn_fn_cuModuleGetGlobal *ModuleGetGlobal;
    qn_fn_cuFuncGetAttribute *FuncGetAttribute;
    qn_fn_cuFuncSetAttribute *FuncSetAttribute;
    qn_fn_cuOccupancyMaxActiveBlocksPerMultiprocessor *OccupancyMaxActiveBlocksPerMultiprocessor;
    qn_fn_cuLaunchKernel *LaunchKernel;
    qn_fn_cuLaunchKernelEx *LaunchKernelEx; /* NULL before driver 11.8 */
    qn_fn_cuStreamBeginCapture *StreamBeginCapture;
    qn_fn_cuStreamEndCapture *StreamEndCapture;
    qn_fn_cuGraphGetNodes *GraphGetNodes;
    qn_fn_cuGraphInstantiateWithFlags *GraphInstantiateWithFlags;
    qn_fn_cuGraphUpload *GraphUpload;
    qn_fn_cuGraphLaunch *GraphLaunch;
    qn_fn_cuGraphExecDestroy *GraphExecDestroy;
    qn_fn_cuGraphDestroy *GraphDestroy;
    qn_fn_cuTensorMapEncodeTiled *TensorMapEncodeTiled; /* NULL before driver 12.0 */
} qn_cuda_api;

#endif
