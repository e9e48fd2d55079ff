/* Matrix products: every kernel and the library against the plain triple loop.
 *
 * Values are small integers, so every product and sum is exact in float and
 * all must agree to the bit: 800 * 4 * 4 < 2^24. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "base/team.h"
#include "tensor/gemm.h"
#include "tensor/gemm_few.h"
#include "tensor/gemm_tile.h"

#define SLACK 64 /* floats after C that must stay as they are, and room to shift operands */

typedef struct matrices {
    float *a, *b, *bias, *c, *want;
    int64_t na, nb, nc;
} matrices;

static float integer(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int)(*state >> 24 & 7u) - 3.0f;
}

static float fraction(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-24f - 0.5f;
}

static matrices make(const ls_gemm_call *p, float (*value)(uint32_t *))
{
    matrices m = { .na = p->m * p->k, .nb = p->k * p->n, .nc = p->m * p->n };
    uint32_t state = (uint32_t)(m.na * 31 + m.nb);
    m.a = malloc((size_t)(m.na + SLACK) * sizeof *m.a);
    m.b = malloc((size_t)(m.nb + SLACK) * sizeof *m.b);
    m.bias = malloc((size_t)(p->n + SLACK) * sizeof *m.bias);
    m.c = malloc((size_t)(m.nc + SLACK) * sizeof *m.c);
    m.want = malloc((size_t)(m.nc + SLACK) * sizeof *m.want);
    assert_true(m.a && m.b && m.bias && m.c && m.want);
    for (int64_t i = 0; i < m.na; i++) m.a[i] = value(&state);
    for (int64_t i = 0; i < m.nb; i++) m.b[i] = value(&state);
    for (int64_t i = 0; i < p->n; i++) m.bias[i] = value(&state);
    for (int64_t i = 0; i < m.nc + SLACK; i++) m.c[i] = m.want[i] = value(&state);
    return m;
}

static void drop(matrices *m)
{
    free(m->a);
    free(m->b);
    free(m->bias);
    free(m->c);
    free(m->want);
}

/* sum[j] += x * row[j]: every sum over ascending k, as many at a time as the compiler likes. */
LS_KERNEL static void add_scaled(double *restrict sum, const double *restrict row, double x, int64_t n)
{
    for (int64_t j = 0; j < n; j++) sum[j] += x * row[j];
}

static void reference(const ls_gemm_call *p, const matrices *m)
{
    double *b = malloc((size_t)(m->nb + 1) * sizeof *b), *sum = malloc((size_t)p->n * sizeof *sum);
    assert_true(b && sum);
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t j = 0; j < p->n; j++)
            b[k * p->n + j] = (double)m->b[p->trans_b ? j * p->k + k : k * p->n + j];
    for (int64_t i = 0; i < p->m; i++) {
        float *want = m->want + i * p->n;
        for (int64_t j = 0; j < p->n; j++) sum[j] = p->add ? (double)want[j] : 0.0;
        for (int64_t k = 0; k < p->k; k++)
            add_scaled(sum, b + k * p->n, (double)m->a[p->trans_a ? k * p->m + i : i * p->k + k], p->n);
        for (int64_t j = 0; j < p->n; j++) want[j] = (float)(sum[j] + (p->bias ? (double)m->bias[j] : 0.0));
    }
    free(sum);
    free(b);
}

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {
    { 1, 1, 1 },     { 1, 10, 3 },   { 3, 1, 5 },  { 2, 8, 16 },    { 5, 7, 0 }, /* k = 0: nothing but bias and C */
    { 8, 32, 64 },   { 9, 33, 17 },  { 7, 31, 8 }, { 32, 128, 64 }, { 32, 10, 128 }, { 10, 128, 32 },
    { 128, 64, 32 }, { 13, 47, 29 }, { 4, 16, 8 }, { 6, 15, 9 },    { 64, 100, 77 }, { 31, 65, 784 },
};
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define NSHAPES  COUNT(shapes)

static const float some_bias = 0.0f; /* a product has a bias; its values are made with the operands */

/* All of transposes, add and bias, in the bits of `how`. */
enum { HOW_BIAS = 8, HOWS = 16 };
static ls_gemm_call call_of(shape s, int how)
{
    return (ls_gemm_call){
        .m = s.m, .n = s.n, .k = s.k, .trans_a = how & 1, .trans_b = how & 2, .add = how & 4,
        .bias = how & HOW_BIAS ? &some_bias : NULL,
    };
}

