/* Exercise 4 of lab 01: which bucket cap exposes the least communication?
 *
 * Backward yields n gradients, in the order of the list: gradient i has nbytes[i] bytes and is ready at ready_us[i],
 * and backward ends with the last one. Buckets are filled in this order, and a bucket is closed as soon as it holds
 * `cap` bytes or more. Its all_reduce can start when its last gradient is ready and the all_reduce before it has ended,
 * and takes alpha_us + bytes * us_per_byte. After backward ranks wait for the last all_reduce: that time is exposed.
 *
 * Return one of the ncaps caps (ascending) with an exposed time of at most 1.1 times the least.
 *
 * Example: nbytes = 400 400, ready_us = 10 20, alpha_us = 4, us_per_byte = 0.01: with a cap of 400 there are two
 * all_reduces, from 10 to 18 and from 20 to 28: 8 us are exposed. With 800 there is one, from 20 to 32: 12 us.
 */
#include <stddef.h>

size_t best_cap(const size_t *nbytes, const double *ready_us, int n, double alpha_us, double us_per_byte,
                const size_t *caps, int ncaps)
{
    (void)nbytes, (void)ready_us, (void)n, (void)alpha_us, (void)us_per_byte;
    return caps[ncaps / 2]; /* your code takes the place of this line and the one before */
}
