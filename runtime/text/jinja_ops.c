/* jinja_ops.c: truth, equality, order, containment and arithmetic, as Python has them. */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const char *qn_jtype(qn_jval v)
{
    static const char *const name[] = {
        [QN_J_MISSING] = "missing",  [QN_J_UNDEFINED] = "Undefined",
        [QN_J_NONE] = "NoneType",    [QN_J_BOOL] = "bool",
        [QN_J_INT] = "int",          [QN_J_FLOAT] = "float",
        [QN_J_LIST] = "list",        [QN_J_TUPLE] = "tuple",
        [QN_J_DICT] = "dict",        [QN_J_NAMESPACE] = "Namespace",
        [QN_J_RANGE] = "range",      [QN_J_MACRO] = "Macro",
        [QN_J_FUNC] = "function",    [QN_J_METHOD] = "builtin_function_or_method",
        [QN_J_LOOP] = "LoopContext", [QN_J_CYCLER] = "Cycler",
        [QN_J_JOINER] = "Joiner",
    };
    static const char *const view[] = {"dict_keys", "dict_values", "dict_items"};
    switch (v.kind) {
    case QN_J_STR:
        return v.s->markup ? "Markup" : "str";
    case QN_J_ITER:
        return v.it->type;
    case QN_J_VIEW:
        return view[v.view->what];
    default:
        return name[v.kind];
    }
}

qn_jval qn_jundefined(qn_jctx *c, const char *fmt, ...)
{
    char text[QN_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    qn_jundef *u = qn_jalloc(c, 1, sizeof *u);
    u->message = qn_jsprintf(c, "%s", text);
    return (qn_jval){.kind = QN_J_UNDEFINED, .u = u};
}

void qn_jfail_undefined(qn_jctx *c, qn_jval v)
{
    qn_jfail(c, "%s", v.u->message);
}

int64_t qn_jlen(qn_jval v)
{
    switch (v.kind) {
    case QN_J_UNDEFINED:
        return 0;
    case QN_J_STR:
        return (int64_t)qn_jstr_chars(v.s);
    case QN_J_LIST:
    case QN_J_TUPLE:
        return (int64_t)v.l->n;
    case QN_J_DICT:
        return (int64_t)v.d->n;
    case QN_J_VIEW:
        return (int64_t)v.view->dict->n;
    case QN_J_RANGE:
        return (int64_t)v.range->n;
    default:
        return -1;
    }
}

bool qn_jtrue(qn_jctx *c, qn_jval v)
{
    switch (v.kind) {
    case QN_J_NONE:
        return false;
    case QN_J_BOOL:
        return v.b;
    case QN_J_INT:
        return v.i != 0;
    case QN_J_FLOAT:
        return v.f != 0;
    case QN_J_STR:
        return v.s->len != 0;
    case QN_J_LOOP:
        return qn_jloop_length(c, v.loop) != 0;
    default:
        return qn_jlen(v) != 0; /* what has no length is true */
    }
}

bool qn_jis_int(qn_jval v)
{
    return v.kind == QN_J_INT || v.kind == QN_J_BOOL;
}

static int64_t int_of(qn_jval v)
{
    return v.kind == QN_J_BOOL ? v.b : v.i;
}

bool qn_jnumber(qn_jval v, double *f)
{
    *f = v.kind == QN_J_FLOAT ? v.f : qn_jis_int(v) ? (double)int_of(v) : 0;
    return v.kind == QN_J_FLOAT || qn_jis_int(v);
}

int64_t qn_jneed_int(qn_jctx *c, qn_jval v, const char *what)
{
    if (v.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, v);
    }
    if (!qn_jis_int(v)) {
        qn_jfail(c, "%s: an integer is needed, got '%s'", what, qn_jtype(v));
    }
    return int_of(v);
}

qn_jstr *qn_jneed_str(qn_jctx *c, qn_jval v, const char *what)
{
    if (v.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, v);
    }
    if (v.kind != QN_J_STR) {
        qn_jfail(c, "%s: a string is needed, got '%s'", what, qn_jtype(v));
    }
    return v.s;
}

/* --- equality and order --- */

bool qn_jsame(qn_jval a, qn_jval b)
{
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case QN_J_NONE:
        return true;
    case QN_J_BOOL:
        return a.b == b.b;
    case QN_J_INT:
        return a.i == b.i;
    case QN_J_FLOAT:
        return a.f == b.f;
    case QN_J_STR:
        return a.s == b.s;
    default:
        return a.d == b.d;
    }
}

