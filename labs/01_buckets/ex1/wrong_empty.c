/* Wrong: a bucket that was just opened is counted although nothing is in it. */
#include <stddef.h>

int assign(const size_t *nbytes, int n, size_t first, size_t cap, int *bucket)
{
    int open = 0;
    size_t held = 0;
    for (int i = 0; i < n; i++) {
        bucket[i] = open;
        held += nbytes[i];
        if (held >= (open == 0 ? first : cap)) open++, held = 0;
    }
    return open + 1;
}
