/* Wrong: each rank has a run of neighbouring samples. */
#include <stdbool.h>

int shard(int n, int ranks, int rank, bool drop_last, int *index)
{
    const int each = drop_last ? n / ranks : (n + ranks - 1) / ranks;
    for (int i = 0; i < each; i++) index[i] = (rank * each + i) % n;
    return each;
}
