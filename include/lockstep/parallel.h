/* parallel.h -- a plan applied to a model: who holds and does what of it on the ranks of a world.
 *
 *     const ls_plan plan = { .size = { 1, ls_world_size(w), 1, 1, 1 }, .micro_batch = 4, .micro_batches = 2 };
 *     ls_parallelize(w, &plan, &model_config, &opts, &here);
 *     ls_optim_create(&optim_config, &here.model->params, arena, &optim);
 *     for each step:
 *         ls_pipe_run(here.pipe, 2, &work, arg);   // forward of micro-batch i: ls_ddp_begin_forward, ls_model_loss
 *         ls_grad_norm_shared(ls_world_group(w), &here.model->params, &norm, NULL);
 *         ls_optim_step_scaled(optim, ls_clip_scale(norm, 1.0));
 *         ls_ddp_after_step(here.ddp);
 *
 * With several pipeline stages a rank has some of the model's units, and ls_pipe_run passes activations on: its actions
 * call ls_parallel_stage_forward and ls_parallel_stage_backward.
 */
#ifndef LS_PARALLEL_H
#define LS_PARALLEL_H
#include "lockstep/dp.h"
#include "lockstep/hook.h"
#include "lockstep/mesh.h"
#include "lockstep/model.h"
#include "lockstep/op.h"
#include "lockstep/pipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that decides which rank holds and does what, and nothing else. Zeros stand for defaults, except in `size`,
 * micro_batch and micro_batches. */
typedef struct ls_plan {
    int size[LS_AXES];       /* ranks along each axis of the mesh */
    int order[LS_AXES];      /* its axes, the slowest first (ls_mesh_order); zeros: pp, dp, ep, cp, tp */
    const char *dp;          /* a strategy by name: "ddp", "fsdp", or one of own_dp, with a ddp.zero_stage that it has;
                                NULL: chosen by ddp.zero_stage */
    const ls_dp_strategy *const *own_dp; /* borrowed, ends with NULL: strategies written against the sources, looked up
                                            before the library's; NULL: none */
    ls_ddp_config ddp;       /* buckets, what is sharded and how: a zero_stage up to ls_ddp_most_stage */
    const char *hook;        /* communication hook by name (ls_hook_named), of zero_stage 0; NULL: none */
    ls_powersgd_config powersgd; /* of hook "powersgd" */
    int hsdp;                /* hybrid sharding: number of sets of shards, each on consecutive ranks. 0, 1: one */
    const char *schedule;    /* of the pipeline, by name (pipe.h); NULL: "1f1b" */
    int chunks;              /* pieces of the model per rank of the pipeline; 0: the schedule's least */
    const double *split; /* [nsplit], borrowed: layers of each stage, of which there are pp by chunks, in multiples of
                            0.5 (ls_model_split); NULL: those with which the replayed step is shortest */
    int nsplit;
    int64_t tokens;          /* of a sequence, with which these stages are found; 0: as many as the model allows */
    int64_t micro_batch;     /* samples per forward, at most */
    int micro_batches;       /* forwards per rank and step, at most */
    const char *context;     /* of cp above 1: "ring", "gather", "ulysses" or "ulysses-ring" (place.h); NULL: ring */
    int exchange;            /* of "ulysses-ring": neighbours that exchange heads, a divisor of cp between 1 and cp; else 0 */
    bool in_turn;            /* of cp above 1: a rank's tokens follow each other, and ranks have unequal work */
    bool sequence_parallel;  /* of tp above 1: norms, dropout and residuals on parts of the sequence (place.h) */
    int tp_pieces;           /* of tp above 1, without sequence_parallel: all_reduces inside a layer in so many pieces
                                (ls_place.pieces), up to LS_TP_MOST_PIECES; 0: as many as are worth it */
    ls_recompute recompute;
    ls_dtype dtype;          /* of activations; LS_BF16 for language models only */
} ls_plan;

/* Whether a plan for this model can be applied to a world of so many ranks. LS_UNSUPPORTED: a value that is not
 * implemented, LS_BAD_CONFIG: one that is wrong (ls_mesh_check); both name it and say what is possible. */
