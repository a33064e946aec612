#include "codegen/nvrtc.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW(name)                                                                                            \
    {                                                                                                        \
        "nvrtc" #name, offsetof(qn_nvrtc_api, name), false                                                   \
    }
static const qn_symbol symbols[] = {
    ROW(Version),           ROW(GetErrorString), ROW(GetNumSupportedArchs),
    ROW(GetSupportedArchs), ROW(CreateProgram),  ROW(DestroyProgram),
    ROW(CompileProgram),    ROW(GetPTXSize),     ROW(GetPTX),
    ROW(GetCUBINSize),      ROW(GetCUBIN),       ROW(GetProgramLogSize),
    ROW(GetProgramLog),
};

struct want {
    qn_nvrtc *nvrtc;
    int max_major; /* 0: any */
};

struct find_builtins {
    char *path;
    const char *name;
};

static int is_builtins(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    struct find_builtins *f = arg;
    if (info->dlpi_name && strstr(info->dlpi_name, f->name)) {
        snprintf(f->path, QN_PATH_MAX, "%s", info->dlpi_name);
        return 1;
    }
    return 0;
}

/* NVRTC opens its builtins by bare name when it first compiles, which finds another toolkit's or nothing.
 * Opened here from NVRTC's own folder, the loader answers that later call with this one. */
static int open_builtins(qn_nvrtc *n, qn_err *err)
{
    char name[64], file[2 * QN_PATH_MAX], real[QN_PATH_MAX];
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", n->major, n->minor);
    snprintf(file, sizeof file, "%s/%s", n->lib.dir, name);
    if (n->lib.dir[0] == '\0' || access(file, F_OK) != 0) {
        /* The folder of the file itself, where the name NVRTC was opened by is a link from elsewhere. */
        snprintf(real, sizeof real, "%s", n->lib.path);
        char *slash = strrchr(real, '/');
        if (slash) {
            *slash = '\0';
        }
        snprintf(file, sizeof file, "%s/%s", real, name);
    }
    if (!dlopen(file, RTLD_NOW | RTLD_GLOBAL) && !dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
        return qn_fail(err, "its %s is missing beside it", name);
    }
    n->builtins[0] = '\0';
    struct find_builtins f = {n->builtins, name};
    dl_iterate_phdr(is_builtins, &f);
    return 0;
}

static int accept_nvrtc(void *user, const qn_dynlib *lib, qn_err *err)
{
    struct want *w = user;
    qn_nvrtc *n = w->nvrtc;
    if (qn_dynlib_resolve(lib, &n->api, symbols, sizeof symbols / sizeof *symbols, err) != 0) {
        return -1;
    }
    if (n->api.Version(&n->major, &n->minor) != QN_NVRTC_SUCCESS) {
        return qn_fail(err, "it does not tell its version");
    }
    if (n->major < QN_NVRTC_MIN_MAJOR) {
        return qn_fail(err, "version %d.%d, at least %d.0 is needed", n->major, n->minor, QN_NVRTC_MIN_MAJOR);
    }
    if (w->max_major && n->major > w->max_major) {
        return qn_fail(err, "version %d.%d is newer than the driver's CUDA %d", n->major, n->minor,
                       w->max_major);
    }
    int count = 0;
    if (n->api.GetNumSupportedArchs(&count) != QN_NVRTC_SUCCESS || count < 1 || count > QN_NVRTC_ARCHS ||
        n->api.GetSupportedArchs(n->archs) != QN_NVRTC_SUCCESS) {
        return qn_fail(err, "it does not list its architectures (%d)", count);
    }
    n->n_arch = count;
    n->lib = *lib;
    return open_builtins(n, err);
}

