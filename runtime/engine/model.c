/* model.c: a model of quern.h is a bound model, its two plans and, where the file has one, its tokenizer. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "engine/engine.h"

const char *quern_version(void)
{
    return QUERN_VERSION;
}

void qn_engine_log(const quern_model *m, int level, const char *fmt, ...)
{
    if (m->log != NULL) {
        char line[512];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        m->log(m->log_user, level, line);
    }
}

int qn_engine_tokenizer(qn_tokenizer **out, const qn_gguf *g, const quern_model_params *p, qn_err *err)
{
    char dir[PATH_MAX];
    qn_tok_opts opts = {.eog = p->end_tokens, .n_eog = p->n_end_tokens};
    struct stat st;
    if (p->config_dir != NULL) {
        int len = snprintf(dir, sizeof dir, "%s/tokenizers", p->config_dir);
        if (len < 0 || (size_t)len >= sizeof dir) {
            return qn_fail(err, "%s: path too long", p->config_dir);
        }
        opts.config_dir = stat(dir, &st) == 0 ? dir : NULL;
    }
    return qn_tokenizer_new(out, g, &opts, err);
}

static int load_tokenizer(quern_model *m, const quern_model_params *p, qn_err *err)
{
    if (qn_engine_tokenizer(&m->tok, m->model->gguf, p, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < qn_tokenizer_n_warnings(m->tok); i++) {
        qn_engine_log(m, 0, "warning: %s", qn_tokenizer_warning(m->tok, i));
    }
    return 0;
}

static int load(quern_model *m, const char *path, const quern_model_params *p, qn_err *err)
{
    qn_model_opts opts = {.config_dir = p->config_dir, .n_ctx = p->n_ctx};
    if (p->n_ctx < 0) {
        return qn_fail(err, "context size %d is negative (0: the default)", p->n_ctx);
    }
    m->n_ctx_default = p->n_ctx == 0;
    m->log = p->log;
    m->log_user = p->log_user;
    if (qn_model_load(&m->model, path, &opts, err) != 0) {
        return -1;
    }
    if (!p->no_tokenizer && qn_tokenizer_present(m->model->gguf) && load_tokenizer(m, p, err) != 0) {
        return -1;
    }
    return qn_plans_build(&m->plans, m->model, err);
}

int quern_model_load(quern_model **out, const char *path, const quern_model_params *params,
                     quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    const quern_model_params none = {0};
    *out = NULL;
    quern_model *m = qn_calloc(1, sizeof *m);
    if (m == NULL) {
        return qn_fail(err, "out of memory for a model");
    }
    if (load(m, path, params != NULL ? params : &none, err) != 0) {
        quern_model_free(m);
        return -1;
    }
    *out = m;
    return 0;
}

void quern_model_free(quern_model *m)
{
    if (m != NULL) {
        qn_plans_free(m->plans);
        qn_tokenizer_free(m->tok);
        qn_model_free(m->model);
        free(m);
    }
}

int quern_model_n_vocab(const quern_model *m)
{
    return m->model->n_vocab;
}

int quern_model_n_ctx(const quern_model *m)
{
    return m->model->n_ctx;
}

int quern_model_n_ctx_train(const quern_model *m)
{
    return m->model->n_ctx_train;
}

bool quern_model_has_tokenizer(const quern_model *m)
{
    return m->tok != NULL;
}

static int need_tokenizer(const quern_model *m, qn_err *err)
{
    return m->tok != NULL ? 0 : qn_fail(err, "%s: the model has no tokenizer", qn_gguf_path(m->model->gguf));
}

int quern_tokenize(const quern_model *m, const char *text, size_t len, bool add_special, bool parse_special,
                   int32_t **ids, size_t *n, quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    *ids = NULL;
    *n = 0;
    return need_tokenizer(m, err) != 0
               ? -1
               : qn_tokenize(m->tok, text, len, add_special, parse_special, ids, n, err);
}

int quern_detokenize(const quern_model *m, const int32_t *ids, size_t n, bool special, char **text,
                     size_t *len, quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    *text = NULL;
    *len = 0;
    return need_tokenizer(m, err) != 0
               ? -1
               : qn_detokenize(m->tok, ids, n, special ? QN_DETOK_SPECIAL : 0, text, len, err);
}

bool quern_is_end_token(const quern_model *m, int32_t id)
{
    return m->tok != NULL && qn_tokenizer_is_eog(m->tok, id);
}
