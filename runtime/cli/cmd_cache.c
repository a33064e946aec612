/* quern cache: the compiled kernels on disk. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/opts.h"
#include "cli/programs.h"
#include "codegen/cache.h"
#include "codegen/choices.h"

/* What one pass over the entries counts. n_choice: of those made by measuring. */
typedef struct tally {
    qn_cache *cache;
    int n, n_damaged, n_failed, n_choice;
    size_t bytes;
} tally;

static int list_item(void *user, const qn_cache_item *item)
{
    tally *t = user;
    t->n++;
    if (item->damaged) {
        t->n_damaged++;
        printf("%-8s %5s %6s %8s  %s\n", "damaged", "", "", "", item->name);
        return 0;
    }
    t->bytes += item->bytes;
    const qn_kernel *k = &item->kernel;
    for (int i = 0; i < k->n_entry; i++) {
        const qn_kernel_entry *e = &k->entries[i];
        char regs[16] = "?", spills[16] = "?";
        if (e->regs >= 0) {
            snprintf(regs, sizeof regs, "%d", e->regs);
            snprintf(spills, sizeof spills, "%d", e->spill_stores + e->spill_loads);
        }
        printf("%-8s %5s %6s %8zu  %s\n", k->arch, regs, spills, k->cubin.size ? k->cubin.size : k->ptx.size,
               i ? e->symbol : item->name);
    }
    return 0;
}

static int verify_item(void *user, const qn_cache_item *item)
{
    tally *t = user;
    t->n++;
    t->bytes += item->bytes;
    if (item->damaged) {
        t->n_damaged++;
        printf("damaged: %s\n", item->why.text);
    }
    return 0;
}

static int clear_item(void *user, const qn_cache_item *item)
{
    tally *t = user;
    qn_err err;
    if (qn_cache_drop(t->cache, item->name, &err) != 0) {
        t->n_failed++;
        qn_cli_error("%s", err.text);
        return 0;
    }
    t->n++;
    t->bytes += item->bytes;
    return 0;
}

/* Choices made by measuring lie beside the entries. */
static int list_choices(void *user, const qn_choices *c)
{
    tally *t = user;
    if (c->why.text[0] != '\0') {
        t->n_damaged++;
        printf("damaged: %s\n", c->why.text);
        return 0;
    }
    printf("choices: %s\n", c->head);
    for (int i = 0; i < c->n; i++) {
        printf("  %s: %s\n", c->lines[i].key, c->lines[i].value);
    }
    t->n_choice += c->n;
    return 0;
}

static int verify_choices(void *user, const qn_choices *c)
{
    tally *t = user;
    t->n_choice += c->n;
    if (c->why.text[0] != '\0') {
        t->n_damaged++;
        printf("damaged: %s\n", c->why.text);
    }
    return 0;
}

static int clear_choices(void *user, const qn_choices *c)
{
    tally *t = user;
    if (unlink(c->path) != 0) {
        t->n_failed++;
        qn_cli_error("%s: %s", c->path, strerror(errno));
        return 0;
    }
    t->n_choice += c->n;
    return 0;
}

/* ", 5 choices made by measuring", or nothing. */
static const char *choices_text(const tally *t, char text[64])
{
    text[0] = '\0';
    if (t->n_choice > 0) {
        snprintf(text, 64, ", %d choice%s made by measuring", t->n_choice, t->n_choice == 1 ? "" : "s");
    }
    return text;
}

static int list(tally *t)
{
    char choices[64];
    printf("%-8s %5s %6s %8s  %s\n", "arch", "regs", "spills", "bytes", "entry");
    qn_err err;
    if (qn_cache_each(t->cache, list_item, t, &err) < 0 ||
        qn_choices_each(qn_cache_dir(t->cache), list_choices, t, &err) < 0) {
        return qn_cli_error("%s", err.text);
    }
    printf("%d entries, %.1f MiB%s in %s\n", t->n, (double)t->bytes / 1048576, choices_text(t, choices),
           qn_cache_dir(t->cache));
    return QN_EXIT_OK;
}

static int verify(tally *t)
{
    qn_err err;
    if (qn_cache_each(t->cache, verify_item, t, &err) < 0 ||
        qn_choices_each(qn_cache_dir(t->cache), verify_choices, t, &err) < 0) {
        return qn_cli_error("%s", err.text);
    }
    printf("%d entries, %d damaged in %s\n", t->n, t->n_damaged, qn_cache_dir(t->cache));
    return t->n_damaged ? QN_EXIT_ERROR : QN_EXIT_OK;
}

static int clear(tally *t)
{
    qn_err err;
    char choices[64];
    if (qn_cache_each(t->cache, clear_item, t, &err) < 0 ||
        qn_choices_each(qn_cache_dir(t->cache), clear_choices, t, &err) < 0) {
        return qn_cli_error("%s", err.text);
    }
    printf("%d entries, %.1f MiB%s removed from %s\n", t->n, (double)t->bytes / 1048576,
           choices_text(t, choices), qn_cache_dir(t->cache));
    return t->n_failed ? QN_EXIT_ERROR : QN_EXIT_OK;
}

static const struct {
    const char *name;
    int (*run)(tally *t);
} actions[] = {{"list", list}, {"verify", verify}, {"clear", clear}};

static int run_action(const char *name, const char *model, qn_target_args *a)
{
    char dir[QN_PATH_MAX];
    const char *why;
    if (strcmp(name, "warm") == 0) {
        int rc = qn_model_args_finish(&a->model, "cache", model);
        return rc >= 0 ? rc : qn_cache_warm(a);
    }
    if (model != NULL || (a->model.path != NULL && !qn_opt_from_env(a->model.path))) {
        return qn_cli_usage_error("cache", "%s takes no model", name);
    }
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(actions[i].name, name) != 0) {
            continue;
        }
        if (!qn_cache_place(dir, sizeof dir, a->model.cache, &why)) {
            return qn_cli_error("there is no kernel cache on disk (%s)", why);
        }
        tally t = {.cache = qn_cache_open(dir)};
        int rc = t.cache ? actions[i].run(&t) : qn_cli_error("out of memory");
        qn_cache_close(t.cache);
        return rc;
    }
    return qn_cli_usage_error("cache", "unknown action '%s' (list, verify, warm, clear)", name);
}

int qn_cmd_cache(int argc, char **argv)
{
    qn_target_args a = qn_target_args_defaults;
    const qn_opt_group groups[] = {qn_target_group(&a), qn_load_group(&a.model), qn_common_group};
    const qn_usage usage = {
        "cache",
        "list|verify|clear [--cache DIR], or warm MODEL [--arch sm_XY] [options]",
        "list shows the compiled kernels and the choices made by measuring ('quern tune', algorithms of "
        "cuBLASLt), "
        "verify checks every one against its hashes (exit status 1 "
        "where one is damaged; a run repairs it), clear removes them. warm compiles a model's kernels, "
        "also for a card of another machine; give -c and -ub as the run will.",
        groups,
        sizeof groups / sizeof *groups,
        2};
    const char *positional[2];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    if (rc < 0) {
        rc = positional[0] ? run_action(positional[0], positional[1], &a)
                           : qn_cli_usage_error("cache", "list, verify, warm or clear?");
    }
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
