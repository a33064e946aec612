#include "codegen/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/dtype.h"

static int int_at(const qn_spec *spec, const qn_field *f, int i)
{
    int32_t v;
    memcpy(&v, (const char *)spec + f->offset + 4 * (size_t)i, sizeof v);
    return v;
}

static float float_at(const qn_spec *spec, const qn_field *f, int i)
{
    float v;
    memcpy(&v, (const char *)spec + f->offset + 4 * (size_t)i, sizeof v);
    return v;
}

/* Name of an enumeration's value; NULL: it has none. */
static const char *enum_name(const qn_field *f, int value)
{
    for (int i = 0; f->names && f->names[i]; i++) {
        if (i == value) {
            return f->names[i];
        }
    }
    return NULL;
}

static const char *dtype_name(int value)
{
    const qn_dtype *d = value >= 0 ? qn_dtype_get((uint32_t)value) : NULL;
    return d ? d->name : NULL;
}

/* Nine digits bring every float back bit for bit; the point or exponent makes it a floating literal. */
static int print_float(FILE *f, float v, const char *op, const char *name, qn_err *err)
{
    if (!isfinite(v)) {
        return qn_fail(err, "%s: %s is not a finite number", op, name);
    }
    char text[40];
    snprintf(text, sizeof text, "%.9g", (double)v);
    fprintf(f, "%s%sf", text, strpbrk(text, ".e") ? "" : ".0");
    return 0;
}

static int print_value(FILE *f, const qn_op *op, const qn_spec *spec, const qn_field *field, int i,
                       qn_err *err)
{
    if (field->kind == QN_FIELD_FLOAT) {
        return print_float(f, float_at(spec, field, i), op->name, field->name, err);
    }
    fprintf(f, "%d", int_at(spec, field, i));
    return 0;
}

/* Behind a value: the name it stands for. */
static int print_remark(FILE *f, const qn_op *op, const qn_spec *spec, const qn_field *field, qn_err *err)
{
    if (field->kind != QN_FIELD_ENUM && field->kind != QN_FIELD_DTYPE) {
        return 0;
    }
    fputs(" //", f);
    for (int i = 0; i < field->count; i++) {
        int v = int_at(spec, field, i);
        const char *name = field->kind == QN_FIELD_ENUM ? enum_name(field, v) : dtype_name(v);
        if (!name && field->kind == QN_FIELD_ENUM) {
            return qn_fail(err, "%s: %s has no value %d", op->name, field->name, v);
        }
        fprintf(f, " %s", name ? name : "none");
    }
    return 0;
}

static int print_field(FILE *f, const qn_op *op, const qn_spec *spec, const qn_field *field, qn_err *err)
{
    bool array = field->count > 1;
    int rc = 0;
    fprintf(f, "constexpr %s %s%s", field->kind == QN_FIELD_FLOAT ? "float" : "int", field->name,
            array ? "[" : "");
    if (array) {
        fprintf(f, "%d]", field->count);
    }
    fputs(array ? " = {" : " = ", f);
    for (int i = 0; i < field->count && rc == 0; i++) {
        fputs(i ? ", " : "", f);
        rc = print_value(f, op, spec, field, i, err);
    }
    fputs(array ? "};" : ";", f);
    rc = rc ? rc : print_remark(f, op, spec, field, err);
    fputc('\n', f);
    return rc;
}

/* Appends "_text" to the readable part of the symbol, as far as it fits; other bytes than letters and digits
 * become '_'. */
static void append(qn_source *s, const char *text, int value, bool with_value)
{
    char part[96];
    snprintf(part, sizeof part, with_value ? "_%s%d" : "_%s", text, value);
    size_t used = strlen(s->spec);
    if (used + strlen(part) >= sizeof s->spec - 48) {
        return; /* 48: room for the op's name in the symbol */
    }
    for (const char *c = part; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        s->spec[used++] = plain || *c == '-' ? (*c == '-' ? 'm' : *c) : '_';
    }
    s->spec[used] = '\0';
}

