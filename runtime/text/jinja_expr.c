/* jinja_expr.c: the expression grammar, one function a level of precedence. */
#include "text/jinja_internal.h"

#include <stdio.h>

enum { MAX_NESTING = 200 };

void qn_jnest(qn_jparser *p)
{
    if (++p->nesting > MAX_NESTING) {
        qn_jsyntax(p, qn_jpeek(p, 0)->line, "nested too deeply (limit %d)", MAX_NESTING);
    }
}

static int line_of(const qn_jparser *p)
{
    return qn_jpeek(p, 0)->line;
}

static qn_jnode *unary_node(qn_jparser *p, qn_jnode_kind kind, int line, qn_jnode *a)
{
    qn_jnode *n = qn_jnode_new(p, kind, line);
    n->a = a;
    return n;
}

static qn_jnode *binary_node(qn_jparser *p, qn_jnode_kind kind, int op, int line, qn_jnode *a, qn_jnode *b)
{
    qn_jnode *n = unary_node(p, kind, line, a);
    n->op = (uint8_t)op;
    n->b = b;
    return n;
}

void qn_jadd(qn_jnode ***tail, qn_jnode *n)
{
    **tail = n;
    *tail = &n->next;
}

/* --- primaries --- */

static qn_jnode *constant(qn_jparser *p, int line, qn_jval v)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_CONST, line);
    n->value = v;
    return n;
}

static qn_jnode *name_or_constant(qn_jparser *p, const qn_jtoken *t)
{
    const qn_jstr *s = t->value.s;
    p->at++;
    if (qn_jstr_is(s, "true") || qn_jstr_is(s, "True")) {
        return constant(p, t->line, qn_jbool(true));
    }
    if (qn_jstr_is(s, "false") || qn_jstr_is(s, "False")) {
        return constant(p, t->line, qn_jbool(false));
    }
    if (qn_jstr_is(s, "none") || qn_jstr_is(s, "None")) {
        return constant(p, t->line, qn_jnone());
    }
    qn_jnode *n = qn_jnode_new(p, QN_N_NAME, t->line);
    n->name = s;
    if (p->storing) {
        return n;
    }
    if (p->macro != NULL) {
        p->macro->uses[0] |= qn_jstr_is(s, "varargs");
        p->macro->uses[1] |= qn_jstr_is(s, "kwargs");
        p->macro->uses[2] |= qn_jstr_is(s, "caller");
    }
    qn_jdict_set(&p->c, p->t->names, t->value, qn_jbool(true));
    return n;
}

/* Neighbouring string literals are one. */
static qn_jnode *strings(qn_jparser *p)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    qn_jval v = t->value;
    for (p->at++; qn_jpeek(p, 0)->kind == QN_T_STR; p->at++) {
        qn_jbuf *b = qn_jbuf_new(&p->c, 0);
        qn_jbuf_str(&p->c, b, v.s);
        qn_jbuf_str(&p->c, b, qn_jpeek(p, 0)->value.s);
        v = qn_jstr_new(&p->c, b->data, b->len, QN_ORIGIN_TEMPLATE);
        qn_jstr_chars(v.s);
    }
    return constant(p, t->line, v);
}

/* The items of a list or dict display up to its bracket. */
static qn_jnode *display(qn_jparser *p, qn_jnode_kind kind, qn_jop close)
{
    qn_jnode *n = qn_jnode_new(p, kind, line_of(p));
    qn_jnode **tail = &n->kids;
    p->at++;
    while (!qn_jis_op(p, close)) {
        if (n->n_kids > 0) {
            qn_jexpect_op(p, QN_OP_COMMA);
            if (qn_jis_op(p, close)) {
                break;
            }
        }
        qn_jadd(&tail, qn_jparse_expression(p, true));
        if (kind == QN_N_DICT) {
            qn_jexpect_op(p, QN_OP_COLON);
            qn_jadd(&tail, qn_jparse_expression(p, true));
        }
        n->n_kids++;
    }
    p->at++;
    return n;
}

