/* jinja_methods_types.c: the other methods of strings, and those of lists, tuples, dicts and numbers. */
#include "text/jinja_internal.h"

#include <math.h>

#include "text/unicode_case.h"

/* --- strings: case and kind --- */

static qn_jval m_upper(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jupper(c, self.s);
}

static qn_jval m_lower(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jlower(c, self.s);
}

static qn_jval m_casefold(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jcasefold(c, self.s);
}

static qn_jval m_capitalize(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jcapitalize(c, self.s);
}

static qn_jval m_title(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jtitle(c, self.s);
}

static qn_jval m_swapcase(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jswapcase(c, self.s);
}

static bool alnum(uint32_t cp)
{
    return qn_jalpha(cp) || qn_jnumeric(cp);
}

static bool digit(uint32_t cp)
{
    return qn_unicode_digit(cp) >= 0;
}

static bool ascii(uint32_t cp)
{
    return cp < 0x80;
}

static bool word(uint32_t cp)
{
    return cp == '_' || alnum(cp);
}

static qn_jval m_isalpha(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jall_chars(self.s, qn_jalpha));
}

static qn_jval m_isalnum(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jall_chars(self.s, alnum));
}

static qn_jval m_isdigit(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jall_chars(self.s, digit));
}

static qn_jval m_isnumeric(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jall_chars(self.s, qn_jnumeric));
}

static qn_jval m_isspace(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jall_chars(self.s, qn_jspace));
}

static qn_jval m_isascii(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(self.s->len == 0 || qn_jall_chars(self.s, ascii));
}

static qn_jval m_isprintable(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(self.s->len == 0 || qn_jall_chars(self.s, qn_jprintable));
}

static qn_jval m_isidentifier(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    const qn_jstr *s = self.s;
    size_t n;
    return qn_jbool(qn_jall_chars(s, word) && !qn_jnumeric(qn_jchar(s->p, s->len, &n)));
}

static qn_jval m_islower(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jis_case(self.s, false));
}

static qn_jval m_isupper(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jis_case(self.s, true));
}

static qn_jval m_istitle(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(qn_jis_title(self.s));
}

const qn_jfunc qn_jstr_case_methods[] = {
    {"capitalize", "", m_capitalize},
    {"casefold", "", m_casefold},
    {"isalnum", "", m_isalnum},
    {"isalpha", "", m_isalpha},
    {"isascii", "", m_isascii},
    {"isdecimal", "", m_isdigit},
    {"isdigit", "", m_isdigit},
    {"isidentifier", "", m_isidentifier},
    {"islower", "", m_islower},
    {"isnumeric", "", m_isnumeric},
    {"isprintable", "", m_isprintable},
    {"isspace", "", m_isspace},
    {"istitle", "", m_istitle},
    {"isupper", "", m_isupper},
    {"lower", "", m_lower},
    {"swapcase", "", m_swapcase},
    {"title", "", m_title},
    {"upper", "", m_upper},
    {0},
};

/* --- lists and tuples --- */

static qn_jval l_count(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.l->n; i++) {
        n += qn_jequal(c, self.l->item[i], a->arg[0]);
    }
    return qn_jint(n);
}

static qn_jval l_index(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t first, by;
    size_t n = qn_jslice_bounds(c, self.l->n, a->arg[1], a->arg[2], qn_jnone(), &first, &by);
    for (size_t i = 0; i < n; i++) {
        if (qn_jequal(c, self.l->item[(size_t)first + i], a->arg[0])) {
            return qn_jint(first + (int64_t)i);
        }
    }
    qn_jfail(c, "%s is not in %s", qn_jrepr_c(c, a->arg[0]), qn_jtype(self));
}

static qn_jval l_copy(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jslice(c, self, qn_jnone(), qn_jnone(), qn_jnone());
}

/* Of the methods that change a list, the sandbox leaves these two. */
static qn_jval l_pop(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    qn_jlist *l = self.l;
    int64_t i = qn_jgiven(a->arg[0]) ? qn_jneed_int(c, a->arg[0], "pop()") : -1;
    i += i < 0 ? (int64_t)l->n : 0;
    if (i < 0 || (size_t)i >= l->n) {
        qn_jfail(c, l->n == 0 ? "pop from empty list" : "pop index out of range");
    }
    qn_jval v = l->item[i];
    qn_jtick(c, l->n / 16);
    memmove(l->item + i, l->item + i + 1, (l->n - (size_t)i - 1) * sizeof *l->item);
    l->n--;
    return v;
}

