/* lower_cols.c: products of up to 8 rows with each weight read once: the rows are columns of int8 tensor core
 * products. */
#include "cuda/lower_internal.h"

enum { COLS = 8, WARPS = 16 };

bool qn_lower_in_columns(const lowerer *l)
{
    return l->mode == LOWER_FEW && l->opts->variant >= QN_VARIANT_SM80 && !l->opts->exec->rows_apart;
}

/* Outputs of a block times warps that share a tile, at most. */
enum { MAX_SUMS = 48 * 1024 / (4 * COLS) - 1, LAP = 16 };

static int chunk_of(int slices, int blocks, int n_out, int grain, int sets)
{
    int most = MAX_SUMS / (slices * sets) / grain * grain;
    int chunk = (int)qn_ceil_div(qn_ceil_div(n_out, grain), blocks) * grain;
    return chunk > most ? most : chunk;
}

/* Shipped: as many warps share a tile of 16 rows as make the fewest turns on a nominal card: the sums' order
 * hangs on them, so they are the same on every card. */
static int shipped_slices(int n_in, int n_out, int grain, int sets)
{
    int laps = (n_in / 32 + LAP - 1) / LAP, slices = 1;
    int64_t least = INT64_MAX;
    for (int s = 1; s <= WARPS && (s == 1 || s <= laps); s *= 2) {
        int chunk = chunk_of(s, QN_LOWER_NOMINAL, n_out, grain, sets);
        if (chunk < grain) {
            break;
        }
        int64_t turns = (int64_t)qn_ceil_div(qn_ceil_div(n_out, chunk), QN_LOWER_NOMINAL) *
                        qn_ceil_div(qn_ceil_div(chunk, 16), WARPS / s) * qn_ceil_div(laps, s);
        if (turns < least) {
            least = turns;
            slices = s;
        }
    }
    return slices;
}

int qn_lower_columns(lowerer *l, launch *k, const char *kernel, int n_in, int n_out, int grain, int sets)
{
    const qn_knobs shipped = {
        .warps = WARPS, .slices = shipped_slices(n_in, n_out, grain, sets), .per_sm = 1};
    const qn_knob_room room = {
        .parts = (n_in / 32 + LAP - 1) / LAP, .rows = n_out, .sums = MAX_SUMS / (sets * grain)};
    const qn_knobs *c = qn_lower_knobs(l, k, QN_KNOBS_COLS, kernel, NULL, &room, &shipped);
    if (!c) {
        return -1;
    }
    int sms = l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1;
    int chunk = chunk_of(c->slices, sms * c->per_sm, n_out, grain, sets);
    k->kernel = kernel;
    k->path = "mma 8-bit";
    k->consts[0].value = c->warps; /* the others are as for a row by itself */
    k->consts[1].value = c->slices;
    k->consts[2].value = c->per_sm;
    k->grid[0] = qn_ceil_div(n_out, chunk);
    k->threads = 32 * (uint32_t)c->warps;
    k->shared = 4 * COLS * (uint32_t)(sets * chunk * c->slices + 1);
    k->rows_per = COLS;
    k->args[2] = (uint64_t)chunk;
    return 0;
}
