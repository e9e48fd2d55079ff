/* overlap.c -- the time of a step with overlapped buckets, from the formulas in overlap.h. */
#include "parallel/overlap.h"

#include <stdint.h>
#include <stdlib.h>

#include "lockstep/dp.h"

#define LEAST_CAP ((size_t)1 << 10)
#define CAP_FACTOR 4

static ls_status check(const ls_overlap *o)
{
    double before = 0;
    if (o->n < 1) return ls_fail(LS_INVALID, "a step with %d gradients: expected at least 1", o->n);
    if (!(o->rest_ns >= 0) || !(o->alpha_ns >= 0) || !(o->beta_ns >= 0))
        return ls_fail(LS_INVALID, "rest %g ns, alpha %g ns, beta %g ns per byte: expected none below 0", o->rest_ns, o->alpha_ns,
                       o->beta_ns);
    for (int i = 0; i < o->n; before = o->ready_ns[i++])
        if (!(o->ready_ns[i] >= before))
            return ls_fail(LS_INVALID, "gradient %d is ready after %g ns, the one before it after %g ns: expected ascending times", i,
                           o->ready_ns[i], before);
    if (!(o->backward_ns >= before))
        return ls_fail(LS_INVALID, "backward takes %g ns, but a gradient is ready after %g ns", o->backward_ns, before);
    return LS_OK;
}

ls_status ls_overlap_timeline(const ls_overlap *o, size_t first_bucket, size_t bucket_cap, ls_overlap_bucket *bucket,
                              ls_overlap_step *out)
{
    const size_t limits[2] = { first_bucket, bucket_cap };
    *out = (ls_overlap_step){ .first_bucket = first_bucket, .bucket_cap = bucket_cap };
    LS_TRY(check(o));
    int *number = malloc((size_t)o->n * sizeof *number);
    out->nbuckets = number ? ls_bucket_assign(o->nbytes, NULL, o->n, limits, 2, false, number) : 0;
    if (out->nbuckets == 0) {
        free(number);
        return ls_fail(LS_NO_MEMORY, "buckets of %d gradients", o->n);
    }
    double free_at = 0, nbytes = 0; /* when the bucket before is reduced; bytes of the one that fills */
    for (int i = 0, first = 0; i < o->n; i++) {
        nbytes += (double)o->nbytes[i];
        if (i + 1 < o->n && number[i + 1] == number[i]) continue;
        const double start = o->ready_ns[i] > free_at ? o->ready_ns[i] : free_at;
        free_at = start + o->alpha_ns + o->beta_ns * nbytes;
        if (bucket)
            bucket[number[i]] = (ls_overlap_bucket){ first, i + 1 - first, (size_t)nbytes, o->ready_ns[i], start,
                                                     free_at };
        nbytes = 0;
        first = i + 1;
    }
    free(number);
    out->exposed_ns = free_at > o->backward_ns ? free_at - o->backward_ns : 0;
    out->step_ns = o->rest_ns + o->backward_ns + out->exposed_ns;
    return LS_OK;
}

ls_status ls_overlap_predict(const ls_overlap *o, size_t first_bucket, size_t bucket_cap, ls_overlap_step *out)
{
    return ls_overlap_timeline(o, first_bucket, bucket_cap, NULL, out);
}

int ls_overlap_best(const ls_overlap_step *step, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (step[i].step_ns < step[best].step_ns) best = i;
    return best;
}

int ls_overlap_caps(size_t total, size_t now, size_t cap[LS_OVERLAP_CAPS])
{
    const size_t last = SIZE_MAX / CAP_FACTOR;
    int n = 0;
    for (size_t c = LEAST_CAP; c < total && n < LS_OVERLAP_CAPS - 2; c = c < last ? CAP_FACTOR * c : total) {
        if ((n == 0 || now > cap[n - 1]) && now > 0 && now < c) cap[n++] = now;
        cap[n++] = c;
    }
    if ((n == 0 || now > cap[n - 1]) && now > 0 && now < total && n < LS_OVERLAP_CAPS - 1) cap[n++] = now;
    cap[n++] = total;
    return n;
}
