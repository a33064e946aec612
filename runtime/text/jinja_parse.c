/* jinja_parse.c: statements, and what makes a template of a text. */
#include "text/jinja_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_SOURCE = 8 << 20, MAX_MEMORY = 512 << 20 };

void qn_jsyntax(qn_jparser *p, int line, const char *fmt, ...)
{
    char text[QN_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->c.line = line;
    qn_jfail(&p->c, "%s", text);
}

const qn_jstr *qn_jintern(qn_jparser *p, const char *name, size_t len)
{
    qn_jdict *d = p->t->names;
    qn_jval key = qn_jstr_new(&p->c, name, len, QN_ORIGIN_TEMPLATE);
    qn_jstr_chars(key.s);
    if (qn_jdict_get(&p->c, d, key) == NULL) {
        qn_jdict_set(&p->c, d, key, qn_jbool(false));
        return key.s;
    }
    for (size_t i = 0; d->slot == NULL && i < d->n; i++) {
        if (qn_jstr_eq(d->entry[i].key.s, key.s)) {
            return d->entry[i].key.s;
        }
    }
    uint64_t hash = qn_jhash(&p->c, key);
    size_t at = hash & d->mask;
    while (!qn_jstr_eq(d->entry[d->slot[at] - 1].key.s, key.s)) {
        at = (at + 1) & d->mask;
    }
    return d->entry[d->slot[at] - 1].key.s;
}

qn_jnode *qn_jnode_new(qn_jparser *p, qn_jnode_kind kind, int line)
{
    qn_jnode *n = qn_jalloc(&p->c, 1, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

const qn_jtoken *qn_jpeek(const qn_jparser *p, size_t ahead)
{
    size_t at = p->at + ahead;
    return &p->tok[at < p->n_tok ? at : p->n_tok - 1];
}

bool qn_jis_op(const qn_jparser *p, qn_jop op)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    return t->kind == QN_T_OP && t->op == op;
}

bool qn_jis_name(const qn_jparser *p, const char *name)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    return t->kind == QN_T_NAME && qn_jstr_is(t->value.s, name);
}

bool qn_jskip_op(qn_jparser *p, qn_jop op)
{
    bool is = qn_jis_op(p, op);
    p->at += is;
    return is;
}

bool qn_jskip_name(qn_jparser *p, const char *name)
{
    bool is = qn_jis_name(p, name);
    p->at += is;
    return is;
}

const char *qn_jdescribe(qn_jparser *p, const qn_jtoken *t)
{
    switch (t->kind) {
    case QN_T_DATA:
        return "template text";
    case QN_T_BLOCK_BEGIN:
        return "the beginning of a block";
    case QN_T_BLOCK_END:
        return "the end of the block";
    case QN_T_VAR_BEGIN:
        return "the beginning of an expression";
    case QN_T_VAR_END:
        return "the end of the expression";
    case QN_T_EOF:
        return "the end of the template";
    default:
        return qn_jsprintf(&p->c, "'%.*s'", t->len < 60 ? (int)t->len : 60, t->p);
    }
}

void qn_jexpect_op(qn_jparser *p, qn_jop op)
{
    static const char *const text[] = {
        [QN_OP_ASSIGN] = "=", [QN_OP_COLON] = ":",    [QN_OP_COMMA] = ",",  [QN_OP_LPAREN] = "(",
        [QN_OP_RPAREN] = ")", [QN_OP_RBRACKET] = "]", [QN_OP_RBRACE] = "}",
    };
    if (!qn_jskip_op(p, op)) {
        qn_jsyntax(p, qn_jpeek(p, 0)->line, "expected '%s', got %s", text[op],
                   qn_jdescribe(p, qn_jpeek(p, 0)));
    }
}

const qn_jtoken *qn_jexpect_name(qn_jparser *p)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    if (t->kind != QN_T_NAME) {
        qn_jsyntax(p, t->line, "expected a name, got %s", qn_jdescribe(p, t));
    }
    p->at++;
    return t;
}

