// rooms: room_text
// The template interpreter by itself: where every byte of its text is from, its limits, and its errors.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

static qn_jinja *parsed(const char *source)
{
    qn_err err;
    qn_jinja *t;
    if (qn_jinja_parse(&t, "t", source, strlen(source), &err) != 0) {
        fail_msg("%s: %s", source, err.text);
    }
    return t;
}

static qn_jval str(qn_jrender *r, const char *text, uint32_t origin)
{
    qn_err err;
    qn_jval v;
    assert_int_equal(qn_jvalue_str(r, text, strlen(text), origin, &v, &err), 0);
    return v;
}

/* m: "Ab <e>", of a message; n: "c d", of another; l: ["x", "y"], d: {"k": "v<"}, all of messages. */
static void add_vars(qn_jrender *r)
{
    qn_err err;
    qn_jval l, d;
    assert_int_equal(qn_jvalue_list(r, &l, &err), 0);
    assert_int_equal(qn_jvalue_append(r, l, str(r, "x", QN_ORIGIN_MESSAGE), &err), 0);
    assert_int_equal(qn_jvalue_append(r, l, str(r, "y", QN_ORIGIN_MESSAGE), &err), 0);
    assert_int_equal(qn_jvalue_dict(r, &d, &err), 0);
    qn_jval k = str(r, "k", QN_ORIGIN_MESSAGE);
    assert_int_equal(qn_jvalue_set(r, d, k, str(r, "v<", QN_ORIGIN_MESSAGE), &err), 0);
    assert_int_equal(qn_jrender_var(r, "m", str(r, "Ab <e>", 5), &err), 0);
    assert_int_equal(qn_jrender_var(r, "n", str(r, "c d", 6), &err), 0);
    assert_int_equal(qn_jrender_var(r, "l", l, &err), 0);
    assert_int_equal(qn_jrender_var(r, "d", d, &err), 0);
}

static int render(const qn_jinja *t, const qn_jinja_limits *limits, char *out, size_t size, qn_err *err)
{
    qn_jinja_text text;
    qn_jrender *r = qn_jrender_new(t, limits, 0);
    size_t at = 0, o = 0;
    assert_non_null(r);
    add_vars(r);
    int rc = qn_jrender_run(r, &text, err);
    for (size_t i = 0; rc == 0 && i < text.n_spans; i++) {
        const qn_jspan *s = &text.spans[i];
        o += (size_t)snprintf(out + o, size - o, "%s%.*s%s", s->origin == 0 ? "" : "{", (int)s->len,
                              text.text + at, s->origin == 0 ? "" : "}");
        assert_true(o < size);
        assert_true(i == 0 || s->origin != s[-1].origin);
        at += s->len;
    }
    out[o] = 0;
    qn_jrender_free(r);
    return rc;
}

/* Text of messages stands in braces; braces of two messages meet where their texts do. */
static void gives(const char *source, const char *want)
{
    char got[4096];
    qn_err err;
    qn_jinja *t = parsed(source);
    if (render(t, NULL, got, sizeof got, &err) != 0) {
        fail_msg("%s: %s", source, err.text);
    }
    if (strcmp(got, want) != 0) {
        fail_msg("%s: '%s' instead of '%s'", source, got, want);
    }
    qn_jinja_free(t);
}

