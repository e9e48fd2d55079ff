/* algo_dissemination.c -- barrier.
 *
 * In round k rank r tells rank r + 2^k that it, and all it has heard of, has
 * arrived. After ceil(log2 size) rounds everyone has heard of everyone. The
 * messages are empty; that they arrive is what counts.
 *
 *   rounds        ceil(log2 size)
 *   messages      ceil(log2 size) per rank
 *   good for      any size, powers of two or not
 *   source        Hensgen, Finkel and Manber, Int. J. Parallel Prog. 17 (1988)
 */
#include "coll/algos.h"

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    static const ls_slice empty = { LS_BUF_OUT, 0, 0 };
    for (int d = 1; d < s->size; d *= 2) {
        LS_TRY(ls_sched_send(o, 0, (s->rank + d) % s->size, empty));
        LS_TRY(ls_sched_recv(o, 0, (s->rank + s->size - d) % s->size, empty));
    }
    return LS_OK;
}

const ls_algo ls_algo_dissemination = {
    .name = "dissemination",
    .colls = 1u << LS_BARRIER,
    .source = "Hensgen, Finkel and Manber 1988",
    .emit = emit,
};
