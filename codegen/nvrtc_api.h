/* nvrtc_api.h: own declarations of the NVRTC entry points that quern uses. tests/cuda_headers.c holds them
 * against the real header where a toolkit exists. */
#ifndef QN_CODEGEN_NVRTC_API_H
#define QN_CODEGEN_NVRTC_API_H

#include <stddef.h>

typedef unsigned int qn_nvrtc_result; /* nvrtcResult */
enum {
    QN_NVRTC_SUCCESS = 0,
    QN_NVRTC_INVALID_OPTION = 5,
    QN_NVRTC_COMPILATION = 6,
    QN_NVRTC_BUILTIN_FAILURE = 7,
};

typedef struct _nvrtcProgram *qn_nvrtc_program;

typedef qn_nvrtc_result qn_fn_nvrtcVersion(int *major, int *minor);
typedef const char *qn_fn_nvrtcGetErrorString(qn_nvrtc_result);
typedef qn_nvrtc_result qn_fn_nvrtcGetNumSupportedArchs(int *n);
typedef qn_nvrtc_result qn_fn_nvrtcGetSupportedArchs(int *archs);
typedef qn_nvrtc_result qn_fn_nvrtcCreateProgram(qn_nvrtc_program *, const char *source, const char *name,
                                                 int n_header, const char *const *headers,
                                                 const char *const *header_names);
typedef qn_nvrtc_result qn_fn_nvrtcDestroyProgram(qn_nvrtc_program *);
typedef qn_nvrtc_result qn_fn_nvrtcCompileProgram(qn_nvrtc_program, int n_option, const char *const *options);
typedef qn_nvrtc_result qn_fn_nvrtcGetPTXSize(qn_nvrtc_program, size_t *);
typedef qn_nvrtc_result qn_fn_nvrtcGetPTX(qn_nvrtc_program, char *);
typedef qn_nvrtc_result qn_fn_nvrtcGetCUBINSize(qn_nvrtc_program, size_t *);
typedef qn_nvrtc_result qn_fn_nvrtcGetCUBIN(qn_nvrtc_program, char *);
typedef qn_nvrtc_result qn_fn_nvrtcGetProgramLogSize(qn_nvrtc_program, size_t *);
typedef qn_nvrtc_result qn_fn_nvrtcGetProgramLog(qn_nvrtc_program, char *);

typedef struct qn_nvrtc_api {
    qn_fn_nvrtcVersion *Version;
    qn_fn_nvrtcGetErrorString *GetErrorString;
    qn_fn_nvrtcGetNumSupportedArchs *GetNumSupportedArchs;
    qn_fn_nvrtcGetSupportedArchs *GetSupportedArchs;
    qn_fn_nvrtcCreateProgram *CreateProgram;
    qn_fn_nvrtcDestroyProgram *DestroyProgram;
    qn_fn_nvrtcCompileProgram *CompileProgram;
    qn_fn_nvrtcGetPTXSize *GetPTXSize;
    qn_fn_nvrtcGetPTX *GetPTX;
    qn_fn_nvrtcGetCUBINSize *GetCUBINSize;
    qn_fn_nvrtcGetCUBIN *GetCUBIN;
    qn_fn_nvrtcGetProgramLogSize *GetProgramLogSize;
    qn_fn_nvrtcGetProgramLog *GetProgramLog;
} qn_nvrtc_api;

#endif
