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

/* Three conventions are in use; published figures differ by up to a third between them. */
typedef enum ls_flops {
    LS_FLOPS_FULL,   /* the model's, attention as if not causal: Megatron, NeMo, PaLM's MFU */
    LS_FLOPS_CAUSAL, /* the model's, half of the scores: Megatron-Bridge, FlashAttention */
    LS_FLOPS_RECOMPUTED, /* LS_FLOPS_FULL and a second forward of all layers: PTD-P (Narayanan et al. 2021), HFU */
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

#ifdef __cplusplus
}
#endif
#endif
