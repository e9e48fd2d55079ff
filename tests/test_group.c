/* Collectives of a group: every algorithm, over shm and tcp, among threads and processes, with buffers of
 * every sort; and groups that are cut out of others. One world runs the whole table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/impl.h"
#include "harness.h"

#define MOST 65537 /* elements */
#define GUARD 16   /* elements on either side that nobody may touch */
#define BYTES ((MOST + 2 * GUARD) * sizeof(double))

static const char *const wires[] = { "shm", "tcp" };

/* --- one collective ------------------------------------------------------------------------------- */

typedef enum place { REGISTERED, PRIVATE, EVEN_RANKS_REGISTERED, ODD_RANKS_REGISTERED, PLACES } place;
static const char *const place_name[] = { "registered", "private", "registered on even ranks",
                                          "registered on odd ranks" };

typedef struct row {
    ls_coll coll;
    ls_dtype dtype;
    ls_redop op;
    size_t count;
    int root;
    place place;
    bool in_place;
} row;

typedef struct buffers {
    ls_world *w;
    int rank, size;
    char *registered[2], *private[2]; /* in and out */
    unsigned row;
} buffers;

static ls_status prepare(ls_world *w, buffers *b)
{
    *b = (buffers){ .w = w, .rank = ls_world_rank(w), .size = ls_world_size(w) };
    for (int i = 0; i < 2; i++) {
        void *p;
        LS_TRY(ls_alloc(w, BYTES, LS_MEM_DATA, &p));
        b->registered[i] = p;
        b->private[i] = malloc(BYTES);
        LS_EXPECT(b->private[i], "no memory for a test");
    }
    return LS_OK;
}

static void let_go(buffers *b)
{
    free(b->private[0]);
    free(b->private[1]);
}

static void put(void *p, ls_dtype d, size_t i, int v)
{
    if (d == LS_F32) ((float *)p)[i] = (float)v;
    else if (d == LS_BF16) ((uint16_t *)p)[i] = ls_f32_to_bf16((float)v);
    else ((int64_t *)p)[i] = v;
}

static int get(const void *p, ls_dtype d, size_t i)
{
    if (d == LS_F32) return (int)((const float *)p)[i];
    if (d == LS_BF16) return (int)ls_bf16_to_f32(((const uint16_t *)p)[i]);
    return (int)((const int64_t *)p)[i];
}

/* What a rank brings; sums over 8 ranks stay below 256, so all types hold them exactly. */
static int value(int rank, size_t i) { return rank + 1 + (int)(i % 7); }

static int combined(const row *x, int n, size_t i)
{
    int e = (int)(i % 7);
    if (x->coll == LS_ALL_GATHER) {
        ls_range s;
        for (int r = 0; r < n; r++)
            if (ls_shard_range(x->count, r, n, &s) == LS_OK && i - s.first < s.count) return value(r, i);
    }
    if (x->coll == LS_BROADCAST) return value(x->root, i);
    return x->op == LS_SUM ? n * (n + 1) / 2 + n * e : x->op == LS_MAX ? n + e : 1 + e;
}

static ls_status wrong(const buffers *b, const row *x, const char *what, size_t i, int got, int want)
{
    const ls_algo *algo = ls_world_group(b->w)->forced;
    return ls_fail(LS_INTERNAL, "%s: %s of %zu %s, %s%s, algorithm %s, root %d: element %zu is %d, expected %d", what,
                   ls_coll_name(x->coll), x->count, ls_dtype_name(x->dtype), place_name[x->place],
                   x->in_place ? ", in place" : "", algo ? algo->name : "by size", x->root, i, got, want);
}

static ls_status call(ls_group *g, const row *x, const void *in, void *out)
{
    switch (x->coll) {
    case LS_ALL_REDUCE: return ls_all_reduce(g, in, out, x->count, x->dtype, x->op);
    case LS_REDUCE_SCATTER: return ls_reduce_scatter(g, in, out, x->count, x->dtype, x->op);
    case LS_ALL_GATHER: return ls_all_gather(g, in, out, x->count, x->dtype);
    case LS_BROADCAST: return ls_broadcast(g, out, x->count, x->dtype, x->root);
    default: return ls_barrier(g);
    }
}

