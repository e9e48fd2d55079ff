/* bf16 on the wire: all_reduce and reduce_scatter of f32 between nodes, against the rule computed another way; the same
 * bits everywhere. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/debug.h"
#include "harness.h"

#define S 1000000000ull
#define MOST 5
#define COUNT 30011u /* floats: above what travels as it is, and no multiple of anything */

/* Rounding to 8 significant bits, ties to even, by arithmetic and not by bits. */
static float rounded(float x)
{
    int e;
    double m = frexp((double)x, &e); /* [0.5, 1) */
    return (float)ldexp(nearbyint(ldexp(m, 8)), e - 8);
}

static float value(int rank, size_t i)
{
    uint32_t h = (uint32_t)(i * 2654435761u) ^ ((uint32_t)rank * 40503u);
    h = (h ^ h >> 15) * 2246822519u;
    return ((float)(h >> 8) / 16777216.0f - 0.5f) * (i % 11 == 0 ? 100.0f : 1.0f);
}

typedef struct job {
    int n;
    const char *transport, *algo;
    const int *node;
    ls_redop op;
} job;

/* Every rank has rank 0's bits. */
static ls_status same_bits(ls_world *w, const float *x, size_t count)
{
    float *zero = malloc(count * sizeof *zero);
    if (!zero) return ls_fail(LS_NO_MEMORY, "a copy");
    memcpy(zero, x, count * sizeof *zero);
    ls_status st = ls_broadcast(ls_world_group(w), zero, count, LS_F32, 0);
    if (st == LS_OK && memcmp(zero, x, count * sizeof *zero) != 0) st = ls_fail(LS_INTERNAL, "not rank 0's bits");
    free(zero);
    return st;
}

static int owner_of(const job *j, size_t i)
{
    for (int r = 0; r < j->n; r++) {
        ls_range share;
        (void)ls_shard_range(COUNT, r, j->n, &share);
        if (i >= share.first && i < share.first + share.count) return r;
    }
    return -1;
}

/* The owner adds in rank order: its own part as it is, the others' rounded. */
static float sum_by_direct(const job *j, size_t i, int owner)
{
    float sum = 0, scale = j->op == LS_AVG ? (float)(1.0 / j->n) : 1.0f;
    for (int r = 0; r < j->n; r++) {
        float x = r == owner ? value(r, i) : rounded(value(r, i));
        sum = r == 0 ? x * scale : sum + x * scale;
    }
    return sum;
}

static float by_direct(const job *j, size_t i) { return rounded(sum_by_direct(j, i, owner_of(j, i))); }

/* Bytes that this rank sent since `before`: what the counter and the schedule's reader say. */
static ls_status sent(ls_world *w, const ls_coll_args *a, const ls_comm_stats *before, uint64_t *out)
{
    ls_comm_stats after;
    ls_traffic said;
    ls_comm_stats_read(w, &after);
    *out = after.bytes - before->bytes;
    if (a->span) return LS_OK;
    LS_TRY(ls_debug_traffic(ls_world_group(w), a, &said));
    return said.counted == *out ? LS_OK
                                : ls_fail(LS_INTERNAL, "%s: %llu bytes sent, and the schedule says %llu", ls_coll_name(a->coll),
                                          (unsigned long long)*out, (unsigned long long)said.counted);
}

static ls_status direct_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    float *x = malloc(COUNT * sizeof *x);
    if (!x) return ls_fail(LS_NO_MEMORY, "floats");
    for (size_t i = 0; i < COUNT; i++) x[i] = value(ls_world_rank(w), i);
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = COUNT, .dtype = LS_F32, .op = j->op };
    ls_comm_stats before;
    uint64_t bytes = 0;
    ls_comm_stats_read(w, &before);
    ls_status st = ls_all_reduce(ls_world_group(w), NULL, x, COUNT, LS_F32, j->op);
    if (st == LS_OK) st = sent(w, &a, &before, &bytes);
    for (size_t i = 0; i < COUNT && st == LS_OK; i++)
        if (x[i] != by_direct(j, i))
            st = ls_fail(LS_INTERNAL, "[%zu] = %.9g, expected %.9g", i, (double)x[i], (double)by_direct(j, i));
    ls_range own;
    (void)ls_shard_range(COUNT, ls_world_rank(w), j->n, &own);
    /* two bytes each: the others' shares to them, and the own one to all others */
    const uint64_t want = 2 * (COUNT - own.count + (uint64_t)(j->n - 1) * own.count);
    if (st == LS_OK && bytes != want)
        st = ls_fail(LS_INTERNAL, "%llu bytes sent, expected %llu", (unsigned long long)bytes, (unsigned long long)want);
    if (st == LS_OK) st = same_bits(w, x, COUNT);
    free(x);
    return st;
}

