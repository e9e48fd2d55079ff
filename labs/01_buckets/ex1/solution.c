/* Exercise 1 of lab 01: a gradient always joins the open bucket, which may then be closed. */
#include <stddef.h>

int assign(const size_t *nbytes, int n, size_t first, size_t cap, int *bucket)
{
    int open = 0;
    size_t held = 0;
    for (int i = 0; i < n; i++) {
        bucket[i] = open;
        held += nbytes[i];
        if (held < (open == 0 ? first : cap)) continue;
        open++;
        held = 0;
    }
    return held > 0 ? open + 1 : open;
}
