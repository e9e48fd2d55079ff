/* Works: many in flight on groups that overlap, waited for in any order, with and without a progress thread; what
 * is refused; what the counters say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "group/group.h"
#include "harness_clock.h"

#define MS 1000000ull

static const char *const wires[] = { "shm", "tcp" };

/* Both wires, both ways to make progress. */
static _Atomic int aborts_seen, out_of_barrier;

static void everywhere(int n, ls_rank_fn fn)
{
    for (int wire = 0; wire < 2; wire++)
        for (int mode = 0; mode < 2; mode++) {
            ls_world_opts o = { .transport = wires[wire], .progress = mode ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, &o, fn, NULL);
            if (r.failed) fail_msg("%d ranks over %s%s: %s", n, wires[wire], mode ? ", progress thread" : "", r.text);
        }
}

/* --- several at once ------------------------------------------------------------------------------------- */

#define FLOATS 20000
#define IN_FLIGHT 24 /* over three groups */

typedef struct flight {
    ls_work *work;
    ls_group *g;
    float *x;
    ls_coll coll;
    size_t count;
} flight;

static float brought(int world_rank, int k) { return (float)(world_rank + 1 + k); }

static ls_status land(const flight *f, int k)
{
    float sum = 0.0f;
    for (int r = 0; r < ls_group_size(f->g); r++) sum += brought(ls_group_world_rank(f->g, r), k);
    for (size_t i = 0; i < f->count; i++) {
        float want = sum;
        if (f->coll == LS_BROADCAST) want = brought(ls_group_world_rank(f->g, 0), k);
        for (int r = 0; f->coll == LS_ALL_GATHER && r < ls_group_size(f->g); r++) {
            ls_range s;
            LS_TRY(ls_shard_range(f->count, r, ls_group_size(f->g), &s));
            if (i - s.first < s.count) want = brought(ls_group_world_rank(f->g, r), k);
        }
        LS_EXPECT(f->x[i] == want, "work %d, %s: element %zu is %g, expected %g", k, ls_coll_name(f->coll), i, (double)f->x[i], (double)want);
    }
    return LS_OK;
}

static ls_status take_off(ls_world *w, flight *f, int k)
{
    static const size_t counts[] = { 3, 200, 700, 5000, FLOATS };
    static const ls_coll colls[] = { LS_ALL_REDUCE, LS_BROADCAST, LS_ALL_GATHER };
    ls_range own;
    f->coll = colls[k / 3 % 3];
    f->count = counts[k % 5];
    LS_TRY(ls_shard_range(f->count, ls_group_rank(f->g), ls_group_size(f->g), &own));
    bool gather = f->coll == LS_ALL_GATHER, reads = f->coll != LS_BROADCAST || ls_group_rank(f->g) == 0;
    for (size_t i = 0; i < f->count; i++)
        f->x[i] = reads && (!gather || i - own.first < own.count) ? brought(ls_world_rank(w), k) : -1.0f;
    ls_coll_args a = { .coll = f->coll, .out = f->x, .count = f->count, .dtype = LS_F32, .label = "in flight" };
    return ls_coll_start(f->g, &a, &f->work);
}

/* Waits for the works in an order of this rank's own, sometimes after asking. */
static ls_status wait_in_disorder(ls_world *w, flight *f, unsigned seed)
{
    for (int left = IN_FLIGHT; left > 0; left--) {
        seed = seed * 1664525u + 1013904223u + (unsigned)ls_world_rank(w);
        int k = (int)(seed >> 8) % IN_FLIGHT;
        while (!f[k].work) k = (k + 1) % IN_FLIGHT;
        if (seed & 64) {
            ls_status st = ls_work_test(f[k].work);
            LS_EXPECT(st >= 0, "%s", ls_last_error());
            if (st == LS_OK) LS_TRY(land(&f[k], k));
        }
        LS_TRY(ls_work_wait(f[k].work));
        f[k].work = NULL;
        LS_TRY(land(&f[k], k));
        if (seed & 32) LS_TRY(ls_progress(w, 10000));
    }
    return LS_OK;
}

