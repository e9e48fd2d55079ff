/* apart.h -- how far two tensors are apart, element by element. */
#ifndef LS_CKPT_APART_H
#define LS_CKPT_APART_H
#include <stdint.h>
#include <string.h>

typedef struct ls_apart {
    uint64_t differ; /* elements whose bits differ */
    double most;     /* the largest distance of two of them; infinite if one of the two alone is no number */
    uint64_t ulps;   /* the largest of two floats, in floats between them; 0: none that were compared are floats */
} ls_apart;

/* Floats in ascending order have numbers in ascending order. */
static inline int64_t ls_apart_number(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >= 0 ? (int64_t)bits : (int64_t)INT32_MIN - bits;
}

static inline void ls_apart_add(ls_apart *a, double x, double y)
{
    /* a NAN is neither less, nor greater, nor equal */
    const double d = x < y ? y - x : x > y ? x - y : x <= y ? 0.0 : (double)__builtin_inff();
    a->differ++;
    if (d > a->most) a->most = d;
}

static inline void ls_apart_add_f32(ls_apart *a, float x, float y)
{
    const int64_t n = ls_apart_number(x), m = ls_apart_number(y);
    const uint64_t ulps = (uint64_t)(n < m ? m - n : n - m);
    ls_apart_add(a, (double)x, (double)y);
    if (ulps > a->ulps) a->ulps = ulps;
}

#endif
