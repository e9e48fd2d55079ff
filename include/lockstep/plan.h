/* plan.h -- what training a language model costs, in closed form: operations, memory, schedules and collectives.
 *
 * The letters are those of the papers: s sequence, b micro-batch in sequences, h hidden size, a heads, k key heads,
 * w head size, f feed-forward width, L layers, V vocabulary; t, p, c, e, d: ranks along tp, pp, cp, ep and dp; v chunks
 * per rank, m micro-batches per step and replica. Times are in seconds, memory in bytes, unless a name says otherwise.
 * Operations count a multiplication and an addition as 2.
 */
#ifndef LS_PLAN_H
#define LS_PLAN_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/sched.h"
#include "lockstep/status.h"
#include "lockstep/topo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- a model ------------------------------------------------------------------------------------------------- */

/* A decoder. Zeros have the meanings that are given here. */
typedef struct ls_llm {
    const char *name; /* borrowed */
    int64_t layers, hidden, heads, vocab, seq;
    int64_t kv_heads; /* 0: as many as heads */
    int64_t head_dim; /* 0: hidden / heads */
    int64_t ffn;      /* of dense layers; 0: 4 hidden */
    bool gated;       /* three matrices (SwiGLU) instead of two */
    bool biases;      /* of products and norms, as in GPT-2; false: norms are RMSNorm */
    bool positions;   /* learned, [seq, hidden] */
    bool tied;        /* the output matrix is the embedding */
    int64_t window;   /* of attention; 0: whole sequences */
    int64_t window_every; /* every so many-th layer sees whole sequences all the same; 0: none */
    /* Mixture of experts; 0 experts: none. */
    int64_t experts, topk, shared, expert_ffn, dense_layers;
    double load; /* tokens of the most loaded rank over their mean; 0: 1 */
    /* Multi-head latent attention (DeepSeek-V2); 0 for kv_rank: none. q_rank 0: queries are not compressed. */
    int64_t q_rank, kv_rank, nope_dim, rope_dim, v_dim;
    int64_t mtp; /* layers of multi-token prediction */
} ls_llm;

/* LS_BAD_CONFIG names a size that is out of range, or heads that key heads do not divide. */
ls_status ls_llm_check(const ls_llm *m);
/* "gpt3-175b", "llama3-8b", "deepseek-v3", ...; LS_BAD_CONFIG names the nearest. seq is what it was trained with. */
ls_status ls_llm_preset(const char *name, ls_llm *out);
/* The n-th preset's name; NULL after the last. */
const char *ls_llm_preset_name(int n);

/* Four conventions are in use; published figures differ by up to a third between them. */
typedef enum ls_flops {
    LS_FLOPS_FULL,   /* the model's, attention as if not causal: Megatron, NeMo, PaLM's MFU */
    LS_FLOPS_CAUSAL, /* the model's, half of the scores: Megatron-Bridge, FlashAttention */
    LS_FLOPS_RECOMPUTED, /* LS_FLOPS_FULL and a second forward of all layers: PTD-P (Narayanan et al. 2021), HFU */
    LS_FLOPS_SELECTIVE,  /* LS_FLOPS_FULL with all scores twice: hardware FLOPs of selective recomputation as
                          * Korthikanti et al. 2022 count them. One more forward of the scores is a third of that */
} ls_flops;

/* Operations of a training step per token: forward, and twice that backward. Multiplied by a step's tokens they are the
 * step's. */
double ls_llm_flops(const ls_llm *m, ls_flops convention);
/* Of one layer's forward per token: layer `dense` has a dense feed-forward part, else experts. */
double ls_llm_layer_flops(const ls_llm *m, bool dense, ls_flops convention);
/* Parameters, exact: all, or of one layer; and of those that a token meets (active). */
int64_t ls_llm_params(const ls_llm *m);
int64_t ls_llm_active_params(const ls_llm *m);
int64_t ls_llm_layer_params(const ls_llm *m, bool dense);
int64_t ls_llm_expert_params(const ls_llm *m); /* of one expert in one layer */

