/* template.h: chat templates without a loaded model, for the commands about text. */
#ifndef QN_ENGINE_TEMPLATE_H
#define QN_ENGINE_TEMPLATE_H

#include <jansson.h>

#include "engine/engine.h"
#include "text/jinja.h"

struct quern_template {
    qn_jinja *jinja;
    char *label, *source;
    size_t len;
    const qn_tokenizer *tok; /* NULL: no texts of special tokens */
};

/* quern_template_open for a file: either may be NULL. tok must outlive the template. */
int qn_template_open(quern_template **out, const qn_gguf *g, const qn_tokenizer *tok, const char *name,
                     qn_err *err);
int qn_template_parse(quern_template **out, const qn_tokenizer *tok, const char *source, size_t len,
                      const char *label, qn_err *err);

/* A JSON value in a rendering, all text of `origin`. */
int qn_template_value(qn_jrender *r, const json_t *j, uint32_t origin, qn_jval *out, qn_err *err);

/* Renders with variables of a JSON object: strings called NAME_token are the template's text, all others are
 * message text. messages: their values are message text, but for roles that are plain words; texts of ids are
 * looked up there. Either may be NULL. *raised: malloc'ed text of raise_exception after a failure, NULL where
 * something else failed; raised may be NULL. */
typedef struct qn_template_input {
    const json_t *vars;
    const json_t *messages;     /* a list */
    const quern_message *given; /* the messages that `messages` was made of; NULL: none with ids */
    size_t n_given;
    int64_t now;
} qn_template_input;

int qn_template_render(const quern_template *t, const qn_template_input *in, quern_rendering *out,
                       char **raised, qn_err *err);

/* quern_rendering_tokens for a tokenizer. */
int qn_rendering_tokens(const qn_tokenizer *tok, const quern_rendering *r, int32_t **ids, size_t *n,
                        qn_err *err);

#endif
