/* exact.h -- sums of doubles without rounding, so that their order and their division among ranks do not matter.
 *
 * The sum is an integer in fixed point whose digits reach from the smallest subnormal to beyond the largest double
 * (a Kulisch accumulator; Kulisch and Miranker, "The Arithmetic of the Digital Computer", SIAM Review 1986). Digits have
 * 32 bits in words of 64, so carries wait. Adding costs some ns; the loops that add many numbers add sums of fixed runs
 * of them.
 */
#ifndef LS_BASE_EXACT_H
#define LS_BASE_EXACT_H
#include <stddef.h>
#include <stdint.h>

#define LS_EXACT_DIGITS 68 /* 32 * 68 bits: 2^-1074 to 2^1101 */

/* Zeros are the sum of nothing. Two sums are added word by word: an all_reduce of `word` over up to 2^20 ranks whose
 * sums are carried (ls_exact_carry) is exact, too. */
#define LS_EXACT_WORDS (LS_EXACT_DIGITS + 1)
typedef struct ls_exact {
    int64_t word[LS_EXACT_WORDS]; /* digits, times 2^(32 i - 1088); the last: numbers that were not finite */
    uint32_t added;               /* numbers since the last carry */
} ls_exact;

void ls_exact_add(ls_exact *s, double x);
/* s += t. */
void ls_exact_merge(ls_exact *s, const ls_exact *t);
/* Digits of 32 bits again, the last one with the sign. */
void ls_exact_carry(ls_exact *s);
/* The sum, rounded once, to nearest; NaN if a number was not finite. Carries. */
double ls_exact_value(ls_exact *s);

#endif
