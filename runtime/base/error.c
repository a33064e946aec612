#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text from files may hold control bytes that would garble a terminal. */
static void make_printable(char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f) {
            *s = '?';
        }
    }
}

int(qn_fail)(qn_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    make_printable(err->text);
    return -1;
}

int(qn_fail_prefix)(qn_err *err, const char *fmt, ...)
{
    char head[QN_ERR_MAX / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    make_printable(head);
    size_t n = strnlen(head, sizeof head);
    size_t kept = strnlen(err->text, sizeof err->text - n - 3);
    memmove(err->text + n + 2, err->text, kept);
    memcpy(err->text, head, n);
    memcpy(err->text + n, ": ", 2);
    err->text[n + 2 + kept] = '\0';
    return -1;
}
