/* harness_replica.h -- a model under DDP on one rank, and batches that do not depend on the ranks. */
#ifndef LS_TEST_HARNESS_REPLICA_H
#define LS_TEST_HARNESS_REPLICA_H
#include "harness.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ROWS     8 /* of a batch, per rank */

/* The test fails with the text of the rank that failed first, if one did. */
static inline void expect(ls_rank_report r)
{
    if (r.failed) fail_msg("%s", r.text);
}

/* A multilayer perceptron with all that belongs to it. */
typedef struct ls_replica {
    ls_model *model;   /* owned, as all here */
    ls_arena *arena;   /* values, optimizer state, and gradients without DDP */
    ls_ddp *ddp;       /* NULL: plain */
    ls_tape *tape;
    ls_optim *optim;   /* NULL: none */
    float *x;          /* [rows, features] */
    int64_t *label;    /* [rows] */
    int64_t features, classes, rows;
} ls_replica;

typedef struct ls_replica_config {
    const int64_t *dims;
    int ndims;
    uint64_t seed;             /* of the initial values */
    ls_checkpoint *saved;           /* borrowed: has them instead; NULL: they are drawn */
    const ls_ddp_config *ddp;  /* NULL: its defaults */
    bool plain;                /* without DDP */
    const struct ls_dp_strategy *strategy; /* NULL: the one that ddp->zero_stage means */
    bool bf16;                 /* copies of the values, and activations, in bf16 */
    const char *optim;         /* NULL: none */
    double lr;
    int64_t rows;              /* most rows a forward takes */
    ls_tracer *tracer;         /* NULL: nobody records */
} ls_replica_config;

ls_status ls_replica_create(ls_world *w, const ls_replica_config *c, ls_replica *out);
void ls_replica_destroy(ls_replica *r);

/* Forward and backward of rows [first, first + n) of batch number `batch`, whose values depend on
 * nothing else. The gradient is that of weight * mean loss; the sum of the losses is added to
 * loss_sum (NULL: not wanted). */
ls_status ls_replica_pass(ls_replica *r, uint64_t batch, int64_t first, int64_t n, bool sync, float weight,
                          double *loss_sum);

/* All gradients, or all values, one after another in registration order: [ls_params_count]. The
 * caller frees it. */
float *ls_replica_grads(const ls_replica *r);
float *ls_replica_values(const ls_replica *r);
/* All values, where no rank may have them all in its parameters (ls_ddp_values). Every rank calls it. */
ls_status ls_replica_whole(const ls_replica *r, float **out);

/* LS_INTERNAL, naming the rank and `what`, unless every rank has the same n <= 64 bytes. */
ls_status ls_expect_equal(ls_world *w, const void *mine, size_t n, const char *what);

#endif
