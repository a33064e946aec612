// sample.cuh: the sampler's arithmetic (runtime/engine/sampler.c), operation for operation: no product and
// sum may be contracted, so all of it is spelt with __dmul_rn and its kin. A candidate is a 56-bit key: the
// logit's bits in an order that integers compare, then the id, lower ids first; 0 is no candidate. defines:
// taken_key, key_id, key_weight, random_bits, advance
#ifndef QN_SAMPLE_CUH
#define QN_SAMPLE_CUH
#include "reduce.cuh"

enum { SAMPLE_GREEDY = 1, SAMPLE_MARKED = 2 };
enum { BAD_NAN = 1, BAD_INF = 2 };
enum { CHOSE_NAN = -1, CHOSE_INF = -3, CHOSE_NONE = -4 }; // -2: not written yet

// How a row's tokens are chosen (lower.h: qn_cuda_sampling). top_p: 1 is off; least: min-p as a weight.
struct qn_sampling {
    double inv_temp, top_p, least;
    u64 seed;
    float penalty;
    i32 top_k, last_n, flags;
};

// Marks: how often a token stands in the window of the penalty; the top bit: never to be chosen.
constexpr u32 BANNED = 0x80000000u;
constexpr double ONE = 17592186044416.0; // 2^44: the weight of the best candidate

// Token i of a row as a key; bad gets BAD_* for a logit that no sampler takes.
QN_DEV u64 taken_key(const float *logits, const u32 *marks, const qn_sampling &p, int i, u32 *bad)
{
    float v = logits[i];
    const u32 mark = p.flags & SAMPLE_MARKED ? marks[i] : 0;
    if (mark & BANNED) {
        return 0;
    }
    *bad |= v != v ? BAD_NAN : v == QN_INF ? BAD_INF : 0;
    if (mark != 0) {
        v = v > 0.0f ? __fdiv_rn(v, p.penalty) : __fmul_rn(v, p.penalty);
    }
    if (v == -QN_INF) {
        return 0;
    }
    u32 u = v == 0.0f ? 0 : __float_as_uint(v); // -0 equals 0
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (u64)u << 24 | (u64)(0xfffffu - (u32)i) << 4;
}

QN_DEV i32 key_id(u64 key)
{
    return (i32)(0xfffffu - ((u32)(key >> 4) & 0xfffffu));
}

QN_DEV double key_value(u64 key)
{
    const u32 u = (u32)(key >> 24);
    return (double)__uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u);
}

// e^x for x <= 0: qn_exp_portable.
QN_DEV double exp_portable(double x)
{
    if (!(x > -708.0)) {
        return 0.0;
    }
    const double k = floor(__dadd_rn(__dmul_rn(x, 1.4426950408889634), 0.5));
    const double r = __dsub_rn(__dsub_rn(x, __dmul_rn(k, 6.93147180369123816490e-01)),
                               __dmul_rn(k, 1.90821492927058770002e-10));
    const double c[15] = {1.0,
                          1.0,
                          1.0 / 2,
                          1.0 / 6,
                          1.0 / 24,
                          1.0 / 120,
                          1.0 / 720,
                          1.0 / 5040,
                          1.0 / 40320,
                          1.0 / 362880,
                          1.0 / 3628800,
                          1.0 / 39916800,
                          1.0 / 479001600,
                          1.0 / 6227020800.0,
                          1.0 / 87178291200.0};
    double sum = c[14];
    for (int i = 13; i >= 0; i--) {
        sum = __dadd_rn(__dmul_rn(sum, r), c[i]);
    }
    return __dmul_rn(sum, __longlong_as_double((i64)((u64)((i64)k + 1023) << 52)));
}

QN_DEV u64 key_weight(u64 key, double max, double inv_temp)
{
    return (u64)__dmul_rn(exp_portable(__dmul_rn(__dsub_rn(key_value(key), max), inv_temp)), ONE);
}

// The 64 bits that decide the token after n tokens: Philox4x32-10.
QN_DEV u64 random_bits(u64 seed, u32 n)
{
    u32 c0 = n, c1 = 0, c2 = 0, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        const u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (u64)c0 << 32 | c1;
}

QN_DEV i32 bad_choice(u32 bad)
{
    return bad & BAD_NAN ? CHOSE_NAN : bad ? CHOSE_INF : CHOSE_NONE;
}

// One thread: the row's choice becomes its next input and goes to the host's ring; the position advances, and
// the penalty's window moves on by one token. id < 0: CHOSE_*, for the host.
QN_DEV void advance(qn_state *st, int row, i32 id, const qn_sampling &p, u32 *marks, i32 *history,
                    i32 *tokens, i32 *ring)
{
    i32 *pos = st->many ? &st->rows[row].pos : &st->pos, *step = st->many ? &st->rows[row].step : &st->step;
    const i32 n = *pos + 1; // tokens so far
    const i32 next = id < 0 ? 0 : id;
    if (n < spec::n_ctx) {
        history[n] = next;
    }
    if (p.flags & SAMPLE_MARKED && p.last_n != 0) {
        marks[next] += 1;
        if (p.last_n > 0 && n >= p.last_n) {
            marks[history[n - p.last_n]] -= 1;
        }
    }
    if (st->many) {
        tokens[row] = next;
    } else {
        st->token = next;
    }
    ring[*step % (spec::ring / 8) * 8 + row] = id;
    *step += 1;
    *pos = n;
}
#endif
