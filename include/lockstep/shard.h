/* shard.h -- how n things are divided over `size` ranks.
 *
 * Every shard in Lockstep (a rank's share of a bucket, a slice of a
 * vocabulary, a slice of the sequence) is cut by this one function, so that a
 * checkpoint written by 4 ranks can be read by 3.
 */
#ifndef LS_SHARD_H
#define LS_SHARD_H
#include <stddef.h>
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_range {
    size_t first; /* index of the first element */
    size_t count; /* number of elements; 0 when there are fewer than ranks */
} ls_range;

/* The part of [0, n) that belongs to `rank` of `size`.
 *
 * Contiguous, in rank order, and as even as possible: the first n % size
 * ranks hold one element more. n = 10, size = 4 gives 3, 3, 2, 2.
 * Fails with LS_INVALID unless 0 <= rank < size. */
ls_status ls_shard_range(size_t n, int rank, int size, ls_range *out);
/* The same where 0 <= rank < size is certain. */
static inline ls_range ls_shard_of(size_t n, int rank, int size)
{
    size_t each = n / (size_t)size, extra = n % (size_t)size, r = (size_t)rank;
    ls_range range;
    range.first = r * each + (r < extra ? r : extra);
    range.count = each + (r < extra ? 1 : 0);
    return range;
}

#ifdef __cplusplus
}
#endif
#endif
