/* moe.h -- a mixture of experts: which expert computes which token, and what it takes to bring the tokens there.
 *
 * A router gives each token a probability per expert and sends it to the k most probable ones (Shazeer et al. 2017):
 *
 *   logits = x router^T          [B, T, E]
 *   w      = ls_route(logits)    [B, T, k], and the routing: which experts, and at which place of the rows
 *   rows   = ls_dispatch(x)      [R, C]     the tokens, expert by expert
 *   h      = ls_experts(rows)    [R, F]     each expert's rows times its own matrix
 *   ...
 *   y      = ls_combine(h, w)    [B, T, C]  sum over the k chosen experts of w times the expert's result
 *
 * With expert parallelism E experts are divided among the ranks of `ep`, rank e / (E / ep) has expert e, and rows
 * travel there and back: dispatch is an exchange of counts and an all_to_all_v, combine another all_to_all_v. In
 * backward each is one more, in the other direction.
 */
#ifndef LS_MOE_H
#define LS_MOE_H
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MOE_EXPERTS 1024 /* at most */
#define LS_MOE_TOP_K   32

/* What was routed, summed over calls: of one layer on one rank. */
typedef struct ls_moe_stats {
    double *chosen;  /* borrowed, [E]: assignments of a token to an expert */
    double *dropped; /* borrowed, [E]: of them those that found no place (capacity) */
    double *sums;    /* borrowed, [LS_MOE_SUMS] */
} ls_moe_stats;
/* Of ls_moe_stats.sums: both losses, before their coefficients, are means over so many calls. */
enum { LS_MOE_AUX, LS_MOE_Z, LS_MOE_CALLS, LS_MOE_SUMS };

/* How tokens are routed. Zeros: probabilities as they are, no capacity, no further losses. */
typedef struct ls_moe_rule {
    int64_t top_k;       /* 1 to the number of experts, at most LS_MOE_TOP_K */
    bool renormalize;    /* the weights of the chosen experts add up to 1, which is a softmax over their logits */
    double capacity;     /* factor: each expert takes at most ceil(T k / E * capacity) tokens of a sequence. 0: all */
    bool by_probability; /* beyond that the least probable are dropped; else those that come last in the sequence */
    double aux;      /* coefficient of the balancing loss: mean over sequences of E sum_i f_i P_i, f_i the part of the
                      * T k assignments that went to expert i, P_i its mean probability (Fedus et al. 2022) */
    double z;        /* coefficient of the mean of (log sum_i e^logit_i)^2 (Zoph et al. 2022) */
    ls_tensor *bias; /* [E], f32: added to the probabilities where experts are chosen, and nowhere else (Wang et al.
                      * 2024), so that its gradient is zeros; NULL: none */
    int64_t forced;  /* an experiment, 1 + e: every token goes to the experts e, e + 1, .., e + k - 1 (after the last
                      * the first), whatever its probabilities are, which stay its weights; 0: it does not */
    const float *loads; /* an experiment, borrowed, [E]: the part of the tokens that goes to each expert, whatever their
                         * probabilities are, which stay its weights; from 0 to 1, top_k in total; without effect if
                         * tokens are `forced`. A token's choices are in the order of the experts. NULL: none */
    bool alike; /* in a mirror: each other rank sends as many rows for the experts here as this rank has for them. Else
                 * as many as this rank sends to that one */
    /* Context parallelism: the T tokens here are some of each sequence, and ranks of `cp` have the others. A capacity
     * and the balancing loss are of whole sequences, so the ranks tell each other what was chosen: an all_gather of 8
     * bytes per choice. Losses are then this rank's part of the mean over all tokens, as the model's loss is. */
    struct ls_group *cp;     /* borrowed; with `tokens` */
    int ncp;                 /* ranks of cp */
    const ls_places *tokens; /* borrowed until the tape is reset: [ncp], of each rank; NULL: sequences are whole here */
    ls_moe_stats *stats; /* borrowed: a forward that has a gradient is counted here, once; NULL: it is not */
} ls_moe_rule;

/* The rows of one expert of this rank that came from one rank. */
typedef struct ls_moe_piece {
    int64_t expert, first, count; /* the expert among those that are here; rows [first, first + count) */
} ls_moe_piece;

/* Where each token goes. It lies on the tape; a dry tape has sizes only. */
typedef struct ls_routing {
    int64_t B, T, E, k;
    int32_t *choice;  /* [B T, k] the expert, the most probable first; of equal ones the lower */
    int32_t *place;   /* [B T, k] the row among those that are sent; -1: dropped */
    int64_t *count;   /* [E] rows for each expert, after drops; they are sent in this order, and by token */
    int64_t capacity; /* of an expert per sequence; T where there is none */
    bool alike;       /* ls_moe_rule.alike */
    int64_t sent;     /* rows that leave here */
    /* set by ls_dispatch: */
    struct ls_group *ranks; /* borrowed: those that divide the experts, */
    int ep;                 /* so many; 1: all experts are here */
    int64_t here;           /* experts of this rank: E / ep */
    int64_t *theirs;        /* [E] rows that come from each rank for each expert here */
    int64_t rows, most;  /* rows that arrive: rank by rank, and expert by expert of each; at most so many if all ranks
                          * have  as many tokens, which is what a dry tape counts with */
    ls_moe_piece *piece; /* [npieces], in the order of the rows */
    int npieces;
    size_t *out_rows, *in_rows; /* [ep] to and from each rank */
} ls_routing;

/* logits [B, T, E] -> weights [B, T, k] in float, and *out. Probabilities are a softmax over all experts in float. The
 * gradients of both losses come to the logits with the gradient of the model's loss (ls_backward_from's first number).
 */
ls_tensor *ls_route(ls_tape *t, ls_tensor *logits, const ls_moe_rule *rule, ls_routing **out);
/* Each row times the matrix of its expert. w has those of this rank one below another: with `transposed` [here I, O]
 * and y = x w_e, else [here O, I] and y = x w_e^T. x [R, I] -> [R, O]. An expert without rows costs nothing, and its
 * gradient is zeros. */
ls_tensor *ls_experts(ls_tape *t, ls_tensor *x, ls_tensor *w, const ls_routing *r, bool transposed);
/* x[.., C] times the sigmoid of g[.., 1], row by row. */
ls_tensor *ls_gate_rows(ls_tape *t, ls_tensor *x, ls_tensor *g);

/* Rows that may arrive at a rank in the worst case: what a dry tape counts with. */
int64_t ls_moe_most_rows(int64_t B, int64_t T, int64_t E, int64_t k, int64_t capacity, int ep);
/* ceil(T k / E * factor), at least 1 and at most T; T for factor 0. */
int64_t ls_moe_capacity(int64_t T, int64_t k, int64_t E, double factor);

#ifdef __cplusplus
}
#endif
#endif
