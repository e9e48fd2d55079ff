/* dp.h -- data parallelism around a model: DDP with gradient buckets.
 *
 * The wrapper is PyTorch's DistributedDataParallel, rule by rule: parameters
 * are compared and broadcast from rank 0; gradients live in buckets in the
 * shared arena; during backward a full bucket's all_reduce starts in bucket
 * order; buckets are rebuilt once in the order gradients arrived. User code
 * calls only ls_backward.
 *
 *     ls_ddp_create(group, &model->params, &cfg, &ddp);
 *     ls_ddp_begin_forward(ddp, tape, true);
 *     loss = ...; ls_backward(tape, loss); ls_optim_step(o);
 *
 * zero_stage 1 is ZeRO's first stage (Rajbhandari et al. 2020; Megatron's distributed optimizer): a bucket is
 * reduce_scattered instead, each rank's optimizer has the state of its shard only, updates that shard, and the new
 * values are all_gathered. A shard is some rows of a matrix (dimension 0) and some elements of a vector
 * (ls_shard_range); if a parameter has fewer rows than there are ranks, some ranks own nothing of it. In float each
 * bucket is one reduce_scatter during backward and one all_gather after the step. In bf16 a bucket is all_gathered only
 * if one of its parameters has a copy in bf16, and one further all_gather brings all values that ops read in float. The
 * traffic equals DDP's (about three quarters of it in bf16), each rank updates 1/W of the elements, and replicas end up
 * with the same values. A matrix that ops read in bf16 has float values on each rank for its own rows only
 * (ls_param.master), and t.data is NULL; ls_ddp_values gathers them for a checkpoint.
 *
 *     ls_ddp_bind(group, ps, &cfg, LS_F32, arena);   // instead of ls_params_bind
 *     ... first values; ls_ddp_create(group, ps, &cfg, &ddp); ls_optim_create(...);
 *     ls_ddp_begin_forward(ddp, tape, true); loss = ...; ls_backward(tape, loss);
 *     ls_grad_norm_shared(group, ps, &norm, NULL); ls_optim_step(o); ls_ddp_after_step(ddp);
 */
#ifndef LS_DP_H
#define LS_DP_H
#include "lockstep/group.h"
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_ddp ls_ddp;

/* A data parallel strategy: a table of functions. It is opaque here; a strategy is written inside the sources. */
typedef struct ls_dp_strategy ls_dp_strategy;

/* With zero_stage 3: where the parameter values are stored that operations read. */
typedef enum ls_zero_copy {
    LS_ZERO_COPY_HOST, /* one copy per node, which all ranks of the node read; each rank updates its own rows there. On
                          one node nothing is gathered. On several (ls_ddp_config.node) the nodes exchange new values
                          once, after a step. LS_UNSUPPORTED unless the ranks of a node map each other's memory */
    LS_ZERO_COPY_RANK, /* each rank all_gathers a unit's values before it needs them, as PyTorch's FSDP does */
} ls_zero_copy;

/* With LS_ZERO_COPY_RANK: which units release their values after forward, and gather them again for backward. */
typedef enum ls_reshard {
    LS_RESHARD_DEFAULT, /* all units except the last one, whose values backward needs first */
    LS_RESHARD_ALWAYS,  /* all units */
    LS_RESHARD_NEVER,   /* none: values stay until the next step. A third less traffic, and memory for all units */
} ls_reshard;