qn_jnode *qn_jparse_primary(qn_jparser *p)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    qn_jnode *n;
    switch (t->kind) {
    case QN_T_NAME:
        return name_or_constant(p, t);
    case QN_T_STR:
        return strings(p);
    case QN_T_INT:
    case QN_T_FLOAT:
        p->at++;
        return constant(p, t->line, t->value);
    case QN_T_OP:
        break;
    default:
        qn_jsyntax(p, t->line, "unexpected %s", qn_jdescribe(p, t));
    }
    qn_jnest(p);
    switch (t->op) {
    case QN_OP_LPAREN:
        p->at++;
        n = qn_jparse_tuple(p, false, true, true);
        qn_jexpect_op(p, QN_OP_RPAREN);
        break;
    case QN_OP_LBRACKET:
        n = display(p, QN_N_LIST, QN_OP_RBRACKET);
        break;
    case QN_OP_LBRACE:
        n = display(p, QN_N_DICT, QN_OP_RBRACE);
        break;
    default:
        qn_jsyntax(p, t->line, "unexpected %s", qn_jdescribe(p, t));
    }
    p->nesting--;
    return n;
}

static bool tuple_end(const qn_jparser *p)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    return t->kind == QN_T_VAR_END || t->kind == QN_T_BLOCK_END || qn_jis_op(p, QN_OP_RPAREN);
}

