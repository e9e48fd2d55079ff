/* overlap.h -- how long a training step takes with a bucket cap, predicted.
 *
 * The model is the one of Li et al. 2020 ("PyTorch Distributed"): gradients become ready one after another during
 * backward; a bucket's all_reduce starts when its last gradient is ready and the bucket before it is reduced; it takes
 * alpha + beta S for S bytes, and backward goes on meanwhile as if it were alone. So
 *
 *   end of bucket k = max(ready k, end of bucket k - 1) + alpha + beta S_k
 *   exposed         = max(0, end of the last bucket - backward)
 *   step            = rest + backward + exposed
 *
 * Buckets of almost no bytes cost alpha each; one bucket of all gradients cannot start before backward ends. Between
 * the two is the cap that is sought. Over connections two buckets move at a time (ls_group_second), so there the end of
 * the last bucket may come earlier than predicted. Where the processors that compute move the bytes as well, as in
 * shared memory, backward does not go on as if it were alone, and a step takes longer than predicted.
 */
#ifndef LS_PARALLEL_OVERLAP_H
#define LS_PARALLEL_OVERLAP_H
#include <stddef.h>
#include "lockstep/status.h"

/* What a step is like; arrays are borrowed. */
typedef struct ls_overlap {
    int n;                     /* gradients, in the order in which they become ready; at least 1 */
    const size_t *nbytes;      /* [n] */
    const double *ready_ns;    /* [n] since the begin of backward; none is less than the one before it */
    double backward_ns;        /* the whole backward, at least ready_ns[n - 1] */
    double rest_ns;            /* the rest of a step: forward, optimizer, input */
    double alpha_ns, beta_ns;  /* of an all_reduce, and of each of its bytes */
} ls_overlap;

/* What is predicted for a step with ls_ddp_config's first_bucket and bucket_cap. */
typedef struct ls_overlap_step {
    size_t first_bucket, bucket_cap; /* bytes */
    int nbuckets;
    double exposed_ns; /* from the end of backward to that of the last all_reduce */
    double step_ns;
} ls_overlap_step;

/* Buckets are those of ls_bucket_assign. LS_INVALID: no gradients, times that descend, or one that is negative. */
ls_status ls_overlap_predict(const ls_overlap *o, size_t first_bucket, size_t bucket_cap, ls_overlap_step *out);
/* A bucket of a predicted step: when its last gradient is ready, and its all_reduce starts and ends. */
typedef struct ls_overlap_bucket {
    int first, n; /* gradients */
    size_t nbytes;
    double ready_ns, start_ns, end_ns;
} ls_overlap_bucket;
/* The same, with its buckets: [o->n], of which out->nbuckets are set. NULL: only `out` is asked for. */
ls_status ls_overlap_timeline(const ls_overlap *o, size_t first_bucket, size_t bucket_cap, ls_overlap_bucket *bucket,
                              ls_overlap_step *out);
/* The index of the shortest step; of several, the first. n >= 1. */
int ls_overlap_best(const ls_overlap_step *step, int n);

#define LS_OVERLAP_CAPS 24
/* Caps to try for `total` bytes of gradients, ascending: 1 KiB, 4 KiB, 16 KiB ... below `total`; `now`, if it is below
 * `total`; and `total`, which makes one bucket. Returns how many, at most LS_OVERLAP_CAPS. */
int ls_overlap_caps(size_t total, size_t now, size_t cap[LS_OVERLAP_CAPS]);

#endif
