/* harness_layout.h -- a run in some layout against the same run on one rank: the losses and gradient norms of its
 * steps, the parameters that it ends with, by name, the collectives of a step, group by group, and the memory of every
 * rank. The ranks are threads.
 *
 *     static const char *const gpt2[] = { "model.name", "gpt2", ..., NULL };
 *     static const char *const zero[] = { "zero.stage", "1", NULL };
 *     assert_layout(&(ls_layout){ .ranks = 4, .run = gpt2, .layout = zero, .calls = data_parallel }, 1e-6);
 *
 *   harness_layout.c          the run
 *   harness_layout_dry.c      what a dry world says of each of its ranks
 *   harness_layout_verdict.c  the comparison
 */
#ifndef LS_TEST_HARNESS_LAYOUT_H
#define LS_TEST_HARNESS_LAYOUT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lockstep/mem.h"
#include "lockstep/parallel.h"
#include "lockstep/nn.h"
#include "train/comm_log.h"

#define LS_LAYOUT_RANKS  64                   /* at most, as all here */
#define LS_LAYOUT_STEPS  16
#define LS_LAYOUT_GROUPS LS_COMM_GROUPS
#define LS_LAYOUT_CALLS  16                   /* rows of a closed form */
#define LS_LAYOUT_STEADY LS_COMM_STEADY

typedef struct ls_layout ls_layout;

/* Collectives of one kind that a rank calls in one group per steady step. Rows of the same kind and group add up. */
typedef struct ls_layout_calls {
    const char *group; /* the first word of its name (ls_group_text): "world", "self", "tp" */
    ls_coll coll;
    int count, most;            /* so many calls; with `most`: count to most */
    uint64_t bytes, most_bytes; /* of the whole vectors of all of them; with most_bytes: bytes to most_bytes */
} ls_layout_calls;

/* A closed form: writes the rows of a rank to out[LS_LAYOUT_CALLS] and returns how many there are. `ps` has the names
 * and shapes of the whole model's parameters, and says which are read in f32. */
typedef int (*ls_layout_calls_fn)(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out);

struct ls_layout {
    int ranks;
    const char *const *run;    /* keys and values of a recipe, NULL-ended: what is trained */
    const char *const *layout; /* the same: how the ranks divide it; one rank does without. NULL: nothing */
    int steps;                 /* 0: 4. Collectives are those of the last one; of less than LS_LAYOUT_STEADY steps they
                                * are not compared */
    ls_layout_calls_fn calls;  /* NULL: the dry world alone says what a step calls */
    const int *node;           /* [ranks] as if rank r were on node node[r]; with comm.transport mixed. NULL: one */
};

/* Fails the test, and says in which layout, on which rank and in which group, what was expected and what was found,
 * unless
 *   - every rank's memory is as ls_memory_plan_make has planned it for that rank, to the byte,
 *   - in every group of every rank, a dry world records as many collectives of each kind, of as many bytes, as
 *     the closed form says, and the rank itself counts as many collectives of each kind, and moves as many bytes by
 *     them (by all_to_alls at most so many), as the dry world says; and it calls none in other groups,
 *   - all ranks have the same losses, norms and parameters, to the bit,
 *   - every loss and gradient norm is within `tolerance` of one rank's, relative to it,
 *   - every parameter is: the largest difference of its elements over the largest of them. */
void assert_layout(const ls_layout *l, double tolerance);
/* The same as a question, for tests that break something: false, with the reason in `why`. */
bool ls_layout_holds(const ls_layout *l, double tolerance, char *why, size_t n);

/* --- its parts, for tests that break what was found ----------------------------------------------------------- */

/* What a rank does in one group of its mesh per step. */
typedef struct ls_layout_group {
    char text[64];         /* ls_group_text */
    struct {
        int count;
        uint64_t bytes;    /* of the whole vectors */
        uint64_t moved;    /* bytes that the rank would move */
    } dry[LS_COLLS];       /* recorded in a dry world, by kind */
    struct {
        uint64_t ops, moved;
    } real[LS_COLLS];      /* that the rank has counted, by kind */
} ls_layout_group;

typedef struct ls_layout_rank {
    double loss[LS_LAYOUT_STEPS], norm[LS_LAYOUT_STEPS];
    char digest[33];
    size_t planned[LS_MEM_KINDS], peak[LS_MEM_KINDS];
    ls_layout_group group[LS_LAYOUT_GROUPS]; /* first the world's */
    int ngroups;
    uint64_t ops, moved;   /* that the rank has counted in the last step, in whatever group */
} ls_layout_rank;

/* What a run comes to. */
typedef struct ls_layout_outcome {
    int ranks, steps;
    ls_layout_rank rank[LS_LAYOUT_RANKS];
    ls_params params;      /* owned, as the values are: of the global tensors names, shapes, values and f32 alone */
} ls_layout_outcome;

/* Trains l, or, `alone`, l->run on one rank without l->layout. `out` is overwritten, and the caller's to free
 * (ls_layout_outcome_free), after a failure, too. */
ls_status ls_layout_train(const ls_layout *l, bool alone, ls_layout_outcome *out);
void ls_layout_outcome_free(ls_layout_outcome *o);
/* Whether `got`, of l, is as it should be beside `alone`. False: the reason in `why`. */
bool ls_layout_verdict(const ls_layout *l, double tolerance, const ls_layout_outcome *got,
                       const ls_layout_outcome *alone, char *why, size_t n);
/* "4 ranks, zero.stage 1" into buf; returns its length. */
size_t ls_layout_name(const ls_layout *l, char *buf, size_t n);

/* What ls_layout_train asks of a dry world, for rank `rank`: plan, names of the groups, and what they record. */
struct ls_train_config;
struct ls_model_config;
ls_status ls_layout_dry(const struct ls_train_config *c, const struct ls_model_config *mc, int rank, int ranks,
                        const int *node, const ls_world_opts *o, ls_layout_rank *out);

#endif
