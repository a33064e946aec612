#include "codegen/backend.h"

int qn_kv_rows(const qn_kv_cache *kv, const qn_exec_opts *opts)
{
    int64_t ring = (int64_t)kv->window + opts->n_ubatch;
    return kv->window > 0 && ring < opts->n_ctx ? (int)ring : opts->n_ctx;
}

int qn_buf_rows(const qn_buf *b, const qn_exec_opts *opts)
{
    int outputs = opts->n_outputs > 0 && opts->n_outputs < opts->n_ubatch ? opts->n_outputs : opts->n_ubatch;
    return b->rows == QN_ROWS_OUTPUTS ? outputs : opts->n_ubatch;
}

int qn_kv_check_truncate(const qn_exec *e, int length, qn_err *err)
{
    for (int i = 0; i < e->plans->n_kv; i++) {
        const qn_kv_cache *kv = &e->plans->kv[i];
        int rows = qn_kv_rows(kv, &e->opts);
        int oldest = e->length - rows, needed = length - kv->window + 1;
        if (kv->window > 0 && length > 0 && oldest > (needed > 0 ? needed : 0)) {
            return qn_fail(err, "layer %d keeps the last %d positions only: cannot go back from %d to %d",
                           kv->layer, rows, e->length, length);
        }
    }
    return 0;
}
