/* compile.h: one program through NVRTC. */
#ifndef QN_CODEGEN_COMPILE_H
#define QN_CODEGEN_COMPILE_H

#include "codegen/jit.h"
#include "codegen/kernel_files.h"

/* The flags of a target, NULL-terminated; arch_flag is the caller's, of 48 bytes. */
enum { QN_FLAGS_MAX = 12 };
void qn_compile_flags(const qn_arch *arch, char arch_flag[48], const char *flags[QN_FLAGS_MAX]);

/* Compiles `source` (shown as `file` in messages) into k->cubin, ptx, arch, entries, seconds. *log gets
 * NVRTC's log (malloc'ed, may be NULL). On failure err shows its first error. */
int qn_compile(const qn_nvrtc *nvrtc, const qn_arch *arch, const qn_kernel_files *files, const char *file,
               const char *source, qn_kernel *k, char **log, qn_err *err);

/* Reads the kernel functions of a PTX text with what their source declares, and their registers and spills
 * from ptxas's part of the log (NULL: unknown). -1: none, or more than QN_KERNEL_ENTRIES. */
int qn_compile_entries(const char *ptx, const char *log, qn_kernel *k, qn_err *err);

#endif