qn_jnode *qn_jparse_tuple(qn_jparser *p, bool simplified, bool condexpr, bool parens)
{
    int line = line_of(p);
    qn_jnode *list = NULL, **tail = &list;
    size_t n = 0;
    bool is_tuple = false;
    for (;;) {
        if (n > 0) {
            qn_jexpect_op(p, QN_OP_COMMA);
        }
        if (tuple_end(p)) {
            break;
        }
        qn_jadd(&tail, simplified ? qn_jparse_primary(p) : qn_jparse_expression(p, condexpr));
        n++;
        if (!qn_jis_op(p, QN_OP_COMMA)) {
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple && n > 0) {
        return list;
    }
    if (!is_tuple && !parens) {
        qn_jsyntax(p, line_of(p), "expected an expression, got %s", qn_jdescribe(p, qn_jpeek(p, 0)));
    }
    qn_jnode *t = qn_jnode_new(p, QN_N_TUPLE, line);
    t->kids = list;
    t->n_kids = n;
    return t;
}

/* --- behind a primary: attributes, subscripts, calls, filters, tests --- */

void qn_jparse_call_args(qn_jparser *p, qn_jnode *n)
{
    int line = line_of(p);
    qn_jnode **kids = &n->kids, **kw = &n->kw;
    qn_jexpect_op(p, QN_OP_LPAREN);
    for (bool first = true; !qn_jis_op(p, QN_OP_RPAREN); first = false) {
        if (!first) {
            qn_jexpect_op(p, QN_OP_COMMA);
            if (qn_jis_op(p, QN_OP_RPAREN)) {
                break;
            }
        }
        const qn_jtoken *t = qn_jpeek(p, 0), *next = qn_jpeek(p, 1);
        bool keyword = t->kind == QN_T_NAME && next->kind == QN_T_OP && next->op == QN_OP_ASSIGN, ok = true;
        if (qn_jskip_op(p, QN_OP_MUL)) {
            ok = n->b == NULL && n->c == NULL;
            n->b = qn_jparse_expression(p, true);
        } else if (qn_jskip_op(p, QN_OP_POW)) {
            ok = n->c == NULL;
            n->c = qn_jparse_expression(p, true);
        } else if (keyword) {
            ok = n->c == NULL;
            p->at += 2;
            qn_jnode *k = unary_node(p, QN_N_KEYWORD, t->line, qn_jparse_expression(p, true));
            k->name = t->value.s;
            qn_jadd(&kw, k);
            n->n_kw++;
        } else {
            ok = n->b == NULL && n->c == NULL && n->n_kw == 0;
            qn_jadd(&kids, qn_jparse_expression(p, true));
            n->n_kids++;
        }
        if (!ok) {
            qn_jsyntax(p, line, "invalid syntax for function call expression");
        }
    }
    p->at++;
}

static qn_jnode *subscribed(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *a = NULL;
    if (!qn_jis_op(p, QN_OP_COLON)) {
        a = qn_jparse_expression(p, true);
        if (!qn_jis_op(p, QN_OP_COLON)) {
            return a;
        }
    }
    qn_jnode *n = unary_node(p, QN_N_SLICE, line, a);
    p->at++;
    if (!qn_jis_op(p, QN_OP_COLON) && !qn_jis_op(p, QN_OP_RBRACKET) && !qn_jis_op(p, QN_OP_COMMA)) {
        n->b = qn_jparse_expression(p, true);
    }
    if (qn_jskip_op(p, QN_OP_COLON) && !qn_jis_op(p, QN_OP_RBRACKET) && !qn_jis_op(p, QN_OP_COMMA)) {
        n->c = qn_jparse_expression(p, true);
    }
    return n;
}

static qn_jnode *subscript(qn_jparser *p, qn_jnode *of)
{
    int line = line_of(p);
    qn_jnode *list = NULL, **tail = &list;
    if (qn_jskip_op(p, QN_OP_DOT)) {
        const qn_jtoken *t = qn_jpeek(p, 0);
        p->at++;
        if (t->kind == QN_T_NAME) {
            qn_jnode *n = unary_node(p, QN_N_GETATTR, line, of);
            n->name = t->value.s;
            return n;
        }
        if (t->kind != QN_T_INT) {
            qn_jsyntax(p, t->line, "expected a name or number behind '.', got %s", qn_jdescribe(p, t));
        }
        return binary_node(p, QN_N_GETITEM, 0, line, of, constant(p, t->line, t->value));
    }
    size_t n = 0;
    for (p->at++; !qn_jis_op(p, QN_OP_RBRACKET); n++) {
        if (n > 0) {
            qn_jexpect_op(p, QN_OP_COMMA);
        }
        qn_jadd(&tail, subscribed(p));
    }
    p->at++;
    if (n != 1) {
        qn_jnode *t = qn_jnode_new(p, QN_N_TUPLE, line);
        t->kids = list;
        t->n_kids = n;
        list = t;
    }
    return binary_node(p, QN_N_GETITEM, 0, line, of, list);
}

static qn_jnode *call(qn_jparser *p, qn_jnode *callee)
{
    qn_jnode *n = unary_node(p, QN_N_CALL, line_of(p), callee);
    qn_jparse_call_args(p, n);
    return n;
}

static qn_jnode *postfix(qn_jparser *p, qn_jnode *n)
{
    for (;;) {
        if (qn_jis_op(p, QN_OP_DOT) || qn_jis_op(p, QN_OP_LBRACKET)) {
            n = subscript(p, n);
        } else if (qn_jis_op(p, QN_OP_LPAREN)) {
            n = call(p, n);
        } else {
            return n;
        }
    }
}

/* "name" or "a.b.c" of a filter or test. */
static const qn_jtoken *dotted(qn_jparser *p, qn_jnode *n)
{
    const qn_jtoken *t = qn_jexpect_name(p);
    n->name = t->value.s;
    while (qn_jskip_op(p, QN_OP_DOT)) {
        const qn_jtoken *part = qn_jexpect_name(p);
        const char *name =
            qn_jsprintf(&p->c, "%.*s.%.*s", (int)n->name->len, n->name->p, (int)part->len, part->p);
        n->name = qn_jintern(p, name, strlen(name));
    }
    return t;
}

/* Remembers an unknown filter or test; the statement that it stands in fails, unless it is in a branch. */
static void unknown(qn_jparser *p, int line, const char *fmt, const qn_jstr *name)
{
    if (!p->soft && p->unknown == NULL) {
        p->unknown = qn_jsprintf(&p->c, fmt, (int)name->len, name->p);
        p->unknown_line = line;
    }
}

qn_jnode *qn_jparse_filters(qn_jparser *p, qn_jnode *value, bool inline_first)
{
    while (inline_first || qn_jskip_op(p, QN_OP_PIPE)) {
        qn_jnode *n = unary_node(p, QN_N_FILTER, line_of(p), value);
        const qn_jtoken *t = dotted(p, n);
        n->func = qn_jfilter_find(n->name->p, n->name->len);
        if (n->func == NULL) {
            bool known = qn_jfilter_known(n->name->p, n->name->len);
            unknown(p, t->line, known ? "the filter '%.*s' is not supported" : "no filter named '%.*s'",
                    n->name);
        }
        if (qn_jis_op(p, QN_OP_LPAREN)) {
            qn_jparse_call_args(p, n);
        }
        value = n;
        inline_first = false;
    }
    return value;
}

/* Whether what follows a test's name is its argument: `is divisibleby 3`. */
static bool test_argument(const qn_jparser *p)
{
    switch (qn_jpeek(p, 0)->kind) {
    case QN_T_NAME:
        return !qn_jis_name(p, "else") && !qn_jis_name(p, "or") && !qn_jis_name(p, "and");
    case QN_T_STR:
    case QN_T_INT:
    case QN_T_FLOAT:
        return true;
    default:
        return qn_jis_op(p, QN_OP_LBRACKET) || qn_jis_op(p, QN_OP_LBRACE);
    }
}

static qn_jnode *test(qn_jparser *p, qn_jnode *value)
{
    int line = line_of(p);
    p->at++;
    bool negated = qn_jskip_name(p, "not");
    qn_jnode *n = unary_node(p, QN_N_TEST, line, value);
    const qn_jtoken *t = dotted(p, n);
    n->func = qn_jtest_find(n->name->p, n->name->len);
    if (n->func == NULL) {
        unknown(p, t->line, "no test named '%.*s'", n->name);
    }
    if (qn_jis_op(p, QN_OP_LPAREN)) {
        qn_jparse_call_args(p, n);
    } else if (test_argument(p)) {
        if (qn_jis_name(p, "is")) {
            qn_jsyntax(p, line_of(p), "tests cannot be chained with is");
        }
        n->kids = postfix(p, qn_jparse_primary(p));
        n->n_kids = 1;
    }
    return negated ? unary_node(p, QN_N_NOT, line, n) : n;
}

static qn_jnode *filter_expr(qn_jparser *p, qn_jnode *n)
{
    for (;;) {
        if (qn_jis_op(p, QN_OP_PIPE)) {
            n = qn_jparse_filters(p, n, false);
        } else if (qn_jis_name(p, "is")) {
            n = test(p, n);
        } else if (qn_jis_op(p, QN_OP_LPAREN)) {
            n = call(p, n);
        } else {
            return n;
        }
    }
}

/* --- operators, tightest first --- */

static qn_jnode *unary(qn_jparser *p, bool with_filter)
{
    int line = line_of(p);
    qn_jnode *n;
    qn_jnest(p);
    if (qn_jis_op(p, QN_OP_SUB) || qn_jis_op(p, QN_OP_ADD)) {
        int op = qn_jpeek(p, 0)->op;
        p->at++;
        n = unary_node(p, QN_N_UNARY, line, unary(p, false));
        n->op = (uint8_t)op;
    } else {
        n = qn_jparse_primary(p);
    }
    n = postfix(p, n);
    p->nesting--;
    return with_filter ? filter_expr(p, n) : n;
}

static bool op_in(const qn_jparser *p, qn_jop from, qn_jop to)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    return t->kind == QN_T_OP && t->op >= from && t->op <= to;
}