static void run(const job *j, ls_test_mode mode, ls_rank_fn fn)
{
    ls_world_opts o = { .transport = j->transport, .algo = j->algo, .node = j->node, .wire_bf16 = true,
                        .arena_bytes = 4u << 20, .join_timeout_ns = 20 * S };
    ls_rank_report r = ls_test_ranks(mode, j->n, &o, fn, (void *)(uintptr_t)j);
    if (r.failed) fail_msg("%d ranks over %s: %s", j->n, j->transport, r.text);
}

static void rounds_contributions_and_sums_once(void **state)
{
    (void)state;
    static const int apart[MOST] = { 0, 1, 2, 3, 4 };
    for (int n = 2; n <= MOST; n++)
        for (int avg = 0; avg < 2; avg++) {
            job j = { n, "tcp", NULL, NULL, avg ? LS_AVG : LS_SUM };
            run(&j, LS_TEST_THREADS, direct_rank);
            j.transport = "mixed";
            j.node = apart;
            run(&j, LS_TEST_THREADS, direct_rank);
        }
    job j = { 3, "tcp", NULL, NULL, LS_SUM };
    run(&j, LS_TEST_PROCESSES, direct_rank);
}

/* Two hosts: inside, f32; one of the two sums travels rounded, the whole is rounded. Which one depends on the chunk. */
static ls_status two_hosts_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    float *x = malloc(COUNT * sizeof *x);
    if (!x) return ls_fail(LS_NO_MEMORY, "floats");
    for (size_t i = 0; i < COUNT; i++) x[i] = value(ls_world_rank(w), i);
    ls_status st = ls_all_reduce(ls_world_group(w), NULL, x, COUNT, LS_F32, LS_SUM);
    size_t which[2] = { 0, 0 };
    for (size_t i = 0; i < COUNT && st == LS_OK; i++) {
        float host[2];
        bool begun[2] = { false, false };
        for (int r = 0; r < j->n; r++) {
            int h = j->node[r];
            host[h] = begun[h] ? host[h] + value(r, i) : value(r, i);
            begun[h] = true;
        }
        float here = rounded(host[0] + rounded(host[1])), there = rounded(rounded(host[0]) + host[1]);
        if (x[i] == here) which[0]++;
        if (x[i] == there) which[1]++;
        if (x[i] != here && x[i] != there)
            st = ls_fail(LS_INTERNAL, "[%zu] = %.9g, expected %.9g or %.9g", i, (double)x[i], (double)here, (double)there);
    }
    if (st == LS_OK && (which[0] == COUNT || which[1] == COUNT)) st = ls_fail(LS_INTERNAL, "one host ends every chunk");
    if (st == LS_OK) st = same_bits(w, x, COUNT);
    free(x);
    return st;
}

static void keeps_f32_inside_a_host(void **state)
{
    (void)state;
    static const int in_order[] = { 0, 0, 1, 1 }, interleaved[] = { 0, 1, 0, 1 };
    job j = { 4, "mixed", NULL, in_order, LS_SUM };
    run(&j, LS_TEST_THREADS, two_hosts_rank);
    j.node = interleaved;
    run(&j, LS_TEST_THREADS, two_hosts_rank);
    run(&j, LS_TEST_PROCESSES, two_hosts_rank);
}

/* A ring rounds what it passes on at each hop, and the end. */
static float sum_by_ring(const job *j, size_t i, int owner)
{
    float sum = value((owner + 1) % j->n, i);
    for (int k = 2; k <= j->n; k++) sum = value((owner + k) % j->n, i) + rounded(sum);
    return sum;
}

static float by_ring(const job *j, size_t i) { return rounded(sum_by_ring(j, i, owner_of(j, i))); }

static ls_status ring_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    float *x = malloc(COUNT * sizeof *x);
    if (!x) return ls_fail(LS_NO_MEMORY, "floats");
    for (size_t i = 0; i < COUNT; i++) x[i] = value(ls_world_rank(w), i);
    ls_status st = ls_all_reduce(ls_world_group(w), NULL, x, COUNT, LS_F32, LS_SUM);
    for (size_t i = 0; i < COUNT && st == LS_OK; i++)
        if (x[i] != by_ring(j, i))
            st = ls_fail(LS_INTERNAL, "[%zu] = %.9g, expected %.9g", i, (double)x[i], (double)by_ring(j, i));
    if (st == LS_OK) st = same_bits(w, x, COUNT);
    free(x);
    return st;
}

