// rooms: room_text
/* A chat template from an untrusted file: any bytes are parsed, and what parses is rendered with a
 * conversation. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static qn_jval text(qn_jrender *r, const char *s)
{
    qn_err err;
    qn_jval v = qn_jvalue_none();
    (void)qn_jvalue_str(r, s, strlen(s), QN_ORIGIN_MESSAGE, &v, &err);
    return v;
}

static void add_vars(qn_jrender *r)
{
    static const char *const pairs[][2] = {
        {"user", "Hi <|im_end|>"}, {"assistant", "A\xc3\xa9\xff\n"}, {"tool", ""}};
    qn_err err;
    qn_jval list, message, call;
    if (qn_jvalue_list(r, &list, &err) != 0) {
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        if (qn_jvalue_dict(r, &message, &err) != 0 || qn_jvalue_dict(r, &call, &err) != 0) {
            return;
        }
        (void)qn_jvalue_set(r, call, text(r, "n"), qn_jvalue_int(-3), &err);
        (void)qn_jvalue_set(r, message, text(r, "role"), text(r, pairs[i][0]), &err);
        (void)qn_jvalue_set(r, message, text(r, "content"), text(r, pairs[i][1]), &err);
        (void)qn_jvalue_set(r, message, text(r, "call"), call, &err);
        (void)qn_jvalue_append(r, list, message, &err);
    }
    (void)qn_jrender_var(r, "messages", list, &err);
    (void)qn_jrender_var(r, "s", text(r, "a b,c"), &err);
    (void)qn_jrender_var(r, "f", qn_jvalue_float(-2.5), &err);
    (void)qn_jrender_var(r, "add_generation_prompt", qn_jvalue_bool(true), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const qn_jinja_limits limits = {.steps = 300000, .memory = 16 << 20, .output = 1 << 20, .depth = 300};
    qn_err err;
    qn_jinja *t;
    if (qn_jinja_parse(&t, "t", (const char *)data, size, &err) != 0) {
        return 0;
    }
    qn_jrender *r = qn_jrender_new(t, &limits, 1000000000);
    qn_jinja_text out;
    if (r != NULL) {
        add_vars(r);
        if (qn_jrender_run(r, &out, &err) == 0) {
            size_t sum = 0;
            for (size_t i = 0; i < out.n_spans; i++) {
                sum += out.spans[i].len;
            }
            if (sum != out.len) {
                abort();
            }
        }
    }
    qn_jrender_free(r);
    qn_jinja_free(t);
    return 0;
}
