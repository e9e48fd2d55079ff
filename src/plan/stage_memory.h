/* stage_memory.h -- the memory of one rank of each pipeline stage, by owner.
 *
 * A stage's layers are whole: where the model has fewer than stages x chunks x layers per chunk, the first and the last
 * chunk have one layer less each (ls_run.embedding_layers). Chunk j of rank i holds block j p + i of the layers; with
 * schedules whose pipeline turns back (ZB-V, DualPipe) also its mirror image. Parameters of norms and routers are on
 * all ranks of tp, products are divided; experts are divided among ranks of ep.
 */
#ifndef LS_PLAN_STAGE_MEMORY_H
#define LS_PLAN_STAGE_MEMORY_H
#include "plan/cost.h"

/* Bytes of a rank; they sum to `total`. */
typedef struct ls_stage_memory {
    double weights, gradients, optimizer;
    double activations;  /* kept by the micro-batches in flight, and of the layer that is computed anew */
    double logits;       /* of one micro-batch, in 16 bits, and their softmax in 32; of GPipe, whose last stage has all
                          * micro-batches in flight, what each keeps of them */
    double gathered;     /* ZeRO stage 3: weights of two units, the gradient of one */
    double workspace;    /* of libraries: LS_WORKSPACE_BYTES */
    double reserved;     /* context of the device and buffers of communicators: LS_RESERVED_BYTES */
    double total;
    double in_flight;    /* micro-batches, in units of all layers of the rank */
    double dense, sparse; /* layers of the rank */
} ls_stage_memory;

/* cuBLAS and Transformer Engine on Hopper, as rows of Megatron-LM's integration runs have it (memory.c); BLOOM's
 * devices have 2 GB more in use than the allocator gave out. */
#define LS_WORKSPACE_BYTES 112e6
#define LS_RESERVED_BYTES  2e9

/* What all stages share: of a layer on a rank. */
typedef struct ls_layer_memory {
    double dense, sparse, expert; /* parameters: of a dense layer, of one with experts, of its experts */
    double ends, positions, norm; /* an embedding or output matrix; learned positions; the last norm */
    double kept_dense, kept_sparse, input; /* activations of a micro-batch: all of a layer, its input */
    double scores;                         /* more, where attention keeps them */
    double logits, slot; /* slot: in 32 bits, of a further micro-batch in flight in GPipe's last stage, which keeps at
                            most LS_LOGITS_BYTES (tensor/logits.h) of logits from forward until backward
                            (ls_tape_logits_in_forward). Longer ones, and those that ranks of tp share, are computed
                            in backward; the tape of each then has room for a block of LS_LOGITS_EVAL_ROWS rows, which
                            an evaluation needs */
} ls_layer_memory;

void ls_layer_memory_of(const ls_run *r, ls_layer_memory *out);
/* How many dense layers and layers with experts stage i of r->p has; whether it has embedding and logits. */
typedef struct ls_stage_shape {
    int64_t dense, sparse;
    bool first, last;
    double in_flight;
} ls_stage_shape;
void ls_stage_shape_of(const ls_run *r, int i, ls_stage_shape *out);
void ls_stage_memory_of(const ls_run *r, const ls_layer_memory *l, const ls_stage_shape *s, ls_stage_memory *out);
/* The fullest stage; *which (NULL is fine) is the first of them. */
double ls_fullest_stage(const ls_run *r, int *which);

#endif
