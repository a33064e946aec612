/* unicode_case.h: upper, lower and title case of characters beyond ASCII, and decimal digits of all scripts.
 */
#ifndef QN_TEXT_UNICODE_CASE_H
#define QN_TEXT_UNICODE_CASE_H

#include <stddef.h>
#include <stdint.h>

typedef enum qn_letter_case { QN_CASE_UPPER, QN_CASE_LOWER, QN_CASE_TITLE } qn_letter_case;

/* The full mapping of one code point (any) into out; returns how many code points it has, 1..3. The rule of
 * the final sigma is the caller's. */
int qn_unicode_case(uint32_t cp, qn_letter_case to, uint32_t out[3]);

/* Value of a decimal digit; -1: none. */
int qn_unicode_digit(uint32_t cp);

/* Tables: runs of first, last, stride, delta; specials of code point, case, up to 3 code points; zeros. The
 * title case that is not listed is the upper case. */
extern const int32_t qn_unicode_upper_runs[], qn_unicode_lower_runs[], qn_unicode_title_runs[],
    qn_unicode_special_case[], qn_unicode_digit_zeros[];
extern const size_t qn_unicode_upper_runs_n, qn_unicode_lower_runs_n, qn_unicode_title_runs_n,
    qn_unicode_special_case_n, qn_unicode_digit_zeros_n;

#endif
