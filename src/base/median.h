/* median.h -- the middle of some measured values. */
#ifndef LS_BASE_MEDIAN_H
#define LS_BASE_MEDIAN_H
#include <stddef.h>

/* In ascending order. */
void ls_sort_values(double *v, size_t n);
/* Sorts v[n]; the mean of the two in the middle where n is even; 0 where it is 0. */
double ls_median(double *v, size_t n);
/* Sorts v[n], and gives v[n / 4]: of four values the second, of fewer the least; 0 where n is 0. */
double ls_lower_quartile(double *v, size_t n);
/* Of times that a disturbed machine only lengthens: the mean of those up to twice the lower quartile. Sorts v[n]; 0
 * where n is 0; the lower quartile where that is not above 0. */
double ls_undisturbed_mean(double *v, size_t n);
/* The mean without the least and the greatest, or of 4 and fewer, of all; 0 where n is 0. */
double ls_trimmed_mean(const double *v, size_t n);

#endif
