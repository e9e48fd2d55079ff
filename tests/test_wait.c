/* ls_wait against an env with a clock of its own, then once against the real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/wait.h"

#define US 1000u
#define MS 1000000u
#define S 1000000000ull
#define N(a) (sizeof(a) / sizeof *(a))

/* What the waiting loop did, and what the world does to it. */
static struct world {
    uint64_t now;                       /* the clock; read without moving */
    uint64_t yield_ns, nap_ns;          /* what a yield takes; a nap, 0: until its deadline */
    unsigned spin_turns;

    int looks, clocks, yields, naps;    /* so far */
    int looks_parked;                   /* looks since parked was set, before the nap */
    int parkings;                       /* looks with parked set */
    uint64_t first_nap_ns, longest_nap_ns;
    int nap_fds;
    int traced_for;                     /* debugger questions still to be answered with yes */

    int ready_at_look;                  /* 1: at the first; 0: never */
    ls_status ready_with;
    int abort_at_look;
    int moves_from_look, moves_to_look; /* something moves at these looks, the last one excluded */
    uint64_t moved;
    _Atomic uint32_t abort, parked;
} w;

static uint64_t fake_mono_ns(void)
{
    w.clocks++;
    return w.now;
}

static void fake_yield(void)
{
    w.yields++;
    w.now += w.yield_ns;
}

static void fake_wait(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    assert_true(deadline_ns >= w.now);
    assert_int_equal(value, 1);
    assert_true(word == NULL || *word == 1);
    if (w.naps++ == 0) w.first_nap_ns = w.now;
    if (deadline_ns - w.now > w.longest_nap_ns) w.longest_nap_ns = deadline_ns - w.now;
    w.nap_fds = nfds;
    for (int i = 0; i < nfds; i++) assert_int_equal(fds[i].events, LS_POLL_IN);
    if (word) assert_int_equal(w.looks_parked, 1);
    w.looks_parked = 0;
    w.now = w.nap_ns && w.now + w.nap_ns < deadline_ns ? w.now + w.nap_ns : deadline_ns;
}

static bool fake_traced(int pid)
{
    assert_int_equal(pid, ls_env_real.pid());
    return w.traced_for > 0 && w.traced_for-- > 0;
}

static ls_status look(void *arg)
{
    assert_ptr_equal(arg, &w);
    w.looks++;
    if (atomic_load(&w.parked)) {
        w.looks_parked++;
        w.parkings++;
    }
    if (w.looks == w.abort_at_look) atomic_store(&w.abort, 1);
    if (w.looks >= w.moves_from_look && w.looks < w.moves_to_look) {
        w.moved++;
        w.looks_parked = 0; /* no nap follows */
    }
    return w.looks == w.ready_at_look ? w.ready_with : LS_AGAIN;
}

static int two_fds(void *arg, int *fds, int max)
{
    assert_ptr_equal(arg, &w);
    assert_true(max >= 2);
    fds[0] = 8;
    fds[1] = 9;
    return 2;
}

static ls_status run(ls_waiter waiter, uint64_t deadline_ns)
{
    ls_env env = ls_env_real;
    env.mono_ns = fake_mono_ns;
    env.yield = fake_yield;
    env.wait = fake_wait;
    env.traced = fake_traced;
    env.spin_turns = w.spin_turns;
    ls_context context = { .env = &env, .rank = -1 };
    ls_context *was = ls_context_swap(&context);
    ls_status st = ls_wait(&waiter, look, &w, deadline_ns);
    ls_context_swap(was);
    assert_int_equal(atomic_load(&w.parked), 0); /* whatever happened */
    return st;
}

static int fresh_world(void **state)
{
    (void)state;
    w = (struct world){ .now = 5 * S, .yield_ns = 1 * US, .spin_turns = 2000 };
    return 0;
}

