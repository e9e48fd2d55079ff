/* Collectives in peers' memory give the bits of the schedules that describe them: all of them sum in ascending
 * rank order, so the choice by size, the transport and the placement of buffers never change a bit. */
#include <stdlib.h>
#include <string.h>

#include "group/group.h"
#include "harness.h"

#define MOST 65537
#define MOST_BYTES (MOST * sizeof(double))

/* --- data and the plain sum --------------------------------------------------------------------------- */

/* Numbers of mixed sign and size (a factor of 2^-8 to 2^7), so that the order of a sum shows in its bits. */
static double number(int rank, size_t i)
{
    uint64_t h = ((uint64_t)rank << 32 | i) * 0x9e3779b97f4a7c15ull;
    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 29;
    double unit = (double)(int32_t)(uint32_t)h / 2147483648.0;
    return unit * (double)(1u << (h >> 32 & 15u)) / 256.0;
}

static void put(void *p, ls_dtype d, size_t i, double v)
{
    if (d == LS_F32) ((float *)p)[i] = (float)v;
    else if (d == LS_F64) ((double *)p)[i] = v;
    else ((uint16_t *)p)[i] = ls_f32_to_bf16((float)v);
}

/* Element i of the result, rank after rank: averages scale each contribution first; bf16 is summed in float and
 * rounded once. */
static void plain(void *out, size_t at, ls_dtype d, ls_redop op, int n, size_t i)
{
    double f64 = 0.0;
    float f32 = 0.0f;
    for (int r = 0; r < n; r++) {
        double x = number(r, i), scale = op == LS_AVG ? 1.0 / n : 1.0;
        float y = d == LS_BF16 ? ls_bf16_to_f32(ls_f32_to_bf16((float)x)) : (float)x;
        x *= scale;
        y *= (float)scale;
        f64 = r == 0 ? x : op == LS_MAX ? (x > f64 ? x : f64) : f64 + x;
        f32 = r == 0 ? y : op == LS_MAX ? (y > f32 ? y : f32) : f32 + y;
    }
    put(out, d, at, d == LS_F64 ? f64 : (double)f32);
}

/* --- one rank ---------------------------------------------------------------------------------------------- */

typedef struct vectors {
    char *in, *out, *want;
} vectors;

static const size_t counts[] = { 1, 7, 33, 256, 257, 1024, 1025, 9000, MOST };
static const ls_dtype dtypes[] = { LS_F32, LS_F64, LS_BF16 };
static const ls_redop ops[] = { LS_SUM, LS_AVG, LS_MAX };

static ls_status compare(const ls_group *g, ls_coll coll, size_t count, ls_dtype d, ls_redop op, const char *got,
                         const char *want, size_t n)
{
    size_t elem = ls_dtype_size(d);
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i * elem, want + i * elem, elem) != 0)
            return ls_fail(LS_INTERNAL, "%s of %zu %s, %s, algorithm %s: other bits at element %zu", ls_coll_name(coll),
                           count, ls_dtype_name(d), ls_redop_name(op), g->forced ? g->forced->name : "by size", i);
    return LS_OK;
}

static ls_status both_sums(ls_group *g, const vectors *v, size_t count, ls_dtype d, ls_redop op)
{
    size_t elem = ls_dtype_size(d);
    int rank = ls_group_rank(g), n = ls_group_size(g);
    ls_range own;
    LS_TRY(ls_shard_range(count, rank, n, &own));
    for (size_t i = 0; i < count; i++) {
        put(v->in, d, i, number(rank, i));
        plain(v->want, i, d, op, n, i);
    }
    LS_TRY(ls_all_reduce(g, v->in, v->out, count, d, op));
    LS_TRY(compare(g, LS_ALL_REDUCE, count, d, op, v->out, v->want, count));
    LS_TRY(ls_reduce_scatter(g, v->in, v->out, count, d, op));
    LS_TRY(compare(g, LS_REDUCE_SCATTER, count, d, op, v->out, v->want + own.first * elem, own.count));
    LS_TRY(ls_all_reduce(g, NULL, v->in, count, d, op));
    return compare(g, LS_ALL_REDUCE, count, d, op, v->in, v->want, count);
}

typedef struct plan {
    const char *const *algo; /* NULL-ended; "" is by size */
} plan;

static ls_status every_sum(ls_world *w, void *arg)
{
    const plan *p = arg;
    ls_group *g = ls_world_group(w);
    void *registered_in, *registered_out;
    LS_TRY(ls_alloc(w, MOST_BYTES, LS_MEM_DATA, &registered_in));
    LS_TRY(ls_alloc(w, MOST_BYTES, LS_MEM_DATA, &registered_out));
    vectors private = { malloc(MOST_BYTES), malloc(MOST_BYTES), malloc(MOST_BYTES) };
    vectors registered = { registered_in, registered_out, private.want };
    LS_EXPECT(private.in && private.out && private.want, "no memory for a test");
    ls_status st = LS_OK;
    unsigned turn = 0;
    for (const char *const *a = p->algo; *a && st == LS_OK; a++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts && st == LS_OK; c++)
            for (size_t d = 0; d < 3 && st == LS_OK; d++) {
                g->forced = **a ? ls_algo_find(*a) : NULL;
                ls_redop op = ops[turn % 3];
                const vectors *v = turn++ / 3 % 2 ? &private : &registered;
                if (d == 0) /* the type that everything is trained in */
                    for (size_t o = 0; o < 3 && st == LS_OK; o++) st = both_sums(g, v, counts[c], dtypes[d], ops[o]);
                else st = both_sums(g, v, counts[c], dtypes[d], op);
            }
    free(private.in);
    free(private.out);
    free(private.want);
    return st;
}