int qn_nvrtc_load(qn_nvrtc *out, int driver_major, qn_err *err)
{
    static const char *const newest_first[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
    static const char *const older_first[] = {"libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so", NULL};
    *out = (qn_nvrtc){0};
    struct want w = {out, driver_major};
    qn_dirs dirs = {0};
    int rc = qn_dirs_cuda(&dirs, err);
    if (rc == 0) {
        const char *const *names = driver_major == 12 ? older_first : newest_first;
        rc = qn_dynlib_open(&out->lib, &dirs, names, accept_nvrtc, &w, err);
        if (rc != 0 && driver_major) {
            w.max_major = 0;
            rc = qn_dynlib_open(&out->lib, &dirs, names, accept_nvrtc, &w, err);
        }
        if (rc != 0) {
            *out = (qn_nvrtc){0}; /* what a refused library left */
            qn_fail_prefix(
                err, "NVRTC, CUDA's run-time compiler, is missing (remedy: pip install nvidia-cuda-nvrtc, or "
                     "install a CUDA toolkit 12 or 13 and set CUDA_PATH)");
        }
    }
    qn_dirs_free(&dirs);
    return rc;
}

static int variant_of(int cc, bool specific)
{
    if (cc == 90 && specific) {
        return QN_VARIANT_SM90A;
    }
    return cc >= 80 ? QN_VARIANT_SM80 : QN_VARIANT_SM75;
}

static bool knows(const qn_nvrtc *nvrtc, int cc)
{
    for (int i = 0; i < nvrtc->n_arch; i++) {
        if (nvrtc->archs[i] == cc) {
            return true;
        }
    }
    return false;
}

/* Architecture-specific targets (the letter a) exist from 9.0 on. */
static void fill(qn_arch *out, int cc, bool specific, bool ptx_only)
{
    *out = (qn_arch){.cc = cc, .ptx_only = ptx_only, .variant = variant_of(cc, specific)};
    snprintf(out->name, sizeof out->name, "%s_%d%s", ptx_only ? "compute" : "sm", cc, specific ? "a" : "");
}

int qn_arch_for_device(qn_arch *out, const qn_nvrtc *nvrtc, int cc, qn_err *err)
{
    *out = (qn_arch){0}; // a refused card leaves no half-filled target behind
    if (cc < QN_VARIANT_SM75) {
        return qn_fail(err, "compute capability %d.%d: quern's kernels need 7.5 or newer", cc / 10, cc % 10);
    }
    if (knows(nvrtc, cc)) {
        fill(out, cc, cc >= 90, false);
        return 0;
    }
    int best = 0;
    for (int i = 0; i < nvrtc->n_arch; i++) {
        if (nvrtc->archs[i] < cc && nvrtc->archs[i] > best) {
            best = nvrtc->archs[i];
        }
    }
    if (best < QN_VARIANT_SM75) {
        return qn_fail(err, "NVRTC %d.%d compiles for no architecture up to compute capability %d.%d",
                       nvrtc->major, nvrtc->minor, cc / 10, cc % 10);
    }
    fill(out, best, false, true);
    return 0;
}

int qn_arch_by_name(qn_arch *out, const qn_nvrtc *nvrtc, const char *name, qn_err *err)
{
    bool ptx_only = strncmp(name, "compute_", 8) == 0;
    const char *digits = ptx_only ? name + 8 : strncmp(name, "sm_", 3) == 0 ? name + 3 : NULL;
    char *end = NULL;
    long cc =
        digits && digits[0] >= '1' && digits[0] <= '9' && strlen(digits) < 6 ? strtol(digits, &end, 10) : 0;
    bool specific = end && strcmp(end, "a") == 0;
    bool known = end && (specific || *end == '\0') && cc >= QN_VARIANT_SM75 && knows(nvrtc, (int)cc);
    if (!known || (specific && (cc < 90 || ptx_only))) {
        char list[512] = "";
        for (int i = 0; i < nvrtc->n_arch; i++) {
            size_t used = strlen(list);
            if (nvrtc->archs[i] >= QN_VARIANT_SM75) {
                snprintf(list + used, sizeof list - used, " sm_%d%s", nvrtc->archs[i],
                         nvrtc->archs[i] >= 90 ? "[a]" : "");
            }
        }
        return qn_fail(err, "architecture '%s': NVRTC %d.%d knows%s", name, nvrtc->major, nvrtc->minor, list);
    }
    fill(out, (int)cc, specific, ptx_only);
    return 0;
}

static const struct {
    const char *name;
    int variant;
} variants[] = {{"sm75", QN_VARIANT_SM75}, {"sm80", QN_VARIANT_SM80}, {"sm90a", QN_VARIANT_SM90A}};

int qn_variant_by_name(int *out, const qn_arch *arch, const char *name, qn_err *err)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (strcmp(variants[i].name, name) != 0) {
            continue;
        }
        if (variants[i].variant > arch->variant) {
            return qn_fail(err, "variant %s cannot be built for %s", name, arch->name);
        }
        *out = variants[i].variant;
        return 0;
    }
    return qn_fail(err, "unknown variant '%s' (sm75, sm80, sm90a)", name);
}

const char *qn_variant_name(int variant)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (variants[i].variant == variant) {
            return variants[i].name;
        }
    }
    return "?";
}