static ls_status untouched(const buffers *b, const row *x, const char *p, size_t first, size_t end, const char *what)
{
    for (size_t i = first; i < end; i++)
        if (p[i] != 0x5a) return wrong(b, x, what, i, p[i], 0x5a);
    return LS_OK;
}

/* Runs a row of the table on this rank and looks at every byte of its buffers. */
static ls_status run_row(buffers *b, const row *x)
{
    const size_t elem = ls_dtype_size(x->dtype), pad = GUARD * elem;
    bool registered = x->place == REGISTERED || (x->place == EVEN_RANKS_REGISTERED && b->rank % 2 == 0) ||
                      (x->place == ODD_RANKS_REGISTERED && b->rank % 2 == 1);
    char *const *const buf = registered ? b->registered : b->private;
    bool in_place = x->in_place || x->coll == LS_BROADCAST;
    char *in = in_place ? NULL : buf[0] + pad, *out = buf[1] + pad;
    ls_range own;
    LS_TRY(ls_shard_range(x->count, b->rank, b->size, &own));

    /* in: what the caller brings; out: the elements [first, first + n) of the result, or where they will be */
    size_t nin = x->coll == LS_ALL_GATHER ? own.count : x->count, shift = x->coll == LS_ALL_GATHER ? own.first : 0;
    bool part = x->coll == LS_REDUCE_SCATTER, own_only = part && !in_place;
    size_t nout = own_only ? own.count : x->count;
    memset(buf[0], 0x5a, nin * elem + 2 * pad);
    memset(buf[1], 0x5a, nout * elem + 2 * pad);
    char *from = in_place ? out + (x->coll == LS_ALL_GATHER ? own.first * elem : 0) : in;
    if (x->coll != LS_BROADCAST || b->rank == x->root)
        for (size_t i = 0; i < nin; i++) put(from, x->dtype, i, value(b->rank, shift + i));

    b->row++;
    /* both spellings of "in place" */
    LS_TRY(call(ls_world_group(b->w), x, in_place && b->row % 2 ? out : in, out));

    LS_TRY(untouched(b, x, buf[1], 0, pad, "in front of the result"));
    LS_TRY(untouched(b, x, out + nout * elem, 0, pad, "behind the result"));
    size_t first = part ? own.first : 0, n = part ? own.count : x->count, at = part && in_place ? own.first : 0;
    for (size_t i = 0; i < n; i++) {
        int got = get(out, x->dtype, at + i), want = combined(x, b->size, first + i);
        if (got != want) return wrong(b, x, "result", i, got, want);
    }
    if (in_place) return LS_OK;
    LS_TRY(untouched(b, x, buf[0], 0, pad, "in front of the input"));
    LS_TRY(untouched(b, x, in + nin * elem, 0, pad, "behind the input"));
    for (size_t i = 0; i < nin; i++)
        if (get(in, x->dtype, i) != value(b->rank, shift + i))
            return wrong(b, x, "input", i, get(in, x->dtype, i), value(b->rank, shift + i));
    return LS_OK;
}

/* --- the table ---------------------------------------------------------------------------------------- */

static const ls_dtype dtypes[] = { LS_F32, LS_BF16, LS_I64 };
static const ls_redop ops[] = { LS_SUM, LS_MAX, LS_MIN };

/* All counts and types for one collective by one algorithm. The short table takes placements and ways to
 * pass the buffers in turn; the long one takes all for each. */
static ls_status all_sizes(buffers *b, ls_coll coll, int root, bool complete)
{
    size_t n = (size_t)b->size;
    const size_t counts[] = { 0, 1, n - 1, n, n + 1, 1000, MOST };
    const unsigned ways = 2 * PLACES;
    unsigned turn = (unsigned)root;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            if (dtypes[d] == LS_I64 && counts[c] == MOST && !complete) continue;
            turn += 3; /* shares no factor with the ways */
            for (unsigned k = 0; k < (complete ? ways : 1); k++) {
                unsigned way = (turn + k) % ways;
                row x = { .coll = coll, .dtype = dtypes[d], .op = ops[turn % 3], .count = counts[c], .root = root,
                          .place = (place)(way / 2), .in_place = way % 2 };
                LS_TRY(run_row(b, &x));
            }
        }
    return LS_OK;
}

