#include "text/unicode_class.h"

qn_uclass qn_unicode_class(uint32_t cp)
{
    if (cp < 0x80 || cp > 0x10ffff) {
        return QN_UC_OTHER;
    }
    size_t lo = 0, hi = qn_unicode_n_runs; /* runs[lo] begins at or before cp, runs[hi] after it */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (qn_unicode_runs[mid] >> 3 <= cp) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return (qn_uclass)(qn_unicode_runs[lo] & 7);
}
