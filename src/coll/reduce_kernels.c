/* reduce_kernels.c -- the loops: one template, one line per element type.
 *
 * Each loop is plain, so that the compiler vectorises it for every instruction
 * set of LS_KERNEL. Conversions are written without branches for that reason.
 */
#include "coll/reduce_kernels.h"

#include <stdint.h>
#include <string.h>

#include "base/bf16.h"
#include "base/compiler.h"
#include "coll/reduce.h"

#define INLINE static inline __attribute__((always_inline))

/* Stored elements: views of a wire need not be aligned, and the caller's
 * memory has whatever type it has. */
typedef float f32 __attribute__((aligned(1), may_alias));
typedef double f64 __attribute__((aligned(1), may_alias));
typedef uint16_t u16 __attribute__((aligned(1), may_alias));
typedef int32_t i32 __attribute__((aligned(1), may_alias));
typedef int64_t i64 __attribute__((aligned(1), may_alias));
typedef uint8_t u8;

INLINE float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

INLINE double double_of(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

INLINE uint64_t bits_of_double(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* Moves exponent and mantissa into place; the product corrects the bias and
 * turns half subnormals into normal floats exactly. */
INLINE float from_f16(uint16_t h)
{
    uint32_t em = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t finite = bits_of(float_of(em) * 0x1p112f), special = em | 0x7f800000u;
    return float_of((em >= 0x0f800000u ? special : finite) | (uint32_t)(h & 0x8000u) << 16);
}

/* Below 2^-14 the addition of 0.5 leaves the half subnormal, rounded to even
 * by the hardware, in the lowest bits. */
INLINE uint16_t to_f16(float f)
{
    uint32_t u = bits_of(f), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    uint32_t normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
    uint32_t small = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
    uint32_t h = a < 0x38800000u ? small : normal;
    h = a >= 0x477ff000u ? 0x7c00u : h; /* from 65520 on the nearest half is infinity */
    h = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x1ffu) : h;
    return (uint16_t)(h | sign);
}

INLINE float keep_f32(float x) { return x; }
INLINE double keep_f64(double x) { return x; }
INLINE int32_t keep_i32(int32_t x) { return x; }
INLINE int64_t keep_i64(int64_t x) { return x; }
INLINE uint8_t keep_u8(uint8_t x) { return x; }

/* Wrapping, as unsigned arithmetic does and signed must not. */
INLINE float add_f32(float a, float b) { return a + b; }
INLINE double add_f64(double a, double b) { return a + b; }
INLINE int32_t add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
INLINE int64_t add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
INLINE uint8_t add_u8(uint8_t a, uint8_t b) { return (uint8_t)(a + b); }
INLINE float mul_f32(float a, float b) { return a * b; }
INLINE double mul_f64(double a, double b) { return a * b; }
INLINE int32_t mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
INLINE int64_t mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
INLINE uint8_t mul_u8(uint8_t a, uint8_t b) { return (uint8_t)(a * b); }

INLINE float scaled_f32(float a, double s) { return a * (float)s; }
INLINE double scaled_f64(double a, double s) { return a * s; }
INLINE int32_t scaled_i32(int32_t a, double s) { (void)s; return a; }
INLINE int64_t scaled_i64(int64_t a, double s) { (void)s; return a; }
INLINE uint8_t scaled_u8(uint8_t a, double s) { (void)s; return a; }

INLINE float divided_f32(float a, double by) { return a / (float)by; }
INLINE double divided_f64(double a, double by) { return a / by; }
INLINE int32_t divided_i32(int32_t a, double by) { (void)by; return a; }
INLINE int64_t divided_i64(int64_t a, double by) { (void)by; return a; }
INLINE uint8_t divided_u8(uint8_t a, double by) { (void)by; return a; }

/* Of equal numbers with unlike bits, which are zeros: +0 where the sign bits are combined by AND, -0 by OR. */
INLINE float equal_and_f32(float a, float b) { return float_of(bits_of(a) & bits_of(b)); }
INLINE float equal_or_f32(float a, float b) { return float_of(bits_of(a) | bits_of(b)); }
INLINE double equal_and_f64(double a, double b) { return double_of(bits_of_double(a) & bits_of_double(b)); }
INLINE double equal_or_f64(double a, double b) { return double_of(bits_of_double(a) | bits_of_double(b)); }

/* A NaN on either side stays, so that a bad gradient is seen. +0 is above -0, so that two ranks that
 * combine the same two vectors, each its own first, get the same bits. */
INLINE float max_f32(float a, float b) { return a > b || a != a ? a : a == b ? equal_and_f32(a, b) : b; }
INLINE float min_f32(float a, float b) { return a < b || a != a ? a : a == b ? equal_or_f32(a, b) : b; }
INLINE double max_f64(double a, double b) { return a > b || a != a ? a : a == b ? equal_and_f64(a, b) : b; }
INLINE double min_f64(double a, double b) { return a < b || a != a ? a : a == b ? equal_or_f64(a, b) : b; }
INLINE int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }
INLINE int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }
INLINE int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE uint8_t max_u8(uint8_t a, uint8_t b) { return a > b ? a : b; }
INLINE uint8_t min_u8(uint8_t a, uint8_t b) { return a < b ? a : b; }