static ls_status flights(ls_world *w, void *arg)
{
    (void)arg;
    int me = ls_world_rank(w);
    ls_group *half, *mixed;
    flight f[IN_FLIGHT] = { 0 };
    LS_TRY(ls_group_split(ls_world_group(w), me / 2, &half));
    LS_TRY(ls_group_split(ls_world_group(w), me % 2, &mixed));
    ls_group *groups[] = { ls_world_group(w), half, mixed };
    for (int k = 0; k < IN_FLIGHT; k++) {
        void *p = malloc(FLOATS * sizeof(float));
        if (k % 4 == 0) { /* some are registered, and some only on one side */
            free(p);
            LS_TRY(ls_alloc(w, FLOATS * sizeof(float), LS_MEM_DATA, &p));
        }
        f[k].x = p;
        f[k].g = groups[k % 3];
    }
    ls_status st = LS_OK;
    for (unsigned turn = 0; turn < 6 && st == LS_OK; turn++) {
        for (int k = 0; k < IN_FLIGHT && st == LS_OK; k++) st = take_off(w, &f[k], k);
        if (st == LS_OK) st = wait_in_disorder(w, f, turn);
    }
    for (int k = 0; k < IN_FLIGHT; k++)
        if (k % 4) free(f[k].x);
    LS_TRY(st);
    ls_group_destroy(mixed);
    ls_group_destroy(half);
    return LS_OK;
}

static void works_may_be_waited_for_in_any_order(void **state)
{
    (void)state;
    everywhere(4, flights);
}

static ls_status fill_up(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    ls_work *work[LS_WORKS + 1];
    float x[LS_WORKS + 1][8];
    for (int turn = 0; turn < 3; turn++) {
        for (int k = 0; k < LS_WORKS; k++) {
            for (int i = 0; i < 8; i++) x[k][i] = (float)(k + ls_world_rank(w));
            ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x[k], .count = 8, .dtype = LS_F32 };
            LS_TRY(ls_coll_start(g, &a, &work[k]));
        }
        ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x[LS_WORKS], .count = 8, .dtype = LS_F32 };
        ls_status st = ls_coll_start(g, &a, &work[LS_WORKS]);
        LS_EXPECT(st == LS_INVALID && !work[LS_WORKS], "one too many gives %d", (int)st);
        LS_EXPECT(strstr(ls_last_error(), "64 collectives were started on group world"), "%s", ls_last_error());
        LS_EXPECT(ls_barrier(g) == LS_INVALID, "a barrier among 64 works");
        for (int k = LS_WORKS - 1; k >= 0; k--) LS_TRY(ls_work_wait(work[k])); /* the group is as good as ever */
        for (int k = 0; k < LS_WORKS; k++)
            LS_EXPECT(x[k][7] == (float)(2 * k + 1), "work %d: %g", k, (double)x[k][7]);
    }
    return LS_OK;
}

static void the_65th_work_is_refused_and_the_others_go_on(void **state)
{
    (void)state;
    everywhere(2, fill_up);
}

/* --- progress while the caller computes ----------------------------------------------------------------------- */

typedef struct sleep_plan {
    bool by_thread;
} sleep_plan;

/* One work that needs several exchanges; the caller does something else meanwhile. */
static ls_status sleep_while_it_runs(ls_world *w, void *arg)
{
    const sleep_plan *p = arg;
    size_t count = 200000;
    float *x = malloc(count * sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    ls_status st = LS_OK;
    for (int turn = 0; turn < 2 && st == LS_OK; turn++) {
        for (size_t i = 0; i < count; i++) x[i] = 1.0f;
        ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = count, .dtype = LS_F32 };
        ls_work *work;
        st = ls_barrier(ls_world_group(w));
        if (st == LS_OK) st = ls_coll_start(ls_world_group(w), &a, &work);
        if (st < 0) break;
        uint64_t t0 = ls_env_get()->mono_ns();
        ls_status asked = p->by_thread ? LS_AGAIN : LS_OK;
        if (!p->by_thread) usleep(100000);
        while (asked == LS_AGAIN && ls_env_get()->mono_ns() - t0 < 10000 * MS) { /* looking moves nothing */
            usleep(10000); /* ls_work_test would move it where there is no thread */
            asked = atomic_load_explicit(&work->done, memory_order_acquire) ? LS_OK : LS_AGAIN;
        }
        t0 = ls_env_get()->mono_ns();
        while (!p->by_thread && ls_work_test(work) == LS_AGAIN && ls_env_get()->mono_ns() - t0 < 10000 * MS)
            st = ls_progress(w, 100000); /* progress points do what the thread did */
        ls_comm_stats before, after;
        ls_comm_stats_read(w, &before);
        st = ls_work_wait(work);
        ls_comm_stats_read(w, &after);
        if (st == LS_OK && asked != LS_OK) st = ls_fail(LS_INTERNAL, "not complete after ten seconds of other work");
        if (st == LS_OK && after.exposed_ns != before.exposed_ns) st = ls_fail(LS_INTERNAL, "hidden time is counted as exposed");
        if (st == LS_OK && x[count - 1] != (float)ls_world_size(w)) st = ls_fail(LS_INTERNAL, "a wrong sum");
    }
    free(x);
    return st;
}