static void rounds_at_each_hop_of_a_ring(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        job j = { n, "tcp", "ring", NULL, LS_SUM };
        run(&j, LS_TEST_THREADS, ring_rank);
    }
}

/* --- reduce_scatter: by the same rules; nobody else gets a sum, so it stays as it was added ------------- */

/* Each rank sends a share to its owner, who adds the own one first, then the others as the rounds bring them. */
static float sum_by_pairs(const job *j, size_t i, int owner)
{
    float sum = value(owner, i);
    for (int k = 1; k < j->n; k++) {
        const int from = (j->n & (j->n - 1)) == 0 ? owner ^ k : (owner + j->n - k) % j->n;
        sum += rounded(value(from, i));
    }
    return sum;
}

/* Two nodes: the owner's node in f32, and the other node's sum, rounded once. */
static float sum_by_nodes(const job *j, size_t i, int owner)
{
    float node[2];
    bool begun[2] = { false, false };
    for (int r = 0; r < j->n; r++) {
        const int h = j->node[r];
        node[h] = begun[h] ? node[h] + value(r, i) : value(r, i);
        begun[h] = true;
    }
    return node[j->node[owner]] + rounded(node[!j->node[owner]]);
}

static float expected_share(const job *j, size_t i, int owner)
{
    if (j->node) return sum_by_nodes(j, i, owner);
    if (j->algo && strstr(j->algo, "pairwise")) return sum_by_pairs(j, i, owner);
    return j->algo ? sum_by_ring(j, i, owner) : sum_by_direct(j, i, owner);
}

/* The share of a reduce_scatter, and that of an all_reduce of the same values: the first one rounded, where one
 * schedule carries out both. */
static ls_status scatter_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    const int me = ls_world_rank(w);
    ls_group *g = ls_world_group(w);
    float *x = malloc(COUNT * sizeof *x), *share = malloc(COUNT * sizeof *share);
    ls_status st = x && share ? LS_OK : ls_fail(LS_NO_MEMORY, "floats");
    ls_range own;
    (void)ls_shard_range(COUNT, me, j->n, &own);
    for (int apart = 0; apart < 2 && st == LS_OK; apart++) {
        const ls_coll_args a = { .coll = LS_REDUCE_SCATTER, .in = apart ? x : NULL, .out = apart ? share : x,
                                 .count = COUNT, .dtype = LS_F32, .op = j->op };
        ls_comm_stats before;
        uint64_t bytes = 0;
        for (size_t i = 0; i < COUNT; i++) x[i] = value(me, i);
        ls_comm_stats_read(w, &before);
        st = ls_reduce_scatter(g, a.in, a.out, COUNT, LS_F32, j->op);
        if (st == LS_OK) st = sent(w, &a, &before, &bytes);
        if (st == LS_OK && !j->node && !j->algo && bytes != 2 * (COUNT - own.count))
            st = ls_fail(LS_INTERNAL, "%llu bytes sent, expected two for each of the others' %zu elements",
                         (unsigned long long)bytes, COUNT - own.count);
        const float *got = apart ? share : x + own.first;
        for (size_t i = 0; i < own.count && st == LS_OK; i++) {
            const float want = expected_share(j, own.first + i, me);
            if (got[i] != want)
                st = ls_fail(LS_INTERNAL, "[%zu] = %.9g, expected %.9g", own.first + i, (double)got[i], (double)want);
            if (apart && x[own.first + i] != value(me, own.first + i)) st = ls_fail(LS_INTERNAL, "the input has changed");
        }
    }
    if (st == LS_OK && !j->node && (!j->algo || strcmp(j->algo, "ring") == 0)) {
        st = ls_all_reduce(g, NULL, x, COUNT, LS_F32, j->op);
        for (size_t i = 0; i < own.count && st == LS_OK; i++)
            if (x[own.first + i] != rounded(share[i])) st = ls_fail(LS_INTERNAL, "[%zu]: not all_reduce's", own.first + i);
    }
    free(x);
    free(share);
    return st;
}

