#include "emu_knobs.h"

#include <stddef.h>

/* The largest number of warps up to `most` that are a multiple of `slices` and fit; 0: none do. */
static int warps_that_fit(const qn_site *s, qn_knobs k, int most)
{
    for (k.warps = most; k.warps > 0; k.warps--) {
        if (qn_knobs_fit(s->kind, &s->room, &k)) {
            return k.warps;
        }
    }
    return 0;
}

static void product_set(const qn_site *s, int set, qn_knobs *k)
{
    int least = s->room.most_kept > 0 ? (s->room.parts + s->room.most_kept - 1) / s->room.most_kept : 1;
    int most = s->room.parts < 4 ? s->room.parts : 4;
    *k = (qn_knobs){.warps = 1, .slices = least, .ahead = set == 2 ? QN_KNOB_AHEAD : set, .per_sm = set};
    k->slices = set == 2 && most > least ? most : least;
    k->warps = warps_that_fit(s, *k, set == 1 ? k->slices : set == 2 ? QN_KNOB_WARPS : 7);
}

static void attention_set(const qn_site *s, int set, qn_knobs *k)
{
    static const qn_knobs sets[3] = {{.ahead = 1, .split = 1, .alone = 1 << 20, .least = 1},
                                     {.ahead = QN_KNOB_AHEAD, .split = 64, .alone = 1, .least = 1},
                                     {.ahead = 3, .split = 5, .alone = 2, .least = 2}};
    static const int warps[3] = {1, QN_KNOB_WARPS, 3};
    *k = sets[set - 1];
    while (k->ahead > 1 && warps_that_fit(s, *k, warps[set - 1]) == 0) {
        k->ahead--;
    }
    k->warps = warps_that_fit(s, *k, warps[set - 1]);
}

bool emu_knob_set(void *user, const qn_site *s, qn_knobs *k)
{
    int set = *(const int *)user;
    if (set == 0) {
        return false;
    }
    if (s->kind == QN_KNOBS_MMA || s->kind == QN_KNOBS_ROWS) {
        attention_set(s, set, k);
    } else {
        product_set(s, set, k);
    }
    return k->warps > 0;
}

typedef struct picker {
    emu_case_fn fn;
    void *user;
    int n, every;
} picker;

static int pick(void *user, emu_case *c)
{
    picker *p = user;
    return p->n++ % p->every == 0 ? p->fn(p->user, c) : 0;
}

int emu_knob_cases(emu_case_fn fn, void *user)
{
    static const struct {
        const char *op;
        int every;
    } ops[] = {{"linear", 16}, {"glu", 16}, {"rope_kv", 24}, {"attention", 12}};
    int rc = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && rc == 0; i++) {
        picker p = {fn, user, 0, ops[i].every};
        rc = emu_cases(ops[i].op, pick, &p);
    }
    return rc;
}
