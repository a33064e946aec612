#include "text/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include <pcre2.h>

#include "base/alloc.h"
#include "text/unicode_class.h"
#include "text/utf8.h"

/* Stand-ins of the classes: two bytes each, of the same general category in every version of Unicode. */
static const char stand_in[][3] = {
    [QN_UC_OTHER] = "\xc2\xad",  /* U+00AD soft hyphen */
    [QN_UC_NUMBER] = "\xc2\xb2", /* U+00B2 superscript two: a number but not a decimal digit */
    [QN_UC_LETTER] = "\xc2\xaa", /* U+00AA feminine ordinal: neither upper nor lower case */
    [QN_UC_PUNCT] = "\xc2\xa1",  /* U+00A1 inverted exclamation mark */
    [QN_UC_MARK] = "\xcc\x80",   /* U+0300 combining grave accent */
    [QN_UC_SYMBOL] = "\xc2\xa2", /* U+00A2 cent sign */
};

static const char *const pre_keys[] = {"pre",           "split",          "ignore_merges", "byte_encode",
                                       "escape_spaces", "whole_newlines", "add_bos",       "recognise"};

static int step_compile(qn_pre_step *s, const qn_yaml_node *at, const char *pattern, size_t len, qn_err *err)
{
    s->by_class = strstr(pattern, "\\p{") || strstr(pattern, "\\P{");
    uint32_t options =
        PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | (s->by_class ? PCRE2_UCP : 0);
    int code;
    PCRE2_SIZE offset;
    s->code = pcre2_compile((PCRE2_SPTR)pattern, len, options, &code, &offset, NULL);
    if (!s->code) {
        PCRE2_UCHAR text[128] = "?";
        pcre2_get_error_message(code, text, sizeof text);
        return qn_yaml_fail(at, err, "pattern: %s (at byte %zu)", (const char *)text, (size_t)offset);
    }
    /* Without JIT (not built in, or executable memory is forbidden) the interpreter does the same, slower. */
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    return 0;
}

/* One entry of `split`: a pattern, or a list of alternatives. */
static int step_new(qn_pre_step *s, const qn_yaml_node *node, qn_err *err)
{
    if (node->kind == QN_YAML_SCALAR) {
        return step_compile(s, node, node->text, node->len, err);
    }
    if (node->kind != QN_YAML_SEQ || !node->child) {
        return qn_yaml_fail(node, err, "expected a pattern or a list of patterns");
    }
    size_t size = 1;
    for (const qn_yaml_node *c = node->child; c; c = c->next) {
        if (c->kind != QN_YAML_SCALAR) {
            return qn_yaml_fail(c, err, "expected a pattern");
        }
        size += c->len + 1;
    }
    char *pattern = malloc(size);
    if (!pattern) {
        return qn_fail(err, "out of memory");
    }
    size_t n = 0;
    for (const qn_yaml_node *c = node->child; c; c = c->next) {
        if (n) {
            pattern[n++] = '|';
        }
        memcpy(pattern + n, c->text, c->len);
        n += c->len;
    }
    pattern[n] = '\0';
    int rc = step_compile(s, node, pattern, n, err);
    free(pattern);
    return rc;
}

static int read_flag(const qn_yaml_node *config, const char *key, bool *out, qn_err *err)
{
    const qn_yaml_node *node = qn_yaml_get(config, key);
    return node ? qn_yaml_bool(node, out, err) : 0;
}

static int read_config(qn_pre *p, const qn_yaml_node *config, qn_err *err)
{
    if (qn_yaml_check_keys(config, pre_keys, sizeof pre_keys / sizeof pre_keys[0], err)) {
        return -1;
    }
    p->byte_encode = true;
    if (read_flag(config, "ignore_merges", &p->ignore_merges, err) ||
        read_flag(config, "byte_encode", &p->byte_encode, err) ||
        read_flag(config, "escape_spaces", &p->escape_spaces, err) ||
        read_flag(config, "whole_newlines", &p->whole_newlines, err)) {
        return -1;
    }
    const qn_yaml_node *bos = qn_yaml_get(config, "add_bos");
    bool yes = false;
    if (bos && bos->kind == QN_YAML_SCALAR && strcmp(bos->text, "always") == 0) {
        p->add_bos = QN_PRE_BOS_ALWAYS;
    } else if (bos && qn_yaml_bool(bos, &yes, err)) {
        return -1;
    } else {
        p->add_bos = yes ? QN_PRE_BOS_YES : QN_PRE_BOS_NO;
    }
    const qn_yaml_node *split = qn_yaml_get(config, "split");
    if (!split || split->kind != QN_YAML_SEQ || split->n_child == 0 || split->n_child > QN_PRE_MAX_STEPS) {
        return qn_yaml_fail(split ? split : config, err, "`split` must be a list of 1 to %d patterns",
                            QN_PRE_MAX_STEPS);
    }
    for (const qn_yaml_node *c = split->child; c; c = c->next) {
        if (step_new(&p->step[p->n_steps], c, err)) {
            return -1;
        }
        p->n_steps++;
    }
    return 0;
}

