#include "cuda/knobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    Q8 = 1 << QN_KNOBS_Q8,
    HALF = 1 << QN_KNOBS_HALF,
    COLS = 1 << QN_KNOBS_COLS,
    MMA = 1 << QN_KNOBS_MMA,
    ROWS = 1 << QN_KNOBS_ROWS,
    ALL = (1 << QN_KNOBS_KINDS) - 1,
    MOST_SPLIT = 64,
    MOST_TILES = 1 << 20
};

/* The knobs by name, with their bounds and the kinds that have them. */
static const struct {
    const char *name;
    size_t at;
    int least, most;
    int kinds;
} rows[] = {
    {"warps", offsetof(qn_knobs, warps), 1, QN_KNOB_WARPS, ALL},
    {"slices", offsetof(qn_knobs, slices), 1, QN_KNOB_WARPS, Q8 | HALF | COLS},
    {"ahead", offsetof(qn_knobs, ahead), 1, QN_KNOB_AHEAD, Q8 | HALF | MMA},
    {"blocks", offsetof(qn_knobs, per_sm), 1, 4, Q8 | HALF | COLS},
    {"split", offsetof(qn_knobs, split), 1, MOST_SPLIT, MMA | ROWS},
    {"alone", offsetof(qn_knobs, alone), 1, MOST_TILES, MMA},
    {"least", offsetof(qn_knobs, least), 1, MOST_TILES, MMA},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int *value(qn_knobs *k, int row)
{
    return (int *)(void *)((char *)k + rows[row].at);
}

static int get(const qn_knobs *k, int row)
{
    return *(const int *)(const void *)((const char *)k + rows[row].at);
}

static bool has(qn_knob_kind kind, int row)
{
    return (rows[row].kinds >> kind & 1) != 0;
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

bool qn_knobs_fit(qn_knob_kind kind, const qn_knob_room *room, const qn_knobs *k)
{
    for (int i = 0; i < N_ROWS; i++) {
        if (has(kind, i) && (get(k, i) < rows[i].least || get(k, i) > rows[i].most)) {
            return false;
        }
    }
    size_t warps = (size_t)k->warps;
    switch (kind) {
    case QN_KNOBS_Q8:
        /* Every warp has a slice of its own; a block's threads are a multiple of what shares a row. */
        return k->warps % k->slices == 0 && k->slices <= room->parts &&
               ceil_div(room->parts, k->slices) <= room->most_kept && k->warps * k->per_sm <= 32;
    case QN_KNOBS_HALF:
        return k->warps % k->slices == 0 && k->slices <= room->parts && k->slices <= room->sums &&
               k->warps * k->per_sm <= 32;
    case QN_KNOBS_COLS: {
        size_t block = room->fixed_bytes + warps * room->warp_bytes + (size_t)k->slices * room->merge_bytes;
        return k->warps % k->slices == 0 && k->slices <= room->parts && k->warps * k->per_sm <= 32 &&
               (size_t)k->per_sm * block <= room->limit;
    }
    case QN_KNOBS_MMA:
    case QN_KNOBS_ROWS: {
        size_t ring = room->fixed_bytes + warps * (room->warp_bytes + (size_t)k->ahead * room->tile_bytes);
        size_t merge = warps * room->merge_bytes + 16;
        return ring <= room->limit && merge <= room->limit;
    }
    default:
        return true;
    }
}

bool qn_knobs_same_sums(qn_knob_kind kind, const qn_knobs *a, const qn_knobs *b)
{
    switch (kind) {
    case QN_KNOBS_Q8:
    case QN_KNOBS_HALF:
    case QN_KNOBS_COLS:
        return a->slices == b->slices;
    case QN_KNOBS_MMA: /* a warp's tiles, and what parts there are */
        return a->warps == b->warps && a->split == b->split && a->alone == b->alone && a->least == b->least;
    case QN_KNOBS_ROWS:
        return a->warps == b->warps && a->split == b->split;
    default:
        return true;
    }
}

static bool same(qn_knob_kind kind, const qn_knobs *a, const qn_knobs *b)
{
    for (int i = 0; i < N_ROWS; i++) {
        if (has(kind, i) && get(a, i) != get(b, i)) {
            return false;
        }
    }
    return true;
}

typedef struct candidates {
    const qn_site *site;
    qn_knobs *out;
    int n;
} candidates;

static void add(candidates *c, qn_knobs k)
{
    const qn_site *s = c->site;
    bool known = same(s->kind, &k, &s->shipped) || !qn_knobs_fit(s->kind, &s->room, &k);
    for (int i = 0; i < c->n && !known; i++) {
        known = same(s->kind, &k, &c->out[i]);
    }
    if (!known && c->n < QN_KNOB_CANDIDATES) {
        c->out[c->n++] = k;
    }
}

/* Warps of a block, what they have under way, blocks a multiprocessor: from as many bytes in flight as
 * shipped in fewer warps to twice as many. Then rows shared by other numbers of warps. */
static void product_candidates(candidates *c)
{
    static const int shapes[][3] = {{8, 4, 1},  {8, 2, 2}, {16, 1, 1}, {12, 2, 1}, {8, 2, 1},
                                    {16, 3, 1}, {8, 4, 2}, {8, 1, 2},  {16, 2, 2}, {4, 4, 2}};
    const qn_knobs base = c->site->shipped;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        qn_knobs k = base;
        int share = base.slices > 0 ? base.slices : 1; /* a multiple of what shares a row */
        k.warps = shapes[i][0] < share ? share : shapes[i][0] / share * share;
        k.ahead = shapes[i][1];
        k.per_sm = shapes[i][2];
        add(c, k);
        if (base.slices > 0 && i % 4 == 1) { /* not at the end, where a short budget does not come */
            k = base;
            k.slices = i == 1 ? 2 * base.slices : (base.slices + 1) / 2;
            k.warps = base.warps / k.slices * k.slices;
            add(c, k);
        }
    }
}

static void attention_candidates(candidates *c)
{
    /* warps and tiles under way; then factors of two of the number of parts, and of the limits of a part */
    static const int shapes[][2] = {{4, 4}, {8, 3}, {4, 3}, {8, 1}, {4, 2}, {12, 1}};
    static const struct {
        int split, alone, least;
    } factors[] = {{-1, 0, 0}, {0, 0, 1}, {0, 0, -1}, {1, 0, 0}, {0, 1, 0}, {0, -1, -1}};
    const qn_knobs base = c->site->shipped;
    qn_knobs own = base;
    own.split = c->site->room.split;
    add(c, own);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        qn_knobs k = base;
        k.warps = shapes[i][0];
        k.ahead = shapes[i][1];
        add(c, k);
        k = base;
        k.split = factors[i].split > 0 ? 2 * k.split : factors[i].split < 0 ? k.split / 2 : k.split;
        k.alone = factors[i].alone > 0 ? 2 * k.alone : factors[i].alone < 0 ? k.alone / 2 : k.alone;
        k.least = factors[i].least > 0 ? 2 * k.least : factors[i].least < 0 ? k.least / 2 : k.least;
        add(c, k);
    }
}

