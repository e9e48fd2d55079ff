/* median.c -- values in ascending order. */
#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ls_sort_values(double *v, size_t n) { qsort(v, n, sizeof *v, by_value); }

double ls_median(double *v, size_t n)
{
    if (n == 0) return 0;
    ls_sort_values(v, n);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}
