/* memory.h -- what a rank takes of memory, known before any of it is taken.
 *
 * Everything is made as the run makes it, and one step taken, in a dry world (group.h), where memory is addresses
 * alone. So the plan is what the ledger says at the end of the run, to the byte.
 */
#ifndef LS_TRAIN_MEMORY_H
#define LS_TRAIN_MEMORY_H
#include "base/text.h"
#include "lockstep/model.h"
#include "train/config.h"
#include "train/dry.h"
#include "train/source.h"

#define LS_MEMORY_UNIT 64u /* arenas hand out multiples of so many bytes */

typedef struct ls_memory_plan {
    size_t bytes[LS_MEM_KINDS]; /* most that each kind has in use */
    size_t total;
    size_t world_arena, own_arena, tape; /* the three pieces that it is taken in, the first one in whole pages; samples
                                            and the copy of checkpoint.async take their own */
    size_t chunk[LS_PIPE_MOST_CHUNKS], tapes; /* with pipeline stages: of a tape of each chunk, and of all; `tape` is
                                                 what they share */
    size_t packed; /* of own_arena: copies of weights; with the parameters */
} ls_memory_plan;

/* The model that c describes; `source` (zeroed, then the caller's to free) is where its tokens come from. NULL: data
 * are not looked for, and model.vocab_size has to be there (LS_BAD_CONFIG). */
ls_status ls_train_model(const ls_train_config *c, ls_source *source, ls_model_config *out);

/* For one rank of `size`; rank 0 takes the most, except that pipeline stages differ. All ranks are on one node, or,
 * with _on, rank r on node[r]. */
ls_status ls_memory_plan_make(const ls_train_config *c, const ls_model_config *mc, int rank, int size,
                              ls_memory_plan *out);
ls_status ls_memory_plan_on(const ls_train_config *c, const ls_model_config *mc, int rank, int size, const int *node,
                            ls_memory_plan *out);

/* The plan of the rank that takes the most: of rank 0, or with pipeline stages of the first rank of the largest one. */
ls_status ls_memory_plan_largest(const ls_train_config *c, const ls_model_config *mc, int size, int *rank,
                                 ls_memory_plan *most);

/* world_arena of each rank's plan, all on one node: [size]. A rank that has memory for all of them needs more. */
ls_status ls_memory_plan_arenas(const ls_train_config *c, const ls_model_config *mc, int size, size_t *arena);

/* The same of a dry rank that is there, before its first step (ls_train_dry_open_plan). */
ls_status ls_memory_plan_of(const ls_train_config *c, ls_train_dry *d, ls_memory_plan *out);

/* Bytes of `own_arena` for f32 values that a sample needs (train.sample_every) and this rank does not store: of
 * the rank that writes samples, if the strategy puts only one parameter at a time together (ls_ddp_values_stay). */
size_t ls_memory_samples(const ls_train_config *c, const ls_parallel *par);

/* What each unit of the model holds of a plan's bytes, or held in a run: the ledger's rows. */
typedef struct ls_memory_units {
    ls_ledger_row *row; /* [n], owned (memory_units.h) */
    int n;
} ls_memory_units;

/* The plan of one rank of `size`, on these nodes (NULL: all on one), with its units. */
ls_status ls_memory_plan_units(const ls_train_config *c, const ls_model_config *mc, int rank, int size,
                               const int *node, ls_memory_plan *out, ls_memory_units *units);

/* Ranks whose memory is compared with the memory that is available: `here` ranks of `size` run on this machine, and
 * each of them needs as much as rank `rank`. */
typedef struct ls_memory_ranks {
    int size, here, rank;
    const int *node; /* rank r runs on node[r]; NULL: all ranks run on one node */
} ls_memory_ranks;

/* `p` is the plan of rank r->rank on these nodes. LS_NO_MEMORY if the r->here ranks need more than is available
 * (memory.limit, else what the system and its control group have left); the message has the need, what is available,
 * the largest kinds, and the cheapest change that fits. memory.check false: LS_OK. */
ls_status ls_memory_check(const ls_train_config *c, const ls_model_config *mc, const ls_memory_ranks *r,
                          const ls_memory_plan *p);

/* Both of a configuration, before ranks are started: a table into `out` (may be NULL), or the check. */
ls_status ls_memory_explain(const ls_train_config *c, int size, ls_text *out);

#endif
