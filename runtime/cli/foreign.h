/* foreign.h: what users of other programs will ask for and quern does not have, refused by name. */
#ifndef QN_CLI_FOREIGN_H
#define QN_CLI_FOREIGN_H

#include <stddef.h>

/* Why an option (`len` bytes, with its dashes), or a command, is not there and what to use instead; NULL: not
 * one that is known. */
const char *qn_foreign_option(const char *name, size_t len);
const char *qn_foreign_command(const char *name);

#endif