static void expect(qn_jparser *p, qn_jtoken_kind kind, const char *what)
{
    const qn_jtoken *t = qn_jpeek(p, 0);
    if (t->kind != kind) {
        qn_jsyntax(p, t->line, "expected %s, got %s", what, qn_jdescribe(p, t));
    }
    p->at++;
}

static void expect_word(qn_jparser *p, const char *word)
{
    if (!qn_jskip_name(p, word)) {
        qn_jsyntax(p, qn_jpeek(p, 0)->line, "expected '%s', got %s", word, qn_jdescribe(p, qn_jpeek(p, 0)));
    }
}

static void check_unknown(qn_jparser *p)
{
    if (p->unknown != NULL) {
        qn_jsyntax(p, p->unknown_line, "%s", p->unknown);
    }
}

/* --- statements --- */

static qn_jnode *body(qn_jparser *p, const char *tag, const char *const *ends);

/* The body up to {% end %}, of which the name is skipped. */
static qn_jnode *body_to(qn_jparser *p, const char *tag, const char *end)
{
    const char *const ends[] = {end, NULL};
    qn_jnode *n = body(p, tag, ends);
    p->at++;
    return n;
}

/* The same in a scope of its own, which is no branch. */
static qn_jnode *inner_body(qn_jparser *p, const char *tag, const char *end)
{
    bool soft = p->soft;
    p->soft = false;
    qn_jnode *n = body_to(p, tag, end);
    p->soft = soft;
    return n;
}

/* The same as a function: loops around it do not count. */
static qn_jnode *function_body(qn_jparser *p, qn_jnode *macro, const char *tag, const char *end)
{
    qn_jnode *outer = p->macro;
    int loops = p->loops;
    p->macro = macro;
    p->loops = 0;
    qn_jnode *n = inner_body(p, tag, end);
    for (const qn_jnode *k = macro->kids; k != NULL; k = k->next) {
        if (k->name == p->t->caller_name && k->a == NULL && macro->uses[2]) {
            qn_jsyntax(p, macro->line,
                       "the special argument 'caller' of a macro must be left out or have a default");
        }
    }
    p->loops = loops;
    p->macro = outer;
    if (outer != NULL) { /* an inner macro's free names are read in the outer one too */
        for (int i = 0; i < 3; i++) {
            outer->uses[i] |= macro->uses[i];
        }
    }
    return n;
}

static void check_target(qn_jparser *p, const qn_jnode *n)
{
    static const char *const what[] = {
        [QN_N_CONST] = "const",
        [QN_N_LIST] = "list",
        [QN_N_DICT] = "dict",
    };
    for (const qn_jnode *k = n->kind == QN_N_TUPLE ? n->kids : NULL; k != NULL; k = k->next) {
        check_target(p, k);
    }
    if (n->kind != QN_N_NAME && n->kind != QN_N_TUPLE) {
        qn_jsyntax(p, n->line, "can't assign to '%s'",
                   n->kind <= QN_N_DICT && what[n->kind] != NULL ? what[n->kind] : "expression");
    }
}

qn_jnode *qn_jparse_target(qn_jparser *p, bool with_namespace)
{
    const qn_jtoken *t = qn_jpeek(p, 0), *next = qn_jpeek(p, 1);
    if (with_namespace && next->kind == QN_T_OP && next->op == QN_OP_DOT) {
        qn_jnode *n = qn_jnode_new(p, QN_N_NSREF, t->line);
        n->name = qn_jexpect_name(p)->value.s;
        p->at++;
        n->value = qn_jexpect_name(p)->value;
        return n;
    }
    p->storing = true;
    qn_jnode *n = qn_jparse_tuple(p, true, false, false);
    p->storing = false;
    check_target(p, n);
    return n;
}

