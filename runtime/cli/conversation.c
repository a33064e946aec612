#include "cli/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/json.h"

static const char *const roles[] = {"system", "user", "assistant"};
_Static_assert(sizeof roles / sizeof *roles == QN_CHAT_N_ROLES, "a name for each role");

const char *qn_chat_role_name(qn_chat_role role)
{
    return roles[role];
}

static void free_turn(qn_turn *t)
{
    free(t->content);
    free(t->thought);
    free(t->ids);
    memset(t, 0, sizeof *t);
}

int qn_conversation_take(qn_conversation *c, qn_turn *turn)
{
    if (c->n == c->cap) {
        size_t cap = c->cap != 0 ? 2 * c->cap : 16;
        qn_turn *turns = realloc(c->turns, cap * sizeof *turns);
        if (turns == NULL) {
            free_turn(turn);
            qn_cli_error("out of memory for %zu messages", cap);
            return -1;
        }
        c->turns = turns;
        c->cap = cap;
    }
    c->turns[c->n++] = *turn;
    memset(turn, 0, sizeof *turn);
    return 0;
}

/* malloc'ed, with a NUL behind. */
static char *copy(const char *text, size_t len)
{
    char *p = malloc(len + 1);
    if (p == NULL) {
        qn_cli_error("out of memory for a message of %zu bytes", len);
        return NULL;
    }
    if (len > 0) {
        memcpy(p, text, len);
    }
    p[len] = 0;
    return p;
}

int qn_conversation_add(qn_conversation *c, qn_chat_role role, const char *text, size_t len)
{
    qn_turn t = {.role = role, .content = copy(text, len), .len = len};
    return t.content != NULL ? qn_conversation_take(c, &t) : -1;
}

void qn_conversation_cut(qn_conversation *c, size_t n)
{
    while (c->n > n) {
        free_turn(&c->turns[--c->n]);
    }
}

void qn_conversation_free(qn_conversation *c)
{
    qn_conversation_cut(c, 0);
    free(c->turns);
    memset(c, 0, sizeof *c);
}

const qn_turn *qn_conversation_system(const qn_conversation *c)
{
    return c->n > 0 && c->turns[0].role == QN_CHAT_SYSTEM ? &c->turns[0] : NULL;
}

int qn_conversation_set_system(qn_conversation *c, const char *text, size_t len)
{
    if (text != NULL) {
        if (qn_conversation_add(c, QN_CHAT_SYSTEM, text, len) != 0) {
            return -1;
        }
        qn_turn added = c->turns[c->n - 1];
        memmove(c->turns + 1, c->turns, (c->n - 1) * sizeof *c->turns);
        c->turns[0] = added;
    }
    size_t old = text != NULL; /* where a former one is by now */
    if (old < c->n && c->turns[old].role == QN_CHAT_SYSTEM) {
        free_turn(&c->turns[old]);
        memmove(c->turns + old, c->turns + old + 1, (c->n - old - 1) * sizeof *c->turns);
        c->n--;
    }
    return 0;
}

static json_t *to_json(const qn_conversation *c)
{
    json_t *list = json_array();
    int bad = 0;
    for (size_t i = 0; i < c->n; i++) {
        const qn_turn *t = &c->turns[i];
        json_t *o = json_object();
        bad |= qn_json_set(o, "role", qn_json_str(roles[t->role]));
        bad |= qn_json_set(o, "content", qn_json_text(t->content, t->len));
        if (t->thought != NULL) {
            bad |= qn_json_set(o, "reasoning_content", qn_json_text(t->thought, t->thought_len));
        }
        bad |= json_array_append_new(list, o);
    }
    return qn_json_whole(list, bad);
}

static int write_file(const char *path, const char *text)
{
    char temp[4096];
    int n = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temp) {
        qn_cli_error("%s: the name is too long", path);
        return -1;
    }
    int fd = mkstemp(temp);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL) {
        qn_cli_error("%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(temp);
        }
        return -1;
    }
    bool bad = fputs(text, f) < 0 || fputc('\n', f) < 0;
    bad |= fflush(f) != 0 || fsync(fd) != 0;
    int error = errno;
    bad |= fclose(f) != 0;
    if (bad || rename(temp, path) != 0) {
        qn_cli_error("%s: %s", path, strerror(bad ? error : errno));
        unlink(temp);
        return -1;
    }
    return 0;
}

/* A text from the file `name`'s message i. */
static int read_text(const json_t *v, char **text, size_t *len)
{
    *len = json_string_length(v);
    *text = copy(json_string_value(v), *len);
    return *text != NULL ? 0 : -1;
}

static int read_role(const json_t *v, qn_chat_role *role)
{
    for (int i = 0; json_is_string(v) && i < QN_CHAT_N_ROLES; i++) {
        if (strcmp(json_string_value(v), roles[i]) == 0) {
            *role = (qn_chat_role)i;
            return 0;
        }
    }
    return -1;
}

