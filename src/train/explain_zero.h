/* explain_zero.h -- what the stages of ZeRO cost for a model on W ranks: memory of a rank and traffic of its step, by
 * formula, and beside it what a dry world's ledger and recorded collectives say.
 *
 *   P   elements of all parameters
 *   M   of them those with a copy in bf16 (train.dtype bf16), and V the others: P = M + V
 *   U   bytes of the values that units read; L those of the last unit; R those of the root
 *   C   sets of shards (zero.hsdp), and S = W/C the shards of a set; with one set S = W
 *   N   comm.wire bf16: elements in buckets whose sums travel as bf16, because their bytes are enough for it
 *
 * A formula divides P or M by S. A shard is whole rows, and memory comes in cache lines; how many bytes each of the
 * two adds is said beside it. So formula, rows and alignment are the plan, and the plan is the ledger of a run.
 */
#ifndef LS_TRAIN_EXPLAIN_ZERO_H
#define LS_TRAIN_EXPLAIN_ZERO_H
#include "parallel/zero_formula.h"
#include "train/memory.h"

#define LS_ZERO_COLUMNS 7 /* stages 0, 1, 2; 3 with one copy per node, and gathered by each rank, in three ways */

/* What travels in a step: gradients over all ranks, (W-1)/W of them; or, with several sets of shards over connections,
 * within a set, (S-1)/S, and then the sums of a shard between the sets, (C-1)/C; and new values within a set. */
typedef enum ls_zero_travel {
    LS_ZERO_SUMS, LS_ZERO_SUMS_SET, LS_ZERO_SUMS_SETS, LS_ZERO_NEW, LS_ZERO_TRAVELS
} ls_zero_travel;

/* Bytes that units use one after another: those of the largest neighbours and of the root, and what is more, because
 * each has as much memory as the largest, padded. */
typedef struct ls_zero_in_use {
    size_t formula, padding;
} ls_zero_in_use;

typedef struct ls_zero_rank {
    ls_memory_plan plan;
    ls_zero_held held[LS_ZERO_CLASSES];
    ls_zero_in_use values, grads;
    size_t packed, samples; /* copies of weights, and f32 values of a sample: kept in the parameters' kind */
    uint64_t formula[LS_ZERO_TRAVELS], counted[LS_ZERO_TRAVELS]; /* bytes per step */
    uint64_t rounded[LS_ZERO_TRAVELS]; /* N; 0 where nothing travels as bf16 */
    uint64_t others;        /* counted: norm, losses, signals */
} ls_zero_rank;

/* One way to divide the model. */
typedef struct ls_zero_column {
    int stage;
    const char *copy, *reshard; /* NULL: of no meaning */
    bool chosen;                /* the configuration says this one */
    char refused[400];          /* why a run would be refused; "": it would not, and all below is set */
    char held[LS_ZERO_CLASSES][LS_ZERO_FORMULA];    /* "4 V + 4 M/W", bytes; "": none */
    char travels[LS_ZERO_TRAVELS][LS_ZERO_FORMULA]; /* "2 U + R", of which (W-1)/W travels; "": none */
    ls_zero_rank *rank;         /* owned: [size] */
} ls_zero_column;

typedef struct ls_zero_costs {
    int size, sets; /* W and C; every column is refused, except of stage 0, if C does not divide W */
    bool wire_bf16;
    ls_dtype dtype;
    size_t elements, copied; /* P and M */
    size_t units, last, root; /* U, L and R */
    int nstates;             /* floats of optimizer state per element */
    int micro_batches;       /* per rank and step */
    int n;                   /* columns */
    ls_zero_column column[LS_ZERO_COLUMNS];
} ls_zero_costs;

/* LS_UNSUPPORTED: bytes that are not known beforehand (comm.backend mpi), or comm.wire where there is no wire. */
ls_status ls_traffic_is_known(const ls_train_config *c, int size);
/* Before the model is made: fails as a run of `size` ranks on one node does, because of what has nothing to do with
 * stages, or ls_traffic_is_known, or since there is no formula (ddp.hook powersgd). */
ls_status ls_zero_costs_check(const ls_train_config *c, int size);
/* Every stage k with stages[k], for `size` ranks of one node. If a run would refuse a stage, its columns say why; with
 * `strict` that is a failure. LS_INTERNAL: ledger and formula differ. To be freed also after a failure. */
ls_status ls_zero_costs_make(const ls_train_config *c, const ls_model_config *mc, int size,
                             const bool stages[LS_ZERO_STAGES], bool strict, ls_zero_costs *out);
void ls_zero_costs_free(ls_zero_costs *z); /* zeros are fine */

/* Ranks over which a column's shards are spread. */
static inline int ls_zero_shards(const ls_zero_costs *z, int stage) { return stage > 0 ? z->size / z->sets : z->size; }

/* explain_zero_print.c: a table with a column per way, of rank 0; and a JSON object, of all ranks. */
void ls_zero_costs_table(const ls_zero_costs *z, ls_text *out);
void ls_zero_costs_json(const ls_zero_costs *z, ls_text *out);
/* What the letters of the formulas mean, for both: lines in front of the tables of several numbers of ranks. */
void ls_zero_costs_words(const ls_train_config *c, const ls_zero_costs *z, ls_text *out);

#endif
