/* jinja_format.c: "..." % values and "...".format(...). */
#include "text/jinja_format.h"

#include <math.h>

/* Reads digits at *i; -1: none there. */
static int64_t digits(qn_jctx *c, const qn_jstr *s, size_t *i)
{
    int64_t v = -1;
    for (; *i < s->len && s->p[*i] >= '0' && s->p[*i] <= '9'; ++*i) {
        v = (v < 0 ? 0 : v) * 10 + (s->p[*i] - '0');
        if (v > INT32_MAX) {
            qn_jfail(c, "too many decimal digits in a format");
        }
    }
    return v;
}

/* Python's ascii(): repr with everything beyond ASCII escaped. */
static qn_jstr *ascii(qn_jctx *c, qn_jval v)
{
    qn_jbuf *b = qn_jbuf_new(c, 0), *out = qn_jbuf_new(c, 0);
    qn_jput_repr(c, b, v);
    for (size_t i = 0, n; i < b->len; i += n) {
        uint32_t cp = qn_jchar(b->data + i, b->len - i, &n);
        const qn_jval one = qn_jbuf_value(c, b);
        if (cp < 0x80) {
            qn_jbuf_part(c, out, one.s, i, 1);
        } else {
            const char *text = qn_jsprintf(c,
                                           cp < 0x100     ? "\\x%02x"
                                           : cp < 0x10000 ? "\\u%04x"
                                                          : "\\U%08x",
                                           cp);
            qn_jbuf_put(c, out, text, strlen(text), qn_jstr_origin_at(one.s, i));
        }
    }
    return qn_jbuf_value(c, out).s;
}

static qn_jstr *repr(qn_jctx *c, qn_jval v)
{
    qn_jbuf *b = qn_jbuf_new(c, 0);
    qn_jput_repr(c, b, v);
    return qn_jbuf_value(c, b).s;
}

/* --- % --- */

typedef struct percent {
    qn_jval args;
    size_t next;
    bool escape;
} percent;

static qn_jval next_arg(qn_jctx *c, percent *p)
{
    bool many = p->args.kind == QN_J_TUPLE;
    if (p->next >= (many ? p->args.l->n : 1)) {
        qn_jfail(c, "not enough arguments for format string");
    }
    qn_jval v = many ? p->args.l->item[p->next] : p->args;
    p->next++;
    return v;
}

static int64_t star(qn_jctx *c, percent *p)
{
    qn_jval v = next_arg(c, p);
    if (!qn_jis_int(v)) {
        qn_jfail(c, "* wants int");
    }
    return qn_jneed_int(c, v, "*");
}

/* "%(name)s": the argument of that name; i stands behind the '('. */
static qn_jval named_arg(qn_jctx *c, const percent *p, const qn_jstr *f, size_t *i)
{
    size_t begin = *i, open = 1;
    for (; *i < f->len && open > 0; ++*i) {
        open += f->p[*i] == '(';
        open -= f->p[*i] == ')';
    }
    if (open > 0) {
        qn_jfail(c, "incomplete format key");
    }
    if (p->args.kind != QN_J_DICT) {
        qn_jfail(c, "format requires a mapping");
    }
    const qn_jval key = qn_jstr_part(c, f, begin, *i - 1 - begin);
    const qn_jval *v = qn_jdict_get(c, p->args.d, key);
    if (v == NULL) {
        qn_jfail(c, "the key %s of a format is not there", qn_jrepr_c(c, key));
    }
    return *v;
}

static void percent_number(qn_jctx *c, qn_jbuf *b, qn_jfield *f, qn_jval v)
{
    double d;
    bool integer = strchr("diuoxX", f->type) != NULL;
    if (v.kind == QN_J_UNDEFINED || !qn_jnumber(v, &d)) {
        qn_jfail(c, "%%%c format: a real number is required, not %s", f->type, qn_jtype(v));
    }
    if (!integer) {
        qn_jfield_float(c, b, f, d);
        return;
    }
    if (v.kind == QN_J_FLOAT && (strchr("oxX", f->type) != NULL || !(fabs(d) < 9.2e18))) {
        qn_jfail(c, "%%%c format: an integer is required, not %s", f->type, qn_jrepr_c(c, v));
    }
    f->min_digits = f->precision;
    f->type = f->type == 'i' || f->type == 'u' ? 'd' : f->type;
    qn_jfield_int(c, b, f, v.kind == QN_J_FLOAT ? (int64_t)d : qn_jneed_int(c, v, "%d"));
}

