/* What every algorithm and form moves, on every rank, is what it says of itself and what its formula in the literature
 * says, to the byte.
 * bench_fit: the line behind rows that were made from one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "group/debug.h"
#include "group/engine.h"
#include "harness.h"
#include "harness_formula.h"
#include "lockstep/lockstep.h"
#include "net/world.h"

#define MOST ((size_t)272 << 10) /* floats: more than a schedule moves as one piece */

/* --- one operation -------------------------------------------------------------------------------- */

typedef struct fixture {
    ls_world *w;
    ls_group *g;
    float *in, *out;
    int operations;
} fixture;

static ls_coll_args args_of(const fixture *f, const ls_bench_case *c, size_t *recv_counts)
{
    const int me = ls_group_rank(f->g), n = c->size;
    ls_coll_args a = { .coll = c->coll, .in = c->coll == LS_BROADCAST ? NULL : f->in, .out = f->out, .count = c->count,
                       .dtype = LS_F32, .root = c->root, .counts = c->each };
    if (c->each && c->coll == LS_ALL_TO_ALL) {
        for (int r = 0; r < n; r++) recv_counts[r] = c->each[r * n + me];
        a.counts = c->each + me * n;
        a.recv_counts = recv_counts;
    }
    return a;
}

static ls_status operation(fixture *f, const ls_bench_case *c)
{
    int me = ls_group_rank(f->g), n = c->size, right = (me + 1) % n, left = (me + n - 1) % n;
    if (c->coll == LS_SENDRECV) {
        const ls_p2p both[2] = { { .send = f->in, .count = c->count, .dtype = LS_F32, .peer = right },
                                 { .recv = f->out, .count = c->count, .dtype = LS_F32, .peer = left } };
        return ls_p2p_batch(f->g, both, 2);
    }
    size_t recv_counts[LS_TEST_RANKS];
    const ls_coll_args a = args_of(f, c, recv_counts);
    ls_work *work;
    LS_TRY(ls_coll_start(f->g, &a, &work));
    return ls_work_wait(work);
}

static ls_status compare(fixture *f, const ls_bench_case *c)
{
    ls_comm_stats before, after;
    ls_test_moved t;
    ls_traffic says;
    LS_TRY(ls_barrier(f->g));
    ls_comm_stats_read(f->w, &before);
    LS_TRY(operation(f, c));
    ls_comm_stats_read(f->w, &after);
    const ls_debug_group d = ls_debug_look(f->g);
    ls_test_ran ran = { c->coll == LS_SENDRECV ? "sendrecv" : d.ran, d.segments, d.node };
    int me = ls_group_rank(f->g);
    size_t recv_counts[LS_TEST_RANKS];
    const ls_coll_args a = args_of(f, c, recv_counts);
    LS_TRY(ls_debug_traffic(f->g, &a, &says));
    if (!ls_test_formula(c, me, &ran, &t))
        return ls_fail(LS_INTERNAL, "%s by %s: no formula", ls_coll_name(c->coll), ran.algo);
    const uint64_t want = d.mapped ? t.received : t.sent, got = after.bytes - before.bytes;
    const bool form = d.mapped && d.segments == 0 && c->coll != LS_SENDRECV;
    f->operations++;
    if (got == want && says.counted == want && (form || (says.read == t.received && says.written == t.sent)))
        return LS_OK;
    return ls_fail(LS_INTERNAL, "%s by %s, %zu floats%s, rank %d of %d, root %d, %d segments, %s: moved %llu, formula %llu, says "
                   "%llu, %llu read and %llu written", ls_coll_name(c->coll), ran.algo, c->count,
                   c->each ? " in uneven shares" : "", me, c->size, c->root, ran.segments, d.mapped ? "memory" : "wire",
                   (unsigned long long)got, (unsigned long long)want, (unsigned long long)says.counted,
                   (unsigned long long)says.read, (unsigned long long)says.written);
}

/* Rank r has r times r floats, rank 0 none; to rank t of an all_to_all one more for each rank between. */
static void shares_of(const ls_bench_case *c, size_t *each, size_t *count)
{
    bool blocks = c->coll == LS_ALL_TO_ALL;
    *count = 0;
    for (int from = 0; from < (blocks ? c->size : 1); from++) {
        *count = 0;
        for (int to = 0; to < c->size; to++) *count += each[from * c->size + to] = (size_t)(to * to + from * (to > 1));
    }
}