typedef ls_status multiply_fn(void *arg, const ls_gemm_call *p);

/* The product of `how` by `run` has the bits of the plain loop, and what follows C stays. */
static void check_one(const char *who, multiply_fn *run, void *arg, const ls_gemm_call *how)
{
    ls_gemm_call p = *how;
    matrices m = make(&p, integer);
    p.a = m.a;
    p.b = m.b;
    p.c = m.c;
    p.bias = how->bias ? m.bias : NULL;
    reference(&p, &m);
    assert_int_equal(run(arg, &p), LS_OK);
    for (int64_t i = 0; i < m.nc + SLACK; i++)
        if (m.c[i] != m.want[i])
            fail_msg("%s, %d threads, %lld x %lld x %lld, transposed %d %d, add %d, bias %d: C[%lld] = %g, want %g", who,
                     ls_team_size(), (long long)p.m, (long long)p.n, (long long)p.k, p.trans_a, p.trans_b, p.add,
                     p.bias != NULL, (long long)i, (double)m.c[i], (double)m.want[i]);
    drop(&m);
}

/* The same of all shapes with each of so many hows, except products that `run` cannot do. How many there were. */
static int check_all(const char *who, multiply_fn *run, void *arg, bool (*can)(const ls_gemm_call *), const shape *s,
                     size_t n, int hows)
{
    int done = 0;
    for (size_t i = 0; i < n; i++)
        for (int how = 0; how < hows; how++) {
            const ls_gemm_call p = call_of(s[i], how);
            if (can && !can(&p)) continue;
            check_one(who, run, arg, &p);
            done++;
        }
    return done;
}

static ls_status by_tiles(void *arg, const ls_gemm_call *p) { return ls_gemm_run_tiles(arg, p); }
static ls_status by_few(void *arg, const ls_gemm_call *p) { return ls_gemm_few_run(arg, p); }
static ls_status by_library(void *arg, const ls_gemm_call *p) { return ls_gemm_library_run(arg, p); }
static ls_status by_floats(void *arg, const ls_gemm_call *p) { return ls_gemm_run_widened(arg, p); }
static ls_status by_whoever(void *arg, const ls_gemm_call *p) { return ls_gemm_run(arg, p); }
static ls_status by_row(void *unused, const ls_gemm_call *p)
{
    (void)unused;
    ls_gemm_row(p);
    return LS_OK;
}

static bool has_terms(const ls_gemm_call *p) { return p->k > 0; } /* others are never sent to the library */

/* Whether the processor runs a kernel; if not, the output says what is skipped. */
static bool runs_here(const ls_gemm_tile *t, const char *what)
{
    if (t->supported()) return true;
    printf("skipped: %s with the kernel %s: this processor lacks its instructions\n", what, t->name);
    return false;
}

static void every_tile_kernel_equals_the_plain_loop(void **state)
{
    (void)state;
    for (int i = 0; ls_gemm_tiles[i]; i++) {
        if (!runs_here(ls_gemm_tiles[i], "products")) continue;
        ls_gemm *g;
        assert_int_equal(ls_gemm_create(&g), LS_OK);
        ls_gemm_use_tile(g, ls_gemm_tiles[i]);
        check_all(ls_gemm_tiles[i]->name, by_tiles, g, NULL, shapes, NSHAPES, HOWS);
        ls_gemm_destroy(g);
    }
}

static void the_library_equals_the_plain_loop(void **state)
{
    (void)state;
    ls_gemm_library *l;
    assert_int_equal(ls_gemm_library_open(&l), LS_OK);
    check_all(ls_gemm_library_name(), by_library, l, has_terms, shapes, NSHAPES, HOWS);
    ls_gemm_library_close(l);
}

/* --- few tokens ----------------------------------------------------------------------- */

/* Odd rests of everything that walks count in: 6 and 12 rows, 16 and 64 tokens, 32 columns, groups of 96, 128 terms,
 * and more tokens than panels hold at a time. */
static const shape few_sizes[] = {
    { 1, 1, 1 },       { 17, 5, 9 },     { 16, 96, 16 },  { 33, 97, 40 },   { 48, 102, 17 },  { 63, 101, 128 },
    { 64, 192, 129 },  { 80, 107, 300 }, { 100, 300, 65 }, { 129, 31, 257 }, { 300, 104, 520 }, { 70, 40, 4200 },
    { 23, 97, 500 },   { 6, 33, 130 },
};