static void percent_char(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, qn_jval v)
{
    qn_jbuf *one = qn_jbuf_new(c, 4);
    if (qn_jis_int(v)) {
        int64_t cp = qn_jneed_int(c, v, "%c");
        if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) {
            qn_jfail(c, "%%c arg not in range(0x110000)");
        }
        qn_jbuf_char(c, one, (uint32_t)cp, QN_ORIGIN_MESSAGE); /* who knows where the number is from */
    } else if (v.kind == QN_J_STR && qn_jstr_chars(v.s) == 1) {
        qn_jbuf_str(c, one, v.s);
    } else {
        qn_jfail(c, "%%c requires int or char");
    }
    qn_jfield_text(c, b, f, qn_jbuf_value(c, one).s);
}

static void percent_field(qn_jctx *c, qn_jbuf *b, const percent *p, qn_jfield *f, qn_jval v)
{
    switch (f->type) {
    case 's':
        qn_jfield_text(c, b, f, p->escape ? qn_jescape(c, v).s : qn_jto_str(c, v));
        break;
    case 'r':
        qn_jfield_text(c, b, f, repr(c, v));
        break;
    case 'a':
        qn_jfield_text(c, b, f, ascii(c, v));
        break;
    case 'c':
        percent_char(c, b, f, v);
        break;
    default:
        percent_number(c, b, f, v);
    }
}

/* Flags, width and precision; i stands behind the '%' (and the name). */
static void percent_spec(qn_jctx *c, percent *p, const qn_jstr *s, size_t *i, qn_jfield *f)
{
    bool zero = false, left = false;
    for (; *i < s->len && s->p[*i] != 0 && strchr("#0- +", s->p[*i]) != NULL; ++*i) {
        char ch = s->p[*i];
        f->alt |= ch == '#';
        zero |= ch == '0';
        left |= ch == '-';
        f->sign = ch == '+' || (ch == ' ' && f->sign == 0) ? ch : f->sign;
    }
    if (*i < s->len && s->p[*i] == '*') {
        ++*i;
        f->width = star(c, p);
        left |= f->width < 0;
        f->width = f->width < 0 ? -f->width : f->width;
    } else {
        int64_t w = digits(c, s, i);
        f->width = w > 0 ? w : 0;
    }
    if (*i < s->len && s->p[*i] == '.') {
        ++*i;
        int64_t n = *i < s->len && s->p[*i] == '*' ? (++*i, star(c, p)) : digits(c, s, i);
        f->precision = n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : (int)n;
    }
    while (*i < s->len && s->p[*i] != 0 && strchr("hlL", s->p[*i]) != NULL) {
        ++*i;
    }
    if (*i >= s->len) {
        qn_jfail(c, "incomplete format");
    }
    f->type = s->p[(*i)++];
    bool number = f->type != 0 && strchr("diuoxXeEfFgG", f->type) != NULL;
    f->align = left ? '<' : zero && number ? '=' : '>';
    f->fill = f->align == '=' ? '0' : ' ';
    if (!number && f->type != '%' && (f->type == 0 || strchr("srac", f->type) == NULL)) {
        qn_jfail(c, "unsupported format character '%c'", f->type);
    }
}

