/* dry.h -- a rank of a run whose other ranks are not there (group.h: dry worlds), made by the calls of a real one, and
 * its steps: the same operations, memory and collectives, and nothing is computed.
 */
#ifndef LS_TRAIN_DRY_H
#define LS_TRAIN_DRY_H
#include "base/exact.h"
#include "lockstep/group.h"
#include "lockstep/optim.h"
#include "lockstep/parallel.h"
#include "lockstep/trace.h"
#include "train/config.h"
#include "train/resume.h"

#define LS_TRAIN_WORDS 6 /* numbers that a rank tells all others at once */

typedef struct ls_train_dry {
    const ls_model_config *mc; /* borrowed */
    ls_world *w; /* owned, as all here */
    ls_arena *own;
    ls_parallel par;
    ls_optim *optim;
    ls_state *state;    /* with checkpoint.async: what of it is copied; NULL */
    ls_train_kept kept; /* in it */
    int micro_batches; /* of a step */
    int threads;       /* that this thread's loops took before: the rank's are those that it would have */
    double (*words)[LS_TRAIN_WORDS];
    /* With pipeline stages: told of each action before it runs, once what it needs has been asked for; may be NULL. */
    void (*on_action)(void *arg, const ls_pipe_action *a);
    void *arg;
} ls_train_dry;

/* What decides how the collectives of such a run are carried out. */
ls_world_opts ls_train_dry_opts(const ls_train_config *c);
/* `o` and node[] (both may be NULL) as ls_world_dry takes them. To be closed also after a failure. */
ls_status ls_train_dry_open(const ls_train_config *c, const ls_model_config *mc, int rank, int size, const int *node,
                            const ls_world_opts *o, ls_train_dry *out);
/* The same of this plan, which need not be what c says. */
ls_status ls_train_dry_open_plan(const ls_train_config *c, const ls_plan *plan, const ls_model_config *mc, int rank,
                                 int size, const int *node, const ls_world_opts *o, ls_train_dry *out);
/* Records what ls_train_step calls, in its order: step 2 differs from step 1 where buckets are rebuilt, later ones do
 * not differ. Micro-batches are of `rows` samples; without pipeline stages those whose backward is not reduced are left
 * out, since they call nothing that the others do not. */
ls_status ls_train_dry_step(const ls_train_config *c, ls_train_dry *d, int64_t rows);
#define LS_TRAIN_DRY_SETTLED 3 /* from this step on they do not differ: buckets are rebuilt in the second one */
/* So many of them, of which the last alone is on the world's record (ls_world_recorded). */
ls_status ls_train_dry_steps(const ls_train_config *c, ls_train_dry *d, int64_t rows, int steps);
/* The configuration whose dry steps, once they have settled, are the last steps of a run of c: ddp.hook powersgd sends
 * factors in them, or never does. False: whether it does depends on the data (train.epochs), and out has factors. */
bool ls_train_dry_settle(const ls_train_config *c, ls_train_config *out);
/* With pipeline stages: records what an evaluation calls for a forward of `rows` samples, as many as one has at most.
 */
ls_status ls_train_dry_evaluate(const ls_train_config *c, ls_train_dry *d, int64_t rows);
/* Events of one step of a rank. */
typedef struct ls_train_events {
    uint64_t ops;    /* of its tapes */
    uint64_t colls;  /* collectives that are timed; each may be waited for, which is one event more */
    uint64_t marks;  /* buckets that are ready, values that are released; each may be waited for, as those too small to
                        be timed are if it takes long */
    uint64_t others; /* the step, its update */
} ls_train_events;
static inline uint64_t ls_train_events_most(const ls_train_events *e)
{
    return e->ops + 2 * (e->colls + e->marks) + e->others;
}
/* ls_train_dry_step, and how many events ls_train_step writes: as many, of all its micro-batches, but for waits. */
ls_status ls_train_dry_count(const ls_train_config *c, ls_train_dry *d, int64_t rows, ls_train_events *out);
/* Records what a run calls between its steps and after the last: one whole parameter after another is put together, for
 * a checkpoint, samples or the digest, and the ranks meet. */
ls_status ls_train_dry_end(ls_train_dry *d);
void ls_train_dry_close(ls_train_dry *d);

/* An event that ends now; returns when that is. */
uint64_t ls_train_record(ls_world *w, ls_ev_kind kind, const char *label, uint64_t t0_ns);
/* Some numbers of every rank, of the world, in its order: words[size], which all[] then points to. */
ls_status ls_train_tell(ls_world *w, double (*words)[LS_TRAIN_WORDS], const double mine[LS_TRAIN_WORDS],
                        const double (**all)[LS_TRAIN_WORDS]);
/* Labels that count in a step, over all ranks of `batch`, where each knows its own. */
ls_status ls_train_count_labels(ls_group *batch, double *counted);
/* The sum over all ranks of the losses that each has added up: with train.numerics invariant. */
ls_status ls_train_sum_losses(ls_world *w, ls_exact *sum);
/* ls_grad_norm_shared, or with train.numerics invariant ls_grad_norm_exact. */
ls_status ls_train_norm(const ls_train_config *c, ls_group *world, const ls_params *ps, double *norm,
                        const ls_param **culprit);

#endif