/* Ends a test that has nothing to look at; cmocka counts it. */
static void skip_few(const char *what)
{
    printf("not tested: %s: this processor has no kernel of few tokens\n", what);
    skip();
}

/* y, dx and dw. */
static bool is_of_few_tokens(const ls_gemm_call *p) { return !p->trans_a || (!p->trans_b && !p->bias); }

static void few_tokens_equal_the_plain_loop(void **state)
{
    (void)state;
    const int before = ls_team_size();
    int here = 0;
    for (int i = 0; ls_few_kernels[i]; i++) {
        const ls_gemm_tile *tile = ls_few_kernels[i]->tile;
        if (!runs_here(tile, "products of few tokens")) continue;
        here++;
        for (int threads = 1; threads <= 3; threads += 2) {
            ls_gemm_few *f;
            ls_team_resize(threads);
            assert_int_equal(ls_gemm_few_create(&f), LS_OK);
            ls_gemm_few_use(f, ls_few_kernels[i]);
            const int done = check_all(tile->name, by_few, f, is_of_few_tokens, few_sizes, COUNT(few_sizes), HOWS);
            assert_int_equal(done, (8 + 2) * COUNT(few_sizes)); /* y and dx: any add and bias; dw: any add */
            ls_gemm_few_destroy(f);
        }
    }
    ls_team_resize(before);
    for (int how = 0; how < HOWS; how++) {
        const ls_gemm_call p = call_of(few_sizes[0], how);
        assert_int_equal(ls_gemm_few_can(&p), here > 0 && is_of_few_tokens(&p));
    }
    if (here == 0) skip_few("products of few tokens");
}

/* Sums over ascending k in one piece, y and dx have the bits of a tile's. */
static void few_tokens_have_the_bits_of_tiles(void **state)
{
    (void)state;
    ls_gemm *g;
    ls_gemm_few *f;
    if (!ls_gemm_few_can(&(ls_gemm_call){ .m = 75, .n = 200, .k = 700 })) skip_few("bits of tiles");
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    assert_int_equal(ls_gemm_few_create(&f), LS_OK);
    for (int how = 0; how < 2; how++) {
        ls_gemm_call p = { .m = 75, .n = 200, .k = 700, .trans_b = how };
        matrices m = make(&p, fraction);
        p.a = m.a;
        p.b = m.b;
        p.c = m.want;
        assert_int_equal(ls_gemm_run_tiles(g, &p), LS_OK);
        p.c = m.c;
        assert_int_equal(ls_gemm_few_run(f, &p), LS_OK);
        assert_memory_equal(m.c, m.want, (size_t)m.nc * sizeof *m.c);
        drop(&m);
    }
    ls_gemm_few_destroy(f);
    ls_gemm_destroy(g);
}

/* The same product, but for too many tokens, or with too few outputs for threads. */
static void few_tokens_are_taken_up_to_a_limit(void **state)
{
    (void)state;
    const ls_gemm_call y = { .m = 64, .n = 768, .k = 768, .trans_b = true };
    ls_gemm_call many = y, one = y, bf16 = y, narrow = y;
    many.m = 4096;
    narrow.n = 383;
    one.m = 1;
    bf16.in = LS_BF16;
    assert_int_equal(ls_gemm_few_takes(&y), ls_gemm_few_can(&y));
    assert_false(ls_gemm_few_takes(&many));
    assert_false(ls_gemm_few_takes(&one));
    assert_false(ls_gemm_few_takes(&narrow));
    assert_false(ls_gemm_few_can(&bf16));
    if (!ls_gemm_few_can(&y)) skip_few("weights that are read as they lie");
    assert_int_equal(ls_gemm_packed_bytes(&y), 0);
}

/* --- bfloat16 ----------------------------------------------------------------------- */

static uint16_t *rounded(const float *x, int64_t n)
{
    uint16_t *r = malloc((size_t)(n + SLACK) * sizeof *r);
    assert_non_null(r);
    for (int64_t i = 0; i < n + SLACK; i++) r[i] = ls_f32_to_bf16(x[i]);
    return r;
}