typedef struct ls_ddp_config {
    size_t first_bucket; /* bytes; 0: 1 MiB */
    size_t bucket_cap;   /* bytes; 0: 25 MiB */
    bool bucket_view;    /* divide contributions by W (PyTorch's gradient_as_bucket_view) instead of
                            multiplying them by 1/W */
    bool find_unused;    /* parameters may take no part in the loss, other ones on each rank and in each step. If no
                            rank uses one, its gradient stays as it was. Costs an all_reduce of 4 bytes per parameter
                            and step */
    bool static_graph;   /* some parameters take no part in any loss, the same ones on all ranks and in all steps */
    bool no_overlap;     /* start every bucket at the end of backward (to measure overlap) */
    int divisor;         /* of sums of gradients; 0: the number of ranks of the group. Experts that ranks divide have as
                          * many contributions in a gradient as all ranks have samples */
    int zero_stage;      /* 0: every rank updates all parameters; 1: each rank updates its shard, and stores optimizer
                            state for that shard only; 2: gradients are sharded, too; 3: parameter values, too */
    bool reduce_last;    /* zero_stage 2, 3: true: gradients of several micro-batches are summed on each rank and
                            reduced once, in the last backward. Less traffic, but each rank stores all gradients, as
                            in stage 1. false: every backward is reduced */
    ls_zero_copy copy;   /* zero_stage 3 */
    int prefetch;        /* LS_ZERO_COPY_RANK: number of units that are gathered ahead of the one in use */
    ls_reshard reshard;  /* LS_ZERO_COPY_RANK */
    /* Hybrid sharding (HSDP), of zero_stage 1 to 3: parameters and state are sharded over `shards`, and each shard is
     * held by every rank of `copies`. Both groups are borrowed and contain this rank. The product of their sizes is the
     * size of the group that is given to the calls below. NULL, NULL: one set of shards over all ranks. */
    ls_group *shards, *copies;
    /* LS_ZERO_COPY_HOST where the ranks of one set of shards are on several nodes: `node` has the ranks of this node,
     * which share one copy of the values. `column` has one rank of each node; after a step these ranks all_gather their
     * updated rows into the copies of their nodes. Both are borrowed and contain this rank, and all nodes have the same
     * number of ranks. NULL, NULL: all ranks of a set share one copy. */
    ls_group *node, *column;
    /* Sums of gradients have one order, whatever the layout: a binary tree over the micro-batches of all ranks of a
     * step (LS_SUM_TREE over the ranks, pairs of micro-batches on each). The loss is the caller's to scale by the
     * whole step: gradients are added up and not divided. Then all layouts whose numbers of ranks and micro-batches are
     * powers of two give the same bits, if rank r of W computes in its k-th backward of `micro_batches` the part at
     * ls_deal_place (data.h) of the step: strategies that reduce every backward add over ranks first. LS_UNSUPPORTED
     * with find_unused, static_graph, uneven inputs and communication hooks. */
    bool tree;
    int micro_batches;   /* tree: backwards of a step, on each rank the same number; 0: 1. log2 of it partial sums are
                            stored: of all gradients, or of this rank's rows where every backward is reduced */
} ls_ddp_config;

typedef struct ls_ddp_bucket_info {
    int index;
    const int *param;   /* indices into the params, in bucket order */
    int nparams;
    size_t nbytes;      /* of the parameters, padding apart */
} ls_ddp_bucket_info;

/* Binds values as ls_params_bind does, and for dtype LS_BF16 their copies as ls_params_bind_bf16, in `own`. With
 * zero_stage 1 what is gathered after a step lies in the world's arena, in the order of the buckets: the values, or the
 * copies of those that have one; every parameter learns which part of it this rank owns; and gradients get their
 * memory, where t.data of a parameter with a copy is until ls_ddp_create. */
ls_status ls_ddp_bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own);

/* Every rank of the group calls it. Compares count, names, shapes with all ranks
 * (LS_CONFIG_MISMATCH names both ranks, the parameter and both shapes), binds each
 * parameter's gradient into a bucket in the shared arena, and broadcasts the
 * values from rank 0, which copies in bf16 get, too. `ps` is borrowed until
 * ls_ddp_destroy and must be bound, for zero_stage 1 by ls_ddp_bind with the
 * same configuration (LS_INVALID if values or gradients lie elsewhere); its grads
 * may be NULL. Frozen parameters belong into another ls_params.
 *
 * Until ls_ddp_destroy an optimizer's step refuses (LS_INVALID, no weight is changed) every gradient of `ps` that was
 * not averaged over all ranks of a group of more than one: after ls_ddp_begin_forward(.., false), after a backward that
 * ls_ddp_begin_forward did not announce, and where a parameter of the bucket took no part in the loss. Gradients may
 * accumulate in any number of backwards as long as the last one before the step synchronises. */
