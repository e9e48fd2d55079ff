/* algo_ring_gloo.c -- Gloo's ring all_reduce, to the bit.
 *
 * The ring of algo_ring.c the other way round, over Gloo's cut of the vector: it
 * counts in segments of at most 1 MiB, at least two for each rank and as many for
 * each, so that all shares but the last are equal and late ones may be empty. Two
 * frameworks that add in this order end with the same gradients.
 *
 *   rounds        2 (size-1)
 *   bytes sent    2 (size-1)/size of the vector, per rank
 *   order         share r: rank r-1 first, then r-2, ..., rank r last
 *   good for      the bits of PyTorch's DDP over Gloo; else as `ring`
 *   source        Gloo, gloo/allreduce.cc (ring)
 */
#include "coll/algos.h"

#define SEGMENT_BYTES ((size_t)1 << 20)

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

static void cut(size_t count, size_t elem, int size, size_t *share)
{
    size_t ranks = (size_t)size, bytes = count * elem, segments = ceil_div(bytes, SEGMENT_BYTES);
    if (segments < 2 * ranks) segments = 2 * ranks;
    segments = ceil_div(segments, ranks) * ranks;
    size_t per_segment = ceil_div(ceil_div(bytes, segments), elem); /* elements */
    size_t most = segments / ranks * per_segment;
    for (int r = 0; r < size; r++) {
        share[r] = most < count ? most : count;
        count -= share[r];
    }
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    int left = (s->rank + s->size - 1) % s->size, right = (s->rank + 1) % s->size;
    ls_use_shares(o, s);
    for (int seg = 0; seg < s->segments; seg++) {
        int lane = seg % s->nlanes;
        for (int k = 1; k < s->size; k++) {
            LS_TRY(ls_sched_send(o, lane, left, ls_share(s, s->rank + k, seg)));
            LS_TRY(ls_sched_recv_reduce(o, lane, right, ls_share(s, s->rank + k + 1, seg)));
        }
        for (int k = 0; k < s->size - 1; k++) {
            LS_TRY(ls_sched_send(o, lane, left, ls_share(s, s->rank + k, seg)));
            LS_TRY(ls_sched_recv(o, lane, right, ls_share(s, s->rank + k + 1, seg)));
        }
    }
    return LS_OK;
}

const ls_algo ls_algo_ring_gloo = {
    .name = "ring-gloo",
    .colls = 1u << LS_ALL_REDUCE,
    .source = "Gloo",
    .cut = cut,
    .by_name = true,
    .emit = emit,
};
