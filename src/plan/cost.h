/* cost.h -- the time of a training step in closed form, from data sheets and a few fitted constants.
 *
 * A constant has a physical meaning, a value from first principles to which a fit is drawn, and how far a fit may
 * move it (the standard deviation of its logarithm). There is a set per device and software: Megatron-LM of 2021
 * computes attention in several kernels, FSDP gathers weights, and neither is a matter of the device alone.
 */
#ifndef LS_PLAN_COST_H
#define LS_PLAN_COST_H
#include "lockstep/plan.h"
#include "plan/coll_cost.h"

typedef struct ls_device_sheet {
    const char *name;      /* as it begins in a row: "A100-80GB" */
    double peak16, peak8, peak4, bytes_per_s; /* of the data sheet */
    double sustained;      /* clocks under load relative to others of its kind, by their power limits */
    int sms;
    /* Of the clusters whose runs gave the constants (DGX-2, DGX A100, DGX H100, DGX B200; their data sheets): bytes per
     * second of a device's links within a node, and of the adapters of a node (16 devices of a DGX-2, else 8). */
    double links, adapters;
} ls_device_sheet;

/* By the longest name that `gpu` begins with; NULL: there is none. */
const ls_device_sheet *ls_device_sheet_find(const char *gpu);

/* name, prior, standard deviation of its logarithm, meaning */
#define LS_CONSTANTS(X)                                                                                      \
    X(GEMM, .80, .15, "part of the peak that large products reach")                                          \
    X(DEPTH, 150, .8, "depth K at which a product reaches half of that")                                     \
    X(WAVE, .5, .6, "exponent of the part of tiles and waves that is filled")                                \
    X(LOW, .75, .3, "exponent of the gain of products in 8 or 4 bits")                                       \
    X(BLOCKS, .8, .2, "part of that exponent where 32 values of a product share a scale")                    \
    X(ATTENTION, .45, .5, "part of the peak of products in attention, heads of 128")                         \
    X(SCORES, 8, .5, "times that scores pass through memory, attention in several kernels")                  \
    X(ODD, 1.3, .4, "slower where the head size is no multiple of 8, or its kernels do not fuse")            \
    X(ELEMENTWISE, 1, .5, "traffic of norms, activations and residuals, relative to counted bytes")          \
    X(LAUNCH, 400, .8, "microseconds that a processor needs to launch a layer's forward")                    \
    X(JITTER, .2, 1., "longer to launch where ranks of tp are on both sockets of a node")                    \
    X(ODD_LAUNCH, 1.2, .3, "the same where kernels of attention do not fuse")                                \
    X(BACKWARD, 1, .15, "backward products, relative to twice forward")                                      \
    X(MICRO, 1, 1., "milliseconds per micro-batch and direction on each stage")                              \
    X(STEP, 5, 3., "milliseconds per step")                                                                  \
    X(TP_RATE, 1, .6, "speed of collectives in a node: 1 is NCCL alone, and 150 GB/s for rings of dp and cp") \
    X(TP_LATENCY, 20, .8, "microseconds per collective of tp, on top of NCCL's; an eighth per step of dp's rings") \
    X(SKEW, 20, .8, "microseconds that a collective of tp takes longer per doubling of the ranks")           \
    X(HOP_RATE, 15, .8, "GB/s between stages")                                                               \
    X(HOP_LATENCY, 30, 1., "microseconds between stages")                                                    \
    X(NODE_RATE, 80, .6, "GB/s that leave a node")                                                           \
    X(NET_LATENCY, 20, 1., "microseconds per step of a ring over nodes")                                     \
    X(HIDDEN, .5, .6, "part of the traffic of dp that may overlap")                                          \
    X(UPDATE, 1, .6, "traffic of the optimizer, relative to 36 bytes per parameter")                         \
    X(EAGER, 1.8, .4, "more traffic of elementwise work that no compiler fuses")                             \
    X(LOSS, 6, .6, "times that logits of 4 bytes pass through memory")                                       \
    X(EXCHANGE, 60, .8, "GB/s per rank of an exchange between experts")                                      \
    X(ROUTE, 4, .8, "times that routed tokens pass through memory")                                          \
    X(GAP, 50, 1., "microseconds that a device idles between the kernels of a layer's forward")                           \
    X(UNFUSED, 2, .7, "times that traffic of layers with experts, before releases of June 2026")            \
    X(CALL, 40, .8, "microseconds that a processor needs to launch a collective of tp")                     \
    X(UNALIGNED, 1.5, .5, "times that the logits take longer if no multiple of 8 is their number")

typedef enum ls_constant {
#define X(name, prior, sd, meaning) LS_K_##name,
    LS_CONSTANTS(X)
#undef X
    LS_K_COUNT
} ls_constant;