qn_jval qn_jformat_percent(qn_jctx *c, const qn_jstr *s, qn_jval args)
{
    percent p = {.args = args, .escape = s->markup};
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    for (size_t i = 0; i < s->len;) {
        const char *sign = memchr(s->p + i, '%', s->len - i);
        size_t at = sign != NULL ? (size_t)(sign - s->p) : s->len;
        qn_jbuf_part(c, b, s, i, at - i);
        i = at + 1;
        if (at == s->len) {
            break;
        }
        qn_jfield f = {.fill = ' ', .precision = -1};
        qn_jval v = {.kind = QN_J_MISSING};
        if (i < s->len && s->p[i] == '(') {
            i++;
            v = named_arg(c, &p, s, &i);
        }
        percent_spec(c, &p, s, &i, &f);
        if (f.type == '%' && i > at + 2) {
            (void)next_arg(c, &p); /* as in Python */
        }
        if (f.type == '%') {
            qn_jbuf_part(c, b, s, at, 1);
            continue;
        }
        percent_field(c, b, &p, &f, qn_jgiven(v) ? v : next_arg(c, &p));
    }
    size_t n = args.kind == QN_J_TUPLE ? args.l->n : 1;
    bool mapping = args.kind == QN_J_DICT || args.kind == QN_J_LIST || args.kind == QN_J_RANGE ||
                   args.kind == QN_J_UNDEFINED;
    if (p.next < n && !mapping) {
        qn_jfail(c, "not all arguments converted during string formatting");
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}

/* --- {} --- */

static bool is_align(char ch)
{
    return ch == '<' || ch == '>' || ch == '^' || ch == '=';
}

/* text: for a string, which zeros in front of the width do not align. */
static void read_spec(qn_jctx *c, const qn_jstr *s, bool text, qn_jfield *f)
{
    size_t i = 0, n = s->len > 0 ? qn_jchar_len(s->p, s->len) : 0, k;
    bool filled = false;
    *f = (qn_jfield){.fill = ' ', .precision = -1};
    if (n > 0 && n < s->len && is_align(s->p[n])) {
        f->fill = qn_jchar(s->p, s->len, &k);
        f->align = s->p[n];
        filled = true;
        i = n + 1;
    } else if (n > 0 && is_align(s->p[0])) {
        f->align = s->p[i++];
    }
    if (i < s->len && (s->p[i] == '+' || s->p[i] == '-' || s->p[i] == ' ')) {
        f->sign = s->p[i++];
    }
    if (i < s->len && s->p[i] == '#') {
        f->alt = true;
        i++;
    }
    if (i < s->len && s->p[i] == '0' && !filled) {
        f->fill = '0';
        f->align = f->align == 0 && !text ? '=' : f->align;
        i++;
    }
    int64_t w = digits(c, s, &i);
    f->width = w > 0 ? w : 0;
    if (i < s->len && (s->p[i] == ',' || s->p[i] == '_')) {
        f->group = s->p[i++];
    }
    if (i < s->len && s->p[i] == '.') {
        i++;
        int64_t precision = digits(c, s, &i);
        if (precision < 0) {
            qn_jfail(c, "Format specifier missing precision");
        }
        f->precision = (int)precision;
    }
    f->type = i < s->len ? s->p[i++] : 0;
    if (i != s->len) {
        qn_jfail(c, "Invalid format specifier '%.*s'", (int)s->len, s->p);
    }
}

static void spec_number(qn_jctx *c, qn_jbuf *b, qn_jval v, qn_jfield *f)
{
    double d;
    (void)qn_jnumber(v, &d);
    bool real = v.kind == QN_J_FLOAT;
    const char *types = real ? "eEfFgGn%" : "bdoxXneEfFgG%c";
    if (f->type != 0 && strchr(types, f->type) == NULL) {
        qn_jfail(c, "Unknown format code '%c' for object of type '%s'", f->type, qn_jtype(v));
    }
    if (f->type == 'c') {
        f->align = f->align != 0 ? f->align : '<';
        percent_char(c, b, f, v);
    } else if (real || (f->type != 0 && strchr("eEfFgG%", f->type) != NULL)) {
        qn_jfield_float(c, b, f, d);
    } else {
        if (f->precision >= 0) {
            qn_jfail(c, "Precision not allowed in integer format specifier");
        }
        qn_jfield_int(c, b, f, qn_jneed_int(c, v, "format"));
    }
}

void qn_jformat_spec(qn_jctx *c, qn_jbuf *b, qn_jval v, const qn_jstr *spec)
{
    qn_jfield f;
    double d;
    if (spec->len == 0) {
        qn_jput_str(c, b, v);
        return;
    }
    if (v.kind == QN_J_STR) {
        read_spec(c, spec, true, &f);
        if ((f.type != 0 && f.type != 's') || f.sign != 0 || f.align == '=' || f.group != 0 || f.alt) {
            qn_jfail(c, "Invalid format specifier '%.*s' for object of type 'str'", (int)spec->len, spec->p);
        }
        qn_jfield_text(c, b, &f, v.s);
        return;
    }
    if (!qn_jnumber(v, &d)) {
        qn_jfail(c, "unsupported format string passed to %s.__format__", qn_jtype(v));
    }
    read_spec(c, spec, false, &f);
    spec_number(c, b, v, &f);
}

typedef struct braces {
    const qn_jargs *args;
    int64_t next; /* of automatic numbering */
    bool manual, automatic;
    bool escape;
} braces;

static qn_jval field_first(qn_jctx *c, braces *p, const qn_jstr *name, bool empty)
{
    size_t i = 0;
    int64_t index = digits(c, name, &i);
    if (empty || (index >= 0 && i == name->len)) {
        p->automatic |= empty;
        p->manual |= !empty;
        if (p->automatic && p->manual) {
            qn_jfail(c, "cannot switch between manual field specification and automatic field numbering");
        }
        index = empty ? p->next++ : index;
        if ((size_t)index >= p->args->n) {
            qn_jfail(c, "Replacement index %lld out of range for positional args tuple", (long long)index);
        }
        return p->args->pos[index];
    }
    for (size_t k = 0; k < p->args->n_kw; k++) {
        if (qn_jstr_eq(p->args->kw[k].name, name)) {
            return p->args->kw[k].value;
        }
    }
    qn_jfail(c, "the key '%.*s' of a format is not there", (int)name->len, name->p);
}

/* "name.attribute[item]". */
static qn_jval field_value(qn_jctx *c, braces *p, const qn_jstr *name)
{
    size_t i = 0;
    while (i < name->len && name->p[i] != '.' && name->p[i] != '[') {
        i++;
    }
    qn_jval v = field_first(c, p, qn_jstr_part(c, name, 0, i).s, name->len == 0);
    while (i < name->len) {
        bool attribute = name->p[i] == '.';
        size_t begin = ++i;
        while (i < name->len && (attribute ? name->p[i] != '.' && name->p[i] != '[' : name->p[i] != ']')) {
            i++;
        }
        qn_jval part = qn_jstr_part(c, name, begin, i - begin);
        size_t k = 0;
        int64_t index = digits(c, part.s, &k);
        if (part.s->len == 0) {
            qn_jfail(c, "Empty attribute in format string");
        }
        if (attribute) {
            v = qn_jgetattr(c, v, part.s);
            continue;
        }
        if (i >= name->len) {
            qn_jfail(c, "Missing ']' in format string");
        }
        v = qn_jgetitem(c, v, index >= 0 && k == part.s->len ? qn_jint(index) : part);
        i++;
        if (i < name->len && name->p[i] != '.' && name->p[i] != '[') {
            qn_jfail(c, "Only '.' or '[' may follow ']' in format field specifier");
        }
    }
    return v;
}

static void format_into(qn_jctx *c, qn_jbuf *b, braces *p, const qn_jstr *s, int depth);

/* "name!conversion:spec", without its braces. */
static void put_field(qn_jctx *c, qn_jbuf *b, braces *p, const qn_jstr *s, int depth)
{
    size_t i = 0, open = 0;
    for (; i < s->len && !(open == 0 && (s->p[i] == '!' || s->p[i] == ':')); i++) {
        open += s->p[i] == '[';
        open -= s->p[i] == ']' && open > 0;
    }
    qn_jval v = field_value(c, p, qn_jstr_part(c, s, 0, i).s);
    if (i < s->len && s->p[i] == '!') {
        char how = i + 1 < s->len ? s->p[i + 1] : 0;
        if ((how != 'r' && how != 's' && how != 'a') || (i + 2 < s->len && s->p[i + 2] != ':')) {
            qn_jfail(c, "Unknown conversion specifier '%c'", how);
        }
        v = (qn_jval){.kind = QN_J_STR,
                      .s = how == 'r'   ? repr(c, v)
                           : how == 's' ? qn_jto_str(c, v)
                                        : ascii(c, v)};
        i += 2;
    }
    qn_jbuf *spec = qn_jbuf_new(c, 0);
    if (i < s->len) {
        if (depth == 0) {
            qn_jfail(c, "Max string recursion exceeded");
        }
        format_into(c, spec, p, qn_jstr_part(c, s, i + 1, s->len - i - 1).s, depth - 1);
    }
    qn_jstr *spec_text = qn_jbuf_value(c, spec).s;
    qn_jbuf *out = qn_jbuf_new(c, 0);
    qn_jformat_spec(c, out, v, spec_text);
    qn_jval text = qn_jbuf_value(c, out);
    bool safe = v.kind == QN_J_STR && v.s->markup;
    qn_jbuf_str(c, b, p->escape && !safe ? qn_jescape(c, text).s : text.s);
}

static void format_into(qn_jctx *c, qn_jbuf *b, braces *p, const qn_jstr *s, int depth)
{
    for (size_t i = 0; i < s->len;) {
        size_t plain = i, open = 1;
        while (plain < s->len && s->p[plain] != '{' && s->p[plain] != '}') {
            plain++;
        }
        qn_jbuf_part(c, b, s, i, plain - i);
        i = plain;
        if (i == s->len) {
            return;
        }
        if (i + 1 < s->len && s->p[i + 1] == s->p[i]) {
            qn_jbuf_part(c, b, s, i, 1);
            i += 2;
            continue;
        }
        if (s->p[i] == '}') {
            qn_jfail(c, "Single '}' encountered in format string");
        }
        size_t end = i + 1;
        for (; end < s->len && open > 0; end++) {
            open += s->p[end] == '{';
            open -= s->p[end] == '}';
        }
        if (open > 0) {
            qn_jfail(c, "expected '}' before end of string");
        }
        put_field(c, b, p, qn_jstr_part(c, s, i + 1, end - i - 2).s, depth);
        i = end;
    }
}

qn_jval qn_jformat_braces(qn_jctx *c, const qn_jstr *s, const qn_jargs *args)
{
    braces p = {.args = args, .escape = s->markup};
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    format_into(c, b, &p, s, 1);
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}
