/* Wrong: the elements are divided, and the remainder is lost. */
#include <stddef.h>

size_t held(int stage, int what, size_t rows, size_t columns, int ranks, int rank)
{
    const size_t count = stage + what >= 3 ? rows * columns / (size_t)ranks : rows * columns;
    (void)rank;
    return count * (what == 2 ? 8 : 4);
}
