/* Exercise 1 of lab 02: how many bytes of one matrix does a rank hold?
 *
 * The matrix has rows x columns parameters in f32, and the optimizer is Adam, with two states of f32 per parameter.
 * `what` is 0 for values, 1 for gradients, 2 for the optimizer's state. Stage 1 shards 2, stage 2 also 1, stage 3 also
 * 0. What is sharded is cut by rows, as evenly as possible: the first rows % ranks ranks own one row more. Return the
 * bytes that stay with `rank` from step to step.
 *
 * Example: 10 x 4 on 4 ranks, stage 1, what = 2: ranks own 3, 3, 2, 2 rows, so rank 0 holds 96 bytes and rank 3 64.
 */
#include <stddef.h>

size_t held(int stage, int what, size_t rows, size_t columns, int ranks, int rank)
{
    (void)stage, (void)what, (void)rows, (void)columns, (void)ranks, (void)rank;
    return 0; /* your code takes the place of this line and the one above */
}