/* --- memory -------------------------------------------------------------------------------------------------- */

/* Bytes per parameter of weights, gradients and optimizer with 16-bit training (Rajbhandari et al. 2020): `grad` bytes
 * of gradient (2 or 4), `state` of the optimizer and f32 weights (12 for Adam), over d ranks. Stage 0 to 3. */
double ls_state_bytes(int zero_stage, double grad, double state, int64_t d);

typedef enum ls_recompute_kind {
    LS_KEEP_ALL,        /* scores included */
    LS_KEEP_SELECTIVE,  /* all but scores: selective recomputation, or FlashAttention without its statistics */
    LS_KEEP_INPUTS,     /* full recomputation */
} ls_recompute_kind;

/* Activations of one layer for a micro-batch of b sequences (Korthikanti et al. 2022), 16-bit, GPT with f = 4 h and two
 * dropouts. */
double ls_activation_bytes(const ls_llm *m, int64_t b, int64_t t, bool sequence_parallel, ls_recompute_kind kept);
/* The same of any layer without scores and dropout: grouped heads, gated or dense products, experts. */
double ls_layer_bytes(const ls_llm *m, int64_t tokens, int64_t t, bool dense);
/* The part of it that multi-head latent attention keeps between the norms: compressed queries, keys and values, what
 * they are projected up to, the output and its log-sum-exp. `again`: backward projects up again, so that of queries,
 * keys and values only the compressed ones stay. 0: the model has none. */
double ls_latent_bytes(const ls_llm *m, int64_t tokens, int64_t t, bool again);

/* A schedule in closed form. */
typedef enum ls_pipe_form {
    LS_PIPE_GPIPE, LS_PIPE_1F1B, LS_PIPE_INTERLEAVED, LS_PIPE_ZB_H1, LS_PIPE_ZB_H2, LS_PIPE_ZB_V, LS_PIPE_DUALPIPE,
} ls_pipe_form;

typedef struct ls_pipe_costs {
    double forward, input, weight; /* of a rank's layers for a micro-batch */
    double hop;                    /* a message to the next rank */
    int p, v;
    int64_t m;
} ls_pipe_costs;

/* Seconds from the first action to the last, equal stages; of 1F1B exact where p divides m. ZB-V and DualPipe without
 * hops. */
double ls_pipe_seconds(ls_pipe_form f, const ls_pipe_costs *c);
/* (seconds - m (forward + input + weight)) / seconds. */
double ls_pipe_bubble_rate(ls_pipe_form f, const ls_pipe_costs *c);
/* Micro-batches whose activations rank i of p has at most, in units of all its layers. */
double ls_pipe_in_flight(ls_pipe_form f, int p, int v, int64_t m, int i);

/* Between which seconds a step of 1F1B is, whose p stages take forward[i] and backward[i] for a micro-batch, without
 * hops. `most` is what Alpa (Zheng et al. 2022) minimises: all stages once, and the slowest one m - 1 times more.
 * `least`: a stage computes m micro-batches after one has come down to it and before one has gone up again. */
void ls_pipe_1f1b_bounds(const double *forward, const double *backward, int p, int64_t m, double *least, double *most);

/* A step of DualPipe's first rank as DeepSeek-V3's report splits it: forwards, backwards and weight gradients that are
 * computed alone, forwards together with a backward of the other direction, and the rest. The parts sum to
 * ls_pipe_seconds where a pair takes as long as its halves. */
typedef struct ls_pipe_split {
    double forward, bubble, backward, weight, pairs;
} ls_pipe_split;
/* pair: seconds of a forward and a backward that are computed together. p is even, m at least 2 p. */
void ls_pipe_split_of(const ls_pipe_costs *c, double pair, ls_pipe_split *out);

