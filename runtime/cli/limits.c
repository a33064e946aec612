#include "cli/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/threads.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "codegen/cache.h"
#include "codegen/cache_fs.h"
#include "cpu/limits.h"
#include "cuda/driver.h"
#include "cuda/limits.h"
#include "engine/memory.h"

enum { FORMAT = 1 };
static const char file_name[] = "limits.json";

/* "AMD EPYC 9B14", or the machine's kind. */
static void cpu_name(char *out, size_t size)
{
    char line[256];
    struct utsname u;
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "%s", uname(&u) == 0 ? u.machine : "CPU");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            colon += 1 + strspn(colon + 1, " \t");
            snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

int qn_limits_key(qn_limits *l, bool cuda, int device, int threads, qn_err *err)
{
    char name[128];
    *l = (qn_limits){.threads = threads};
    if (!cuda) {
        cpu_name(name, sizeof name);
        snprintf(l->device, sizeof l->device, "%s, %s", name, qn_isa_name(qn_isa_best()));
        return 0;
    }
    qn_cuda c;
    qn_cuda_device d;
    char module[64] = "";
    if (qn_cuda_load(&c, err) != 0 || qn_cuda_init(&c, err) != 0 ||
        qn_cuda_device_get(&c, device, &d, err) != 0) {
        return -1;
    }
    bool has_module = qn_cuda_module_version(module, sizeof module);
    l->threads = 0;
    snprintf(l->device, sizeof l->device, "%s, compute capability %d.%d, %d SMs", d.name, d.cc / 10,
             d.cc % 10, d.multiprocessors);
    snprintf(l->driver, sizeof l->driver, "%s%sCUDA %d.%d", module, has_module ? ", " : "", c.version / 1000,
             c.version % 1000 / 10);
    return 0;
}

static bool same_key(const json_t *o, const qn_limits *l)
{
    const char *device = json_string_value(json_object_get(o, "device"));
    const char *driver = json_string_value(json_object_get(o, "driver"));
    return device != NULL && driver != NULL && strcmp(device, l->device) == 0 &&
           strcmp(driver, l->driver) == 0 && json_integer_value(json_object_get(o, "threads")) == l->threads;
}

/* The folder and the file in it; false: there is no cache on disk. */
static bool place(const char *cache, char *dir, char *path, size_t size)
{
    const char *why;
    if (!qn_cache_place(dir, size, cache, &why)) {
        return false;
    }
    return (size_t)snprintf(path, size, "%s/%s", dir, file_name) < size;
}

/* The list of what is kept; an empty one where the file is missing or not one of this format. */
static json_t *read_all(const char *path)
{
    json_error_t e;
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    json_t *list = json_object_get(o, "limits");
    bool good = json_integer_value(json_object_get(o, "format")) == FORMAT && json_is_array(list);
    list = good ? json_incref(list) : json_array();
    json_decref(o);
    return list;
}

bool qn_limits_find(qn_limits *l, const char *cache)
{
    char dir[QN_PATH_MAX], path[QN_PATH_MAX];
    bool found = false;
    size_t i;
    json_t *o, *list = place(cache, dir, path, sizeof path) ? read_all(path) : NULL;
    json_array_foreach(list, i, o)
    {
        if (same_key(o, l)) {
            l->read = json_number_value(json_object_get(o, "read_bytes_per_second"));
            l->f32 = json_number_value(json_object_get(o, "f32_ops_per_second"));
            l->int8 = json_number_value(json_object_get(o, "int8_ops_per_second"));
            l->f16 = json_number_value(json_object_get(o, "f16_ops_per_second"));
            found = true;
        }
    }
    json_decref(list);
    return found;
}

static json_t *to_json(const qn_limits *l)
{
    json_t *o = json_object();
    int bad = qn_json_set(o, "device", qn_json_str(l->device));
    bad |= qn_json_set(o, "driver", qn_json_str(l->driver));
    bad |= qn_json_set(o, "threads", json_integer(l->threads));
    bad |= qn_json_set(o, "read_bytes_per_second", qn_json_real(l->read));
    bad |= qn_json_set(o, "f32_ops_per_second", qn_json_real(l->f32));
    bad |= qn_json_set(o, "int8_ops_per_second", qn_json_real(l->int8));
    bad |= qn_json_set(o, "f16_ops_per_second", qn_json_real(l->f16));
    return qn_json_whole(o, bad);
}

/* What is kept, with *l in place of what stood under its key. Written aside and renamed: readers see the old
 * file or the new one. */
