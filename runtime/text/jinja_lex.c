/* jinja_lex.c: template text to tokens, with trim_blocks and lstrip_blocks. */
#include "text/jinja_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/utf8.h"

typedef struct lexer {
    qn_jparser *p;
    char *s; /* newlines are \n; NUL behind */
    size_t n, at;
    int line;
    bool line_starting; /* nothing but what was cut stands on this line yet */
} lexer;

static const struct {
    const char *text;
    qn_jop op;
} operators[] = {
    /* the longer first */
    {"//", QN_OP_FLOORDIV}, {"**", QN_OP_POW},      {"==", QN_OP_EQ},    {"!=", QN_OP_NE},
    {">=", QN_OP_GE},       {"<=", QN_OP_LE},       {"+", QN_OP_ADD},    {"-", QN_OP_SUB},
    {"/", QN_OP_DIV},       {"*", QN_OP_MUL},       {"%", QN_OP_MOD},    {"~", QN_OP_TILDE},
    {"[", QN_OP_LBRACKET},  {"]", QN_OP_RBRACKET},  {"(", QN_OP_LPAREN}, {")", QN_OP_RPAREN},
    {"{", QN_OP_LBRACE},    {"}", QN_OP_RBRACE},    {">", QN_OP_GT},     {"<", QN_OP_LT},
    {"=", QN_OP_ASSIGN},    {".", QN_OP_DOT},       {":", QN_OP_COLON},  {"|", QN_OP_PIPE},
    {",", QN_OP_COMMA},     {";", QN_OP_SEMICOLON},
};

static qn_jtoken *push(lexer *x, qn_jtoken_kind kind, size_t at, size_t len)
{
    qn_jparser *p = x->p;
    if (p->n_tok == p->cap_tok) {
        size_t cap = p->cap_tok > 0 ? 2 * p->cap_tok : 256;
        qn_jtoken *tok = qn_jalloc(&p->c, cap, sizeof *tok);
        if (p->n_tok > 0) {
            memcpy(tok, p->tok, p->n_tok * sizeof *tok);
        }
        p->tok = tok;
        p->cap_tok = cap;
    }
    qn_jtoken *t = &p->tok[p->n_tok++];
    *t = (qn_jtoken){.kind = kind, .line = x->line, .p = x->s + at, .len = len};
    return t;
}

/* A constant; its characters are counted now, because templates are read by several threads. */
static qn_jval constant(lexer *x, const char *p, size_t len)
{
    qn_jval v = qn_jstr_new(&x->p->c, p, len, QN_ORIGIN_TEMPLATE);
    qn_jstr_chars(v.s);
    return v;
}

static bool has(const lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return at <= x->n && n <= x->n - at && memcmp(x->s + at, text, n) == 0;
}

static void advance(lexer *x, size_t to)
{
    for (; x->at < to; x->at++) {
        x->line += x->s[x->at] == '\n';
    }
}

static size_t skip_space(const lexer *x, size_t at)
{
    size_t len;
    while (at < x->n && qn_jspace(qn_jchar(x->s + at, x->n - at, &len))) {
        at += len;
    }
    return at;
}

/* Where the white space before `end` begins. */
static size_t before_space(const lexer *x, size_t begin, size_t end)
{
    while (end > begin) {
        size_t k = end - 1, len;
        while (k > begin && end - k < 4 && ((unsigned char)x->s[k] & 0xc0) == 0x80) {
            k--;
        }
        if (!qn_jspace(qn_jchar(x->s + k, end - k, &len)) || k + len != end) {
            break;
        }
        end = k;
    }
    return end;
}

/* Text [x->at, tag) as a data token, cut as the tag's sign and lstrip_blocks say. */
static void data(lexer *x, size_t tag, char sign, bool variable)
{
    size_t begin = x->at, end = tag;
    if (sign == '-') {
        end = before_space(x, begin, tag);
    } else if (sign != '+' && !variable) {
        size_t line = tag;
        while (line > begin && x->s[line - 1] != '\n') {
            line--;
        }
        if ((line > begin || x->line_starting) && before_space(x, line, tag) == line) {
            end = line;
        }
    }
    if (end > begin) {
        push(x, QN_T_DATA, begin, end - begin)->value = constant(x, x->s + begin, end - begin);
    }
    advance(x, tag);
}

