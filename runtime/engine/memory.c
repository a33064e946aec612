#include "engine/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t qn_memory_total(const qn_memory *m)
{
    uint64_t sum = 0;
    const uint64_t parts[] = {m->weights, m->weight_cache, m->kv, m->activations, m->other};
    for (int i = 0; i < 5; i++) {
        if (!qn_add_u64(sum, parts[i], &sum)) {
            return UINT64_MAX;
        }
    }
    return sum;
}

void qn_memory_of(const qn_plans *plans, const qn_exec_opts *opts, qn_memory *out)
{
    memset(out, 0, sizeof *out);
    if (opts->cuda) {
        qn_cuda_memory(plans, opts, out);
    } else {
        qn_cpu_memory(plans, opts, out);
    }
}

int qn_memory_largest_ctx(const qn_plans *plans, const qn_exec_opts *opts, uint64_t available)
{
    int64_t fits = 0, too_large = (int64_t)opts->n_ctx + 1;
    while (too_large - fits > 1) {
        qn_exec_opts o = *opts;
        o.n_ctx = (int)(fits + (too_large - fits) / 2);
        o.n_ubatch = o.n_ubatch < o.n_ctx ? o.n_ubatch : o.n_ctx;
        qn_memory m;
        qn_memory_of(plans, &o, &m);
        if (qn_memory_total(&m) <= available) {
            fits = o.n_ctx;
        } else {
            too_large = o.n_ctx;
        }
    }
    return (int)fits;
}

/* The weight cache is taken where it leaves room for the whole context asked for, and a reserve: what is
 * needed only while loading (blocks on their way into planes, the libraries' own memory). */
static void choose_weight_cache(const qn_plans *plans, qn_exec_opts *opts, uint64_t available)
{
    const uint64_t reserve = (uint64_t)1 << 30;
    qn_exec_opts with = *opts;
    qn_memory need;
    if (!opts->cuda || opts->weight_cache != QN_WEIGHT_CACHE_AUTO) {
        return;
    }
    if (opts->prefill == QN_PREFILL_FP8) { /* its weights have no other way */
        opts->weight_cache = QN_WEIGHT_CACHE_ON;
        return;
    }
    with.weight_cache = QN_WEIGHT_CACHE_ON;
    qn_memory_of(plans, &with, &need);
    uint64_t total = qn_memory_total(&need);
    bool fits = need.weight_cache > 0 && total <= available && available - total >= reserve;
    opts->weight_cache = fits ? QN_WEIGHT_CACHE_ON : QN_WEIGHT_CACHE_OFF;
}

int qn_memory_fit(const qn_plans *plans, qn_exec_opts *opts, bool may_shrink, uint64_t available, qn_err *err)
{
    qn_memory need;
    choose_weight_cache(plans, opts, available);
    qn_memory_of(plans, opts, &need);
    if (qn_memory_total(&need) <= available) {
        return 0;
    }
    int largest = qn_memory_largest_ctx(plans, opts, available);
    if (largest > 0 && may_shrink) {
        opts->n_ctx = largest;
        opts->n_ubatch = opts->n_ubatch < largest ? opts->n_ubatch : largest;
        return 0;
    }
    char total[24], weights[24], kv[24], scratch[24], have[24], cache[24], cached[48] = "";
    char fits[96] = "no context fits";
    if (largest > 0) {
        snprintf(fits, sizeof fits, "the largest context that fits is %d", largest);
    }
    if (need.weight_cache > 0) {
        snprintf(cached, sizeof cached, " + weight cache %s", qn_memory_text(need.weight_cache, cache));
        snprintf(fits + strlen(fits), sizeof fits - strlen(fits), " (remedy: --weight-cache off)");
    }
    return qn_fail(
        err,
        "a context of %d needs %s of memory (weights %s%s + KV cache %s + scratch %s), %s are available; %s",
        opts->n_ctx, qn_memory_text(qn_memory_total(&need), total), qn_memory_text(need.weights, weights),
        cached, qn_memory_text(need.kv, kv), qn_memory_text(need.activations + need.other, scratch),
        qn_memory_text(available, have), fits);
}

/* The number behind `key` (or at the file's start where key is NULL); false where there is none. */
static bool read_number(const char *path, const char *key, uint64_t *out)
{
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        return false;
    }
    char line[256];
    bool found = false;
    size_t key_len = key != NULL ? strlen(key) : 0;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        if (key == NULL || strncmp(line, key, key_len) == 0) {
            found = sscanf(line + key_len, "%" SCNu64, out) == 1;
        }
    }
    fclose(f);
    return found;
}

/* What a cgroup's limit leaves; its page cache can be given back and does not count as used. */
static bool cgroup_available(const char *limit, const char *usage, const char *stat, const char *cache_key,
                             uint64_t *out)
{
    uint64_t max, used, cache = 0;
    if (!read_number(limit, NULL, &max) || !read_number(usage, NULL, &used)) {
        return false;
    }
    if (read_number(stat, cache_key, &cache)) {
        used = used > cache ? used - cache : 0;
    }
    *out = max > used ? max - used : 0;
    return true;
}

uint64_t qn_memory_available(void)
{
    uint64_t best = UINT64_MAX, v;
    if (read_number("/proc/meminfo", "MemAvailable:", &v)) {
        best = v * 1024;
    }
    if (cgroup_available("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                         "/sys/fs/cgroup/memory.stat", "file ", &v) &&
        v < best) {
        best = v;
    }
    if (cgroup_available("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                         "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat",
                         "total_cache ", &v) &&
        v < best) {
        best = v;
    }
    return best;
}

const char *qn_memory_text(uint64_t bytes, char text[24])
{
    const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    snprintf(text, 24, u == 0 ? "%.0f %s" : "%.1f %s", v, units[u]);
    return text;
}