static int keep(const qn_limits *l, const char *cache, char *path, size_t size, qn_err *err)
{
    char dir[QN_PATH_MAX], aside[QN_PATH_MAX + 16];
    if (!place(cache, dir, path, size)) {
        return qn_fail(err, "there is no cache on disk");
    }
    if (qn_fs_mkdirs(dir, err) != 0) {
        return -1;
    }
    json_t *list = read_all(path), *o = json_object();
    for (size_t i = json_array_size(list); i > 0; i--) {
        if (same_key(json_array_get(list, i - 1), l)) {
            json_array_remove(list, i - 1);
        }
    }
    int bad = json_array_append_new(list, to_json(l));
    bad |= qn_json_set(o, "format", json_integer(FORMAT));
    bad |= qn_json_set(o, "limits", list);
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    if (bad != 0) {
        json_decref(o);
        return qn_fail(err, "out of memory");
    }
    int rc =
        json_dump_file(o, aside, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && rename(aside, path) == 0
            ? 0
            : qn_fail(err, "%s: %s", path, strerror(errno));
    if (rc != 0) {
        unlink(aside);
    }
    json_decref(o);
    return rc;
}

/* Memory to read: beyond any cache, within what there is. */
static size_t bytes_to_read(void)
{
    const uint64_t least = 512u << 20;
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t want = l3 > 0 && 4 * (uint64_t)l3 > least ? 4 * (uint64_t)l3 : least,
             have = qn_memory_available() / 2;
    want = have > 0 && want > have ? have : want;
    return want > 1 << 20 ? (size_t)want : 1 << 20;
}

static int measure(const qn_model_args *a, bool cuda, qn_limits *l, qn_err *err)
{
    if (cuda) {
        qn_cuda_limits m;
        if (qn_cuda_limits_measure(&m, a->device, a->cache, a->kernel_dir, err) != 0) {
            return -1;
        }
        if (m.f16 == 0) {
            qn_cli_note("no product is measured: %s", m.why.text);
        }
        l->read = m.read;
        l->f16 = m.f16;
        return 0;
    }
    qn_cpu_limits m;
    if (qn_cpu_limits_measure(&m, l->threads, qn_isa_best(), bytes_to_read(), err) != 0) {
        return -1;
    }
    l->read = m.read;
    l->f32 = m.f32;
    l->int8 = m.int8;
    return 0;
}

const char *qn_limits_text(const qn_limits *l, char text[QN_LIMITS_TEXT])
{
    if (l->threads > 0) {
        snprintf(text, QN_LIMITS_TEXT, "%s, %d threads: reads %.1f GB/s, f32 %.3f TFLOP/s, int8 %.3f TOP/s",
                 l->device, l->threads, 1e-9 * l->read, 1e-12 * l->f32, 1e-12 * l->int8);
    } else {
        snprintf(text, QN_LIMITS_TEXT, "%s, %s: reads %.1f GB/s, f16 product %.1f TFLOP/s", l->device,
                 l->driver, 1e-9 * l->read, 1e-12 * l->f16);
    }
    return text;
}

static void print(const qn_limits *l, bool alone)
{
    char text[QN_LIMITS_TEXT];
    qn_limits_text(l, text);
    if (alone) {
        puts(text);
        fflush(stdout);
    } else {
        qn_cli_note("%s", text);
    }
}

/* -1: the options' GPU does not answer, and they ask for it; else whether it is used. */
static int choose(const qn_model_args *a, qn_err *err)
{
    uint64_t free_bytes;
    if (a->backend == QUERN_BACKEND_CPU || (a->backend == QUERN_BACKEND_AUTO && a->exact)) {
        return 0;
    }
    if (qn_cuda_available(a->device, &free_bytes, err) == 0) {
        return 1;
    }
    return a->backend == QUERN_BACKEND_AUTO ? 0 : qn_fail_prefix(err, "backend cuda");
}

int qn_limits_measure(const qn_model_args *a, const int *threads, size_t n, bool json, bool alone)
{
    const int all = qn_cpu_count();
    qn_err err;
    int cuda = choose(a, &err);
    json_t *list = json && alone ? json_array() : NULL;
    int rc = cuda >= 0 ? QN_EXIT_OK : qn_cli_error("%s", err.text);
    size_t n_run = cuda == 1 || n == 0 ? 1 : n;
    for (size_t i = 0; rc == QN_EXIT_OK && i < n_run; i++) {
        qn_limits l;
        char path[QN_PATH_MAX];
        if (qn_limits_key(&l, cuda == 1, a->device, n > 0 ? threads[i] : all, &err) != 0 ||
            measure(a, cuda == 1, &l, &err) != 0) {
            rc = qn_cli_error("%s", err.text);
            break;
        }
        if (keep(&l, a->cache, path, sizeof path, &err) != 0) {
            qn_cli_note("warning: the limits are not kept: %s", err.text);
        } else {
            qn_cli_note("kept in %s", path);
        }
        if (list == NULL) {
            print(&l, alone);
        } else if (json_array_append_new(list, to_json(&l)) != 0) {
            rc = qn_cli_error("out of memory for JSON output");
        }
    }
    if (list != NULL && rc == QN_EXIT_OK) {
        return qn_json_print(list, JSON_INDENT(2));
    }
    json_decref(list);
    return rc;
}
