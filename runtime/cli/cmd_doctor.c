/* quern doctor: what of CUDA was found on this machine, which files, and what is missing. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "cli/commands.h"
#include "cli/limits.h"
#include "cli/opts.h"
#include "codegen/cache.h"
#include "codegen/nvrtc.h"
#include "cpu/isa.h"
#include "cuda/cublaslt.h"
#include "cuda/driver.h"

typedef struct doctor_args {
    const char *dir;
} doctor_args;

static const qn_opt doctor_opts[] = {
    {"--cache", "DIR", "The kernel cache that a run would be given.", QN_OPT_STR, offsetof(doctor_args, dir),
     0, 0, NULL},
    {0},
};

/* What was not found or does not fit: shown together at the end. */
typedef struct findings {
    int n;
    char text[12][QN_ERR_MAX + 64];
} findings;

static void finding(findings *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void finding(findings *f, const char *fmt, ...)
{
    if (f->n < (int)(sizeof f->text / sizeof *f->text)) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(f->text[f->n++], sizeof f->text[0], fmt, ap);
        va_end(ap);
    }
}

static void show(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void show(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%-13s ", name);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

static void show_file(const qn_dynlib *lib)
{
    show("", "%s (%s)", lib->path, lib->place);
}

static void show_devices(const qn_cuda *cuda, const qn_nvrtc *nvrtc, findings *f)
{
    for (int i = 0; i < cuda->n_device; i++) {
        qn_cuda_device d;
        qn_err err;
        char name[24];
        snprintf(name, sizeof name, "device %d", i);
        if (qn_cuda_device_get(cuda, i, &d, &err) != 0) {
            finding(f, "%s", err.text);
            continue;
        }
        show(name, "%s, compute capability %d.%d, %d SMs, %.1f GiB", d.name, d.cc / 10, d.cc % 10,
             d.multiprocessors, (double)d.memory / (1 << 30));
        if (!nvrtc) {
            continue;
        }
        qn_arch arch;
        if (qn_arch_for_device(&arch, nvrtc, d.cc, &err) != 0) {
            finding(f, "%s: %s", name, err.text);
        } else {
            show("", "kernels are compiled for %s%s, variant %s", arch.name, arch.ptx_only ? " (PTX)" : "",
                 qn_variant_name(arch.variant));
        }
        if (arch.ptx_only) {
            finding(f,
                    "%s is newer than NVRTC %d.%d: its kernels start as PTX, which the driver compiles at "
                    "every start "
                    "(remedy: a newer NVRTC)",
                    name, nvrtc->major, nvrtc->minor);
        }
    }
}

/* The driver; false: there is none that could be asked for devices. */
static bool show_driver(qn_cuda *cuda, findings *f)
{
    qn_err err;
    char module[64];
    bool has_module = qn_cuda_module_version(module, sizeof module);
    if (qn_cuda_load(cuda, &err) != 0) {
        show("driver", "not found%s%s", has_module ? "; kernel module " : "", has_module ? module : "");
        finding(f, "%s", err.text);
        return false;
    }
    char version[32] = "of a version it does not tell";
    if (cuda->version) {
        snprintf(version, sizeof version, "CUDA %d.%d", cuda->version / 1000, cuda->version % 1000 / 10);
    }
    show("driver", "%s%s%s", version, has_module ? ", kernel module " : "", has_module ? module : "");
    show_file(&cuda->lib);
    if (qn_cuda_init(cuda, &err) != 0) {
        show("devices", "none");
        finding(f, "%s", err.text);
        return false;
    }
    return true;
}

static void show_archs(const qn_nvrtc *n)
{
    char list[512] = "";
    for (int i = 0; i < n->n_arch; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, " %d", n->archs[i]);
    }
    show("", "compiles for%s", list);
}

static bool show_nvrtc(qn_nvrtc *nvrtc, const qn_cuda *cuda, findings *f)
{
    qn_err err;
    int driver_major = cuda->version / 1000;
    if (qn_nvrtc_load(nvrtc, driver_major, &err) != 0) {
        show("NVRTC", "not found");
        finding(f, "%s", err.text);
        return false;
    }
    show("NVRTC", "%d.%d", nvrtc->major, nvrtc->minor);
    show_file(&nvrtc->lib);
    show("", "%s", nvrtc->builtins);
    show_archs(nvrtc);
    if (driver_major && nvrtc->major > driver_major) {
        finding(f,
                "NVRTC %d.%d is newer than the driver's CUDA %d.%d, which may refuse its kernels (remedy: "
                "update the "
                "driver, or pip install nvidia-cuda-nvrtc-cu%d)",
                nvrtc->major, nvrtc->minor, driver_major, cuda->version % 1000 / 10, driver_major);
    }
    return true;
}

static void show_cublaslt(const qn_cuda *cuda, findings *f)
{
    qn_err err;
    qn_cublaslt lt;
    if (qn_cublaslt_load(&lt, cuda->version / 1000, &err) != 0) {
        show("cuBLASLt", "not found");
        finding(f, "%s", err.text);
        return;
    }
    show("cuBLASLt", "%zu.%zu.%zu", lt.version / 10000, lt.version / 100 % 100, lt.version % 100);
    show_file(&lt.lib);
}

static int count_entries(void *user, const qn_cache_item *item)
{
    int *counts = user;
    counts[0]++;
    counts[1] += item->damaged;
    return 0;
}

/* Whether entries could be written: the folder, or the one that it would be made in. */
static bool writable(const char *dir)
{
    char part[QN_PATH_MAX];
    snprintf(part, sizeof part, "%s", dir);
    while (access(part, F_OK) != 0 && errno == ENOENT && strrchr(part, '/') > part) {
        *strrchr(part, '/') = '\0';
    }
    return access(part, W_OK | X_OK) == 0;
}

static void show_cache(const char *flag, findings *f)
{
    char dir[QN_PATH_MAX];
    const char *why;
    if (!qn_cache_place(dir, sizeof dir, flag, &why)) {
        show("kernel cache", "memory only (%s)", why);
        return;
    }
    int counts[2] = {0, 0};
    qn_err err;
    qn_cache *c = qn_cache_open(dir);
    if (!c || qn_cache_each(c, count_entries, counts, &err) < 0) {
        show("kernel cache", "%s (%s)", dir, why);
        finding(f, "the kernel cache cannot be read: %s", c ? err.text : "out of memory");
    } else {
        show("kernel cache", "%s (%s): %d entries", dir, why, counts[0]);
        if (counts[1]) {
            finding(f,
                    "%d entries of the kernel cache are damaged; a run repairs them (quern cache verify "
                    "names them)",
                    counts[1]);
        }
        if (!writable(dir)) {
            finding(f,
                    "the kernel cache %s cannot be written: kernels are compiled at every start (remedy: "
                    "--cache DIR or "
                    "QUERN_CACHE)",
                    dir);
        }
    }
    qn_cache_close(c);
}

/* What `bench --device-limits` has measured of the CPU with all its threads, or of a GPU. */
static void show_limits(bool cuda, int device, const char *cache)
{
    qn_limits l;
    qn_err ignored;
    char text[QN_LIMITS_TEXT];
    if (qn_limits_key(&l, cuda, device, qn_cpu_count(), &ignored) == 0 && qn_limits_find(&l, cache)) {
        show(cuda ? "limits" : "", "%s", qn_limits_text(&l, text));
    }
}

static void report(const char *cache)
{
    static qn_cuda cuda;
    static qn_nvrtc nvrtc;
    findings *f = calloc(1, sizeof *f);
    if (!f) {
        qn_cli_error("out of memory");
        return;
    }
    show("quern", QUERN_VERSION);
    show("CPU", "%d for this process, %s", qn_cpu_count(), qn_isa_name(qn_isa_best()));
    show_limits(false, 0, cache);
    bool driver = show_driver(&cuda, f);
    bool compiler = show_nvrtc(&nvrtc, &cuda, f);
    if (driver) {
        show_devices(&cuda, compiler ? &nvrtc : NULL, f);
        for (int i = 0; i < cuda.n_device; i++) {
            show_limits(true, i, cache);
        }
    }
    show_cublaslt(&cuda, f);
    show_cache(cache, f);
    puts(f->n ? "\nMissing or in doubt:" : "\nNothing is missing.");
    for (int i = 0; i < f->n; i++) {
        printf("- %s\n", f->text[i]);
    }
    if (!driver || !compiler) {
        puts("\nModels run on the CPU (--backend cpu, or auto).");
    }
    free(f);
}

int qn_cmd_doctor(int argc, char **argv)
{
    doctor_args a = {0};
    const qn_opt_group groups[] = {{"Doctor", doctor_opts, &a}, qn_common_group};
    const qn_usage usage = {
        "doctor",
        "[--cache DIR]",
        "Lists the CUDA driver, devices, NVRTC and cuBLASLt that quern finds (which file, which "
        "version), the kernel cache, and what is missing with its remedy. Exit status 0 in any case.",
        groups,
        sizeof groups / sizeof *groups,
        0};
    int rc = qn_opts_parse(&usage, argc, argv, NULL);
    if (rc >= 0) {
        return rc;
    }
    report(a.dir);
    return QN_EXIT_OK;
}
