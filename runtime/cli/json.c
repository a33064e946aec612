#include "cli/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "text/utf8.h"

char *qn_json_quote(const char *text, size_t len)
{
    if (len > SIZE_MAX / 8) {
        return NULL;
    }
    char *out = malloc(6 * len + 3), *p = out;
    if (out == NULL) {
        return NULL;
    }
    *p++ = '"';
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int k = qn_utf8_next((const unsigned char *)text + i, len - i, &cp);
        if (k <= 0) { /* malformed, or cut off at the end */
            p += qn_utf8_put(QN_UTF8_REPLACEMENT, (unsigned char *)p);
            i = k == 0 ? len : i + (size_t)-k;
            continue;
        }
        if (cp == '"' || cp == '\\') {
            *p++ = '\\';
            *p++ = (char)cp;
        } else if (cp == '\n') {
            *p++ = '\\';
            *p++ = 'n';
        } else if (cp < 0x20 || cp == 0x7f) {
            p += sprintf(p, "\\u%04x", (unsigned)cp);
        } else {
            memcpy(p, text + i, (size_t)k);
            p += k;
        }
        i += (size_t)k;
    }
    *p++ = '"';
    *p = 0;
    return out;
}

void qn_json_text(cJSON *object, const char *key, const char *text, size_t len)
{
    char *quoted = qn_json_quote(text, len);
    cJSON_AddRawToObject(object, key, quoted != NULL ? quoted : "null");
    free(quoted);
}

void qn_json_u64(cJSON *object, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    cJSON_AddRawToObject(object, key, text);
}

void qn_json_i32s(cJSON *object, const char *key, const int32_t *values, size_t n)
{
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (size_t i = 0; i < n; i++) {
        cJSON_AddItemToArray(array, cJSON_CreateNumber(values[i]));
    }
}

int qn_json_print(cJSON *object, int indented)
{
    char *text = indented ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (text == NULL) {
        return qn_cli_error("out of memory for JSON output");
    }
    puts(text);
    cJSON_free(text);
    return fflush(stdout) == 0 ? QN_EXIT_OK : qn_cli_error("cannot write to stdout");
}
