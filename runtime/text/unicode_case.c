#include "text/unicode_case.h"

/* The last of n rows of `width` whose first number is at most cp; n rows where there is none. */
static size_t find(const int32_t *table, size_t n, size_t width, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uint32_t)table[mid * width] <= cp) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo > 0 ? lo - 1 : n;
}

/* 1: the run table has it. */
static int from_runs(const int32_t *runs, size_t n, uint32_t cp, uint32_t *out)
{
    size_t i = find(runs, n, 4, cp);
    if (i == n) {
        return 0;
    }
    const int32_t *r = runs + 4 * i;
    if (cp > (uint32_t)r[1] || (cp - (uint32_t)r[0]) % (uint32_t)r[2] != 0) {
        return 0;
    }
    *out = (uint32_t)((int32_t)cp + r[3]);
    return 1;
}

static int special(uint32_t cp, qn_letter_case to, uint32_t out[3])
{
    const int32_t *t = qn_unicode_special_case;
    size_t n = qn_unicode_special_case_n, i = find(t, n, 5, cp);
    if (i == n) {
        return 0;
    }
    for (;; i--) {
        const int32_t *r = t + 5 * i;
        if ((uint32_t)r[0] != cp) {
            return 0;
        }
        if (r[1] == (int32_t)to) {
            int k = 0;
            for (; k < 3 && r[2 + k] != 0; k++) {
                out[k] = (uint32_t)r[2 + k];
            }
            return k;
        }
        if (i == 0) {
            return 0;
        }
    }
}

int qn_unicode_case(uint32_t cp, qn_letter_case to, uint32_t out[3])
{
    out[0] = cp;
    if (cp < 0x80) {
        int upper = cp >= 'A' && cp <= 'Z', lower = cp >= 'a' && cp <= 'z';
        out[0] = to == QN_CASE_LOWER ? (upper ? cp + 32 : cp) : lower ? cp - 32 : cp;
        return 1;
    }
    int n = special(cp, to, out);
    if (n > 0) {
        return n;
    }
    if (to == QN_CASE_LOWER) {
        (void)from_runs(qn_unicode_lower_runs, qn_unicode_lower_runs_n, cp, out);
        return 1;
    }
    if (to == QN_CASE_TITLE && from_runs(qn_unicode_title_runs, qn_unicode_title_runs_n, cp, out)) {
        return 1;
    }
    if (to == QN_CASE_TITLE && (n = special(cp, QN_CASE_UPPER, out)) > 0) {
        return n;
    }
    (void)from_runs(qn_unicode_upper_runs, qn_unicode_upper_runs_n, cp, out);
    return 1;
}

int qn_unicode_digit(uint32_t cp)
{
    if (cp < 0x80) {
        return cp >= '0' && cp <= '9' ? (int)cp - '0' : -1;
    }
    size_t i = find(qn_unicode_digit_zeros, qn_unicode_digit_zeros_n, 1, cp);
    if (i == qn_unicode_digit_zeros_n || cp - (uint32_t)qn_unicode_digit_zeros[i] > 9) {
        return -1;
    }
    return (int)(cp - (uint32_t)qn_unicode_digit_zeros[i]);
}