int qn_pre_new(qn_pre **out, const qn_yaml_node *config, const char *name, qn_err *err)
{
    *out = NULL;
    qn_pre *p = qn_calloc(1, sizeof *p);
    if (!p || !(p->name = strdup(name))) {
        qn_pre_free(p);
        return qn_fail(err, "out of memory");
    }
    if (read_config(p, config, err)) {
        qn_pre_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void qn_pre_free(qn_pre *p)
{
    if (p) {
        for (int i = 0; i < p->n_steps; i++) {
            pcre2_code_free(p->step[i].code);
        }
        free(p->name);
        free(p);
    }
}

/* The text that becomes words, and what the two kinds of patterns see of it, character for character. */
struct views {
    char *text, *by_class, *plain;
    size_t len;
};

/* One code point the way the reference decodes: overlong forms and surrogates pass; a byte that begins
 * nothing complete, or a value above U+10FFFF, is one U+FFFD. */
static size_t loose_next(const unsigned char *s, size_t n, uint32_t *cp)
{
    size_t len = s[0] >= 0xf8 ? 1 : qn_utf8_lead_len(s[0]);
    *cp = QN_UTF8_REPLACEMENT;
    if (len == 1) {
        *cp = s[0] < 0x80 ? s[0] : QN_UTF8_REPLACEMENT;
        return 1;
    }
    if (len > n) {
        return 1;
    }
    uint32_t v = s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 1;
        }
        v = v << 6 | (s[i] & 0x3f);
    }
    if (v > 0x10ffff) {
        return 1;
    }
    *cp = v;
    return len;
}

/* Bytes of one character in a view. */
static size_t view_put(char *out, uint32_t cp, qn_uclass cls, bool by_class)
{
    if (cls == QN_UC_SPACE) {
        *out = '\v';
        return 1;
    }
    if (by_class) {
        memcpy(out, stand_in[cls], 2);
        return 2;
    }
    bool surrogate = cp >= 0xd800 && cp <= 0xdfff; /* not allowed in a subject */
    return (size_t)qn_utf8_put(surrogate ? QN_UTF8_REPLACEMENT : cp, (unsigned char *)out);
}

static int views_make(struct views *v, const char *text, size_t len, bool by_class, bool plain, qn_err *err)
{
    size_t room = 3 * len + 1; /* a malformed byte grows to three */
    memset(v, 0, sizeof *v);
    v->text = malloc(room);
    v->by_class = by_class ? malloc(2 * len + 1) : NULL;
    v->plain = plain ? malloc(room) : NULL;
    if (!v->text || (by_class && !v->by_class) || (plain && !v->plain)) {
        return qn_fail(err, "out of memory for %zu bytes of text", len);
    }
    size_t c = 0, p = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += loose_next((const unsigned char *)text + i, len - i, &cp);
        v->len += (size_t)qn_utf8_put(cp, (unsigned char *)v->text + v->len);
        if (cp < 0x80) {
            if (by_class) {
                v->by_class[c++] = (char)cp;
            }
            if (plain) {
                v->plain[p++] = (char)cp;
            }
            continue;
        }
        qn_uclass cls = qn_unicode_class(cp);
        c += by_class ? view_put(v->by_class + c, cp, cls, true) : 0;
        p += plain ? view_put(v->plain + p, cp, cls, false) : 0;
    }
    return 0;
}

static void views_free(struct views *v)
{
    free(v->text);
    free(v->by_class);
    free(v->plain);
}

/* What runs the patterns: made once a text. */
struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

enum { JIT_STACK_START = 32 * 1024, JIT_STACK_MAX = 256 * 1024 * 1024 };

static int matcher_init(struct matcher *m, qn_err *err)
{
    m->stack = NULL;
    m->context = pcre2_match_context_create(NULL);
    m->data = pcre2_match_data_create(1, NULL);
    if (!m->context || !m->data) {
        return qn_fail(err, "out of memory");
    }
    /* The text may be long; how long a pattern may take is the pattern's author's business. */
    pcre2_set_match_limit(m->context, UINT32_MAX);
    pcre2_set_depth_limit(m->context, UINT32_MAX);
    return 0;
}

static void matcher_free(struct matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
}