/* After the closing delimiter at `at` (which a sign may precede): where text goes on. trim: a newline there
 * goes too. 0: no closing delimiter is there. */
static size_t closing(const lexer *x, size_t at, const char *close, bool plus, bool trim)
{
    if (has(x, at, "-") && has(x, at + 1, close)) {
        return skip_space(x, at + 3);
    }
    if (plus && has(x, at, "+") && has(x, at + 1, close)) {
        return at + 3;
    }
    if (has(x, at, close)) {
        return at + 2 + (trim && x->s[at + 2] == '\n');
    }
    return 0;
}

static void go_on(lexer *x, size_t to)
{
    x->line_starting = to > 0 && x->s[to - 1] == '\n';
    advance(x, to);
}

static void comment(lexer *x, size_t at)
{
    for (size_t k = at; k < x->n; k++) {
        size_t end = closing(x, k, "#}", true, true);
        if (end > 0) {
            go_on(x, end);
            return;
        }
    }
    qn_jsyntax(x->p, x->line, "missing end of comment tag");
}

/* Whether `{%` at `at` (behind it and its sign) opens `word`; where its tag ends. */
static size_t word_tag(const lexer *x, size_t at, const char *word, bool end_tag)
{
    at = skip_space(x, at);
    if (!has(x, at, word)) {
        return 0;
    }
    return closing(x, skip_space(x, at + strlen(word)), "%}", end_tag, end_tag);
}

static void raw(lexer *x, size_t at)
{
    go_on(x, at);
    for (size_t k = at; k + 1 < x->n; k++) {
        if (!has(x, k, "{%")) {
            continue;
        }
        char sign = x->s[k + 2] == '-' || x->s[k + 2] == '+' ? x->s[k + 2] : 0;
        size_t end = word_tag(x, k + 2 + (sign != 0), "endraw", true);
        if (end > 0) {
            data(x, k, sign, false);
            go_on(x, end);
            return;
        }
    }
    qn_jsyntax(x->p, x->line, "missing end of raw block");
}

/* --- inside of tags --- */

static bool name_char(unsigned char ch)
{
    return isalnum(ch) || ch == '_' || ch >= 0x80;
}

/* Digits with single underscores between them; where they end. */
static size_t digits(const lexer *x, size_t at, int base)
{
    for (;;) {
        size_t k = at + (x->s[at] == '_');
        bool ok = base == 16 ? isxdigit((unsigned char)x->s[k]) != 0 : x->s[k] >= '0' && x->s[k] < '0' + base;
        if (!ok) {
            return at;
        }
        at = k + 1;
    }
}

/* The text of a number without underscores. */
static char *bare(lexer *x, size_t at, size_t end)
{
    char *out = qn_jalloc(&x->p->c, end - at + 1, 1);
    size_t n = 0;
    for (; at < end; at++) {
        if (x->s[at] != '_') {
            out[n++] = x->s[at];
        }
    }
    return out;
}

static size_t integer(lexer *x, size_t at)
{
    char kind = (char)tolower((unsigned char)x->s[at + 1]);
    int base = x->s[at] != '0' ? 10 : kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    size_t begin = at + (base == 10 ? 0 : 2), end = digits(x, begin, base);
    if (base != 10 && end == begin) {
        base = 10;
        begin = at;
        end = at + 1;
    } else if (base == 10 && x->s[at] == '0') {
        end = at + 1;
        while (x->s[end] == '0' || (x->s[end] == '_' && x->s[end + 1] == '0')) {
            end += x->s[end] == '_' ? 2 : 1;
        }
    }
    char *text = bare(x, begin, end);
    int64_t v = 0;
    for (const char *d = text; *d != 0; d++) {
        int digit = *d <= '9' ? *d - '0' : tolower((unsigned char)*d) - 'a' + 10;
        if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v)) {
            qn_jsyntax(x->p, x->line, "the integer %s does not fit 64 bits", text);
        }
    }
    push(x, QN_T_INT, at, end - at)->value = qn_jint(v);
    return end;
}