static void origins(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a{{ m }}b", "a{Ab <e>}b"},
        {"{{ 'x' + m + 'y' + n }}", "x{Ab <e>}y{c d}"},
        {"{{ m + n }}", "{Ab <e>}{c d}"},
        {"{{ 'x' ~ m ~ 1 }}", "x{Ab <e>}1"},
        {"{{ m[1:] ~ '|' ~ m[::-1] ~ '|' ~ m[0] ~ ('q' + m)[0] }}", "{b <e>}|{>e< bA}|{A}q"},
        {"{{ ('<' + m + '>') [2:] }}", "{b <e>}>"},
        {"{{ ('  ' + n + ' ') | trim }}|{{ m.strip('A>') }}", "{c d}|{b <e}"},
        {"{{ m.replace('<e>', '<f>') }}", "{Ab }<f>"},
        {"{{ 'a-b' | replace('-', m) }}", "a{Ab <e>}b"},
        {"{{ l | join('<') }}|{{ n.join(['1', '2']) }}", "{x}<{y}|1{c d}2"},
        {"{{ m.split(' ') }}", "['{Ab}', '{<e>}']"},
        {"{{ ('t ' + n).split() | join('+') }}", "t+{c}+{d}"},
        {"{{ ('<u>' + m) | upper }}|{{ ('X' + m) | lower }}", "<U>{AB <E>}|x{ab <e>}"},
        {"{{ ('q' + n) | title }}|{{ ('q' + n) | capitalize }}", "Q{c D}|Q{c d}"},
        {"{{ '%s=%5s' % (m, n) }}|{{ '%.2s' % m }}", "{Ab <e>}=  {c d}|{Ab}"},
        {"{{ '{}-{:>5}'.format(m, n) }}", "{Ab <e>}-  {c d}"},
        {"{{ '%s' | format(m) }}|{{ m % () }}", "{Ab <e>}|{Ab <e>}"},
        {"{{ '%r' % m }}|{{ [m] }}", "'{Ab <e>}'|['{Ab <e>}']"},
        {"{{ d | tojson }}", "{\"{k}\": \"{v<}\"}"},
        {"{{ (m + '\\n') | tojson }}", "\"{Ab <e>}\\n\""},
        {"{{ d | string }}|{{ d.items() | list }}", "{'{k}': '{v<}'}|[('{k}', '{v<}')]"},
        {"{{ m | e }}|{{ m | urlencode }}", "{Ab &lt;e&gt;}|{Ab%20%3Ce%3E}"},
        {"{{ ('a\\n' + n) | indent(2) }}", "a\n  {c d}"},
        {"{{ n | center(7) }}|{{ '3'.zfill(3) }}", "  {c d}  |003"},
        {"{{ (m + n) | truncate(8, true, '..', 0) }}", "{Ab <e>}.."},
        {"{{ m | list | reverse | join }}", "{>e< bA}"},
        {"{% set x %}<{{ m }}>{% endset %}{{ x }}{{ x[1:3] }}", "<{Ab <e>}>{Ab}"},
        {"{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(m) | upper }}", "<{AB <E>}>"},
        {"{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ n }}{% endcall %}", "<{c d}>"},
        {"{% filter upper %}a{{ n }}{% endfilter %}", "A{C D}"},
        {"{% set ns = namespace(t='') %}{% for i in l %}{% set ns.t = ns.t + i + ';' %}{% endfor %}{{ ns.t "
         "}}",
         "{x};{y};"},
        {"{{ m.partition('<') | join('|') }}", "{Ab }|{<}|{e>}"},
        {"{{ m * 2 }}|{{ 2 * ('-' + n) }}", "{Ab <e>Ab <e>}|-{c d}-{c d}"},
        {"{{ m.expandtabs() ~ m.swapcase() }}", "{Ab <e>aB <E>}"},
        {"{{ '%c' % 60 }}", "{<}"}, /* a number may be of a message, who knows */
        {"{% generation %}{{ m }}{% endgeneration %}", "{Ab <e>}"},
        {"{{ l | map('upper') | join }}{{ l | batch(1) | map('join') | join('.') }}", "{XYx}.{y}"},
        {"{{ (m if true else 'x') ~ (m and n) ~ ('' or m) }}", "{Ab <e>}{c d}{Ab <e>}"},
        {"{{ m | default('x') }}{{ zz | default(m) }}", "{Ab <e>Ab <e>}"},
        {"{{ d['k'] }}{{ d.k }}{{ d.get('k') }}{{ d | dictsort | first | last }}", "{v<v<v<v<}"},
        {"{{ namespace(a=m) }}", "<Namespace {'a': '{Ab <e>}'}>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gives(rows[i][0], rows[i][1]);
    }
}