static bool equal_items(qn_jctx *c, const qn_jlist *a, const qn_jlist *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        same = qn_jequal(c, a->item[i], b->item[i]);
    }
    return same;
}

static bool equal_dicts(qn_jctx *c, const qn_jdict *a, const qn_jdict *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const qn_jval *v = qn_jdict_get(c, b, a->entry[i].key);
        same = v != NULL && qn_jequal(c, *v, a->entry[i].value);
    }
    return same;
}

bool qn_jequal(qn_jctx *c, qn_jval a, qn_jval b)
{
    double x, y;
    qn_jtick(c, 1);
    if (qn_jis_int(a) && qn_jis_int(b)) {
        return int_of(a) == int_of(b);
    }
    if (qn_jnumber(a, &x) && qn_jnumber(b, &y)) {
        return x == y;
    }
    if (a.kind != b.kind) {
        return false;
    }
    bool same;
    switch (a.kind) {
    case QN_J_STR:
        qn_jtick(c, a.s->len / 16);
        return qn_jstr_eq(a.s, b.s);
    case QN_J_UNDEFINED:
    case QN_J_NONE:
        return true;
    case QN_J_RANGE:
        return a.range->n == b.range->n &&
               (a.range->n == 0 ||
                (a.range->start == b.range->start && (a.range->n == 1 || a.range->step == b.range->step)));
    case QN_J_LIST:
    case QN_J_TUPLE:
        qn_jenter(c);
        same = equal_items(c, a.l, b.l);
        break;
    case QN_J_DICT:
        qn_jenter(c);
        same = equal_dicts(c, a.d, b.d);
        break;
    default:
        return a.d == b.d;
    }
    c->depth--;
    return same;
}

enum { LESS = -1, SAME = 0, MORE = 1, NEITHER = 2 };

static int order(qn_jctx *c, qn_jval a, qn_jval b, const char *op)
{
    double x, y;
    qn_jtick(c, 1);
    if (a.kind == QN_J_UNDEFINED || b.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, a.kind == QN_J_UNDEFINED ? a : b);
    }
    if (qn_jis_int(a) && qn_jis_int(b)) {
        return (int_of(a) > int_of(b)) - (int_of(a) < int_of(b));
    }
    if (qn_jnumber(a, &x) && qn_jnumber(b, &y)) {
        return x < y ? LESS : x > y ? MORE : x == y ? SAME : NEITHER;
    }
    if (a.kind == QN_J_STR && b.kind == QN_J_STR) {
        qn_jtick(c, a.s->len / 16);
        int d = qn_jstr_cmp(a.s, b.s);
        return d < 0 ? LESS : d > 0;
    }
    if (a.kind != b.kind || (a.kind != QN_J_LIST && a.kind != QN_J_TUPLE)) {
        qn_jfail(c, "'%s' not supported between instances of '%s' and '%s'", op, qn_jtype(a), qn_jtype(b));
    }
    qn_jenter(c);
    int r = (a.l->n > b.l->n) - (a.l->n < b.l->n);
    for (size_t i = 0; i < a.l->n && i < b.l->n; i++) {
        if (!qn_jequal(c, a.l->item[i], b.l->item[i])) {
            r = order(c, a.l->item[i], b.l->item[i], op);
            break;
        }
    }
    c->depth--;
    return r;
}

bool qn_jless(qn_jctx *c, qn_jval a, qn_jval b, const char *op)
{
    return order(c, a, b, op) == LESS;
}

bool qn_jcontains(qn_jctx *c, qn_jval in, qn_jval item)
{
    qn_jval v;
    switch (in.kind) {
    case QN_J_STR:
        if (item.kind != QN_J_STR) {
            qn_jfail(c, "'in <string>' requires string as left operand, not %s", qn_jtype(item));
        }
        qn_jtick(c, in.s->len / 16);
        return qn_jfind(in.s, item.s, 0) != SIZE_MAX;
    case QN_J_DICT:
        if (!qn_jhashable(c, item)) {
            qn_jfail(c, "unhashable type: '%s'", qn_jtype(item));
        }
        return qn_jdict_get(c, in.d, item) != NULL;
    default:
        break;
    }
    qn_jiter *it = qn_jiter_try(c, in);
    if (it == NULL) {
        qn_jfail(c, "argument of type '%s' is not iterable", qn_jtype(in));
    }
    while (qn_jnext(c, it, &v)) {
        if (qn_jequal(c, v, item)) {
            return true;
        }
    }
    return false;
}

