/* dispatch.c: what happens before a command is chosen. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/foreign.h"
#include "model/yaml.h"

static const qn_command *find(const char *name)
{
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[64] = {0}, *instead = qn_foreign_command(name);
    size_t n = 0;
    if (instead != NULL) {
        qn_cli_error("command '%s' is not supported: %s; see 'quern --help'", name, instead);
        return QN_EXIT_USAGE;
    }
    for (const qn_command *c = qn_commands; c->name != NULL && n < sizeof names / sizeof *names; c++) {
        names[n++] = c->name;
    }
    const char *near = qn_nearest(name, names, n);
    if (near != NULL) {
        qn_cli_error("unknown command '%s' (did you mean '%s'?); see 'quern --help'", name, near);
    } else {
        qn_cli_error("unknown command '%s'; see 'quern --help'", name);
    }
    return QN_EXIT_USAGE;
}

static void help(FILE *f)
{
    fputs("quern runs a language model from a GGUF file.\n\nUsage: quern COMMAND ...\n", f);
    for (const qn_command *first = qn_commands; first->name != NULL; first++) {
        if (first != qn_commands && strcmp(first[-1].group, first->group) == 0) {
            continue; /* the table keeps groups together */
        }
        fprintf(f, "\n%s:\n", first->group);
        for (const qn_command *c = first; c->name != NULL && strcmp(c->group, first->group) == 0; c++) {
            fprintf(f, "  %-12s %s\n", c->name, c->summary);
        }
    }
    fputs("\n'quern COMMAND --help' or 'quern help COMMAND' shows a command's options; 'quern --version' the "
          "version.\n",
          f);
}

/* What was printed must have arrived: a full disk is a failure, also of `--help`. */
static int finish(int rc)
{
    errno = 0; /* a write that failed earlier has left its mark on the stream, not its reason */
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == QN_EXIT_OK) {
        rc = qn_cli_error("cannot write to stdout%s%s", errno != 0 ? ": " : "",
                          errno != 0 ? strerror(errno) : "");
    }
    return qn_cli_log_close() || rc != QN_EXIT_OK ? rc : QN_EXIT_ERROR;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return QN_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        puts("quern " QUERN_VERSION);
        return QN_EXIT_OK;
    }
    bool is_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (is_help && argc < 3) {
        help(stdout);
        return QN_EXIT_OK;
    }
    const qn_command *c = find(is_help ? argv[2] : name);
    if (c == NULL) {
        return unknown(is_help ? argv[2] : name);
    }
    if (is_help) {
        char *args[] = {argv[2], "--help", NULL};
        return c->run(2, args);
    }
    return c->run(argc - 1, argv + 1);
}

int qn_cli_main(int argc, char **argv)
{
    qn_cli_log_reset();
    return finish(dispatch(argc, argv));
}
