/* Arenas that grow: segments of one arena, and registered memory behind the first segment, which peers map when they
 * need it. */
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "group/group.h"
#include "harness.h"
#include "lockstep/mem.h"
#include "mem/ledger.h"

/* --- one arena ------------------------------------------------------------------------------------------- */

typedef struct seen {
    int calls, segment;
    bool has_fd;
    ls_status answer;
} seen;

static ls_status added(void *arg, int segment, int fd)
{
    seen *s = arg;
    s->calls++;
    s->segment = segment;
    s->has_fd = fd >= 0;
    return s->answer < 0 ? ls_fail(s->answer, "the store is gone") : LS_OK;
}

static void what_does_not_fit_gets_a_further_segment(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        ls_arena *a;
        ls_ledger l = { 0 };
        seen s = { 0 };
        void *p[3];
        uint64_t offset;
        assert_int_equal(ls_arena_create(8192, shared, &l, &a), LS_OK);
        ls_arena_may_grow(a, added, &s);
        assert_int_equal(ls_arena_alloc(a, 8000, LS_MEM_PARAM, &p[0]), LS_OK);
        assert_int_equal(s.calls, 0);
        assert_int_equal(ls_arena_alloc(a, 100000, LS_MEM_GRAD, &p[1]), LS_OK);
        assert_int_equal(s.calls, 1);
        assert_int_equal(s.segment, 1);
        assert_int_equal(s.has_fd, shared);
        for (size_t i = 0; i < 100000; i++) assert_int_equal(((char *)p[1])[i], 0);
        memset(p[1], 1, 100000);
        assert_true(ls_arena_offset(a, p[0], 8000, &offset) && offset == 0);
        assert_true(ls_arena_offset(a, (char *)p[1] + 64, 10, &offset));
        assert_true(offset == ((uint64_t)1 << LS_ARENA_PLACE_BITS) + 64);
        assert_true(ls_arena_holds(a, p[1], 100000));
        assert_false(ls_arena_holds(a, p[1], (size_t)2 << 20));
        assert_ptr_equal(ls_arena_segment(a, 1).base, p[1]);
        assert_int_equal(ls_arena_segment(a, 1).size, (size_t)1 << 20); /* small things share few segments */
        assert_int_equal(ls_arena_segment(a, 2).size, 0);
        assert_int_equal(ls_arena_segment(a, -1).size, 0);
        assert_int_equal(l.now[LS_MEM_PARAM] + l.now[LS_MEM_GRAD], 8000 + 100032);
        const size_t two = ls_arena_size(a), mark = ls_arena_mark(a);
        ls_arena_reset(a, 8000); /* the first segment has 192 bytes more */
        assert_int_equal(ls_arena_alloc(a, 192, LS_MEM_PARAM, &p[2]), LS_OK);
        assert_ptr_equal(p[2], (char *)p[0] + 8000);
        ls_arena_reset(a, 0);
        assert_int_equal(ls_arena_room(a, NULL), two); /* of both segments */
        assert_int_equal(ls_arena_alloc(a, 8000, LS_MEM_PARAM, &p[0]), LS_OK);
        assert_int_equal(ls_arena_alloc(a, 100000, LS_MEM_GRAD, &p[1]), LS_OK);
        assert_int_equal(ls_arena_mark(a), mark);
        assert_int_equal(s.calls, 1); /* no segment was added */
        /* more than it had wished for */
        assert_int_equal(ls_arena_alloc(a, (size_t)3 << 20, LS_MEM_GRAD, &p[2]), LS_OK);
        assert_int_equal(ls_arena_size(a), two + ((size_t)3 << 20));
        ls_arena_destroy(a);
        assert_int_equal(l.now[LS_MEM_PARAM] + l.now[LS_MEM_GRAD], 0);
    }
}