int qn_knobs_candidates(const qn_site *s, qn_knobs out[QN_KNOB_CANDIDATES])
{
    candidates c = {.site = s, .out = out};
    if (s->kind == QN_KNOBS_MMA || s->kind == QN_KNOBS_ROWS) {
        attention_candidates(&c);
    } else {
        product_candidates(&c);
    }
    return c.n;
}

const char *qn_knobs_text(qn_knob_kind kind, const qn_knobs *k, char text[QN_KNOB_TEXT])
{
    int at = 0;
    text[0] = '\0';
    for (int i = 0; i < N_ROWS; i++) {
        if (has(kind, i)) {
            at += snprintf(text + at, QN_KNOB_TEXT - (size_t)at, "%s%s %d", at ? ", " : "", rows[i].name,
                           get(k, i));
        }
    }
    return text;
}

bool qn_knobs_read(qn_knob_kind kind, const char *text, qn_knobs *out)
{
    char again[QN_KNOB_TEXT];
    const char *at = text;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < N_ROWS; i++) {
        size_t n = strlen(rows[i].name);
        if (!has(kind, i)) {
            continue;
        }
        if (strncmp(at, rows[i].name, n) != 0) {
            return false;
        }
        char *end;
        long v = strtol(at + n, &end, 10);
        if (v < rows[i].least || v > rows[i].most) {
            return false;
        }
        *value(out, i) = (int)v;
        at = strncmp(end, ", ", 2) == 0 ? end + 2 : end;
    }
    return strcmp(qn_knobs_text(kind, out, again), text) == 0; /* nothing before, between or behind them */
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { MAX_RUNS = 64 };

/* The times in order; their number, 0 where one of them is none. */
static int in_order(const float *ms, int n, float sorted[MAX_RUNS])
{
    n = n > MAX_RUNS ? MAX_RUNS : n;
    for (int i = 0; i < n; i++) {
        if (!(ms[i] > 0)) {
            return 0;
        }
        sorted[i] = ms[i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n;
}

float qn_knobs_median(const float *ms, int n)
{
    float sorted[MAX_RUNS];
    n = in_order(ms, n, sorted);
    return n > 0 ? sorted[n / 2] : 0;
}

int qn_knobs_select(const float *ms, int n, int runs)
{
    const float margin = 0.01f;
    float base[MAX_RUNS], one[MAX_RUNS], best = 0;
    int taken = 0, m = in_order(ms, runs, base);
    if (m == 0) {
        return 0;
    }
    float spread = base[3 * m / 4] - base[m / 4];
    for (int i = 1; i < n; i++) {
        if (in_order(ms + (ptrdiff_t)i * runs, runs, one) == 0) {
            continue;
        }
        float gain = base[m / 2] - one[m / 2], own = one[3 * m / 4] - one[m / 4];
        if (gain > margin * base[m / 2] && gain > spread + own && (taken == 0 || one[m / 2] < best)) {
            best = one[m / 2];
            taken = i;
        }
    }
    return taken;
}
