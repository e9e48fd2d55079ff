/* median.h -- the middle of some measured values. */
#ifndef LS_BASE_MEDIAN_H
#define LS_BASE_MEDIAN_H
#include <stddef.h>

/* In ascending order. */
void ls_sort_values(double *v, size_t n);
/* Sorts v[n]; the mean of the two in the middle where n is even; 0 where it is 0. */
double ls_median(double *v, size_t n);

#endif
