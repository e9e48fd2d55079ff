/* reduce.c -- op x dtype kernels.
 *
 * f32 sums of 2 to 4 vectors, which is what training does all day, have loops of
 * their own: n loads and k stores an element, nothing else. Everything else goes
 * through small blocks that are widened, combined and narrowed; a block stays in
 * the first-level cache.
 */
#include "coll/reduce.h"

#include <string.h>

#include "base/compiler.h"

#define BLOCK 512 /* elements */

/* --- f32 sums --------------------------------------------------------------------- */

/* Destinations may equal sources, element by element: no dependence between turns (ivdep). */

LS_KERNEL static void sum2_to1(float *d, const float *a, const float *b, size_t n, float s)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) d[i] = a[i] * s + b[i] * s;
}

LS_KERNEL static void sum2_to2(float *d, float *e, const float *a, const float *b, size_t n, float s)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        float v = a[i] * s + b[i] * s;
        d[i] = v;
        e[i] = v;
    }
}

LS_KERNEL static void sum3(float *d, const float *a, const float *b, const float *c, size_t n, float s)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) d[i] = a[i] * s + b[i] * s + c[i] * s;
}

LS_KERNEL static void sum4_to1(float *d, const float *a, const float *b, const float *c, const float *e, size_t n, float s)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) d[i] = a[i] * s + b[i] * s + c[i] * s + e[i] * s;
}

LS_KERNEL static void start_block(float *acc, const float *a, size_t n, float s)
{
    for (size_t i = 0; i < n; i++) acc[i] = a[i] * s;
}

LS_KERNEL static void add_block(float *restrict acc, const float *restrict a, size_t n, float s)
{
    for (size_t i = 0; i < n; i++) acc[i] += a[i] * s;
}

static void sum_f32(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, float s)
{
    if (nsrc == 2 && ndst == 1) {
        sum2_to1(dst[0], src[0], src[1], count, s);
        return;
    }
    if (nsrc == 2 && ndst == 2) {
        sum2_to2(dst[0], dst[1], src[0], src[1], count, s);
        return;
    }
    float acc[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const float *v[4] = { NULL };
        for (int k = 0; k < 4 && k < nsrc; k++) v[k] = (const float *)src[k] + at;
        int k = nsrc < 4 ? nsrc : 4;
        if (nsrc >= 4) sum4_to1(acc, v[0], v[1], v[2], v[3], n, s);
        else if (nsrc == 3) sum3(acc, v[0], v[1], v[2], n, s);
        else if (nsrc == 2) sum2_to1(acc, v[0], v[1], n, s);
        else start_block(acc, v[0], n, s);
        for (; k < nsrc; k++) add_block(acc, (const float *)src[k] + at, n, s);
        for (int j = 0; j < ndst; j++) memcpy((float *)dst[j] + at, acc, n * sizeof *acc);
    }
}

/* --- widening and narrowing --------------------------------------------------------- */

float ls_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 0x1fu, frac = h & 0x3ffu, u;
    if (exp == 31) {
        u = sign | 0x7f800000u | frac << 13;
    } else if (exp > 0) {
        u = sign | (exp + 112) << 23 | frac << 13;
    } else { /* subnormal: frac * 2^-24, exact in float */
        float f = (float)frac * 0x1p-24f;
        memcpy(&u, &f, sizeof u);
        u |= sign;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t ls_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to infinity */
    if (mag < 0x38800000u) {                                   /* below the smallest normal half */
        float shifted, a;
        memcpy(&a, &mag, sizeof a);
        shifted = a + 0.5f; /* the sum's last bits are the half's, rounded to nearest even */
        memcpy(&u, &shifted, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    mag += 0xfffu + (mag >> 13 & 1u);
    return (uint16_t)(sign | (mag - 0x38000000u) >> 13);
}

LS_KERNEL static void widen_bf16(float *restrict d, const uint16_t *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)s[i] << 16;
        memcpy(&d[i], &u, sizeof u);
    }
}

LS_KERNEL static void narrow_bf16(uint16_t *restrict d, const float *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &s[i], sizeof u);
        uint32_t nan = (u >> 16) | 0x40u, even = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
        d[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : even);
    }
}

/* What elements are combined as: f32 for the 16-bit types and itself, f64, or 64-bit integers. */
typedef union wide {
    float f[BLOCK];
    double d[BLOCK];
    int64_t i[BLOCK];
} wide;

static void widen(wide *w, const void *src, size_t at, size_t n, ls_dtype t)
{
    switch (t) {
    case LS_F32: memcpy(w->f, (const float *)src + at, n * sizeof(float)); break;
    case LS_F64: memcpy(w->d, (const double *)src + at, n * sizeof(double)); break;
    case LS_I64: memcpy(w->i, (const int64_t *)src + at, n * sizeof(int64_t)); break;
    case LS_BF16: widen_bf16(w->f, (const uint16_t *)src + at, n); break;
    case LS_F16:
        for (size_t k = 0; k < n; k++) w->f[k] = ls_f16_to_f32(((const uint16_t *)src)[at + k]);
        break;
    case LS_I32:
        for (size_t k = 0; k < n; k++) w->i[k] = ((const int32_t *)src)[at + k];
        break;
    default:
        for (size_t k = 0; k < n; k++) w->i[k] = ((const uint8_t *)src)[at + k];
        break;
    }
}

