/* Wrong: drop_last is not read. */
#include <stdbool.h>

int shard(int n, int ranks, int rank, bool drop_last, int *index)
{
    const int each = (n + ranks - 1) / ranks;
    (void)drop_last;
    for (int i = 0; i < each; i++) index[i] = (rank + i * ranks) % n;
    return each;
}