ls_status ls_plan_check(const ls_plan *p, const ls_model_config *mc, int world_size);

/* Of ls_plan_check what does not depend on the model: the values that are not implemented. */
ls_status ls_plan_supported(const ls_plan *p, int world_size);

/* What a rank brings along beside its plan. Ranks may differ in it: all get the first values of rank 0. */
typedef struct ls_parallel_opts {
    ls_arena *own;       /* borrowed until ls_parallel_destroy: for values (ls_ddp_bind) and packed weights */
    size_t tape_bytes;   /* of the tape, or with pipeline stages of what tapes share (ls_tape_scratch_create); 0: tapes
                            are dry, and ls_tape_peak tells what a step takes */
    const size_t *chunk_bytes; /* with pipeline stages: of each tape of a chunk, [chunks] */
    int64_t most_rows;   /* with pipeline stages: samples per forward, at most, evaluations included; 0: micro_batch */
    size_t packed_bytes; /* of `own`, for packed weights (ls_tape_pack_memory); 0: weights are not packed */
    ls_status (*values)(void *arg, ls_model *m); /* writes initial values (ls_param_open); NULL: ls_model_init
                                                    draws them */
    void *arg;           /* of `values` */
} ls_parallel_opts;

/* A chunk of the model on this rank: consecutive units. Without pipeline stages there is one, the whole model. */
typedef struct ls_chunk {
    ls_params dense, sparse; /* views of the model's parameters: all but experts that ranks divide, and those */
    ls_ddp *ddp;             /* owned, as below: keeps replicas of `dense` in step; */
    ls_ddp *experts;         /* and of `sparse`; NULL: there are none */
} ls_chunk;

/* What is here, on this rank. */
typedef struct ls_parallel {
    ls_mesh mesh;    /* who is who */
    ls_group *shards, *copies; /* owned: hybrid sharding (ls_ddp_config.shards); NULL: none */
    ls_group *node, *column;   /* owned: one copy of the values per node (ls_ddp_config.node); NULL: none */
    ls_group *expert_shards, *expert_copies, *expert_node, *expert_column; /* owned: these four for the replicas of
                                                                              experts that ranks divide */
    ls_group *twins;           /* owned: ranks of tp with the same heads of keys (ls_param.tp_copies); NULL: none */
    ls_group *exchange, *ring; /* owned: of cp, with context "ulysses-ring" (ls_place); NULL: none */
    ls_model *model; /* owned, as all below: parameters bound, with their first values, the same on all replicas */
    ls_chunk *chunk; /* [nchunks] */
    int nchunks;
    ls_ddp *ddp;     /* borrowed: that of the first chunk, */
    ls_ddp *experts; /* and of its experts; NULL: it has none */
    ls_pipe *pipe;   /* the order of a step's micro-batches */
    int *first_unit; /* [stages + 1]: units of each stage of the pipeline; NULL: there is one */
    ls_tape **tape;  /* [ntapes]: one for each slot of the pipe */
    int ntapes;
    ls_tape_scratch *scratch; /* what tapes share; NULL: there is one */
    ls_device device; /* of the tapes: ranks that divide layers read each other's activations */
    struct ls_kept *kept; /* owned: puts values together of which ranks have parts; NULL: each replica has all */
    struct ls_unit_ledger *units; /* counts memory per unit, in the rows of ls_world_ledger: read them before the end */
} ls_parallel;

/* Every rank of the world calls it, with the same plan and model. It reads no file. It fails as ls_plan_check,
 * ls_model_create, ls_ddp_bind, ls_ddp_create and opts->values do (which a dry world, where values have no memory,
 * does not call); `out` is then for ls_parallel_destroy, too. Where one
 * rank fails, others may be waiting for it: it calls ls_world_abort before ls_parallel_destroy, as after any failure
 * that is not the same on all ranks. */
ls_status ls_parallelize(ls_world *w, const ls_plan *p, const ls_model_config *mc, const ls_parallel_opts *opts,
                         ls_parallel *out);
