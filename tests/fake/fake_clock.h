// fake_clock.h: events of fake_gpu.c, which tell the time of a clock that launches move on. A launch takes
// 0.001 ms, or what FAKE_MS says: "linear_q8:256=0.5,glu=2": kernels whose name begins so, with so many
// threads a block where a number is given; the first that fits counts. FAKE_NOISE: so many launches of a
// hundred, in no order, take twice as long.
#ifndef QN_FAKE_CLOCK_H
#define QN_FAKE_CLOCK_H
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_api.h"

static atomic_long n_event, n_event_destroy;
static double clock_ms;

struct CUevent_st {
    double at;
};

static void clock_launch(const char *name, unsigned int threads)
{
    static unsigned int random = 1;
    const char *noise = getenv("FAKE_NOISE");
    double ms = 0.001;
    for (const char *at = getenv("FAKE_MS"); at && *at;) {
        size_t n_name = strcspn(at, ":=");
        const char *equals = strchr(at, '=');
        bool fits = strncmp(name, at, n_name) == 0 &&
                    (at[n_name] != ':' || strtoul(at + n_name + 1, NULL, 10) == threads);
        if (fits && equals) {
            ms = strtod(equals + 1, NULL);
            break;
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
    random = random * 1664525u + 1013904223u;
    clock_ms += noise && (long)(random >> 16) % 100 < atol(noise) ? 2 * ms : ms;
}

qn_fn_cuEventCreate cuEventCreate;
qn_cu_result cuEventCreate(qn_cu_event *out, unsigned int flags)
{
    (void)flags;
    n_event++;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : QN_CU_OUT_OF_MEMORY;
}

qn_fn_cuEventDestroy cuEventDestroy_v2;
qn_cu_result cuEventDestroy_v2(qn_cu_event e)
{
    n_event_destroy++;
    free(e);
    return 0;
}

qn_fn_cuEventRecord cuEventRecord;
qn_cu_result cuEventRecord(qn_cu_event e, qn_cu_stream s)
{
    (void)s;
    e->at = clock_ms;
    return 0;
}

qn_fn_cuEventElapsedTime cuEventElapsedTime;
qn_cu_result cuEventElapsedTime(float *ms, qn_cu_event a, qn_cu_event b)
{
    *ms = (float)(b->at - a->at);
    *ms = *ms > 0 ? *ms : 0.001f; // products of the library do not move the clock
    return 0;
}
#endif
