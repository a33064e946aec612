/* lower_cols.c: products of up to 8 rows with each weight read once: the rows are columns of int8 tensor core
 * products. */
#include "cuda/lower_internal.h"

enum { COLS = 8, WARPS = 16, MAX_SUMS = 1535 };

bool qn_lower_in_columns(const lowerer *l)
{
    return l->mode == LOWER_FEW && l->opts->variant >= QN_VARIANT_SM80 && !l->opts->exec->rows_apart;
}

/* As gemv_cols.cuh has them. LAP: groups of a warp's piece of a row. */
enum { LAP = 16, SPAN = 128, SUM_BYTES = 4 * COLS, PAD = 4 };

/* Bytes of shared memory of a column's activations. */
static int column_bytes(int places, bool fine)
{
    int none = (2 * 16 * places + places * (fine ? 16 : 8) + 15) / 16 * 16;
    return (none + 16 + 63) / 128 * 128 + 64;
}

/* A barrier for each span. */
static int barrier_bytes(int spans)
{
    return (spans + 1) / 2 * 16;
}

/* What a launch of n_in inputs takes of shared memory besides its sums: all activations, or those of `phase`
 * spans at a time. */
typedef struct room_of {
    int spans, laps, phase, places, warps, acts, limit;
} room_of;

/* In what is left, the sums of eight slices of a grain of two sets of rows fit. Not all of the memory: loads
 * under way keep lines of L1, which shares it (rows of 15,360 values: 1,355 t/s with 210 KB, 1,517 with 92).
 */
static room_of find_room(int n_in, bool fine, int variant)
{
    enum { FOR_L1 = 28 * 1024 };
    int limit = (int)qn_lower_shared_limit(variant), least = (8 * (2 * 32 + PAD) + 1) * SUM_BYTES;
    room_of r = {.spans = (int)qn_ceil_div(n_in / 32, SPAN),
                 .laps = (int)qn_ceil_div(n_in / 32, LAP),
                 .warps = variant < QN_VARIANT_SM90A ? WARPS / 2 : WARPS,
                 .limit = limit};
    int spare = variant < QN_VARIANT_SM90A ? 0 : FOR_L1;
    r.phase = r.spans;
    r.places = (int)qn_lower_places((uint64_t)n_in / 32);
    while (COLS * column_bytes(r.places, fine) > limit - spare - least - barrier_bytes(r.spans) &&
           r.phase > 1) {
        r.places = --r.phase * SPAN;
    }
    r.acts = COLS * column_bytes(r.places, fine) + barrier_bytes(r.spans);
    return r;
}

/* Outputs of a block times warps that share a tile, at most. */
static int sums_of(const room_of *r, int per_sm)
{
    int sums = (r->limit / per_sm - r->acts) / SUM_BYTES - 1;
    return sums > MAX_SUMS ? MAX_SUMS : sums;
}

static int chunk_of(int sums, int slices, int blocks, int n_out, int grain, int sets)
{
    int most = (sums / slices - PAD) / sets / grain * grain;
    int chunk = (int)qn_ceil_div(qn_ceil_div(n_out, grain), blocks) * grain;
    return chunk > most ? most : chunk;
}

/* Laps that warps may share: those of a phase. */
static int shared_laps(const room_of *r)
{
    return r->phase < r->spans ? r->phase * (SPAN / LAP) : r->laps;
}

/* Shipped: as many warps share a tile of 16 rows as make the fewest turns on a nominal card: the sums' order
 * hangs on them, so they are the same on every card. */
static int shipped_slices(const room_of *r, int n_out, int grain, int sets)
{
    int slices = 1;
    int64_t least = INT64_MAX;
    for (int s = 1; s <= r->warps && (s == 1 || s <= shared_laps(r)); s *= 2) {
        int chunk = chunk_of(sums_of(r, 1), s, QN_LOWER_NOMINAL, n_out, grain, sets);
        if (chunk < grain) {
            break;
        }
        int64_t turns = (int64_t)qn_ceil_div(qn_ceil_div(n_out, chunk), QN_LOWER_NOMINAL) *
                        qn_ceil_div(qn_ceil_div(sets * chunk, 16), r->warps / s) * qn_ceil_div(r->laps, s);
        if (turns < least) {
            least = turns;
            slices = s;
        }
    }
    return slices;
}