static size_t number(lexer *x, size_t at)
{
    size_t end = digits(x, at, 10);
    bool after_dot = at > 0 && x->s[at - 1] == '.', real = false;
    if (!after_dot && x->s[end] == '.' && isdigit((unsigned char)x->s[end + 1])) {
        end = digits(x, end + 1, 10);
        real = true;
    }
    size_t e = end + 1 + (x->s[end] != 0 && (x->s[end + 1] == '+' || x->s[end + 1] == '-'));
    if (!after_dot && tolower((unsigned char)x->s[end]) == 'e' && isdigit((unsigned char)x->s[e])) {
        end = digits(x, e, 10);
        real = true;
    }
    if (!real) {
        return integer(x, at);
    }
    push(x, QN_T_FLOAT, at, end - at)->value = qn_jfloat(qn_jstrtod(bare(x, at, end), NULL));
    return end;
}

static uint32_t hex(lexer *x, size_t at, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        int ch = tolower((unsigned char)x->s[at + (size_t)i]);
        if (!isxdigit(ch)) {
            qn_jsyntax(x->p, x->line, "a \\x, \\u or \\U escape of a string needs %d hex digits", n);
        }
        v = v * 16 + (uint32_t)(ch <= '9' ? ch - '0' : ch - 'a' + 10);
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) {
        qn_jsyntax(x->p, x->line, "the escape U+%X of a string is no character", v);
    }
    return v;
}

/* The escape at s[at], behind its backslash; where it ends. */
static size_t escape(lexer *x, size_t at, qn_jbuf *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    qn_jctx *c = &x->p->c;
    char ch = x->s[at];
    const char *known = ch != 0 ? strchr(from, ch) : NULL;
    if (known != NULL) {
        qn_jbuf_put(c, out, &to[known - from], 1, QN_ORIGIN_TEMPLATE);
        return at + 1;
    }
    if (ch == '\n') {
        return at + 1;
    }
    if (ch >= '0' && ch <= '7') {
        uint32_t v = 0;
        for (int i = 0; i < 3 && x->s[at] >= '0' && x->s[at] <= '7'; i++) {
            v = v * 8 + (uint32_t)(x->s[at++] - '0');
        }
        qn_jbuf_char(c, out, v, QN_ORIGIN_TEMPLATE);
        return at;
    }
    if (ch == 'x' || ch == 'u' || ch == 'U') {
        int n = ch == 'x' ? 2 : ch == 'u' ? 4 : 8;
        qn_jbuf_char(c, out, hex(x, at + 1, n), QN_ORIGIN_TEMPLATE);
        return at + 1 + (size_t)n;
    }
    if (ch == 'N') {
        qn_jsyntax(x->p, x->line, "the escape \\N{...} of a string is not supported");
    }
    qn_jbuf_put(c, out, "\\", 1, QN_ORIGIN_TEMPLATE); /* as in Python */
    return at;
}

static size_t string(lexer *x, size_t at)
{
    char quote = x->s[at];
    size_t k = at + 1;
    while (k < x->n && x->s[k] != quote) {
        k += x->s[k] == '\\' && k + 1 < x->n ? 2 : 1;
    }
    if (k >= x->n) {
        qn_jsyntax(x->p, x->line, "a string is not closed");
    }
    qn_jbuf *out = qn_jbuf_new(&x->p->c, k - at);
    for (size_t i = at + 1; i < k;) {
        size_t plain = i;
        while (plain < k && x->s[plain] != '\\') {
            plain++;
        }
        qn_jbuf_put(&x->p->c, out, x->s + i, plain - i, QN_ORIGIN_TEMPLATE);
        i = plain < k ? escape(x, plain + 1, out) : plain;
    }
    push(x, QN_T_STR, at, k + 1 - at)->value = constant(x, out->data, out->len);
    return k + 1;
}

