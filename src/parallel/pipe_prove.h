/* pipe_prove.h -- memory of the prover of pipeline schedules. */
#ifndef LS_PARALLEL_PIPE_PROVE_H
#define LS_PARALLEL_PIPE_PROVE_H
#include "parallel/pipe_list.h"

/* What has happened so far. Actions of a chunk are in ascending order, so numbers of micro-batches say which. */
struct ls_pipe_scratch {
    /* of one rank's list */
    int *forward, *input, *weight; /* [v]: micro-batches that have gone forward, backward, and backward of weights */
    int *slot;                     /* [v m]: where a micro-batch that is alive is, at chunk most + micro_batch */
    int *free;                     /* [v m]: slots to be used again, the last one first */
    /* of all ranks */
    int *at;                       /* [p]: actions that a rank has ended */
    int *sent, *received;          /* [2 S]: messages of the edge forward into stage s, and at S + s backward into it */
};

ls_status ls_pipe_scratch_create(const ls_pipe_shape *most, struct ls_pipe_scratch **out);
void ls_pipe_scratch_free(struct ls_pipe_scratch *s);

#endif