ls_status ls_ddp_create(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_ddp **out);
/* The parameters keep their values (with zero_stage 1 what ops read lies in the world's arena and goes with it) and
 * have no gradients any more. NULL is fine. Every rank calls it before ls_world_leave, several in the same order: over
 * connections it waits for the other ranks. After a failure that not all ranks share, call ls_world_abort first. */
void ls_ddp_destroy(ls_ddp *d);

/* State of a model that is no parameter and gets no gradient, such as running means. */
typedef struct ls_buffer {
    const char *name; /* for messages */
    void *data;       /* [count], borrowed */
    size_t count;
    ls_dtype dtype;
} ls_buffer;

/* Every rank calls it with the same list. All ranks get rank 0's values at once, and again in each
 * ls_ddp_begin_forward, unless the backward before it was not reduced. The list is copied. LS_CONFIG_MISMATCH:
 * ranks have different numbers. */
ls_status ls_ddp_set_buffers(ls_ddp *d, const ls_buffer *b, int n);

/* Uneven inputs: between the two calls below, ranks may run different numbers of forwards. */
typedef struct ls_join_config {
    bool divide_by_active; /* divide sums of gradients by the number of ranks that still have inputs; false: by all
                              ranks */
    bool stop_together;    /* when the inputs of one rank end, every rank gets LS_INVALID instead: at its next forward,
                              or from ls_ddp_join_end */
} ls_join_config;

/* Every rank calls it before its first forward. c NULL: zeros. LS_UNSUPPORTED: zero_stage above 0, or a
 * communication hook. */
ls_status ls_ddp_join_begin(ls_ddp *d, const ls_join_config *c);
/* This rank's inputs have ended. It takes part in the collectives of ls_ddp_begin_forward and of backward, with
 * zeros, until the inputs of all ranks have ended. Then all ranks get the parameters and buffers of the rank that
 * has trained longest; of several, the largest rank. Optimizer state is not copied, as in PyTorch: a rank whose inputs
 * ended early has made fewer updates, so its state and its step counts are older, and the replicas would differ after
 * the next update. To train on after this call, a program destroys the optimizer on every rank and creates a new one,
 * whose state is zero, or it uses SGD without momentum, which has no state. (With stop_together every rank has made the
 * same updates; to train on, create a new ls_ddp on every rank.) Collectives that a program calls itself between the
 * two calls are not mirrored: they fail as LS_COLL_MISMATCH on the ranks that still have inputs. */
ls_status ls_ddp_join_end(ls_ddp *d);

/* Before every forward, once per backward: hooks into the tape's backward (whose end waits for the
 * buckets in flight), rebuilds buckets when due, and says whether the coming backward completes the gradients of a
 * step. It is then reduced; others (false is no_sync()) accumulate on this rank, unless the strategy reduces each
 * backward. LS_INVALID when the tape already holds a forward (ls_tape_pending):
 * that one's backward keeps the `sync` that was given before it. LS_INVALID, with PyTorch's message
 * "Expected to have finished reduction in the prior iteration ...", when the
 * prior synced backward left buckets unfinished. With zero_stage 1 gradients that are reduced cannot be added to:
 * LS_INVALID until ls_optim_step or ls_params_zero_grad has used them up. The same holds for zero_stage 2 and 3 with
 * hybrid sharding over wires. */
ls_status ls_ddp_begin_forward(ls_ddp *d, ls_tape *t, bool sync);