static void a_progress_thread_finishes_what_the_caller_forgot(void **state)
{
    (void)state;
    for (int wire = 0; wire < 2; wire++)
        for (int by_thread = 0; by_thread < 2; by_thread++) {
            sleep_plan p = { by_thread };
            ls_world_opts o = { .transport = wires[wire],
                                .progress = by_thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
            ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, 2, &o, sleep_while_it_runs, &p);
            if (r.failed) fail_msg("over %s, %s: %s", wires[wire], by_thread ? "thread" : "progress points", r.text);
        }
}

/* --- what is refused -------------------------------------------------------------------------------------------- */

static ls_status refusals(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    float x[4] = { 0 };
    const struct { ls_coll_args a; const char *says; } row[] = {
        { { .coll = LS_COLLS, .out = x, .count = 4 }, "collective number 10 does not exist" },
        { { .coll = (ls_coll)-1, .out = x, .count = 4 }, "does not exist" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = 4, .dtype = LS_DTYPES }, "dtype number 7 does not exist" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = 4, .op = (ls_redop)(LS_SUM_TREE + 1) },
          "reduction number 6 does not exist" },
        { { .coll = LS_BROADCAST, .out = x, .count = 4, .root = 2 }, "root 2 of a group of 2: expected 0 to 1" },
        { { .coll = LS_BROADCAST, .out = x, .count = 4, .root = -1 }, "root -1" },
        { { .coll = LS_ALL_REDUCE, .count = 4 }, "no buffer for 4 elements of float" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = 4, .dtype = LS_I32, .op = LS_AVG }, "the average of int32 is not defined" },
        { { .coll = LS_SENDRECV, .out = x, .count = 4 }, "sendrecv is no collective: start a message by ls_p2p_start" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = SIZE_MAX / 2, .dtype = LS_F32 }, "elements of float" },
        { { .coll = LS_ALL_TO_ALL, .in = x, .count = 4 }, "no buffer for 4 elements of float" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_work *work = (ls_work *)(void *)x;
        ls_status st = ls_coll_start(g, &row[i].a, &work);
        LS_EXPECT(st == LS_INVALID, "row %zu gives %d", i, (int)st);
        LS_EXPECT(!work, "row %zu: a work", i);
        LS_EXPECT(strstr(ls_last_error(), row[i].says), "'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    const struct { ls_p2p op; const char *says; } message[] = {
        { { .send = x, .count = 4, .peer = 2 }, "expected another rank from 0 to 1" },
        { { .send = x, .count = 4, .peer = -1 }, "expected another rank from 0 to 1" },
        { { .recv = x, .count = 4, .peer = ls_world_rank(w) }, "expected another rank from 0 to 1" },
        { { .send = x, .recv = x, .count = 4, .peer = 1 - ls_world_rank(w) }, "sends and receives at once" },
        { { .count = 4, .peer = 1 - ls_world_rank(w) }, "recv: no buffer for 4 elements of float" },
    };
    for (size_t i = 0; i < sizeof message / sizeof *message; i++) {
        ls_work *work = (ls_work *)(void *)x;
        ls_status st = ls_p2p_start(g, &message[i].op, NULL, &work);
        LS_EXPECT(st == LS_INVALID, "message %zu gives %d", i, (int)st);
        LS_EXPECT(!work, "message %zu: a work", i);
        LS_EXPECT(strstr(ls_last_error(), message[i].says), "'%s' does not say '%s'", ls_last_error(), message[i].says);
    }
    LS_EXPECT(ls_work_wait(NULL) == LS_OK, "waiting for nothing");
    return ls_barrier(g); /* nothing of this has numbered a collective */
}

static void names_what_is_wrong_with_a_call(void **state)
{
    (void)state;
    everywhere(2, refusals);
}

