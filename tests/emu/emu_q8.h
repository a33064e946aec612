/* emu_q8.h: 8-bit activations that kernels left in device memory (kernel_src/quantise.cuh), for comparisons.
 */
#ifndef QN_EMU_Q8_H
#define QN_EMU_Q8_H

#include "emu_exec.h"

/* The nth action of the list whose template is `name`, from 0; NULL: there is none. */
const qn_cuda_action *emu_find_action(const qn_exec *e, const qn_cuda_list *list, const char *name, int nth);

/* Row `row` of rows of n values at `at`, as f32. fine: with a step for every 16 values. */
void emu_q8_row(uint64_t at, int n, int row, bool fine, float *out);

/* Is that row what x, a row of n values, is quantised to: codes within half a step, a step the largest of
 * each group over 127, sums right? */
int emu_q8_check(uint64_t at, int n, int row, bool fine, const float *x, qn_err *err);

#endif
