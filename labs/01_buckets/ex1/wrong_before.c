/* Wrong: a gradient that would pass the cap goes to the next bucket. */
#include <stddef.h>

int assign(const size_t *nbytes, int n, size_t first, size_t cap, int *bucket)
{
    int open = 0;
    size_t held = 0;
    for (int i = 0; i < n; i++) {
        if (held > 0 && held + nbytes[i] > (open == 0 ? first : cap)) open++, held = 0;
        bucket[i] = open;
        held += nbytes[i];
    }
    return n > 0 ? open + 1 : 0;
}
