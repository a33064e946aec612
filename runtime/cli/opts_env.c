/* opts_env.c: an environment variable for each option. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/opts_internal.h"
#include "model/yaml.h"

extern char **environ;

enum { ENV_NAME_MAX = 64 };

bool qn_opt_env_name(const qn_opt *o, char *text, size_t size)
{
    const char *name = strstr(o->names, "--");
    if (name == NULL || strncmp(name, "--help", 6) == 0) {
        return false;
    }
    name += 2;
    size_t len = strcspn(name, ", "), n = (size_t)snprintf(text, size, "QUERN_");
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        text[n++] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
    }
    text[n] = '\0';
    return true;
}

bool qn_opt_from_env(const char *value)
{
    for (char **e = environ; value != NULL && *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        if (equals != NULL && equals + 1 == value) {
            return true;
        }
    }
    return false;
}

/* 1: yes, 0: no, -1: neither. */
static int truth(const char *value)
{
    static const char *const words[] = {"0", "1", "off", "on", "no", "yes", "false", "true"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(value, words[i]) == 0) {
            return i % 2;
        }
    }
    return -1;
}

static int set_from(const qn_usage *u, const qn_opt *o, const char *name, const char *value, void *dst)
{
    if (o->arg != NULL) {
        return qn_opts_set(u, o, name, value, dst);
    }
    int yes = truth(value);
    if (yes < 0) {
        return qn_cli_usage_error(u->name, "%s: '%s' is neither 1 nor 0", name, value);
    }
    return yes ? qn_opts_set(u, o, name, "", dst) : -1;
}

static const qn_given *find_given(const qn_given *given, size_t n, const void *dst)
{
    for (size_t i = 0; i < n; i++) {
        if (given[i].dst == dst) {
            return &given[i];
        }
    }
    return NULL;
}

/* The variable of an option with a value in it; NULL: none. */
static const char *lookup(const qn_opt *o, char name[ENV_NAME_MAX])
{
    const char *value = qn_opt_env_name(o, name, ENV_NAME_MAX) ? getenv(name) : NULL;
    return value != NULL && *value != '\0' ? value : NULL;
}

int qn_opts_from_env(const qn_usage *u, const qn_given *given, size_t n)
{
    int rc = -1;
    for (size_t g = 0; rc < 0 && g < u->n_groups; g++) {
        for (const qn_opt *o = u->groups[g].opts; rc < 0 && o->names != NULL; o++) {
            char name[ENV_NAME_MAX];
            void *dst = (char *)u->groups[g].base + o->offset;
            const char *value = lookup(o, name);
            if (value != NULL && find_given(given, n, dst) == NULL) {
                rc = set_from(u, o, name, value, dst);
            }
        }
    }
    return rc;
}

void qn_opts_show(const qn_usage *u, const qn_given *given, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        qn_cli_debug(QN_DEBUG_OPTIONS, "%s%s%s (command line)", given[i].name, *given[i].value ? " " : "",
                     given[i].value);
    }
    for (size_t g = 0; g < u->n_groups; g++) {
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            char name[ENV_NAME_MAX];
            const char *value = lookup(o, name);
            if (value != NULL) {
                bool beaten = find_given(given, n, (char *)u->groups[g].base + o->offset) != NULL;
                qn_cli_debug(QN_DEBUG_OPTIONS, "%s=%s (environment%s)", name, value,
                             beaten ? "; the command line wins" : "");
            }
        }
    }
}

/* The variables of all options. */
typedef struct known {
    char (*names)[ENV_NAME_MAX];
    size_t n, cap;
} known;

static void add_known(void *user, const qn_usage *u)
{
    known *k = user;
    for (size_t g = 0; g < u->n_groups; g++) {
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            if (k->n == k->cap) {
                size_t cap = 2 * k->cap + 64;
                void *names = realloc(k->names, cap * sizeof *k->names);
                if (names == NULL) {
                    return;
                }
                k->names = names;
                k->cap = cap;
            }
            k->n += qn_opt_env_name(o, k->names[k->n], sizeof k->names[k->n]);
        }
    }
}

static void check_name(const known *k, const char **all, const char *entry)
{
    char name[ENV_NAME_MAX];
    size_t len = strcspn(entry, "=");
    snprintf(name, sizeof name, "%.*s", (int)len, entry);
    for (size_t i = 0; i < k->n; i++) {
        if (strcmp(k->names[i], name) == 0) {
            return;
        }
        all[i] = k->names[i];
    }
    const char *near = qn_nearest(name, all, k->n);
    qn_cli_detail("warning: no option reads the variable %s%s%s%s", name,
                  near != NULL ? " (did you mean " : "", near != NULL ? near : "", near != NULL ? "?)" : "");
}

void qn_opts_check_env(void)
{
    known k = {0};
    bool listed = false;
    for (char **e = environ; *e != NULL; e++) {
        if (strncmp(*e, "QUERN_", 6) != 0) {
            continue;
        }
        for (const qn_command *c = qn_commands; !listed && c->name != NULL; c++) {
            qn_opts_visit(c, add_known, &k);
        }
        listed = true;
        const char **all = qn_calloc(k.n + 1, sizeof *all);
        if (all != NULL) {
            check_name(&k, all, *e);
        }
        free(all);
    }
    free(k.names);
}
