/* jinja.h: chat templates, in the subset of Jinja 2 that they are written in: parsed once, rendered often.
 *
 * What it does follows Jinja 3.1.2 as the reference library of chat templates sets it up: sandboxed and
 * immutable, trim_blocks and lstrip_blocks on, break and continue, the generation block, raise_exception,
 * strftime_now, tojson without escaping of HTML. docs/chat-templates.md lists what is supported.
 *
 * Every byte of text knows where it is from (its origin), through all operations on strings, so that the
 * words of a template can be told from those of a message when the result is tokenised. Where an operation
 * cannot say it byte by byte, a result made of several origins is of a message.
 *
 * A template is untrusted: steps, depth, memory and output are limited. */
#ifndef QN_TEXT_JINJA_H
#define QN_TEXT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct qn_jinja qn_jinja;     /* a parsed template; read-only, for any number of threads */
typedef struct qn_jrender qn_jrender; /* one rendering: memory and variables */
typedef struct qn_jval qn_jval;

/* `label` stands in front of messages ("label:LINE: ..."); source and label are copied. */
int qn_jinja_parse(qn_jinja **out, const char *label, const char *source, size_t len, qn_err *err);
void qn_jinja_free(qn_jinja *t);
/* Whether a variable of this name is read anywhere in the template. */
bool qn_jinja_reads(const qn_jinja *t, const char *name);

/* Where text is from. Larger numbers are the caller's: it may give each message's content one of its own. */
enum { QN_ORIGIN_TEMPLATE = 0, QN_ORIGIN_MESSAGE = 1 };

typedef struct qn_jinja_limits {
    uint64_t steps; /* nodes evaluated, and bytes of text handled / 16 */
    size_t memory;  /* bytes; nothing is given back before the end */
    size_t output;  /* bytes */
    int depth;      /* nested evaluations */
} qn_jinja_limits;
extern const qn_jinja_limits qn_jinja_limits_default;

/* NULL: out of memory. limits NULL: the default. now: seconds since 1970, for strftime_now. */
qn_jrender *qn_jrender_new(const qn_jinja *t, const qn_jinja_limits *limits, int64_t now);
void qn_jrender_free(qn_jrender *r);

/* A kind of value that can be put into variables. Everything lives as long as the rendering. -1 in the
 * functions below: a limit was met. */
struct qn_jval {
    uint8_t kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct qn_jstr *s;
        struct qn_jlist *l;
        struct qn_jdict *d;
        struct qn_jundef *u;
        struct qn_jrange *range;
        struct qn_jiter *it;
        struct qn_jview *view;
        struct qn_jmacro *macro;
        struct qn_jmethod *method;
        struct qn_jloop *loop;
        struct qn_jcycler *cycler;
        const struct qn_jfunc *func;
    };
};

qn_jval qn_jvalue_none(void);
qn_jval qn_jvalue_bool(bool b);
qn_jval qn_jvalue_int(int64_t i);
qn_jval qn_jvalue_float(double f);
int qn_jvalue_str(qn_jrender *r, const char *text, size_t len, uint32_t origin, qn_jval *out, qn_err *err);
int qn_jvalue_list(qn_jrender *r, qn_jval *out, qn_err *err);
int qn_jvalue_dict(qn_jrender *r, qn_jval *out, qn_err *err);
int qn_jvalue_append(qn_jrender *r, qn_jval list, qn_jval item, qn_err *err);
/* Replaces the value of a key that is there. */
int qn_jvalue_set(qn_jrender *r, qn_jval dict, qn_jval key, qn_jval value, qn_err *err);

/* A variable of the template. */
int qn_jrender_var(qn_jrender *r, const char *name, qn_jval value, qn_err *err);

typedef struct qn_jspan {
    size_t len;
    uint32_t origin;
} qn_jspan;

typedef struct qn_jinja_text {
    const char *text; /* owned by the rendering */
    size_t len;
    const qn_jspan *spans; /* neighbours differ in origin */
    size_t n_spans;
    const char *raised; /* after a failure: the text of raise_exception; NULL: something else failed */
} qn_jinja_text;

/* Renders; once only. On failure err is "label:LINE: what", and there is no text. */
int qn_jrender_run(qn_jrender *r, qn_jinja_text *out, qn_err *err);

#endif
