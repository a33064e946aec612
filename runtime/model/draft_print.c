/* draft_print.c: settings as YAML. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_internal.h"
#include "model/draft_internal.h"

/* Place in the schema, so that leaves of a section stand together; patterns come before them. */
static int place(const char *path)
{
    return strcmp(path, "layers.pattern") == 0 ? -1 : qn_leaf_find(path);
}

static int by_place(const void *a, const void *b)
{
    int x = place(((const draft_setting *)a)->path), y = place(((const draft_setting *)b)->path);
    return (x > y) - (x < y);
}

/* Length of the leading sections that a and b share, in characters, with the dot. */
static size_t shared_sections(const char *a, const char *b)
{
    size_t n = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++) {
        n = a[i] == '.' ? i + 1 : n;
    }
    return n;
}

static void print_group(FILE *f, const draft_group *from, int indent)
{
    draft_group g = *from;
    const char *before = "";
    qsort(g.set, (size_t)g.n, sizeof g.set[0], by_place);
    for (int i = 0; i < g.n; i++) {
        const char *path = g.set[i].path;
        size_t at = shared_sections(before, path);
        int depth = indent;
        for (size_t k = 0; k < at; k++) {
            depth += path[k] == '.' ? 2 : 0;
        }
        for (const char *dot; (dot = strchr(path + at, '.')); at = (size_t)(dot - path) + 1, depth += 2) {
            fprintf(f, "%*s%.*s:\n", depth, "", (int)(dot - path - (long)at), path + at);
        }
        fprintf(f, "%*s%s: %s\n", depth, "", path + at, g.set[i].value);
        before = path;
    }
}

char *draft_print(const draft *d, const char *remarks)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        return NULL;
    }
    fputs("# A draft: what the file's tensors and keys say. Decide what stands at the end, then compare "
          "logits.\n",
          f);
    fprintf(f, "architecture: %s\n", d->arch);
    print_group(f, &d->base, 0);
    if (draft_is_set(&d->base, "layers.pattern")) {
        fputs(d->local.n ? "kinds:\n  local:\n" : "kinds:\n  local: {}\n", f);
        print_group(f, &d->local, 4);
        fputs(d->global.n ? "  global:\n" : "  global: {}\n", f);
        print_group(f, &d->global, 4);
    }
    fputs(d->n_when ? "when:\n" : "", f);
    for (int i = 0; i < d->n_when; i++) {
        fprintf(f, "  - %s\n", d->when[i]);
    }
    fprintf(f, "# Undecided: the file does not say these. Above stands the first value, or a default.\n%s",
            d->open);
    fprintf(f, "%s%s", remarks[0] ? "# How it fits the file:\n" : "", remarks);
    return fclose(f) == 0 ? text : NULL;
}