static qn_jnode *set(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_SET, line);
    n->a = qn_jparse_target(p, true);
    if (qn_jskip_op(p, QN_OP_ASSIGN)) {
        n->b = qn_jparse_tuple(p, false, true, false);
        return n;
    }
    n->kind = QN_N_SETBLOCK;
    n->b = qn_jparse_filters(p, NULL, false);
    check_unknown(p);
    n->body = inner_body(p, "set", "endset");
    return n;
}

static void check_loop_target(qn_jparser *p, const qn_jnode *n)
{
    for (const qn_jnode *k = n->kids; k != NULL; k = k->next) {
        check_loop_target(p, k);
    }
    if (n->name == p->t->loop_name) {
        qn_jsyntax(p, n->line, "can't assign to the special loop variable in a for-loop target");
    }
}

static qn_jnode *for_(qn_jparser *p, int line)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    qn_jnode *n = qn_jnode_new(p, QN_N_FOR, line);
    n->a = qn_jparse_target(p, false);
    check_loop_target(p, n->a);
    expect_word(p, "in");
    n->b = qn_jparse_tuple(p, false, false, false);
    n->c = qn_jskip_name(p, "if") ? qn_jparse_expression(p, true) : NULL;
    n->flag = qn_jskip_name(p, "recursive");
    check_unknown(p);
    bool soft = p->soft;
    p->soft = false;
    p->loops++;
    n->body = body(p, "for", ends);
    p->loops--;
    p->soft = soft;
    if (qn_jskip_name(p, "else")) {
        n->orelse = inner_body(p, "for", "endfor");
    } else {
        p->at++;
    }
    return n;
}

static qn_jnode *if_(qn_jparser *p, int line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    qn_jnode *first = NULL, **at = &first;
    bool soft = p->soft;
    p->soft = true;
    do {
        qn_jnode *n = qn_jnode_new(p, QN_N_IF, line);
        n->a = qn_jparse_tuple(p, false, false, false);
        n->body = body(p, "if", ends);
        *at = n;
        at = &n->c;
        line = qn_jpeek(p, 0)->line;
    } while (qn_jskip_name(p, "elif"));
    if (qn_jskip_name(p, "else")) {
        qn_jnode *n = qn_jnode_new(p, QN_N_IF, line); /* without condition: always */
        n->body = body_to(p, "if", "endif");
        *at = n;
    } else {
        p->at++;
    }
    p->soft = soft;
    return first;
}

static void signature(qn_jparser *p, qn_jnode *n)
{
    qn_jnode **tail = &n->kids;
    qn_jexpect_op(p, QN_OP_LPAREN);
    bool optional = false;
    while (!qn_jis_op(p, QN_OP_RPAREN)) {
        if (n->n_kids > 0) {
            qn_jexpect_op(p, QN_OP_COMMA);
        }
        const qn_jtoken *t = qn_jexpect_name(p);
        qn_jnode *param = qn_jnode_new(p, QN_N_NAME, t->line);
        param->name = t->value.s;
        if (qn_jskip_op(p, QN_OP_ASSIGN)) {
            param->a = qn_jparse_expression(p, true);
            optional = true;
        } else if (optional) {
            qn_jsyntax(p, t->line, "non-default argument follows default argument");
        }
        qn_jadd(&tail, param);
        n->n_kids++;
    }
    p->at++;
}

static qn_jnode *macro(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_MACRO, line);
    n->name = qn_jexpect_name(p)->value.s;
    signature(p, n);
    check_unknown(p);
    n->body = function_body(p, n, "macro", "endmacro");
    return n;
}

static qn_jnode *call_block(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_CALLBLOCK, line);
    if (qn_jis_op(p, QN_OP_LPAREN)) {
        signature(p, n);
    }
    n->a = qn_jparse_expression(p, true);
    if (n->a->kind != QN_N_CALL) {
        qn_jsyntax(p, line, "expected a call");
    }
    check_unknown(p);
    n->body = function_body(p, n, "call", "endcall");
    return n;
}