/* A string that was appended to in place does not change under those that share its memory. */
static void shared_buffers(void **state)
{
    (void)state;
    gives("{% set a = m + 'x' %}{% set b = a + 'y' %}{% set c = a + n %}{{ a }}|{{ b }}|{{ c }}|{{ a }}",
          "{Ab <e>}x|{Ab <e>}xy|{Ab <e>}x{c d}|{Ab <e>}x");
    gives("{% set a = 'x' + n %}{% set p = a[1:] %}{% set q = p + '1' %}{% set r = p + '2' %}{{ p }}{{ q "
          "}}{{ r }}",
          "{c dc d}1{c d}2");
}

static void fails(const char *source, const char *want)
{
    char got[4096];
    qn_err err;
    qn_jinja *t;
    if (qn_jinja_parse(&t, "t", source, strlen(source), &err) == 0) {
        if (render(t, NULL, got, sizeof got, &err) == 0) {
            fail_msg("%s: gives '%s'", source, got);
        }
        qn_jinja_free(t);
    } else {
        assert_null(t);
    }
    if (strstr(err.text, want) == NULL) {
        fail_msg("%s: '%s' instead of '%s'", source, err.text, want);
    }
}

/* What is wrong is said with the line and the name. */
static void errors(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"\n\n{% include 'x' %}", "t:3: the tag 'include' is not supported"},
        {"{% frobnicate %}", "t:1: unknown tag 'frobnicate'"},
        {"{% if m %}{% frobnicate %}{% endif %}",
         "unknown tag 'frobnicate'; the innermost open block is 'if'"},
        {"\n{{ m | nosuch }}", "t:2: no filter named 'nosuch'"},
        {"{{ m | urlize }}", "the filter 'urlize' is not supported"},
        {"{{ l | map('pprint') | list }}", "the filter 'pprint' is not supported"},
        {"{{ m is nosuch }}", "no test named 'nosuch'"},
        {"{{ m.encode() }}", "the method 'encode' of a str is not supported"},
        {"{{ zz.y }}", "'zz' is undefined"},
        {"{{ d.q.r }}", "'dict object' has no attribute 'q'"},
        {"{{ l.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"},
        {"{{ m.__class__.x }}", "access to attribute '__class__' of 'str' object is unsafe"},
        {"\n\n{{\n 1 + m }}", "t:4: unsupported operand type(s) for +: 'int' and 'str'"},
        {"{{ m + 1 }}", "can only concatenate str (not \"int\") to str"},
        {"{% if m %}", "the block 'if' is not closed"},
        {"{% for x in l %}", "the block 'for' is not closed"},
        {"{{ m ", "a tag is not closed with '}}'"},
        {"{{ 'm }}", "a string is not closed"},
        {"{# m ", "missing end of comment"},
        {"{{ (m }}", "unexpected '}'"},
        {"{{ m n }}", "expected '}}', got 'n'"},
        {"{{ m) }}", "unexpected ')'"},
        {"{{ 99999999999999999999 }}", "the integer 99999999999999999999 does not fit 64 bits"},
        {"{{ 9223372036854775807 + 1 }}", "integer overflow"},
        {"{{ raise_exception('no ' ~ n) }}", "t:1: no c d"},
        {"{{ 1 // 0 }}", "integer division or modulo by zero"},
        {"{{ range(1000000) }}", "Range too big"},
        {"{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "macro 'f' takes no keyword argument 'b'"},
        {"{{ m.split(1) }}", "split(): a string is needed, got 'int'"},
        {"{{ m | replace('a') }}", "replace() missing required argument 'new'"},
        {"{{ m | trim(foo=1) }}", "trim() got an unexpected keyword argument 'foo'"},
        {"{{ m.upper }}", "has no text"},
        {"{{ '\\ud800' }}", "the escape U+D800 of a string is no character"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fails(rows[i][0], rows[i][1]);
    }
}

