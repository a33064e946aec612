/* lower_share.c: how a product of several types is shared among blocks (kernel_src/linear_q8.cu). */
#include "cuda/lower_internal.h"

/* Segments of one type that follow each other: rows, and what one costs. */
typedef struct stretch {
    int rows, cost;
} stretch;

static int rows_of_block(int64_t chunk, int cost)
{
    return chunk / cost > 1 ? (int)(chunk / cost) : 1;
}

static uint32_t blocks_for(const stretch *of, int n, int64_t chunk)
{
    uint32_t blocks = 0;
    for (int i = 0; i < n; i++) {
        blocks += qn_ceil_div(of[i].rows, rows_of_block(chunk, of[i].cost));
    }
    return blocks;
}

bool qn_lower_share(const qn_spec_linear *sp, const qn_tensor *const w[3], int places, qn_cuda_share *out)
{
    stretch of[3];
    int n = 0, step = 1;
    int64_t total = 0;
    *out = (qn_cuda_share){.cost = {1, 1, 1}};
    for (int i = 0; i < sp->n_seg; i++) {
        int64_t bytes = (int64_t)(qn_cuda_weight_bytes(w[i]) / w[i]->ne[1]);
        int cost = bytes / 16 < 1 ? 1 : bytes / 16 > INT32_MAX ? INT32_MAX : (int)(bytes / 16);
        if (i > 0 && sp->seg_dtype[i] == sp->seg_dtype[i - 1]) {
            of[n - 1].rows += sp->seg_out[i];
        } else {
            of[n++] = (stretch){sp->seg_out[i], cost};
        }
        out->cost[i] = cost;
        step = cost / 8 > step ? cost / 8 : step;
        total += (int64_t)cost * sp->seg_out[i];
    }
    if (n < 2) {
        *out = (qn_cuda_share){.cost = {1, 1, 1}};
        return false;
    }
    /* Each type's last block may be short, so that even shares may take more blocks than there are places. */
    out->chunk = (total + places - 1) / places;
    while (blocks_for(of, n, out->chunk) > (uint32_t)places && out->chunk < total) {
        out->chunk += step;
    }
    out->blocks = blocks_for(of, n, out->chunk);
    for (int i = 0; i < n; i++) {
        int most = rows_of_block(out->chunk, of[i].cost);
        out->rows = most > out->rows ? most : out->rows;
    }
    return true;
}

bool qn_lower_shares_groups(const lowerer *l, const qn_knobs *k, int n_in, int n_out, int grain)
{
    int64_t from = l->opts->share_from ? l->opts->share_from : QN_LOWER_SHARE_FROM;
    int places = QN_LOWER_NOMINAL * k->per_sm, even = (n_out + places - 1) / places;
    int whole = ((n_out + grain - 1) / grain + places - 1) / places * grain;
    even = even < QN_LOWER_LEAST_SHARED ? QN_LOWER_LEAST_SHARED : even;
    return n_out % grain == 0 && 8 * whole > 9 * even && (int64_t)n_in * n_out >= from;
}