static bool has_shares(ls_coll c)
{
    return c == LS_ALL_GATHER || c == LS_REDUCE_SCATTER || c == LS_GATHER || c == LS_SCATTER || c == LS_ALL_TO_ALL;
}

typedef struct variant {
    bool private_memory;
    bool past_cache; /* stores go past the caches at every size */
    bool attach;     /* private memory is read where it lies, if it can be */
} variant;

static ls_status every_collective(ls_world *w, void *arg)
{
    static _Alignas(64) _Thread_local float own[2][MOST];
    size_t each[LS_TEST_RANKS * LS_TEST_RANKS];
    fixture f = { .w = w, .g = ls_world_group(w) };
    void *in, *out;
    const ls_algo *algo = w->opts.algo ? ls_algo_find(w->opts.algo) : NULL; /* NULL: as the group chooses */
    const variant *x = arg;
    if (x->past_cache) w->engine->tuning.cost.in_memory.past_cache = 0.0;
    w->engine->tuning.cost.in_memory.attach = x->attach ? 0.0 : LS_COST_NEVER;
    if (x->private_memory) {
        in = own[0];
        out = own[1];
    } else {
        LS_TRY(ls_alloc(w, MOST * sizeof *f.in, LS_MEM_COMM, &in));
        LS_TRY(ls_alloc(w, MOST * sizeof *f.out, LS_MEM_COMM, &out));
    }
    memset(f.in = in, 0, MOST * sizeof *f.in);
    memset(f.out = out, 0, MOST * sizeof *f.out);
    int n = ls_group_size(f.g);
    for (int coll = 0; coll < LS_COLLS; coll++) {
        bool messages = coll == LS_SENDRECV && n > 1 && algo == ls_algos[0]; /* with any algorithm, so with one */
        if (!messages && (coll == LS_SENDRECV || (algo && !(algo->colls & 1u << coll)))) continue;
        ls_bench_case c = { .coll = (ls_coll)coll, .dtype = LS_F32, .op = LS_SUM, .size = n, .root = n - 1 };
        bool root = coll == LS_BROADCAST || coll == LS_REDUCE || coll == LS_GATHER || coll == LS_SCATTER;
        for (c.root = 0; c.root < (root ? n : 1); c.root += n > 2 ? n / 2 : 1) {
            static const size_t counts[] = { 0, 1, 29, 1031, 16384, 270001 };
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                c.count = coll == LS_BARRIER ? 0 : counts[i];
                if (coll == LS_ALL_TO_ALL) c.count -= c.count % (size_t)n;
                LS_TRY(compare(&f, &c));
            }
            bool equal_only = algo && coll == LS_ALL_TO_ALL && strcmp(algo->name, "bruck") == 0;
            if (!has_shares((ls_coll)coll) || equal_only) continue;
            c.each = each;
            shares_of(&c, each, &c.count);
            if (coll == LS_ALL_TO_ALL)
                c.count = ls_bench_share_at(&c, ls_group_rank(f.g), n);
            LS_TRY(compare(&f, &c));
            c.each = NULL;
        }
    }
    return f.operations > 0 ? LS_OK : ls_fail(LS_INTERNAL, "%s carried out nothing", algo ? algo->name : "the group");
}

static void over(const char *transport, int from, int to, bool private_memory)
{
    for (int n = from; n <= to; n++)
        for (size_t i = 0; ls_algos[i]; i++) {
            if (private_memory && !ls_algos[i]->mapped) continue; /* goes by schedules in any memory */
            ls_world_opts o = { .transport = transport, .algo = ls_algos[i]->name, .arena_bytes = (size_t)7 << 20 };
            if (ls_world_threads(n, &o, every_collective, &(variant){ .private_memory = private_memory }) < 0)
                fail_msg("%s over %d ranks on %s: %s", o.algo, n, transport, ls_last_error());
        }
}

static void bytes_in_shared_memory(void **state)
{
    (void)state;
    over("shm", 1, 8, false);
    over("shm", 2, 8, true);
}

