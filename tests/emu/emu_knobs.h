/* emu_knobs.h: the ends of what may be chosen of a launch (cuda/knobs.h), and the cases that run with them.
 */
#ifndef QN_EMU_KNOBS_H
#define QN_EMU_KNOBS_H

#include "cuda/lower.h"
#include "emu_cases.h"

/* Set 0: the shipped knobs; then the fewest warps and loads, the most of both, an odd number of each. */
enum { EMU_KNOB_SETS = 4 };

/* qn_lower_opts.knobs with user an int, the number of the set. */
bool emu_knob_set(void *user, const qn_site *site, qn_knobs *k);

/* Calls fn for the cases that are run so: some of each op that has a choice. */
int emu_knob_cases(emu_case_fn fn, void *user);

/* How the lists of a case are made: 0 and 1, the second with decode's attention on the plain cores. */
enum { EMU_KNOB_ROUTES = 2 };

#endif
