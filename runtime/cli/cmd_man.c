/* quern man: the manual page, made from the tables of commands and options. */
#include <string.h>

#include "cli/commands.h"
#include "cli/opts.h"

/* Groups of rows that several commands have stand once, behind the commands. */
enum { MAX_GROUPS = 128 };

typedef struct page {
    struct {
        qn_opt_group group;
        int commands; /* that have it */
    } groups[MAX_GROUPS];
    size_t n;
    const char *summary;
} page;

static size_t find_group(const page *p, const qn_opt_group *g)
{
    size_t i = 0;
    while (i < p->n && p->groups[i].group.opts != g->opts) {
        i++;
    }
    return i;
}

static void count_groups(void *user, const qn_usage *u)
{
    page *p = user;
    for (size_t g = 0; g < u->n_groups; g++) {
        size_t i = find_group(p, &u->groups[g]);
        if (i == p->n && p->n < MAX_GROUPS) {
            p->groups[p->n++].group = u->groups[g];
        }
        p->groups[i].commands += i < p->n;
    }
}

/* Text as roff takes it: each hyphen a minus sign, no line that begins with a control character. */
static void put_text(const char *text)
{
    if (*text == '.' || *text == '\'') {
        fputs("\\&", stdout);
    }
    for (; *text != '\0'; text++) {
        if (*text == '-') {
            fputs("\\-", stdout);
        } else if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '\n') {
            fputs("\n.br\n", stdout);
        } else {
            putchar(*text);
        }
    }
}

static void put_options(const qn_opt_group *g)
{
    for (const qn_opt *o = g->opts; o->names != NULL; o++) {
        fputs(".TP\n\\fB", stdout);
        put_text(o->names);
        fputs("\\fR", stdout);
        if (o->arg != NULL) {
            fputs(" \\fI", stdout);
            put_text(o->arg);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        put_text(o->help);
        putchar('\n');
    }
}

static void put_command(void *user, const qn_usage *u)
{
    const page *p = user;
    printf(".SS %s\n.B quern %s\n", u->name, u->name);
    put_text(u->synopsis);
    fputs("\n.PP\n", stdout);
    put_text(u->doc);
    putchar('\n');
    const char *before = ".PP\nAlso the options of ";
    for (size_t g = 0; g < u->n_groups; g++) {
        size_t i = find_group(p, &u->groups[g]);
        if (i < p->n && p->groups[i].commands < 2) {
            put_options(&u->groups[g]);
        }
    }
    for (size_t g = 0; g < u->n_groups; g++) {
        size_t i = find_group(p, &u->groups[g]);
        if (i < p->n && p->groups[i].commands >= 2) {
            printf("%s\\fI%s\\fR", before, u->groups[g].heading);
            before = ", ";
        }
    }
    fputs(before[0] == ',' ? " below.\n" : "", stdout);
}

static void put_page(void)
{
    page p = {.n = 0};
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        qn_opts_visit(c, count_groups, &p);
    }
    puts(".TH QUERN 1 \"\" \"quern " QUERN_VERSION "\" \"User Commands\"");
    puts(".SH NAME\nquern \\- run language models from GGUF files\n.SH SYNOPSIS\n.B quern\n.I COMMAND\n"
         "[\\fIMODEL\\fR] [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\nquern runs a language model from a GGUF file: "
         "on an "
         "NVIDIA GPU by kernels that it compiles for the model when it is loaded, or on the CPU. Results go "
         "to stdout, "
         "all else to stderr.\n.SH COMMANDS");
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        printf(".TP\n.B %s\n", c->name);
        put_text(c->summary);
        putchar('\n');
    }
    puts(".SH OPTIONS OF COMMANDS\nNames are never shortened. A value follows as the next word or, after a "
         "name of "
         "several letters, behind \"=\".");
    for (const qn_command *c = qn_commands; c->name != NULL; c++) {
        qn_opts_visit(c, put_command, &p);
    }
    puts(".SH COMMON OPTIONS");
    for (size_t i = 0; i < p.n; i++) {
        if (p.groups[i].commands >= 2) {
            printf(".SS %s\n", p.groups[i].group.heading);
            put_options(&p.groups[i].group);
        }
    }
    puts(".SH ENVIRONMENT\nEach option can be given by a variable, on which an option on the command line "
         "wins: "
         "\\fBQUERN_\\fR and the option's first long name in capitals, with \\fB_\\fR for \\fB\\-\\fR. "
         "\\fB\\-\\-top\\-k 40\\fR is \\fBQUERN_TOP_K=40\\fR; an option without value is switched on by "
         "\\fB1\\fR. "
         "It acts on every command that has the option. An empty variable is none. "
         "Under \\fB\\-v\\fR those that no option reads are named.");
    puts(".SH EXIT STATUS\n.TP\n.B 0\ndone\n.TP\n.B 1\nfailed; one line on stderr says what and why\n.TP\n.B "
         "2\nwrong "
         "usage\n.TP\n.B 130\nended by an interrupt");
    puts(".SH FILES\n.TP\n.B $XDG_CACHE_HOME/quern, ~/.cache/quern\ncompiled kernels and measured limits "
         "(\\fB\\-\\-cache\\fR, \\fBQUERN_CACHE\\fR)");
}

int qn_cmd_man(int argc, char **argv)
{
    const qn_opt_group groups[] = {qn_common_group};
    const qn_usage usage = {
        "man",
        "[> quern.1]",
        "Prints the manual page, made from the tables of options, for 'man -l' or an installation.",
        groups,
        1,
        0};
    int rc = qn_opts_parse(&usage, argc, argv, NULL);
    if (rc < 0) {
        put_page();
        rc = QN_EXIT_OK;
    }
    return rc;
}