static void needs_a_group(void **state)
{
    (void)state;
    float x[4] = { 0 };
    ls_group *g;
    ls_work *work;
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = 4 };
    const ls_status st[] = { ls_barrier(NULL),
                             ls_all_reduce(NULL, x, x, 4, LS_F32, LS_SUM),
                             ls_send(NULL, x, 4, LS_F32, 1),
                             ls_recv(NULL, x, 4, LS_F32, 1),
                             ls_coll_start(NULL, &a, &work),
                             ls_group_split(NULL, 0, &g) };
    for (size_t i = 0; i < sizeof st / sizeof *st; i++) assert_int_equal(st[i], LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "call ls_world_join first"));
    ls_group_destroy(NULL);
}

/* --- what the counters say ------------------------------------------------------------------------------------------
 */

typedef struct count_row {
    const char *transport, *algo;
    ls_coll coll;
    size_t count;          /* floats */
    uint64_t times;       /* bytes that a rank of n moves, in (n-1)/n of the vector */
} count_row;

static ls_status one_moved(ls_world *w, void *arg)
{
    const count_row *x = arg;
    uint64_t n = (uint64_t)ls_world_size(w);
    void *p;
    LS_TRY(ls_alloc(w, x->count * sizeof(float), LS_MEM_DATA, &p));
    ls_coll_args a = { .coll = x->coll, .out = p, .count = x->count, .dtype = LS_F32 };
    for (int turn = 0; turn < 2; turn++) {
        ls_comm_stats before, after;
        ls_work *work;
        LS_TRY(ls_barrier(ls_world_group(w)));
        ls_comm_stats_read(w, &before);
        LS_TRY(ls_coll_start(ls_world_group(w), &a, &work));
        LS_TRY(ls_work_wait(work));
        ls_comm_stats_read(w, &after);
        uint64_t share = x->count * sizeof(float) / n, want = (n - 1) * share * x->times;
        LS_EXPECT(after.ops == before.ops + 1, "%llu works counted", (unsigned long long)(after.ops - before.ops));
        LS_EXPECT(after.bytes - before.bytes == want, "%s by %s over %s: %llu bytes, expected %llu", ls_coll_name(x->coll),
                  x->algo, x->transport, (unsigned long long)(after.bytes - before.bytes), (unsigned long long)want);
        const bool timed = x->count * sizeof(float) >= LS_TIMED_BYTES;
        const uint64_t busy = after.busy_ns - before.busy_ns; /* of a short one only if it has waited for long */
        LS_EXPECT(timed ? busy > 0 : busy == 0 || busy >= LS_LONG_WAIT_NS, "%llu ns busy", (unsigned long long)busy);
    }
    return LS_OK;
}

static void counts_the_bytes_that_the_formulas_say(void **state)
{
    (void)state;
    /* `times`: of (n-1)/n S. A ring sends each share twice round but once; fold reads and writes it; direct reads it,
     * then the finished ones; oneshot sends the whole vector to everybody, n times as much. */
    const count_row row[] = {
        { "tcp", "ring", LS_ALL_REDUCE, 48000, 2 },   { "tcp", "ring", LS_REDUCE_SCATTER, 48000, 1 },
        { "tcp", "ring", LS_ALL_GATHER, 48000, 1 },   { "tcp", "ring", LS_ALL_REDUCE, 480000, 2 },
        { "tcp", "direct", LS_ALL_REDUCE, 48000, 2 }, { "shm", "ring", LS_ALL_REDUCE, 48000, 2 },
        { "shm", "fold", LS_ALL_REDUCE, 48000, 2 },   { "shm", "fold", LS_REDUCE_SCATTER, 48000, 1 },
        { "shm", "direct", LS_ALL_REDUCE, 48000, 2 }, { "shm", NULL, LS_ALL_REDUCE, 48000, 2 },
        { "shm", NULL, LS_ALL_GATHER, 48000, 1 },     { "shm", NULL, LS_ALL_GATHER, 48, 1 },
    };
    for (int n = 1; n <= 4; n++)
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            count_row x = row[i];
            ls_world_opts o = { .transport = x.transport, .algo = x.algo };
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, &o, one_moved, &x);
            if (r.failed) fail_msg("%d ranks: %s", n, r.text);
        }
    count_row whole = { "shm", "oneshot", LS_ALL_REDUCE, 240, 3 }; /* reads three whole vectors: 3 times (n-1)/n of n = 3 */
    ls_world_opts o = { .transport = "shm", .algo = "oneshot" };
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 3, &o, one_moved, &whole);
    if (r.failed) fail_msg("%s", r.text);
}

