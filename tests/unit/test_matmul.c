// rooms: room_cpu
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <sys/mman.h>

#include "base/half.h"
#include "cpu/matmul.h"
#include "cpu/matmul_kernels.h"

/* Where a block's f16 scale and minimum stand, so that random bytes make sane weights. */
static const struct kind {
    qn_type type;
    int scale, min; /* byte offsets in a block; -1: none */
} kinds[] = {
    {QN_F32, -1, -1}, {QN_F16, -1, -1}, {QN_BF16, -1, -1},  {QN_Q4_0, 0, -1},   {QN_Q4_1, 0, 2},
    {QN_Q5_0, 0, -1}, {QN_Q5_1, 0, 2},  {QN_Q8_0, 0, -1},   {QN_Q2_K, 80, 82},  {QN_Q3_K, 108, -1},
    {QN_Q4_K, 0, 2},  {QN_Q5_K, 0, 2},  {QN_Q6_K, 208, -1}, {QN_IQ4_NL, 0, -1}, {QN_IQ4_XS, 0, -1},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, MAX_TOKENS = 33, MAX_IN = 1536, MAX_OUT = 48, GUARD = 3 };

static uint64_t seed = 1;

static uint32_t random32(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) ^ (uint32_t)(seed >> 13);
}

static float random_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (float)(random32() & 0xffff) / 65536.0f;
    }
    return sum - 6.0f;
}

static void put16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static void fill_blocks(const struct kind *k, uint8_t *w, int64_t n)
{
    const qn_dtype *t = qn_dtype_get(k->type);
    if (t->block_values == 1) {
        for (int64_t i = 0; i < n; i++) {
            float f = random_normal();
            if (k->type == QN_F32) {
                memcpy(w + 4 * i, &f, sizeof f);
            } else {
                put16(w + 2 * i, k->type == QN_F16 ? qn_f32_to_f16(f) : qn_f32_to_bf16(f));
            }
        }
        return;
    }
    for (int64_t b = 0; b < n / t->block_values; b++, w += t->block_bytes) {
        for (int i = 0; i < t->block_bytes; i++) {
            w[i] = (uint8_t)(random32() >> 7);
        }
        put16(w + k->scale, qn_f32_to_f16(0.01f * random_normal()));
        if (k->min >= 0) {
            put16(w + k->min, qn_f32_to_f16(0.05f * random_normal()));
        }
    }
}

/* n bytes that end where an unreadable page begins. */
struct fenced {
    uint8_t *map, *data;
    size_t map_bytes;
};

static struct fenced fenced_new(size_t n)
{
    struct fenced f;
    size_t page = 4096, body = (n + page - 1) / page * page;
    f.map_bytes = body + page;
    f.map = mmap(NULL, f.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f.map != MAP_FAILED);
    assert_int_equal(mprotect(f.map + body, page, PROT_NONE), 0);
    f.data = f.map + body - n;
    return f;
}

static size_t row_bytes(qn_type type, int n_in)
{
    const qn_dtype *t = qn_dtype_get(type);
    return (size_t)(n_in / t->block_values) * t->block_bytes;
}

/* Error energy over that of the values, or where their terms happen to cancel, over that of the terms. */
static double nmse(const float *want, const float *got, const float *power, int n)
{
    double num = 0, den = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        num += d * d;
        den += fmax((double)want[i] * want[i], power[i]);
    }
    return den > 0 ? num / den : num;
}

/* An engine with everything it needs. */
struct rig {
    qn_pool *pool;
    qn_mm *mm;
    qn_act act;
};

static struct rig rig_new(qn_isa isa, bool exact, int threads)
{
    struct rig r;
    qn_err err;
    assert_int_equal(qn_pool_new(&r.pool, threads, &err), 0);
    assert_int_equal(qn_mm_new(&r.mm, r.pool, isa, exact, MAX_IN, &err), 0);
    assert_int_equal(qn_act_init(&r.act, exact, MAX_IN, MAX_TOKENS, &err), 0);
    return r;
}

static void rig_free(struct rig *r)
{
    qn_act_free(&r->act);
    qn_mm_free(r->mm);
    qn_pool_free(r->pool);
}

