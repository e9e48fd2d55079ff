/* pipe.h -- in which order a rank computes the micro-batches of a step.
 *
 * A rank computes its samples of a step in micro-batches: forward, then backward, which adds to the gradients. A pipe
 * has the order as a list of actions and walks it; it is the only loop over the micro-batches of a step. With one
 * pipeline stage every schedule gives the same list, which accumulates gradients:
 *
 *     forward 0, backward 0, forward 1, backward 1, ...
 *
 * With p ranks along the pp axis and v chunks of the model on each, the model is p v stages: contiguous ranges of
 * units, computed one after another. A schedule says in which order each rank computes its micro-batches and chunks;
 * what ranks send and receive follows from it (`lockstep pipeline --csv --messages` prints it). A backward may be in
 * two halves: that of the input, which the stage before waits for, and that of the weights, which no other rank waits
 * for.
 *
 * A micro-batch of a chunk is alive from its forward to the end of its backward: its activations are kept in a slot (a
 * tape). The lists of all ranks are proved together before they run: each micro-batch goes forward and backward once
 * per stage, in ascending order, so that gradients are added in the same order in every schedule; and no rank waits
 * forever.
 */
#ifndef LS_PIPE_H
#define LS_PIPE_H
#include <stdbool.h>
#include "lockstep/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_pipe ls_pipe;

typedef enum ls_pipe_what {
    LS_PIPE_FORWARD,
    LS_PIPE_BACKWARD,        /* both halves */
    LS_PIPE_BACKWARD_INPUT,  /* the gradient of the stage's input; what the other half needs stays alive */
    LS_PIPE_BACKWARD_WEIGHT, /* the gradients of its weights */
} ls_pipe_what;

typedef struct ls_pipe_action {
    ls_pipe_what what;
    int chunk;       /* which of this rank's pieces of the model, from 0 */
    int stage;       /* which piece that is of the whole model, from 0 */
    int micro_batch; /* of the step, from 0 */
    int slot;        /* where it is kept while it is alive: 0 .. ls_pipe_slots - 1 */
    bool last;       /* of the step's last micro-batch: after its backward, or its backward of the weights where that is
                      * apart, the gradients of this chunk are complete */
} ls_pipe_action;

#define LS_PIPE_MOST_MICRO_BATCHES (1 << 24)
#define LS_PIPE_MOST_CHUNKS        64 /* per rank */

typedef struct ls_pipe_config {
    ls_group *stages;     /* borrowed: the ranks of this pipeline by stage (ls_mesh.axis); NULL: this rank alone */
    const char *schedule; /* by name; NULL: "1f1b" */
    int chunks;           /* pieces of the model per rank; 0: the schedule's least */
    int micro_batches;    /* of a step, at most */
    size_t edge_bytes;    /* of what passes from one stage to the next for a micro-batch, at most */
} ls_pipe_config;

/* What an action gets and gives, in memory of the pipe. NULL: nothing enters the first stage, or leaves the last one.
 */
typedef struct ls_pipe_data {
    void *x;          /* of a forward: the activation of the stage before; it stays until the end of the backward */
    const void *y; /* of a forward, which sets it: what the next stage gets. It stays until the slot's next forward */
    const void *dy;   /* of a backward, but not of its weight half: the gradient of y */
    void *dx;         /* the same: where it writes the gradient of x */
} ls_pipe_data;

/* What an action does. Each gets the `arg` of ls_pipe_run. `data` is NULL where there is one stage. */
typedef struct ls_pipe_work {
    ls_status (*feed)(void *arg, const ls_pipe_action *a);    /* right before each forward: gets samples; may be NULL */
    ls_status (*forward)(void *arg, const ls_pipe_action *a, ls_pipe_data *data);
    ls_status (*backward)(void *arg, const ls_pipe_action *a, ls_pipe_data *data); /* one half, or both: a->what */
    /* Elements that pass between stage `edge` and the stage before it for a micro-batch, and their type; on all ranks
     * of the pipeline alike. Not called where there is one stage. */
    size_t (*edge)(void *arg, int edge, int micro_batch, ls_dtype *dtype);
} ls_pipe_work;

/* Whether a pipe of so many ranks can be created; c->stages is not looked at. LS_UNSUPPORTED and LS_BAD_CONFIG name
 * the value, and what is expected. */
ls_status ls_pipe_check(const ls_pipe_config *c, int ranks);
/* The number of chunks that c means, and the stages that are on a rank: number[chunks], ascending. After
 * ls_pipe_check. */
int ls_pipe_chunks(const ls_pipe_config *c, int ranks);
void ls_pipe_stages_of(const ls_pipe_config *c, int ranks, int rank, int *number);
/* On which rank a stage is. */
int ls_pipe_rank_of(const ls_pipe_config *c, int ranks, int stage);
/* Whether the schedule has backwards in two halves. */
bool ls_pipe_splits(const ls_pipe_config *c);
/* Whether this rank computes all of several forwards of a chunk's stage before the first backward of it. */
bool ls_pipe_forwards_first(const ls_pipe *p, int chunk);
/* Makes and proves the lists of c->micro_batches. The failures of ls_pipe_check; LS_INTERNAL names the action of the
 * list that breaks the proof. */
ls_status ls_pipe_create(const ls_pipe_config *c, ls_pipe **out);
void ls_pipe_destroy(ls_pipe *p); /* NULL is fine */
/* Micro-batches that are alive at a time, at most: those of chunk 0 come first, then those of chunk 1 ... */
int ls_pipe_slots(const ls_pipe *p);
int ls_pipe_slots_of(const ls_pipe *p, int chunk);
/* A step of so many micro-batches, at most those of ls_pipe_create: fewer where the samples of an epoch run out, which
 * makes other lists and proves them. Nothing is allocated. The first failure of `work` ends the step and is returned as
 * it is; LS_INVALID: another number of micro-batches. Every rank of the pipeline calls it. */
ls_status ls_pipe_run(ls_pipe *p, int micro_batches, const ls_pipe_work *work, void *arg);
/* Only forwards, of as many micro-batches as the caller likes, one after another: an evaluation. Slots are the first
 * one of each chunk; `a->last` is false. */
ls_status ls_pipe_forward(ls_pipe *p, int micro_batches, const ls_pipe_work *work, void *arg);

#ifdef __cplusplus
}
#endif
#endif
