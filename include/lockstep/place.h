/* place.h -- which part of each layer a rank computes, and the collectives that this takes.
 *
 * Tensor parallelism (Shoeybi et al. 2019) divides the two products of a layer's half: the first by columns, so that each
 * rank has some of the heads, or of the width inside the mlp, and the second by rows, so that the ranks' results add up:
 *
 *                 enter                                  leave
 *   x [B, T, C] --------> x w1^T [B, T, F / tp] -> w2 --------> the sum over the ranks [B, T, C]
 *
 *                 forward                       backward
 *   enter         nothing                       all_reduce of dx
 *   leave         all_reduce of y               nothing
 *
 * With sequence parallelism (Korthikanti et al. 2022) what lies between two such halves, norms, dropout and the residual
 * stream, is divided along the sequence: a rank has [B, T / tp, C]. Then as many bytes travel:
 *
 *   enter         all_gather of x               reduce_scatter of dx
 *   leave         reduce_scatter of y           all_gather of dy
 */
#ifndef LS_PLACE_H
#define LS_PLACE_H
#include "lockstep/group.h"
#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's place along one axis. Zeros: there is one rank. */
typedef struct ls_along {
    ls_group *ranks; /* borrowed; NULL: nothing is called, as on a dry tape that looks at shapes alone */
    int size, rank;
} ls_along;

/* Where in a model a rank is. Zeros: its layers are whole. */
typedef struct ls_place {
    ls_along tp;            /* ranks that divide every layer */
    bool sequence_parallel; /* of tp: activations between the halves of a layer are divided along the sequence */
} ls_place;

static inline bool ls_divides(const ls_along *a) { return a->size > 1; }
/* The same place, without groups to call. */
static inline ls_place ls_place_alone(const ls_place *p)
{
    ls_place alone = *p;
    alone.tp.ranks = NULL;
    return alone;
}
/* This rank's part of n, in as many equal parts as there are ranks. */
static inline int64_t ls_part_of(const ls_along *a, int64_t n) { return ls_divides(a) ? n / a->size : n; }

/* x [B, T, C] for products that are divided by columns: with sequence parallelism of x [B, T / tp, C]. Without tp, x. */
ls_tensor *ls_tp_enter(ls_tape *t, ls_tensor *x, const ls_place *p);
/* The sum over the ranks of x [B, T, C], the result of products that are divided by rows. With sequence parallelism this
 * rank's [B, T / tp, C] of it; LS_SHAPE if tp does not divide T. Without tp, x. */
ls_tensor *ls_tp_leave(ls_tape *t, ls_tensor *x, const ls_place *p);
/* x w^T + b by rows: w [O, I / tp], x [.., I / tp], b [O] or NULL, then ls_tp_leave; b is added once. */
ls_tensor *ls_tp_rows(ls_tape *t, ls_tensor *x, ls_tensor *w, ls_tensor *b, const ls_place *p);
/* Which rows of a table of `of` rows this rank has (ls_shard_range). */
ls_vocab_part ls_tp_vocab(const ls_place *p, int64_t of);

#ifdef __cplusplus
}
#endif
#endif