/* What is assigned to a unit in any segment is taken back with it. */
static void units_hold_memory_of_every_segment(void **state)
{
    (void)state;
    ls_arena *a;
    ls_ledger l = { 0 };
    seen s = { 0 };
    char *p[3];
    size_t mark[3];
    int first;
    assert_int_equal(ls_ledger_open(&l, 4, &first), LS_OK);
    assert_int_equal(ls_arena_create(4096, false, &l, &a), LS_OK);
    ls_arena_may_grow(a, added, &s);
    for (int i = 0; i < 3; i++) { /* each needs a segment of its own, and leaves some of the one before */
        assert_int_equal(ls_arena_alloc(a, (size_t)3000 << 10 * i, LS_MEM_PARAM, (void **)&p[i]), LS_OK);
        mark[i] = ls_arena_mark(a);
    }
    assert_int_equal(s.calls, 2);
    for (int i = 2; i >= 0; i--) assert_int_equal(ls_arena_assign(a, p[i] + 64, 1000, i), LS_OK);
    for (int i = 2; i >= 0; i--) {
        for (int k = 0; k < 3; k++) assert_int_equal(l.row[1 + k].now[LS_MEM_PARAM], k <= i ? 1000 : 0);
        ls_arena_reset(a, i > 0 ? mark[i - 1] + 64 : 0);
    }
    ls_arena_destroy(a);
    assert_int_equal(l.held[LS_MEM_PARAM], 0);
    ls_ledger_close(&l, first);
}

/* A mark counts bytes over all segments; what was given back is handed out again, and no segment is added for it. */
static void marks_reach_over_segments(void **state)
{
    (void)state;
    ls_arena *a;
    ls_ledger l = { 0 };
    seen s = { 0 };
    static struct { size_t mark, nbytes; char *p; } live[512];
    int n = 0;
    uint64_t seed = 11;
    assert_int_equal(ls_arena_create(4096, false, &l, &a), LS_OK);
    ls_arena_may_grow(a, added, &s);
    for (int turn = 0; turn < 5000; turn++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(seed >> 33);
        if (n == 512 || (r % 8 == 0 && n > 0)) {
            n -= (int)(r / 8 % 200) < n ? (int)(r / 8 % 200) : n;
            ls_arena_reset(a, n > 0 ? live[n - 1].mark : 0);
        } else {
            void *p;
            size_t nbytes = r / 8 % 3000;
            assert_int_equal(ls_arena_alloc(a, nbytes, (ls_mem_kind)(r / 65536 % LS_MEM_KINDS), &p), LS_OK);
            live[n].nbytes = (nbytes + 63) / 64 * 64;
            live[n].p = p;
            memset(p, n & 127, nbytes);
            live[n].mark = ls_arena_mark(a);
            n++;
        }
        size_t all = 0, counted = 0;
        for (int i = 0; i < n; i++) all += live[i].nbytes;
        for (int k = 0; k < LS_MEM_KINDS; k++) counted += l.now[k];
        assert_int_equal(ls_arena_mark(a), all);
        assert_int_equal(counted, all);
        for (int i = 0; i < n; i++) /* nothing was handed out twice */
            if (live[i].nbytes > 64) assert_int_equal(live[i].p[live[i].nbytes / 2], i & 127);
    }
    assert_true(s.calls < 12);
    ls_arena_destroy(a);
}

/* Whoever gives up because the job was aborted says why the job was. */
static void one_that_is_aborted_says_so(void **state)
{
    (void)state;
    ls_arena *a;
    seen s = { .answer = LS_ABORTED };
    void *p;
    assert_int_equal(ls_arena_create(4096, true, NULL, &a), LS_OK);
    ls_arena_may_grow(a, added, &s);
    assert_int_equal(ls_arena_alloc(a, 5000, LS_MEM_GRAD, &p), LS_ABORTED);
    assert_string_equal(ls_last_error(), "the store is gone");
    assert_null(p);
    ls_arena_destroy(a);
}

/* Another thread asks for the room while a segment is added, which is in the middle of an allocation. */
typedef struct asker {
    ls_arena *a;
    void *thread;
    _Atomic bool waits, answered;
    size_t room, size;
} asker;

static asker *asks; /* of the running test */

static void wait_and_yield(void)
{
    atomic_store(&asks->waits, true);
    ls_env_real.yield();
}

static void ask_for_room(void *arg)
{
    asker *x = arg;
    ls_env env = ls_env_real;
    env.yield = wait_and_yield;
    ls_context_get()->env = &env;
    x->room = ls_arena_room(x->a, &x->size);
    ls_context_get()->env = &ls_env_real;
    atomic_store(&x->answered, true);
}

