/* memory.h: what a session will need and what this machine has, before anything is allocated. */
#ifndef QN_ENGINE_MEMORY_H
#define QN_ENGINE_MEMORY_H

#include <stdint.h>

#include "base/error.h"
#include "codegen/backend.h"

/* Bytes this process may still use: the kernel's estimate, or what the cgroup leaves where that is less.
 * UINT64_MAX where neither is known. */
uint64_t qn_memory_available(void);

uint64_t qn_memory_total(const qn_memory *m);

/* Memory of a session with these options, on the host or on the device. */
void qn_memory_of(const qn_plans *plans, const qn_exec_opts *opts, qn_memory *out);

/* Largest n_ctx <= opts->n_ctx that fits `available` bytes; 0: none does. */
int qn_memory_largest_ctx(const qn_plans *plans, const qn_exec_opts *opts, uint64_t available);

/* Chooses the weight cache where opts leave it open: ON if it leaves room for the context asked for. Then
 * checks that a session with these options fits `available` bytes. Where it does not, n_ctx (and n_ubatch)
 * become what fits if `may_shrink`; otherwise, or if nothing fits, the error has all the numbers. */
int qn_memory_fit(const qn_plans *plans, qn_exec_opts *opts, bool may_shrink, uint64_t available,
                  qn_err *err);

/* "412.0 MiB" into text[24]. */
const char *qn_memory_text(uint64_t bytes, char text[24]);

#endif