static qn_jnode *power(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *n = unary(p, true);
    while (qn_jskip_op(p, QN_OP_POW)) {
        n = binary_node(p, QN_N_BINARY, QN_OP_POW, line, n, unary(p, true));
    }
    return n;
}

static qn_jnode *product(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *n = power(p);
    while (op_in(p, QN_OP_MUL, QN_OP_MOD)) {
        int op = qn_jpeek(p, 0)->op;
        p->at++;
        n = binary_node(p, QN_N_BINARY, op, line, n, power(p));
    }
    return n;
}

static qn_jnode *concat(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *first = product(p);
    if (!qn_jis_op(p, QN_OP_TILDE)) {
        return first;
    }
    qn_jnode *n = qn_jnode_new(p, QN_N_CONCAT, line), **tail = &n->kids;
    qn_jadd(&tail, first);
    while (qn_jskip_op(p, QN_OP_TILDE)) {
        qn_jadd(&tail, product(p));
    }
    return n;
}

static qn_jnode *sum(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *n = concat(p);
    while (op_in(p, QN_OP_ADD, QN_OP_SUB)) {
        int op = qn_jpeek(p, 0)->op;
        p->at++;
        n = binary_node(p, QN_N_BINARY, op, line, n, concat(p));
    }
    return n;
}