/* From rank to rank, and everyone adds to it; then both ways between neighbours. */
static ls_status pass_round(buffers *b, size_t count, bool registered)
{
    ls_group *g = ls_world_group(b->w);
    float *x = (float *)(void *)(registered ? b->registered[0] : b->private[0]);
    int n = b->size, right = (b->rank + 1) % n, left = (b->rank + n - 1) % n;
    if (n == 1) return LS_OK;
    for (size_t i = 0; i < count + 1; i++) x[i] = b->rank == 0 ? (float)i : -1.0f;
    x[count] = -1.0f;
    if (b->rank > 0) {
        LS_TRY(ls_recv(g, x, count, LS_F32, left));
        for (size_t i = 0; i < count; i++) x[i] += 1.0f;
        LS_TRY(ls_send(g, x, count, LS_F32, right));
    } else {
        LS_TRY(ls_send(g, x, count, LS_F32, right));
        LS_TRY(ls_recv(g, x, count, LS_F32, left));
    }
    float more = (float)(b->rank == 0 ? n - 1 : b->rank);
    for (size_t i = 0; i < count; i++)
        LS_EXPECT(x[i] == (float)i + more, "x[%zu] = %g, expected %g", i, (double)x[i], (double)i + (double)more);
    LS_EXPECT(x[count] == -1.0f, "%zu elements received, and one more written", count);
    return LS_OK;
}

typedef struct plan {
    bool complete;
} plan;

static ls_status whole_table(buffers *b, bool complete)
{
    static const ls_coll colls[] = { LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER, LS_BROADCAST };
    ls_group *g = ls_world_group(b->w);
    for (size_t c = 0; c < sizeof colls / sizeof *colls; c++)
        for (size_t a = 0; a == 0 || ls_algos[a - 1]; a++) {
            const ls_algo *algo = a == 0 ? NULL : ls_algos[a - 1];
            if (algo && !(algo->colls & 1u << colls[c])) continue;
            g->forced = algo; /* as comm.algo does for a whole world */
            int roots = colls[c] == LS_BROADCAST ? b->size : 1;
            for (int root = 0; root < roots; root++) LS_TRY(all_sizes(b, colls[c], root, complete));
        }
    for (size_t a = 0; a == 0 || ls_algos[a - 1]; a++) {
        g->forced = a == 0 ? NULL : ls_algos[a - 1];
        LS_TRY(ls_barrier(g));
    }
    g->forced = NULL;
    static const size_t counts[] = { 0, 1, 8, 9, 5000, MOST };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int registered = 0; registered < 2; registered++) LS_TRY(pass_round(b, counts[c], registered));
    return LS_OK;
}

static ls_status table_rank(ls_world *w, void *arg)
{
    const plan *p = arg;
    buffers b;
    ls_status st = prepare(w, &b);
    if (st == LS_OK) st = whole_table(&b, p->complete);
    let_go(&b);
    return st;
}

static bool thorough(void) { return getenv("LOCKSTEP_TEST_LONG") != NULL; }

static void gives_right_results(ls_test_mode mode, const char *transport, ls_progress_mode progress)
{
    static const int sizes[] = { 1, 2, 3, 4, 5, 8 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        plan p = { .complete = thorough() };
        ls_world_opts o = { .transport = transport, .arena_bytes = 6u << 20, .progress = progress };
        ls_rank_report r = ls_test_ranks(mode, sizes[i], &o, table_rank, &p);
        if (r.failed) fail_msg("%d ranks over %s: %s", sizes[i], transport, r.text);
    }
}

static void serves_threads_over_shm(void **state)
{
    (void)state;
    gives_right_results(LS_TEST_THREADS, "shm", LS_PROGRESS_INLINE);
}

static void serves_threads_over_tcp(void **state)
{
    (void)state;
    gives_right_results(LS_TEST_THREADS, "tcp", LS_PROGRESS_INLINE);
}

static void serves_processes_over_shm(void **state)
{
    (void)state;
    gives_right_results(LS_TEST_PROCESSES, "shm", LS_PROGRESS_INLINE);
}

static void serves_processes_over_tcp(void **state)
{
    (void)state;
    gives_right_results(LS_TEST_PROCESSES, "tcp", LS_PROGRESS_INLINE);
}

