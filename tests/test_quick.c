/* Short sums and barriers of two ranks that have a core each: no work is filled while both come at once; a late peer,
 * a peer that means something else, one that ends, and one that came by another way meet what they always met. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "group/args.h"
#include "harness.h"

#define RANKS 2
#define MOST 1100 /* bytes: some behind the border between forms */

/* Of every dtype, and of mixed sizes, so that the order of a sum shows in its bits. */
static void put(void *p, ls_dtype d, size_t i, int rank)
{
    uint32_t h = ((uint32_t)i * 2654435761u + (uint32_t)rank * 40503u) * 2246822519u;
    float v = (float)(int32_t)h / 1048576.0f / (float)(1u << (h & 7u));
    switch (d) {
    case LS_F32: ((float *)p)[i] = v; break;
    case LS_F64: ((double *)p)[i] = v; break;
    case LS_BF16: ((uint16_t *)p)[i] = ls_f32_to_bf16(v); break;
    case LS_F16: ((uint16_t *)p)[i] = (uint16_t)(0x3c00u + (h >> 22)); break; /* 1 to 2 */
    case LS_I32: ((int32_t *)p)[i] = (int32_t)h; break;
    case LS_I64: ((int64_t *)p)[i] = (int64_t)h << 16; break;
    default: ((uint8_t *)p)[i] = (uint8_t)h; break;
    }
}

static ls_status one_sum(ls_group *g, size_t count, ls_dtype d, ls_redop op, bool in_place)
{
    _Alignas(8) char in[MOST + 8], out[MOST + 8], want[MOST + 8];
    const size_t elem = ls_dtype_size(d);
    memset(out, 0x5a, sizeof out);
    memset(want, 0x5a, sizeof want);
    for (size_t i = 0; i < count; i++) put(in_place ? out : in, d, i, g->rank);
    for (size_t i = 0; i < count; i++) put(want, d, i, g->rank);
    g->forced = ls_algo_find("direct"); /* a proved schedule: another way altogether, in the same order */
    LS_TRY(ls_all_reduce(g, NULL, want, count, d, op));
    g->forced = NULL;
    LS_TRY(ls_all_reduce(g, in_place ? NULL : in, out, count, d, op));
    LS_EXPECT(memcmp(out, want, count * elem + 8) == 0, "%zu %s, %s%s: other bits than by a schedule", count,
              ls_dtype_name(d), ls_redop_name(op), in_place ? ", in place" : "");
    return LS_OK;
}

static ls_status every_sum(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    for (ls_dtype d = 0; d < LS_DTYPES; d++)
        for (ls_redop op = 0; op < LS_REDOPS; op++)
            for (size_t count = 0; count * ls_dtype_size(d) <= MOST; count += count < 20 ? 1 : 37)
                if (op != LS_AVG || ls_has_average(d)) LS_TRY(one_sum(g, count, d, op, count % 2));
    return LS_OK;
}

static void sums_have_the_bits_of_a_schedule(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, every_sum, NULL);
    if (r.failed) fail_msg("%s", r.text);
    r = ls_test_ranks(LS_TEST_THREADS, RANKS, NULL, every_sum, NULL);
    if (r.failed) fail_msg("threads: %s", r.text);
}

static int works_used(const ls_group *g)
{
    int n = 0;
    for (int i = 0; i < LS_WORKS; i++) n += g->work[i].g != NULL;
    return n;
}

static void sleep_ms(int ms)
{
    const ls_env *env = ls_env_get();
    env->wait(NULL, 0, NULL, 0, env->mono_ns() + (uint64_t)ms * 1000000u);
}

/* However busy the machine is, whoever comes last to a barrier finds the others there. */
static ls_status on_time(ls_world *w, void *arg)
{
    (void)arg;
    const int64_t barriers = 1000;
    ls_group *g = ls_world_group(w);
    int64_t without = 0;
    for (int64_t b = 0; b < barriers; b++) {
        for (int i = 0; i < LS_WORKS; i++) g->work[i].g = NULL;
        LS_TRY(ls_barrier(g));
        without += works_used(g) == 0;
    }
    LS_TRY(ls_all_reduce(g, NULL, &without, 1, LS_I64, LS_SUM));
    LS_EXPECT(!g->spins || without >= barriers, "of %lld barriers only %lld were left by a rank without a work",
              (long long)barriers, (long long)without);
    return LS_OK;
}