static ls_status added_and_asked(void *arg, int segment, int fd)
{
    asker *x = arg;
    (void)segment, (void)fd;
    assert_int_equal(ls_env_real.thread_start(ask_for_room, x, &x->thread), 0);
    while (!atomic_load(&x->waits) && !atomic_load(&x->answered)) ls_env_real.yield();
    return LS_OK;
}

static void room_is_that_before_or_after_an_allocation(void **state)
{
    (void)state;
    asker x = { .thread = NULL };
    void *p;
    asks = &x;
    assert_int_equal(ls_arena_create(4096, true, NULL, &x.a), LS_OK);
    ls_arena_may_grow(x.a, added_and_asked, &x);
    assert_int_equal(ls_arena_alloc(x.a, 8192, LS_MEM_COMM, &p), LS_OK);
    ls_env_real.thread_join(x.thread);
    assert_true(x.waits);
    assert_int_equal(x.size, ls_arena_size(x.a));
    assert_int_equal(x.size, 4096 + ((size_t)1 << 20));
    assert_int_equal(x.room, ((size_t)1 << 20) - 8192); /* the rest of the new segment; the first is passed by */
    assert_int_equal(ls_arena_room(x.a, NULL), x.room);
    ls_arena_destroy(x.a);
}

static uint64_t two_pages(void) { return 8192; }

/* There is memory for what is asked and not for what the arena would like: segments of what is asked, as many as there
 * may be. */
static void one_that_is_short_of_memory_takes_what_it_needs(void **state)
{
    (void)state;
    ls_env env = ls_env_real;
    ls_context context = { .env = &env, .rank = -1 };
    ls_arena *a;
    seen s = { 0 };
    void *p;
    assert_int_equal(ls_arena_create(4096, false, NULL, &a), LS_OK);
    ls_arena_may_grow(a, added, &s);
    env.mem_available = two_pages;
    ls_context_swap(&context);
    ls_status st = LS_OK;
    int n = 0;
    while (n < 2 * LS_ARENA_SEGMENTS && (st = ls_arena_alloc(a, 5000, LS_MEM_GRAD, &p)) == LS_OK) n++;
    char text[LS_ERROR_BYTES];
    strcpy(text, context.error);
    ls_context_swap(NULL);
    assert_int_equal(st, LS_NO_MEMORY);
    assert_int_equal(n, LS_ARENA_SEGMENTS - 1); /* the first is too small */
    assert_int_equal(ls_arena_size(a), 4096 + 8192 * n);
    if (!strstr(text, "the arena has 64 segments, which is all that it can have")) fail_msg("%s", text);
    ls_arena_destroy(a);
}

static uint64_t little(void) { return 1 << 20; }

static void one_that_cannot_grow_says_what_wanted_how_much(void **state)
{
    (void)state;
    ls_arena *a;
    seen s = { .answer = LS_PEER_RESET };
    void *p;
    assert_int_equal(ls_arena_create(4096, true, NULL, &a), LS_OK);
    assert_int_equal(ls_arena_alloc(a, 5000, LS_MEM_GRAD, &p), LS_NO_MEMORY); /* it was not told to */
    assert_non_null(strstr(ls_last_error(), "5000 bytes (grad) do not fit into the arena: 4096 of 4096 are free"));
    ls_arena_may_grow(a, added, &s);
    assert_int_equal(ls_arena_alloc(a, 3 << 20, LS_MEM_GRAD, &p), LS_NO_MEMORY);
    assert_null(p);
    assert_non_null(strstr(ls_last_error(), "cannot grow by 3.0 MiB (grad)"));
    assert_non_null(strstr(ls_last_error(), "the store is gone"));
    assert_int_equal(ls_arena_size(a), 4096); /* as it was */
    s.answer = LS_OK;
    ls_env env = ls_env_real;
    ls_context context = { .env = &env, .rank = -1 };
    env.mem_available = little;
    ls_context_swap(&context);
    ls_status st = ls_arena_alloc(a, 3 << 20, LS_MEM_OPTIM, &p);
    char text[LS_ERROR_BYTES];
    strcpy(text, context.error);
    ls_context_swap(NULL);
    assert_int_equal(st, LS_NO_MEMORY);
    assert_non_null(strstr(text, "cannot grow by 3.0 MiB (optim)"));
    assert_non_null(strstr(text, "1.0 MiB of memory are available"));
    assert_int_equal(ls_arena_alloc(a, 100, LS_MEM_OPTIM, &p), LS_OK); /* what fits still does */
    ls_arena_destroy(a);
}