/* Integers again: operands are exact in bfloat16 and sums in float, so C is the exact sum rounded once. */
static void check_bf16(const char *who, multiply_fn *run, void *arg, const ls_gemm_call *how)
{
    ls_gemm_call p = *how;
    matrices m = make(&p, integer);
    uint16_t *a = rounded(m.a, m.na), *b = rounded(m.b, m.nb), *c = rounded(m.c, m.nc);
    p.a = a;
    p.b = b;
    p.c = p.out == LS_BF16 ? (void *)c : m.c;
    p.bias = how->bias ? m.bias : NULL;
    reference(&p, &m);
    assert_int_equal(run(arg, &p), LS_OK);
    for (int64_t i = 0; i < m.nc + SLACK; i++) {
        const float got = p.out == LS_BF16 ? ls_bf16_to_f32(c[i]) : m.c[i],
                    want = p.out == LS_BF16 ? ls_bf16_to_f32(ls_f32_to_bf16(m.want[i])) : m.want[i];
        if (got != want)
            fail_msg("%s, bfloat16 to %s, %lld x %lld x %lld, transposed %d %d, add %d, bias %d: C[%lld] = %g, want %g",
                     who, ls_dtype_name(p.out), (long long)p.m, (long long)p.n, (long long)p.k, p.trans_a, p.trans_b,
                     p.add, p.bias != NULL, (long long)i, (double)got, (double)want);
    }
    free(c);
    free(b);
    free(a);
    drop(&m);
}

static void bf16_equals_the_plain_loop_rounded_once(void **state)
{
    (void)state;
    ls_gemm *g;
    ls_gemm_library *l;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    assert_int_equal(ls_gemm_library_open(&l), LS_OK);
    for (size_t s = 0; s < NSHAPES; s++)
        for (int how = 0; how < 32; how++) {
            ls_gemm_call p = call_of(shapes[s], how);
            p.in = LS_BF16;
            p.out = how & 16 ? LS_BF16 : LS_F32;
            check_bf16("floats", by_floats, g, &p);
            check_bf16("whoever", by_whoever, g, &p);
            if (p.k > 0 && ls_gemm_library_has_bf16()) check_bf16(ls_gemm_library_name(), by_library, l, &p);
        }
    /* Larger than the parts that are copied: 256, 512, 2048. And one row. */
    static const shape large[] = { { 257, 5, 40 }, { 9, 520, 2050 }, { 300, 600, 64 }, { 1, 700, 500 } };
    for (size_t s = 0; s < COUNT(large); s++)
        for (int how = 0; how < 16; how++) {
            ls_gemm_call p = call_of(large[s], how % HOW_BIAS);
            p.in = LS_BF16;
            p.out = how & HOW_BIAS ? LS_BF16 : LS_F32;
            check_bf16("floats", by_floats, g, &p);
            check_bf16("whoever", by_whoever, g, &p);
        }
    ls_gemm_library_close(l);
    ls_gemm_destroy(g);
}

/* Fractions: a float sum of k terms is off by at most about 6 sqrt(k) u times the sum of their sizes, u = 2^-24. */
static void bf16_sums_are_in_float(void **state)
{
    (void)state;
    ls_gemm *g;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    for (int how = 0; how < 4; how++) {
        ls_gemm_call p = { .m = 96, .n = 200, .k = 1000, .trans_a = how & 1, .trans_b = how & 2, .in = LS_BF16 };
        matrices m = make(&p, fraction);
        uint16_t *a = rounded(m.a, m.na), *b = rounded(m.b, m.nb);
        for (int64_t i = 0; i < m.na; i++) m.a[i] = ls_bf16_to_f32(a[i]);
        for (int64_t i = 0; i < m.nb; i++) m.b[i] = ls_bf16_to_f32(b[i]);
        reference(&p, &m);
        p.a = a;
        p.b = b;
        p.c = m.c;
        assert_int_equal(ls_gemm_run(g, &p), LS_OK);
        const double most = 6.0 * sqrt(1000.0) * 0x1p-24 * 1000.0 * 0.25; /* sizes are at most 1/4 */
        for (int64_t i = 0; i < m.nc; i++)
            if (!(fabs((double)m.c[i] - (double)m.want[i]) <= most))
                fail_msg("how %d: C[%lld] = %.9g, want %.9g +- %.2g", how, (long long)i, (double)m.c[i],
                         (double)m.want[i], most);
        free(b);
        free(a);
        drop(&m);
    }
    ls_gemm_destroy(g);
}