/* A step in seconds; the parts sum to `total`. */
typedef struct ls_step_cost {
    double compute;           /* products, attention and elementwise work of all micro-batches on the slowest stage */
    double recompute;
    double tensor, exchange;  /* collectives of tp and cp, and of ep, within layers */
    double bubble, hops, data, update, overhead;
    double total;
    /* Of one micro-batch on a stage, not of the sum: its layers with their collectives; a message to the next stage. */
    double forward, input, weight, again, hop;
    double stage_layers;
} ls_step_cost;

/* --- collectives --------------------------------------------------------------------------------------------- */

/* The algorithms whose time has a closed form. */
typedef enum ls_coll_form {
    LS_COLL_RING, LS_COLL_HALVING, LS_COLL_DOUBLING, LS_COLL_BRUCK, LS_COLL_TREE, LS_COLL_SWITCH, LS_COLL_PAIRWISE,
    LS_COLL_CHAIN,
} ls_coll_form;

/* Seconds over n ranks whose buffers have S bytes (all_gather: of the result), alpha seconds per message, beta bytes
 * per second. NaN: the form has no such collective. The tree and the chain have the best number of chunks. */
double ls_coll_seconds(ls_coll_form f, ls_coll what, int64_t n, double S, double alpha, double beta);
/* An all_reduce inside nodes of g ranks, among k nodes, and inside again, without latency; or a flat ring. beta2: per
 * rank, outside. */
double ls_coll_two_level_seconds(int64_t g, int64_t k, double S, double beta1, double beta2);
/* Bus bandwidth over algorithm bandwidth: 2 (n - 1) / n of an all_reduce. */
double ls_coll_bus_factor(ls_coll what, int64_t n);
/* Distinct nodes, of N, that a token's K experts of E are expected on. */
double ls_expected_nodes(int64_t N, int64_t E, int64_t K);

/* --- NCCL ---------------------------------------------------------------------------------------------------- */

typedef enum ls_nccl_arch { LS_NCCL_VOLTA, LS_NCCL_AMPERE, LS_NCCL_HOPPER, LS_NCCL_BLACKWELL } ls_nccl_arch;
typedef enum ls_nccl_algo { LS_NCCL_TREE, LS_NCCL_RING, LS_NCCL_NVLS, LS_NCCL_ALGOS } ls_nccl_algo;
typedef enum ls_nccl_proto { LS_NCCL_LL, LS_NCCL_LL128, LS_NCCL_SIMPLE, LS_NCCL_PROTOS } ls_nccl_proto;

/* A job as NCCL's tuner sees it. Bandwidths are of one direction, of a rank inside and of a node outside. */
typedef struct ls_nccl {
    ls_nccl_arch arch;
    int64_t ranks, nodes;
    int channels;
    double intra_gb_per_s, inter_gb_per_s; /* of all channels */
    bool nvls;
} ls_nccl;

/* An all_reduce's time with one algorithm and protocol; infinite where there is none. Constants of NCCL 2.30's
 * tuning. */
double ls_nccl_seconds(const ls_nccl *j, ls_nccl_algo a, ls_nccl_proto p, double bytes);
/* The least, as NCCL picks. */
double ls_nccl_pick(const ls_nccl *j, double bytes, ls_nccl_algo *a, ls_nccl_proto *p);

/* --- the best layout ----------------------------------------------------------------------------------------- */

/* How a step is divided: world = t p c d, and e divides d. */
typedef struct ls_layout {
    int64_t t, p, c, e, d;
    int64_t v, micro;
    int zero;
    ls_recompute_kind kept;
    ls_pipe_form form;
    int fewer; /* 2: the first and the last chunk have one layer less each than the others, for embedding and loss; 0 */
    /* Ranks of each axis that share a node; in[d]: of d / e, in[e]: of e. Their product is what a node has. */
    int64_t t_in, p_in, c_in, e_in, d_in;
} ls_layout;

