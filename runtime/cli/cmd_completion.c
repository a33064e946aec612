/* quern completion: scripts for bash, zsh and fish, made from the tables of commands and options. */
#include <string.h>

#include "cli/commands.h"
#include "cli/opts.h"

/* Calls fn for each spelling of each option of a command: "-n", "--predict". */
static void each_name(const qn_usage *u, void (*fn)(const qn_usage *u, const qn_opt *o, const char *name))
{
    for (size_t g = 0; g < u->n_groups; g++) {
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            for (const char *p = o->names; *p != '\0';) {
                char name[64];
                size_t len = strcspn(p, ",");
                snprintf(name, sizeof name, "%.*s", (int)len, p);
                fn(u, o, name);
                p += len;
                p += strspn(p, ", ");
            }
        }
    }
}

/* In quotes of a shell: 'it'\''s' (fish, too, takes a quote between quotes behind a backslash). */
static void put_quoted(const char *text, size_t len)
{
    putchar('\'');
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\'') {
            fputs("'\\''", stdout);
        } else {
            putchar(text[i] == '\n' ? ' ' : text[i]);
        }
    }
    putchar('\'');
}

/* The help's first sentence. */
static size_t sentence(const char *help)
{
    const char *dot = strstr(help, ". ");
    return dot != NULL ? (size_t)(dot - help) : strlen(help);
}

static void put_name(const qn_usage *u, const qn_opt *o, const char *name)
{
    (void)u;
    (void)o;
    printf(" %s", name);
}

static void put_commands(void)
{
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        printf(" %s", c->name);
    }
}

static void put_choices(const qn_opt *o)
{
    for (const char *const *c = o->choices; c != NULL && *c != NULL; c++) {
        printf(" %s", *c);
    }
}

static bool has_choices(const qn_opt *o)
{
    return o->choices != NULL;
}

/* bash and zsh: a case of the values of one option. */
static void put_values(const qn_usage *u, const qn_opt *o, const char *name)
{
    if (has_choices(o)) {
        printf("    %s:%s) list=\"", u->name, name);
        put_choices(o);
        puts("\" ;;");
    } else if (o->arg != NULL) {
        printf("    %s:%s) list= files=1 ;;\n", u->name, name);
    }
}

static void shell_values(void *user, const qn_usage *u)
{
    (void)user;
    each_name(u, put_values);
}

static void shell_options(void *user, const qn_usage *u)
{
    (void)user;
    printf("    %s) list=\"", u->name);
    each_name(u, put_name);
    puts("\" ;;");
}

/* Sets `list` or `files` from command and word before, the same in bash and zsh. */
static void shell_function(void)
{
    fputs("_quern_words() {\n  local command=$1 previous=$2\n  list= files=\n  if [ -z \"$command\" ]; "
          "then\n    list=\"",
          stdout);
    put_commands();
    puts(" --help --version\"\n    return\n  fi\n  case $command:$previous in");
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        qn_opts_visit(c, shell_values, NULL);
    }
    fputs("    help:*) list=\"", stdout);
    put_commands();
    puts("\" ;;\n    *)\n  files=1\n  case $command in");
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        qn_opts_visit(c, shell_options, NULL);
    }
    puts("    *) list= ;;\n  esac ;;\n  esac\n}");
}

static void bash(void)
{
    puts("# bash completion of quern; made by 'quern completion bash'.");
    shell_function();
    puts("_quern() {\n"
         "  local list files command=\n"
         "  [ \"$COMP_CWORD\" -gt 1 ] && command=${COMP_WORDS[1]}\n"
         "  _quern_words \"$command\" \"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  local current=${COMP_WORDS[COMP_CWORD]}\n"
         "  COMPREPLY=()\n"
         "  case $current in\n"
         "  -*) COMPREPLY=($(compgen -W \"$list\" -- \"$current\")) ;;\n"
         "  *) if [ -n \"$files\" ]; then\n"
         "      local IFS=$'\\n'\n"
         "      COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "      compopt -o filenames 2>/dev/null\n"
         "    else\n"
         "      COMPREPLY=($(compgen -W \"$list\" -- \"$current\"))\n"
         "    fi ;;\n"
         "  esac\n"
         "}\n"
         "complete -F _quern quern");
}

static void zsh(void)
{
    puts("#compdef quern\n# zsh completion of quern; made by 'quern completion zsh'.");
    shell_function();
    puts("_quern() {\n"
         "  local list files command=\n"
         "  (( CURRENT > 2 )) && command=$words[2]\n"
         "  _quern_words \"$command\" \"$words[CURRENT-1]\"\n"
         "  if [[ -n $files && $words[CURRENT] != -* ]]; then\n"
         "    _files\n"
         "  else\n"
         "    compadd -- ${=list}\n"
         "  fi\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _quern ]; then _quern \"$@\"; else compdef _quern quern; fi");
}

static void fish_option(const qn_usage *u, const qn_opt *o, const char *name)
{
    printf("complete -c quern -n '__fish_seen_subcommand_from %s' ", u->name);
    if (name[1] == '-') {
        printf("-l %s", name + 2);
    } else {
        printf("%s %s", name[2] == '\0' ? "-s" : "-o", name + 1);
    }
    if (has_choices(o)) {
        fputs(" -x -a '", stdout);
        put_choices(o);
        putchar('\'');
    } else if (o->arg != NULL) {
        fputs(" -r", stdout);
    }
    fputs(" -d ", stdout);
    put_quoted(o->help, sentence(o->help));
    putchar('\n');
}

static void fish_options(void *user, const qn_usage *u)
{
    (void)user;
    each_name(u, fish_option);
}

static void fish(void)
{
    puts("# fish completion of quern; made by 'quern completion fish'.");
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        printf("complete -c quern -n __fish_use_subcommand -f -a %s -d ", c->name);
        put_quoted(c->summary, strlen(c->summary));
        putchar('\n');
    }
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        qn_opts_visit(c, fish_options, NULL);
    }
}

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

int qn_cmd_completion(int argc, char **argv)
{
    const qn_opt_group groups[] = {qn_common_group};
    const qn_usage usage = {
        "completion",
        "bash|zsh|fish",
        "Prints a script that completes commands, options and their values. bash: put it into "
        "~/.local/share/bash-completion/completions/quern; zsh: as _quern into a folder of $fpath; "
        "fish: ~/.config/fish/completions/quern.fish.",
        groups,
        1,
        1};
    const char *shell[1];
    int rc = qn_opts_parse(&usage, argc, argv, shell);
    if (rc >= 0) {
        return rc;
    }
    for (size_t i = 0; shell[0] != NULL && i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell[0]) == 0) {
            shells[i].print();
            return QN_EXIT_OK;
        }
    }
    return shell[0] != NULL ? qn_cli_usage_error("completion", "'%s' is none of bash, zsh, fish", shell[0])
                            : qn_cli_usage_error("completion", "bash, zsh or fish?");
}
