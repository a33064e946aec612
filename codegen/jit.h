/* jit.h: kernel sources to machine code, through the cache, many at a time.
 *
 * The key of a kernel is the cache's format, NVRTC's version, the target, the compiler's flags, the contents
 * of every kernel header and of the template, and the generated source; no paths and no times. What the cache
 * does not hold is compiled by several threads and published. Nothing here needs a GPU. */
#ifndef QN_CODEGEN_JIT_H
#define QN_CODEGEN_JIT_H

#include "codegen/cache.h"
#include "codegen/nvrtc.h"

typedef struct qn_jit qn_jit;

/* How far a call of qn_jit_compile_all is. Called once before the first compile (done 0) and after every one,
 * from one thread at a time; never where nothing is compiled. */
typedef struct qn_jit_progress {
    int done, total;  /* programs to compile */
    int cached;       /* programs of the call that were there */
    const char *name; /* entry just compiled; NULL at first */
    double seconds;   /* it took */
    bool kept;        /* what is compiled is kept for the next run */
} qn_jit_progress;

typedef struct qn_jit_opts {
    const qn_nvrtc *nvrtc; /* must outlive the jit */
    qn_arch arch;
    const char *cache_dir;  /* NULL: memory only */
    const char *kernel_src; /* folder that replaces the embedded kernel sources; NULL: embedded */
    int n_threads;          /* most compiles at a time; 0: all CPUs of this process */
    /* One line of text. level 0: a warning, or the compiler's log of a source that does not compile; level 1:
     * detail. May be called from any thread, one at a time. May be NULL. */
    void (*log)(void *user, int level, const char *line);
    void (*progress)(void *user, const qn_jit_progress *p); /* may be NULL */
    void *user;
} qn_jit_opts;

int qn_jit_new(qn_jit **out, const qn_jit_opts *opts, qn_err *err);
/* Frees the kernels too. */
void qn_jit_free(qn_jit *jit);

/* One program: a translation unit with one or more kernel functions. */
typedef struct qn_jit_program {
    const char *op;   /* "norm": first part of the entry's name */
    const char *spec; /* "rms_n4096": what is special about it, readable; other bytes than [A-Za-z0-9_.+-] are
                         replaced */
    const char
        *source; /* the generated text; includes its template ("norm.cu") and kernel headers from memory */
    const char *symbol; /* a kernel function that must be in it; NULL: any */
} qn_jit_program;

/* Looks n programs up and compiles those that are missing; equal ones once. kernels[i] gets program i's
 * kernel, owned by the jit. A program that does not compile is an error that shows the first of NVRTC's
 * messages with file and line (the whole log goes to `log`); nothing of it is published. After qn_jit_seal a
 * compile is an error. */
int qn_jit_compile_all(qn_jit *jit, const qn_jit_program *programs, int n, const qn_kernel **kernels,
                       qn_err *err);

/* The driver refused a kernel that came from the cache: drops the entry, warns, compiles it once and returns
 * the new one (the old pointer is invalid). A kernel that was compiled by this jit is not compiled again:
 * that is an error. */
int qn_jit_replace(qn_jit *jit, const qn_kernel **kernel, const char *why, qn_err *err);

/* Everything is loaded: from here on a compile is an error. */
void qn_jit_seal(qn_jit *jit);

/* Programs that NVRTC compiled for this jit, failures included. */
int qn_jit_compiles(const qn_jit *jit);
const qn_arch *qn_jit_arch(const qn_jit *jit);

/* Text of a kernel source file ("norm.cu"), embedded or from kernel_src; NULL: there is none. Owned by the
 * jit. */
const char *qn_jit_file(const qn_jit *jit, const char *name);

#endif
