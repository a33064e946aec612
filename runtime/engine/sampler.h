/* sampler.h: the parts of the sampler that tests and device samplers share with quern.h's face of it. */
#ifndef QN_ENGINE_SAMPLER_H
#define QN_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "codegen/backend.h"
#include "engine/quern.h"

/* What a device needs to choose as the sampler does. */
qn_choice qn_sampler_choice(const quern_sampler *s);

/* Philox4x32-10: four random words for a counter and a key (Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). */
void qn_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A candidate's weight is its probability over the best one's, in whole numbers of 1 / QN_SAMPLER_ONE
 * (rounded down). With fewer than QN_SAMPLER_MAX_VOCAB tokens their sum fits 64 bits. */
#define QN_SAMPLER_ONE 0x1p44
enum { QN_SAMPLER_MAX_VOCAB = 1 << 20 };

/* The 64 bits that decide the token after n_history tokens: the draw takes the first candidate, likeliest
 * first, at which the sum of weights exceeds (bits * total) >> 64. */
uint64_t qn_sampler_random(uint64_t seed, uint64_t n_history);

/* e^x for x <= 0 to about an ulp from additions and multiplications only, so that every platform gets the
 * same bits; 0 below -708. */
double qn_exp_portable(double x);

#endif
