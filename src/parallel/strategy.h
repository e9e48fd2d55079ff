/* strategy.h -- data parallelism around a model: a table of functions per strategy, and what strategies share.
 *
 *   replicas.c  the calls of dp.h: one model on all ranks, wrapped by a strategy
 *   same_model.c  whether all ranks have the same parameters
 *   buffers.c   state of a model that is no parameter
 *   unused.c    parameters that a backward does not reach
 *   join.c      ranks with different numbers of inputs
 *   hook.c, hook_powersgd.c  communication hooks
 *   partial.c   partial sums over the micro-batches of a step (ls_ddp_config.tree)
 *   registry.c  which strategy a configuration means
 *   assign.c    which gradients travel together
 *   bucket.c    where the gradients of a bucket lie, and when it starts
 *   shard.c     what strategies share in which ranks own different rows
 *   first_values.c  initial values of parameters that no rank stores as a whole
 *   slots.c     memory for sharded gradients
 *   gathered.c  parameter values that are gathered unit by unit
 *   copies.c    shards that several ranks hold (HSDP)
 *   overlap.c   the predicted time of a step with overlapped buckets (overlap.h)
 *   ddp.c       gradients are all_reduced, every rank updates all parameters
 *   zero_formula.c  the bytes of ZeRO's stages (zero_formula.h)
 *   fsdp.c      each rank owns a shard of every parameter: ZeRO's stages
 *
 * Words, here and in nn.h:
 *
 *   part    which elements of the global tensor a rank's tensor is (ls_param.part). Tensor parallelism divides so; data
 *           parallelism does not: all replicas have the same part
 *   own     the elements of a rank's tensor that its optimizer updates (ls_param.own): all of them, or its shard
 *   shard   what one rank owns where each of the replicas owns something else: rows of a matrix,
 *           elements of a vector
 *   keeps   of `own` those that this rank counts in the norm, so that every element is counted once (ls_param.keeps)
 *   span    where one parameter of a bucket lies, and how long its rows are (ls_matrix_span), for a collective by rows
 *   shared  a parameter that several units use, and that therefore belongs to the root (ls_param.unit is -1)
 *   range   [first, first + count) of anything (ls_range)
 */
#ifndef LS_PARALLEL_STRATEGY_H
#define LS_PARALLEL_STRATEGY_H
#include "lockstep/dp.h"
#include "lockstep/unit.h"

#define LS_BUCKET_ALIGN     64u /* bytes: where parameters begin in a bucket; buckets end at multiples of W of them */
#define LS_BUCKETS_IN_FLIGHT 32 /* a group carries 64 collectives at once */

/* Gradients that travel together. */
typedef struct ls_bucket {
    int *param; /* owned: indices, in the order they lie in memory */
    size_t *at; /* owned: [nparams] where each begins, elements from `data` */
    int nparams;
    size_t nbytes; /* of the parameters */
    float *data;   /* borrowed from the world's arena; peers read and write it. NULL: no memory now (ls_buckets_put) */
    size_t count;  /* elements, padding included */
    int nready;
    ls_coll reduce;        /* LS_ALL_REDUCE; LS_REDUCE_SCATTER: each rank gets the sums of its own rows only */
    ls_matrix_span *span;  /* owned: [nparams] its parameters, for LS_REDUCE_SCATTER; NULL: gradients are not sharded */
    float *sums;    /* borrowed: receives this rank's rows of the sums, side by side; NULL: the sums are in `data` */
    ls_work *work;  /* NULL when nothing is in flight */
    char label[24]; /* "bucket 3" */
} ls_bucket;

/* New values that all ranks get from their owners after a step. */
typedef struct ls_dp_gather {
    ls_coll_args call; /* an all_gather in place; call.span is owned */
    ls_range *part;    /* owned: which rows the ranks bring (ls_matrix_span.part), span after span; NULL: as shards */
    ls_work *work;     /* NULL when nothing is in flight */
} ls_dp_gather;

