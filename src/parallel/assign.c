/* assign.c -- which gradients travel together. */
#include <stdlib.h>

#include "lockstep/dp.h"

/* What is being filled for one key (dtype and device). */
typedef struct filling {
    int key, bucket; /* bucket: number of the open one, -1: none */
    int limit;       /* index into limits; advances with every closed bucket */
    size_t nbytes;
} filling;

int ls_bucket_assign(const size_t *nbytes, const int *key, int n, const size_t *limits, int nlimits, bool sorted,
                     int *bucket)
{
    filling *open = calloc((size_t)n + 1, sizeof *open);
    int *number = malloc(((size_t)n + 1) * sizeof *number); /* of a bucket, once closed */
    int nopen = 0, nbuckets = 0, nclosed = 0;
    if (!open || !number) {
        free(open);
        free(number);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        int want = key ? key[i] : 0, f = 0;
        while (f < nopen && open[f].key != want) f++;
        if (f == nopen) open[nopen++] = (filling){ .key = want, .bucket = -1 };
        filling *o = &open[f];
        if (o->bucket < 0) {
            o->bucket = nbuckets++;
            o->nbytes = 0;
        }
        bucket[i] = o->bucket; /* first in, then look: a bucket may exceed its limit */
        o->nbytes += nbytes[i];
        if (o->nbytes >= limits[o->limit]) {
            number[o->bucket] = nclosed++;
            o->bucket = -1;
            if (o->limit < nlimits - 1) o->limit++;
        }
    }
    for (int f = 0; f < nopen; f++) /* what is left over comes last */
        if (open[f].bucket >= 0) number[open[f].bucket] = nclosed++;
    /* Buckets were opened in the order of their smallest tensor: that is torch's
     * sorted numbering; otherwise they are numbered as they closed. */
    if (!sorted)
        for (int i = 0; i < n; i++) bucket[i] = number[bucket[i]];
    free(open);
    free(number);
    return nbuckets;
}