static void serves_with_a_progress_thread(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int n = 2; n <= 4; n += 2) {
            plan p = { .complete = thorough() };
            ls_world_opts o = { .transport = wires[i], .arena_bytes = 6u << 20, .progress = LS_PROGRESS_THREAD };
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, &o, table_rank, &p);
            if (r.failed) fail_msg("%d ranks over %s: %s", n, wires[i], r.text);
        }
}

/* --- groups cut out of groups ---------------------------------------------------------------------------- */

/* Every member adds 1 + its world rank. */
static ls_status sum_of_members(ls_group *g, size_t count)
{
    float want = 0.0f, *x = malloc(count * sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    for (int r = 0; r < ls_group_size(g); r++) want += 1.0f + (float)ls_group_world_rank(g, r);
    for (size_t i = 0; i < count; i++) x[i] = 1.0f + (float)ls_world_rank(ls_group_world(g));
    ls_status st = ls_all_reduce(g, NULL, x, count, LS_F32, LS_SUM);
    for (size_t i = 0; i < count && st == LS_OK; i++)
        if (x[i] != want) st = ls_fail(LS_INTERNAL, "element %zu is %g, expected %g", i, (double)x[i], (double)want);
    free(x);
    return st;
}

static ls_status is_group(ls_group *g, int size, const int *world_rank, int me)
{
    LS_EXPECT(ls_group_size(g) == size, "%d members, expected %d", ls_group_size(g), size);
    for (int r = 0; r < size; r++) {
        LS_EXPECT(ls_group_world_rank(g, r) == world_rank[r], "member %d is rank %d, expected %d", r,
                  ls_group_world_rank(g, r), world_rank[r]);
        LS_EXPECT(world_rank[r] != me || ls_group_rank(g) == r, "rank %d is member %d, expected %d", me,
                  ls_group_rank(g), r);
    }
    LS_EXPECT(ls_group_world_rank(g, -1) == -1 && ls_group_world_rank(g, size) == -1,
              "a member that does not exist has a rank");
    return LS_OK;
}

/* Six ranks: a grid of 2 x 3, the second row of it cut again, and one rank that stays outside. */
static ls_status split_rank(ls_world *w, void *arg)
{
    static const int across[2][3] = { { 0, 1, 2 }, { 3, 4, 5 } }, down[3][2] = { { 0, 3 }, { 1, 4 }, { 2, 5 } },
                     outer[2] = { 3, 5 };
    (void)arg;
    int me = ls_world_rank(w);
    ls_group *world = ls_world_group(w), *rows, *columns, *ends;
    LS_TRY(ls_group_split(world, me / 3 ? 1 << 30 : 7, &rows)); /* colors may be any numbers */
    LS_TRY(ls_group_split(world, me % 3, &columns));
    LS_TRY(is_group(rows, 3, across[me / 3], me));
    LS_TRY(is_group(columns, 2, down[me % 3], me));
    LS_TRY(ls_group_split(rows, me == 4 || me < 3 ? -1 : 0, &ends));
    LS_EXPECT((ends != NULL) == (me == 3 || me == 5), "rank %d is %s", me, ends ? "in" : "out");
    if (ends) LS_TRY(is_group(ends, 2, outer, me));
    for (size_t count = 1; count < 20000; count = 5 * count + 2) {
        LS_TRY(sum_of_members(columns, count));
        LS_TRY(sum_of_members(world, count));
        if (ends) LS_TRY(sum_of_members(ends, count));
        LS_TRY(sum_of_members(rows, count));
    }
    ls_group_destroy(ends);
    ls_group_destroy(columns);
    ls_group_destroy(rows);
    return LS_OK;
}

static void over_both_wires(ls_test_mode mode, int n, ls_rank_fn fn)
{
    for (int i = 0; i < 2; i++) {
        ls_world_opts o = { .transport = wires[i] };
        ls_rank_report r = ls_test_ranks(mode, n, &o, fn, NULL);
        if (r.failed) fail_msg("%d ranks over %s: %s", n, wires[i], r.text);
    }
}

/* Hosts as they are asked for, seen from a group of some of the ranks, and sums across them. */
static ls_status hosts_rank(ls_world *w, void *arg)
{
    static const int all[6] = { 0, 1, 0, 2, 1, 2 }, odd[3] = { 0, 1, 1 }; /* 9 3 9 4 3 4; and 3 4 4 */
    (void)arg;
    ls_group *world = ls_world_group(w), *half;
    LS_EXPECT(world->nnodes == 3, "%d hosts, expected 3", world->nnodes);
    for (int r = 0; r < 6; r++)
        LS_EXPECT(world->node[r] == all[r], "rank %d on host %d, expected %d", r, world->node[r], all[r]);
    LS_TRY(ls_group_split(world, ls_world_rank(w) % 2, &half));
    LS_EXPECT(half->nnodes == 2 || ls_world_rank(w) % 2 == 0, "%d hosts of 1, 3, 5, expected 2", half->nnodes);
    for (int r = 0; r < 3 && ls_world_rank(w) % 2 == 1; r++)
        LS_EXPECT(half->node[r] == odd[r], "member %d on host %d, expected %d", r, half->node[r], odd[r]);
    half->forced = world->forced = ls_algo_find("hierarchical");
    for (size_t count = 1; count < 400000; count = 7 * count + 3) {
        LS_TRY(sum_of_members(half, count));
        LS_TRY(sum_of_members(world, count));
    }
    ls_group_destroy(half);
    return LS_OK;
}

static void knows_which_host_each_rank_is_on(void **state)
{
    (void)state;
    static const int node[6] = { 9, 3, 9, 4, 3, 4 };
    for (int i = 0; i < 2; i++) {
        ls_world_opts o = { .transport = wires[i], .node = node };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 6, &o, hosts_rank, NULL);
        if (r.failed) fail_msg("over %s: %s", wires[i], r.text);
    }
}