static void narrow(void *dst, size_t at, const wide *w, size_t n, ls_dtype t)
{
    switch (t) {
    case LS_F32: memcpy((float *)dst + at, w->f, n * sizeof(float)); break;
    case LS_F64: memcpy((double *)dst + at, w->d, n * sizeof(double)); break;
    case LS_I64: memcpy((int64_t *)dst + at, w->i, n * sizeof(int64_t)); break;
    case LS_BF16: narrow_bf16((uint16_t *)dst + at, w->f, n); break;
    case LS_F16:
        for (size_t k = 0; k < n; k++) ((uint16_t *)dst)[at + k] = ls_f32_to_f16(w->f[k]);
        break;
    case LS_I32:
        for (size_t k = 0; k < n; k++) ((int32_t *)dst)[at + k] = (int32_t)(uint32_t)(uint64_t)w->i[k];
        break;
    default:
        for (size_t k = 0; k < n; k++) ((uint8_t *)dst)[at + k] = (uint8_t)w->i[k];
        break;
    }
}

static bool is_float(ls_dtype t) { return t == LS_F32 || t == LS_BF16 || t == LS_F16; }

/* --- combining blocks ------------------------------------------------------------------ */

LS_KERNEL static void combine_f(float *restrict a, const float *restrict b, size_t n, ls_redop op)
{
    switch (op) {
    case LS_MAX:
        for (size_t i = 0; i < n; i++) a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i]; /* a NaN stays */
        break;
    case LS_MIN:
        for (size_t i = 0; i < n; i++) a[i] = b[i] < a[i] || b[i] != b[i] ? b[i] : a[i];
        break;
    case LS_PROD:
        for (size_t i = 0; i < n; i++) a[i] *= b[i];
        break;
    default:
        for (size_t i = 0; i < n; i++) a[i] += b[i];
        break;
    }
}

LS_KERNEL static void combine_d(double *restrict a, const double *restrict b, size_t n, ls_redop op)
{
    switch (op) {
    case LS_MAX:
        for (size_t i = 0; i < n; i++) a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
        break;
    case LS_MIN:
        for (size_t i = 0; i < n; i++) a[i] = b[i] < a[i] || b[i] != b[i] ? b[i] : a[i];
        break;
    case LS_PROD:
        for (size_t i = 0; i < n; i++) a[i] *= b[i];
        break;
    default:
        for (size_t i = 0; i < n; i++) a[i] += b[i];
        break;
    }
}

LS_KERNEL static void combine_i(int64_t *restrict a, const int64_t *restrict b, size_t n, ls_redop op)
{
    switch (op) { /* unsigned arithmetic wraps */
    case LS_MAX:
        for (size_t i = 0; i < n; i++) a[i] = b[i] > a[i] ? b[i] : a[i];
        break;
    case LS_MIN:
        for (size_t i = 0; i < n; i++) a[i] = b[i] < a[i] ? b[i] : a[i];
        break;
    case LS_PROD:
        for (size_t i = 0; i < n; i++) a[i] = (int64_t)((uint64_t)a[i] * (uint64_t)b[i]);
        break;
    default:
        for (size_t i = 0; i < n; i++) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
        break;
    }
}

static void combine(wide *a, const wide *b, size_t n, ls_dtype t, ls_redop op)
{
    if (is_float(t)) combine_f(a->f, b->f, n, op);
    else if (t == LS_F64) combine_d(a->d, b->d, n, op);
    else combine_i(a->i, b->i, n, op);
}

static void scale_block(wide *w, size_t n, ls_dtype t, double s)
{
    if (is_float(t))
        for (size_t i = 0; i < n; i++) w->f[i] *= (float)s;
    else if (t == LS_F64)
        for (size_t i = 0; i < n; i++) w->d[i] *= s;
}

/* --- the public three ------------------------------------------------------------------ */

void ls_reduce_n(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, ls_dtype dtype, ls_redop op,
                 double scale)
{
    if (op != LS_AVG) scale = 1.0;
    if (dtype == LS_F32 && (op == LS_SUM || op == LS_AVG)) {
        sum_f32(dst, ndst, src, nsrc, count, (float)scale);
        return;
    }
    wide acc, next;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        widen(&acc, src[0], at, n, dtype);
        if (scale != 1.0) scale_block(&acc, n, dtype, scale);
        for (int k = 1; k < nsrc; k++) {
            widen(&next, src[k], at, n, dtype);
            if (scale != 1.0) scale_block(&next, n, dtype, scale);
            combine(&acc, &next, n, dtype, op);
        }
        for (int j = 0; j < ndst; j++) narrow(dst[j], at, &acc, n, dtype);
    }
}

void ls_reduce_2(void *dst, const void *src, size_t count, ls_dtype dtype, ls_redop op)
{
    void *d[1] = { dst };
    const void *s[2] = { dst, src };
    ls_reduce_n(d, 1, s, 2, count, dtype, op, 1.0);
}

static void each_block(void *v, size_t count, ls_dtype dtype, double factor, bool divide)
{
    wide w;
    if (!is_float(dtype) && dtype != LS_F64) return;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        widen(&w, v, at, n, dtype);
        if (!divide) scale_block(&w, n, dtype, factor);
        else if (dtype == LS_F64)
            for (size_t i = 0; i < n; i++) w.d[i] /= factor;
        else
            for (size_t i = 0; i < n; i++) w.f[i] /= (float)factor;
        narrow(v, at, &w, n, dtype);
    }
}

void ls_scale(void *v, size_t count, ls_dtype dtype, double factor) { each_block(v, count, dtype, factor, false); }
void ls_divide(void *v, size_t count, ls_dtype dtype, double divisor) { each_block(v, count, dtype, divisor, true); }