static const ls_waiter plain = { .abort_word = &w.abort, .parked = &w.parked };
static const ls_waiter moving = { .abort_word = &w.abort, .parked = &w.parked, .moved = &w.moved };
static const ls_waiter spinning = { .abort_word = &w.abort, .parked = &w.parked, .may_spin = true };

/* --- what comes back -------------------------------------------------------------------- */

static void what_is_ready_costs_one_look(void **state)
{
    (void)state;
    static const ls_status with[] = { LS_OK, LS_NO_MEMORY, LS_PEER_RESET };
    const ls_waiter *const how[] = { &plain, &spinning };
    for (size_t i = 0; i < N(with) * N(how); i++) {
        fresh_world(NULL);
        w.ready_at_look = 1;
        w.ready_with = with[i / N(how)];
        assert_int_equal(run(*how[i % N(how)], 0), w.ready_with); /* though the deadline has passed */
        assert_int_equal(w.looks, 1);
        assert_int_equal(w.clocks + w.yields + w.naps, 0);
    }
}

static void comes_back_whenever_it_gets_ready(void **state)
{
    (void)state;
    static const int at[] = { 2, 63, 64, 65, 1999, 2000, 2001, 2064, 2300, 2400 };
    for (size_t i = 0; i < N(at); i++) {
        fresh_world(NULL);
        w.ready_at_look = at[i];
        assert_int_equal(run(spinning, LS_NO_DEADLINE), LS_OK);
        assert_int_equal(w.looks, at[i]);
    }
}

/* --- spin, yield, park ------------------------------------------------------------------- */

static void spins_only_if_it_may_and_never_longer_than_the_budget(void **state)
{
    (void)state;
    static const struct { bool may; unsigned turns; int ready, yields; } row[] = {
        { true, 2000, 2000, 0 }, { true, 2000, 2001, 0 }, { true, 2000, 2002, 1 },
        { true, 0, 1, 0 },       { true, 0, 2, 1 },       { false, 2000, 2, 1 },  { false, 2000, 11, 10 },
    };
    for (size_t i = 0; i < N(row); i++) {
        fresh_world(NULL);
        w.spin_turns = row[i].turns;
        w.ready_at_look = row[i].ready;
        ls_waiter how = plain;
        how.may_spin = row[i].may;
        assert_int_equal(run(how, LS_NO_DEADLINE), LS_OK);
        assert_int_equal(w.yields, row[i].yields);
        assert_int_equal(w.naps, 0);
    }
}

static void parks_after_200_us_and_64_turns_of_yielding(void **state)
{
    (void)state;
    static const struct { uint64_t yield_ns; int least, most; } row[] = {
        { 1 * US, 200, 216 },   /* the clock is read every 16 yields */
        { 2 * US, 100, 116 },
        { 1 * MS, 64, 64 },     /* others had the core: still give it away 64 times */
        { 100, 2000, 2016 },
    };
    for (size_t i = 0; i < N(row); i++) {
        fresh_world(NULL);
        w.yield_ns = row[i].yield_ns;
        assert_int_equal(run(plain, w.now + 1 * S), LS_RANK_HUNG);
        assert_in_range(w.yields, row[i].least, row[i].most);
        assert_true(w.first_nap_ns - 5 * S >= 200 * US);
    }
}

static void looks_once_more_between_parking_and_sleeping(void **state)
{
    (void)state;
    assert_int_equal(run(plain, w.now + 20 * MS), LS_RANK_HUNG); /* fake_wait asserts it for every nap */
    assert_true(w.naps >= 19);
    int all = w.looks;

    fresh_world(NULL);
    w.ready_at_look = all; /* the last look was one of those: now it succeeds, and there is no nap after it */
    assert_int_equal(run(plain, w.now + 20 * MS), LS_OK);
    assert_int_equal(w.looks_parked, 1);
}

