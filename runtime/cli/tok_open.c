#include "cli/tok_open.h"

#include "cli/cli.h"
#include "text/utf8.h"

qn_tokenizer *qn_tok_open(const char *path, const char *configs)
{
    qn_gguf *g;
    qn_err err;
    char dir[4096];
    qn_tok_opts opts = {0};
    qn_tokenizer *t = NULL;
    if (configs) {
        if ((size_t)snprintf(dir, sizeof dir, "%s/tokenizers", configs) >= sizeof dir) {
            qn_cli_error("--model-configs: the path is too long");
            return NULL;
        }
        opts.config_dir = dir;
    }
    if (qn_gguf_open(&g, path, &err)) {
        qn_cli_error("%s", err.text);
        return NULL;
    }
    if (qn_tokenizer_new(&t, g, &opts, &err)) {
        qn_cli_error("%s", err.text);
    } else {
        for (size_t i = 0; i < qn_tokenizer_n_warnings(t); i++) {
            qn_cli_note("%s: %s", path, qn_tokenizer_warning(t, i));
        }
    }
    qn_gguf_close(g);
    return t;
}

void qn_print_json_string(FILE *f, const char *s, size_t len)
{
    putc('"', f);
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int k = qn_utf8_next((const unsigned char *)s + i, len - i, &cp);
        if (k <= 0) {
            fputs("\xef\xbf\xbd", f);
            i += k < 0 ? (size_t)-k : len - i;
        } else if (cp < 0x20 || cp == 0x7f) {
            fprintf(f, "\\u%04x", cp);
            i++;
        } else {
            if (cp == '"' || cp == '\\') {
                putc('\\', f);
            }
            fwrite(s + i, 1, (size_t)k, f);
            i += (size_t)k;
        }
    }
    putc('"', f);
}

void qn_print_ids(FILE *f, const int32_t *ids, size_t n)
{
    putc('[', f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%s%d", i ? ", " : "", ids[i]);
    }
    putc(']', f);
}