/* Tiles of 16 rows that a warp multiplies with the activations that it has read: two, by half as many warps
 * with twice the registers, where that takes no more turns. rows: of a block. */
static int tiles_of_warp(const qn_knobs *c, int rows)
{
    if (c->warps != WARPS || c->per_sm != 1 || c->warps % (2 * c->slices) != 0) {
        return 1;
    }
    uint32_t one = qn_ceil_div(qn_ceil_div(rows, 16), c->warps / c->slices);
    return qn_ceil_div(qn_ceil_div(rows, 32), c->warps / 2 / c->slices) <= one ? 2 : 1;
}

/* A program each for up to 2, 4 and 8 columns: what few do not have is neither read nor multiplied. Otherwise
 * they are alike, and so are their sums. tiles: of a warp with all 8 columns; whole: blocks have
 * whole ones; column, barriers: bytes of shared memory; sums: of each column. */
static int launch_by_rows(lowerer *l, launch *k, int tiles, bool whole, int column, int barriers, int sums)
{
    const int least = l->min_rows, most = l->max_rows, n_const = k->n_const, warps = k->consts[0].value;
    int rc = 0;
    for (int cols = 2; cols <= COLS && rc == 0; cols *= 2) {
        if ((most > 0 && most <= cols / 2 && cols > 2) || least > cols) {
            continue;
        }
        int subs = cols == COLS ? tiles : 1;
        l->min_rows = cols > 2 && least <= cols / 2 ? cols / 2 + 1 : least;
        l->max_rows = most > 0 && most < cols ? most : cols;
        k->consts[0].value = warps / subs;
        k->consts[n_const] = (qn_source_const){.name = "cols", .value = cols};
        k->consts[n_const + 1] = (qn_source_const){.name = "subs", .value = subs};
        k->consts[n_const + 2] = (qn_source_const){.name = "whole_tiles", .value = subs == 1 || whole};
        k->n_const = n_const + 3;
        k->threads = 32 * (uint32_t)(warps / subs);
        k->shared = (uint32_t)(cols * (column + 4 * sums) + barriers);
        rc = qn_lower_launch(l, k);
    }
    l->min_rows = least;
    l->max_rows = most;
    return rc;
}

/* Launches k, of `sets` sets of n_out rows, whose blocks have multiples of `grain` outputs. */
int qn_lower_columns(lowerer *l, launch *k, const char *kernel, int n_in, int n_out, int grain, int sets)
{
    const bool fine = qn_cuda_fine(l->opts->exec, n_in);
    const room_of r = find_room(n_in, fine, l->opts->variant);
    const qn_knobs shipped = {
        .warps = r.warps, .slices = shipped_slices(&r, n_out, grain, sets), .per_sm = 1};
    const qn_knob_room room = {.parts = shared_laps(&r),
                               .rows = n_out,
                               .fixed_bytes = (size_t)r.acts + SUM_BYTES,
                               .merge_bytes = SUM_BYTES * (size_t)(sets * grain + PAD),
                               .limit = (size_t)r.limit};
    const qn_knobs *c = qn_lower_knobs(l, k, QN_KNOBS_COLS, kernel, NULL, &room, &shipped);
    if (!c) {
        return -1;
    }
    int sms = l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1;
    int room_sums = sums_of(&r, c->per_sm);
    int nominal = chunk_of(room_sums, c->slices, QN_LOWER_NOMINAL * c->per_sm, n_out, grain, sets);
    int tiles = tiles_of_warp(c, sets * nominal);
    bool whole = nominal % (16 * tiles) == 0; /* then on every card: programs do not hang on its size */
    int chunk = chunk_of(room_sums, c->slices, sms * c->per_sm, n_out,
                         whole && grain < 16 * tiles ? 16 * tiles : grain, sets);
    k->kernel = kernel;
    k->path = "mma 8-bit";
    k->consts[0].value = c->warps; /* the others are as for a row by itself */
    k->consts[1].value = c->slices;
    k->consts[2].value = c->per_sm;
    k->consts[k->n_const++] = (qn_source_const){.name = "phase", .value = r.phase};
    k->grid[0] = qn_ceil_div(n_out, chunk);
    k->rows_per = COLS;
    k->args[2] = (uint64_t)chunk;
    return launch_by_rows(l, k, tiles, whole, column_bytes(r.places, fine), barrier_bytes(r.spans),
                          c->slices * (sets * chunk + PAD) + 1);
}
