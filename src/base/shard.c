/* shard.c -- n things over size ranks. */
#include "lockstep/shard.h"

ls_status ls_shard_range(size_t n, int rank, int size, ls_range *out)
{
    *out = (ls_range){ 0, 0 };
    if (size < 1 || rank < 0 || rank >= size)
        return ls_fail(LS_INVALID, "share of rank %d of %d: expected 0 <= rank < size", rank, size);
    *out = ls_shard_of(n, rank, size);
    return LS_OK;
}
