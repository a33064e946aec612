/* op_large.h: cases of real models' sizes, for a card: too large for the emulator. */
#ifndef QN_OP_LARGE_H
#define QN_OP_LARGE_H

#include "emu_cases.h"

/* Goes through the large cases of an op: take(user, c) sees name and variant only; where it is true, the case
 * is built and fn called, as emu_cases does. */
int op_large_cases(const char *op, bool (*take)(void *user, const emu_case *c), emu_case_fn fn, void *user);

#endif
