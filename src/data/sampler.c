/* sampler.c -- which samples are whose: torch.utils.data.DistributedSampler, or a deal (ls_deal).
 *
 * All ranks draw the same permutation of [0, n), go round it again until its
 * length divides (or cut it, with drop_last), and rank r takes every
 * num_replicas-th entry from r on. So a few samples are seen twice in an
 * epoch, and every rank does the same number of steps.
 */
#include <stdlib.h>

#include "lockstep/data.h"
#include "lockstep/rng.h"

size_t ls_deal_place(const ls_deal *d, int rank, size_t i)
{
    const size_t inner = (size_t)d->inner, grains = d->batch / d->grain, r = (size_t)rank;
    const size_t grain = (r / inner * grains + i / d->grain) * inner + r % inner;
    return grain * d->grain + i % d->grain;
}

static size_t samples_per_rank(const ls_sampler *s)
{
    size_t w = (size_t)s->num_replicas;
    if (s->deal.batch) {
        const size_t step = w * s->deal.batch, whole = s->n / step;
        return (whole + (!s->drop_last && s->n % step != 0)) * s->deal.batch;
    }
    return s->drop_last ? s->n / w : s->n / w + (s->n % w != 0);
}

/* Where in the padded list entry i of this rank is. */
static size_t place_of(const ls_sampler *s, size_t i)
{
    const size_t w = (size_t)s->num_replicas, batch = s->deal.batch;
    if (!batch) return (size_t)s->rank + i * w;
    return i / batch * batch * w + ls_deal_place(&s->deal, s->rank, i % batch);
}

/* The entry at place `at` of the padded list is the one at `at` mod n of the permutation. */
static void take_share(ls_sampler *s, const int64_t *order)
{
    for (size_t i = 0; i < s->num_samples; i++) {
        size_t at = place_of(s, i) % s->n;
        s->index[i] = order ? order[at] : (int64_t)at;
    }
}

ls_status ls_sampler_set_epoch(ls_sampler *s, uint64_t epoch)
{
    if (!s->shuffle) {
        s->epoch = epoch;
        take_share(s, NULL);
        return LS_OK;
    }
    ls_mt19937 g;
    int64_t *order = calloc(s->n ? s->n : 1, sizeof *order);
    if (!order) return ls_fail(LS_NO_MEMORY, "the order of %zu samples", s->n);
    ls_mt19937_seed(&g, s->seed + epoch);
    ls_status st = ls_mt19937_randperm(&g, s->n, order);
    if (st == LS_OK) {
        s->epoch = epoch;
        take_share(s, order);
    }
    free(order);
    return st;
}

ls_status ls_sampler_create(size_t n, int num_replicas, int rank, bool shuffle, uint64_t seed, bool drop_last,
                            ls_sampler **out)
{
    return ls_sampler_create_dealt(n, num_replicas, rank, shuffle, seed, drop_last, &(ls_deal){ 0 }, out);
}

ls_status ls_sampler_create_dealt(size_t n, int num_replicas, int rank, bool shuffle, uint64_t seed, bool drop_last,
                                  const ls_deal *deal, ls_sampler **out)
{
    *out = NULL;
    if (deal->batch && (deal->grain < 1 || deal->batch % deal->grain != 0 || deal->inner < 1 ||
                        num_replicas % deal->inner != 0))
        return ls_fail(LS_INVALID, "%d ranks, %zu samples each, in turns of %d and grains of %zu: expected numbers that divide each other",
                       num_replicas, deal->batch, deal->inner, deal->grain);
    if (num_replicas < 1 || rank < 0 || rank >= num_replicas)
        return ls_fail(LS_INVALID, "Invalid rank %d, rank should be in the interval [0, %d]", rank, num_replicas - 1);
    ls_sampler *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "a sampler");
    *s = (ls_sampler){ .n = n, .num_replicas = num_replicas, .rank = rank, .shuffle = shuffle, .drop_last = drop_last,
                       .seed = seed, .deal = *deal };
    s->num_samples = samples_per_rank(s);
    s->index = calloc(s->num_samples ? s->num_samples : 1, sizeof *s->index);
    ls_status st = s->index ? ls_sampler_set_epoch(s, 0) : ls_fail(LS_NO_MEMORY, "%zu samples", s->num_samples);
    if (st < 0) {
        ls_sampler_destroy(s);
        return st;
    }
    *out = s;
    return LS_OK;
}

void ls_sampler_destroy(ls_sampler *s)
{
    if (!s) return;
    free(s->index);
    free(s);
}
