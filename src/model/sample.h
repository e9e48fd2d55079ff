/* sample.h -- which tokens may be drawn, and with what weight. */
#ifndef LS_MODEL_SAMPLE_H
#define LS_MODEL_SAMPLE_H
#include "lockstep/decode.h"

/* weight[i] = 2^38 e^((logit - largest) / temperature), rounded down, of those that the options leave, and 0 of the
 * others; the sum is > 0. Whole numbers: their sums do not depend on the order of additions. temperature > 0;
 * status as ls_sample. */
ls_status ls_sample_weights(const ls_sample_opts *o, const float *logits, size_t V, uint64_t *weight);
/* The first i with weight[0] + .. + weight[i] > u times the sum of all, 0 <= u <= 1 - 2^-53. */
size_t ls_sample_pick(const uint64_t *weight, size_t V, double u);

#endif
