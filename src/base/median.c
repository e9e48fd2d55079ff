/* median.c -- values in ascending order. */
#include "base/median.h"

#include <math.h>
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

double ls_lower_quartile(double *v, size_t n)
{
    if (n == 0) return 0;
    ls_sort_values(v, n);
    return v[n / 4];
}

double ls_undisturbed_mean(double *v, size_t n)
{
    const double quartile = ls_lower_quartile(v, n);
    double sum = 0;
    size_t taken = 0;
    if (!(quartile > 0)) return quartile;
    while (taken < n && v[taken] <= 2 * quartile) sum += v[taken++];
    return sum / (double)taken;
}

double ls_trimmed_mean(const double *v, size_t n)
{
    if (n == 0) return 0;
    double sum = 0, least = v[0], most = v[0];
    for (size_t i = 0; i < n; i++) sum += v[i], least = fmin(least, v[i]), most = fmax(most, v[i]);
    return n > 4 ? (sum - least - most) / (double)(n - 2) : sum / (double)n;
}