/* Adds message i of a file; nothing is printed. */
static int read_message(qn_conversation *c, const json_t *o, size_t i, qn_err *err)
{
    qn_turn t = {0};
    const char *key;
    json_t *v;
    if (!json_is_object(o)) {
        return qn_fail(err, "message %zu is not an object", i);
    }
    json_object_foreach((json_t *)o, key, v)
    {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 &&
            strcmp(key, "reasoning_content") != 0) {
            return qn_fail(err, "message %zu: member '%.64s' is not one of role, content, reasoning_content",
                           i, key);
        }
        if (!json_is_string(v)) {
            return qn_fail(err, "message %zu: %s is not a string", i, key);
        }
    }
    const json_t *content = json_object_get(o, "content"), *thought = json_object_get(o, "reasoning_content");
    if (read_role(json_object_get(o, "role"), &t.role) != 0) {
        return qn_fail(err, "message %zu: role is none of system, user, assistant", i);
    }
    if (t.role == QN_CHAT_SYSTEM && i > 0) {
        return qn_fail(err, "message %zu: a system message stands at the beginning", i);
    }
    if (content == NULL) {
        return qn_fail(err, "message %zu has no content", i);
    }
    if (read_text(content, &t.content, &t.len) != 0 ||
        (thought != NULL && read_text(thought, &t.thought, &t.thought_len) != 0)) {
        free_turn(&t);
        return qn_fail(err, "message %zu: out of memory", i);
    }
    return qn_conversation_take(c, &t) == 0 ? 0 : qn_fail(err, "message %zu: out of memory", i);
}

/* The whole of a regular file; nothing is printed. */
static int read_file(const char *path, char **data, size_t *size, qn_err *err)
{
    enum { MOST = 256 << 20 };
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not keep the chat waiting */
    if (fd < 0 || fstat(fd, &st) != 0) {
        int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return qn_fail(err, "%s: %s", path, strerror(error));
    }
    *size = 0;
    *data = NULL;
    int rc = 0;
    if (!S_ISREG(st.st_mode)) {
        rc = qn_fail(err, "%s: not a regular file", path);
    } else if (st.st_size > MOST) {
        rc = qn_fail(err, "%s: %lld bytes are more than a conversation has (%d)", path, (long long)st.st_size,
                     MOST);
    } else if ((*data = malloc((size_t)st.st_size + 1)) == NULL) {
        rc = qn_fail(err, "%s: out of memory for %lld bytes", path, (long long)st.st_size);
    }
    while (rc == 0 && *size < (size_t)st.st_size) {
        ssize_t n = read(fd, *data + *size, (size_t)st.st_size - *size);
        if (n < 0 && errno != EINTR) {
            rc = qn_fail(err, "%s: %s", path, strerror(errno));
        }
        if (n == 0) {
            break;
        }
        *size += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (rc != 0) {
        free(*data);
        *data = NULL;
    }
    return rc;
}

static int load(qn_conversation *c, const char *path, qn_err *err)
{
    char *data;
    size_t size;
    json_error_t bad;
    if (read_file(path, &data, &size, err) != 0) {
        return -1;
    }
    json_t *root = json_loadb(data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &bad);
    free(data);
    if (root == NULL) {
        return qn_fail(err, "%s:%d:%d: not JSON: %s", path, bad.line, bad.column, bad.text);
    }
    const json_t *list = json_is_object(root) ? json_object_get(root, "messages") : root;
    int rc = 0;
    if (!json_is_array(list) || json_array_size(list) == 0) {
        rc = qn_fail(err, "%s: not a list of messages, nor an object with one as \"messages\"", path);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        rc = read_message(c, json_array_get(list, i), i, err);
        rc = rc == 0 ? 0 : qn_fail_prefix(err, "%s", path);
    }
    json_decref(root);
    if (rc != 0) {
        qn_conversation_free(c);
    }
    return rc;
}

int qn_conversation_load(qn_conversation *c, const char *path)
{
    qn_err err;
    int rc = load(c, path, &err);
    if (rc != 0) {
        qn_cli_error("%s", err.text);
    }
    return rc;
}

int qn_conversation_save(const qn_conversation *c, const char *path)
{
    qn_conversation old = {0};
    qn_err err;
    struct stat st;
    bool there = lstat(path, &st) == 0;
    if (there && load(&old, path, &err) != 0) {
        qn_cli_error("%s is there and is not a saved conversation; give another name (%s)", path, err.text);
        return -1;
    }
    qn_conversation_free(&old);
    json_t *list = to_json(c);
    char *text = list != NULL ? json_dumps(list, JSON_INDENT(2)) : NULL;
    json_decref(list);
    if (text == NULL) {
        qn_cli_error("%s: out of memory", path);
        return -1;
    }
    int rc = write_file(path, text);
    free(text);
    return rc;
}
