/* Exercise 3 of lab 01: ranks with different numbers of samples.
 *
 * Rank r has count[r] samples in this step, perhaps none, and its loss is the mean over them. DDP averages the ranks'
 * gradients with equal weights. Write to weight[r] what rank r has to multiply its loss by, so that the result is the
 * gradient of the mean loss over all samples of all ranks. At least one rank has samples.
 *
 * Example: count = 8 8 8 2: weight = 1.2308 1.2308 1.2308 0.3077.
 */
void weights(const int *count, int ranks, double *weight)
{
    (void)count;
    for (int r = 0; r < ranks; r++) weight[r] = 1.0; /* your code takes the place of this line */
}
