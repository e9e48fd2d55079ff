/* exact.c -- sums of doubles in fixed point. */
#include "base/exact.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BIAS 1088          /* a multiple of 32, at least 1074 */
#define MOST (1u << 28)    /* numbers between two carries: each adds less than 2^33 to a digit */
#define DIGIT 0xffffffffull

void ls_exact_carry(ls_exact *s)
{
    int64_t carry = 0;
    for (int i = 0; i < LS_EXACT_DIGITS; i++) {
        const int64_t v = s->word[i] + carry;
        const bool last = i == LS_EXACT_DIGITS - 1;
        s->word[i] = last ? v : (int64_t)((uint64_t)v & DIGIT);
        carry = (v - (int64_t)((uint64_t)v & DIGIT)) / (1ll << 32); /* exact: it divides */
    }
    s->added = 0;
}

void ls_exact_add(ls_exact *s, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    const uint64_t fraction = bits & 0xfffffffffffffull, m = exponent ? fraction | 1ull << 52 : fraction;
    if (exponent == 0x7ff) {
        s->word[LS_EXACT_DIGITS]++;
        return;
    }
    /* x = m 2^(e - 1075), where e is the exponent, and 1 for subnormals. */
    const int at = (exponent ? exponent : 1) - 1075 + BIAS, shift = at % 32;
    const uint64_t low = m << shift, high = shift ? m >> (64 - shift) : 0;
    const int64_t sign = bits >> 63 ? -1 : 1;
    int64_t *d = s->word + at / 32;
    d[0] += sign * (int64_t)(low & DIGIT);
    d[1] += sign * (int64_t)(low >> 32);
    d[2] += sign * (int64_t)high;
    if (++s->added == MOST) ls_exact_carry(s);
}

void ls_exact_merge(ls_exact *s, const ls_exact *t)
{
    ls_exact carried = *t;
    ls_exact_carry(&carried);
    ls_exact_carry(s);
    for (int i = 0; i < LS_EXACT_WORDS; i++) s->word[i] += carried.word[i];
    s->added = 2; /* as large as two numbers make it */
}

/* Of a sum that is carried and not negative. */
static double value_of(const ls_exact *s)
{
    int top = LS_EXACT_DIGITS - 1;
    while (top > 0 && s->word[top] == 0) top--;
    /* The highest 64 bits, of which the last one says whether anything follows: so they round as all digits would. */
    uint64_t head = (uint64_t)s->word[top];
    int at = 32 * top - BIAS, below = top - 1, free_bits = head ? __builtin_clzll(head) : 0;
    while (below >= 0 && free_bits >= 32) {
        head = head << 32 | (uint64_t)s->word[below--];
        at -= 32;
        free_bits -= 32;
    }
    if (below >= 0 && free_bits > 0) {
        const uint64_t digit = (uint64_t)s->word[below];
        head = head << free_bits | digit >> (32 - free_bits);
        at -= free_bits;
        head |= (digit & ((1ull << (32 - free_bits)) - 1)) != 0;
        below--;
    }
    for (; below >= 0; below--) head |= s->word[below] != 0;
    return ldexp((double)head, at);
}

double ls_exact_value(ls_exact *s)
{
    ls_exact_carry(s);
    if (s->word[LS_EXACT_DIGITS] != 0) return NAN;
    if (s->word[LS_EXACT_DIGITS - 1] >= 0) return value_of(s);
    ls_exact minus = { 0 };
    for (int i = 0; i < LS_EXACT_DIGITS; i++) minus.word[i] = -s->word[i];
    ls_exact_carry(&minus);
    return -value_of(&minus);
}
