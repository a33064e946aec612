#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

/* What a text may have at most: an endless file (a device) is refused before it has taken all memory. */
enum { MAX_TEXT = 1 << 30 };

static int read_stream(FILE *f, const char *name, char **data, size_t *size)
{
    size_t cap = 1 << 16, n = 0;
    char *p = malloc(cap);
    while (p != NULL) {
        n += fread(p + n, 1, cap - n - 1, f);
        if (n < cap - 1) {
            break;
        }
        if (n >= MAX_TEXT) {
            qn_cli_error("%s: more than %d MiB", name, MAX_TEXT >> 20);
            free(p);
            return -1;
        }
        char *grown = cap <= SIZE_MAX / 2 ? realloc(p, cap * 2) : NULL;
        if (grown == NULL) {
            free(p);
            p = NULL;
        } else {
            p = grown;
            cap *= 2;
        }
    }
    if (p == NULL) {
        qn_cli_error("%s: out of memory", name);
        return -1;
    }
    if (ferror(f)) {
        qn_cli_error("%s: %s", name, strerror(errno));
        free(p);
        return -1;
    }
    p[n] = 0;
    *data = p;
    *size = n;
    return 0;
}

int qn_cli_read_file(const char *path, char **data, size_t *size)
{
    *data = NULL;
    *size = 0;
    if (strcmp(path, "-") == 0) {
        return read_stream(stdin, "stdin", data, size);
    }
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        qn_cli_error("%s: %s", path, strerror(errno));
        return -1;
    }
    int rc = -1;
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
        qn_cli_error("%s: is a directory", path);
    } else {
        rc = read_stream(f, path, data, size);
    }
    fclose(f);
    return rc;
}
