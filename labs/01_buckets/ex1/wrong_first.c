/* Wrong: the first bucket has the cap of the others. */
#include <stddef.h>

int assign(const size_t *nbytes, int n, size_t first, size_t cap, int *bucket)
{
    int open = 0;
    size_t held = 0;
    (void)first;
    for (int i = 0; i < n; i++) {
        bucket[i] = open;
        held += nbytes[i];
        if (held >= cap) open++, held = 0;
    }
    return held > 0 ? open + 1 : open;
}
