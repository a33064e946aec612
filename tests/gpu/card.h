/* card.h: a card behind the functions of tests/emu/emu.h: the emulated tests' executor and cases run on it as
 * they are.
 *
 * What the tests take for device memory is a mirror in host memory, at the addresses that emu_alloc gives. It
 * goes to the card before the first launch of some, and comes back when they are waited for (emu_settle, or
 * anything that looks at memory); arguments that lie in the mirror become the card's addresses. Around every
 * buffer are guard bands, which must come back as they went, and so must buffers that are to be read only
 * (but those of more than 4 MB, which come back only where the host looks at them). Unwritten memory and
 * guard bands hold NaN, so that reading them shows, too. */
#ifndef QN_CARD_H
#define QN_CARD_H

#include "cuda/lower.h"
#include "emu.h"

typedef struct card_info {
    char name[128];
    int cc, driver, variant, multiprocessors; /* variant: the best that it runs */
    char arch[20], nvrtc[16];
} card_info;

/* Opens device 0 and a compiler for it, for this process. cache: folder of compiled kernels, NULL: none. */
int card_open(const char *cache, card_info *info, qn_err *err);
void card_close(void);

/* The program, compiled when it is first launched (emu_exec_opts.find). */
const emu_program *card_find(const qn_cuda_program *p);
/* A product by the library (emu_exec_opts.product). */
int card_product(const qn_cuda_gemm *g, int rows, float up, qn_err *err);

/* Has a launch left the card unusable for this process? */
bool card_is_lost(void);

/* Since card_open. */
typedef struct card_counts {
    long launches, products, programs, compiled;
    double compile_seconds;
} card_counts;
card_counts card_totals(void);

/* Called with the template of each program that is launched for the first time; may be NULL. */
void card_on_program(void (*fn)(void *user, const char *template_name), void *user);

#endif
