/* config_find.c: the config of an architecture, among the embedded ones or in a folder. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_internal.h"
#include "model/embedded.h"

static const char folder[] = "model_configs/";

/* The search so far. */
typedef struct search {
    const char *arch;
    qn_yaml *doc;              /* found */
    char *name;                /* its file */
    char list[QN_ERR_MAX / 2]; /* architectures there are */
    size_t list_len;
    int n_files;
    char broken[QN_ERR_MAX / 4]; /* first file that cannot be read */
} search;

/* config files end in .yaml and stand in the folder itself */
static bool is_config_name(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".yaml") == 0 && !strchr(name, '/');
}

static void list_arch(search *s, const char *arch)
{
    size_t room = sizeof s->list - s->list_len;
    int n = snprintf(s->list + s->list_len, room, "%s%s", s->list_len ? ", " : "", arch);
    s->list_len += n > 0 && (size_t)n < room ? (size_t)n : 0;
    s->list[s->list_len] = '\0';
}

/* Looks at one document; keeps it where it serves the architecture. Takes the document. */
static int consider(search *s, qn_yaml *doc, const char *name, qn_err *err)
{
    const qn_yaml_node *a = qn_yaml_get(qn_yaml_root(doc), "architecture");
    bool list = a && a->kind == QN_YAML_SEQ, hit = false;
    for (const qn_yaml_node *v = list ? a->child : a; v; v = list ? v->next : NULL) {
        if (v->kind == QN_YAML_SCALAR) {
            list_arch(s, v->text);
            hit |= strcmp(v->text, s->arch) == 0;
        }
    }
    s->n_files++;
    if (!hit) {
        qn_yaml_free(doc);
        return 0;
    }
    if (s->doc) {
        qn_yaml_free(doc);
        return qn_fail(err, "%s and %s both serve architecture \"%s\"", s->name, name, s->arch);
    }
    s->doc = doc;
    s->name = strdup(name);
    return s->name ? 0 : qn_fail(err, "%s: out of memory", name);
}

static void note_broken(search *s, const qn_err *err)
{
    if (!s->broken[0]) {
        snprintf(s->broken, sizeof s->broken, "; %.*s", (int)sizeof s->broken - 8, err->text);
    }
}

static int search_embedded(search *s, qn_err *err)
{
    for (const qn_embedded *f = qn_embedded_files; f->name; f++) {
        qn_yaml *doc;
        if (strncmp(f->name, folder, sizeof folder - 1) != 0 ||
            !is_config_name(f->name + sizeof folder - 1)) {
            continue;
        }
        if (qn_yaml_load(&doc, f->data, f->size, f->name, err)) {
            return -1;
        }
        if (consider(s, doc, f->name, err)) {
            return -1;
        }
    }
    return 0;
}

static int wanted(const struct dirent *d)
{
    return is_config_name(d->d_name) && d->d_name[0] != '.';
}

static int search_dir(search *s, const char *dir, qn_err *err)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, wanted, alphasort), rc = 0;
    if (n < 0) {
        return qn_fail(err, "%s: %m", dir);
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        qn_yaml *doc;
        qn_err broken;
        int len = snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
        if (!rc && len < (int)sizeof path) {
            if (qn_yaml_load_file(&doc, path, &broken)) {
                note_broken(s, &broken);
            } else {
                rc = consider(s, doc, path, err);
            }
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int qn_config_find(qn_config **out, const char *arch, const char *dir, qn_err *err)
{
    search s = {.arch = arch};
    *out = NULL;
    int rc = dir ? search_dir(&s, dir, err) : search_embedded(&s, err);
    if (!rc && s.doc) {
        rc = qn_config_from_tree(out, s.doc, s.name, err);
        s.doc = NULL;
    } else if (!rc) {
        rc = qn_fail(err,
                     "architecture \"%.64s\" is not supported; %s knows %s%s (quern draft proposes a config)",
                     arch, dir ? dir : "quern", s.list_len ? s.list : "none", s.broken);
    }
    qn_yaml_free(s.doc);
    free(s.name);
    return rc;
}
