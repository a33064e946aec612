// again.cuh: headers that hang on a program's constants or on its number of threads may be included once
// more, for another program of the same source (persistent_begin.cuh). No guard of its own.
#undef QN_ATTENTION_MERGE_CUH
#undef QN_ATTENTION_MMA_CUH
#undef QN_ATTENTION_ROWS_CUH
#undef QN_ATTENTION_WGMMA_CUH
#undef QN_CHUNK_CUH
#undef QN_COLUMNS_CUH
#undef QN_EPILOGUE_CUH
#undef QN_GEMV_CUH
#undef QN_GEMV_COLS_CUH
#undef QN_GEMV_HALF_CUH
#undef QN_GEMV_Q8_CUH
#undef QN_HALF_ROW_CUH
#undef QN_KV_Q8_CUH
#undef QN_NORM_IN_CUH
#undef QN_QUANTISE_CUH
#undef QN_REDUCE_CUH
#undef QN_ROPE_CUH
#undef QN_ROW_SUM_CUH
#undef QN_SAMPLE_CUH
