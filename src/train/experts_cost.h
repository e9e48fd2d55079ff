/* experts_cost.h -- what a layer of experts costs a rank, by formula, and what bounds it: computing or the network. */
#ifndef LS_TRAIN_EXPERTS_COST_H
#define LS_TRAIN_EXPERTS_COST_H
#include "base/text.h"
#include "coll/cost.h"
#include "lockstep/model.h"

/* Per rank, layer and step, forward and backward, when every expert gets equally many tokens. */
typedef struct ls_experts_cost {
    int64_t rows;  /* assignments of a token to an expert that the rank computes: its tokens times top_k */
    double flops;  /* of the experts' products: 3 products, each computed forward, for its weights and for its input */
    double memory; /* bytes of these products' operands and results, each once per product */
    double sent;   /* bytes that leave for other ranks, in four all_to_all_v and an all_to_all of counts; ep 1: 0 */
} ls_experts_cost;

/* What decides it. */
typedef struct ls_experts_layout {
    int64_t tokens;  /* of a rank in a step (cp divides sequences), in */
    int64_t micros;  /* so many micro-batches */
    int ep, tp;
    ls_dtype dtype;  /* of activations */
} ls_experts_layout;

/* Zeros for a model without experts. Bytes of counts aside, `sent` is 4 N k C numbers (ep - 1) / ep. */
void ls_experts_cost_of(const ls_lm_config *c, const ls_experts_layout *l, ls_experts_cost *out);

/* The link, in bytes per ns (GB/s) of a rank in one direction, on which sending takes as long as computing at
 * peak_gflops: a slower link bounds the layer, on a faster one computing does. 0: nothing is sent. */
double ls_experts_balance(const ls_experts_cost *k, double peak_gflops);

/* Two lines: operations, bytes and their ratios; and which bound it is, at peak_gflops (0: not known, and there is no
 * second line) on the link here and on a slow network, the preset's. */
void ls_experts_cost_words(const ls_experts_cost *k, double peak_gflops, const ls_cost *here, ls_level level,
                           ls_text *out);

#endif
