/* Wrong: every stage shards everything. */
#include <stddef.h>

size_t held(int stage, int what, size_t rows, size_t columns, int ranks, int rank)
{
    const size_t n = (size_t)ranks, bytes = what == 2 ? 8 : 4;
    (void)stage;
    return (rows / n + ((size_t)rank < rows % n)) * columns * bytes;
}