bool qn_jcompare(qn_jctx *c, int op, qn_jval a, qn_jval b)
{
    static const char *const text[] = {
        [QN_OP_LT] = "<", [QN_OP_LE] = "<=", [QN_OP_GT] = ">", [QN_OP_GE] = ">="};
    int r;
    switch (op) {
    case QN_OP_EQ:
        return qn_jequal(c, a, b);
    case QN_OP_NE:
        return !qn_jequal(c, a, b);
    case QN_OP_IN:
        return qn_jcontains(c, b, a);
    case QN_OP_NOTIN:
        return !qn_jcontains(c, b, a);
    default:
        break;
    }
    r = order(c, a, b, text[op]);
    return op == QN_OP_LT   ? r == LESS
           : op == QN_OP_LE ? r == LESS || r == SAME
           : op == QN_OP_GT ? r == MORE
                            : r == MORE || r == SAME;
}

/* --- arithmetic --- */

static const char *op_text(int op)
{
    static const char *const text[] = {
        [QN_OP_ADD] = "+",       [QN_OP_SUB] = "-", [QN_OP_MUL] = "*",           [QN_OP_DIV] = "/",
        [QN_OP_FLOORDIV] = "//", [QN_OP_MOD] = "%", [QN_OP_POW] = "** or pow()",
    };
    return text[op];
}

_Noreturn static void overflow(qn_jctx *c)
{
    qn_jfail(c, "integer overflow: a result does not fit 64 bits");
}

static qn_jval power(qn_jctx *c, int64_t base, int64_t exp)
{
    int64_t r = 1;
    if (exp < 0) {
        if (base == 0) {
            qn_jfail(c, "0.0 cannot be raised to a negative power");
        }
        return qn_jfloat(pow((double)base, (double)exp));
    }
    while (exp > 0) {
        if ((exp & 1) != 0 && __builtin_mul_overflow(r, base, &r)) {
            overflow(c);
        }
        exp >>= 1;
        if (exp > 0 && __builtin_mul_overflow(base, base, &base)) {
            overflow(c);
        }
    }
    return qn_jint(r);
}

static qn_jval int_op(qn_jctx *c, int op, int64_t a, int64_t b)
{
    int64_t r;
    bool bad = false;
    if ((op == QN_OP_DIV || op == QN_OP_FLOORDIV || op == QN_OP_MOD) && b == 0) {
        qn_jfail(c, op == QN_OP_DIV ? "division by zero" : "integer division or modulo by zero");
    }
    switch (op) {
    case QN_OP_ADD:
        bad = __builtin_add_overflow(a, b, &r);
        break;
    case QN_OP_SUB:
        bad = __builtin_sub_overflow(a, b, &r);
        break;
    case QN_OP_MUL:
        bad = __builtin_mul_overflow(a, b, &r);
        break;
    case QN_OP_DIV:
        return qn_jfloat((double)a / (double)b);
    case QN_OP_POW:
        return power(c, a, b);
    default:
        bad = a == INT64_MIN && b == -1;
        if (!bad) {
            int64_t rest = a % b;
            bool fix = rest != 0 && (rest < 0) != (b < 0); /* towards minus infinity */
            r = op == QN_OP_MOD ? rest + (fix ? b : 0) : a / b - fix;
        }
    }
    if (bad) {
        overflow(c);
    }
    return qn_jint(r);
}

static qn_jval float_op(qn_jctx *c, int op, double a, double b)
{
    if ((op == QN_OP_DIV || op == QN_OP_FLOORDIV || op == QN_OP_MOD) && b == 0) {
        qn_jfail(c, op == QN_OP_DIV        ? "float division by zero"
                    : op == QN_OP_FLOORDIV ? "float floor division by zero"
                                           : "float modulo");
    }
    double rest = 0;
    switch (op) {
    case QN_OP_ADD:
        return qn_jfloat(a + b);
    case QN_OP_SUB:
        return qn_jfloat(a - b);
    case QN_OP_MUL:
        return qn_jfloat(a * b);
    case QN_OP_DIV:
        return qn_jfloat(a / b);
    case QN_OP_POW:
        if (a == 0 && b < 0) {
            qn_jfail(c, "0.0 cannot be raised to a negative power");
        }
        if (a < 0 && floor(b) != b) {
            qn_jfail(c, "a negative number to a fractional power is complex, which is not supported");
        }
        return qn_jfloat(pow(a, b));
    default:
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0)) {
            rest += b;
        } else if (rest == 0) {
            rest = copysign(0, b);
        }
        if (op == QN_OP_MOD) {
            return qn_jfloat(rest);
        }
        double whole = (a - rest) / b, down = floor(whole);
        return qn_jfloat(whole == 0 ? copysign(0, a / b) : whole - down > 0.5 ? down + 1 : down);
    }
}

