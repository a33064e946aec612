/* emu_q8.c: see emu_q8.h. */
#include "emu_q8.h"

#include <math.h>
#include <string.h>

enum { GROUP = 32, SPAN = 128 };

const qn_cuda_action *emu_find_action(const qn_exec *e, const qn_cuda_list *list, const char *name, int nth)
{
    const qn_lowered *low = emu_exec_lowered(e);
    for (int i = 0; i < list->n; i++) {
        const qn_cuda_action *a = &list->actions[i];
        if (!a->is_gemm && strcmp(low->programs[a->program].name, name) == 0 && nth-- == 0) {
            return a;
        }
    }
    return NULL;
}

/* Spans of 128 groups, the last one shorter: there a lane takes `steps` consecutive groups, and place t *
 * lanes + lane is the t-th of a lane. */
static int places_of(int n)
{
    int groups = n / GROUP, rest = groups % SPAN;
    int steps = rest > 64 ? 4 : rest > 32 ? 2 : 1;
    return groups - rest + (rest + steps - 1) / steps * steps;
}

static int place_of(int n, int group)
{
    int first = group / SPAN * SPAN, left = n / GROUP - first, r = group - first;
    int steps = left > 64 ? 4 : left > 32 ? 2 : 1;
    int lanes = ((left < SPAN ? left : SPAN) + steps - 1) / steps;
    return first + r % steps * lanes + r / steps;
}

/* Codes and, beside them, steps and sums of codes times steps: one of each of a group, or two. */
static size_t row_bytes(int n, bool fine)
{
    return (size_t)places_of(n) * (fine ? 48 : 40);
}

static const uint8_t *row_at(uint64_t at, int n, int row, bool fine)
{
    return (const uint8_t *)(uintptr_t)at + (size_t)row * ((row_bytes(n, fine) + 15) / 16 * 16);
}

static int code_at(const uint8_t *q8, int n, int i)
{
    return (int8_t)q8[(i % GROUP / 16 * places_of(n) + place_of(n, i / GROUP)) * 16 + i % 16];
}

/* Of value i. which 0: the step, 1: step times sum of codes. */
static float factor_at(const uint8_t *q8, int n, bool fine, int i, int which)
{
    int half = fine ? i % GROUP / 16 : 0, per_place = fine ? 4 : 2;
    float f;
    memcpy(&f,
           q8 + places_of(n) * 32 +
               (place_of(n, i / GROUP) * per_place + which * (per_place / 2) + half) * (int)sizeof f,
           sizeof f);
    return f;
}

void emu_q8_row(uint64_t at, int n, int row, bool fine, float *out)
{
    const uint8_t *q8 = row_at(at, n, row, fine);
    emu_report r;
    emu_readable(q8, row_bytes(n, fine), &r); /* whether it may be is emu_q8_check's */
    for (int i = 0; i < n; i++) {
        out[i] = (float)code_at(q8, n, i) * factor_at(q8, n, fine, i, 0);
    }
}

int emu_q8_check(uint64_t at, int n, int row, bool fine, const float *x, qn_err *err)
{
    const uint8_t *q8 = row_at(at, n, row, fine);
    const int group = fine ? GROUP / 2 : GROUP;
    emu_report r;
    if (emu_readable(q8, row_bytes(n, fine), &r)) {
        return qn_fail(err, "8-bit row %d: %s", row, r.text);
    }
    for (int g = 0; g < n / group; g++) {
        float top = 0, d = factor_at(q8, n, fine, g * group, 0), sums = factor_at(q8, n, fine, g * group, 1);
        int sum = 0;
        for (int i = g * group; i < (g + 1) * group; i++) {
            top = fmaxf(top, fabsf(x[i]));
            sum += code_at(q8, n, i);
            if (!(fabs((double)code_at(q8, n, i) * (double)d - (double)x[i]) <= 0.5001 * (double)d)) {
                return qn_fail(err, "8-bit row %d, value %d: %g is code %d of step %g", row, i, (double)x[i],
                               code_at(q8, n, i), (double)d);
            }
        }
        if (!(fabs((double)d - (double)top / 127) <= 1e-6 * (double)d) ||
            !(fabs((double)sums - (double)d * sum) <= 1e-6 * fabs((double)d * sum))) {
            return qn_fail(err, "8-bit row %d, group %d of %d: step %g, largest value %g, sum %g of codes %d",
                           row, g, group, (double)d, (double)top, (double)sums, sum);
        }
    }
    return 0;
}
