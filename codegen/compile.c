#include "codegen/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void qn_compile_flags(const qn_arch *arch, char arch_flag[48], const char *flags[QN_FLAGS_MAX])
{
    snprintf(arch_flag, 48, "--gpu-architecture=%s", arch->name);
    int n = 0;
    flags[n++] = arch_flag;
    flags[n++] = "--std=c++17";
    flags[n++] = "--device-as-default-execution-space";
    flags[n++] = "--no-source-include";    /* a header in the working directory is not ours */
    flags[n++] = "--diag-suppress=39,177"; /* constants of 0 in branches not taken; constants not used */
    flags[n++] = "--ptxas-options=-v";     /* registers and spills, in the log */
    flags[n] = NULL;
}

/* The launch bound of the function whose head begins at `at`: ".maxntid N" before its body; -1: none. */
static int launch_bound(const char *at)
{
    const char *body = strchr(at, '{'), *bound = strstr(at, ".maxntid");
    int x = 0, y = 1, z = 1;
    if (!bound || !body || bound > body || sscanf(bound, ".maxntid %d, %d, %d", &x, &y, &z) < 1) {
        return -1;
    }
    return x > 0 && x <= 1024 && y > 0 && y <= 1024 && z > 0 && z <= 64 ? x * y * z : -1;
}

/* ".entry NAME(" of every kernel function. */
static int find_entries(const char *ptx, qn_kernel *k, qn_err *err)
{
    k->n_entry = 0;
    for (const char *at = strstr(ptx, ".entry "); at; at = strstr(at, ".entry ")) {
        at += strlen(".entry ");
        size_t n = strcspn(at, "( \t\r\n");
        if (n == 0 || n >= QN_SYMBOL_MAX) {
            return qn_fail(err, "a kernel function's name has %zu bytes, at most %d", n, QN_SYMBOL_MAX - 1);
        }
        if (k->n_entry == QN_KERNEL_ENTRIES) {
            return qn_fail(err, "more than %d kernel functions in one program", QN_KERNEL_ENTRIES);
        }
        qn_kernel_entry *e = &k->entries[k->n_entry++];
        *e = (qn_kernel_entry){"", launch_bound(at), -1, -1, -1, -1, -1};
        memcpy(e->symbol, at, n);
    }
    return k->n_entry ? 0 : qn_fail(err, "there is no kernel function in it");
}

/* ptxas -v: "Compiling entry function 'NAME' for 'sm_90a'", then lines of properties up to the next function.
 */
static void read_properties(const char *log, qn_kernel_entry *e)
{
    char head[QN_SYMBOL_MAX + 40];
    snprintf(head, sizeof head, "Compiling entry function '%s'", e->symbol);
    const char *at = strstr(log, head);
    const char *end = at ? strstr(at + 1, "Compiling entry function") : NULL;
    while (at && (!end || at < end)) {
        int a, b, c;
        const char *text = strstr(at, " : ");
        const char *nl = strchr(at, '\n');
        if (!text || (nl && text > nl)) {
            text = at;
        }
        text += strcspn(text, "0123456789U\n"); /* "Used ..." or a number */
        /* The first such line is the entry's own; functions that it calls follow. */
        if (e->stack < 0 && sscanf(text, "%d bytes stack frame, %d bytes spill stores, %d bytes spill loads",
                                   &a, &b, &c) == 3) {
            e->stack = a;
            e->spill_stores = b;
            e->spill_loads = c;
        } else if (sscanf(text, "Used %d registers", &a) == 1) {
            e->regs = a;
            e->smem_static = 0;
            for (const char *s = text; s && (!nl || s < nl); s = strchr(s + 1, ',')) {
                int bytes, used = 0;
                if (sscanf(s, ", %d bytes smem%n", &bytes, &used) == 1 && used) {
                    e->smem_static = bytes;
                }
            }
        }
        at = nl ? nl + 1 : NULL;
    }
}

int qn_compile_entries(const char *ptx, const char *log, qn_kernel *k, qn_err *err)
{
    if (find_entries(ptx, k, err) != 0) {
        return -1;
    }
    for (int i = 0; i < k->n_entry; i++) {
        if (log) {
            read_properties(log, &k->entries[i]);
        }
    }
    return 0;
}