static void equals_the_sum_in_ascending_order(ls_test_mode mode, const char *transport, const plan *p)
{
    static const int sizes[] = { 2, 3, 5, 8 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ls_world_opts o = { .transport = transport, .arena_bytes = 6u << 20 };
        plan copy = *p;
        ls_rank_report r = ls_test_ranks(mode, sizes[i], &o, every_sum, &copy);
        if (r.failed) fail_msg("%d ranks over %s: %s", sizes[i], transport, r.text);
    }
}

static const char *const by_size_too[] = { "", "oneshot", "fold", "direct", NULL };
static const char *const of_one_order[] = { "oneshot", "fold", "direct", NULL };

static void sums_in_rank_order_in_mapped_memory(void **state)
{
    (void)state;
    equals_the_sum_in_ascending_order(LS_TEST_THREADS, "shm", &(plan){ by_size_too });
}

static void sums_in_rank_order_among_processes(void **state)
{
    (void)state;
    equals_the_sum_in_ascending_order(LS_TEST_PROCESSES, "shm", &(plan){ by_size_too });
}

static void schedules_over_tcp_give_the_same_bits(void **state)
{
    (void)state;
    equals_the_sum_in_ascending_order(LS_TEST_THREADS, "tcp", &(plan){ of_one_order });
}

/* --- the ring has an order of its own, the same on every wire -------------------------------------------------- */

typedef struct ring_bits {
    char *first; /* what the first world got, [counts][MOST_BYTES] */
    bool compare;
} ring_bits;

static ls_status ring_sums(ls_world *w, void *arg)
{
    ring_bits *b = arg;
    ls_group *g = ls_world_group(w);
    int rank = ls_world_rank(w), n = ls_world_size(w);
    double *x = malloc(MOST_BYTES), *scaled = malloc(MOST_BYTES);
    LS_EXPECT(x && scaled, "no memory for a test");
    ls_status st = LS_OK;
    for (size_t c = 0; c < sizeof counts / sizeof *counts && st == LS_OK; c++)
        for (size_t d = 0; d < 3 && st == LS_OK; d++) {
            size_t bytes = counts[c] * ls_dtype_size(dtypes[d]);
            for (size_t i = 0; i < counts[c]; i++) put(x, dtypes[d], i, number(rank, i));
            st = ls_all_reduce(g, NULL, x, counts[c], dtypes[d], LS_SUM);
            char *first = b->first + (c * 3 + d) * MOST_BYTES;
            if (st == LS_OK && !b->compare && rank == 0) memcpy(first, x, bytes);
            if (st == LS_OK && b->compare)
                st = compare(g, LS_ALL_REDUCE, counts[c], dtypes[d], LS_SUM, (char *)x, first, counts[c]);
            if (st < 0 || d > 1) continue;
            /* an average is the sum of scaled contributions */
            double scale = d == 0 ? (double)(float)(1.0 / n) : 1.0 / n;
            for (size_t i = 0; i < counts[c]; i++) {
                put(x, dtypes[d], i, number(rank, i));
                if (d == 0) ((float *)scaled)[i] = ((float *)x)[i] * (float)scale;
                else scaled[i] = x[i] * scale;
            }
            st = ls_all_reduce(g, NULL, x, counts[c], dtypes[d], LS_AVG);
            if (st == LS_OK) st = ls_all_reduce(g, NULL, scaled, counts[c], dtypes[d], LS_SUM);
            if (st == LS_OK)
                st = compare(g, LS_ALL_REDUCE, counts[c], dtypes[d], LS_AVG, (char *)x, (char *)scaled, counts[c]);
        }
    free(x);
    free(scaled);
    return st;
}

static void a_ring_gives_the_same_bits_on_every_wire(void **state)
{
    (void)state;
    static const int sizes[] = { 2, 3, 5, 8 };
    ring_bits b = { .first = malloc(sizeof counts / sizeof *counts * 3 * MOST_BYTES) };
    assert_non_null(b.first);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int wire = 0; wire < 2; wire++) {
            b.compare = wire > 0;
            ls_world_opts o = { .transport = wire ? "tcp" : "shm", .algo = "ring", .arena_bytes = 6u << 20 };
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, sizes[i], &o, ring_sums, &b);
            if (r.failed) fail_msg("%d ranks over %s: %s", sizes[i], o.transport, r.text);
        }
    free(b.first);
}

/* --- the data shows the order -------------------------------------------------------------------------------- */

static void another_order_would_show(void **state)
{
    (void)state;
    size_t differ = 0;
    for (size_t i = 0; i < 1000; i++) {
        float up = 0.0f, down = 0.0f;
        for (int r = 0; r < 5; r++) up += (float)number(r, i);
        for (int r = 4; r >= 0; r--) down += (float)number(r, i);
        differ += up != down;
    }
    assert_true(differ > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_order_would_show),
        cmocka_unit_test(sums_in_rank_order_in_mapped_memory),
        cmocka_unit_test(sums_in_rank_order_among_processes),
        cmocka_unit_test(schedules_over_tcp_give_the_same_bits),
        cmocka_unit_test(a_ring_gives_the_same_bits_on_every_wire),
    };
    return cmocka_run_group_tests_name("mapped", tests, NULL, NULL);
}