/* ls_ddp_begin_forward, ls_ddp_after_step and ls_ddp_listen of both wrappers. */
ls_status ls_parallel_begin_forward(const ls_parallel *p, ls_tape *t, bool sync);
ls_status ls_parallel_after_step(ls_parallel *p);
/* With pipeline stages, in place of begin_forward: right before a backward of `chunk` that computes gradients of
 * weights (ls_ddp_begin_backward). `last`: they are complete then. */
ls_status ls_parallel_begin_backward(ls_parallel *p, int chunk, ls_tape *t, bool last);
/* After the last weight halves of a chunk (ls_ddp_end_weights). */
ls_status ls_parallel_end_weights(ls_parallel *p, int chunk);
/* Whether there are several pipeline stages. */
static inline bool ls_parallel_staged(const ls_parallel *p) { return p->first_unit != NULL; }
/* --- what the actions of a pipe do (ls_pipe_work), with pipeline stages or without --------------------------------
 *
 *     forward(arg, a, data)    ls_parallel_stage_forward(&here, a, rows, tokens, x, labels, data, &alive[a->slot])
 *     backward(arg, a, data)   ls_parallel_stage_backward(&here, a, &alive[a->slot], &scale, data)
 *     edge(arg, edge, m, dt)   ls_parallel_edge(&here, edge, rows, tokens, dt)
 */

/* A micro-batch of a stage whose backward is to come. */
typedef struct ls_stage_pass {
    ls_tensor *in;     /* borrowed from its tape: what entered the stage; NULL: samples did */
    ls_tensor *out;    /* the same: what it gives, or the loss */
    ls_loss_sums sums; /* of the last stage */
} ls_stage_pass;

/* Whether the action's stage is the last one, which gives the loss. */
bool ls_parallel_has_loss(const ls_parallel *p, const ls_pipe_action *a);
/* Forward of `rows` samples of so many tokens on the action's tape, which is reset. The first stage reads x, the last
 * one the labels, which stay until the end of the backward; on a dry tape both may be NULL. Without pipeline stages
 * it includes ls_parallel_begin_forward. */
ls_status ls_parallel_stage_forward(const ls_parallel *p, const ls_pipe_action *a, int64_t rows, int64_t tokens,
                                    void *x, int64_t *labels, ls_pipe_data *data, ls_stage_pass *out);
/* A backward, or one half of it. `scale`: with what the backward of a loss begins, the same on all stages; not read in
 * a weight half. */
ls_status ls_parallel_stage_backward(ls_parallel *p, const ls_pipe_action *a, ls_stage_pass *s, const float *scale,
                                     ls_pipe_data *data);
/* Elements, and their type, that pass between stage `edge` and the stage before it. */
size_t ls_parallel_edge(const ls_parallel *p, int edge, int64_t rows, int64_t tokens, ls_dtype *dtype);

/* Every rank calls it after the last backward of a step, before the norm: with sequence parallelism each rank of tp has
 * the gradients of norms and biases for its part of the sequence, and where several have the same heads of keys each
 * has those of its queries. They are added up; so are, of first and last pipeline stage, those of a parameter that both
 * have. Else nothing happens. */
ls_status ls_parallel_sum_gradients(ls_parallel *p);
/* Where to find all values of each parameter: ls_ddp_values, or what ranks that divide layers put together. Every rank
 * asks for the same parameters. */
ls_values ls_parallel_values(const ls_parallel *p);
/* Whether ranks divide layers: parameters here are parts (ls_param.part). */
bool ls_parallel_divides(const ls_parallel *p);
/* Whether forwards include collectives: ranks that divide layers, or gather values (ls_ddp_forwards_meet), run the same
 * number of them. */
bool ls_parallel_forwards_meet(const ls_parallel *p);
/* Whether the tapes lie in the world's arena (ls_alloc). */
bool ls_parallel_shares_tapes(const ls_parallel *p);
/* Every rank calls it, before ls_world_leave; an optimizer of the parameters is destroyed before. Zeros are fine. */
void ls_parallel_destroy(ls_parallel *p);

#ifdef __cplusplus
}
#endif
#endif
