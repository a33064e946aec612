/* jinja_internal.h: what the files of the template interpreter share.
 *
 * A failure anywhere ends parsing or rendering: qn_jfail does not return. All memory is one arena, freed as a
 * whole, so there is nothing to clean up on the way. */
#ifndef QN_TEXT_JINJA_INTERNAL_H
#define QN_TEXT_JINJA_INTERNAL_H

#include <setjmp.h>
#include <string.h>

#include "base/alloc.h"
#include "text/jinja.h"

typedef enum qn_jkind {
    QN_J_MISSING, /* internal: an argument that was not given */
    QN_J_UNDEFINED,
    QN_J_NONE,
    QN_J_BOOL,
    QN_J_INT,
    QN_J_FLOAT,
    QN_J_STR,
    QN_J_LIST,
    QN_J_TUPLE,
    QN_J_DICT,
    QN_J_NAMESPACE, /* d */
    QN_J_RANGE,
    QN_J_ITER, /* a generator or iterator: can be walked once */
    QN_J_VIEW, /* of a dict: keys, values, items */
    QN_J_MACRO,
    QN_J_FUNC, /* a global function */
    QN_J_METHOD,
    QN_J_LOOP,
    QN_J_CYCLER,
    QN_J_JOINER, /* cycler */
} qn_jkind;

/* --- jinja_value.c: failing, memory, text with origins, containers --- */

typedef struct qn_jrun {
    size_t start;
    uint32_t origin;
} qn_jrun;

/* Bytes with their origins: strings are windows on one. A string that ends where the buffer does may be
 * appended to in place. */
typedef struct qn_jbuf {
    char *data;
    size_t len, cap;
    qn_jrun *run;
    size_t n_runs, cap_runs;
} qn_jbuf;

typedef struct qn_jstr {
    qn_jbuf *buf;
    const char *p; /* buf->data + off; of the time when the string was made: buffers are not moved */
    size_t off, len;
    size_t n_chars; /* SIZE_MAX: not counted yet */
    bool markup;    /* marked safe: what is added to it is escaped */
} qn_jstr;

typedef struct qn_jlist {
    qn_jval *item;
    size_t n, cap;
    const char *const *fields; /* of a named tuple */
} qn_jlist;

typedef struct qn_jentry {
    qn_jval key, value;
    uint64_t hash;
} qn_jentry;

typedef struct qn_jdict {
    qn_jentry *entry; /* in order of insertion */
    size_t n, cap;
    uint32_t *slot; /* entry + 1; 0: free. NULL while there are few entries */
    size_t mask;
} qn_jdict;

typedef struct qn_jundef {
    const char *message; /* what using it fails with */
    bool plain;          /* every other kind of undefined is one too; this one has no message */
} qn_jundef;

typedef struct qn_jrange {
    int64_t start, step, stop;
    size_t n;
} qn_jrange;

typedef enum qn_jviewkind { QN_J_KEYS, QN_J_VALUES, QN_J_ITEMS } qn_jviewkind;

typedef struct qn_jview {
    qn_jdict *dict;
    qn_jviewkind what;
} qn_jview;

typedef struct qn_jscope {
    struct qn_jscope *parent;
    struct qn_jvar {
        const qn_jstr *name; /* interned */
        qn_jval value;
    } * var;
    size_t n, cap;
    bool captured; /* a macro holds it */
} qn_jscope;

struct qn_jrender {
    jmp_buf fail;
    qn_err *err;
    const char *label;
    int line;
    const char *raised;
    qn_arena arena;
    size_t used;
    qn_jinja_limits limits;
    uint64_t steps;
    int depth;
    const qn_jinja *t;
    int64_t now;
    qn_jbuf *out;
    qn_jscope *scope;
    qn_jdict *vars;
    const qn_jstr *loop_name, *caller_name, *varargs_name, *kwargs_name;
};
typedef qn_jrender qn_jctx;