/* What becomes of gradients and parameters from one forward to the next, in this order. */
typedef enum ls_dp_state {
    LS_DP_IDLE,    /* no backward was announced yet (ls_ddp_begin_forward) */
    LS_DP_LOCAL,   /* the coming backward is not reduced: its gradients stay on this rank (no_sync) */
    LS_DP_SYNC,    /* the coming backward is reduced, and has given no gradient yet */
    LS_DP_PENDING, /* it has given some gradients, and not all buckets are reduced */
    LS_DP_REDUCED, /* all buckets are reduced. If the optimizer steps, each rank has new values of what it owns only */
    LS_DP_CURRENT, /* after_step has given every rank all new values */
} ls_dp_state;

struct ls_ddp {
    const ls_dp_strategy *strategy;
    ls_group *g;   /* borrowed: all ranks */
    ls_group *shards; /* borrowed: the ranks over which parameters are sharded; g unless c.shards says otherwise */
    ls_group *second; /* owned: the ranks of g or of shards once more, so that two collectives move at the same time
                         (ls_group_second); NULL: there is no need */
    ls_group *gathers_in; /* borrowed: the ranks that `gather` is between: c.column, or shards */
    ls_params *ps; /* borrowed */
    ls_ddp_config c;
    ls_dp_state state;
    bool last;    /* the newest announced backward completes the gradients of a step */
    bool dry;     /* in a dry world: values and gradients have addresses, and no memory */
    /* Set by `place` according to the configuration; false and 0 before. */
    bool lends;          /* gradients have memory during a part of backward only, and then it is reused: a full bucket
                            is reduced immediately, even with no_overlap */
    bool forwards_meet;  /* forwards include collectives: every rank must run the same number of them */
    bool every_backward; /* every announced backward is reduced; otherwise only those announced with `sync` */
    ls_ddp_in_use in_use; /* bytes that units use one after another */
    char *grads;  /* borrowed: memory of all buckets, for ever; NULL: the strategy puts each bucket (ls_buckets_put) */
    void *mine;   /* the strategy's; its `destroy` releases it */
    ls_bucket *b; /* owned */
    int nbuckets;
    ls_dp_gather *gather; /* owned: those after a step (ls_buckets_gather); NULL: none */
    int ngathers;
    int next;       /* the bucket to be started, strictly in order */
    int waited;     /* the oldest bucket whose reduction was not waited for */
    struct ls_comm_hook *hook; /* owned: reduces buckets; NULL: they are all_reduced or reduce_scattered here */
    struct ls_unused *unused;  /* owned: parameters that a backward does not reach; NULL: it must reach all */
    struct ls_partial *partial; /* owned: partial sums; NULL: gradients add up in the order of backwards */
    struct ls_join *join;      /* owned: uneven inputs; NULL: every rank runs the same number of forwards */
    int divisor;               /* of sums of gradients: the number of ranks, or of those that still have inputs */
    struct ls_buffer *buffer;  /* owned: [nbuffers] */
    int nbuffers;
    int *bucket_of; /* owned: [nparams] */
    bool *ready;    /* owned: [nparams], in the current reduced backward */
    int *arrival;   /* owned: parameters in the order their gradients came, */
    int narrived;   /* so many; -1 once buckets stay as they are */
    ls_tape **tape; /* owned: the list of tapes that it listens to */
    int ntapes, tapes_cap;
};

/* Parameter i is ready in this backward, which has not started its bucket. The last one of a bucket marks the bucket
 * as ready in the trace. */
static inline void ls_buckets_count_ready(ls_ddp *d, int i)
{
    const int k = d->bucket_of[i];
    d->ready[i] = true;
    if (d->narrived >= 0) d->arrival[d->narrived++] = i;
    if (++d->b[k].nready < d->b[k].nparams) return;
    ls_tracer_mark(ls_world_tracer(ls_group_world(d->g)), "ready", (uint16_t)(k + 1));
}

/* A strategy is one of these, in a file of its own, and a word in LS_DP_STRATEGIES. What most of them do alike is
 * below and in shard.h. */