static void raised(void **state)
{
    (void)state;
    qn_err err;
    qn_jinja_text text;
    static const char *const source[] = {"{{ raise_exception('own words') }}", "{{ 1 + '' }}"};
    for (int i = 0; i < 2; i++) {
        qn_jinja *t = parsed(source[i]);
        qn_jrender *r = qn_jrender_new(t, NULL, 0);
        assert_int_equal(qn_jrender_run(r, &text, &err), -1);
        if (i == 0) {
            assert_string_equal(text.raised, "own words");
        } else {
            assert_null(text.raised);
        }
        qn_jrender_free(r);
        qn_jinja_free(t);
    }
}

/* Times are without a zone and of whole seconds. */
static void times(void **state)
{
    (void)state;
    gives("{{ strftime_now('%z|%Z|%:z|%f|%%Z|%%f|%M:%S%') }}", "|||000000|%Z|%f|00:00%");
}

/* Templates that would not end, or would take all memory, are stopped by a limit that is named. */
static void limits(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
         "more than 20000000 steps"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"},
        {"{% set ns = namespace(s='abcdefgh') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
         "endfor %}",
         "MiB of memory"},
        {"{{ 'abcdefgh' * 99999999 }}", "too long"},
        {"{{ 'a'.center(999999999999) }}", "too much"},
        {"{{ 'a'|center(60000000) }}", "too much"},
        {"{{ 'a'|indent(60000000) }}", "too much"},
        {"{{ '%999999999d' % 1 }}", "too wide"},
        {"{{ '%.999999999f' % 1 }}", "too much"},
        {"{% for i in range(99999) %}{{ 'abcdefghabcdefgh' }}{% endfor %}", "writes more than"},
        {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested too deeply"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
         "}}",
         "nested too deeply"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ "
         "ns.l|tojson }}",
         "nested too deeply"},
        {"{% set ns = namespace(l=()) %}{% for i in range(90000) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ "
         "{ns.l: 1} }}",
         "nested too deeply"},
        {"{% set ns = namespace(l=()) %}{% for i in range(90) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ "
         "{ns.l: 1} }}",
         "more than 20000000 steps"},
        {"{% set ns = namespace(a=(), b=()) %}{% for i in range(90) %}{% set ns.a = (ns.a, ns.a) %}"
         "{% set ns.b = (ns.b, ns.b) %}{% endfor %}{{ ns.a == ns.b }}",
         "more than 20000000 steps"},
        {"{% set s = 'a' * 1000000 %}{% for i in range(90000) %}{% if s is upper or s.find('b') > 0 %}{% "
         "endif %}{% endfor %}",
         "more than 20000000 steps"},
        {"{% set ns = namespace(g=l) %}{% for i in range(9999) %}{% set ns.g = ns.g|map('upper') %}{% endfor "
         "%}"
         "{{ ns.g|list }}",
         "nested too deeply"},
        {"{{ [1]|batch(99999999999, 1)|list }}", "MiB of memory"},
    };
    const qn_jinja_limits small = {.steps = 20000000, .memory = 64 << 20, .output = 1 << 20, .depth = 500};
    char got[4096];
    qn_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_jinja *t = parsed(rows[i][0]);
        assert_int_equal(render(t, &small, got, sizeof got, &err), -1);
        if (strstr(err.text, rows[i][1]) == NULL) {
            fail_msg("%s: '%s' instead of '%s'", rows[i][0], err.text, rows[i][1]);
        }
        qn_jinja_free(t);
    }
}

