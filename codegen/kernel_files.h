/* kernel_files.h: the texts of kernel_src/, from the binary or from a folder. */
#ifndef QN_CODEGEN_KERNEL_FILES_H
#define QN_CODEGEN_KERNEL_FILES_H

#include <stddef.h>

#include "base/error.h"

typedef struct qn_kernel_files {
    int n, n_header;
    const char **names; /* "types.cuh": without the folder; the n_header headers come first, both sorted */
    const char **texts; /* NUL-terminated */
    char **owned;       /* texts read from a folder; NULL: embedded */
} qn_kernel_files;

/* dir NULL: embedded. A folder without headers is an error. */
int qn_kernel_files_load(qn_kernel_files *out, const char *dir, qn_err *err);
void qn_kernel_files_free(qn_kernel_files *f);
/* What a generated source may include: every header, and the templates ("<op>.cu") that it names in an
 * #include. Fills names and texts, returns their number. */
enum { QN_HEADERS_MAX = 128 };
int qn_kernel_files_of(const qn_kernel_files *f, const char *source, const char *names[QN_HEADERS_MAX],
                       const char *texts[QN_HEADERS_MAX]);
/* Digest of all names and texts: 16 hexadecimal digits and a NUL. -1: out of memory. */
int qn_kernel_files_digest(const qn_kernel_files *f, char out[17], qn_err *err);
/* NULL: there is none of that name. */
const char *qn_kernel_files_find(const qn_kernel_files *f, const char *name);

#endif