static void splits_by_color_in_the_order_of_the_parent(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 6, split_rank);
    over_both_wires(LS_TEST_PROCESSES, 6, split_rank);
}

/* Pairs (0 1) (2 3), then (0) (1 2) (3), again and again: the areas of destroyed groups are used anew while
 * members of the old ones may still be on their way out. */
static ls_status recreate_rank(ls_world *w, void *arg)
{
    (void)arg;
    int me = ls_world_rank(w);
    for (int turn = 0; turn < 100; turn++) {
        ls_group *g;
        LS_TRY(ls_group_split(ls_world_group(w), (me + turn % 2) / 2, &g));
        LS_TRY(sum_of_members(g, turn % 3 ? 3 : 2000));
        ls_group_destroy(g);
    }
    size_t in_use = ls_world_ledger(w)->now[LS_MEM_COMM];
    for (int turn = 0; turn < 20; turn++) {
        ls_group *g;
        LS_TRY(ls_group_split(ls_world_group(w), (me + turn % 2) / 2, &g));
        LS_TRY(sum_of_members(g, 3));
        ls_group_destroy(g);
    }
    LS_EXPECT(ls_world_ledger(w)->now[LS_MEM_COMM] == in_use, "%zu bytes more after twenty groups",
              ls_world_ledger(w)->now[LS_MEM_COMM] - in_use);
    return LS_OK;
}

static void groups_come_and_go(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 4, recreate_rank);
    over_both_wires(LS_TEST_PROCESSES, 4, recreate_rank);
}

static ls_status too_many_rank(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g[LS_MAX_GROUPS];
    int n = 0;
    ls_status st;
    while ((st = ls_group_split(ls_world_group(w), 0, &g[n])) == LS_OK) n++;
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "more than 21 groups"), "%s", ls_last_error());
    LS_EXPECT(n == LS_MAX_GROUPS - 1, "%d groups beside the world", n);
    for (int i = 0; i < n; i++) LS_TRY(sum_of_members(g[i], 10));
    ls_group_destroy(g[5]);
    LS_TRY(ls_group_split(ls_world_group(w), 0, &g[5])); /* room again */
    LS_TRY(sum_of_members(g[5], 10));
    for (int i = 0; i < n; i++) ls_group_destroy(g[i]);
    return LS_OK;
}

static void refuses_one_group_too_many(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 2, too_many_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serves_processes_over_shm),
        cmocka_unit_test(serves_processes_over_tcp),
        cmocka_unit_test(serves_threads_over_shm),
        cmocka_unit_test(serves_threads_over_tcp),
        cmocka_unit_test(serves_with_a_progress_thread),
        cmocka_unit_test(knows_which_host_each_rank_is_on),
        cmocka_unit_test(splits_by_color_in_the_order_of_the_parent),
        cmocka_unit_test(groups_come_and_go),
        cmocka_unit_test(refuses_one_group_too_many),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