static char *get_log(const qn_nvrtc *nvrtc, qn_nvrtc_program p)
{
    size_t size = 0;
    if (nvrtc->api.GetProgramLogSize(p, &size) != QN_NVRTC_SUCCESS || size == 0) {
        return NULL;
    }
    char *log = malloc(size + 1);
    if (log && nvrtc->api.GetProgramLog(p, log) != QN_NVRTC_SUCCESS) {
        free(log);
        return NULL;
    }
    if (log) {
        log[size] = '\0';
    }
    return log;
}

/* The first message of the log: the first line that says "error", else the first line. */
static int fail_with_log(const qn_nvrtc *nvrtc, qn_nvrtc_result r, const char *log, qn_err *err)
{
    const char *what = nvrtc->api.GetErrorString(r);
    const char *at = log ? strstr(log, "error") : NULL;
    if (!at) {
        at = log;
    }
    while (at && at > log && at[-1] != '\n') {
        at--;
    }
    if (!at || !*at) {
        return qn_fail(err, "%s", what ? what : "NVRTC failed");
    }
    return qn_fail(err, "%.*s (%s)", (int)strcspn(at, "\n"), at, what ? what : "NVRTC failed");
}

typedef qn_nvrtc_result size_fn(qn_nvrtc_program, size_t *);
typedef qn_nvrtc_result get_fn(qn_nvrtc_program, char *);

static int fetch(qn_nvrtc_program p, size_fn *get_size, get_fn *get, const char *what, qn_blob *out,
                 qn_err *err)
{
    size_t size = 0;
    if (get_size(p, &size) != QN_NVRTC_SUCCESS || size < 2) {
        return qn_fail(err, "NVRTC made an empty %s", what);
    }
    out->data = malloc(size + 1);
    if (!out->data || get(p, out->data) != QN_NVRTC_SUCCESS) {
        return qn_fail(err, "NVRTC does not hand out its %s", what);
    }
    out->size = size;
    out->data[size] = '\0';
    return 0;
}

static int collect(const qn_nvrtc *nvrtc, const qn_arch *arch, qn_nvrtc_program p, const char *log,
                   qn_kernel *k, qn_err *err)
{
    if (fetch(p, nvrtc->api.GetPTXSize, nvrtc->api.GetPTX, "PTX", &k->ptx, err) != 0) {
        return -1;
    }
    k->ptx.size = strlen(k->ptx.data); /* NVRTC counts the NUL */
    if (!arch->ptx_only) {
        if (fetch(p, nvrtc->api.GetCUBINSize, nvrtc->api.GetCUBIN, "cubin", &k->cubin, err) != 0) {
            return -1;
        }
        if (k->cubin.size < 64 || memcmp(k->cubin.data, "\177ELF", 4) != 0) {
            return qn_fail(err, "NVRTC made a cubin that is no ELF file");
        }
    }
    return qn_compile_entries(k->ptx.data, arch->ptx_only ? NULL : log, k, err);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int qn_compile(const qn_nvrtc *nvrtc, const qn_arch *arch, const qn_kernel_files *files, const char *file,
               const char *source, qn_kernel *k, char **log, qn_err *err)
{
    char arch_flag[48];
    const char *flags[QN_FLAGS_MAX];
    int n_flag = 0;
    qn_compile_flags(arch, arch_flag, flags);
    while (flags[n_flag]) {
        n_flag++;
    }
    *log = NULL;
    double start = now();
    qn_nvrtc_program p = NULL;
    const char *texts[QN_HEADERS_MAX], *names[QN_HEADERS_MAX];
    int n_header = qn_kernel_files_of(files, source, names, texts);
    qn_nvrtc_result r = nvrtc->api.CreateProgram(&p, source, file, n_header, texts, names);
    if (r != QN_NVRTC_SUCCESS) {
        return fail_with_log(nvrtc, r, NULL, err);
    }
    r = nvrtc->api.CompileProgram(p, n_flag, flags);
    *log = get_log(nvrtc, p);
    int rc =
        r == QN_NVRTC_SUCCESS ? collect(nvrtc, arch, p, *log, k, err) : fail_with_log(nvrtc, r, *log, err);
    nvrtc->api.DestroyProgram(&p);
    snprintf(k->arch, sizeof k->arch, "%s", arch->name);
    k->seconds = now() - start;
    return rc;
}
