/* pipe_route.h -- what one rank receives, keeps and sends around each action of its list.
 *
 * It follows from the lists of all ranks. Between two ranks messages arrive in the order in which they were sent, which
 * is that of the sender's list; a receiver may need another one first. So it receives in the sender's order, each
 * message into a buffer of its own, until it has what it needs. How many buffers that takes at most is known before the
 * first step.
 */
#ifndef LS_PARALLEL_PIPE_ROUTE_H
#define LS_PARALLEL_PIPE_ROUTE_H
#include "parallel/pipe_list.h"

/* A message that this rank receives: the activation, or the gradient, that enters a chunk with a micro-batch. */
typedef struct ls_pipe_post {
    int from;   /* rank of the pipeline */
    int edge;   /* number of the stage between whose input and the stage before it travels */
    int micro_batch;
    int buffer;
} ls_pipe_post;

/* Around one action. Buffers are numbered from 0; -1: none. */
typedef struct ls_pipe_step {
    int tape;          /* where the micro-batch is kept: slots of chunk 0, then of chunk 1 ... */
    int first, nposts; /* receives to be started before the action: ls_pipe_route.post[first .. first + nposts) */
    int in;            /* buffer of what enters: of a forward x, of a backward dy */
    int from;          /* who sends it; this rank: it was handed over. -1: nothing enters */
    int to;            /* who gets the result; this rank: it goes to buffer `out`; -1: no rank */
    int edge;          /* across which it goes, as ls_pipe_post.edge */
    int out;           /* of a backward to another rank: which of the send buffers */
} ls_pipe_step;

typedef struct ls_pipe_route {
    int rank, chunks;
    ls_pipe_step *step; /* owned, as all below: one per action of this rank */
    ls_pipe_post *post;
    int nposts;
    int *tapes;         /* [chunks]: micro-batches alive at a time, at most */
    int buffers, sends; /* buffers that are received into, and those that gradients are sent from */
    struct ls_pipe_mill *mill; /* scratch memory */
} ls_pipe_route;

/* Memory for routes of g, which is made for its largest step. */
ls_status ls_pipe_route_create(const ls_pipe_program *g, int rank, ls_pipe_route *out);
void ls_pipe_route_free(ls_pipe_route *r);
/* The route of the step that g is made for. Allocates nothing. LS_INTERNAL: with r->sends send buffers per rank some
 * rank would wait forever; 0 finds the least number, and sets it. */
ls_status ls_pipe_route_make(ls_pipe_route *r, const ls_pipe_program *g);

#endif