static qn_jnode *filter_block(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_FILTERBLOCK, line);
    n->b = qn_jparse_filters(p, NULL, true);
    check_unknown(p);
    n->body = inner_body(p, "filter", "endfilter");
    return n;
}

static qn_jnode *with(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_WITH, line), **tail = &n->kids;
    while (qn_jpeek(p, 0)->kind != QN_T_BLOCK_END) {
        if (n->n_kids > 0) {
            qn_jexpect_op(p, QN_OP_COMMA);
        }
        qn_jnode *k = qn_jnode_new(p, QN_N_KEYWORD, qn_jpeek(p, 0)->line);
        k->b = qn_jparse_target(p, false);
        qn_jexpect_op(p, QN_OP_ASSIGN);
        k->a = qn_jparse_expression(p, true);
        qn_jadd(&tail, k);
        n->n_kids++;
    }
    check_unknown(p);
    n->body = inner_body(p, "with", "endwith");
    return n;
}

static qn_jnode *print(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_OUTPUT, line), **tail = &n->kids;
    while (qn_jpeek(p, 0)->kind != QN_T_BLOCK_END) {
        if (n->n_kids > 0) {
            qn_jexpect_op(p, QN_OP_COMMA);
        }
        qn_jadd(&tail, qn_jparse_expression(p, true));
        n->n_kids++;
    }
    return n;
}

/* Marks the assistant's text for training; it is a function without a name. */
static qn_jnode *generation(qn_jparser *p, int line)
{
    qn_jnode *n = qn_jnode_new(p, QN_N_SCOPE, line);
    n->body = function_body(p, n, "generation", "endgeneration");
    return n;
}

static qn_jnode *jump(qn_jparser *p, int line, qn_jnode_kind kind)
{
    if (p->loops == 0) {
        qn_jsyntax(p, line, "'%s' outside of a loop", kind == QN_N_BREAK ? "break" : "continue");
    }
    return qn_jnode_new(p, kind, line);
}

static qn_jnode *break_(qn_jparser *p, int line)
{
    return jump(p, line, QN_N_BREAK);
}

static qn_jnode *continue_(qn_jparser *p, int line)
{
    return jump(p, line, QN_N_CONTINUE);
}

static qn_jnode *statement(qn_jparser *p, const char *open)
{
    static const struct {
        const char *tag;
        qn_jnode *(*parse)(qn_jparser *, int); /* NULL: Jinja has it, quern has not */
    } tags[] = {
        {"if", if_},
        {"for", for_},
        {"set", set},
        {"macro", macro},
        {"call", call_block},
        {"filter", filter_block},
        {"with", with},
        {"print", print},
        {"break", break_},
        {"continue", continue_},
        {"generation", generation},
        {"block", NULL},
        {"extends", NULL},
        {"include", NULL},
        {"import", NULL},
        {"from", NULL},
        {"autoescape", NULL},
        {"do", NULL},
        {"trans", NULL},
        {"debug", NULL},
    };
    const qn_jtoken *t = qn_jexpect_name(p);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!qn_jstr_is(t->value.s, tags[i].tag)) {
            continue;
        }
        if (tags[i].parse == NULL) {
            qn_jsyntax(p, t->line, "the tag '%s' is not supported", tags[i].tag);
        }
        qn_jnode *n = tags[i].parse(p, t->line);
        check_unknown(p);
        return n;
    }
    if (open != NULL) {
        qn_jsyntax(p, t->line, "unknown tag '%.*s'; the innermost open block is '%s'", (int)t->len, t->p,
                   open);
    }
    qn_jsyntax(p, t->line, "unknown tag '%.*s'", (int)t->len, t->p);
}

static bool at_end(const qn_jparser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (qn_jis_name(p, *ends)) {
            return true;
        }
    }
    return false;
}