static qn_jval l_clear(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    self.l->n = 0;
    return qn_jnone();
}

const qn_jfunc qn_jlist_methods[] = {
    {"clear", "", l_clear},        {"copy", "", l_copy},
    {"count", "value /", l_count}, {"index", "value start= stop= /", l_index},
    {"pop", "index= /", l_pop},    {0},
};

const qn_jfunc qn_jtuple_methods[] = {
    {"count", "value /", l_count},
    {"index", "value start= stop= /", l_index},
    {0},
};

/* --- ranges --- */

static qn_jval r_index(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    for (size_t i = 0; i < self.range->n; i++) {
        if (qn_jequal(c, qn_jint(self.range->start + (int64_t)i * self.range->step), a->arg[0])) {
            return qn_jint((int64_t)i);
        }
    }
    qn_jfail(c, "%s is not in range", qn_jrepr_c(c, a->arg[0]));
}

static qn_jval r_count(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jint(qn_jcontains(c, self, a->arg[0]));
}

static qn_jval r_start(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jint(self.range->start);
}

static qn_jval r_stop(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jint(self.range->stop);
}

static qn_jval r_step(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jint(self.range->step);
}

const qn_jfunc qn_jrange_methods[] = {
    {"count", "value /", r_count}, {"index", "value /", r_index}, {"start", ".", r_start},
    {"step", ".", r_step},         {"stop", ".", r_stop},         {0},
};

/* --- dicts --- */

static qn_jval view(qn_jctx *c, qn_jval self, qn_jviewkind what)
{
    qn_jval v = {.kind = QN_J_VIEW, .view = qn_jalloc(c, 1, sizeof *v.view)};
    v.view->dict = self.d;
    v.view->what = what;
    return v;
}

static qn_jval d_keys(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return view(c, self, QN_J_KEYS);
}

static qn_jval d_values(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return view(c, self, QN_J_VALUES);
}

static qn_jval d_items(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return view(c, self, QN_J_ITEMS);
}

static qn_jval d_get(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    const qn_jval *v = qn_jdict_get(c, self.d, a->arg[0]);
    return v != NULL ? *v : qn_jgiven(a->arg[1]) ? a->arg[1] : qn_jnone();
}

static qn_jval d_copy(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    qn_jval out = qn_jdict_new(c);
    for (size_t i = 0; i < self.d->n; i++) {
        qn_jdict_set(c, out.d, self.d->entry[i].key, self.d->entry[i].value);
    }
    return out;
}

const qn_jfunc qn_jdict_methods[] = {
    {"copy", "", d_copy},
    {"get", "key default= /", d_get},
    {"items", "", d_items},
    {"keys", "", d_keys},
    {"values", "", d_values},
    {"fromkeys", "*", NULL},
    {0},
};

/* --- numbers --- */

static qn_jval n_real(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return self.kind == QN_J_FLOAT ? self : qn_jint(qn_jneed_int(c, self, "real"));
}

static qn_jval n_imag(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return self.kind == QN_J_FLOAT ? qn_jfloat(0) : qn_jint(0);
}

static qn_jval n_bit_length(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    int64_t v = qn_jneed_int(c, self, "bit_length()"), n = 0;
    for (uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v; u != 0; u >>= 1) {
        n++;
    }
    return qn_jint(n);
}

static qn_jval n_is_integer(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)c;
    (void)a;
    return qn_jbool(isfinite(self.f) && floor(self.f) == self.f);
}

const qn_jfunc qn_jint_methods[] = {
    {"bit_length", "", n_bit_length},
    {"conjugate", "", n_real},
    {"imag", ".", n_imag},
    {"numerator", ".", n_real},
    {"real", ".", n_real},
    {"to_bytes", "*", NULL},
    {"from_bytes", "*", NULL},
    {"as_integer_ratio", "*", NULL},
    {"bit_count", "*", NULL},
    {"denominator", ".", NULL},
    {0},
};

const qn_jfunc qn_jfloat_methods[] = {
    {"conjugate", "", n_real},
    {"imag", ".", n_imag},
    {"is_integer", "", n_is_integer},
    {"real", ".", n_real},
    {"hex", "*", NULL},
    {"as_integer_ratio", "*", NULL},
    {0},
};