/* What a cluster is made of; 1.1 has 10 % more of it. */
typedef enum ls_resource {
    LS_RES_FLOPS, LS_RES_MEMORY_RATE, LS_RES_LINKS, LS_RES_ADAPTERS, LS_RES_LATENCY, LS_RES_LAUNCH, LS_RES_COUNT
} ls_resource;

typedef enum ls_objective { LS_LEAST_TIME, LS_LEAST_MEMORY } ls_objective;

/* Why a layout is none. */
typedef enum ls_refusal {
    LS_REFUSE_NONE, LS_REFUSE_HEADS, LS_REFUSE_KV_HEADS, LS_REFUSE_WIDTH, LS_REFUSE_EXPERTS, LS_REFUSE_SEQUENCE,
    LS_REFUSE_ROWS, LS_REFUSE_LAYERS, LS_REFUSE_BATCH, LS_REFUSE_NODE, LS_REFUSE_MICRO, LS_REFUSE_ZERO,
    LS_REFUSE_WORLD, LS_REFUSE_COUNT
} ls_refusal;
/* "tp does not divide the heads" */
const char *ls_refusal_text(ls_refusal r);

typedef struct ls_layout_query {
    ls_llm model;
    const ls_topo *topo;  /* borrowed */
    int64_t world, batch; /* ranks; sequences per step */
    double memory;        /* bytes of a device; 0: the topology's */
    int bits;             /* of products: 16, 8, 4; 0: 16 */
    ls_objective objective;
    int top;              /* plans to return, with different degrees: 1 to LS_LAYOUT_TOP */
    unsigned schedules;   /* bit f: ls_pipe_form f; 0: those whose closed form has messages */
    unsigned zeros, kept; /* bit z: ZeRO stage z; bit k: ls_recompute_kind k; 0: all */
    ls_layout fixed;      /* t, p, c, e, d, micro: only these; 0: all */
    bool exhaustive;      /* evaluate every layout: nothing is left out by a bound */
    double scale[LS_RES_COUNT]; /* 0: 1 */
} ls_layout_query;

#define LS_LAYOUT_TOP 64

typedef struct ls_layout_cost {
    ls_layout layout;
    ls_step_cost cost;
    double bytes; /* of the fullest stage's rank */
} ls_layout_cost;

/* What was looked at. degrees: factorisations of the world; legal = evaluated + too_large + bounded. */
typedef struct ls_layouts {
    ls_layout_cost best[LS_LAYOUT_TOP]; /* the best first */
    int n;
    int64_t degrees, legal_degrees, refused[LS_REFUSE_COUNT]; /* of degrees; NODE, MICRO, ZERO: of layouts */
    int64_t legal, evaluated, too_large, bounded;             /* layouts */
} ls_layouts;

/* Every legal layout of the world. Layouts that a lower bound of their time (or memory) shows to be no better than
 * those found are left out, so the best are the same as with `exhaustive`, bit by bit, whatever the number of threads
 * (ls_team_run). n = 0: none fits; ask again with the objective LS_LEAST_MEMORY and memory INFINITY for the nearest.
 * LS_BAD_CONFIG: the model is wrong, the world does not fit the topology or its device has no constants; no degrees
 * are legal. */
ls_status ls_layout_search(const ls_layout_query *q, ls_layouts *out);
/* One layout. LS_BAD_CONFIG: `why` (NULL is fine) it is none. Too large is no error. */
ls_status ls_layout_evaluate(const ls_layout_query *q, const ls_layout *l, ls_layout_cost *out, ls_refusal *why);
/* How a published run of this device and software would differ: 5th and 95th percentile of measured over predicted. */
void ls_layout_interval(const ls_layout_query *q, double *low, double *high);
/* Part of the devices' peak (16 bits) that a step of so many seconds has. */
double ls_layout_mfu(const ls_layout_query *q, double seconds, ls_flops convention);

#ifdef __cplusplus
}
#endif
#endif
