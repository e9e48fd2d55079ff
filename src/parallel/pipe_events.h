/* pipe_events.h -- the lists of a pipeline as a model of the event engine (sim/des.h).
 *
 * A rank of a pipeline is a process. Where pipe_replay.h has one time for every transfer, here messages take links: the
 * bytes of an edge between two places of a network. Without waiting for links both give the same bits.
 */
#ifndef LS_PARALLEL_PIPE_EVENTS_H
#define LS_PARALLEL_PIPE_EVENTS_H
#include "parallel/pipe_list.h"
#include "sim/des.h"

typedef struct ls_pipe_loads {
    const double *forward, *input, *weight; /* [S], seconds of a micro-batch per stage, as in pipe_replay.h */
    double bytes;                           /* of a message between two ranks */
} ls_pipe_loads;

typedef struct ls_pipe_events {
    uint32_t n;          /* processes: p times `copies` */
    ls_des_op **program; /* owned, [n]: those of a pipeline, shared by its copies */
    uint32_t *base;      /* owned, [n] */
    double *cost;        /* owned, [ncosts] */
    uint32_t ncosts;
    ls_des_op *memory;   /* owned */
} ls_pipe_events;

/* `copies` pipelines with the lists of g, which is proved. Rank r of copy k is process k p + r. LS_NO_MEMORY;
 * LS_UNSUPPORTED: too many processes or different times. */
ls_status ls_pipe_events_create(const ls_pipe_program *g, const ls_pipe_loads *t, uint32_t copies, ls_pipe_events *out);
void ls_pipe_events_free(ls_pipe_events *e);
/* The rest of the model is the caller's to fill in. */
void ls_pipe_events_model(const ls_pipe_events *e, ls_des_model *out);

#endif