/* NAME; T as stored, A as accumulated; IN and OUT convert; C names A's arithmetic. */
#define KERNELS(NAME, T, A, IN, OUT, C)                                                                                \
    LS_KERNEL static void NAME##_into_sum(void *dst, const void *src, size_t n)                                        \
    {                                                                                                                  \
        T *restrict d = dst;                                                                                           \
        const T *restrict s = src;                                                                                     \
        for (size_t i = 0; i < n; i++) d[i] = OUT(add_##C(IN(d[i]), IN(s[i])));                                        \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_into_prod(void *dst, const void *src, size_t n)                                       \
    {                                                                                                                  \
        T *restrict d = dst;                                                                                           \
        const T *restrict s = src;                                                                                     \
        for (size_t i = 0; i < n; i++) d[i] = OUT(mul_##C(IN(d[i]), IN(s[i])));                                        \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_into_max(void *dst, const void *src, size_t n)                                        \
    {                                                                                                                  \
        T *restrict d = dst;                                                                                           \
        const T *restrict s = src;                                                                                     \
        for (size_t i = 0; i < n; i++) d[i] = OUT(max_##C(IN(d[i]), IN(s[i])));                                        \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_into_min(void *dst, const void *src, size_t n)                                        \
    {                                                                                                                  \
        T *restrict d = dst;                                                                                           \
        const T *restrict s = src;                                                                                     \
        for (size_t i = 0; i < n; i++) d[i] = OUT(min_##C(IN(d[i]), IN(s[i])));                                        \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_load(void *acc, const void *src, size_t n, double scale)                              \
    {                                                                                                                  \
        A *restrict a = acc;                                                                                           \
        const T *restrict s = src;                                                                                     \
        for (size_t i = 0; i < n; i++) a[i] = scaled_##C(IN(s[i]), scale);                                             \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_sum(void *acc, const void *src, size_t n, double scale)                               \
    {                                                                                                                  \
        A *restrict a = acc;                                                                                           \
        const T *restrict s = src;                                                                                     \
        for (size_t i = 0; i < n; i++) a[i] = add_##C(a[i], scaled_##C(IN(s[i]), scale));                              \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_prod(void *acc, const void *src, size_t n, double scale)                              \
    {                                                                                                                  \
        A *restrict a = acc;                                                                                           \
        const T *restrict s = src;                                                                                     \
        (void)scale;                                                                                                   \
        for (size_t i = 0; i < n; i++) a[i] = mul_##C(a[i], IN(s[i]));                                                 \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_max(void *acc, const void *src, size_t n, double scale)                               \
    {                                                                                                                  \
        A *restrict a = acc;                                                                                           \
        const T *restrict s = src;                                                                                     \
        (void)scale;                                                                                                   \
        for (size_t i = 0; i < n; i++) a[i] = max_##C(a[i], IN(s[i]));                                                 \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_min(void *acc, const void *src, size_t n, double scale)                               \
    {                                                                                                                  \
        A *restrict a = acc;                                                                                           \
        const T *restrict s = src;                                                                                     \
        (void)scale;                                                                                                   \
        for (size_t i = 0; i < n; i++) a[i] = min_##C(a[i], IN(s[i]));                                                 \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_store(void *dst, const void *acc, size_t n)                                           \
    {                                                                                                                  \
        T *restrict d = dst;                                                                                           \
        const A *restrict a = acc;                                                                                     \
        for (size_t i = 0; i < n; i++) d[i] = OUT(a[i]);                                                               \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_scale(void *v, size_t n, double factor)                                               \
    {                                                                                                                  \
        T *a = v;                                                                                                      \
        for (size_t i = 0; i < n; i++) a[i] = OUT(scaled_##C(IN(a[i]), factor));                                       \
    }                                                                                                                  \
    LS_KERNEL static void NAME##_divide(void *v, size_t n, double divisor)                                             \
    {                                                                                                                  \
        T *a = v;                                                                                                      \
        for (size_t i = 0; i < n; i++) a[i] = OUT(divided_##C(IN(a[i]), divisor));                                     \
    }

KERNELS(f32, f32, float, keep_f32, keep_f32, f32)
KERNELS(f64, f64, double, keep_f64, keep_f64, f64)
KERNELS(bf16, u16, float, ls_from_bf16, ls_to_bf16, f32)
KERNELS(f16, u16, float, from_f16, to_f16, f32)
KERNELS(i32, i32, int32_t, keep_i32, keep_i32, i32)
KERNELS(i64, i64, int64_t, keep_i64, keep_i64, i64)
KERNELS(u8, u8, uint8_t, keep_u8, keep_u8, u8)

#define ROW(NAME)                                                                                                      \
    {                                                                                                                  \
        .into = { [LS_SUM] = NAME##_into_sum, [LS_AVG] = NAME##_into_sum, [LS_MAX] = NAME##_into_max,                  \
                  [LS_MIN] = NAME##_into_min, [LS_PROD] = NAME##_into_prod },                                          \
        .load = NAME##_load,                                                                                           \
        .combine = { [LS_SUM] = NAME##_sum, [LS_AVG] = NAME##_sum, [LS_MAX] = NAME##_max, [LS_MIN] = NAME##_min,       \
                     [LS_PROD] = NAME##_prod },                                                                        \
        .store = NAME##_store, .scale = NAME##_scale, .divide = NAME##_divide,        \
    }

const ls_reduce_kernels ls_reduce_kernel_table[LS_DTYPES] = {
    [LS_F32] = ROW(f32), [LS_F64] = ROW(f64), [LS_BF16] = ROW(bf16), [LS_F16] = ROW(f16),
    [LS_I32] = ROW(i32), [LS_I64] = ROW(i64), [LS_U8] = ROW(u8),
};

/* The pointers are copied to locals and the counts are constants after
 * inlining, so this becomes one loop over N + K streams. ivdep: a destination
 * may be a source, but then at the same index, which is read before. */
INLINE void streams(void *const *dst, int K, const void *const *src, int N, size_t n, float scale)
{
    const f32 *a = src[0], *b = src[1], *c = src[N > 2 ? 2 : 0], *d = src[N > 3 ? 3 : 0];
    f32 *p = dst[0], *q = dst[K > 1 ? 1 : 0], *r = dst[K > 2 ? 2 : 0], *s = dst[K > 3 ? 3 : 0];
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        float v = a[i] * scale + b[i] * scale;
        if (N > 2) v += c[i] * scale;
        if (N > 3) v += d[i] * scale;
        p[i] = v;
        if (K > 1) q[i] = v;
        if (K > 2) r[i] = v;
        if (K > 3) s[i] = v;
    }
}

LS_KERNEL static void f32_1_2(void *const *dst, const void *const *src, size_t n, float scale)
{
    streams(dst, 1, src, 2, n, scale);
}
LS_KERNEL static void f32_2_2(void *const *dst, const void *const *src, size_t n, float scale)
{
    streams(dst, 2, src, 2, n, scale);
}
LS_KERNEL static void f32_1_3(void *const *dst, const void *const *src, size_t n, float scale)
{
    streams(dst, 1, src, 3, n, scale);
}
LS_KERNEL static void f32_3_3(void *const *dst, const void *const *src, size_t n, float scale)
{
    streams(dst, 3, src, 3, n, scale);
}
LS_KERNEL static void f32_1_4(void *const *dst, const void *const *src, size_t n, float scale)
{
    streams(dst, 1, src, 4, n, scale);
}
LS_KERNEL static void f32_4_4(void *const *dst, const void *const *src, size_t n, float scale)
{
    streams(dst, 4, src, 4, n, scale);
}

LS_KERNEL void ls_reduce_f32_add3(float *acc, const void *const *src, size_t n, float scale)
{
    float *restrict a = acc;
    const f32 *restrict b = src[0], *restrict c = src[1], *restrict d = src[2];
    for (size_t i = 0; i < n; i++) a[i] = a[i] + b[i] * scale + c[i] * scale + d[i] * scale;
}

bool ls_reduce_f32_streams(void *const *dst, int ndst, const void *const *src, int nsrc, size_t n, float scale)
{
    static const struct {
        int ndst, nsrc;
        void (*run)(void *const *dst, const void *const *src, size_t n, float scale);
    } row[] = {
        { 2, 2, f32_2_2 }, { 1, 2, f32_1_2 }, { 4, 4, f32_4_4 }, { 1, 4, f32_1_4 }, { 3, 3, f32_3_3 }, { 1, 3, f32_1_3 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].ndst == ndst && row[i].nsrc == nsrc) {
            row[i].run(dst, src, n, scale);
            return true;
        }
    return false;
}

float ls_f16_to_f32(uint16_t h) { return from_f16(h); }
uint16_t ls_f32_to_f16(float f) { return to_f16(f); }
