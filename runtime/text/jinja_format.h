/* jinja_format.h: a field of a format. */
#ifndef QN_TEXT_JINJA_FORMAT_H
#define QN_TEXT_JINJA_FORMAT_H

#include "text/jinja_internal.h"

enum { QN_J_MAX_FIELD = 1 << 20 };

typedef struct qn_jfield {
    uint32_t fill;
    char align; /* '<' '>' '^' '=', 0: the type's own */
    char sign;  /* '+' ' ' or 0 */
    bool alt;
    char group; /* ',' '_' or 0 */
    int64_t width;
    int precision;  /* -1: none */
    int min_digits; /* of integers */
    char type;      /* 0: none given */
} qn_jfield;

void qn_jfield_int(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, int64_t v);
void qn_jfield_float(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, double v);
void qn_jfield_text(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, qn_jstr *s);

#endif