static void a_nap_is_1_ms_at_most(void **state)
{
    (void)state;
    assert_int_equal(run(plain, w.now + 10 * MS), LS_RANK_HUNG);
    assert_int_equal(w.longest_nap_ns, MS);
    assert_in_range(w.naps, 10, 11);

    fresh_world(NULL);
    w.ready_at_look = 1000;
    assert_int_equal(run(plain, LS_NO_DEADLINE), LS_OK);
    assert_int_equal(w.longest_nap_ns, MS);

    fresh_world(NULL);
    assert_int_equal(run(plain, w.now + 300 * US), LS_RANK_HUNG); /* nor does it pass the deadline */
    assert_true(w.naps == 1 && w.now == 5 * S + 300 * US);
}

/* A transfer in many turns must not pay a nap for each. */
static void never_naps_while_something_moves(void **state)
{
    (void)state;
    static const uint64_t yield_ns[] = { 100, 1 * US, 1 * MS };
    for (size_t i = 0; i < N(yield_ns); i++) {
        fresh_world(NULL);
        w.yield_ns = yield_ns[i];
        w.moves_from_look = 1;
        w.moves_to_look = w.ready_at_look = 20000;
        assert_int_equal(run(moving, LS_NO_DEADLINE), LS_OK);
        assert_int_equal(w.parkings, 0);
    }
}

static void what_moves_after_naps_starts_the_yielding_again(void **state)
{
    (void)state;
    assert_int_equal(run(moving, w.now + 5 * MS), LS_RANK_HUNG); /* nothing moves: as ever */
    int naps = w.naps, looks = w.looks, yields = w.yields;
    assert_true(naps >= 4);

    fresh_world(NULL);
    w.moves_from_look = looks - 1; /* parked, about to sleep */
    w.moves_to_look = looks;
    w.ready_at_look = looks + 100; /* of some 200 looks between the yields */
    assert_int_equal(run(moving, w.now + 1 * S), LS_OK);
    assert_int_equal(w.naps, naps - 2); /* the look that saw it move was followed by no nap, nor were those after it */
    assert_true(w.yields >= yields + 99);

    fresh_world(NULL);
    w.moves_from_look = looks - 1;
    w.moves_to_look = looks;
    assert_int_equal(run(moving, w.now + 10 * MS), LS_RANK_HUNG);
    assert_in_range(w.yields, 2 * yields - 16, 2 * yields + 16); /* one more round of them, then naps again */
    assert_int_equal(w.longest_nap_ns, MS);
}

static void sleeps_on_the_descriptors_too(void **state)
{
    (void)state;
    ls_waiter how = plain;
    how.fds = two_fds;
    how.fds_arg = &w;
    assert_int_equal(run(how, w.now + 5 * MS), LS_RANK_HUNG);
    assert_int_equal(w.nap_fds, 2);
}

static void a_waiter_of_zeros_is_valid(void **state)
{
    (void)state;
    assert_int_equal(run((ls_waiter){ 0 }, w.now + 5 * MS), LS_RANK_HUNG);
    assert_true(w.naps > 0);
    assert_int_equal(w.now, 5 * S + 5 * MS);
}

/* --- abort and deadline ------------------------------------------------------------------- */

static void sees_an_abort_within_64_turns(void **state)
{
    (void)state;
    static const int at[] = { 1, 64, 500, 1990, 2001, 2100, 2260, 2261, 2400 };
    for (size_t i = 0; i < N(at); i++) {
        fresh_world(NULL);
        w.abort_at_look = at[i];
        assert_int_equal(run(spinning, LS_NO_DEADLINE), LS_ABORTED);
        assert_in_range(w.looks, at[i], at[i] + 64);
    }
}

static void an_abort_does_not_hide_what_is_ready(void **state)
{
    (void)state;
    atomic_store(&w.abort, 1);
    w.ready_at_look = 1;
    assert_int_equal(run(plain, LS_NO_DEADLINE), LS_OK);
}