struct ls_dp_strategy {
    const char *name;            /* ls_plan.dp; of the library's, the word in LS_DP_STRATEGIES */
    int first_stage, last_stage; /* of ls_ddp_config.zero_stage: what it can do */
    bool shards;                 /* ranks own different elements */
    const char *order;           /* for people: the order of buckets that stay as they are */
    /* Tells every parameter what this rank owns, and takes memory for values, and for their copies in bf16; for
     * gradients, too, unless `place` does. */
    ls_status (*bind)(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own);
    /* Makes the buckets, and says where gradients lie: ls_buckets_place gives every one memory for ever, ls_buckets_put
     * one bucket for as long as the strategy likes; if it lends (d->lends), a bucket may have none at first. Every
     * t.data has rank 0's first values, and so have the copies, and the floats of own rows where t.data is NULL. */
    ls_status (*place)(ls_ddp *d);
    ls_tape_events events; /* of the tapes; arg is the ls_ddp. `end` is not a strategy's */
    /* Before a forward; may refuse it. The rules that all strategies have are checked. */
    ls_status (*begin_forward)(ls_ddp *d);
    /* The reduction of bucket k is complete: once per bucket and reduced backward, in ascending order, in a call that
     * waits for it (ls_buckets_wait_one, or the end of backward). In a backward that completes the gradients of a step
     * they are marked as reduced. NULL: they stay where they are. */
    ls_status (*arrived)(ls_ddp *d, int k);
    /* NULL: nothing is to be done. */
    ls_status (*after_step)(ls_ddp *d);
    /* All values of one parameter; every rank asks for the same. Valid until the next backward or optimizer step. */
    ls_status (*whole)(ls_ddp *d, const ls_param *p, const float **out);
    /* Before the buckets go; NULL: nothing is to be done. */
    void (*destroy)(ls_ddp *d);
};

/* All strategies of the library: ls_dp_ddp, ... They are in the order of their stages; where several have a stage, it
 * means the first of them, and the others are chosen by name. */
#define LS_DP_STRATEGIES(X) X(ddp) X(fsdp)
#define LS_DP_STRATEGY(file) extern const ls_dp_strategy ls_dp_##file;
LS_DP_STRATEGIES(LS_DP_STRATEGY)
#undef LS_DP_STRATEGY

/* registry.c: the strategy that a zero_stage means. LS_UNSUPPORTED names what there is. */
ls_status ls_dp_strategy_of(int stage, const ls_dp_strategy **out);
/* The strategy of that name in `own` (it ends with NULL; NULL: none), else in the library. LS_BAD_CONFIG lists all. */
ls_status ls_dp_strategy_find(const char *name, const ls_dp_strategy *const *own, const ls_dp_strategy **out);
/* Which of d->ps belong to a unit alone. */
static inline ls_range ls_dp_unit(const ls_ddp *d, const ls_unit *u)
{
    const int before = d->ps->before, end = before + d->ps->n;
    if (u->nparams > 0 && u->first >= before && u->first < end)
        return (ls_range){ (size_t)(u->first - before), (size_t)u->nparams };
    if (u->nlast > 0 && u->first_last >= before && u->first_last < end)
        return (ls_range){ (size_t)(u->first_last - before), (size_t)u->nlast };
    return (ls_range){ 0, 0 };
}
/* Whether a strategy can do a zero_stage. */
static inline bool ls_dp_strategy_has(const ls_dp_strategy *s, int stage)
{
    return stage >= s->first_stage && stage <= s->last_stage;
}
/* same_model.c: LS_CONFIG_MISMATCH unless all ranks have parameters of the same names and shapes. */
ls_status ls_dp_same_model(ls_group *g, const ls_params *ps);
/* The ranks over which a configuration shards. */
static inline ls_group *ls_dp_shards(ls_group *g, const ls_ddp_config *c) { return c && c->shards ? c->shards : g; }
/* Those of them that share one copy of the values (LS_ZERO_COPY_HOST). */
static inline ls_group *ls_dp_node(ls_group *g, const ls_ddp_config *c)
{
    return c && c->node ? c->node : ls_dp_shards(g, c);
}
/* replicas.c: ls_ddp_bind and ls_ddp_create with this strategy. */
ls_status ls_dp_bind(const ls_dp_strategy *s, ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype,
                     ls_arena *own);
