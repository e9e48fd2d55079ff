/* Wrong: the sampler is that of one rank. */
#include "lockstep/lockstep.h"

static ls_status sampler_of_one(size_t n, int size, int rank, bool shuffle, uint64_t seed, bool drop_last,
                                ls_sampler **out)
{
    (void)size, (void)rank;
    return ls_sampler_create(n, 1, 0, shuffle, seed, drop_last, out);
}

#define ls_sampler_create sampler_of_one
#include "00_conversion/ex3/solution.c"
