#include "model/dtype.h"

#include <stddef.h>

#include "model/dtype_decode.h"

/* Numbers, names and geometry: enum ggml_type and type_traits of ggml; 4, 5, 31-33 and 36-38 were withdrawn.
 * tests/unit/test_dtype.c holds the block sizes of every row against the goldens' table. */
static const qn_dtype rows[QN_TYPE_COUNT] = {
    [QN_F32] = {"f32", 1, 4, qn_decode_f32},
    [QN_F16] = {"f16", 1, 2, qn_decode_f16},
    [QN_BF16] = {"bf16", 1, 2, qn_decode_bf16},
    [QN_Q4_0] = {"q4_0", 32, 18, qn_decode_q4_0},
    [QN_Q4_1] = {"q4_1", 32, 20, qn_decode_q4_1},
    [QN_Q5_0] = {"q5_0", 32, 22, qn_decode_q5_0},
    [QN_Q5_1] = {"q5_1", 32, 24, qn_decode_q5_1},
    [QN_Q8_0] = {"q8_0", 32, 34, qn_decode_q8_0},
    [QN_Q2_K] = {"q2_K", 256, 84, qn_decode_q2_K},
    [QN_Q3_K] = {"q3_K", 256, 110, qn_decode_q3_K},
    [QN_Q4_K] = {"q4_K", 256, 144, qn_decode_q4_K},
    [QN_Q5_K] = {"q5_K", 256, 176, qn_decode_q5_K},
    [QN_Q6_K] = {"q6_K", 256, 210, qn_decode_q6_K},
    [QN_IQ4_NL] = {"iq4_nl", 32, 18, qn_decode_iq4_nl},
    [QN_IQ4_XS] = {"iq4_xs", 256, 136, qn_decode_iq4_xs},
    /* Known by size and name only. */
    [QN_Q8_1] = {"q8_1", 32, 36, NULL},
    [QN_Q8_K] = {"q8_K", 256, 292, NULL},
    [16] = {"iq2_xxs", 256, 66, NULL},
    [17] = {"iq2_xs", 256, 74, NULL},
    [18] = {"iq3_xxs", 256, 98, NULL},
    [19] = {"iq1_s", 256, 50, NULL},
    [21] = {"iq3_s", 256, 110, NULL},
    [22] = {"iq2_s", 256, 82, NULL},
    [24] = {"i8", 1, 1, NULL},
    [25] = {"i16", 1, 2, NULL},
    [26] = {"i32", 1, 4, NULL},
    [27] = {"i64", 1, 8, NULL},
    [28] = {"f64", 1, 8, NULL},
    [29] = {"iq1_m", 256, 56, NULL},
    [34] = {"tq1_0", 256, 54, NULL},
    [35] = {"tq2_0", 256, 66, NULL},
    [39] = {"mxfp4", 32, 17, NULL},
    [40] = {"nvfp4", 64, 36, NULL},
    [41] = {"q1_0", 128, 18, NULL},
    [42] = {"q2_0", 64, 18, NULL},
};

const qn_dtype *qn_dtype_get(uint32_t type)
{
    return type < QN_TYPE_COUNT && rows[type].name ? &rows[type] : NULL;
}

/* Kept equal to the rows that have a decode by test_dtype.c. */
const char *qn_dtype_supported(void)
{
    return "f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl, iq4_xs, bf16";
}
