// fake_select.h: the one kernel that the fake card computes where it is told to, for tests of op_cases.
//   FAKE_SELECT  select.cu has its effect
//   FAKE_STRAY   and writes a byte so many bytes from the start of its output: "OFFSET", or "in:OFFSET" of
//   its input
#include <stdbool.h>

#include "cuda/lower.h"

static void compute_select(const char *name, void **params)
{
    const char *n = strstr(name, "_n"), *stray = getenv("FAKE_STRAY");
    if (strncmp(name, "select_", 7) != 0 || !n || !getenv("FAKE_SELECT")) {
        return;
    }
    uint64_t args[5];
    for (int i = 0; i < 5; i++) {
        memcpy(&args[i], params[i], sizeof args[i]);
    }
    const qn_cuda_state *st = (const qn_cuda_state *)(uintptr_t)args[0];
    float *in = (float *)(uintptr_t)args[1], *out = (float *)(uintptr_t)args[3];
    for (int r = 0; r < st->n_out; r++) {
        memcpy(out + (size_t)r * args[4], in + (size_t)(st->first_out + r) * args[2],
               sizeof(float) * (size_t)atoi(n + 2));
    }
    if (stray) {
        const bool of_in = strncmp(stray, "in:", 3) == 0;
        ((char *)(of_in ? in : out))[atol(of_in ? stray + 3 : stray)] = 1;
    }
}
