/* transport_mixed: one machine that plays several hosts. Who is reached how, and every collective across. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"
#include "harness.h"

#define MOST 8

typedef struct layout {
    int n, node[MOST];
} layout;

static const layout layouts[] = {
    { 2, { 0, 1 } },                   /* every rank on its own */
    { 4, { 0, 0, 1, 1 } },             /* in order, */
    { 4, { 7, 2, 7, 2 } },             /* interleaved, any numbers */
    { 5, { 0, 1, 1, 2, 0 } },          /* hosts of different sizes */
    { 3, { 4, 4, 4 } },                /* all on one */
    { 8, { 0, 0, 0, 1, 1, 1, 1, 1 } }, /* more ranks than cores */
};
#define LAYOUTS (sizeof layouts / sizeof *layouts)

static void run(ls_test_mode mode, const char *transport, ls_progress_mode progress, ls_rank_fn fn)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        ls_world_opts o = { .transport = transport, .node = layouts[i].node, .arena_bytes = 4u << 20,
                            .progress = progress };
        ls_rank_report r = ls_test_ranks(mode, layouts[i].n, &o, fn, (void *)(uintptr_t)&layouts[i]);
        if (r.failed) fail_msg("layout %zu: %s", i, r.text);
    }
}

/* --- who is reached how ------------------------------------------------------------------------ */

static ls_status reach(ls_world *w, void *arg)
{
    const layout *y = arg;
    int me = ls_world_rank(w), far = 0, near = 0, fds[MOST];
    for (int r = 0; r < y->n; r++) {
        bool same = y->node[r] == y->node[me];
        LS_EXPECT(w->tops->is_mapped(w->tp, r) == same, "rank %d near: expected %d", r, same);
        far += !same;
        near += same;
    }
    int connections = w->tops->fds(w->tp, fds, MOST);
    LS_EXPECT(connections == far, "%d connections, expected %d", connections, far);

    ls_group *world = ls_world_group(w), *host;
    for (int r = 0, nodes = 0; r < y->n; r++) { /* numbered by their first ranks */
        int q = 0;
        while (y->node[q] != y->node[r]) q++;
        const int want = q == r ? nodes++ : ls_group_node(world, q);
        LS_EXPECT(ls_group_node(world, r) == want, "rank %d is on node %d, expected %d", r, ls_group_node(world, r), want);
        LS_EXPECT(r + 1 < y->n || ls_group_nodes(world) == nodes, "%d nodes, expected %d", ls_group_nodes(world), nodes);
    }
    LS_EXPECT(ls_group_node(world, -1) == -1 && ls_group_node(world, y->n) == -1, "the node of no rank");
    LS_EXPECT(world->mapped == (far == 0), "the group of all is mapped: %d", world->mapped);
    LS_TRY(ls_group_split(world, y->node[me], &host));
    LS_EXPECT(ls_group_size(host) == near && host->mapped, "%d ranks on this host, mapped: %d", ls_group_size(host),
              host->mapped);
    int32_t one = 1, sum = 0;
    LS_TRY(ls_all_reduce(host, &one, &sum, 1, LS_I32, LS_SUM));
    LS_EXPECT(sum == near, "%d ranks counted on this host, expected %d", sum, near);
    ls_group_destroy(host);
    return LS_OK;
}

static void connects_hosts_and_maps_within_them(void **state)
{
    (void)state;
    run(LS_TEST_THREADS, "mixed", LS_PROGRESS_INLINE, reach);
}

/* --- collectives ------------------------------------------------------------------------------- */

static float value(int rank, size_t i) { return (float)(rank + 1) + (float)(i % 7); } /* sums are exact in float */

static ls_status check(const char *what, const float *x, size_t count, int ranks, int weights)
{
    for (size_t i = 0; i < count; i++) {
        float want = (float)weights + (float)ranks * (float)(i % 7);
        LS_EXPECT(x[i] == want, "%s of %zu: [%zu] = %g, expected %g", what, count, i, (double)x[i], (double)want);
    }
    return LS_OK;
}