/* All that a group chooses by itself: of two ranks with a core each, and of more than there are. */
static void bytes_of_the_forms(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int i = 0; i < 6; i++) {
            ls_world_opts o = { .transport = "shm", .arena_bytes = (size_t)7 << 20 };
            variant x = { .private_memory = i & 1, .past_cache = i & 2, .attach = i & 4 };
            if (ls_world_threads(n, &o, every_collective, &x) < 0)
                fail_msg("%d ranks, %s memory%s: %s", n, x.private_memory ? "private" : "registered",
                         x.past_cache ? ", past the caches" : x.attach ? ", attached" : "", ls_last_error());
        }
}

static void bytes_on_tcp(void **state)
{
    (void)state;
    over("tcp", 2, 8, false);
}

/* --- what the formulas say -------------------------------------------------------------------------- */

static ls_test_moved traffic(const char *algo, ls_coll coll, int size, int rank, size_t count)
{
    ls_bench_case c = { .coll = coll, .dtype = LS_F32, .op = LS_SUM, .size = size, .count = count };
    ls_test_moved t;
    if (!ls_test_formula(&c, rank, &(ls_test_ran){ .algo = algo, .segments = 1 }, &t)) fail_msg("%s has no formula", algo);
    return t;
}

/* 2 (n-1)/n S for a ring, half of it for each phase, whatever n; 2 S for two trees at most; (n-1) S for one round. */
static void the_formulas_are_those_of_the_literature(void **state)
{
    (void)state;
    static const struct { const char *algo; ls_coll coll; double factor; int rounds; } row[] = {
        { "ring", LS_ALL_REDUCE, 2, 2 },       { "ring", LS_REDUCE_SCATTER, 1, 1 },   { "ring", LS_ALL_GATHER, 1, 1 },
        { "direct", LS_ALL_REDUCE, 2, 0 },     { "ring-gloo", LS_ALL_REDUCE, 2, 2 },  { "fold", LS_ALL_REDUCE, 2, 0 },
        { "pairwise", LS_ALL_TO_ALL, 1, 1 },   { "bruck", LS_ALL_GATHER, 1, 0 },      { "direct", LS_ALL_GATHER, 1, 0 },
        { "hierarchical", LS_ALL_REDUCE, 2, 2 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int n = 2; n <= 64; n++) {
            size_t count = (size_t)n * 4096 * 16;
            for (int r = 0; r < n; r++) {
                ls_test_moved t = traffic(row[i].algo, row[i].coll, n, r, count);
                uint64_t want = (uint64_t)(row[i].factor * (n - 1) * 4096 * 16 * 4);
                if (t.sent != want || t.received != want || (row[i].rounds && t.rounds != row[i].rounds * (n - 1)))
                    fail_msg("%s of %d ranks: rank %d sends %llu, receives %llu, of %llu, in %d rounds", row[i].algo, n, r,
                             (unsigned long long)t.sent, (unsigned long long)t.received, (unsigned long long)want,
                             t.rounds);
            }
        }
    assert_int_equal(traffic("master", LS_ALL_REDUCE, 8, 0, 100).sent, 7 * 400); /* and receives as much */
    assert_int_equal(traffic("master", LS_ALL_REDUCE, 8, 0, 100).received, 7 * 400);
    assert_int_equal(traffic("master", LS_ALL_REDUCE, 8, 3, 100).sent, 400);
    assert_int_equal(traffic("oneshot", LS_ALL_REDUCE, 8, 3, 100).sent, 7 * 400);
    assert_int_equal(traffic("recursive_doubling", LS_ALL_REDUCE, 8, 3, 100).sent, 3 * 400);
    assert_int_equal(traffic("tree", LS_BROADCAST, 8, 0, 100).sent, 3 * 400);
    assert_int_equal(traffic("chain", LS_BROADCAST, 8, 7, 100).sent, 0);
    assert_false(ls_test_formula(&(ls_bench_case){ .coll = LS_ALL_REDUCE, .size = 2, .count = 1 }, 0,
                                  &(ls_test_ran){ .algo = "carrier pigeon", .segments = 1 }, &(ls_test_moved){ 0 }));
}

/* What is sent is received, over all ranks. */
static void nothing_gets_lost(void **state)
{
    (void)state;
    for (size_t i = 0; ls_algos[i]; i++)
        for (int coll = 0; coll < LS_COLLS; coll++)
            for (int n = 1; n <= 17; n++) {
                uint64_t sent = 0, received = 0;
                if (!(ls_algos[i]->colls & 1u << coll) || strcmp(ls_algos[i]->name, "fold") == 0) continue;
                for (int r = 0; r < n; r++) {
                    size_t count = coll == LS_ALL_TO_ALL ? (size_t)n * 33 : 1031;
                    ls_test_moved t = traffic(ls_algos[i]->name, (ls_coll)coll, n, r, count);
                    sent += t.sent, received += t.received;
                }
                if (sent != received)
                    fail_msg("%s, %s, %d ranks: %llu sent, %llu received", ls_algos[i]->name, ls_coll_name((ls_coll)coll), n,
                             (unsigned long long)sent, (unsigned long long)received);
            }
}

/* --- the line ------------------------------------------------------------------------------------------ */

#define ROWS 12

static void rows_of(ls_bench_point *p, double alpha, double beta)
{
    for (int i = 0; i < ROWS; i++) {
        p[i] = (ls_bench_point){ .rounds = 6, .bytes = 8.0 * pow(4, i) * 1.5 };
        p[i].us = p[i].rounds * alpha + p[i].bytes * beta;
    }
}

static void a_line_is_found_again(void **state)
{
    (void)state;
    ls_bench_point p[ROWS];
    ls_bench_line l;
    rows_of(p, 2.5, 1e-4);
    assert_true(ls_bench_fit(p, ROWS, &l));
    assert_true(fabs(l.alpha_us - 2.5) < 1e-9 && fabs(l.beta_us - 1e-4) < 1e-12);
    assert_true(l.rms < 1e-9 && fabs(l.worst) < 1e-9);
    assert_true(ls_bench_line_latency(&l, &p[0]) && !ls_bench_line_latency(&l, &p[ROWS - 1]));
    assert_true(fabs(ls_bench_line_us(&l, &p[3]) - p[3].us) < 1e-9);
}

static void small_errors_stay_small(void **state)
{
    (void)state;
    ls_bench_point p[ROWS];
    ls_bench_line l;
    rows_of(p, 2.5, 1e-4);
    for (int i = 0; i < ROWS; i++) p[i].us *= i % 2 ? 1.03 : 0.97;
    assert_true(ls_bench_fit(p, ROWS, &l));
    assert_true(fabs(l.alpha_us / 2.5 - 1) < 0.03 && fabs(l.beta_us / 1e-4 - 1) < 0.03);
    assert_true(l.rms > 0.02 && l.rms < 0.04 && fabs(l.worst) < 0.07);
    p[5].us *= 2; /* one row off shows, and does not turn the line over */
    assert_true(ls_bench_fit(p, ROWS, &l));
    assert_true(l.worst < -0.3 && l.alpha_us > 2 && l.alpha_us < 3.5);
}

static void neither_part_is_negative(void **state)
{
    (void)state;
    ls_bench_line l;
    ls_bench_point falls[] = { { 1, 100, 10 }, { 1, 200, 9 } }, steep[] = { { 1, 100, 1 }, { 1, 200, 3 } };
    assert_true(ls_bench_fit(falls, 2, &l) && l.beta_us == 0 && l.alpha_us > 9 && l.alpha_us < 10);
    assert_true(ls_bench_fit(steep, 2, &l) && l.alpha_us == 0 && l.beta_us > 0.01 && l.beta_us < 0.015);
}

static void rows_that_are_alike_have_no_line(void **state)
{
    (void)state;
    ls_bench_line l;
    ls_bench_point same[] = { { 2, 64, 1 }, { 2, 64, 1.1 }, { 2, 64, 0.9 } }, zero[] = { { 1, 1, 0 }, { 1, 2, 1 } };
    assert_false(ls_bench_fit(same, 3, &l));
    assert_false(ls_bench_fit(same, 1, &l));
    assert_false(ls_bench_fit(same, 0, &l));
    assert_false(ls_bench_fit(zero, 2, &l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formulas_are_those_of_the_literature),
        cmocka_unit_test(nothing_gets_lost),
        cmocka_unit_test(bytes_in_shared_memory),
        cmocka_unit_test(bytes_of_the_forms),
        cmocka_unit_test(bytes_on_tcp),
        cmocka_unit_test(a_line_is_found_again),
        cmocka_unit_test(small_errors_stay_small),
        cmocka_unit_test(neither_part_is_negative),
        cmocka_unit_test(rows_that_are_alike_have_no_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