/* Which groups leave their node, and what they share of its adapters. */
typedef struct ls_spans {
    bool tensor_out, context_out, data_out, hop_out; /* some ranks of a group of tp, cp, dp x cp are in other nodes; pp:
                                                      * no two stages share a node */
    double tensor_rings, context_rings, data_rings;  /* groups that leave each node */
    double experts_in;                               /* ranks of a group of ep in one node */
    /* Of the rate that a node's adapters have: what the slowest link reaches that a group crosses. */
    double tensor_net, context_net, data_net, exchange_net, hop_net;
    double hop_in;                                   /* rate between stages in a node over that between nodes */
} ls_spans;

typedef struct ls_run {
    ls_llm m;
    const ls_device_sheet *device;
    int64_t per_node, n, t, p, v, c, e, d, micro, batch;
    int64_t node_devices;     /* of a whole node, of which per_node have ranks; 0: per_node */
    int zero;
    double bits;              /* of products: 16, 8, 4 */
    double grad_bytes;        /* that dp reduces, per parameter */
    bool flash;               /* attention in one kernel */
    bool whole_sums;          /* ZeRO sums whole gradients on all ranks of dp, then gathers updated weights */
    bool sequence_parallel;
    /* of PyTorch: not compiled; compiled; tp's traffic overlaps products; a scale per row in 8 bits */
    bool eager, compiled, async_tensor, row_scaled;
    bool blocks;              /* 32 values share a scale (MXFP8), or 128, not all of a tensor */
    bool gathers_narrow;      /* tp gathers inputs of products in the bits of the products, not in 16 */
    bool unbalanced;          /* cp divides sequences into contiguous parts: causal work is not equal */
    bool per_op;              /* selective recomputation keeps attention and every second product */
    bool clamped;             /* experts with biases and a clamped gate (GPT-OSS), whose kernels do not fuse */
    bool latent_again;        /* backward recomputes queries, keys and values from their latent vectors (DeepSeek-V3) */
    bool paired;              /* exchanges between experts overlap another micro-batch (DeepSeek's DualPipe) */
    bool late_sums;           /* dp sums gradients after the last backward */
    bool waits_per_chunk;     /* interleaved: a stage waits for the messages of each chunk */
    bool one_end;             /* all stages end a step together: the optimizer needs a sum over them */
    double slowdown;          /* a step is longer by this part, for a reason that the source states */
    bool unaligned;           /* the vocabulary is no multiple of 8, and is not padded */
    bool unfused;             /* of Megatron-LM: experts before releases of June 2026, which fuse more kernels */
    ls_recompute_kind kept;
    ls_pipe_form form;
    double embedding_layers;  /* stages have so many layers fewer, for the embedding and the loss */
    const double (*coll)[LS_C_COUNT]; /* constants of collectives by class; NULL: ls_coll_constants */
    bool placed;              /* `at` is set; else ranks are in the order tp cp dp pp, the fastest first */
    ls_spans at;
} ls_run;

/* What every layout with the same t, c, e, micro-batch and place of these groups shares: seconds of a layer for a
 * micro-batch, averaged over kinds of layers, and sizes of the model. */
typedef struct ls_layer_cost {
    double fwd, bwd;         /* without collectives */
    double again;            /* what a recomputed forward adds to backward */
    double products, attention;
    double tensor, exchange; /* of forward */
    double head;             /* logits and loss, forward and backward */
    double layers, sparse;   /* of the model, with those of multi-token prediction; with experts */
    double shared, expert;   /* parameters of all layers per rank of tp and ep, without ends */
    double ends;             /* of an embedding or output matrix, likewise */
} ls_layer_cost;

/* What does not depend on the place of the groups, either: products, attention and traffic of dense layers and of those
 * with experts. */
typedef struct ls_layer_work {
    struct ls_layer_part { double products, attention, traffic, again; } dense, sparse; /* again: of backward */
    bool odd;             /* kernels of attention do not fuse */
    ls_layer_cost cost;   /* head, and what comes after it */
} ls_layer_work;

/* k: constants by ls_constant. The second and the last together are the first; the third and the fourth the second. */
void ls_step_cost_of(const ls_run *r, const double *k, ls_step_cost *out);
void ls_layer_cost_of(const ls_run *r, const double *k, ls_layer_cost *out);
void ls_layer_work_of(const ls_run *r, const double *k, ls_layer_work *out);
void ls_layer_cost_with(const ls_run *r, const double *k, const ls_layer_work *w, ls_layer_cost *out);
void ls_step_cost_from(const ls_run *r, const double *k, const ls_layer_cost *l, ls_step_cost *out);
/* A step is at least this long, whatever the schedule, recomputation, dp's place and ZeRO stage: the products of all
 * micro-batches, and what is fixed. */
double ls_step_cost_bound(const ls_run *r, const double *k, const ls_layer_cost *l);

#endif