/* y [n_tokens][n_out] with a stride of n_out + GUARD whose gap must stay as it was. */
static void product(struct rig *r, qn_type type, const void *w, int n_in, int n_out, const float *x,
                    int n_tokens, float *y)
{
    int stride = n_out + GUARD;
    for (int i = 0; i < n_tokens * stride; i++) {
        y[i] = -12345.0f;
    }
    qn_act_set(&r->act, x, n_in, n_in, n_tokens);
    qn_product p = {type, w, n_out, y, stride};
    qn_mm_run(r->mm, &r->act, &p, 1);
    for (int t = 0; t < n_tokens; t++) {
        for (int i = 0; i < GUARD; i++) {
            assert_true(y[t * stride + n_out + i] == -12345.0f);
        }
        memmove(y + t * n_out, y + t * stride, sizeof *y * (size_t)n_out);
    }
}

/* Double-precision product with x as the fast arithmetic sees it (8-bit where the weight is quantised).
 * power: sums of the terms' squares. */
static void reference(const struct rig *r, qn_type type, bool exact, const uint8_t *w, int n_in, int n_out,
                      const float *x, int n_tokens, float *y, float *power)
{
    const qn_dtype *t = qn_dtype_get(type);
    float row[MAX_IN];
    for (int o = 0; o < n_out; o++) {
        t->decode(w + (size_t)o * row_bytes(type, n_in), row, n_in);
        for (int s = 0; s < n_tokens; s++) {
            double sum = 0, squares = 0;
            qn_q8_row q = {0};
            bool rounded = !exact && t->block_values > 1;
            if (rounded) {
                q = qn_q8_row_at(&r->act, s);
            }
            for (int k = 0; k < n_in; k++) {
                double v = rounded ? (double)q.d[k / 16] * q.q[k] : (double)x[s * n_in + k];
                sum += v * row[k];
                squares += v * row[k] * v * row[k];
            }
            y[s * n_out + o] = (float)sum;
            power[s * n_out + o] = (float)squares;
        }
    }
}

static float x_rows[MAX_TOKENS * MAX_IN];
static float want[MAX_TOKENS * MAX_OUT], want_power[MAX_TOKENS * MAX_OUT],
    got[MAX_TOKENS * (MAX_OUT + GUARD)], other[MAX_TOKENS * (MAX_OUT + GUARD)];
static const int token_counts[] = {1, 2, 3, 4, 5, 8, 17, 33};
static const int out_counts[] = {1, 5, 8, 16, 23, 48};

static int shapes(qn_type type, int out[5])
{
    static const int floats[] = {1, 7, 32, 100, 576}, small[] = {32, 96, 576, 640, 1056},
                     large[] = {256, 768, 1536};
    int values = qn_dtype_get(type)->block_values;
    if (values == 256) {
        memcpy(out, large, sizeof large);
        return 3;
    }
    memcpy(out, values == 32 ? small : floats, sizeof floats);
    return 5;
}

static void random_x(int n)
{
    for (int i = 0; i < n; i++) {
        x_rows[i] = random_normal() * (i % 97 == 0 ? 8.0f : 1.0f);
    }
}

/* Calls check for every weight type and a set of shapes that shares out token and row counts. */
static void each_shape(void (*check)(const struct kind *k, const uint8_t *w, int n_in, int n_out,
                                     int n_tokens))
{
    for (int i = 0; i < N_KINDS; i++) {
        int ins[5], n = shapes(kinds[i].type, ins);
        for (int j = 0; j < n; j++) {
            for (size_t c = 0; c < sizeof token_counts / sizeof *token_counts; c++) {
                int n_out = out_counts[(c + (size_t)j) % 6];
                struct fenced f = fenced_new(row_bytes(kinds[i].type, ins[j]) * (size_t)n_out);
                fill_blocks(&kinds[i], f.data, (int64_t)ins[j] * n_out);
                random_x(token_counts[c] * ins[j]);
                check(&kinds[i], f.data, ins[j], n_out, token_counts[c]);
                munmap(f.map, f.map_bytes);
            }
        }
    }
}

static struct rig fast[QN_ISA_COUNT], exact[QN_ISA_COUNT];

static void check_fast(const struct kind *k, const uint8_t *w, int n_in, int n_out, int n_tokens)
{
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        if (!qn_isa_usable((qn_isa)i)) {
            continue;
        }
        product(&fast[i], k->type, w, n_in, n_out, x_rows, n_tokens, got);
        reference(&fast[i], k->type, false, w, n_in, n_out, x_rows, n_tokens, want, want_power);
        double e = nmse(want, got, want_power, n_out * n_tokens);
        if (i == QN_ISA_PORTABLE) {
            memcpy(other, got, sizeof other);
        }
        double between = nmse(other, got, want_power, n_out * n_tokens);
        if (!(e < 1e-12) || !(between < 1e-12)) {
            fail_msg("%s %s: n_in %d n_out %d tokens %d: NMSE %g, to portable %g",
                     qn_dtype_get(k->type)->name, qn_isa_name((qn_isa)i), n_in, n_out, n_tokens, e, between);
        }
    }
}