static size_t operator_(lexer *x, size_t at, char *open, size_t *n_open)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!has(x, at, operators[i].text)) {
            continue;
        }
        char ch = operators[i].text[0];
        size_t len = strlen(operators[i].text);
        if (ch == '(' || ch == '[' || ch == '{') {
            if (*n_open == 256) {
                qn_jsyntax(x->p, x->line, "more than 256 nested brackets");
            }
            open[(*n_open)++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
        } else if (ch == ')' || ch == ']' || ch == '}') {
            if (*n_open == 0 || open[--*n_open] != ch) {
                qn_jsyntax(x->p, x->line, "unexpected '%c'", ch);
            }
        }
        push(x, QN_T_OP, at, len)->op = operators[i].op;
        return at + len;
    }
    qn_jsyntax(x->p, x->line, "unexpected character '%c'", x->s[at]);
}

/* From behind an opening delimiter to behind the closing one. */
static void tag(lexer *x, const char *close, bool block)
{
    char open[256];
    size_t n_open = 0;
    int begun = x->line;
    for (;;) {
        advance(x, skip_space(x, x->at));
        size_t at = x->at, end = n_open == 0 ? closing(x, at, close, block, block) : 0;
        if (end > 0) {
            push(x, block ? QN_T_BLOCK_END : QN_T_VAR_END, at, 2);
            go_on(x, end);
            return;
        }
        if (at >= x->n) {
            qn_jsyntax(x->p, begun, "a tag is not closed with '%s'", close);
        }
        unsigned char ch = (unsigned char)x->s[at];
        if (isdigit(ch)) {
            end = number(x, at);
        } else if (name_char(ch)) {
            for (end = at; name_char((unsigned char)x->s[end]); end++) {
            }
            const qn_jstr *name = qn_jintern(x->p, x->s + at, end - at);
            push(x, QN_T_NAME, at, end - at)->value = (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)name};
        } else if (ch == '\'' || ch == '"') {
            end = string(x, at);
        } else {
            end = operator_(x, at, open, &n_open);
        }
        advance(x, end);
    }
}

static void root(lexer *x)
{
    while (x->at < x->n) {
        size_t at = x->at;
        while (at < x->n && !(x->s[at] == '{' && strchr("%{#", x->s[at + 1]) != NULL && x->s[at + 1] != 0)) {
            at++;
        }
        if (at >= x->n) {
            push(x, QN_T_DATA, x->at, x->n - x->at)->value = constant(x, x->s + x->at, x->n - x->at);
            x->at = x->n;
            break;
        }
        char kind = x->s[at + 1];
        char sign = x->s[at + 2] == '-' || x->s[at + 2] == '+' ? x->s[at + 2] : 0;
        data(x, at, sign, kind == '{');
        size_t inside = at + 2 + (sign != 0);
        size_t raw_end = kind == '%' ? word_tag(x, inside, "raw", false) : 0;
        if (kind == '#') {
            advance(x, inside);
            comment(x, inside);
        } else if (raw_end > 0) {
            raw(x, raw_end);
        } else {
            push(x, kind == '%' ? QN_T_BLOCK_BEGIN : QN_T_VAR_BEGIN, at, 2);
            advance(x, inside);
            tag(x, kind == '%' ? "%}" : "}}", kind == '%');
        }
    }
    push(x, QN_T_EOF, x->n, 0);
}

void qn_jlex(qn_jparser *p, const char *source, size_t len)
{
    lexer x = {.p = p, .s = qn_jalloc(&p->c, len + 4, 1), .line = 1, .line_starting = true};
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            i += i + 1 < len && source[i + 1] == '\n';
            x.s[x.n++] = '\n';
        } else {
            x.s[x.n++] = source[i];
        }
    }
    x.n -= x.n > 0 && x.s[x.n - 1] == '\n'; /* the last newline of a template does not count */
    x.s[x.n] = 0;
    root(&x);
}
