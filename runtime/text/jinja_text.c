/* jinja_text.c: what strings can do, as Python's str; every byte keeps its origin. */
#include "text/jinja_format.h"
#include "text/jinja_internal.h"

#include "text/unicode_case.h"
#include "text/unicode_class.h"

size_t qn_jfind(const qn_jstr *s, const qn_jstr *what, size_t from)
{
    if (from > s->len || what->len > s->len - from) {
        return SIZE_MAX;
    }
    if (what->len == 0) {
        return from;
    }
    const char *hit = memmem(s->p + from, s->len - from, what->p, what->len);
    return hit != NULL ? (size_t)(hit - s->p) : SIZE_MAX;
}

/* --- case --- */

static bool is_letter(uint32_t cp)
{
    if (cp < 0x80) {
        return (cp | 32) >= 'a' && (cp | 32) <= 'z';
    }
    return qn_unicode_class(cp) == QN_UC_LETTER;
}

/* A capital sigma that ends a word becomes another letter. */
static bool final_sigma(const qn_jstr *s, size_t at)
{
    size_t before = at, after = at + 2, n;
    while (before > 0 && ((unsigned char)s->p[before - 1] & 0xc0) == 0x80) {
        before--;
    }
    before -= before > 0;
    bool led = at > 0 && is_letter(qn_jchar(s->p + before, at - before, &n));
    bool followed = after < s->len && is_letter(qn_jchar(s->p + after, s->len - after, &n));
    return led && !followed;
}

static void put_case(qn_jctx *c, qn_jbuf *b, const qn_jstr *s, size_t at, uint32_t cp, qn_letter_case to)
{
    uint32_t out[3], origin = qn_jstr_origin_at(s, at);
    int n = qn_unicode_case(cp, to, out);
    if (cp == 0x3a3 && to == QN_CASE_LOWER && final_sigma(s, at)) {
        out[0] = 0x3c2;
    }
    for (int i = 0; i < n; i++) {
        qn_jbuf_char(c, b, out[i], origin);
    }
}

/* Which case a character takes; `state` is the caller's, from character to character. */
typedef qn_letter_case (*chooser)(uint32_t cp, int *state);

static qn_jval recase(qn_jctx *c, const qn_jstr *s, chooser choose)
{
    int state = 0;
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t cp = qn_jchar(s->p + i, s->len - i, &n);
        put_case(c, b, s, i, cp, choose(cp, &state));
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}

static qn_letter_case choose_upper(uint32_t cp, int *state)
{
    (void)cp;
    (void)state;
    return QN_CASE_UPPER;
}

static qn_letter_case choose_lower(uint32_t cp, int *state)
{
    (void)cp;
    (void)state;
    return QN_CASE_LOWER;
}

static qn_letter_case choose_first(uint32_t cp, int *state)
{
    (void)cp;
    return (*state)++ == 0 ? QN_CASE_TITLE : QN_CASE_LOWER;
}

static bool cased(uint32_t cp)
{
    uint32_t up[3], low[3];
    int n_up = qn_unicode_case(cp, QN_CASE_UPPER, up), n_low = qn_unicode_case(cp, QN_CASE_LOWER, low);
    return n_up > 1 || n_low > 1 || up[0] != cp || low[0] != cp;
}

static bool is_lower(uint32_t cp)
{
    uint32_t up[3];
    return qn_unicode_case(cp, QN_CASE_UPPER, up) > 1 || up[0] != cp;
}

static bool is_upper(uint32_t cp)
{
    return cased(cp) && !is_lower(cp);
}

static qn_letter_case choose_title(uint32_t cp, int *state)
{
    qn_letter_case to = *state ? QN_CASE_LOWER : QN_CASE_TITLE;
    *state = cased(cp);
    return to;
}

static qn_letter_case choose_swapped(uint32_t cp, int *state)
{
    (void)state;
    return is_lower(cp) ? QN_CASE_UPPER : QN_CASE_LOWER;
}

qn_jval qn_jupper(qn_jctx *c, const qn_jstr *s)
{
    return recase(c, s, choose_upper);
}

qn_jval qn_jlower(qn_jctx *c, const qn_jstr *s)
{
    return recase(c, s, choose_lower);
}

qn_jval qn_jcapitalize(qn_jctx *c, const qn_jstr *s)
{
    return recase(c, s, choose_first);
}

qn_jval qn_jtitle(qn_jctx *c, const qn_jstr *s)
{
    return recase(c, s, choose_title);
}

qn_jval qn_jswapcase(qn_jctx *c, const qn_jstr *s)
{
    return recase(c, s, choose_swapped);
}

/* Full case folding differs from this in a few dozen characters. */
qn_jval qn_jcasefold(qn_jctx *c, const qn_jstr *s)
{
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t up[3], low[3], origin = qn_jstr_origin_at(s, i);
        int n_up = qn_unicode_case(qn_jchar(s->p + i, s->len - i, &n), QN_CASE_UPPER, up);
        for (int k = 0; k < n_up; k++) {
            int n_low = qn_unicode_case(up[k], QN_CASE_LOWER, low);
            for (int m = 0; m < n_low; m++) {
                qn_jbuf_char(c, b, low[m], origin);
            }
        }
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}

bool qn_jis_case(const qn_jstr *s, bool upper)
{
    bool any = false;
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t cp = qn_jchar(s->p + i, s->len - i, &n);
        if (upper ? is_lower(cp) : is_upper(cp)) {
            return false;
        }
        any |= cased(cp);
    }
    return any;
}

