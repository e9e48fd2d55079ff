/* zero_formula.h -- the bytes that a rank holds between steps, by ZeRO's formulas: "4 P", "4 V + 4 M/W".
 *
 *   P   elements of all parameters
 *   M   of them those with a copy in bf16 (train.dtype bf16), and V the others: P = M + V
 *
 * A formula divides P or M by the number of shards S (by W, the ranks, where there is one set of shards). A shard is
 * whole rows, so a rank may have some more or less than that. `lockstep explain zero` compares both with the ledger.
 */
#ifndef LS_PARALLEL_ZERO_FORMULA_H
#define LS_PARALLEL_ZERO_FORMULA_H
#include "lockstep/dp.h"

#define LS_ZERO_STAGES  4
#define LS_ZERO_FORMULA 32 /* bytes of its text */

/* What a rank holds between steps. */
typedef enum ls_zero_class {
    LS_ZERO_VALUES, LS_ZERO_COPIES, LS_ZERO_GRADS, LS_ZERO_STATE, LS_ZERO_CLASSES
} ls_zero_class;

/* Bytes of a class; planned are all three together. */
typedef struct ls_zero_held {
    uint64_t formula;  /* rounded down */
    int64_t rows;      /* more than that, since this rank's shard is whole rows; below 0 where others have one more */
    uint64_t alignment; /* cache lines of parameters, and what buckets are padded to */
} ls_zero_held;

/* What a rank holds of a class. */
static inline uint64_t ls_zero_planned(const ls_zero_held *h)
{
    return (uint64_t)((int64_t)(h->formula + h->alignment) + h->rows);
}

/* So many bytes per element of P, M or V; `sharded`: over the ranks of a set together. */
typedef struct ls_zero_term {
    size_t bytes;
    char of;
    bool sharded;
} ls_zero_term;

typedef struct ls_zero_formula {
    ls_zero_term term[2]; /* of 0 bytes: none */
} ls_zero_formula;

/* Elements of a model, or of what one rank owns of it: P and M. */
typedef struct ls_zero_elements {
    uint64_t p, m;
} ls_zero_elements;

/* What a formula depends on besides the strategy. */
typedef struct ls_zero_how {
    bool apart;    /* sums of own rows have memory of their own: several sets of shards, over connections */
    bool bf16;     /* train.dtype */
    int nstates;   /* floats of optimizer state per element */
    size_t levels; /* of partial sums that wait for others (parallel/partial.h) */
} ls_zero_how;

static inline bool ls_zero_gathers(const ls_ddp_config *d)
{
    return d->zero_stage == 3 && d->copy == LS_ZERO_COPY_RANK;
}
static inline bool ls_zero_shards_sums(const ls_ddp_config *d) { return d->zero_stage >= 2 && !d->reduce_last; }

ls_zero_formula ls_zero_formula_of(ls_zero_class k, const ls_ddp_config *d, const ls_zero_how *how);
/* "4 V + 4 M/W", or with `sets` "4 V + 4 M/S"; "": nothing. */
void ls_zero_formula_text(const ls_zero_formula *f, bool sets, char out[LS_ZERO_FORMULA]);
/* Bytes by the formula, and how many more a rank has that owns `own`, of so many shards. */
ls_zero_held ls_zero_held_by(const ls_zero_formula *f, const ls_zero_elements *all, const ls_zero_elements *own,
                             int shards);

#endif
