/* place.h -- which part of each layer a rank computes, and the collectives that this takes.
 *
 * Tensor parallelism (Shoeybi et al. 2019) divides the two products of a layer's half: the first by columns, so that
 * each rank has some of the heads, or of the width inside the mlp, and the second by rows, so that the ranks' results
 * add up:
 *
 *                 enter                                  leave
 *   x [B, T, C] --------> x w1^T [B, T, F / tp] -> w2 --------> the sum over the ranks [B, T, C]
 *
 *                 forward                       backward
 *   enter         nothing                       all_reduce of dx
 *   leave         all_reduce of y               nothing
 *
 * An all_reduce can be divided in pieces (`pieces`; Wang et al. 2023). Forward, the rows of the second product are
 * computed piece by piece, and the sum of a piece travels while the next one is computed. Backward, so do the rows of
 * dx of the product that makes the last contribution, and then the gradient of its weight is computed. Only products
 * that ls_linear computes are divided: of the experts of a layer, the embedding and the head the collectives block.
 *
 * With sequence parallelism (Korthikanti et al. 2022) what lies between two such halves, norms, dropout and the
 * residual stream, is divided along the sequence: a rank has [B, T / tp, C]. In a block what is gathered does not stay
 * until backward, nor does the product whose sum is scattered:
 *
 *   enter         all_gather of x               all_gather of x, again; reduce_scatter of dx
 *   leave         reduce_scatter of y           all_gather of dy
 */
#ifndef LS_PLACE_H
#define LS_PLACE_H
#include "lockstep/group.h"
#include "lockstep/moe.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's place along one axis. Zeros: there is one rank. */
typedef struct ls_along {
    ls_group *ranks; /* borrowed; NULL: nothing is called, as on a dry tape that looks at shapes alone */
    int size, rank;
} ls_along;

/* How queries meet keys and values that other ranks have. */
typedef enum ls_cp_mode {
    LS_CP_RING,    /* they go round in a ring, a rank's at a time (Liu et al. 2023) */
    LS_CP_GATHER,  /* every rank gathers all of them */
    LS_CP_ULYSSES, /* ranks exchange tokens for heads: each has all tokens of some heads (Jacobs et al. 2023) */
    LS_CP_ULYSSES_RING, /* `exchange` neighbours exchange tokens for heads, whose keys then go round in a ring of cp /
                           `exchange` ranks (Fang and Zhao 2024; Megatron's "a2a+p2p") */
} ls_cp_mode;
/* "ring", "gather", "ulysses", "ulysses-ring"; LS_BAD_CONFIG otherwise. */
ls_status ls_cp_mode_find(const char *name, ls_cp_mode *out);

#define LS_MOST_LAYERS 1024 /* of a language model */

/* Where in a model a rank is. Zeros: its layers are whole. */
typedef struct ls_place {
    ls_along tp;            /* ranks that divide every layer */
    bool sequence_parallel; /* of tp: activations between the halves of a layer are divided along the sequence */
    int pieces; /* of tp: rows of a product in so many pieces, whose collectives travel while the next piece is
                   computed; 1: none travels then; 0: as many as `link` makes worth it (ls_tp_pieces) */
    struct {
        double message_ns, byte_ns;
    } link; /* of tp, with pieces 0: what a message takes, and a byte, while ranks can compute. Zeros: they cannot */
    ls_along cp;            /* ranks that divide every sequence */
    ls_cp_mode context;     /* of cp: how queries meet the keys of other ranks */
    ls_along exchange, ring; /* of LS_CP_ULYSSES_RING: rank r of cp is rank r % exchange.size of its neighbours, and
                                rank r / exchange.size of its ring; exchange.size x ring.size = cp.size */
    bool in_turn; /* of cp: rank r has tokens [r T / cp, (r + 1) T / cp), and not the r-th piece from both ends */
    ls_along ep;            /* ranks that divide the experts of a layer, and have different samples (moe.h) */
    uint64_t halved[LS_MOST_LAYERS / 64]; /* a bit per layer: its attention and its mlp are units of their own, because
                                             a stage of the pipeline ends between them */
} ls_place;

/* Whether attention and mlp of a layer are units of their own, and that they are to be. */
static inline bool ls_layer_is_halved(const ls_place *p, int layer) { return p->halved[layer / 64] >> layer % 64 & 1; }
static inline void ls_halve_layer(ls_place *p, int layer) { p->halved[layer / 64] |= (uint64_t)1 << layer % 64; }

static inline bool ls_divides(const ls_along *a) { return a->size > 1; }
/* The same place, without groups to call. */
static inline ls_place ls_place_alone(const ls_place *p)
{
    ls_place alone = *p;
    alone.tp.ranks = alone.cp.ranks = alone.ep.ranks = alone.exchange.ranks = alone.ring.ranks = NULL;
    return alone;
}
/* This rank's part of n, in as many equal parts as there are ranks. */
static inline int64_t ls_part_of(const ls_along *a, int64_t n) { return ls_divides(a) ? n / a->size : n; }
/* Where n are fewer than the ranks, which they divide, each is on so many neighbours (heads of keys that several ranks'
 * queries share, as Megatron-LM has them); else 1. */