static void fast_matches_double_precision(void **state)
{
    (void)state;
    each_shape(check_fast);
}

static void check_exact(const struct kind *k, const uint8_t *w, int n_in, int n_out, int n_tokens)
{
    int n = n_out * n_tokens;
    product(&exact[0], k->type, w, n_in, n_out, x_rows, n_tokens, other);
    reference(&exact[0], k->type, true, w, n_in, n_out, x_rows, n_tokens, want, want_power);
    double e = nmse(want, other, want_power, n);
    if (!(e < 1e-12)) {
        fail_msg("%s: n_in %d n_out %d tokens %d: NMSE %g", qn_dtype_get(k->type)->name, n_in, n_out,
                 n_tokens, e);
    }
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        if (!qn_isa_usable((qn_isa)i)) {
            continue;
        }
        product(&exact[i], k->type, w, n_in, n_out, x_rows, n_tokens, got);
        assert_memory_equal(got, other, sizeof(float) * (size_t)n);
        for (int t = 0; t < n_tokens; t++) { /* alone as in the batch */
            product(&exact[i], k->type, w, n_in, n_out, x_rows + t * n_in, 1, got);
            assert_memory_equal(got, other + t * n_out, sizeof(float) * (size_t)n_out);
        }
    }
}

static void exact_gives_the_same_bits_everywhere(void **state)
{
    (void)state;
    each_shape(check_exact);
}

/* Largest codes against largest activations: a 16-bit sum that saturates would show. */
static void extreme_codes_do_not_saturate(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0xff, 0x00, 0x80, 0x7f};
    for (int i = 3; i < N_KINDS; i++) {
        const qn_dtype *t = qn_dtype_get(kinds[i].type);
        for (size_t v = 0; v < 4 * 3; v++) {
            uint8_t w[2 * 512];
            int n_in = 256;
            size_t bytes_in = row_bytes(kinds[i].type, n_in);
            memset(w, bytes[v % 4], sizeof w);
            for (size_t b = 0; b < 2 * bytes_in; b += t->block_bytes) {
                put16(w + b + kinds[i].scale, qn_f32_to_f16(0.5f));
                if (kinds[i].min >= 0) {
                    put16(w + b + kinds[i].min, qn_f32_to_f16(0.25f));
                }
            }
            for (int k = 0; k < 8 * n_in; k++) {
                x_rows[k] = v / 4 == 0 ? 3.0f : v / 4 == 1 ? -3.0f : k % 2 ? 3.0f : -3.0f;
            }
            check_fast(&kinds[i], w, n_in, 2, 1);
            check_fast(&kinds[i], w, n_in, 2, 8);
        }
    }
}

static void eight_bit_rows_are_the_same_on_every_isa(void **state)
{
    (void)state;
    uint8_t w[34 * 18] = {0};
    float y[8];
    random_x(8 * 576);
    for (int i = 0; i < 32; i++) {
        x_rows[64 + i] = 0.0f;                                        /* a group of zeros */
        x_rows[576 + i] = i % 2 ? 1e-38f : -2e-39f;                   /* too small to divide by */
        x_rows[2 * 576 + i] = i == 5 ? -127.0f : (float)i * 0.5f - 8; /* ties */
    }
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        if (qn_isa_usable((qn_isa)i)) {
            product(&fast[i], QN_Q8_0, w, 576, 1, x_rows, 1, y);
            qn_act_set(&fast[i].act, x_rows, 576, 576, 8);
            qn_product p = {QN_Q8_0, w, 1, y, 1};
            qn_mm_run(fast[i].mm, &fast[i].act, &p, 1);
            for (int t = 0; t < 8; t++) {
                qn_q8_row a = qn_q8_row_at(&fast[0].act, t), b = qn_q8_row_at(&fast[i].act, t);
                assert_memory_equal(a.q, b.q, 576);
                assert_memory_equal(a.d, b.d, 4 * 36);
                assert_memory_equal(a.sum, b.sum, 4 * 18);
                assert_memory_equal(a.sum2, b.sum2, 4 * 36);
                assert_memory_equal(a.bias, b.bias, 4 * 36);
            }
        }
    }
    qn_q8_row tie = qn_q8_row_at(&fast[0].act, 2);
    assert_int_equal(tie.q[5], -127);
    assert_int_equal(tie.q[1], -8); /* -7.5 to even */
    assert_int_equal(tie.q[3], -6); /* -6.5 to even */
    for (int t = 0; t < 8; t++) {
        qn_q8_row r = qn_q8_row_at(&fast[0].act, t);
        for (int k = 0; k < 576; k++) {
            float d = r.d[k / 16], top = 0; /* a group is 16 values: what lies beside it does not count */
            for (int i = k / 16 * 16; i < k / 16 * 16 + 16; i++) {
                top = fmaxf(top, fabsf(x_rows[t * 576 + i]));
            }
            assert_true(fabsf(d * r.q[k] - x_rows[t * 576 + k]) <= 0.5001f * top / 127.0f + 1e-30f);
        }
    }
}

