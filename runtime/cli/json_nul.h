/* json_nul.h: JSON strings with \u0000, which cJSON's NUL-terminated strings cannot hold.
 *
 * Before parsing, each \u0000 of a line becomes a noncharacter that the line does not contain (U+FDD0 ...
 * U+FDEF); after parsing, that character becomes a NUL byte. */
#ifndef QN_CLI_JSON_NUL_H
#define QN_CLI_JSON_NUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Rewrites a line in place. Returns the last byte of the stand-in's UTF-8 form, 0 where the line has no
 * \u0000, or -1 where all stand-ins are taken. */
static inline int qn_json_hide_nul(char *line)
{
    if (!strstr(line, "\\u0000")) {
        return 0;
    }
    int mark = -1;
    for (int c = 0x90; mark < 0 && c <= 0xaf; c++) {
        char raw[4] = {'\xef', '\xb7', (char)c, 0}, lower[8], upper[8];
        snprintf(lower, sizeof lower, "\\ufd%02x", 0xd0 + c - 0x90);
        snprintf(upper, sizeof upper, "\\uFD%02X", 0xd0 + c - 0x90);
        mark = strstr(line, raw) || strcasestr(line, lower) || strstr(line, upper) ? -1 : c;
    }
    for (char *p = line; mark > 0 && *p; p++) {
        if (p[0] == '\\' && p[1]) {
            if (strncmp(p, "\\u0000", 6) == 0) {
                char escape[8];
                snprintf(escape, sizeof escape, "\\ufd%02x", (unsigned)(0xd0 + mark - 0x90) & 0xffu);
                memcpy(p, escape, 6);
            }
            p++;
        }
    }
    return mark;
}

/* Turns the stand-ins of a parsed string into NUL bytes, in place; returns the string's length. */
static inline size_t qn_json_show_nul(char *s, int mark)
{
    size_t len = strlen(s), n = 0;
    for (size_t i = 0; i < len; i++) {
        if (mark > 0 && len - i >= 3 && memcmp(s + i, "\xef\xb7", 2) == 0 &&
            (unsigned char)s[i + 2] == mark) {
            s[n++] = '\0';
            i += 2;
        } else {
            s[n++] = s[i];
        }
    }
    return n;
}

#endif