bool qn_jis_title(const qn_jstr *s)
{
    bool any = false, before = false;
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t cp = qn_jchar(s->p + i, s->len - i, &n);
        if (is_upper(cp) ? before : is_lower(cp) && !before) {
            return false;
        }
        before = cased(cp);
        any |= before;
    }
    return any;
}

bool qn_jall_chars(const qn_jstr *s, bool (*is)(uint32_t))
{
    for (size_t i = 0, n; i < s->len; i += n) {
        if (!is(qn_jchar(s->p + i, s->len - i, &n))) {
            return false;
        }
    }
    return s->len > 0;
}

bool qn_jalpha(uint32_t cp)
{
    return is_letter(cp);
}

bool qn_jnumeric(uint32_t cp)
{
    return qn_unicode_digit(cp) >= 0 || (cp >= 0x80 && qn_unicode_class(cp) == QN_UC_NUMBER);
}

/* --- cutting and joining --- */

static bool in_set(const qn_jstr *set, uint32_t cp)
{
    if (set == NULL) {
        return qn_jspace(cp);
    }
    for (size_t i = 0, n; i < set->len; i += n) {
        if (qn_jchar(set->p + i, set->len - i, &n) == cp) {
            return true;
        }
    }
    return false;
}

/* Where the last character of s[0, end) begins. */
static size_t last_char(const qn_jstr *s, size_t end)
{
    size_t n;
    for (size_t k = 4; k > 1; k--) {
        if (k <= end && (qn_jchar(s->p + end - k, k, &n), n == k)) {
            return end - k;
        }
    }
    return end - 1;
}

qn_jval qn_jstrip(qn_jctx *c, qn_jstr *s, qn_jval chars, int sides)
{
    const qn_jstr *set = qn_jset(chars) ? qn_jneed_str(c, chars, "strip()") : NULL;
    size_t begin = 0, end = s->len, n;
    while ((sides & 1) && begin < end && in_set(set, qn_jchar(s->p + begin, end - begin, &n))) {
        begin += n;
        qn_jtick(c, 1);
    }
    while ((sides & 2) && end > begin) {
        size_t at = last_char(s, end);
        if (at < begin || !in_set(set, qn_jchar(s->p + at, end - at, &n))) {
            break;
        }
        end = at;
        qn_jtick(c, 1);
    }
    return qn_jstr_part(c, s, begin, end - begin);
}

qn_jval qn_jreplace(qn_jctx *c, const qn_jstr *s, const qn_jstr *old, const qn_jstr *with, int64_t count)
{
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    size_t at = 0, n;
    for (int64_t done = 0; count < 0 || done < count; done++) {
        size_t hit = qn_jfind(s, old, at);
        qn_jtick(c, 1);
        if (hit == SIZE_MAX) {
            break;
        }
        qn_jbuf_part(c, b, s, at, hit - at);
        qn_jbuf_str(c, b, with);
        at = hit + old->len;
        if (old->len == 0) { /* before each character and at the end */
            if (at >= s->len) {
                break;
            }
            n = qn_jchar_len(s->p + at, s->len - at);
            qn_jbuf_part(c, b, s, at, n);
            at += n;
        }
    }
    qn_jbuf_part(c, b, s, at, s->len - at);
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}

qn_jval qn_jjoin(qn_jctx *c, const qn_jstr *sep, qn_jval items, bool strict)
{
    qn_jiter *it = qn_jiter_of(c, items);
    qn_jbuf *b = qn_jbuf_new(c, 0);
    qn_jval v;
    for (size_t i = 0; qn_jnext(c, it, &v); i++) {
        if (strict && !sep->markup && v.kind != QN_J_STR) {
            qn_jfail(c, "sequence item %zu: expected str instance, %s found", i, qn_jtype(v));
        }
        if (i > 0) {
            qn_jbuf_str(c, b, sep);
        }
        qn_jput_str(c, b, strict && sep->markup ? qn_jescape(c, v) : v);
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, strict && sep->markup);
}

static bool line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

qn_jval qn_jsplitlines(qn_jctx *c, const qn_jstr *s, bool keep)
{
    qn_jval out = qn_jlist_new(c, 0);
    size_t begin = 0, n;
    for (size_t i = 0; i < s->len; i += n) {
        if (!line_end(qn_jchar(s->p + i, s->len - i, &n))) {
            continue;
        }
        n += s->p[i] == '\r' && i + 1 < s->len && s->p[i + 1] == '\n';
        qn_jlist_push(c, out.l, qn_jstr_part(c, s, begin, (keep ? i + n : i) - begin));
        begin = i + n;
    }
    if (begin < s->len) {
        qn_jlist_push(c, out.l, qn_jstr_part(c, s, begin, s->len - begin));
    }
    return out;
}

qn_jval qn_jpad(qn_jctx *c, qn_jstr *s, int64_t width, const qn_jstr *fill, int where)
{
    int64_t pad = width - (int64_t)qn_jstr_chars(s);
    if (pad <= 0) {
        return (qn_jval){.kind = QN_J_STR, .s = s};
    }
    if (pad > QN_J_MAX_FIELD) {
        qn_jfail(c, "a width of %lld is too much", (long long)width);
    }
    qn_jtick(c, (uint64_t)pad);
    int64_t left = where < 0 ? 0 : where > 0 ? pad : pad / 2 + (pad & width & 1);
    qn_jbuf *b = qn_jbuf_new(c, s->len + (size_t)pad);
    for (int64_t i = 0; i <= pad; i++) {
        if (i == left) {
            qn_jbuf_str(c, b, s);
        }
        if (i < pad) {
            qn_jbuf_str(c, b, fill);
        }
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}