/* Until a rank is in a slow wait: for collective number seq of the group, or with g == NULL for a message. */
static ls_status until_waits(ls_world *w, int rank, const ls_group *g, uint32_t seq)
{
    const ls_rank_slot *slot = &w->page->rank[rank];
    const uint64_t end = ls_env_get()->mono_ns() + 20000 * MS;
    while (g ? atomic_load(&slot->waits_for) != ls_page_waits_for(g->id, seq)
             : atomic_load(&slot->in_coll) != LS_IN_MESSAGE) {
        LS_EXPECT(ls_env_get()->mono_ns() < end, "rank %d does not wait", rank);
        usleep(1000);
    }
    return LS_OK;
}

/* Rank 1 comes late to a collective, to a message: when the others have waited for long. Rank 2 comes to the
 * collective a little later still, and is not the one; unless the machine kept it from running. That it measures, and
 * a trial in which it came as late as rank 1 says nothing: there is another. */
#define TRIALS 20
static ls_status one_is_late(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    ls_comm_stats s, before;
    float x[4] = { 0 };
    int me = ls_world_rank(w);
    ls_comm_stats_read(w, &s);
    LS_EXPECT(s.slow_waits > 0 || s.slow_rank == -1, "somebody is late before it began");
    for (int turn = 0, trial = 0; turn < 2;) {
        uint64_t also_late = 0;
        LS_TRY(ls_barrier(g));
        ls_comm_stats_read(w, &before);
        const ls_group *in = turn == 0 ? g : NULL;
        const uint32_t seq = g->seq;
        if (me == 1) {
            LS_TRY(until_waits(w, 0, in, seq));
            usleep(5 * LS_SLOW_NS / 1000);
        }
        if (me == 2 && turn == 0) {
            LS_TRY(until_waits(w, 1, in, seq));
            const uint64_t t0 = ls_env_get()->mono_ns();
            usleep(LS_SLOW_NS / 2000);
            also_late = ls_env_get()->mono_ns() - t0 > 2 * (uint64_t)LS_SLOW_NS;
        }
        if (turn == 0) LS_TRY(ls_all_reduce(g, NULL, x, 4, LS_F32, LS_SUM));
        else if (me < 2) LS_TRY(me ? ls_send(g, x, 4, LS_F32, 0) : ls_recv(g, x, 4, LS_F32, 1));
        ls_comm_stats_read(w, &s);
        /* rank 0 may have been kept from looking at the time, too */
        const bool as_it_was = s.slow_waits == before.slow_waits + 1 && s.slow_rank == 1 &&
                               s.waited_ns - before.waited_ns >= 4 * (uint64_t)LS_SLOW_NS;
        uint64_t again[3] = { 0 };
        again[me] = also_late || (me == 0 && !as_it_was);
        LS_TRY(ls_all_gather(g, NULL, again, 3, LS_I64));
        if (!again[0] && !again[2]) {
            turn++;
            continue;
        }
        LS_EXPECT(++trial < TRIALS, "turn %d: %d slow waits, rank %d is blamed, in the last of %d trials", turn,
                  (int)(s.slow_waits - before.slow_waits), s.slow_rank, TRIALS);
    }
    return LS_OK;
}

static void counts_who_is_slow(void **state)
{
    (void)state;
    everywhere(3, one_is_late);
}

/* A gradient of 16 bytes, for which the others wait until rank 1 comes: too small to be timed, but not its wait. */
static ls_status small_and_late(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    float x[4] = { 0 };
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = 4, .dtype = LS_F32, .op = LS_SUM };
    const int me = ls_world_rank(w);
    ls_comm_stats before, s;
    LS_TRY(ls_barrier(g));
    const uint32_t seq = g->seq;
    ls_comm_stats_read(w, &before);
    if (me == 1) {
        LS_TRY(until_waits(w, 0, g, seq));
        LS_TRY(until_waits(w, 2, g, seq));
        usleep(20000);
    }
    ls_work *work;
    LS_TRY(ls_coll_start(g, &a, &work));
    LS_TRY(ls_work_wait(work));
    ls_comm_stats_read(w, &s);
    ls_comm_stats_since(&before, &s);
    LS_EXPECT(me == 1 || s.exposed_ns >= 19 * MS, "rank %d: %llu ns exposed", me, (unsigned long long)s.exposed_ns);
    LS_EXPECT(me == 1 || s.busy_ns >= 19 * MS, "rank %d: %llu ns busy", me, (unsigned long long)s.busy_ns);
    return LS_OK;
}

