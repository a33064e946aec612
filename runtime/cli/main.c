/* main.c: the table of commands and what happens before one of them is chosen. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "model/yaml.h"

const qn_command qn_commands[] = {
    {"run", qn_cmd_run, "complete a prompt", "Generate"},
    {"info", qn_cmd_info, "what a file says: metadata, tensors, tokenizer, memory", "Look inside"},
    {"plan", qn_cmd_plan, "the steps a model's tokens go through", "Look inside"},
    {"ptx", qn_cmd_ptx, "the kernels a model is compiled to", "Look inside"},
    {"logits", qn_cmd_logits, "logits, or one step's output, for a file of ids", "Look inside"},
    {"tokenize", qn_cmd_tokenize, "token ids of a text", "Text"},
    {"detokenize", qn_cmd_detokenize, "text of token ids", "Text"},
    {"check", qn_cmd_check, "a model config, alone or against a file", "Model configs"},
    {"draft", qn_cmd_draft, "a config proposed for a file whose architecture has none", "Model configs"},
    {"bench", qn_cmd_bench, "tokens per second", "Measure"},
    {"profile", qn_cmd_profile, "where the time goes, step by step", "Measure"},
    {"perplexity", qn_cmd_perplexity, "how well a model predicts a text", "Measure"},
    {"doctor", qn_cmd_doctor, "what of CUDA was found, and what is missing", "This machine"},
    {"cache", qn_cmd_cache, "list, verify, warm or clear the compiled kernels", "This machine"},
    {0},
};

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
    const char *names[sizeof qn_commands / sizeof *qn_commands] = {0};
    size_t n = 0;
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
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
    return rc;
}

/* A standard stream that the caller closed must not become the number of a file opened here: messages would
 * be written into it. Its place is taken in the direction that nothing uses, so that a write still fails. */
static void keep_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); /* the lowest free number */
        }
    }
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

int main(int argc, char **argv)
{
    keep_standard_streams();
    return finish(dispatch(argc, argv));
}