static void is_late_by_16_yields_at_most(void **state)
{
    (void)state;
    static const uint64_t after[] = { 0, 1, 10 * US, 100 * US, 199 * US };
    for (size_t i = 0; i < N(after); i++) {
        fresh_world(NULL);
        assert_int_equal(run(plain, w.now + after[i]), LS_RANK_HUNG);
        assert_in_range(w.now - 5 * S, after[i], after[i] + 16 * US);
        assert_true(w.looks >= 1);
    }
}

static void the_deadline_pauses_while_a_debugger_is_attached(void **state)
{
    (void)state;
    w.traced_for = 3;
    assert_int_equal(run(plain, w.now + 5 * MS), LS_RANK_HUNG);
    assert_int_equal(w.traced_for, 0);
    assert_int_equal(w.now, 5 * S + 5 * MS + 3 * S);
}

/* --- the real world --------------------------------------------------------------------------- */

static struct exchange {
    _Atomic uint32_t value, parked;
    _Atomic int slept;
} x;

static ls_status value_is_set(void *arg)
{
    (void)arg;
    return atomic_load(&x.value) ? LS_OK : LS_AGAIN;
}

static void set_once_parked(void *arg)
{
    (void)arg;
    uint64_t deadline = ls_env_real.mono_ns() + 10 * S;
    while (atomic_load(&x.parked) == 0 && ls_env_real.mono_ns() < deadline) ls_env_real.yield();
    atomic_store(&x.slept, (int)atomic_load(&x.parked));
    atomic_store(&x.value, 1);
    atomic_store(&x.parked, 0);
    ls_env_real.wake((const uint32_t *)(const void *)&x.parked);
}

static void parks_and_is_woken_by_another_thread(void **state)
{
    (void)state;
    void *handle;
    assert_int_equal(ls_env_real.thread_start(set_once_parked, NULL, &handle), 0);
    ls_waiter how = { .parked = &x.parked };
    assert_int_equal(ls_wait(&how, value_is_set, NULL, ls_env_real.mono_ns() + 10 * S), LS_OK);
    ls_env_real.thread_join(handle);
    assert_int_equal(atomic_load(&x.slept), 1);
}

static void a_real_deadline_is_kept(void **state)
{
    (void)state;
    atomic_store(&x.value, 0);
    uint64_t deadline = ls_env_real.mono_ns() + 20 * MS;
    ls_waiter how = { .parked = &x.parked, .may_spin = true };
    assert_int_equal(ls_wait(&how, value_is_set, NULL, deadline), LS_RANK_HUNG);
    assert_true(ls_env_real.mono_ns() >= deadline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_ready_costs_one_look, fresh_world),
        cmocka_unit_test_setup(comes_back_whenever_it_gets_ready, fresh_world),
        cmocka_unit_test_setup(spins_only_if_it_may_and_never_longer_than_the_budget, fresh_world),
        cmocka_unit_test_setup(parks_after_200_us_and_64_turns_of_yielding, fresh_world),
        cmocka_unit_test_setup(looks_once_more_between_parking_and_sleeping, fresh_world),
        cmocka_unit_test_setup(a_nap_is_1_ms_at_most, fresh_world),
        cmocka_unit_test_setup(never_naps_while_something_moves, fresh_world),
        cmocka_unit_test_setup(what_moves_after_naps_starts_the_yielding_again, fresh_world),
        cmocka_unit_test_setup(sleeps_on_the_descriptors_too, fresh_world),
        cmocka_unit_test_setup(a_waiter_of_zeros_is_valid, fresh_world),
        cmocka_unit_test_setup(sees_an_abort_within_64_turns, fresh_world),
        cmocka_unit_test_setup(an_abort_does_not_hide_what_is_ready, fresh_world),
        cmocka_unit_test_setup(is_late_by_16_yields_at_most, fresh_world),
        cmocka_unit_test_setup(the_deadline_pauses_while_a_debugger_is_attached, fresh_world),
        cmocka_unit_test(parks_and_is_woken_by_another_thread),
        cmocka_unit_test(a_real_deadline_is_kept),
    };
    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
