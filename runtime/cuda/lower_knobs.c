/* lower_knobs.c: sites: launches with something to choose, and what is chosen. */
#include "cuda/lower_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *at;
    size_t left;
} text;

static void put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at, t->left, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static const char *type_name(int type)
{
    return type < 0 ? "-" : qn_dtype_get((qn_type)type)->name;
}

/* What decides how fast a step's kernel runs with which knobs: sizes and types. */
static void put_step(text *t, const lowerer *l, const qn_step *s)
{
    if (s->op->id == QN_OP_LINEAR) {
        const qn_spec_linear *sp = &s->spec.linear;
        put(t, " in %d out", sp->n_in);
        for (int i = 0; i < sp->n_seg; i++) {
            put(t, "%s %d %s", i ? "," : "", sp->seg_out[i], type_name(sp->seg_dtype[i]));
        }
    } else if (s->op->id == QN_OP_GLU) {
        const qn_spec_glu *sp = &s->spec.glu;
        put(t, " in %d out %d %s, %s", sp->n_in, sp->n_ff,
            type_name(sp->fused ? sp->up_dtype : sp->gate_dtype), type_name(sp->up_dtype));
    } else if (s->op->id == QN_OP_ATTENTION) {
        const qn_spec_attention *sp = &s->spec.attention;
        const qn_exec_opts *o = l->opts->exec;
        put(t, " heads %d of %d dims %d, %d window %d cache %s, %s", sp->n_head, sp->n_head_kv, sp->k_dim,
            sp->v_dim, sp->window, o->k_type == QN_CACHE_Q8_0 ? "q8_0" : "f16",
            o->v_type == QN_CACHE_Q8_0 ? "q8_0" : "f16");
    }
}

/* The site of a key. Launches of one key that were shipped differently are two sites. */
static qn_site *find_site(lowerer *l, const char *key, const qn_knob_room *room, const qn_knobs *shipped)
{
    qn_lowered *out = l->out;
    for (int i = 0; i < out->n_site; i++) {
        const qn_site *s = &out->sites[i];
        if (strcmp(s->key, key) == 0 && memcmp(&s->shipped, shipped, sizeof *shipped) == 0 &&
            memcmp(&s->room, room, sizeof *room) == 0) {
            return &out->sites[i];
        }
    }
    if (out->n_site == out->cap_site) {
        int cap = out->cap_site ? 2 * out->cap_site : 16;
        qn_site *more = realloc(out->sites, sizeof *more * (size_t)cap);
        if (!more) {
            qn_fail(l->err, "out of memory for launches");
            return NULL;
        }
        out->sites = more;
        out->cap_site = cap;
    }
    qn_site *s = &out->sites[out->n_site++];
    memset(s, 0, sizeof *s);
    snprintf(s->key, sizeof s->key, "%s", key);
    s->room = *room;
    s->shipped = s->now = *shipped;
    return s;
}

const qn_knobs *qn_lower_knobs(lowerer *l, launch *k, qn_knob_kind kind, const char *what,
                               const qn_step *also, const qn_knob_room *room, const qn_knobs *shipped)
{
    char key[QN_KNOB_KEY];
    text t = {key, sizeof key};
    bool phase = l->opts->persistent && l->mode == LOWER_DECODE;
    put(&t, "%.*s", (int)strcspn(what, "."), what);
    put_step(&t, l, l->step);
    if (also) {
        put(&t, ", %s", also->op->name);
    }
    if (l->mode != LOWER_DECODE || phase) {
        put(&t, phase ? ", a phase" : ", several rows");
    }
    qn_site *s = find_site(l, key, room, shipped);
    if (!s) {
        return NULL;
    }
    if (s->n_use++ == 0) {
        qn_knobs chosen = *shipped;
        s->kind = kind;
        s->tuned = !phase && l->opts->knobs && l->opts->knobs(l->opts->knobs_user, s, &chosen) &&
                   qn_knobs_fit(kind, room, &chosen);
        s->now = s->tuned ? chosen : s->now;
    }
    k->site = (int)(s - l->out->sites) + 1;
    return &s->now;
}