/* Text and statements up to one of the tags `ends` (left at its name), or the end of the template. */
static qn_jnode *statements(qn_jparser *p, const char *open, const char *const *ends)
{
    qn_jnode *list = NULL, **tail = &list;
    int begun = qn_jpeek(p, 0)->line;
    for (;;) {
        const qn_jtoken *t = qn_jpeek(p, 0);
        qn_jnode *n;
        if (t->kind == QN_T_EOF) {
            if (ends != NULL) {
                qn_jsyntax(p, begun, "the block '%s' is not closed", open);
            }
            return list;
        }
        p->at++;
        switch (t->kind) {
        case QN_T_DATA:
            n = qn_jnode_new(p, QN_N_OUTPUT, t->line);
            n->kids = qn_jnode_new(p, QN_N_CONST, t->line);
            n->kids->value = t->value;
            break;
        case QN_T_VAR_BEGIN:
            n = qn_jnode_new(p, QN_N_OUTPUT, t->line);
            n->kids = qn_jparse_tuple(p, false, true, false);
            check_unknown(p);
            expect(p, QN_T_VAR_END, "'}}'");
            break;
        default: /* the lexer gives nothing else here but QN_T_BLOCK_BEGIN */
            if (at_end(p, ends)) {
                return list;
            }
            n = statement(p, open);
            expect(p, QN_T_BLOCK_END, "'%}'");
        }
        qn_jadd(&tail, n);
    }
}

static qn_jnode *body(qn_jparser *p, const char *tag, const char *const *ends)
{
    (void)qn_jskip_op(p, QN_OP_COLON);
    expect(p, QN_T_BLOCK_END, "'%}'");
    qn_jnest(p);
    qn_jnode *n = statements(p, tag, ends);
    p->nesting--;
    return n;
}

void qn_jparse_template(qn_jparser *p)
{
    p->t->body = statements(p, NULL, NULL);
}

/* --- the public face --- */

int qn_jinja_parse(qn_jinja **out, const char *label, const char *source, size_t len, qn_err *err)
{
    *out = NULL;
    if (len > MAX_SOURCE) {
        return qn_fail(err, "%s: a template of %zu bytes, more than %d", label, len, MAX_SOURCE);
    }
    qn_jinja *t = qn_calloc(1, sizeof *t);
    qn_jparser *p = qn_calloc(1, sizeof *p);
    if (t == NULL || p == NULL || (t->label = qn_arena_strndup(&t->arena, label, strlen(label))) == NULL) {
        free(t);
        free(p);
        return qn_fail(err, "%s: out of memory", label);
    }
    p->t = t;
    p->c.err = err;
    p->c.label = t->label;
    p->c.line = 1;
    p->c.limits = (qn_jinja_limits){.steps = UINT64_MAX, .memory = MAX_MEMORY, .depth = 1000};
    int rc = 0;
    if (setjmp(p->c.fail) == 0) {
        t->names = qn_jdict_new(&p->c).d;
        t->loop_name = qn_jintern(p, "loop", 4);
        t->caller_name = qn_jintern(p, "caller", 6);
        t->varargs_name = qn_jintern(p, "varargs", 7);
        t->kwargs_name = qn_jintern(p, "kwargs", 6);
        qn_jlex(p, source, len);
        qn_jparse_template(p);
    } else {
        rc = -1;
    }
    /* Nodes and constants live in the parser's arena, which the template takes over. */
    qn_arena label_only = t->arena;
    t->arena = p->c.arena;
    t->labels = label_only;
    free(p);
    if (rc != 0) {
        qn_jinja_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void qn_jinja_free(qn_jinja *t)
{
    if (t != NULL) {
        qn_arena_free(&t->arena);
        qn_arena_free(&t->labels);
        free(t);
    }
}

bool qn_jinja_reads(const qn_jinja *t, const char *name)
{
    for (size_t i = 0; i < t->names->n; i++) {
        const qn_jentry *e = &t->names->entry[i];
        if (e->value.b && qn_jstr_is(e->key.s, name)) {
            return true;
        }
    }
    return false;
}