/* --- several ranks ---------------------------------------------------------------------------------------- */

#define COUNT ((size_t)400000)

/* Vectors in the first, second and third segment; sums in place, gathers, and messages that are read where they lie. */
static ls_status talk(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    float *x[3];
    for (int i = 0; i < 3; i++) {
        void *p;
        LS_TRY(ls_alloc(w, (i == 0 ? 1000 : COUNT << i) * sizeof(float), LS_MEM_GRAD, &p));
        x[i] = p;
    }
    LS_EXPECT(ls_arena_segment(w->arena, 2).size > 0, "the arena did not grow");
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 3; i++) {
            const size_t n = i == 0 ? 1000 : COUNT;
            for (size_t k = 0; k < n; k++) x[i][k] = (float)(rank + i);
            LS_TRY(ls_all_reduce(g, NULL, x[i], n, LS_F32, LS_SUM));
            const float want = (float)(size * (size - 1) / 2 + size * i);
            for (size_t k = 0; k < n; k++)
                LS_EXPECT(x[i][k] == want, "segment %d: x[%zu] = %g, want %g", i, k, (double)x[i][k], (double)want);
            LS_TRY(ls_barrier(g)); /* who reads a result must not find the next one */
        }
    for (size_t k = 0; k < COUNT; k++) x[1][k] = (float)rank;
    LS_TRY(ls_broadcast(g, x[1], COUNT, LS_F32, size - 1));
    for (size_t k = 0; k < COUNT; k++)
        LS_EXPECT(x[1][k] == (float)(size - 1), "broadcast: x[%zu] = %g", k, (double)x[1][k]);
    for (size_t k = 0; k < COUNT; k++) x[1][k] = (float)(10 * rank);
    const ls_p2p op[] = { { .send = x[1], .count = COUNT, .dtype = LS_F32, .peer = (rank + 1) % size },
                          { .recv = x[2], .count = COUNT, .dtype = LS_F32, .peer = (rank + size - 1) % size } };
    LS_TRY(ls_p2p_batch(g, op, 2));
    const float from = (float)(10 * ((rank + size - 1) % size));
    for (size_t k = 0; k < COUNT; k++) LS_EXPECT(x[2][k] == from, "message: x[%zu] = %g", k, (double)x[2][k]);
    return ls_barrier(g);
}

static void peers_find_what_lies_behind_the_first_segment(void **state)
{
    (void)state;
    static const char *const transport[] = { "shm", "mixed" };
    for (int mode = 0; mode < 2; mode++)
        for (int progress = 0; progress < 2; progress++)
            for (int t = 0; t < 2; t++) {
                const int nodes[] = { 0, 0, 1 };
                ls_world_opts o = { .arena_bytes = (size_t)256 << 10, .transport = transport[t],
                                    .node = t ? nodes : NULL,
                                    .progress = progress ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
                ls_rank_report r = ls_test_ranks(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, 3, &o, talk, NULL);
                if (r.failed)
                    fail_msg("%s, progress %d, %s: %s", mode ? "processes" : "threads", progress, transport[t], r.text);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_gets_a_further_segment),
        cmocka_unit_test(units_hold_memory_of_every_segment),
        cmocka_unit_test(marks_reach_over_segments),
        cmocka_unit_test(one_that_is_aborted_says_so),
        cmocka_unit_test(room_is_that_before_or_after_an_allocation),
        cmocka_unit_test(one_that_is_short_of_memory_takes_what_it_needs),
        cmocka_unit_test(one_that_cannot_grow_says_what_wanted_how_much),
        cmocka_unit_test(peers_find_what_lies_behind_the_first_segment),
    };
    return cmocka_run_group_tests_name("arena_grows", tests, NULL, NULL);
}