/* Each of the library's ways, where it can do the product. */
static void every_way_of_the_library_equals_the_plain_loop(void **state)
{
    (void)state;
    ls_gemm_library *l;
    assert_int_equal(ls_gemm_library_open(&l), LS_OK);
    for (int way = 0; ls_gemm_library_way(way); way++) {
        ls_gemm_library_force(l, way);
        check_all(ls_gemm_library_way(way), by_library, l, has_terms, shapes, NSHAPES, HOWS);
        for (size_t s = 0; s < NSHAPES && ls_gemm_library_has_bf16(); s++)
            for (int how = 0; how < 8; how++) {
                ls_gemm_call p = call_of(shapes[s], how);
                p.in = LS_BF16;
                if (p.k > 0) check_bf16(ls_gemm_library_way(way), by_library, l, &p);
            }
    }
    ls_gemm_library_close(l);
}

/* B as ls_gemm_pack left it gives the product of B; fractions, so that a term in a wrong place shows. Room that follows
 * from the shape is enough for whatever the library's layout is: 64 bytes behind it stay as they are. */
static void packed_weights_equal_the_plain_loop(void **state)
{
    (void)state;
    static const shape size[] = {
        { 64, 200, 96 },   { 128, 768, 768 }, { 2, 3000, 301 }, { 33, 65, 1023 },
        { 20, 768, 3872 }, { 256, 333, 129 }, { 16, 17, 4100 },
    };
    ls_gemm *g;
    int packed = 0;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    for (size_t s = 0; s < COUNT(size); s++)
        for (int how = 0; how < 32; how++) {
            ls_gemm_call p = {
                .m = size[s].m, .n = size[s].n, .k = size[s].k, .trans_b = how & 1, .add = how & 2,
                .in = how & 8 ? LS_BF16 : LS_F32, .out = how & 16 ? LS_BF16 : LS_F32,
            };
            if (p.in == LS_F32 && p.out == LS_BF16) continue;
            matrices m = make(&p, fraction);
            uint16_t *a = rounded(m.a, m.na), *b = rounded(m.b, m.nb), *c = rounded(m.c, m.nc);
            for (int64_t i = 0; i < m.na && p.in == LS_BF16; i++) m.a[i] = ls_bf16_to_f32(a[i]);
            for (int64_t i = 0; i < m.nb && p.in == LS_BF16; i++) m.b[i] = ls_bf16_to_f32(b[i]);
            for (int64_t i = 0; i < m.nc && p.out == LS_BF16; i++) m.want[i] = ls_bf16_to_f32(c[i]);
            p.a = p.in == LS_BF16 ? (void *)a : m.a;
            p.b = p.in == LS_BF16 ? (void *)b : m.b;
            p.c = p.out == LS_BF16 ? (void *)c : m.c;
            p.bias = how & 4 ? m.bias : NULL;
            reference(&p, &m);
            const size_t room = ls_gemm_packed_bytes(&p);
            unsigned char *to = aligned_alloc(64, room + 64);
            bool done;
            assert_non_null(to);
            memset(to, 0x5a, room + 64);
            assert_int_equal(ls_gemm_pack(g, &p, to, &done), LS_OK);
            for (size_t i = room; i < room + 64; i++) assert_int_equal(to[i], 0x5a);
            if (done) p.packed = to;
            packed += done;
            assert_true(room > 0 || !done);
            assert_int_equal(ls_gemm_run(g, &p), LS_OK);
            for (int64_t i = 0; i < m.nc; i++) {
                const double got = (double)(p.out == LS_BF16 ? ls_bf16_to_f32(c[i]) : m.c[i]), want = (double)m.want[i];
                const double most = 6.0 * sqrt((double)p.k + 2) * 0x1p-24 * (0.25 * (double)p.k + 1.0) +
                                    (p.out == LS_BF16 ? fabs(want) * 0x1p-8 : 0.0);
                if (!(fabs(got - want) <= most))
                    fail_msg("%lld x %lld x %lld, how %d: C[%lld] = %.9g, want %.9g +- %.2g", (long long)p.m,
                             (long long)p.n, (long long)p.k, how, (long long)i, got, want, most);
            }
            free(to);
            free(c);
            free(b);
            free(a);
            drop(&m);
        }
    const ls_gemm_call large = { .m = 128, .n = 768, .k = 768, .trans_b = true };
    assert_true(packed > 0 || ls_gemm_packed_bytes(&large) == 0);
    ls_gemm_destroy(g);
}

