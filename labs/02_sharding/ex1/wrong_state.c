/* Wrong: Adam has one state. */
#include <stddef.h>

size_t held(int stage, int what, size_t rows, size_t columns, int ranks, int rank)
{
    const size_t n = (size_t)ranks;
    return (stage + what >= 3 ? rows / n + ((size_t)rank < rows % n) : rows) * columns * 4;
}
