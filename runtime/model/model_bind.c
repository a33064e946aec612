/* model_bind.c: one tensor: its name, its shape, its type; and the small groups tensors come in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_internal.h"

enum { NAME_MAX_LEN = 128 };

static void full_name(const qn_binder *b, const char *name, const char *suffix, char *buf)
{
    const char *dot = *suffix ? "." : "";
    if (b->il >= 0) {
        snprintf(buf, NAME_MAX_LEN, "blk.%d.%s%s%s", b->il, name, dot, suffix);
    } else {
        snprintf(buf, NAME_MAX_LEN, "%s%s%s", name, dot, suffix);
    }
}

const qn_tensor *qn_bind_find(const qn_binder *b, const char *name, const char *suffix)
{
    char full[NAME_MAX_LEN];
    full_name(b, name, suffix, full);
    const qn_tensor *t = qn_gguf_find_tensor(b->g, full);
    if (!t && strcmp(suffix, "weight") == 0) {
        full_name(b, name, "", full);
        t = qn_gguf_find_tensor(b->g, full);
    }
    return t;
}

/* "[64, 96]": trailing ones beyond the first dimension are left out. */
static const char *shape_text(const uint64_t ne[4], char *buf, size_t size)
{
    int n = 4;
    while (n > 1 && ne[n - 1] == 1) {
        n--;
    }
    size_t at = 0;
    for (int i = 0; i < n && at < size; i++) {
        at += (size_t)snprintf(buf + at, size - at, "%s%llu", i ? ", " : "[", (unsigned long long)ne[i]);
    }
    if (at < size) {
        snprintf(buf + at, size - at, "]");
    }
    return buf;
}

static int use(qn_binder *b, const qn_tensor *t)
{
    if (b->n_used == b->cap_used) {
        size_t cap = b->cap_used ? 2 * b->cap_used : 256;
        const qn_tensor **bigger = realloc(b->used, cap * sizeof *bigger);
        if (!bigger) {
            return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
        }
        b->used = bigger;
        b->cap_used = cap;
    }
    b->used[b->n_used++] = t;
    return 0;
}

int qn_bind_fault(qn_binder *b)
{
    if (!b->faults) {
        return -1;
    }
    b->faults->report(b->faults->user, b->err->text);
    b->faults->n++;
    return 0;
}

int qn_bind_named(qn_binder *b, const qn_tensor **out, const char *name, const char *suffix, qn_shape shape,
                  qn_need need, const void *leaf)
{
    *out = NULL;
    if (!name || need == QN_NEED_NO) {
        return 0;
    }
    const char *file = qn_gguf_path(b->g);
    const qn_tensor *t = qn_bind_find(b, name, suffix);
    char want[96], have[96], origin[192];
    shape_text(shape.ne, want, sizeof want);
    if (!t && need == QN_NEED_OPTIONAL) {
        return 0;
    }
    qn_config_origin(b->config, b->cfg, leaf, origin, sizeof origin);
    if (!t) {
        char full[NAME_MAX_LEN];
        full_name(b, name, suffix, full);
        qn_fail(b->err, "%s: tensor %s %s is missing (asked for by %s)", file, full, want, origin);
        return qn_bind_fault(b);
    }
    for (int i = 0; i < 4; i++) {
        if (t->ne[i] != shape.ne[i]) {
            qn_fail(b->err, "%s: tensor %s is %s, expected %s (%s)", file, t->name,
                    shape_text(t->ne, have, sizeof have), want, origin);
            return qn_bind_fault(b);
        }
    }
    const qn_dtype *type = qn_dtype_get(t->type);
    if (shape.f32 && t->type != QN_F32) {
        return qn_fail(b->err, "%s: tensor %s is of type %s; norms, biases and scales must be %s (%s)", file,
                       t->name, type->name, qn_dtype_get(QN_F32)->name, origin);
    }
    if (!type->decode) {
        qn_fail(b->err, "%s: tensor %s is of type %s, which is not supported (supported: %s)", file, t->name,
                type->name, qn_dtype_supported());
        return qn_bind_fault(b);
    }
    *out = t;
    return use(b, t);
}

int qn_bind_tensor(qn_binder *b, const qn_tensor **out, const char *const *leaf, const char *suffix,
                   qn_shape shape, qn_need need)
{
    return qn_bind_named(b, out, *leaf, suffix, shape, need, leaf);
}

static qn_shape vector(uint64_t n)
{
    return (qn_shape){{n, 1, 1, 1}, true};
}

int qn_bind_linear(qn_binder *b, qn_linear *out, const char *const *leaf, uint64_t n_in, uint64_t n_out,
                   qn_need bias)
{
    return qn_bind_tensor(b, &out->w, leaf, "weight", (qn_shape){{n_in, n_out, 1, 1}, false}, QN_NEED_YES) ||
                   qn_bind_tensor(b, &out->b, leaf, "bias", vector(n_out), bias) ||
                   qn_bind_tensor(b, &out->scale, leaf, "scale", vector(1), (qn_need)b->cfg->weights.scale)
               ? -1
               : 0;
}

int qn_bind_norm(qn_binder *b, qn_norm *out, const char *const *leaf, uint64_t n)
{
    if (!*leaf) {
        return 0;
    }
    out->kind = (qn_norm_kind)b->cfg->norm.kind;
    out->eps = (float)b->cfg->norm.eps;
    return qn_bind_tensor(b, &out->w, leaf, "weight", vector(n), (qn_need)b->cfg->norm.weight) ||
                   qn_bind_tensor(b, &out->b, leaf, "bias", vector(n), (qn_need)b->cfg->norm.bias)
               ? -1
               : 0;
}

int qn_bind_rms(qn_binder *b, qn_norm *out, const char *const *leaf, uint64_t n)
{
    if (!*leaf) {
        return 0;
    }
    out->kind = QN_NORM_RMS;
    out->eps = (float)b->cfg->norm.eps;
    return qn_bind_tensor(b, &out->w, leaf, "weight", vector(n), QN_NEED_YES);
}
