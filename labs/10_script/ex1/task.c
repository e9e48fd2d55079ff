/* Exercise 1 of lab 10: which samples are a rank's?
 *
 * n samples are shared by `ranks` ranks, n >= ranks, without shuffling. Every rank gets the same number of samples, and
 * they take turns: sample 0 is rank 0's, sample 1 rank 1's, and so on. If the ranks do not divide n, samples from the
 * start are seen twice, so that all n are seen; with drop_last no sample is seen twice, and as few as possible are left
 * out. Write the samples of rank `rank`, in order, to index, and return how many they are.
 *
 * Example: n = 10, ranks = 4, rank = 2: index = 2 6 0, and the result is 3; with drop_last 2 6, and 2.
 */
#include <stdbool.h>

int shard(int n, int ranks, int rank, bool drop_last, int *index)
{
    (void)n, (void)ranks, (void)drop_last;
    index[0] = rank; /* your code takes the place of this line and the next */
    return 1;
}
