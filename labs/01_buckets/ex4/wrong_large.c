/* Wrong: the largest cap, so that there are few all_reduces. */
#include <stddef.h>

size_t best_cap(const size_t *nbytes, const double *ready_us, int n, double alpha_us, double us_per_byte,
                const size_t *caps, int ncaps)
{
    (void)nbytes, (void)ready_us, (void)n, (void)alpha_us, (void)us_per_byte;
    return caps[ncaps - 1];
}