/* Every collective on `count` elements a rank, in registered or in private memory. */
static ls_status all_of_them(ls_world *w, size_t count, float *in, float *out, float *other)
{
    ls_group *g = ls_world_group(w);
    int n = ls_world_size(w), me = ls_world_rank(w), root = n - 1;
    size_t all = (size_t)n * count;
    for (size_t i = 0; i < count; i++) in[i] = value(me, i);
    LS_TRY(ls_all_reduce(g, in, out, count, LS_F32, LS_SUM));
    LS_TRY(check("all_reduce", out, count, n, n * (n + 1) / 2));

    LS_TRY(ls_all_gather(g, in, out, all, LS_F32));
    for (int r = 0; r < n; r++) LS_TRY(check("all_gather", out + (size_t)r * count, count, 1, r + 1));

    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < count; i++) out[(size_t)r * count + i] = value(me, i);
    LS_TRY(ls_reduce_scatter(g, out, in, all, LS_F32, LS_SUM));
    LS_TRY(check("reduce_scatter", in, count, n, n * (n + 1) / 2));

    for (size_t i = 0; i < count; i++) in[i] = value(me, i);
    LS_TRY(ls_broadcast(g, in, count, LS_F32, root));
    LS_TRY(check("broadcast", in, count, 1, root + 1));

    int right = (me + 1) % n, left = (me + n - 1) % n;
    for (size_t i = 0; i < count; i++) in[i] = value(me, i);
    ls_p2p both[2] = { { .send = in, .count = count, .dtype = LS_F32, .peer = right },
                       { .recv = out, .count = count, .dtype = LS_F32, .peer = left } };
    LS_TRY(ls_p2p_batch(g, both, 2));
    LS_TRY(check("send and recv", out, count, 1, left + 1));

    LS_TRY(ls_reduce(g, in, out, count, LS_F32, LS_SUM, root));
    if (me == root) LS_TRY(check("reduce", out, count, n, n * (n + 1) / 2));
    LS_TRY(ls_gather(g, in, out, all, LS_F32, root));
    for (int r = 0; r < n && me == root; r++) LS_TRY(check("gather", out + (size_t)r * count, count, 1, r + 1));
    LS_TRY(ls_scatter(g, out, in, all, LS_F32, root));
    LS_TRY(check("scatter", in, count, 1, me + 1));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < count; i++) other[(size_t)r * count + i] = value(n * me + r, i);
    LS_TRY(ls_all_to_all(g, other, out, all, LS_F32));
    for (int r = 0; r < n; r++) LS_TRY(check("all_to_all", out + (size_t)r * count, count, 1, n * r + me + 1));
    return ls_barrier(g);
}

static ls_status collectives(ls_world *w, void *arg)
{
    (void)arg;
    enum { MOST_ELEMENTS = 40000 };
    static const size_t counts[] = { 0, 1, 3, 100, 2051, MOST_ELEMENTS };
    size_t nbytes = MOST_ELEMENTS * sizeof(float);
    void *reg_in, *reg_out;
    LS_TRY(ls_alloc(w, nbytes, LS_MEM_COMM, &reg_in));
    LS_TRY(ls_alloc(w, nbytes * MOST, LS_MEM_COMM, &reg_out));
    float *in = malloc(nbytes), *out = malloc(nbytes * MOST), *other = malloc(nbytes * MOST);
    ls_status st = in && out && other ? LS_OK : ls_fail(LS_NO_MEMORY, "vectors");
    for (size_t i = 0; i < sizeof counts / sizeof *counts && st == LS_OK; i++) {
        st = all_of_them(w, counts[i], in, out, other);
        if (st == LS_OK) st = all_of_them(w, counts[i], reg_in, reg_out, other);
    }
    free(in);
    free(out);
    free(other);
    return st;
}

static void carries_every_collective(void **state)
{
    (void)state;
    run(LS_TEST_THREADS, "mixed", LS_PROGRESS_INLINE, collectives);
}

static void carries_them_between_processes(void **state)
{
    (void)state;
    run(LS_TEST_PROCESSES, "mixed", LS_PROGRESS_INLINE, collectives);
}

static void carries_them_with_a_progress_thread(void **state)
{
    (void)state;
    run(LS_TEST_THREADS, "mixed", LS_PROGRESS_THREAD, collectives);
}

static void carries_them_under_the_fault_transport(void **state)
{
    (void)state;
    run(LS_TEST_THREADS, "fault:mixed", LS_PROGRESS_INLINE, collectives);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connects_hosts_and_maps_within_them),
        cmocka_unit_test(carries_every_collective),
        cmocka_unit_test(carries_them_between_processes),
        cmocka_unit_test(carries_them_with_a_progress_thread),
        cmocka_unit_test(carries_them_under_the_fault_transport),
    };
    return cmocka_run_group_tests_name("mixed", tests, NULL, NULL);
}
