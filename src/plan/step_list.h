/* step_list.h -- what a rank does in a training step, one thing after another: read from a dry step.
 *
 * A dry world (train/dry.h) runs the runtime's own step, with all its operations and calls, and computes nothing.
 * Here it is written down in order: operations of one unit and phase together, collectives, and messages between
 * stages. One rank of each pipeline stage is run; others of its stage do the same.
 *
 * Reductions of gradient buckets and gathered values go on beside computation, as in the runtime, in the order in which
 * they begin. Bucket reductions are waited for after the last operation; values of a unit before its first operation
 * that follows.
 */
#ifndef LS_PLAN_STEP_LIST_H
#define LS_PLAN_STEP_LIST_H
#include "plan/step_traffic.h"

typedef enum ls_item_kind {
    LS_ITEM_WORK,  /* operations */
    LS_ITEM_COLL,  /* a collective that is waited for */
    LS_ITEM_BEGIN, /* one that goes on beside */
    LS_ITEM_WAIT,  /* for all of those that were begun up to the `count`-th of the step */
    LS_ITEM_SEND, LS_ITEM_RECV, /* a message between pipeline stages */
} ls_item_kind;

/* What a WORK is for. */
typedef enum ls_item_part { LS_PART_OPERATIONS, LS_PART_OPTIMIZER, LS_PART_DATA } ls_item_part;

#define LS_ITEM_LABEL 32
#define LS_STEP_OP_NAME 56
#define LS_STEP_AGAIN " again" /* the name of an operation that backward recomputes ends with it */

/* What an item is for. */
typedef enum ls_step_phase {
    LS_STEP_FORWARD, LS_STEP_BACKWARD,
    LS_STEP_UPDATE, /* after the last operation: norms of gradients, the optimizer, new values */
    LS_STEP_PHASES
} ls_step_phase;

typedef struct ls_step_item {
    ls_item_kind kind;
    bool backward;
    ls_step_phase phase;
    char label[LS_ITEM_LABEL];
    ls_item_part part;   /* WORK */
    double seconds;      /* WORK: of a device, or of a core */
    double routed;       /* WORK: of `seconds`, what takes as long as the rank's experts have tokens; 0: nothing, or all
                          * ranks have as many */
    int layer;           /* whose experts they are (ls_step_lists.uneven) */
    double asleep;       /* WORK: seconds after that, in which no core is busy */
    double flops;        /* WORK */
    double bytes;        /* of a collective's vector, of a message; WORK: read and written */
    ls_coll coll;
    ls_step_span span;   /* of its group */
    ls_step_vector vector; /* of a collective */
    int edge;            /* SEND, RECV: between this stage and the one before; */
    bool forward;        /* which way */
    int count;           /* WAIT */
} ls_step_item;

/* A kind of call: two calls with equal fields take equally long. */
typedef struct ls_step_call {
    ls_step_span span;
    ls_coll coll;
    double bytes;
    ls_step_vector vector;
} ls_step_call;

static inline ls_step_call ls_step_call_of(const ls_step_item *i)
{
    return (ls_step_call){ .span = i->span, .coll = i->coll, .bytes = i->bytes, .vector = i->vector };
}
static inline bool ls_step_same_call(const ls_step_call *a, const ls_step_call *b)
{
    return ls_step_same_span(&a->span, &b->span) && a->coll == b->coll && a->bytes == b->bytes &&
           ls_step_same_vector(&a->vector, &b->vector);
}

/* All calls of one operation in one phase of the step. */
typedef struct ls_step_op {
    char name[LS_STEP_OP_NAME]; /* as traces name it: "linear 784x256" */
    ls_step_phase phase;
    double calls, flops;
    double bytes;        /* read and written: operands and results, each once */
    double compute_s;    /* of the calls that products take longest in, */
    double memory_s;     /* and of those that memory takes longest in */
    double busy_s;       /* of all of them: measured, or by the two rates. Over all operations they sum to `seconds` of
                          * the items, but those of data and what is between operations */
} ls_step_op;

typedef struct ls_step_list {
    ls_step_item *item; /* owned */
    int n, cap;
    ls_step_op *op;     /* owned: [nops], in the order of their first calls */
    int nops, opcap;
} ls_step_list;

/* How fast a device computes. */
typedef struct ls_step_rates {
    double flops_per_s;        /* sustained; above 0 */
    double memory_bytes_per_s; /* 0: memory limits nothing */
    const struct ls_measured *measured; /* borrowed: times of operations, optimizer and data on this machine
                                * (train/measure.h), in place of the two rates; NULL: none */
    bool by_stage;             /* there is one of them for each stage */
} ls_step_rates;

typedef struct ls_step_lists {
    int size[LS_AXES], ranks, stages; /* stages: ranks along pp */
    int local;            /* ranks that share the memory of a node */
    int order[LS_AXES];   /* of the mesh: which ranks are neighbours */
    ls_step_list of[LS_STEP_STAGES];
    double *uneven;       /* owned: [layers][ep]: how many tokens the experts of each place along ep have, in proportion
                           * to the mean; NULL: all have as many */
    const char *schedule; /* of the pipeline */
    int chunks, micro_batches;
    double flops, tokens; /* of a step, of all ranks: as in ls_step_traffic */
    const char *what;     /* "tokens" or "samples" */
} ls_step_lists;

/* local, which divides ranks: so many are on each node, and share its memory (with zero.copy host, no rank gathers what
 * another one on its node has); 1: no two of them do, as devices of a cluster. The first rank of a stage stands for
 * all. The failures of ls_step_dry_begin, LS_NO_MEMORY. */
ls_status ls_step_lists_create(const ls_train_config *c, int ranks, int local, const ls_step_rates *rates,
                               ls_step_lists *out);
void ls_step_lists_free(ls_step_lists *l);

#endif