static void scatters_by_the_same_rules(void **state)
{
    (void)state;
    static const int in_order[] = { 0, 0, 1, 1 }, interleaved[] = { 0, 1, 0, 1 };
    for (int n = 2; n <= MOST; n++) {
        job j = { n, "tcp", NULL, NULL, LS_SUM };
        run(&j, LS_TEST_THREADS, scatter_rank);
        j.op = LS_AVG;
        run(&j, LS_TEST_THREADS, scatter_rank);
        j.op = LS_SUM;
        j.algo = "ring";
        run(&j, LS_TEST_THREADS, scatter_rank);
        j.algo = "reduce_scatter=pairwise";
        run(&j, LS_TEST_THREADS, scatter_rank);
    }
    job j = { 4, "mixed", NULL, in_order, LS_SUM };
    run(&j, LS_TEST_THREADS, scatter_rank);
    j.node = interleaved;
    run(&j, LS_TEST_THREADS, scatter_rank);
    run(&j, LS_TEST_PROCESSES, scatter_rank);
}

/* Rows of two matrices, as ZeRO has its gradients: a rank owns rows of each. */
static ls_status rows_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    const int me = ls_world_rank(w);
    const ls_matrix_span span[] = { { .first = 0, .rows = 37, .row = 501 },
                                    { .first = 20000, .rows = 5, .row = 2001 } };
    float *x = malloc(COUNT * sizeof *x), *share = malloc(COUNT * sizeof *share);
    ls_status st = x && share ? LS_OK : ls_fail(LS_NO_MEMORY, "floats");
    for (size_t i = 0; i < COUNT && st == LS_OK; i++) x[i] = value(me, i);
    const ls_coll_args a = { .coll = LS_REDUCE_SCATTER, .in = x, .out = share, .count = COUNT, .dtype = LS_F32,
                             .op = LS_SUM, .span = span, .nspans = 2 };
    ls_comm_stats before;
    uint64_t bytes = 0;
    size_t at = 0, all = 0;
    ls_work *work;
    ls_comm_stats_read(w, &before);
    if (st == LS_OK) st = ls_coll_start(ls_world_group(w), &a, &work);
    if (st == LS_OK) st = ls_work_wait(work);
    if (st == LS_OK) st = sent(w, &a, &before, &bytes);
    for (int s = 0; s < 2; s++) {
        ls_range rows;
        (void)ls_shard_range(span[s].rows, me, j->n, &rows);
        all += span[s].rows * span[s].row;
        for (size_t k = 0; k < rows.count * span[s].row && st == LS_OK; k++, at++) {
            const size_t i = span[s].first + rows.first * span[s].row + k;
            const float want = sum_by_direct(j, i, me);
            if (share[at] != want)
                st = ls_fail(LS_INTERNAL, "[%zu] = %.9g, expected %.9g", i, (double)share[at], (double)want);
        }
    }
    if (st == LS_OK && bytes != 2 * (all - at))
        st = ls_fail(LS_INTERNAL, "%llu bytes sent, expected two for each of the others' %zu elements",
                     (unsigned long long)bytes, all - at);
    free(x);
    free(share);
    return st;
}

static void scatters_rows_of_matrices(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        job j = { n, "tcp", NULL, NULL, LS_SUM };
        run(&j, LS_TEST_THREADS, rows_rank);
    }
}

/* What is not rounded: short vectors, other operations, other types, other collectives, groups inside a host. */
static ls_status untouched_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    ls_group *g = ls_world_group(w), *host;
    int me = ls_world_rank(w), n = j->n;
    float *x = malloc(2 * COUNT * sizeof *x);
    double *d = malloc(COUNT * sizeof *d);
    ls_status st = x && d ? LS_OK : ls_fail(LS_NO_MEMORY, "vectors");
    const float fine = 1.0f + 0x1p-20f; /* bf16 would make it 1 */

    for (size_t i = 0; i < COUNT; i++) x[i] = fine, d[i] = (double)fine;
    if (st == LS_OK) st = ls_all_reduce(g, NULL, x, 8192, LS_F32, LS_SUM);
    if (st == LS_OK && x[8191] != (float)n * fine) st = ls_fail(LS_INTERNAL, "32 KiB are rounded");
    for (size_t i = 0; i < COUNT; i++) x[i] = fine;
    if (st == LS_OK) st = ls_reduce_scatter(g, NULL, x, 8192, LS_F32, LS_SUM);
    if (st == LS_OK && x[8192 / n * me] != (float)n * fine) st = ls_fail(LS_INTERNAL, "32 KiB of shares are rounded");
    if (st == LS_OK) st = ls_all_reduce(g, NULL, d, COUNT, LS_F64, LS_SUM);
    if (st == LS_OK && d[COUNT - 1] != n * (double)fine) st = ls_fail(LS_INTERNAL, "doubles are rounded");
    for (size_t i = 0; i < COUNT; i++) x[i] = fine + (float)me;
    if (st == LS_OK) st = ls_all_reduce(g, NULL, x, COUNT, LS_F32, LS_MAX);
    if (st == LS_OK && x[COUNT - 1] != fine + (float)(n - 1)) st = ls_fail(LS_INTERNAL, "a maximum is rounded");
    for (size_t i = 0; i < COUNT; i++) x[i] = fine;
    if (st == LS_OK) st = ls_broadcast(g, x, COUNT, LS_F32, 0);
    if (st == LS_OK && x[COUNT - 1] != fine) st = ls_fail(LS_INTERNAL, "a broadcast is rounded");
    if (st == LS_OK) st = ls_group_split(g, j->node[me], &host);
    if (st == LS_OK) {
        st = ls_all_reduce(host, NULL, x, COUNT, LS_F32, LS_SUM);
        if (st == LS_OK && x[0] != (float)ls_group_size(host) * fine) st = ls_fail(LS_INTERNAL, "a host's sum is rounded");
        ls_group_destroy(host);
    }
    free(x);
    free(d);
    return st;
}