/* First match in s[at, len): 1 and its bounds, 0: none, -1: the engine gave up. */
static int find(struct matcher *m, const qn_pre_step *step, const char *s, size_t len, size_t at,
                bool not_empty, size_t bounds[2], qn_err *err)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | (not_empty ? PCRE2_NOTEMPTY_ATSTART : 0);
    int rc = pcre2_match(step->code, (PCRE2_SPTR)s, len, at, options, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
        m->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
        if (m->stack) {
            pcre2_jit_stack_assign(m->context, NULL, m->stack);
            rc = pcre2_match(step->code, (PCRE2_SPTR)s, len, at, options, m->data, m->context);
        }
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { /* the interpreter keeps its state on the heap */
        rc = pcre2_match(step->code, (PCRE2_SPTR)s, len, at, options | PCRE2_NO_JIT, m->data, m->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (rc < 0) {
        PCRE2_UCHAR text[128] = "?";
        pcre2_get_error_message(rc, text, sizeof text);
        return qn_fail(err, "pre-tokenizer: the pattern gave up on %zu bytes of text: %s", len,
                       (const char *)text);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    bounds[0] = v[0];
    bounds[1] = v[1] > v[0] ? v[1] : v[0];
    return 1;
}

/* The word list under construction. */
struct list {
    uint32_t *word;
    size_t n, size;
};

static int list_push(struct list *l, size_t len, qn_err *err)
{
    if (len == 0) {
        return 0;
    }
    if (l->n == l->size) {
        size_t size = l->size ? l->size * 2 : 64;
        uint32_t *word = realloc(l->word, size * sizeof *word);
        if (!word) {
            return qn_fail(err, "out of memory for the words of a text");
        }
        l->word = word;
        l->size = size;
    }
    l->word[l->n++] = (uint32_t)len;
    return 0;
}

/* Moves from one character boundary of a view to another, and in step through the text. */
static size_t follow(const char *view, size_t from, size_t to, const char *text)
{
    size_t n = 0;
    while (from < to) {
        from += qn_utf8_lead_len((unsigned char)view[from]);
        n += qn_utf8_lead_len((unsigned char)text[n]);
    }
    return n;
}

/* Cuts one word: `view` holds what the pattern sees of text[0, len). Returns the view's length. */
static int cut_word(struct matcher *m, const qn_pre_step *step, const char *view, size_t view_len,
                    const char *text, struct list *out, qn_err *err)
{
    size_t at = 0; /* in the view: the end of the last word pushed */
    bool not_empty = false;
    while (at < view_len) {
        size_t b[2] = {0};
        int found = find(m, step, view, view_len, at, not_empty, b, err);
        if (found < 0) {
            return -1;
        }
        if (!found) {
            return list_push(out, follow(view, at, view_len, text), err);
        }
        size_t gap = follow(view, at, b[0], text);
        size_t len = follow(view, b[0], b[1], text + gap);
        if (list_push(out, gap, err) || list_push(out, len, err)) {
            return -1;
        }
        text += gap + len;
        at = b[1];
        not_empty = b[1] == b[0];
    }
    return 0;
}

static size_t view_length(const char *view, const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        i += qn_utf8_lead_len((unsigned char)text[i]);
        n += qn_utf8_lead_len((unsigned char)view[n]);
    }
    return n;
}

/* One step over all words. */
static int run_step(struct matcher *m, const qn_pre_step *step, const struct views *v, const struct list *in,
                    struct list *out, qn_err *err)
{
    const char *view = step->by_class ? v->by_class : v->plain;
    const char *text = v->text;
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        size_t view_len = view_length(view, text, in->word[i]);
        if (cut_word(m, step, view, view_len, text, out, err)) {
            return -1;
        }
        view += view_len;
        text += in->word[i];
    }
    return 0;
}

int qn_pre_split(const qn_pre *p, const char *text, size_t len, qn_words *out, qn_err *err)
{
    memset(out, 0, sizeof *out);
    bool by_class = false, plain = false;
    for (int i = 0; i < p->n_steps; i++) {
        by_class |= p->step[i].by_class;
        plain |= !p->step[i].by_class;
    }
    struct views v;
    struct matcher m = {0};
    struct list a = {0}, b = {0};
    int rc = -1;
    if (!views_make(&v, text, len, by_class, plain, err) && !matcher_init(&m, err) &&
        !list_push(&a, v.len, err)) {
        rc = 0;
    }
    for (int i = 0; !rc && i < p->n_steps; i++) {
        rc = run_step(&m, &p->step[i], &v, &a, &b, err);
        struct list t = a;
        a = b;
        b = t;
    }
    matcher_free(&m);
    free(b.word);
    if (rc) {
        free(a.word);
        views_free(&v);
        return -1;
    }
    *out = (qn_words){.text = v.text, .len = v.len, .word = a.word, .n = a.n};
    v.text = NULL;
    views_free(&v);
    return 0;
}

void qn_words_free(qn_words *w)
{
    free(w->text);
    free(w->word);
    memset(w, 0, sizeof *w);
}
