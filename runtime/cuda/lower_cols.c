/* lower_cols.c: products of up to 8 rows with each weight read once: the rows are columns of int8 tensor core
 * products. */
#include "cuda/lower_internal.h"

enum { COLS = 8, WARPS = 16 };

bool qn_lower_in_columns(const lowerer *l)
{
    return l->mode == LOWER_FEW && l->opts->variant >= QN_VARIANT_SM80 && !l->opts->exec->rows_apart;
}

/* Outputs of a block, warps that share a tile of 16 rows: whichever makes the fewest turns on a card of
 * NOMINAL multiprocessors. The sums' order hangs on the warps that share, so these are the same on every
 * card. */
static int shape_of(const lowerer *l, int n_in, int n_out, int grain, int sets, int *slices)
{
    enum { NOMINAL = 132, MAX_SUMS = 48 * 1024 / (4 * COLS) - 1, LAP = 16 };
    int sms = l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1;
    int laps = (n_in / 32 + LAP - 1) / LAP, tiles = (int)qn_ceil_div(n_out, grain);
    int64_t least = INT64_MAX;
    *slices = 1;
    for (int s = 1; s <= WARPS && (s == 1 || s <= laps); s *= 2) {
        int most = MAX_SUMS / (s * sets) / grain * grain, chunk = (int)qn_ceil_div(tiles, NOMINAL) * grain;
        chunk = chunk > most ? most : chunk;
        if (chunk < grain) {
            break;
        }
        int64_t turns = (int64_t)qn_ceil_div(qn_ceil_div(n_out, chunk), NOMINAL) *
                        qn_ceil_div(qn_ceil_div(chunk, 16), WARPS / s) * qn_ceil_div(laps, s);
        if (turns < least) {
            least = turns;
            *slices = s;
        }
    }
    int most = MAX_SUMS / (*slices * sets) / grain * grain, chunk = (int)qn_ceil_div(tiles, sms) * grain;
    return chunk > most ? most : chunk;
}

void qn_lower_columns(const lowerer *l, launch *k, const char *kernel, int n_in, int n_out, int grain,
                      int sets)
{
    int slices, chunk = shape_of(l, n_in, n_out, grain, sets, &slices);
    k->kernel = kernel;
    k->path = "mma 8-bit";
    k->consts[0].value = WARPS; /* the others are as for a row by itself */
    k->grid[0] = qn_ceil_div(n_out, chunk);
    k->threads = 32 * WARPS;
    k->shared = 4 * COLS * (uint32_t)(sets * chunk * slices + 1);
    k->rows_per = COLS;
    k->args[2] = (uint64_t)chunk;
    k->args[k->n_arg++] = (uint64_t)slices;
}
