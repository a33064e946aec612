/* opts_help.c: the tables as --help shows them. */
#include <stdio.h>
#include <string.h>

#include "cli/opts.h"

/* Words of `text` from column `indent` on, the first line already there. */
static void print_wrapped(const char *text, int indent, int width)
{
    int col = indent;
    for (const char *p = text; *p != 0;) {
        int len = (int)strcspn(p, " \n");
        if (col > indent && col + 1 + len > width) {
            printf("\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            putchar(' ');
            col++;
        }
        printf("%.*s", len, p);
        col += len;
        p += len;
        if (*p == '\n') {
            printf("\n%*s", indent, "");
            col = indent;
        }
        p += *p != 0;
    }
    putchar('\n');
}

void qn_opts_help(const qn_usage *u)
{
    enum { INDENT = 30, WIDTH = 100 };
    printf("Usage: quern %s %s\n\n", u->name, u->synopsis);
    print_wrapped(u->doc, 0, WIDTH);
    for (size_t g = 0; g < u->n_groups; g++) {
        printf("\n%s:\n", u->groups[g].heading);
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            int col = printf("  %s%s%s", o->names, o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
            if (col > INDENT - 2) {
                printf("\n%*s", INDENT, "");
            } else {
                printf("%*s", INDENT - col, "");
            }
            print_wrapped(o->help, INDENT, WIDTH);
        }
    }
    printf("\nAn option that is not given is read from QUERN_ and its long name in capitals (--top-k: "
           "QUERN_TOP_K).\n");
}