static void counts_long_waits_for_small_works(void **state)
{
    (void)state;
    everywhere(3, small_and_late);
}

/* --- after a failure -------------------------------------------------------------------------------------------- */

static ls_status until_somebody_gives_up(ls_world *w)
{
    const uint64_t end = ls_env_get()->mono_ns() + 20000 * MS;
    while (!atomic_load(&w->page->abort_by)) {
        LS_EXPECT(ls_env_get()->mono_ns() < end, "nobody gives up");
        usleep(1000);
    }
    return LS_OK;
}

/* Rank 1 comes too late: rank 0 has given up and uses its buffer for something else. */
static ls_status too_late(ls_world *w, void *arg)
{
    (void)arg;
    enum { N = 3000 };
    ls_group *g = ls_world_group(w), *other;
    LS_TRY(ls_group_split(g, 0, &other));
    float *x = malloc(N * sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    for (int i = 0; i < N; i++) x[i] = 1.0f;
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = N, .dtype = LS_F32 };
    ls_work *work, *second;
    if (ls_world_rank(w) == 1) LS_TRY(until_somebody_gives_up(w));
    LS_TRY(ls_coll_start(g, &a, &work));
    a.coll = LS_BROADCAST;
    LS_TRY(ls_coll_start(g, &a, &second));
    ls_status st = ls_work_wait(work), st2 = ls_work_wait(second);
    memset(x, 0, N * sizeof *x);
    if (ls_world_rank(w) == 0) {
        LS_EXPECT((st == LS_RANK_HUNG || st == LS_ABORTED) && st2 < 0, "%d, then %d", (int)st, (int)st2);
        for (uint64_t end = ls_env_get()->mono_ns() + 400 * MS; ls_env_get()->mono_ns() < end; usleep(1000))
            LS_TRY(ls_progress(w, 1000));
        a = (ls_coll_args){ .coll = LS_BARRIER, .dtype = LS_U8 };
        st = ls_coll_start(other, &a, &work);
        for (int i = 0; st == LS_OK && i < 100; i++) (void)ls_work_test(work); /* moves all groups */
        if (st == LS_OK) LS_EXPECT(ls_work_wait(work) < 0, "a barrier of a failed job");
        st = ls_coll_start(g, &a, &work);
        LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "cannot be used any more: rank "), "%d %s", (int)st, ls_last_error());
    }
    for (size_t i = 0; i < N * sizeof *x; i++) LS_EXPECT(((char *)x)[i] == 0, "byte %zu is written after a failed wait", i);
    free(x);
    ls_group_destroy(other);
    return LS_OK;
}

static void a_failed_wait_gives_the_buffers_back(void **state)
{
    (void)state;
    for (int wire = 0; wire < 2; wire++)
        for (int mode = 0; mode < 2; mode++) {
            ls_world_opts o = { .transport = wires[wire],
                                .progress = mode ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE,
                                .coll_timeout_ns = 100 * MS };
            ls_rank_report r = ls_test_ranks_in_step(LS_TEST_PROCESSES, 2, &o, too_late, NULL);
            if (r.failed) fail_msg("over %s%s: %s", wires[wire], mode ? ", progress thread" : "", r.text);
        }
}

/* --- what completes after the job was aborted --- */

enum { QUICK, AT_ONCE, QUEUED, RECEIVED, WAYS };

/* Rank 1 has brought its part, then gives up: its buffers are its own again, so whatever rank 0 has read may be
 * anything, though it is all there. */
