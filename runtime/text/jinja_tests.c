/* jinja_tests.c: what stands behind `is`. */
#include "text/jinja_internal.h"

static qn_jval t_boolean(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_BOOL);
}

static qn_jval t_callable(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(qn_jcallable(v));
}

static qn_jval t_defined(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind != QN_J_UNDEFINED);
}

static qn_jval t_undefined(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_UNDEFINED);
}

static qn_jval t_escaped(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_STR && v.s->markup);
}

static qn_jval t_false(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_BOOL && !v.b);
}

static qn_jval t_true(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_BOOL && v.b);
}

static qn_jval t_float(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_FLOAT);
}

static qn_jval t_integer(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_INT);
}

static qn_jval t_number(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_INT || v.kind == QN_J_BOOL || v.kind == QN_J_FLOAT);
}

static qn_jval t_iterable(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    return qn_jbool(v.kind == QN_J_LOOP || qn_jiter_try(c, v) != NULL);
}

static qn_jval t_lower(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    return qn_jbool(qn_jis_case(qn_jto_str(c, v), false));
}

static qn_jval t_upper(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    return qn_jbool(qn_jis_case(qn_jto_str(c, v), true));
}

static qn_jval t_mapping(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_DICT);
}

static qn_jval t_none(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_NONE);
}

static qn_jval t_sequence(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(qn_jlen(v) >= 0 && v.kind != QN_J_VIEW);
}

static qn_jval t_string(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_STR);
}

static qn_jval t_sameas(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)c;
    return qn_jbool(qn_jsame(v, a->arg[0]));
}

static qn_jval t_divisibleby(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jequal(c, qn_jbinary(c, QN_OP_MOD, v, a->arg[0]), qn_jint(0)));
}

static qn_jval t_even(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    return qn_jbool(qn_jequal(c, qn_jbinary(c, QN_OP_MOD, v, qn_jint(2)), qn_jint(0)));
}

static qn_jval t_odd(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    return qn_jbool(qn_jequal(c, qn_jbinary(c, QN_OP_MOD, v, qn_jint(2)), qn_jint(1)));
}

static qn_jval t_eq(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcompare(c, QN_OP_EQ, v, a->arg[0]));
}

static qn_jval t_ne(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcompare(c, QN_OP_NE, v, a->arg[0]));
}

static qn_jval t_lt(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcompare(c, QN_OP_LT, v, a->arg[0]));
}

static qn_jval t_le(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcompare(c, QN_OP_LE, v, a->arg[0]));
}

static qn_jval t_gt(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcompare(c, QN_OP_GT, v, a->arg[0]));
}

static qn_jval t_ge(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcompare(c, QN_OP_GE, v, a->arg[0]));
}

static qn_jval t_in(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    return qn_jbool(qn_jcontains(c, a->arg[0], v));
}

static qn_jval t_filter(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_STR &&
                    (qn_jfilter_find(v.s->p, v.s->len) != NULL || qn_jfilter_known(v.s->p, v.s->len)));
}

static qn_jval t_test(qn_jctx *c, qn_jval v, const qn_jbound *a)
{
    (void)a;
    (void)c;
    return qn_jbool(v.kind == QN_J_STR && qn_jtest_find(v.s->p, v.s->len) != NULL);
}

const qn_jfunc *qn_jtest_find(const char *name, size_t len)
{
    static const qn_jfunc table[] = {
        {"!=", "other", t_ne},
        {"<", "other", t_lt},
        {"<=", "other", t_le},
        {"==", "other", t_eq},
        {">", "other", t_gt},
        {">=", "other", t_ge},
        {"boolean", "", t_boolean},
        {"callable", "", t_callable},
        {"defined", "", t_defined},
        {"divisibleby", "num", t_divisibleby},
        {"eq", "other", t_eq},
        {"equalto", "other", t_eq},
        {"escaped", "", t_escaped},
        {"even", "", t_even},
        {"false", "", t_false},
        {"filter", "", t_filter},
        {"float", "", t_float},
        {"ge", "other", t_ge},
        {"greaterthan", "other", t_gt},
        {"gt", "other", t_gt},
        {"in", "seq", t_in},
        {"integer", "", t_integer},
        {"iterable", "", t_iterable},
        {"le", "other", t_le},
        {"lessthan", "other", t_lt},
        {"lower", "", t_lower},
        {"lt", "other", t_lt},
        {"mapping", "", t_mapping},
        {"ne", "other", t_ne},
        {"none", "", t_none},
        {"number", "", t_number},
        {"odd", "", t_odd},
        {"sameas", "other", t_sameas},
        {"sequence", "", t_sequence},
        {"string", "", t_string},
        {"test", "", t_test},
        {"true", "", t_true},
        {"undefined", "", t_undefined},
        {"upper", "", t_upper},
        {0},
    };
    return qn_jfunc_find(table, name, len);
}
