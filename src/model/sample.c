/* sample.c -- the next token from its logits.
 *
 *   p[i] = softmax(logits / temperature), of what top_k and top_p leave; token = the first i with
 *   p[0] + .. + p[i] > u, u in [0, 1) from Philox by (seed, position)
 *
 * Nothing is sorted. Where a cut falls is found digit by digit of the logits: how much (how many tokens, or how much
 * probability) has a larger digit says in which digit the cut is; four digits of eight bits make a float. Exact, and
 * four passes over V whatever the values are.
 *
 * top_p: Holtzman et al. 2020. top_k: Fan et al. 2018.
 */
#include "model/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "lockstep/rng.h"

#define ONE 0x1p38 /* the largest weight; 2^24 of them sum to less than 2^63 */

ls_status ls_sample_check(const ls_sample_opts *o)
{
    if (!(o->temperature >= 0.0) || isinf(o->temperature))
        return ls_fail(LS_INVALID, "a temperature of %g; expected 0 (the likeliest token) or more", o->temperature);
    if (o->top_k < 0) return ls_fail(LS_INVALID, "top_k is %lld; expected 0 (all) or more", (long long)o->top_k);
    if (!(o->top_p > 0.0 && o->top_p <= 1.0))
        return ls_fail(LS_INVALID, "top_p is %g; expected more than 0, and at most 1 (all)", o->top_p);
    if (o->vocab < 0) return ls_fail(LS_INVALID, "a vocabulary of %lld; expected 0 (all) or more", (long long)o->vocab);
    return LS_OK;
}

/* The first of the order. */
static ls_status largest(const float *logits, size_t V, size_t *at)
{
    *at = 0;
    for (size_t i = 0; i < V; i++) {
        if (isnan(logits[i]) || logits[i] > FLT_MAX)
            return ls_fail(LS_NAN, "the logit of token %zu is %g: the model's parameters are not finite, or too large", i,
                           (double)logits[i]);
        if (logits[i] > logits[*at]) *at = i;
    }
    if (V == 0 || isinf(logits[*at])) return ls_fail(LS_NAN, "no token of %zu has a finite logit", V);
    return LS_OK;
}

/* a < b exactly if key(a) < key(b); 0 and -0 are one. */
static uint32_t key(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
}

/* Sets to 0 what is behind the shortest front of the order whose sum reaches `target`, 0 < target <= the sum of all.
 * Summed are the weights, or (count) one for each. */
static void cut(const float *logits, size_t V, bool count, uint64_t target, uint64_t *weight)
{
    uint32_t found = 0, known = 0; /* digits of the key at which the sum gets there */
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t sum[256] = { 0 };
        for (size_t i = 0; i < V; i++) {
            const uint32_t k = key(logits[i]);
            if ((k & known) == found) sum[k >> shift & 255] += count ? 1 : weight[i];
        }
        uint32_t digit = 255;
        while (sum[digit] < target) target -= sum[digit--];
        found |= digit << shift;
        known |= (uint32_t)255 << shift;
    }
    for (size_t i = 0; i < V; i++) { /* of those at the cut, the first ids */
        const uint32_t k = key(logits[i]);
        const uint64_t w = count ? 1 : weight[i];
        if (k < found || (k == found && target == 0)) weight[i] = 0;
        else if (k == found) target -= w < target ? w : target;
    }
}

ls_status ls_sample_weights(const ls_sample_opts *o, const float *logits, size_t V, uint64_t *weight)
{
    size_t top;
    LS_TRY(largest(logits, V, &top));
    const double max = (double)logits[top];
    if (o->top_k > 0 && (uint64_t)o->top_k < V) {
        for (size_t i = 0; i < V; i++) weight[i] = 1;
        cut(logits, V, true, (uint64_t)o->top_k, weight);
        for (size_t i = 0; i < V; i++)
            if (weight[i]) weight[i] = (uint64_t)(ONE * exp(((double)logits[i] - max) / o->temperature));
    } else {
        for (size_t i = 0; i < V; i++) weight[i] = (uint64_t)(ONE * exp(((double)logits[i] - max) / o->temperature));
    }
    if (o->top_p >= 1.0) return LS_OK;
    uint64_t sum = 0;
    for (size_t i = 0; i < V; i++) sum += weight[i];
    const uint64_t target = (uint64_t)ceil(o->top_p * (double)sum);
    cut(logits, V, false, target < 1 ? 1 : target < sum ? target : sum, weight);
    return LS_OK;
}

size_t ls_sample_pick(const uint64_t *weight, size_t V, double u)
{
    uint64_t sum = 0;
    size_t i = 0;
    for (size_t k = 0; k < V; k++) sum += weight[k];
    uint64_t left = (uint64_t)(u * (double)sum); /* u is at most 1 - 2^-53: below the sum, however it is rounded */
    while (left >= weight[i]) left -= weight[i++];
    return i;
}

ls_status ls_sample(const ls_sample_opts *o, const float *logits, size_t V, uint64_t position, uint64_t *weight,
                    uint32_t *id)
{
    size_t i = 0;
    LS_TRY(ls_sample_check(o));
    if (o->vocab > 0 && (uint64_t)o->vocab < V) V = (size_t)o->vocab;
    if (o->temperature > 0.0) {
        uint32_t word[4];
        LS_TRY(ls_sample_weights(o, logits, V, weight));
        ls_philox_block(o->seed, ls_stream(LS_STREAM_SAMPLE, 0), position, word);
        i = ls_sample_pick(weight, V, ((double)(word[0] >> 5) * 0x1p26 + (double)(word[1] >> 6)) * 0x1p-53);
    } else {
        LS_TRY(largest(logits, V, &i));
    }
    *id = (uint32_t)i;
    return LS_OK;
}
