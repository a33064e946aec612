// Compiled, never run: quern's own declarations of CUDA's entry points against the toolkit's headers. Every
// check is one that the compiler makes; tests/jit.cmake builds this where a toolkit is found.
#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include <stddef.h>

#include "codegen/nvrtc_api.h"
#include "cuda/cublaslt_api.h"
#include "cuda/cuda_api.h"

#define SAME(mine, theirs)      _Static_assert((long long)(mine) == (long long)(theirs), #mine " is not " #theirs)
#define SIZE(mine, theirs)      SAME(sizeof(mine), sizeof(theirs))
#define OFFSET(t, m, their, tm) SAME(offsetof(t, m), offsetof(their, tm))
// An enumeration is compatible with the unsigned int that quern writes, and equal struct tags are one type: a
// pointer to the real function then initialises a pointer to quern's function type without a cast.
#define FUNCTION(name)                                                                                       \
    extern qn_fn_##name *const check_##name;                                                                 \
    qn_fn_##name *const check_##name = name
// Where a parameter is a struct that quern declares itself: same number and sizes, by a call through the real
// type.
#define FUNCTION_OF(name, call) static inline unsigned int check_##name call

FUNCTION(nvrtcVersion);
FUNCTION(nvrtcGetErrorString);
FUNCTION(nvrtcGetNumSupportedArchs);
FUNCTION(nvrtcGetSupportedArchs);
FUNCTION(nvrtcCreateProgram);
FUNCTION(nvrtcDestroyProgram);
FUNCTION(nvrtcCompileProgram);
FUNCTION(nvrtcGetPTXSize);
FUNCTION(nvrtcGetPTX);
FUNCTION(nvrtcGetCUBINSize);
FUNCTION(nvrtcGetCUBIN);
FUNCTION(nvrtcGetProgramLogSize);
FUNCTION(nvrtcGetProgramLog);
SAME(QN_NVRTC_SUCCESS, NVRTC_SUCCESS);
SAME(QN_NVRTC_INVALID_OPTION, NVRTC_ERROR_INVALID_OPTION);
SAME(QN_NVRTC_COMPILATION, NVRTC_ERROR_COMPILATION);
SAME(QN_NVRTC_BUILTIN_FAILURE, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);

FUNCTION(cuInit);
FUNCTION(cuDriverGetVersion);
FUNCTION(cuGetErrorName);
FUNCTION(cuGetErrorString);
FUNCTION(cuDeviceGetCount);
FUNCTION(cuDeviceGet);
FUNCTION(cuDeviceGetName);
FUNCTION(cuDeviceGetAttribute);
FUNCTION(cuDevicePrimaryCtxRetain);
FUNCTION(cuCtxSetCurrent);
FUNCTION(cuCtxGetCurrent);
FUNCTION(cuMemHostAlloc);
FUNCTION(cuMemFreeHost);
FUNCTION(cuMemHostUnregister);
FUNCTION(cuMemsetD8Async);
FUNCTION(cuMemsetD32Async);
FUNCTION(cuStreamCreate);
FUNCTION(cuStreamSynchronize);
FUNCTION(cuStreamQuery);
FUNCTION(cuStreamWaitEvent);
FUNCTION(cuEventCreate);
FUNCTION(cuEventRecord);
FUNCTION(cuEventQuery);
FUNCTION(cuEventSynchronize);
FUNCTION(cuModuleLoadDataEx);
FUNCTION(cuModuleUnload);
FUNCTION(cuModuleGetFunction);
FUNCTION(cuFuncGetAttribute);
FUNCTION(cuFuncSetAttribute);
FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor);
FUNCTION(cuLaunchKernel);
FUNCTION(cuStreamEndCapture);
FUNCTION(cuGraphGetNodes);
FUNCTION(cuGraphInstantiateWithFlags);
FUNCTION(cuGraphUpload);
FUNCTION(cuGraphLaunch);
FUNCTION(cuGraphExecDestroy);
FUNCTION(cuGraphDestroy);

// These names are macros of the header for what driver.c looks up with a version at its end.
#define VERSIONED(name, real)                                                                                \
    extern qn_fn_##name *const check_##name;                                                                 \
    qn_fn_##name *const check_##name = real