static void who_is_on_time_needs_no_work(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, on_time, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* Each rank in turn is late. */
static ls_status each_is_late(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    ls_comm_stats before, after;
    float v = 1.0f;
    LS_TRY(ls_all_reduce(g, NULL, &v, 1, LS_F32, LS_SUM));
    ls_comm_stats_read(w, &before);
    LS_EXPECT(v == 2.0f, "a sum of ones is %g", (double)v);
    for (int late = 0; late < RANKS; late++)
        for (int i = 0; i < 3; i++) {
            if (g->rank == late) sleep_ms(20);
            v = (float)(i + g->rank);
            LS_TRY(ls_all_reduce(g, NULL, &v, 1, LS_F32, LS_SUM));
            LS_EXPECT(v == (float)(2 * i + 1), "with rank %d late a sum is %g", late, (double)v);
            if (g->rank == late) sleep_ms(5);
            LS_TRY(ls_barrier(g));
        }
    ls_comm_stats_read(w, &after);
    LS_EXPECT(after.ops - before.ops == 12, "12 collectives are counted as %llu",
              (unsigned long long)(after.ops - before.ops));
    LS_EXPECT(!g->spins || works_used(g) > 0, "rank %d waited for a late peer without a work", g->rank);
    LS_EXPECT(g->nspare == LS_WORKS, "%d works are not free", LS_WORKS - g->nspare);
    return LS_OK;
}

static void a_late_peer_is_waited_for(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, each_is_late, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* Rank 0 starts and waits, rank 1 calls: they meet. */
static ls_status by_two_ways(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    for (int i = 0; i < 200; i++) {
        float v[30], pending[4] = { 1, 2, 3, 4 };
        for (int k = 0; k < 30; k++) v[k] = (float)(i + k + g->rank);
        ls_coll_args first = { .coll = LS_ALL_REDUCE, .out = pending, .count = 4, .dtype = LS_F32 };
        ls_work *work = NULL;
        if ((i + g->rank) % 2) LS_TRY(ls_coll_start(g, &first, &work));
        else LS_TRY(ls_all_reduce(g, NULL, pending, 4, LS_F32, LS_SUM));
        LS_TRY(ls_all_reduce(g, NULL, v, 30, LS_F32, LS_SUM)); /* here behind a work in flight, there not */
        if (work) LS_TRY(ls_work_wait(work));
        LS_TRY(ls_barrier(g));
        for (int k = 0; k < 30; k++)
            LS_EXPECT(v[k] == (float)(2 * (i + k) + 1), "turn %d: element %d is %g", i, k, (double)v[k]);
        for (int k = 0; k < 4; k++) LS_EXPECT(pending[k] == (float)(2 * (k + 1)), "turn %d: %g", i, (double)pending[k]);
    }
    return LS_OK;
}

static void ways_mix(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, by_two_ways, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

typedef enum trouble { OTHER_COUNT, OTHER_OP, OTHER_DTYPE, OTHER_COLLECTIVE, LEAVES } trouble;

typedef struct difference {
    trouble kind;
    size_t count; /* of floats: in a line, or in packets */
} difference;

static ls_status in_trouble(ls_world *w, void *arg)
{
    const difference *d = arg;
    const trouble t = d->kind;
    const size_t n = d->count;
    ls_group *g = ls_world_group(w);
    double v[160] = { 0 };
    char says[64];
    snprintf(says, sizeof says, "%zu float sum", n);
    for (int i = 0; i < 50; i++) LS_TRY(ls_all_reduce(g, NULL, v, n, LS_F32, LS_SUM));
    ls_status st = LS_OK;
    if (g->rank == 0) st = ls_all_reduce(g, NULL, v, n, LS_F32, LS_SUM);
    else if (t == OTHER_COUNT) st = ls_all_reduce(g, NULL, v, n + 1, LS_F32, LS_SUM);
    else if (t == OTHER_OP) st = ls_all_reduce(g, NULL, v, n, LS_F32, LS_MAX);
    else if (t == OTHER_DTYPE) st = ls_all_reduce(g, NULL, v, n, LS_I32, LS_SUM);
    else if (t == OTHER_COLLECTIVE) st = ls_barrier(g);
    else return LS_OK;
    if (t == LEAVES) {
        LS_EXPECT(st < 0, "a sum without the other rank succeeded");
        return LS_OK;
    }
    const char *said = ls_last_error();
    LS_EXPECT(st == LS_COLL_MISMATCH, "rank %d gets %d: %s", g->rank, (int)st, said);
    LS_EXPECT(strstr(said, "all_reduce #50") && strstr(said, t == OTHER_COLLECTIVE ? "barrier #50" : says),
              "rank %d is told: %s", g->rank, said);
    return LS_OK;
}

static void a_difference_is_named(void **state)
{
    (void)state;
    static const size_t counts[] = { 2, 11, 150, 255 }; /* one packet, eleven */
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (trouble t = OTHER_COUNT; t <= LEAVES; t++) {
            ls_world_opts o = { .coll_timeout_ns = t == LEAVES ? 2000000000u : 0 };
            difference d = { t, counts[i] };
            ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, &o, in_trouble, &d);
            if (r.failed) fail_msg("kind %d, %zu floats: %s", (int)t, counts[i], r.text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_a_schedule),
        cmocka_unit_test(who_is_on_time_needs_no_work),
        cmocka_unit_test(a_late_peer_is_waited_for),
        cmocka_unit_test(ways_mix),
        cmocka_unit_test(a_difference_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