static qn_jval repeat(qn_jctx *c, qn_jval v, int64_t times)
{
    uint64_t n = times > 0 ? (uint64_t)times : 0, total;
    if (v.kind == QN_J_STR) {
        if (!qn_mul_u64(n, v.s->len, &total) || total > c->limits.memory) {
            qn_jfail(c, "a repeated string is too long");
        }
        qn_jbuf *b = qn_jbuf_new(c, (size_t)total);
        for (uint64_t i = 0; v.s->len > 0 && i < n; i++) {
            qn_jbuf_str(c, b, v.s);
            qn_jtick(c, 1);
        }
        return qn_jstr_mark(c, qn_jbuf_value(c, b).s, v.s->markup);
    }
    if (!qn_mul_u64(n, v.l->n, &total) || total > c->limits.memory / sizeof(qn_jval)) {
        qn_jfail(c, "a repeated list is too long");
    }
    qn_jval out = v.kind == QN_J_LIST ? qn_jlist_new(c, (size_t)total) : qn_jtuple_new(c, (size_t)total);
    for (uint64_t i = 0; v.l->n > 0 && i < n; i++) {
        for (size_t k = 0; k < v.l->n; k++) {
            qn_jlist_push(c, out.l, v.l->item[k]);
        }
        qn_jtick(c, v.l->n);
    }
    return out;
}

static qn_jval join_lists(qn_jctx *c, qn_jval a, qn_jval b)
{
    size_t n = a.l->n + b.l->n;
    qn_jval out = a.kind == QN_J_LIST ? qn_jlist_new(c, n) : qn_jtuple_new(c, n);
    qn_jtick(c, n);
    for (size_t i = 0; i < n; i++) {
        qn_jlist_push(c, out.l, i < a.l->n ? a.l->item[i] : b.l->item[i - a.l->n]);
    }
    return out;
}

static qn_jval join_strings(qn_jctx *c, qn_jval a, qn_jval b)
{
    if (a.s->markup != b.s->markup) { /* what is not marked safe is escaped */
        a = qn_jescape(c, a);
        b = qn_jescape(c, b);
    }
    return qn_jstr_concat(c, a.s, b.s);
}

static bool is_list(qn_jval v)
{
    return v.kind == QN_J_LIST || v.kind == QN_J_TUPLE;
}

qn_jval qn_jbinary(qn_jctx *c, int op, qn_jval a, qn_jval b)
{
    double x, y;
    if (op == QN_OP_MOD && a.kind == QN_J_STR) {
        return qn_jformat_percent(c, a.s, b);
    }
    if (a.kind == QN_J_UNDEFINED || b.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, a.kind == QN_J_UNDEFINED ? a : b);
    }
    if (qn_jis_int(a) && qn_jis_int(b)) {
        return int_op(c, op, int_of(a), int_of(b));
    }
    if (qn_jnumber(a, &x) && qn_jnumber(b, &y)) {
        return float_op(c, op, x, y);
    }
    if (op == QN_OP_ADD && a.kind == QN_J_STR && b.kind == QN_J_STR) {
        return join_strings(c, a, b);
    }
    if (op == QN_OP_ADD && is_list(a) && a.kind == b.kind) {
        return join_lists(c, a, b);
    }
    if (op == QN_OP_MUL && (is_list(a) || a.kind == QN_J_STR) && qn_jis_int(b)) {
        return repeat(c, a, int_of(b));
    }
    if (op == QN_OP_MUL && (is_list(b) || b.kind == QN_J_STR) && qn_jis_int(a)) {
        return repeat(c, b, int_of(a));
    }
    if (op == QN_OP_ADD && a.kind == QN_J_STR) {
        qn_jfail(c, "can only concatenate str (not \"%s\") to str", qn_jtype(b));
    }
    qn_jfail(c, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), qn_jtype(a), qn_jtype(b));
}

qn_jval qn_junary(qn_jctx *c, int op, qn_jval a)
{
    if (a.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, a);
    }
    if (a.kind == QN_J_FLOAT) {
        return qn_jfloat(op == QN_OP_SUB ? -a.f : a.f);
    }
    if (!qn_jis_int(a)) {
        qn_jfail(c, "bad operand type for unary %s: '%s'", op_text(op), qn_jtype(a));
    }
    return op == QN_OP_SUB ? int_op(c, QN_OP_SUB, 0, int_of(a)) : qn_jint(int_of(a));
}
