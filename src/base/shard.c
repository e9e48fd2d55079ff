/* shard.c -- n things over size ranks. */
#include "lockstep/shard.h"

ls_status ls_shard_range(size_t n, int rank, int size, ls_range *out)
{
    *out = (ls_range){ 0, 0 };
    if (size < 1 || rank < 0 || rank >= size)
        return ls_fail(LS_INVALID, "share of rank %d of %d: expected 0 <= rank < size", rank, size);
    size_t each = n / (size_t)size, extra = n % (size_t)size, r = (size_t)rank;
    out->first = r * each + (r < extra ? r : extra);
    out->count = each + (r < extra ? 1 : 0);
    return LS_OK;
}