static ls_status after_an_abort(ls_world *w, void *arg)
{
    const int way = *(const int *)arg;
    ls_group *g = ls_world_group(w);
    float x[8] = { 0 };
    ls_coll_args a = { .coll = way == AT_ONCE ? LS_ALL_GATHER : LS_ALL_REDUCE, .out = x, .count = 8, .dtype = LS_F32 };
    ls_work *work = NULL;
    LS_TRY(ls_barrier(g));
    atomic_fetch_add(&out_of_barrier, 1);
    while (out_of_barrier < 2) usleep(100); /* or the barrier is what fails */
    if (ls_world_rank(w) == 1) {
        if (way == RECEIVED) LS_TRY(ls_send(g, x, 8, LS_F32, 0));
        else LS_TRY(ls_coll_start(g, &a, &work));
        (void)ls_page_abort(w->page, 2, LS_NAN, "rank 1 gives up");
        (void)ls_work_wait(work);
        return LS_OK;
    }
    while (!atomic_load_explicit(&w->page->abort_by, memory_order_acquire)) usleep(100);
    ls_status st;
    if (way == QUICK) st = ls_all_reduce(g, NULL, x, 8, LS_F32, LS_SUM);
    else if (way == AT_ONCE) st = ls_all_gather(g, NULL, x, 8, LS_F32);
    else if (way == RECEIVED) st = ls_recv(g, x, 8, LS_F32, 1);
    else if ((st = ls_coll_start(g, &a, &work)) == LS_OK) st = ls_work_wait(work);
    LS_EXPECT(st == LS_ABORTED && strstr(ls_last_error(), "rank 1 gives up"), "way %d gives %d: %s", way, (int)st,
              ls_last_error());
    atomic_fetch_add(&aborts_seen, 1);
    return LS_OK;
}

static void what_is_read_after_an_abort_is_no_result(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++)
        for (int wire = 0; wire < 2; wire++) {
            ls_world_opts o = { .transport = wires[wire] };
            aborts_seen = out_of_barrier = 0;
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, after_an_abort, &way);
            if (aborts_seen != 1) fail_msg("way %d over %s: %s", way, wires[wire], r.text);
        }
}

/* --- a work behind one that failed --- */

static ls_status no_memory(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    (void)t, (void)peer, (void)channel, (void)m, (void)ticket;
    return ls_fail(LS_NO_MEMORY, "a transport without memory");
}

/* Rank 0's first work fails while it is moved; whoever only tests the second one must hear of it. */
static ls_status tests_the_second(ls_world *w, void *arg)
{
    (void)arg;
    static float x[2][2][2000]; /* threads */
    int me = ls_world_rank(w);
    ls_transport_ops broken = *w->tops;
    ls_work *work[2];
    broken.send = no_memory;
    if (me == 0) w->tops = &broken;
    for (int i = 0; i < 2; i++) {
        ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x[me][i], .count = 2000, .dtype = LS_F32 };
        LS_TRY(ls_coll_start(ls_world_group(w), &a, &work[i]));
    }
    if (me == 1) return ls_work_wait(work[0]) == LS_OK ? ls_fail(LS_INTERNAL, "rank 0 has sent") : LS_OK;
    ls_status st = LS_AGAIN;
    for (uint64_t end = ls_env_get()->mono_ns() + 20000000000u; st == LS_AGAIN && ls_env_get()->mono_ns() < end;)
        st = ls_work_test(work[1]);
    LS_EXPECT(st == LS_NO_MEMORY && strstr(ls_last_error(), "without memory"), "%d: %s", (int)st, ls_last_error());
    LS_EXPECT(ls_work_test(work[0]) == LS_NO_MEMORY, "the first gives %s", ls_last_error());
    LS_EXPECT(ls_work_wait(work[1]) == LS_NO_MEMORY && ls_work_wait(work[0]) < 0, "%s", ls_last_error());
    w->tops = ls_transport_find("tcp");
    return LS_OK;
}

static void a_work_behind_a_failure_fails_when_it_is_tested(void **state)
{
    (void)state;
    ls_world_opts o = { .transport = "tcp" };
    ls_status st = ls_world_threads(2, &o, tests_the_second, NULL);
    if (st != LS_NO_MEMORY) fail_msg("%d: %s", (int)st, ls_last_error()); /* the job's cause */
    assert_non_null(strstr(ls_last_error(), "a transport without memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_may_be_waited_for_in_any_order),
        cmocka_unit_test(the_65th_work_is_refused_and_the_others_go_on),
        cmocka_unit_test(a_progress_thread_finishes_what_the_caller_forgot),
        cmocka_unit_test(names_what_is_wrong_with_a_call),
        cmocka_unit_test(needs_a_group),
        cmocka_unit_test(counts_the_bytes_that_the_formulas_say),
        cmocka_unit_test(counts_who_is_slow),
        cmocka_unit_test(counts_long_waits_for_small_works),
        cmocka_unit_test(a_failed_wait_gives_the_buffers_back),
        cmocka_unit_test(what_is_read_after_an_abort_is_no_result),
        cmocka_unit_test(a_work_behind_a_failure_fails_when_it_is_tested),
    };
    return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