/* Deep nesting in the source: parentheses, minus signs, blocks, brackets. */
static void deep_source(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const char *const unit[] = {"(",     "-",    "[",  "not ",      "{% if m %}",
                                       "1 if ", "a.b(", "{#", "{% raw %}", "1+("};
    char *source = malloc(N * 12 + 16);
    qn_err err;
    qn_jinja *t;
    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
        size_t n = 0, len = strlen(unit[u]);
        bool tag = unit[u][0] == '{';
        n += (size_t)sprintf(source, "%s", tag ? "" : "{{ ");
        for (size_t i = 0; i < N; i++, n += len) {
            memcpy(source + n, unit[u], len);
        }
        assert_int_equal(qn_jinja_parse(&t, "t", source, n, &err), -1);
    }
    size_t n = (size_t)sprintf(source, "{{ 1"); /* long, not nested: a sum of many */
    for (size_t i = 0; i < 300; i++) {
        n += (size_t)sprintf(source + n, "+1");
    }
    n += (size_t)sprintf(source + n, " }}");
    source[n] = 0;
    gives(source, "301");
    static const char *const chain[] = {"{{ m", "{% filter upper", "{% set x|upper"};
    for (size_t k = 0; k < 3; k++) {
        n = (size_t)sprintf(source, "%s", chain[k]);
        for (size_t i = 0; i < N; i++) {
            n += (size_t)sprintf(source + n, "|lower");
        }
        n += (size_t)sprintf(source + n, "%s",
                             k == 0   ? " }}"
                             : k == 1 ? " %}{% endfilter %}"
                                      : " %}{% endset %}");
        char got[64];
        assert_int_equal(qn_jinja_parse(&t, "t", source, n, &err), 0);
        assert_int_equal(render(t, &qn_jinja_limits_default, got, sizeof got, &err), -1);
        assert_non_null(strstr(err.text, "nested too deeply"));
        qn_jinja_free(t);
    }
    free(source);
}

/* A template that uses much of the language. */
static const char rich[] =
    "{% macro f(a, b='x') %}{{ a ~ b }}{{ caller() if caller else '' }}{{ varargs }}{% endmacro %}\n"
    "{% set ns = namespace(t='', l=[]) %}{% for i in l if i != 'z' recursive %}{% set ns.t = ns.t + i|upper "
    "+ m %}"
    "{% set ns.l = ns.l + [i, loop.index, loop.nextitem] %}{% else %}none{% endfor %}{{ ns.t }}{{ ns.l }}"
    "{% call(q) f(m, b=n) %}{{ q }}{% endcall %}{% set v | trim %} {{ d|tojson(indent=1) }} {% endset %}{{ v "
    "}}"
    "{% with a = m.split(' ') %}{{ a|map('replace', '<', '>')|join('-') }}{{ a|sort|first }}{% endwith %}"
    "{% filter indent(2) %}{{ '%s %5.1f' % (n, 2.5) }}\n{{ '{:>9}{!r}'.format(m, n) }}{% endfilter %}"
    "{{ l|batch(2, 'f')|list }}{{ d.items()|list }}{{ l|groupby(0)|list }}{{ m[::-1][1:3] }}{{ dict(a=1, "
    "**d) }}"
    "{{ 1 + 2 * 3 ** 2 // 4 }}{{ n.title().center(9, '*') }}{{ range(3)|sum }}{{ 'a' in m and not n is none "
    "}}";

/* Memory that ends at any point of a rendering is an error like any other, and nothing leaks. */
static void memory_ends(void **state)
{
    (void)state;
    char whole[4096], got[4096];
    qn_err err;
    qn_jinja *t = parsed(rich);
    qn_jinja_limits limits = qn_jinja_limits_default;
    assert_int_equal(render(t, NULL, whole, sizeof whole, &err), 0);
    size_t n_failed = 0;
    for (size_t memory = 4000;; memory += 16) { /* the variables take some of it */
        limits.memory = memory;
        if (render(t, &limits, got, sizeof got, &err) == 0) {
            assert_string_equal(got, whole);
            break;
        }
        assert_non_null(strstr(err.text, "MiB of memory"));
        n_failed++;
    }
    assert_true(n_failed > 100);
    limits = qn_jinja_limits_default;
    for (limits.steps = 100; render(t, &limits, got, sizeof got, &err) != 0; limits.steps++) {
        assert_non_null(strstr(err.text, "steps"));
    }
    assert_string_equal(got, whole);
    limits = qn_jinja_limits_default;
    for (limits.depth = 5; render(t, &limits, got, sizeof got, &err) != 0; limits.depth++) {
        assert_non_null(strstr(err.text, "nested too deeply"));
    }
    qn_jinja_free(t);
}