/* -1: no comparison follows; else its operator, of which the tokens are skipped. */
static int compare_op(qn_jparser *p)
{
    const qn_jtoken *next = qn_jpeek(p, 1);
    if (op_in(p, QN_OP_EQ, QN_OP_GE)) {
        return p->tok[p->at++].op;
    }
    if (qn_jskip_name(p, "in")) {
        return QN_OP_IN;
    }
    if (qn_jis_name(p, "not") && next->kind == QN_T_NAME && qn_jstr_is(next->value.s, "in")) {
        p->at += 2;
        return QN_OP_NOTIN;
    }
    return -1;
}

static qn_jnode *compare(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *first = sum(p), *list = NULL, **tail = &list;
    for (int op; (op = compare_op(p)) >= 0;) {
        qn_jnode *o = unary_node(p, QN_N_OPERAND, line, sum(p));
        o->op = (uint8_t)op;
        qn_jadd(&tail, o);
    }
    if (list == NULL) {
        return first;
    }
    qn_jnode *n = unary_node(p, QN_N_COMPARE, line, first);
    n->kids = list;
    return n;
}

static qn_jnode *not_(qn_jparser *p)
{
    int line = line_of(p);
    if (!qn_jskip_name(p, "not")) {
        return compare(p);
    }
    qn_jnest(p);
    qn_jnode *n = unary_node(p, QN_N_NOT, line, not_(p));
    p->nesting--;
    return n;
}

static qn_jnode *and_(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *n = not_(p);
    while (qn_jskip_name(p, "and")) {
        n = binary_node(p, QN_N_AND, 0, line, n, not_(p));
    }
    return n;
}

static qn_jnode *or_(qn_jparser *p)
{
    int line = line_of(p);
    qn_jnode *n = and_(p);
    while (qn_jskip_name(p, "or")) {
        n = binary_node(p, QN_N_OR, 0, line, n, and_(p));
    }
    return n;
}

qn_jnode *qn_jparse_expression(qn_jparser *p, bool condexpr)
{
    int line = line_of(p);
    if (!condexpr) {
        return or_(p);
    }
    qn_jnest(p);
    const char *unknown = p->unknown;
    qn_jnode *n = or_(p);
    while (qn_jskip_name(p, "if")) {
        qn_jnode *cond = unary_node(p, QN_N_COND, line, n);
        cond->b = or_(p);
        cond->c = qn_jskip_name(p, "else") ? qn_jparse_expression(p, true) : NULL;
        n = cond;
        p->unknown = unknown; /* all of this was in branches */
    }
    p->nesting--;
    return n;
}