VERSIONED(cuDeviceTotalMem, cuDeviceTotalMem_v2);
VERSIONED(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);
VERSIONED(cuMemGetInfo, cuMemGetInfo_v2);
VERSIONED(cuMemAlloc, cuMemAlloc_v2);
VERSIONED(cuMemFree, cuMemFree_v2);
VERSIONED(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2);
VERSIONED(cuMemHostRegister, cuMemHostRegister_v2);
VERSIONED(cuMemcpyHtoD, cuMemcpyHtoD_v2);
VERSIONED(cuMemcpyDtoH, cuMemcpyDtoH_v2);
VERSIONED(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2);
VERSIONED(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2);
VERSIONED(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2);
VERSIONED(cuStreamDestroy, cuStreamDestroy_v2);
VERSIONED(cuEventDestroy, cuEventDestroy_v2);
VERSIONED(cuEventElapsedTime, cuEventElapsedTime); // _v2 from 12.8 on, of the same type
VERSIONED(cuModuleGetGlobal, cuModuleGetGlobal_v2);
VERSIONED(cuStreamBeginCapture, cuStreamBeginCapture_v2);

FUNCTION_OF(cuLaunchKernelEx, (const qn_cu_launch_config *c, CUfunction f, void **params, void **extra))
{
    qn_fn_cuLaunchKernelEx *mine = NULL;
    return mine ? mine(c, f, params, extra)
                : (unsigned int)cuLaunchKernelEx((const CUlaunchConfig *)c, f, params, extra);
}
FUNCTION_OF(cuTensorMapEncodeTiled,
            (qn_cu_tensor_map * m, unsigned int type, unsigned int rank, void *base, const cuuint64_t *dims,
             const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps))
{
    qn_fn_cuTensorMapEncodeTiled *mine = NULL;
    return mine ? mine(m, type, rank, base, dims, strides, box, steps, 0, 0, 0, 0)
                : (unsigned int)cuTensorMapEncodeTiled(
                      (CUtensorMap *)m, (CUtensorMapDataType)type, rank, base, dims, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

SIZE(qn_cu_result, CUresult);
SIZE(qn_cu_device, CUdevice);
SIZE(qn_cu_ptr, CUdeviceptr);
SIZE(qn_cu_launch_config, CUlaunchConfig);
OFFSET(qn_cu_launch_config, grid_x, CUlaunchConfig, gridDimX);
OFFSET(qn_cu_launch_config, block_x, CUlaunchConfig, blockDimX);
OFFSET(qn_cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
OFFSET(qn_cu_launch_config, stream, CUlaunchConfig, hStream);
OFFSET(qn_cu_launch_config, attributes, CUlaunchConfig, attrs);
OFFSET(qn_cu_launch_config, n_attribute, CUlaunchConfig, numAttrs);
SIZE(qn_cu_launch_attribute, CUlaunchAttribute);
OFFSET(qn_cu_launch_attribute, id, CUlaunchAttribute, id);
OFFSET(qn_cu_launch_attribute, value, CUlaunchAttribute, value);
OFFSET(qn_cu_launch_attribute, value.cooperative, CUlaunchAttribute, value.cooperative);
OFFSET(qn_cu_launch_attribute, value.cluster.z, CUlaunchAttribute, value.clusterDim.z);
OFFSET(qn_cu_launch_attribute, value.programmatic_serialization, CUlaunchAttribute,
       value.programmaticStreamSerializationAllowed);
SIZE(qn_cu_tensor_map, CUtensorMap);
_Static_assert(_Alignof(qn_cu_tensor_map) >= _Alignof(CUtensorMap), "alignment of a tensor map");

SAME(QN_CU_SUCCESS, CUDA_SUCCESS);
SAME(QN_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(QN_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(QN_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(QN_CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(QN_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(QN_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(QN_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(QN_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(QN_CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(QN_CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(QN_CU_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(QN_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(QN_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(QN_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(QN_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(QN_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(QN_CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(QN_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(QN_CU_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(QN_CU_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED);
SAME(QN_CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(QN_CU_ATTR_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(QN_CU_ATTR_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME(QN_CU_ATTR_MEMORY_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(QN_CU_ATTR_MEMORY_BUS_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(QN_CU_ATTR_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(QN_CU_ATTR_CC_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(QN_CU_ATTR_CC_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(QN_CU_ATTR_SMEM_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME(QN_CU_ATTR_COOPERATIVE_LAUNCH, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
SAME(QN_CU_ATTR_SMEM_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(QN_CU_FUNC_NUM_REGS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(QN_CU_FUNC_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(QN_CU_FUNC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(QN_CU_FUNC_MAX_DYNAMIC_SMEM, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(QN_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(QN_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(QN_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(QN_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(QN_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(QN_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(QN_CU_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(QN_CU_HOST_ALLOC_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(QN_CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(QN_CU_HOST_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME(QN_CU_JIT_INFO_LOG, CU_JIT_INFO_LOG_BUFFER);
SAME(QN_CU_JIT_INFO_LOG_BYTES, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
SAME(QN_CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(QN_CU_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(QN_CU_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(QN_CU_LAUNCH_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(QN_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(QN_CU_TENSOR_U8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(QN_CU_TENSOR_F16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(QN_CU_TENSOR_F32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(QN_CU_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(QN_CU_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(QN_CU_L2_PROMOTION_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(QN_CU_OOB_ZERO, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
SAME(QN_CU_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(QN_CU_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_32B);
SAME(QN_CU_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_64B);
SAME(QN_CU_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B);

FUNCTION(cublasLtGetVersion);
FUNCTION(cublasLtGetStatusString);
FUNCTION(cublasLtCreate);
FUNCTION(cublasLtDestroy);
// The descriptors are opaque structs there and void here: the calls check numbers and sizes.
FUNCTION_OF(cublasLtDescs, (qn_lt_desc * d, qn_lt_layout *l, qn_lt_preference *p, const void *v, size_t n))
{
    unsigned int r = 0;
    r |= cublasLtMatmulDescCreate((cublasLtMatmulDesc_t *)d, (cublasComputeType_t)0, (cudaDataType_t)0);
    r |= cublasLtMatmulDescSetAttribute(*d, (cublasLtMatmulDescAttributes_t)0, v, n);
    r |= cublasLtMatmulDescDestroy(*d);
    r |= cublasLtMatrixLayoutCreate((cublasLtMatrixLayout_t *)l, (cudaDataType)0, (uint64_t)1, (uint64_t)1,
                                    (int64_t)1);
    r |= cublasLtMatrixLayoutSetAttribute(*l, (cublasLtMatrixLayoutAttribute_t)0, v, n);
    r |= cublasLtMatrixLayoutDestroy(*l);
    r |= cublasLtMatmulPreferenceCreate((cublasLtMatmulPreference_t *)p);
    r |= cublasLtMatmulPreferenceSetAttribute(*p, (cublasLtMatmulPreferenceAttributes_t)0, v, n);
    r |= cublasLtMatmulPreferenceDestroy(*p);
    return r;
}
FUNCTION_OF(cublasLtCalls, (qn_lt_handle h, qn_lt_desc d, qn_lt_layout l, qn_lt_preference p,
                            qn_lt_heuristic *out, const void *in, void *mem, size_t n, qn_lt_stream stream))
{
    int got = 0;
    unsigned int r =
        cublasLtMatmulAlgoGetHeuristic(h, d, l, l, l, l, p, 1, (cublasLtMatmulHeuristicResult_t *)out, &got);
    const cublasLtMatmulAlgo_t *algo = (const cublasLtMatmulAlgo_t *)&out->algo;
    return r | cublasLtMatmul(h, d, in, in, l, in, l, in, in, l, mem, l, algo, mem, n, stream);
}
SIZE(qn_lt_status, cublasStatus_t);
SIZE(qn_lt_algo, cublasLtMatmulAlgo_t);
SIZE(qn_lt_heuristic, cublasLtMatmulHeuristicResult_t);
OFFSET(qn_lt_heuristic, workspace, cublasLtMatmulHeuristicResult_t, workspaceSize);
OFFSET(qn_lt_heuristic, state, cublasLtMatmulHeuristicResult_t, state);
OFFSET(qn_lt_heuristic, waves, cublasLtMatmulHeuristicResult_t, wavesCount);
SAME(QN_LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(QN_LT_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(QN_LT_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED);
SAME(QN_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(QN_LT_R_32F, CUDA_R_32F);
SAME(QN_LT_R_16F, CUDA_R_16F);
SAME(QN_LT_R_8I, CUDA_R_8I);
SAME(QN_LT_R_32I, CUDA_R_32I);
SAME(QN_LT_R_16BF, CUDA_R_16BF);
SAME(QN_LT_R_8F_E4M3, CUDA_R_8F_E4M3);
SAME(QN_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(QN_LT_COMPUTE_32I, CUBLAS_COMPUTE_32I);
SAME(QN_LT_OP_N, CUBLAS_OP_N);
SAME(QN_LT_OP_T, CUBLAS_OP_T);
SAME(QN_LT_DESC_SCALE_TYPE, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
SAME(QN_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(QN_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(QN_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(QN_LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(QN_LT_DESC_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(QN_LT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT);
SAME(QN_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(QN_LT_LAYOUT_ORDER, CUBLASLT_MATRIX_LAYOUT_ORDER);
SAME(QN_LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(QN_LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(QN_LT_ORDER_COL, CUBLASLT_ORDER_COL);
SAME(QN_LT_ORDER_ROW, CUBLASLT_ORDER_ROW);
SAME(QN_LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(QN_LT_PREF_REDUCTION_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(QN_LT_PREF_MIN_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(QN_LT_PREF_MIN_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(QN_LT_PREF_MIN_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(QN_LT_PREF_MIN_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