/* A template that ends anywhere, or has any byte changed, is read or refused. */
static void damaged_source(void **state)
{
    (void)state;
    static const char bytes[] = "{}%#-'\\(.|\n\xff";
    char *copy = malloc(sizeof rich), got[1 << 16];
    qn_err err;
    qn_jinja *t;
    const qn_jinja_limits small = {.steps = 100000, .memory = 4 << 20, .output = 4096, .depth = 200};
    assert_non_null(copy);
    for (size_t n = 0; n < sizeof rich - 1; n++) {
        memcpy(copy, rich, n);
        if (qn_jinja_parse(&t, "t", copy, n, &err) == 0) {
            (void)render(t, &small, got, sizeof got, &err);
            qn_jinja_free(t);
        }
    }
    for (size_t i = 0; i < sizeof rich - 1; i++) {
        for (size_t k = 0; k < sizeof bytes - 1; k += 1 + i % 3) {
            memcpy(copy, rich, sizeof rich);
            copy[i] = bytes[k];
            if (qn_jinja_parse(&t, "t", copy, sizeof rich - 1, &err) == 0) {
                (void)render(t, &small, got, sizeof got, &err);
                qn_jinja_free(t);
            }
        }
    }
    free(copy);
}

/* What was read once is read the same by every thread. */
static void *render_often(void *user)
{
    char got[4096];
    qn_err err;
    for (int i = 0; i < 200; i++) {
        if (render(user, NULL, got, sizeof got, &err) != 0 || strcmp(got, "é日{Ab <e>}é日!7 é") != 0) {
            return user;
        }
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    qn_jinja *t =
        parsed("{% set a = 'é日' %}{{ a + m }}{{ a + '!' }}{{ ('é日本語 é日')|length }} {{ 'é日'[0] }}");
    pthread_t thread[4];
    void *bad;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, render_often, t), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
    qn_jinja_free(t);
}

/* Malformed text passes through operations byte by byte. */
static void malformed(void **state)
{
    (void)state;
    qn_err err;
    qn_jinja_text text;
    qn_jinja *t =
        parsed("{{ m|length }} {{ m|upper }} {{ m[::-1] }} {{ m|list|join('.') }} {{ [m] }} {{ m|tojson }}");
    qn_jrender *r = qn_jrender_new(t, NULL, 0);
    assert_int_equal(qn_jrender_var(r, "m", str(r, "a\xff\xe2\x82z", 1), &err), 0);
    assert_int_equal(qn_jrender_run(r, &text, &err), 0);
    static const char want[] = "5 A\xff\xe2\x82Z z\x82\xe2\xff"
                               "a a.\xff.\xe2.\x82.z ['a\\udcff\\udce2\\udc82z'] "
                               "\"a\xff\xe2\x82z\"";
    assert_int_equal(text.len, sizeof want - 1);
    assert_memory_equal(text.text, want, text.len);
    qn_jrender_free(r);
    qn_jinja_free(t);
}

static void reads(void **state)
{
    (void)state;
    qn_jinja *t = parsed("{% set a = 1 %}{% if enable_thinking is defined %}{{ d.tools }}{% endif %}");
    assert_true(qn_jinja_reads(t, "enable_thinking"));
    assert_true(qn_jinja_reads(t, "d"));
    assert_false(qn_jinja_reads(t, "tools"));
    assert_false(qn_jinja_reads(t, "a"));
    assert_false(qn_jinja_reads(t, "loop"));
    qn_jinja_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(origins),     cmocka_unit_test(shared_buffers), cmocka_unit_test(errors),
        cmocka_unit_test(raised),      cmocka_unit_test(times),          cmocka_unit_test(limits),
        cmocka_unit_test(deep_source), cmocka_unit_test(memory_ends),    cmocka_unit_test(damaged_source),
        cmocka_unit_test(threads),     cmocka_unit_test(malformed),      cmocka_unit_test(reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
