#include "codegen/choices.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/cache.h"
#include "codegen/cache_fs.h"

static const char first[] = "quern choices 1; "; /* and the head */
enum { DIGITS = 16, MOST_BYTES = 1 << 20 };

static bool add(qn_choices *c, const char *key, size_t n_key, const char *value, size_t n_value)
{
    qn_choice_line *more = c->n % 64 ? c->lines : realloc(c->lines, sizeof *more * (size_t)(c->n + 64));
    if (!more) {
        return false;
    }
    c->lines = more;
    qn_choice_line *l = &more[c->n];
    l->key = strndup(key, n_key);
    l->value = strndup(value, n_value);
    if (!l->key || !l->value) {
        free(l->key);
        free(l->value);
        return false;
    }
    c->n++;
    return true;
}

static void clear(qn_choices *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->lines[i].key);
        free(c->lines[i].value);
    }
    free(c->lines);
    c->lines = NULL;
    c->n = 0;
}

void qn_choices_free(qn_choices *c)
{
    clear(c);
    memset(c, 0, sizeof *c);
}

/* Is it a text that ends with "whole DIGEST\n" of all before? Cuts that off. */
static bool is_whole(char *text, size_t *size)
{
    static const char word[] = "whole ";
    enum { TAIL = sizeof word - 1 + DIGITS + 1 };
    char digest[DIGITS + 1];
    if (*size < TAIL || memchr(text, '\0', *size) || text[*size - 1] != '\n') {
        return false;
    }
    char *tail = text + *size - TAIL;
    qn_cache_digest(text, *size - TAIL, digest);
    if (memcmp(tail, word, sizeof word - 1) != 0 || memcmp(tail + sizeof word - 1, digest, DIGITS) != 0) {
        return false;
    }
    *tail = '\0';
    *size -= TAIL;
    return true;
}

/* Lines behind the first one: "key: value". */
static bool read_lines(qn_choices *c, const char *at)
{
    while (*at != '\0') {
        size_t n = strcspn(at, "\n");
        const char *colon = strstr(at, ": ");
        if (!colon || colon > at + n || n > QN_CHOICES_LINE || c->n == QN_CHOICES_MOST ||
            !add(c, at, (size_t)(colon - at), colon + 2, (size_t)(at + n - colon - 2))) {
            return false;
        }
        at += n + (at[n] == '\n');
    }
    return true;
}

/* Takes what a file holds. head "": the file's own, whatever it is. */
static void take_text(qn_choices *c, char *text, size_t size)
{
    size_t n = sizeof first - 1;
    if (!is_whole(text, &size)) {
        qn_fail(&c->why, "%s is damaged", c->path);
        return;
    }
    size_t line = strcspn(text, "\n");
    bool ours = strncmp(text, first, n) == 0 && line - n < sizeof c->head && text[line] == '\n';
    if (ours && c->head[0] == '\0') {
        snprintf(c->head, sizeof c->head, "%.*s", (int)(line - n), text + n);
    }
    if (!ours || strlen(c->head) != line - n || memcmp(text + n, c->head, line - n) != 0) {
        qn_fail(&c->why, "%s is of another version or card", c->path);
    } else if (!read_lines(c, text + line + 1)) {
        clear(c);
        qn_fail(&c->why, "%s has lines that are no choices", c->path);
    }
}

/* A file that is not there is none; one that cannot be read is ignored as a damaged one is. */
static bool read_file(qn_choices *c)
{
    qn_blob text = {NULL, 0};
    if (access(c->path, F_OK) != 0) {
        return false;
    }
    if (qn_fs_read(AT_FDCWD, c->path, MOST_BYTES, &text, &c->why) == 0) {
        take_text(c, text.data, text.size);
    }
    free(text.data);
    return true;
}