/* Shapes that are cut into pieces, the last of another size: with copies of A, of B, of columns of B, and of C. */
static void products_in_pieces_equal_the_plain_loop(void **state)
{
    (void)state;
    static const shape size[] = {
        { 1700, 900, 20 }, { 1536, 300, 30 }, { 800, 1024, 20 }, { 500, 90, 300 }, { 100, 1500, 64 },
        { 540, 530, 2100 }, /* with A transposed: split-K, with AVX2 */
        { 128, 1024, 300 }, { 100, 4096, 40 }, { 1020, 1024, 20 },
    };
    ls_gemm *g;
    ls_gemm_library *l;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    assert_int_equal(ls_gemm_library_open(&l), LS_OK);
    check_all("library", by_library, l, NULL, size, COUNT(size), HOW_BIAS);
    for (size_t s = 0; s < COUNT(size); s++)
        for (int how = 0; how < HOW_BIAS; how++) {
            ls_gemm_call p = call_of(size[s], how);
            p.in = LS_BF16;
            check_bf16("whoever", by_whoever, g, &p);
        }
    ls_gemm_library_close(l);
    ls_gemm_destroy(g);
}

/* Above 512 rows a product of floats without a bias may need no preparing; others do. */
static void products_of_many_rows_are_not_prepared(void **state)
{
    (void)state;
    const float any = 0.0f;
    ls_gemm_call p = { .m = 512, .n = 768, .k = 768, .trans_b = true };
    const bool few = ls_gemm_library_prepares(&p);
    p.m = 513;
    const bool many = ls_gemm_library_prepares(&p);
    assert_int_equal(few, strcmp(ls_gemm_library_name(), "oneDNN") == 0);
    assert_int_equal(many, few && !strstr(ls_gemm_tile_best()->name, "avx512"));
    p.bias = &any;
    assert_int_equal(ls_gemm_library_prepares(&p), few);
}

static const shape threaded[] = {
    { 256, 768, 768 }, { 64, 2304, 768 }, { 1, 5000, 768 },  { 1, 1152, 4096 }, { 33, 200, 4096 },
    { 384, 384, 2048 }, { 800, 96, 1000 }, { 768, 200, 256 }, { 1536, 520, 64 },
    { 560, 530, 2100 }, { 128, 2048, 200 }, { 1020, 1024, 20 },
};
#define THREADED COUNT(threaded)

static uint64_t hash(const float *x, int64_t n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a, of words */
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

/* C's bits, by so many threads as OpenMP has now. */
static uint64_t bits_of(ls_gemm *g, size_t size, int how)
{
    ls_gemm_call p = {
        .m = threaded[size].m, .n = threaded[size].n, .k = threaded[size].k, .trans_a = how & 1, .trans_b = how & 2,
        .in = how & 4 ? LS_BF16 : LS_F32, .add = how & 8,
    };
    matrices m = make(&p, fraction);
    uint16_t *a = rounded(m.a, m.na), *b = rounded(m.b, m.nb);
    void *packed = NULL;
    p.a = p.in == LS_BF16 ? (void *)a : m.a;
    p.b = p.in == LS_BF16 ? (void *)b : m.b;
    p.c = m.c;
    p.bias = how & 16 ? m.bias : NULL;
    if (how & 32 && ls_gemm_packed_bytes(&p) > 0) {
        bool done;
        packed = aligned_alloc(64, ls_gemm_packed_bytes(&p));
        assert_non_null(packed);
        assert_int_equal(ls_gemm_pack(g, &p, packed, &done), LS_OK);
        if (done) p.packed = packed;
    }
    assert_int_equal(ls_gemm_run(g, &p), LS_OK);
    const uint64_t h = hash(m.c, m.nc);
    free(packed);
    free(b);
    free(a);
    drop(&m);
    return h;
}

/* A transposed A is never packed, and only forward has a bias. To prepare a product takes the library 10 ms. */
static bool is_product_of_training(int how)
{
    const bool trans_a = how & 1, trans_b = how & 2, add = how & 8, bias = how & 16, pack = how & 32;
    return !(pack && trans_a) && !(bias && (trans_a || !trans_b || add));
}

/* A library splits sums over K where there are many terms and threads, and few rows; 16 threads are few to it. */
static void bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = { 1, 16, 3 }; /* the last with LOCKSTEP_TEST_LONG alone */
    const size_t sizes = getenv("LOCKSTEP_TEST_LONG") ? 3 : 2;
    const int before = ls_team_size();
    uint64_t first[THREADED][64];
    for (size_t t = 0; t < sizes; t++) {
        ls_gemm *g;
        ls_team_resize(threads[t]);
        assert_int_equal(ls_gemm_create(&g), LS_OK);
        for (size_t i = 0; i < THREADED; i++)
            for (int how = 0; how < 64; how++) {
                if (!is_product_of_training(how)) continue;
                const uint64_t got = bits_of(g, i, how);
                if (t == 0) first[i][how] = got;
                if (got != first[i][how])
                    fail_msg("%lld x %lld x %lld, how %d: other bits with %d threads than with one",
                             (long long)threaded[i].m, (long long)threaded[i].n, (long long)threaded[i].k, how,
                             threads[t]);
            }
        ls_gemm_destroy(g);
    }
    ls_team_resize(before);
}