/* In place of ls_ddp_begin_forward where several forwards are alive (a pipeline): right before the backward of a
 * forward that the tape holds. Where the weight halves of backward are put off (ls_tape_defer_weights), with `sync`
 * false before the input half, and again before the weight half (ls_backward_weights), after which comes
 * ls_ddp_end_weights. */
ls_status ls_ddp_begin_backward(ls_ddp *d, ls_tape *t, bool sync);
/* After the weight halves of a step's last backward: gradients that were complete with the input half, because they
 * could not be put off, are reduced, too. */
ls_status ls_ddp_end_weights(ls_ddp *d);

/* Makes d listen to a tape that is used without ls_ddp_begin_forward, such as that of an evaluation: with
 * LS_ZERO_COPY_RANK, d gathers the values of each unit as the tape enters it. Repeated calls do nothing. */
ls_status ls_ddp_listen(ls_ddp *d, ls_tape *t);

/* After every synced backward and its optimizer step, if there is one: all ranks get what each has updated. Without
 * zero_stage 1 there is nothing to do. A following ls_ddp_begin_forward insists on it. */
ls_status ls_ddp_after_step(ls_ddp *d);
/* All values of one parameter after another, wherever they are, for a checkpoint or a digest. Every rank asks for the
 * same ones, in the same order. They are valid until the next backward or ls_optim_step. With zero_stage 1 a
 * parameter that ops read in float gives LS_INVALID between a reduced backward and ls_ddp_after_step, because this rank
 * lacks the new values of the others. One with a copy in bf16 is gathered into the memory of its gradient: LS_INVALID,
 * and nothing is changed, while that gradient waits for ls_optim_step or ls_params_zero_grad. */
ls_values ls_ddp_values(ls_ddp *d);

int ls_ddp_most_stage(void); /* of ls_ddp_config.zero_stage */
/* The words that choose a strategy, "auto|ddp|fsdp": auto (the one that zero_stage means) and the library's by name. */
extern const char ls_dp_choices[];
/* So many backwards of a step with n micro-batches are reduced: the last one, or all of them. */
int ls_ddp_reductions(const ls_ddp *d, int n);
/* True if values from ls_ddp_values stay valid until the next backward or optimizer step; false: until the next
 * parameter is asked for. */
bool ls_ddp_values_stay(const ls_ddp *d);
/* True if a forward includes collectives (LS_ZERO_COPY_RANK): then every rank must run the same number of forwards. */
bool ls_ddp_forwards_meet(const ls_ddp *d);
/* Bytes of this rank, with their padding, that units use one after another: of gathered parameter values
 * (LS_ZERO_COPY_RANK), and of gradients that backward writes (zero_stage 2 and 3 where every backward is reduced). The
 * root's are among them. 0: a strategy without such memory. */
typedef struct ls_ddp_in_use {
    size_t values, gradients;
} ls_ddp_in_use;
ls_ddp_in_use ls_ddp_units_in_use(const ls_ddp *d);
/* Bytes of this rank's partial sums (ls_ddp_config.tree); 0 without. */
size_t ls_ddp_partial_sums(const ls_ddp *d);
/* In which order parameters lie in buckets, for people: "first iteration", then the strategy's words. */
const char *ls_ddp_bucket_order(const ls_ddp *d);
int ls_ddp_buckets(const ls_ddp *d);
ls_ddp_bucket_info ls_ddp_bucket(const ls_ddp *d, int index);
bool ls_ddp_rebuilt(const ls_ddp *d);

/* torch._compute_bucket_assignment_by_size: which tensors share a bucket.
 * nbytes[n] and key[n] (dtype and device; equal keys may share; NULL: one key);
 * limits[nlimits] in bytes. bucket[i] gets the bucket of tensor i (in the given
 * order); returns the number of buckets. `sorted`: buckets are numbered by their
 * smallest tensor, as torch does when no explicit order was given. */
int ls_bucket_assign(const size_t *nbytes, const int *key, int n, const size_t *limits, int nlimits,
                     bool sorted, int *bucket);

#ifdef __cplusplus
}
#endif
#endif