int qn_choices_open(qn_choices *c, const char *dir, const char *kind, const char *head, qn_err *err)
{
    char digest[DIGITS + 1];
    memset(c, 0, sizeof *c);
    if ((size_t)snprintf(c->head, sizeof c->head, "%s; %s", kind, head) >= sizeof c->head) {
        return qn_fail(err, "choices for '%.100s...': too long", head);
    }
    qn_cache_digest(c->head, strlen(c->head), digest);
    if ((size_t)snprintf(c->path, sizeof c->path, "%s/%s-%s.txt", dir, kind, digest) >= sizeof c->path) {
        return qn_fail(err, "%.200s...: path too long", dir);
    }
    read_file(c);
    return 0;
}

const char *qn_choices_get(const qn_choices *c, const char *key)
{
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->lines[i].key, key) == 0) {
            return c->lines[i].value;
        }
    }
    return NULL;
}

bool qn_choices_put(qn_choices *c, const char *key, const char *value)
{
    if (strlen(key) + strlen(value) + 2 > QN_CHOICES_LINE) {
        return false;
    }
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->lines[i].key, key) == 0) {
            char *copy = strdup(value);
            if (copy) {
                free(c->lines[i].value);
                c->lines[i].value = copy;
            }
            return copy != NULL;
        }
    }
    return c->n < QN_CHOICES_MOST && add(c, key, strlen(key), value, strlen(value));
}

/* All of the file's text, malloc'ed; NULL: out of memory. */
static char *text_of(const qn_choices *c)
{
    char *text = NULL, digest[DIGITS + 1];
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        return NULL;
    }
    fprintf(f, "%s%s\n", first, c->head);
    for (int i = 0; i < c->n; i++) {
        fprintf(f, "%s: %s\n", c->lines[i].key, c->lines[i].value);
    }
    fflush(f);
    qn_cache_digest(text, size, digest);
    fprintf(f, "whole %s\n", digest);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int qn_choices_keep(const qn_choices *c, qn_err *err)
{
    char aside[sizeof c->path + 24], dir[sizeof c->path], *text = text_of(c);
    if (!text) {
        return qn_fail(err, "out of memory");
    }
    snprintf(dir, sizeof dir, "%s", c->path);
    *strrchr(dir, '/') = '\0';
    snprintf(aside, sizeof aside, "%s.%ld", c->path, (long)getpid());
    int rc = qn_fs_mkdirs(dir, err);
    FILE *f = rc ? NULL : fopen(aside, "w");
    if (rc == 0) {
        bool whole = f && fputs(text, f) >= 0;
        whole = f && fclose(f) == 0 && whole && rename(aside, c->path) == 0;
        rc = whole ? 0 : qn_fail(err, "%s: %s", c->path, strerror(errno));
        if (rc && f) {
            unlink(aside);
        }
    }
    free(text);
    return rc;
}

/* "products-0123456789abcdef.txt"? */
static bool is_name(const char *name)
{
    static const char *const kinds[] = {"products-", "kernels-"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(name, kinds[i], n) == 0 && strspn(name + n, "0123456789abcdef") == DIGITS &&
            strcmp(name + n + DIGITS, ".txt") == 0) {
            return true;
        }
    }
    return false;
}

static int filter(const struct dirent *e)
{
    return is_name(e->d_name);
}

int qn_choices_each(const char *dir, int (*fn)(void *user, const qn_choices *c), void *user, qn_err *err)
{
    struct dirent **names;
    int n = scandir(dir, &names, filter, alphasort), rc = 0;
    if (n < 0) {
        return errno == ENOMEM ? qn_fail(err, "out of memory") : 0;
    }
    for (int i = 0; i < n; i++) {
        qn_choices c = {.n = 0};
        bool fits = (size_t)snprintf(c.path, sizeof c.path, "%s/%s", dir, names[i]->d_name) < sizeof c.path;
        if (rc == 0 && fits && read_file(&c)) {
            rc = fn(user, &c);
        }
        qn_choices_free(&c);
        free(names[i]);
    }
    free(names);
    return rc;
}