static void not_a_number_stays_one(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < N_KINDS; k++) {
        int n_in = 256;
        uint8_t w[5 * 1024];
        fill_blocks(&kinds[k], w, 5 * n_in);
        for (int i = 0; i < QN_ISA_COUNT * 2; i++) {
            struct rig *r = i % 2 ? &exact[i / 2] : &fast[i / 2];
            for (int v = 0; v < 3 && qn_isa_usable((qn_isa)(i / 2)); v++) {
                random_x(9 * n_in);
                x_rows[3 * n_in + 77] = bad[v];
                product(r, kinds[k].type, w, n_in, 5, x_rows, 9, got);
                for (int j = 0; j < 9 * 5; j++) {
                    assert_true(isfinite(got[j]) ? j / 5 != 3 : j / 5 == 3);
                }
            }
        }
    }
}

/* Several weights of different types share one input and one job. */
static void products_share_an_input(void **state)
{
    (void)state;
    enum { N_IN = 768, TOKENS = 7 };
    static const int pick[] = {9, 1, 4, 7, 12}, outs[] = {19, 3, 48, 16, 1};
    random_x(TOKENS * N_IN);
    for (int i = 0; i < QN_ISA_COUNT * 2; i++) {
        if (!qn_isa_usable((qn_isa)(i / 2))) {
            continue;
        }
        struct rig *r = i % 2 ? &exact[i / 2] : &fast[i / 2];
        uint8_t *w[5];
        float y[TOKENS][100];
        qn_product p[5];
        int col = 0;
        for (int j = 0; j < 5; j++) {
            const struct kind *k = &kinds[pick[j]];
            w[j] = malloc(row_bytes(k->type, N_IN) * (size_t)outs[j]);
            fill_blocks(k, w[j], (int64_t)N_IN * outs[j]);
            p[j] = (qn_product){k->type, w[j], outs[j], &y[0][col], 100};
            col += outs[j];
        }
        qn_act_set(&r->act, x_rows, N_IN, N_IN, TOKENS);
        qn_mm_run(r->mm, &r->act, p, 5);
        for (int j = 0, at = 0; j < 5; at += outs[j++]) {
            product(r, p[j].type, w[j], N_IN, outs[j], x_rows, TOKENS, got);
            for (int t = 0; t < TOKENS; t++) {
                assert_memory_equal(&y[t][at], got + t * outs[j], sizeof(float) * (size_t)outs[j]);
            }
            free(w[j]);
        }
    }
}

static void refuses_what_it_cannot_do(void **state)
{
    (void)state;
    qn_err err;
    qn_mm *mm;
    assert_int_equal(qn_mm_new(&mm, fast[0].pool, QN_ISA_PORTABLE, false, 0, &err), -1);
    assert_null(mm);
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        if (!qn_isa_usable((qn_isa)i)) {
            assert_int_equal(qn_mm_new(&mm, fast[0].pool, (qn_isa)i, false, 64, &err), -1);
            assert_non_null(strstr(err.text, qn_isa_name((qn_isa)i)));
        }
    }
    assert_true(qn_isa_usable(qn_isa_best()));
}

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        if (qn_isa_usable((qn_isa)i)) {
            fast[i] = rig_new((qn_isa)i, false, 1 + i);
            exact[i] = rig_new((qn_isa)i, true, 3 - i);
        }
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        if (qn_isa_usable((qn_isa)i)) {
            rig_free(&fast[i]);
            rig_free(&exact[i]);
        }
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_matches_double_precision),
        cmocka_unit_test(exact_gives_the_same_bits_everywhere),
        cmocka_unit_test(extreme_codes_do_not_saturate),
        cmocka_unit_test(eight_bit_rows_are_the_same_on_every_isa),
        cmocka_unit_test(not_a_number_stays_one),
        cmocka_unit_test(products_share_an_input),
        cmocka_unit_test(refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
