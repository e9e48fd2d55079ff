/* collective.h -- collectives that are a part of an op. For src/tensor and the axes inside a layer (src/parallel).
 *
 * They block: what follows them in the formula needs their result. In a dry world they are recorded, on dry tapes, too.
 */
#ifndef LS_TENSOR_COLLECTIVE_H
#define LS_TENSOR_COLLECTIVE_H
#include "lockstep/group.h"
#include "tensor/tape.h"

/* Runs `a` in g; in and out are memory of the tape. On a dry tape nothing has memory: in a dry world the call is
 * recorded with addresses that stand for it (`a->in` tells only whether the call is in place), and elsewhere, or where
 * g is NULL, nothing happens. */
ls_status ls_op_collective(ls_tape *t, ls_group *g, const ls_coll_args *a, bool in_place);
/* Starts a message to `peer`, or from it, of `nbytes` at `buf`; *out is for ls_work_wait. On dry tapes as above. */
ls_status ls_op_message(ls_tape *t, ls_group *g, bool sends, int peer, void *buf, size_t nbytes, const char *label,
                        ls_work **out);

#endif
