/* collective.h -- collectives that are a part of an op. For src/tensor and the axes inside a layer (src/parallel).
 *
 * Most of them block, because the next product needs their result. Those of a flight move while the op computes the
 * rest of its result. In a dry world all of them are recorded, on dry tapes, too.
 */
#ifndef LS_TENSOR_COLLECTIVE_H
#define LS_TENSOR_COLLECTIVE_H
#include "lockstep/group.h"
#include "tensor/tape.h"

/* Runs `a` in g; in and out are memory of the tape. On a dry tape nothing has memory: in a dry world the call is
 * recorded with addresses that stand for it (`a->in` tells only whether the call is in place), and elsewhere, or where
 * g is NULL, nothing happens. */
ls_status ls_op_collective(ls_tape *t, ls_group *g, const ls_coll_args *a, bool in_place);
/* Collectives of one op that have been started and not waited for. Zeros: none. */
#define LS_FLIGHT_MOST 16
typedef struct ls_flight {
    ls_work *work[LS_FLIGHT_MOST]; /* NULL: it was started where nothing is called */
    int n;
} ls_flight;
/* Starts `a` in g, and moves what is in flight a little. LS_INVALID if f has LS_FLIGHT_MOST already. */
ls_status ls_flight_start(ls_flight *f, ls_tape *t, ls_group *g, const ls_coll_args *a, bool in_place);
/* Waits for all of them, also after one has failed: their buffers are the caller's again. Returns the first failure. */
ls_status ls_flight_wait(ls_flight *f);
/* Starts a message to `peer`, or from it, of `nbytes` at `buf`; *out is for ls_work_wait. On dry tapes as above. */
ls_status ls_op_message(ls_tape *t, ls_group *g, bool sends, int peer, void *buf, size_t nbytes, const char *label,
                        ls_work **out);

#endif