static void one_row_equals_the_plain_loop(void **state)
{
    (void)state;
    static const struct { int64_t n, k; } size[] = {
        { 1, 1 }, { 3, 63 }, { 10, 64 }, { 7, 65 }, { 130, 771 }, { 5, 0 },
    };
    for (size_t s = 0; s < COUNT(size); s++)
        for (int how = 0; how < HOWS; how++) { /* a row is stored as its transpose is */
            ls_gemm_call p = call_of((shape){ 1, size[s].n, size[s].k }, how);
            if (p.trans_b) check_one("row", by_row, NULL, &p);
        }
}

static void run_is_right_whoever_multiplies(void **state)
{
    (void)state;
    static const shape size[] = { { 16, 16, 16 }, { 200, 210, 220 }, { 1, 500, 701 } }; /* tiles, library, row */
    ls_gemm *g;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    for (size_t i = 0; i < COUNT(size); i++) {
        const ls_gemm_call p = { .m = size[i].m, .n = size[i].n, .k = size[i].k, .trans_b = true };
        check_one("whoever", by_whoever, g, &p);
    }
    ls_gemm_destroy(g);
}

/* Fractions now: roundings would show. */
static void the_same_product_has_the_same_bits_at_any_address(void **state)
{
    (void)state;
    static const shape size[] = {
        { 32, 128, 64 }, { 10, 128, 32 }, { 61, 256, 300 }, { 65, 333, 301 },
    };
    ls_gemm *g;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    for (size_t i = 0; i < COUNT(size); i++)
        for (int how = 0; how < 16; how++) {
            ls_gemm_call p = {
                .m = size[i].m, .n = size[i].n, .k = size[i].k, .trans_a = how & 1, .trans_b = how & 2, .add = how & 4
            };
            matrices m = make(&p, fraction);
            matrices moved = make(&p, fraction);
            for (int shift = 0; shift < 17; shift += 1 + shift) {
                const size_t na = (size_t)m.na * sizeof(float), nb = (size_t)m.nb * sizeof(float),
                             nc = (size_t)m.nc * sizeof(float);
                p.bias = how & 8 ? m.bias : NULL;
                p.a = memcpy(moved.a + shift, m.a, na);
                p.b = memcpy(moved.b + shift / 2, m.b, nb);
                p.c = memcpy(moved.c + shift, m.c, nc);
                assert_int_equal(ls_gemm_run(g, &p), LS_OK);
                if (shift == 0) memcpy(moved.want, p.c, nc);
                assert_memory_equal(p.c, moved.want, nc);
            }
            drop(&moved);
            drop(&m);
        }
    ls_gemm_destroy(g);
}

static void kernels_with_fused_multiply_add_agree_to_the_bit(void **state)
{
    (void)state;
    ls_gemm_call p = { .m = 37, .n = 75, .k = 129, .trans_b = true };
    matrices m = make(&p, fraction);
    p.a = m.a;
    p.b = m.b;
    p.c = m.c;
    p.bias = m.bias;
    /* The definition: a fused sum over ascending k, then the bias. */
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < p.k; k++) sum = fmaf(m.a[i * p.k + k], m.b[j * p.k + k], sum);
            m.want[i * p.n + j] = sum + m.bias[j];
        }
    for (int i = 0; ls_gemm_tiles[i]; i++) {
        if (!ls_gemm_tiles[i]->supported() || strcmp(ls_gemm_tiles[i]->name, "plain") == 0) continue;
        ls_gemm *g;
        assert_int_equal(ls_gemm_create(&g), LS_OK);
        ls_gemm_use_tile(g, ls_gemm_tiles[i]);
        assert_int_equal(ls_gemm_run_tiles(g, &p), LS_OK);
        assert_memory_equal(m.c, m.want, (size_t)m.nc * sizeof *m.c);
        ls_gemm_destroy(g);
    }
    drop(&m);
}