_Noreturn void qn_jfail(qn_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Counts n steps against the limit. */
void qn_jtick(qn_jctx *c, uint64_t n);
void *qn_jalloc(qn_jctx *c, size_t n, size_t size); /* zeroed */
char *qn_jsprintf(qn_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

qn_jbuf *qn_jbuf_new(qn_jctx *c, size_t cap);
void qn_jbuf_put(qn_jctx *c, qn_jbuf *b, const char *p, size_t n, uint32_t origin);
/* Bytes [off, off + len) of a string, with their origins. */
void qn_jbuf_part(qn_jctx *c, qn_jbuf *b, const qn_jstr *s, size_t off, size_t len);
void qn_jbuf_str(qn_jctx *c, qn_jbuf *b, const qn_jstr *s);
qn_jval qn_jbuf_value(qn_jctx *c, qn_jbuf *b);

qn_jval qn_jstr_new(qn_jctx *c, const char *p, size_t len, uint32_t origin);
qn_jval qn_jstr_c(qn_jctx *c, const char *text); /* of the template */
qn_jval qn_jstr_part(qn_jctx *c, const qn_jstr *s, size_t off, size_t len);
/* One after the other; a's buffer takes b where it can. */
qn_jval qn_jstr_concat(qn_jctx *c, const qn_jstr *a, const qn_jstr *b);
uint32_t qn_jstr_origin_at(const qn_jstr *s, size_t off);
bool qn_jstr_is(const qn_jstr *s, const char *text);
bool qn_jstr_eq(const qn_jstr *a, const qn_jstr *b);
int qn_jstr_cmp(const qn_jstr *a, const qn_jstr *b);
char *qn_jstr_cstr(qn_jctx *c, const qn_jstr *s); /* with a NUL; for messages and numbers */
/* The same as markup, or not. */
qn_jval qn_jstr_mark(qn_jctx *c, const qn_jstr *s, bool markup);

/* Characters: code points; a malformed byte is one character. */
size_t qn_jchar_len(const char *p, size_t n);
/* Reads one; malformed bytes are 0xDC00 + byte, which no text has. */
uint32_t qn_jchar(const char *p, size_t n, size_t *len);
size_t qn_jstr_chars(qn_jstr *s);
/* Byte offset of character i (at most the count). */
size_t qn_jstr_at(qn_jstr *s, size_t i);
void qn_jbuf_char(qn_jctx *c, qn_jbuf *b, uint32_t cp, uint32_t origin);

qn_jval qn_jlist_new(qn_jctx *c, size_t cap);
qn_jval qn_jtuple_new(qn_jctx *c, size_t cap);
qn_jval qn_jtuple2(qn_jctx *c, qn_jval a, qn_jval b);
void qn_jlist_push(qn_jctx *c, qn_jlist *l, qn_jval v);
qn_jval qn_jdict_new(qn_jctx *c);
/* Fails for a key that cannot be hashed. */
void qn_jdict_set(qn_jctx *c, qn_jdict *d, qn_jval key, qn_jval value);
const qn_jval *qn_jdict_get(qn_jctx *c, const qn_jdict *d, qn_jval key); /* NULL: absent */
const qn_jval *qn_jdict_find_str(qn_jctx *c, const qn_jdict *d, const qn_jstr *key);
uint64_t qn_jhash(qn_jctx *c, qn_jval v);
bool qn_jhashable(qn_jctx *c, qn_jval v);

static inline qn_jval qn_jint(int64_t i)
{
    return (qn_jval){.kind = QN_J_INT, .i = i};
}
static inline qn_jval qn_jfloat(double f)
{
    return (qn_jval){.kind = QN_J_FLOAT, .f = f};
}
static inline qn_jval qn_jbool(bool b)
{
    return (qn_jval){.kind = QN_J_BOOL, .b = b};
}
static inline qn_jval qn_jnone(void)
{
    return (qn_jval){.kind = QN_J_NONE};
}
static inline bool qn_jgiven(qn_jval v)
{
    return v.kind != QN_J_MISSING;
}
/* Given and not None. */
static inline bool qn_jset(qn_jval v)
{
    return v.kind != QN_J_MISSING && v.kind != QN_J_NONE;
}

/* --- jinja_ops.c: what values can do --- */

const char *qn_jtype(qn_jval v); /* Python's name of the type */
qn_jval qn_jundefined(qn_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void qn_jfail_undefined(qn_jctx *c, qn_jval v);
bool qn_jtrue(qn_jctx *c, qn_jval v);
bool qn_jequal(qn_jctx *c, qn_jval a, qn_jval b);
bool qn_jsame(qn_jval a, qn_jval b);
/* a < b as Python's sort wants it; fails for types without an order between them. */
bool qn_jless(qn_jctx *c, qn_jval a, qn_jval b, const char *op);
bool qn_jcontains(qn_jctx *c, qn_jval container, qn_jval item);
/* Length; -1: has none. */
int64_t qn_jlen(qn_jval v);
bool qn_jis_int(qn_jval v); /* int or bool */
bool qn_jnumber(qn_jval v, double *f);
int64_t qn_jneed_int(qn_jctx *c, qn_jval v, const char *what);
qn_jstr *qn_jneed_str(qn_jctx *c, qn_jval v, const char *what);
qn_jval qn_jbinary(qn_jctx *c, int op, qn_jval a, qn_jval b);
qn_jval qn_junary(qn_jctx *c, int op, qn_jval a);
bool qn_jcompare(qn_jctx *c, int op, qn_jval a, qn_jval b);
qn_jval qn_jgetattr(qn_jctx *c, qn_jval obj, const qn_jstr *name);
qn_jval qn_jgetitem(qn_jctx *c, qn_jval obj, qn_jval key);
/* Attributes alone, no items. */
qn_jval qn_jgetattr_only(qn_jctx *c, qn_jval obj, const qn_jstr *name);
qn_jval qn_jslice(qn_jctx *c, qn_jval obj, qn_jval start, qn_jval stop, qn_jval step);
/* Clamped bounds of a slice over n items; returns how many are taken. */
size_t qn_jslice_bounds(qn_jctx *c, size_t n, qn_jval start, qn_jval stop, qn_jval step, int64_t *first,
                        int64_t *by);

/* --- jinja_iter.c --- */

typedef struct qn_jiter qn_jiter;
struct qn_jiter {
    bool (*next)(qn_jctx *c, qn_jiter *it, qn_jval *out);
    const char *type; /* Python's name of its type */
    qn_jval source;
    size_t at;
    qn_jiter *inner;
    void *state;
};

qn_jiter *qn_jiter_try(qn_jctx *c, qn_jval v); /* NULL: cannot be walked */
qn_jiter *qn_jiter_of(qn_jctx *c, qn_jval v);  /* fails: "'int' object is not iterable" */
bool qn_jnext(qn_jctx *c, qn_jiter *it, qn_jval *out);
/* A generator: `next` is called with `state`. */
qn_jval qn_jgenerator(qn_jctx *c, bool (*next)(qn_jctx *, qn_jiter *, qn_jval *), qn_jval source,
                      void *state);
qn_jval qn_jto_list(qn_jctx *c, qn_jval v);
qn_jval qn_jreversed(qn_jctx *c, qn_jval v); /* fails where Python's reversed() does */
bool qn_jcan_reverse(qn_jval v);

/* --- jinja_repr.c: values as text --- */

/* Python's str() and repr(); origins are kept. */
qn_jstr *qn_jto_str(qn_jctx *c, qn_jval v);
void qn_jput_str(qn_jctx *c, qn_jbuf *b, qn_jval v);
void qn_jput_repr(qn_jctx *c, qn_jbuf *b, qn_jval v);
const char *qn_jrepr_c(qn_jctx *c, qn_jval v); /* cut, for messages */
enum { QN_J_FLOAT_TEXT = 64 };
/* Python's repr of a float. */
void qn_jfloat_repr(double f, char out[QN_J_FLOAT_TEXT]);
/* Digits and exponent of a finite f >= 0: precision < 0: the fewest digits that give f back. Value is
 * d.ddd * 10^exp. */
int qn_jfloat_digits(double f, int precision, char digits[QN_J_FLOAT_TEXT], int *exp);
/* strtod for text with '.', whatever the locale. */
double qn_jstrtod(const char *text, const char **end);
/* Python's int(text, base) and float(text): false where they raise ValueError. */
bool qn_jparse_int(qn_jctx *c, const qn_jstr *s, int base, int64_t *out);
bool qn_jparse_float(qn_jctx *c, const qn_jstr *s, double *out);
bool qn_jprintable(uint32_t cp);
qn_jval qn_jescape(qn_jctx *c, qn_jval v); /* HTML; markup stays as it is */

/* --- jinja_json.c --- */

typedef struct qn_jjson {
    bool ascii, sort;
    const qn_jstr *indent; /* NULL: on one line */
    const qn_jstr *item_sep, *key_sep;
} qn_jjson;
void qn_jput_json(qn_jctx *c, qn_jbuf *b, qn_jval v, const qn_jjson *o);

/* --- calls --- */

typedef struct qn_jkw {
    const qn_jstr *name;
    qn_jval value;
} qn_jkw;

typedef struct qn_jargs {
    qn_jval *pos;
    size_t n;
    qn_jkw *kw;
    size_t n_kw;
} qn_jargs;

enum { QN_J_MAX_PARAMS = 8 };

/* A call as the function sees it. */
typedef struct qn_jbound {
    qn_jval arg[QN_J_MAX_PARAMS]; /* in the order of its parameters; QN_J_MISSING: not given */
    const qn_jargs *call;         /* as written */
} qn_jbound;

/* params: "a b c=": names, optional ones with "=", positional-only ones before "/"; "*": takes the call as it
 * is; ".": no function but an attribute. call NULL: Python has it, quern has not. */
typedef struct qn_jfunc {
    const char *name;
    const char *params;
    qn_jval (*call)(qn_jctx *c, qn_jval self, const qn_jbound *a);
} qn_jfunc;

typedef struct qn_jmethod {
    qn_jval self;
    const qn_jfunc *func;
} qn_jmethod;

void qn_jbind(qn_jctx *c, const qn_jfunc *f, const qn_jargs *args, qn_jval arg[QN_J_MAX_PARAMS]);
qn_jval qn_jinvoke(qn_jctx *c, const qn_jfunc *f, qn_jval self, const qn_jargs *args);
qn_jval qn_jcall(qn_jctx *c, qn_jval callee, const qn_jargs *args);
bool qn_jcallable(qn_jval v);

/* Filters have the value as `self`, tests too (their result is a bool). NULL: unknown. */
const qn_jfunc *qn_jfilter_find(const char *name, size_t len);
const qn_jfunc *qn_jtest_find(const char *name, size_t len);
const qn_jfunc *qn_jglobal_find(const char *name, size_t len);
/* What Jinja has and this interpreter has not: named in the error. */
bool qn_jfilter_known(const char *name, size_t len);
extern const qn_jfunc qn_jfilters_text[], qn_jfilters_seq[], qn_jfilters_gen[]; /* end with name NULL */
extern const qn_jfunc qn_jstr_methods[], qn_jstr_case_methods[], qn_jlist_methods[], qn_jtuple_methods[],
    qn_jdict_methods[], qn_jrange_methods[], qn_jint_methods[], qn_jfloat_methods[];
const qn_jfunc *qn_jfunc_find(const qn_jfunc *table, const char *name, size_t len);
/* A method or attribute of a value of a built-in type; false: no such attribute. */
bool qn_jattribute(qn_jctx *c, qn_jval obj, const qn_jstr *name, qn_jval *out);

/* "%s" % args, and text.format(...). */
qn_jval qn_jformat_percent(qn_jctx *c, const qn_jstr *f, qn_jval args);
qn_jval qn_jformat_braces(qn_jctx *c, const qn_jstr *f, const qn_jargs *args);
/* Python's format(v, spec). */
void qn_jformat_spec(qn_jctx *c, qn_jbuf *b, qn_jval v, const qn_jstr *spec);

/* A dotted attribute path ("a.b.0") of filters with attribute=. */
qn_jval qn_jattr_path(qn_jctx *c, qn_jval v, qn_jval path, qn_jval fallback);
qn_jval qn_jignore_case(qn_jctx *c, qn_jval v);
/* Stable sort by keys; keys and items are of n. */
void qn_jsort(qn_jctx *c, qn_jval *keys, qn_jval *items, size_t n, bool reverse);

/* Pieces of text. */
qn_jval qn_jupper(qn_jctx *c, const qn_jstr *s);
qn_jval qn_jlower(qn_jctx *c, const qn_jstr *s);
qn_jval qn_jcapitalize(qn_jctx *c, const qn_jstr *s);
qn_jval qn_jstrip(qn_jctx *c, qn_jstr *s, qn_jval chars, int sides); /* 1: left, 2: right, 3: both */
qn_jval qn_jreplace(qn_jctx *c, const qn_jstr *s, const qn_jstr *old, const qn_jstr *with, int64_t count);
qn_jval qn_jjoin(qn_jctx *c, const qn_jstr *sep, qn_jval items, bool strict);
qn_jval qn_jsplitlines(qn_jctx *c, const qn_jstr *s, bool keep);
qn_jval qn_jpad(qn_jctx *c, qn_jstr *s, int64_t width, const qn_jstr *fill, int where); /* -1 l, 0 c, 1 r */
bool qn_jspace(uint32_t cp);
qn_jval qn_jtitle(qn_jctx *c, const qn_jstr *s);
qn_jval qn_jcasefold(qn_jctx *c, const qn_jstr *s);
qn_jval qn_jswapcase(qn_jctx *c, const qn_jstr *s);
bool qn_jis_case(const qn_jstr *s, bool upper);
bool qn_jis_title(const qn_jstr *s);
bool qn_jall_chars(const qn_jstr *s, bool (*is)(uint32_t));
bool qn_jalpha(uint32_t cp);
bool qn_jnumeric(uint32_t cp);
/* Byte offset of `what` in s from `from` on; SIZE_MAX: not there. */
size_t qn_jfind(const qn_jstr *s, const qn_jstr *what, size_t from);

/* --- jinja_lex.c, jinja_parse.c, jinja_expr.c --- */

typedef enum qn_jtoken_kind {
    QN_T_DATA,
    QN_T_BLOCK_BEGIN,
    QN_T_BLOCK_END,
    QN_T_VAR_BEGIN,
    QN_T_VAR_END,
    QN_T_NAME,
    QN_T_STR,
    QN_T_INT,
    QN_T_FLOAT,
    QN_T_OP,
    QN_T_EOF,
} qn_jtoken_kind;

typedef enum qn_jop {
    QN_OP_ADD,
    QN_OP_SUB,
    QN_OP_MUL,
    QN_OP_DIV,
    QN_OP_FLOORDIV,
    QN_OP_MOD,
    QN_OP_POW,
    QN_OP_TILDE,
    QN_OP_EQ,
    QN_OP_NE,
    QN_OP_LT,
    QN_OP_LE,
    QN_OP_GT,
    QN_OP_GE,
    QN_OP_IN,
    QN_OP_NOTIN,
    QN_OP_ASSIGN,
    QN_OP_DOT,
    QN_OP_COLON,
    QN_OP_PIPE,
    QN_OP_COMMA,
    QN_OP_SEMICOLON,
    QN_OP_LPAREN,
    QN_OP_RPAREN,
    QN_OP_LBRACKET,
    QN_OP_RBRACKET,
    QN_OP_LBRACE,
    QN_OP_RBRACE,
} qn_jop;

typedef struct qn_jtoken {
    qn_jtoken_kind kind;
    qn_jop op;
    int line;
    const char *p; /* as written */
    size_t len;
    qn_jval value; /* of data and literals; a name's interned text */
} qn_jtoken;

typedef enum qn_jnode_kind {
    /* expressions */
    QN_N_CONST,   /* value */
    QN_N_NAME,    /* name */
    QN_N_TUPLE,   /* kids */
    QN_N_LIST,    /* kids */
    QN_N_DICT,    /* kids: key, value, key, value, ... */
    QN_N_COND,    /* a if b else c (c may be NULL) */
    QN_N_OR,      /* a, b */
    QN_N_AND,     /* a, b */
    QN_N_NOT,     /* a */
    QN_N_COMPARE, /* a, then kids: each with op */
    QN_N_BINARY,  /* op: a, b */
    QN_N_UNARY,   /* op: a */
    QN_N_CONCAT,  /* kids */
    QN_N_GETATTR, /* a, name */
    QN_N_GETITEM, /* a, b */
    QN_N_SLICE,   /* a, b, c; each may be NULL */
    QN_N_CALL,    /* a; kids, kw, b (*), c (**) */
    QN_N_FILTER,  /* func or name; a (NULL in a filter block); kids, kw, b, c */
    QN_N_TEST,    /* func or name; a; kids, kw, b, c */
    QN_N_OPERAND, /* of a comparison: op, a */
    QN_N_KEYWORD, /* name, a */
    QN_N_NSREF,   /* target: name, value (attribute) */
    /* statements */
    QN_N_OUTPUT,      /* kids */
    QN_N_IF,          /* a; body; c: else or next if */
    QN_N_FOR,         /* a: target, b: iterable, c: condition or NULL; body, orelse; flag: recursive */
    QN_N_SET,         /* a: target, b: value */
    QN_N_SETBLOCK,    /* a: target, b: filter or NULL; body */
    QN_N_MACRO,       /* name; kids: parameters (NAME, a: default); body */
    QN_N_CALLBLOCK,   /* a: the call; kids: parameters; body */
    QN_N_FILTERBLOCK, /* b: filter; body */
    QN_N_WITH,        /* kids: KEYWORD-like (b: target, a: value); body */
    QN_N_SCOPE,       /* body */
    QN_N_BREAK,
    QN_N_CONTINUE,
} qn_jnode_kind;

typedef struct qn_jnode qn_jnode;
struct qn_jnode {
    uint8_t kind, op;
    bool flag;    /* recursive; negated */
    bool uses[3]; /* of a macro: varargs, kwargs, caller are read in it */
    int line;
    const qn_jstr *name;
    const qn_jfunc *func;
    qn_jval value;
    qn_jnode *a, *b, *c;
    qn_jnode *kids, *kw, *body, *orelse; /* first of a list */
    qn_jnode *next;
    size_t n_kids, n_kw;
};

struct qn_jinja {
    qn_arena arena, labels;
    char *label;
    qn_jnode *body;
    const qn_jstr *loop_name, *caller_name, *varargs_name, *kwargs_name;
    qn_jdict *names; /* interned; the value says whether a variable of that name is read */
};

typedef struct qn_jparser {
    qn_jctx c; /* memory and failing; its arena becomes the template's */
    qn_jinja *t;
    qn_jtoken *tok; /* ends with QN_T_EOF */
    size_t n_tok, cap_tok, at;
    int nesting;         /* of statements and expressions */
    int loops;           /* enclosing loops of the same function */
    bool soft;           /* in an if: an unknown filter or test fails only when it is used */
    const char *unknown; /* the first unknown one of an expression that may still turn out to be a branch */
    int unknown_line;
    bool storing;    /* in the target of an assignment */
    qn_jnode *macro; /* the enclosing one, for `uses` */
} qn_jparser;

void qn_jlex(qn_jparser *p, const char *source, size_t len);
const qn_jstr *qn_jintern(qn_jparser *p, const char *name, size_t len);
_Noreturn void qn_jsyntax(qn_jparser *p, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
qn_jnode *qn_jnode_new(qn_jparser *p, qn_jnode_kind kind, int line);
const qn_jtoken *qn_jpeek(const qn_jparser *p, size_t ahead);
bool qn_jis_op(const qn_jparser *p, qn_jop op);
bool qn_jis_name(const qn_jparser *p, const char *name);
bool qn_jskip_op(qn_jparser *p, qn_jop op);
bool qn_jskip_name(qn_jparser *p, const char *name);
void qn_jexpect_op(qn_jparser *p, qn_jop op);
const qn_jtoken *qn_jexpect_name(qn_jparser *p);
const char *qn_jdescribe(qn_jparser *p, const qn_jtoken *t);
void qn_jadd(qn_jnode ***tail, qn_jnode *n); /* to a list of which *tail is the end */
qn_jnode *qn_jparse_target(qn_jparser *p, bool with_namespace);
void qn_jparse_call_args(qn_jparser *p, qn_jnode *n);
void qn_jnest(qn_jparser *p); /* one level deeper; fails at the limit. Undone by --p->nesting */

qn_jnode *qn_jparse_expression(qn_jparser *p, bool condexpr);
qn_jnode *qn_jparse_tuple(qn_jparser *p, bool simplified, bool condexpr, bool parens);
qn_jnode *qn_jparse_primary(qn_jparser *p);
qn_jnode *qn_jparse_filters(qn_jparser *p, qn_jnode *value, bool inline_first);
void qn_jparse_template(qn_jparser *p);

/* --- jinja_eval.c, jinja_exec.c --- */

typedef struct qn_jmacro {
    const qn_jnode *node; /* MACRO or CALLBLOCK */
    qn_jscope *scope;
} qn_jmacro;

qn_jval qn_jeval(qn_jctx *c, const qn_jnode *n);
qn_jval qn_jfilter_apply(qn_jctx *c, const qn_jnode *n, qn_jval value);
void qn_jeval_args(qn_jctx *c, const qn_jnode *n, qn_jargs *out);
typedef enum qn_jflow { QN_FLOW_ON, QN_FLOW_BREAK, QN_FLOW_CONTINUE } qn_jflow;
qn_jflow qn_jexec(qn_jctx *c, const qn_jnode *list);
qn_jflow qn_jexec_for(qn_jctx *c, const qn_jnode *n);
qn_jval qn_jmacro_call(qn_jctx *c, const qn_jmacro *m, const qn_jargs *args);
qn_jval qn_jloop_call(qn_jctx *c, struct qn_jloop *loop, qn_jval items);
qn_jval qn_jloop_attr(qn_jctx *c, struct qn_jloop *loop, const qn_jstr *name, bool *found);
int64_t qn_jloop_length(qn_jctx *c, struct qn_jloop *loop);
int64_t qn_jloop_index0(const struct qn_jloop *loop);
void qn_jassign(qn_jctx *c, const qn_jnode *target, qn_jval v);
void qn_jscope_set(qn_jctx *c, qn_jscope *s, const qn_jstr *name, qn_jval v);
/* One level deeper in evaluation; fails at the limit. */
static inline void qn_jenter(qn_jctx *c)
{
    if (++c->depth > c->limits.depth) {
        qn_jfail(c, "nested too deeply (limit %d)", c->limits.depth);
    }
}

typedef struct qn_jcycler {
    qn_jval *item;
    size_t n, at;
    const qn_jstr *sep; /* of a joiner */
} qn_jcycler;

#endif