ls_status ls_dp_create(const ls_dp_strategy *s, ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_ddp **out);

/* --- buffers.c ---------------------------------------------------------------------------------------- */

/* All ranks get rank `from`'s buffers. */
ls_status ls_dp_sync_buffers(ls_ddp *d, int from);
/* The collectives that come before a forward: those of the strategy, and buffers, of rank `from`. */
ls_status ls_dp_before_forward(ls_ddp *d, int from);

/* --- bucket.c: where ------------------------------------------------------------------------------- */

/* Sizes that nobody has given. */
ls_ddp_config ls_ddp_defaults(const ls_ddp_config *c);
/* Says who counts an element in the norm where every rank owns all: the rank in whose part of all elements the
 * parameter begins. */
void ls_dp_keep(ls_params *ps, int rank, int size);

/* Bytes of a parameter's gradient in a bucket. */
static inline size_t ls_bucket_param_bytes(const ls_param *p)
{
    return (ls_tensor_nbytes(&p->t) + LS_BUCKET_ALIGN - 1) / LS_BUCKET_ALIGN * LS_BUCKET_ALIGN;
}
/* Bytes of a bucket whose parameters take `used`. */
static inline size_t ls_bucket_bytes(size_t used, int size)
{
    const size_t unit = (size_t)size * LS_BUCKET_ALIGN;
    return (used + unit - 1) / unit * unit;
}
/* Memory of the world's arena for all buckets, whatever their order: how much a strategy takes that has them all for
 * ever. */
ls_status ls_buckets_alloc(ls_group *g, const ls_params *ps, char **grads);
/* Makes buckets of order[] as numbered by number[] (by position). They have no memory yet. */
ls_status ls_buckets_make(ls_ddp *d, const int *order, const int *number, int nbuckets);
/* Lets bucket k and its gradients lie at `data`, count elements; NULL: they have no memory, and nothing may write them.
 * What was there stays as it was. */
void ls_buckets_put(ls_ddp *d, int k, float *data);
/* The part of it about gradients: they lie where their bucket does. */
static inline void ls_bucket_point(ls_ddp *d, const ls_bucket *b)
{
    for (int i = 0; i < b->nparams; i++) d->ps->item[b->param[i]].grad.data = b->data ? b->data + b->at[i] : NULL;
}
/* Every rank calls it between two steps, with the same limits: the next reduced backward is the last one with the
 * present buckets; then they are rebuilt with these limits, in the order of that backward. For ls_dp_ddp without
 * find_unused. */
void ls_buckets_limit(ls_ddp *d, size_t first_bucket, size_t bucket_cap, bool overlap);
/* Makes buckets, and puts them one after another in d->grads, all zeros. */
ls_status ls_buckets_place(ls_ddp *d, const int *order, const int *number, int nbuckets);
void ls_buckets_free(ls_ddp *d);

/* Memory for all values of a parameter, in float, where ops read its copy in bf16 alone: that of its gradient, which
 * is free between the optimizer's step and the next backward. LS_INVALID, naming the parameter, while a gradient
 * is there. Who borrows it: ls_ddp_values, for a checkpoint, a digest, and the samples of a run. */
ls_status ls_bucket_lend(const ls_param *p, int rank, float **out);

/* --- bucket.c: when -------------------------------------------------------------------------------- */

/* Before a backward that is reduced. */
void ls_buckets_begin(ls_ddp *d);
/* Waits for the oldest reduction in flight, and tells the strategy that its bucket arrived. For a strategy whose
 * memory runs out before backward does; the end of backward waits for all. */
ls_status ls_buckets_wait_one(ls_ddp *d);
/* ls_dp_strategy.events: a gradient that is ready counts in its bucket, full buckets start in order, the end of
 * backward waits for all. */
ls_status ls_buckets_grad_ready(void *arg, ls_tensor *t);
ls_status ls_buckets_progress(void *arg);
ls_status ls_buckets_done(void *arg);

/* ls_dp_strategy.after_step: all that d->gather lists, with as many in flight as a group carries. Returns the first
 * failure; nothing is in flight then, either. */
ls_status ls_buckets_gather(ls_ddp *d);

#endif
