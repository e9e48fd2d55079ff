/* algo_chain.c -- pipelined chain: every rank passes on to the next.
 *
 * Ranks stand in a line from the root on. A broadcast runs down the line, a
 * reduce up: the last rank starts, each one before adds its own vector. Segments
 * follow one another, so that all links are busy at once.
 *
 *   rounds        size - 2 + segments
 *   bytes sent    one vector, per rank; none by the end of the line
 *   order         (reduce) the last from the root first, the root last
 *   good for      long vectors with many segments: each link carries the vector
 *                 once; latency grows with size
 *   source        pipelined broadcast: van de Geijn 1991; Traeff et al. 2008
 */
#include "coll/algos.h"

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    int place = (s->rank + s->size - s->root) % s->size;
    int before = (s->rank + s->size - 1) % s->size, after = (s->rank + 1) % s->size;
    bool first = place == 0, last = place == s->size - 1, down = s->coll == LS_BROADCAST;
    o->nchunks[LS_BUF_OUT] = (uint32_t)s->segments;
    for (int seg = 0; seg < s->segments; seg++) {
        ls_slice a = { LS_BUF_OUT, (uint32_t)seg, 1 };
        int lane = seg % s->nlanes;
        if (down && !first) LS_TRY(ls_sched_recv(o, lane, before, a));
        if (down && !last) LS_TRY(ls_sched_send(o, lane, after, a));
        if (!down && !last) LS_TRY(ls_sched_recv_reduce(o, lane, after, a));
        if (!down && !first) LS_TRY(ls_sched_send(o, lane, before, a));
    }
    return LS_OK;
}

const ls_algo ls_algo_chain = {
    .name = "chain",
    .colls = 1u << LS_BROADCAST | 1u << LS_REDUCE,
    .source = "van de Geijn 1991",
    .pipelined = true,
    .emit = emit,
};
