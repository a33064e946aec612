// rooms: room_text
/* A GGUF of arbitrary bytes as a tokenizer: it is refused with a message, or it works on any text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void use(const qn_tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    size_t n, back_len;
    char *back;
    qn_err err = {""};
    for (int flags = 0; flags < 4; flags++) {
        if (qn_tokenize(t, text, len, flags & 1, flags & 2, &ids, &n, &err)) {
            must(err.text[0] != '\0'); /* a byte may have no token */
            continue;
        }
        must(qn_detokenize(t, ids, n, (unsigned)flags, &back, &back_len, &err) == 0);
        free(back);
        free(ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_gguf *g;
    qn_tokenizer *t;
    qn_err err = {""};
    if (qn_gguf_open_memory(&g, data, size, "fuzz.gguf", &err)) {
        return 0;
    }
    if (qn_tokenizer_new(&t, g, NULL, &err)) {
        must(!t && err.text[0] != '\0');
        qn_gguf_close(g);
        return 0;
    }
    size_t n_eog, len;
    const int32_t *eog = qn_tokenizer_eog(t, &n_eog);
    for (size_t i = 0; i < n_eog; i++) {
        must(eog[i] >= 0 && eog[i] < qn_tokenizer_n_vocab(t));
    }
    for (int32_t i = 0; i < qn_tokenizer_n_vocab(t); i++) {
        const char *s = qn_token_text(t, i, &len);
        must(len > 0 && qn_token_find(t, s, len) == i);
    }
    static const char text[] = "Hello  world\n\n12345 <s>a</s> h\xc3\xa9llo \xe4\xb8\xad\xff<|im_end|>";
    use(t, text, sizeof text - 1);
    use(t, (const char *)data, size < 300 ? size : 300);
    qn_tokenizer_free(t);
    qn_gguf_close(g);
    return 0;
}