static void leaves_all_else_as_it_is(void **state)
{
    (void)state;
    static const int node[] = { 0, 0, 1, 1 };
    job j = { 4, "mixed", NULL, node, LS_SUM };
    run(&j, LS_TEST_THREADS, untouched_rank);
}

static ls_status special_rank(ls_world *w, void *arg)
{
    (void)arg;
    float *x = malloc(COUNT * sizeof *x);
    if (!x) return ls_fail(LS_NO_MEMORY, "floats");
    bool first = ls_world_rank(w) == 0;
    for (size_t i = 0; i < COUNT; i++) x[i] = i % 4 == 0 && first ? NAN : i % 4 == 1 && first ? INFINITY : 1e-30f;
    ls_status st = ls_all_reduce(ls_world_group(w), NULL, x, COUNT, LS_F32, LS_SUM);
    for (size_t i = 0; i < COUNT && st == LS_OK; i++)
        if (i % 4 == 0 ? !isnan(x[i]) : i % 4 == 1 ? !isinf(x[i]) : !(x[i] > 1.9e-30f && x[i] < 2.1e-30f))
            st = ls_fail(LS_INTERNAL, "[%zu] = %g", i, (double)x[i]);
    free(x);
    return st;
}

static void keeps_nan_infinity_and_small_values(void **state)
{
    (void)state;
    job j = { 2, "tcp", NULL, NULL, LS_SUM };
    run(&j, LS_TEST_THREADS, special_rank);
}

static ls_status nothing(ls_world *w, void *arg)
{
    (void)w;
    (void)arg;
    return LS_OK;
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *transport, *algo, *says;
    } row[] = {
        { "shm", NULL, "comm.wire: bf16 is for connections between nodes, and transport 'shm' has none" },
        { "fault:shm", NULL, "transport 'fault:shm' has none" },
        { NULL, NULL, "transport 'shm' has none" },
        { "tcp", "oneshot", "an algorithm of all_reduce where one rank completes each sum (ring, direct, hierarchical), "
                            "not with oneshot" },
        { "tcp", "recursive_doubling", "not with recursive_doubling" },
        { "tcp", "reduce_scatter=oneshot", "an algorithm of reduce_scatter where one rank completes each sum (ring, "
                                           "direct, hierarchical, pairwise), not with oneshot" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_world_opts o = { .transport = row[i].transport, .algo = row[i].algo, .wire_bf16 = true };
        assert_int_equal(ls_world_threads(2, &o, nothing, NULL), LS_BAD_CONFIG);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    ls_world_opts o = { .wire_bf16 = true }; /* a world of one has no wire at all */
    assert_int_equal(ls_world_threads(1, &o, nothing, NULL), LS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_contributions_and_sums_once),
        cmocka_unit_test(keeps_f32_inside_a_host),
        cmocka_unit_test(rounds_at_each_hop_of_a_ring),
        cmocka_unit_test(scatters_by_the_same_rules),
        cmocka_unit_test(scatters_rows_of_matrices),
        cmocka_unit_test(leaves_all_else_as_it_is),
        cmocka_unit_test(keeps_nan_infinity_and_small_values),
        cmocka_unit_test(refuses_what_makes_no_sense),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
