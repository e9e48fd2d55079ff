/* Wrong: nothing is padded, so that some ranks have one sample more. */
#include <stdbool.h>

int shard(int n, int ranks, int rank, bool drop_last, int *index)
{
    int each = 0;
    (void)drop_last;
    for (int i = rank; i < n; i += ranks) index[each++] = i;
    return each;
}