/* Names of enumerations and types, sizes other than 0, flags that are set; no floats. */
static void append_field(qn_source *s, const qn_spec *spec, const qn_field *field)
{
    for (int i = 0; i < field->count; i++) {
        if (field->kind == QN_FIELD_FLOAT) {
            return;
        }
        int v = int_at(spec, field, i);
        const char *name = field->kind == QN_FIELD_ENUM ? enum_name(field, v) : dtype_name(v);
        if (field->kind == QN_FIELD_ENUM) {
            if (v != 0 && name) {
                append(s, name, 0, false);
            }
        } else if (field->kind == QN_FIELD_DTYPE) {
            if (name) {
                append(s, name, 0, false);
            }
        } else if (v != 0 && field->kind == QN_FIELD_BOOL) {
            append(s, field->name, i, field->count > 1);
        } else if (v != 0) {
            append(s, i ? "" : field->name, v, true);
        }
    }
}

static const qn_field *find_field(const qn_op *op, const char *name)
{
    for (int i = 0; i < op->n_field; i++) {
        if (strcmp(op->fields[i].name, name) == 0) {
            return &op->fields[i];
        }
    }
    return NULL;
}

/* The fields of the second op that the first does not have. */
static int print_also(FILE *f, qn_source *s, const qn_source_request *r, qn_err *err)
{
    int rc = 0;
    for (int i = 0; i < r->also->n_field && rc == 0; i++) {
        const qn_field *field = &r->also->fields[i], *same = find_field(r->op, field->name);
        if (!same) {
            rc = print_field(f, r->also, r->also_spec, field, err);
            append_field(s, r->also_spec, field);
        } else if (int_at(r->spec, same, 0) != int_at(r->also_spec, field, 0)) {
            rc = qn_fail(err, "%s is %d of %s and %d of %s", field->name, int_at(r->spec, same, 0),
                         r->op->name, int_at(r->also_spec, field, 0), r->also->name);
        }
    }
    return rc;
}

static int print_all(FILE *f, qn_source *s, const qn_source_request *r, qn_err *err)
{
    fputs("namespace spec {\n", f);
    int rc = 0;
    for (int i = 0; r->op && i < r->op->n_field && rc == 0; i++) {
        rc = print_field(f, r->op, r->spec, &r->op->fields[i], err);
        append_field(s, r->spec, &r->op->fields[i]);
    }
    rc = rc || !r->also ? rc : print_also(f, s, r, err);
    for (int i = 0; i < r->n_const; i++) {
        const qn_source_const *c = &r->consts[i];
        const char *dtype = c->is_dtype ? dtype_name(c->value) : NULL;
        fprintf(f, "constexpr int %s = %d;\n", c->name, c->value);
        if (dtype) {
            append(s, dtype, 0, false);
        } else if (c->in_symbol) {
            append(s, c->name, c->value, true);
        }
    }
    const char *spec_text = s->spec[0] == '_' ? s->spec + 1 : s->spec;
    snprintf(s->symbol, sizeof s->symbol, "%.40s_%.110s", r->name, spec_text);
    memmove(s->spec, spec_text, strlen(spec_text) + 1);
    fprintf(f, "constexpr int variant = %d;\n} // namespace spec\n\n", r->variant);
    fprintf(f, "#define QN_VARIANT %d\n#define QN_KERNEL %s\n#include \"%s\"\n", r->variant, s->symbol,
            r->kernel);
    return rc;
}

int qn_source_make(qn_source *out, const qn_source_request *r, qn_err *err)
{
    *out = (qn_source){0};
    size_t size = 0;
    FILE *f = open_memstream(&out->text, &size);
    if (!f) {
        return qn_fail(err, "out of memory");
    }
    int rc = print_all(f, out, r, err);
    if (fclose(f) != 0 && rc == 0) {
        rc = qn_fail(err, "out of memory");
    }
    if (rc != 0) {
        qn_source_free(out);
    }
    return rc;
}

int qn_source_generate(qn_source *out, const qn_op *op, const qn_spec *spec, int variant,
                       const qn_source_const *consts, int n_const, qn_err *err)
{
    qn_source_request r = {.name = op->name,
                           .kernel = op->kernel,
                           .op = op,
                           .spec = spec,
                           .variant = variant,
                           .consts = consts,
                           .n_const = n_const};
    return qn_source_make(out, &r, err);
}

void qn_source_free(qn_source *s)
{
    free(s->text);
    *s = (qn_source){0};
}