static void a_row_does_not_depend_on_the_rows_around_it(void **state)
{
    (void)state;
    ls_gemm_call p = { .m = 32, .n = 40, .k = 50, .trans_b = true };
    matrices m = make(&p, fraction);
    ls_gemm *g;
    assert_int_equal(ls_gemm_create(&g), LS_OK);
    p.a = m.a;
    p.b = m.b;
    p.c = m.c;
    assert_int_equal(ls_gemm_run(g, &p), LS_OK);
    for (int64_t i = 0; i < 32; i++) {
        const ls_gemm_call one = {
            .m = 1, .n = 40, .k = 50, .trans_b = true, .a = m.a + i * 50, .b = m.b, .c = m.want
        };
        assert_int_equal(ls_gemm_run(g, &one), LS_OK);
        assert_memory_equal(m.want, m.c + i * 40, 40 * sizeof(float));
    }
    ls_gemm_destroy(g);
    drop(&m);
}

/* Ranks may be threads of one process: each has a workspace of its own, the library is shared. */
typedef struct thread_case {
    pthread_t id;
    ls_gemm_call p;
    matrices m;
    ls_status st;
} thread_case;

static void *multiply(void *arg)
{
    thread_case *c = arg;
    ls_gemm *g;
    c->st = ls_gemm_create(&g);
    for (int i = 0; i < 20 && c->st == LS_OK; i++) c->st = ls_gemm_run(g, &c->p);
    ls_gemm_destroy(g);
    return NULL;
}

static void threads_multiply_side_by_side(void **state)
{
    (void)state;
    static const shape size[] = { { 32, 128, 64 }, { 180, 190, 200 } }; /* tiles, library */
    for (size_t s = 0; s < 2; s++) {
        thread_case c[4];
        for (int i = 0; i < 4; i++) {
            c[i] = (thread_case){
                .p = { .m = size[s].m, .n = size[s].n, .k = size[s].k, .trans_b = i & 1, .trans_a = i & 2 }
            };
            c[i].m = make(&c[i].p, integer);
            c[i].p.a = c[i].m.a;
            c[i].p.b = c[i].m.b;
            c[i].p.c = c[i].m.c;
            reference(&c[i].p, &c[i].m);
        }
        for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&c[i].id, NULL, multiply, &c[i]), 0);
        for (int i = 0; i < 4; i++) {
            pthread_join(c[i].id, NULL);
            assert_int_equal(c[i].st, LS_OK);
            assert_memory_equal(c[i].m.c, c[i].m.want, (size_t)c[i].m.nc * sizeof(float));
            drop(&c[i].m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_kernel_equals_the_plain_loop),
        cmocka_unit_test(the_library_equals_the_plain_loop),
        cmocka_unit_test(few_tokens_equal_the_plain_loop),
        cmocka_unit_test(few_tokens_have_the_bits_of_tiles),
        cmocka_unit_test(few_tokens_are_taken_up_to_a_limit),
        cmocka_unit_test(bf16_equals_the_plain_loop_rounded_once),
        cmocka_unit_test(bf16_sums_are_in_float),
        cmocka_unit_test(every_way_of_the_library_equals_the_plain_loop),
        cmocka_unit_test(products_in_pieces_equal_the_plain_loop),
        cmocka_unit_test(products_of_many_rows_are_not_prepared),
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(packed_weights_equal_the_plain_loop),
        cmocka_unit_test(one_row_equals_the_plain_loop),
        cmocka_unit_test(run_is_right_whoever_multiplies),
        cmocka_unit_test(the_same_product_has_the_same_bits_at_any_address),
        cmocka_unit_test(kernels_with_fused_multiply_add_agree_to_the_bit),
        cmocka_unit_test(threads_multiply_side_by_side),
        cmocka_unit_test(a_row_does_not_depend_on_the_rows_around_it),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
