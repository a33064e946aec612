/* json.h: JSON texts (RFC 8259), read into a tree and written piece by piece. */
#ifndef QN_TEXT_JSON_H
#define QN_TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/error.h"

typedef enum qn_json_kind {
    QN_JSON_NULL,
    QN_JSON_BOOL,
    QN_JSON_NUMBER,
    QN_JSON_STRING,
    QN_JSON_ARRAY,
    QN_JSON_OBJECT,
} qn_json_kind;

typedef struct qn_json {
    qn_json_kind kind;
    bool truth;
    bool is_int;     /* NUMBER without fraction and exponent that fits `integer` */
    int64_t integer; /* then its value */
    double number;
    const char *text; /* STRING: UTF-8 with a NUL behind; may hold NUL bytes too */
    size_t text_len;
    const char *key;              /* in an object; NULL elsewhere */
    size_t n_child;               /* of an ARRAY or OBJECT */
    struct qn_json *child, *next; /* members in order */
} qn_json;

/* Reads one value with nothing but blanks around it. The tree lives in the arena. Refused, with the byte's
 * offset: what is not JSON, invalid UTF-8, unpaired surrogates, keys with NUL, more than 64 levels. */
int qn_json_parse(const qn_json **out, qn_arena *arena, const char *text, size_t len, qn_err *err);

/* First member of that key; NULL where there is none, or where `object` is no object. */
const qn_json *qn_json_get(const qn_json *object, const char *key);

/* A text in the making. Zero-initialise; what is written after a failed allocation is dropped and `failed` is
 * set. */
typedef struct qn_json_out {
    char *text; /* NUL-terminated once anything was written */
    size_t len, cap;
    bool failed;
    bool comma;    /* the next value needs one */
    bool indented; /* set before the first value: one member a line, two blanks a level */
    bool after_key;
    int depth;
} qn_json_out;

void qn_json_open(qn_json_out *o, char bracket);  /* '{' or '[' */
void qn_json_close(qn_json_out *o, char bracket); /* '}' or ']' */
void qn_json_key(qn_json_out *o, const char *key);
/* Invalid UTF-8 is written as U+FFFD. */
void qn_json_string(qn_json_out *o, const char *text, size_t len);
void qn_json_int(qn_json_out *o, int64_t v);
void qn_json_uint(qn_json_out *o, uint64_t v);
/* The shortest decimal that reads back to v; NaN and infinities, which JSON cannot say, become null. */
void qn_json_double(qn_json_out *o, double v);
void qn_json_float(qn_json_out *o, float v);
void qn_json_bool(qn_json_out *o, bool v);
void qn_json_null(qn_json_out *o);
/* Frees the text and makes the writer empty. */
void qn_json_free(qn_json_out *o);

#endif