static inline int ls_part_copies(const ls_along *a, int64_t n) { return n > 0 && n < a->size ? a->size / (int)n : 1; }

/* x [B, T, C] for products that are divided by columns: with sequence parallelism of x [B, T / tp, C]. Without tp, x.
 */
ls_tensor *ls_tp_enter(ls_tape *t, ls_tensor *x, const ls_place *p);
/* The sum over the ranks of x [B, T, C], the result of products that are divided by rows. With sequence parallelism
 * this rank's [B, T / tp, C] of it; LS_SHAPE if tp does not divide T. Without tp, x. */
ls_tensor *ls_tp_leave(ls_tape *t, ls_tensor *x, const ls_place *p);
/* In how many pieces a product of so many rows goes, whose result has nbytes: 1 without tp. */
#define LS_TP_MOST_PIECES 16
int ls_tp_pieces(const ls_place *p, int64_t rows, size_t nbytes);
/* x w^T + b by rows: w [O, I / tp], x [.., I / tp], b [O] or NULL, then ls_tp_leave; b is added once. */
ls_tensor *ls_tp_rows(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, const ls_place *p);
/* x, of which every rank has all, and computes all that follows from it: each rank of tp finds the whole gradient. With
 * sequence parallelism, where gradients of what ranks have in common are added up, each passes on 1 / tp of it. */
ls_tensor *ls_tp_same(ls_tape *t, ls_tensor *x, const ls_place *p);
/* x, of which every rank has all, on the way into a sum over the ranks of tp: its gradient is added up. */
ls_tensor *ls_tp_sum_gradient(ls_tape *t, ls_tensor *x, const ls_place *p);
/* --- context parallelism -----------------------------------------------------------------------------------
 *
 * A sequence of T tokens is cut into 2 cp pieces, and rank r has pieces r and 2 cp - 1 - r: with a causal mask all
 * ranks have the same work then (Brandon et al. 2023's striped, Megatron's zig-zag order). */

/* Which tokens of a sequence of T are here; LS_SHAPE unless they can be divided: T is a multiple of 2 cp (in_turn: cp).
 */
ls_status ls_cp_tokens(const ls_place *p, int64_t T, ls_places *out);
/* Those of each rank of cp, of which T is a multiple as above; memory of the tape. NULL without cp. */
const ls_places *ls_cp_all_tokens(ls_tape *t, const ls_place *p, int64_t T);
/* Causal attention that a rank of cp computes of a sequence of T tokens, which can be divided. */
typedef struct ls_cp_work {
    double share;        /* of all pairs of a query and a key that it sees, over all heads: 1 / cp on the average. Where
                            tokens are in_turn, rank r has about (2 r + 1) / cp^2 */
    int blocks, skipped; /* pairs of a run of its queries and a run of a rank's keys, and those of them of which no
                            query sees a key, so that nothing is computed; 0 where all tokens meet (ulysses) */
} ls_cp_work;
void ls_cp_work_of(const ls_place *p, int rank, int64_t T, ls_cp_work *out);
/* Of x [B, T] (ids, labels), the columns that are here: [B, T / cp]. Without cp, x. */
ls_tensor *ls_cp_pick(ls_tape *t, ls_tensor *x, const ls_place *p);
/* ls_attention_dropped of q [B, T / cp, Hq, D] with the keys and values of all ranks, k and v [B, T / cp, Hkv, D]:
 * every token sees those of its sequence, causal: those at its place or before. dropout->first counts in [B, heads, T,
 * T]. */
ls_tensor *ls_cp_attention(ls_tape *t, ls_tensor *q, ls_tensor *k, ls_tensor *v, float scale, bool causal,
                           const ls_attention_dropout *dropout, const ls_place *p);
/* The same packed: qkv [B, T / cp, 3 C]. */
ls_tensor *ls_cp_attention_packed(ls_tape *t, ls_tensor *qkv, int64_t heads, float scale, bool causal,
                                  const ls_attention_dropout *dropout, const ls_place *p);

/* --- expert parallelism (moe.h) ---------------------------------------------------------------------------- */

/* x [B, T, C] -> rows [R, C]. R is r->rows, or 1, a row of zeros, where no token comes here; on a dry tape r->most.
 * `ep`: the ranks that divide the experts; zeros: all are here. */
ls_tensor *ls_dispatch(ls_tape *t, ls_tensor *x, ls_routing *r, const ls_along *ep);
/* rows [R, C] and weights [B, T, k] -> [B, T, C]: zeros for a token of which all was dropped. */
ls_tensor *ls_combine(ls_tape *t, ls_tensor *rows, ls_tensor *weights, const ls_routing *r);

/* Which rows of a table of `of` rows this rank has (ls_shard_range). */
ls_vocab_part ls_tp_vocab(const ls_place *p, int64_t of);

#ifdef __cplusplus
}
#endif
#endif
