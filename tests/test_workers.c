/* Threads that do numbered jobs ahead of one consumer: order, failures, jobs that nobody wants any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/workers.h"

#define S 1000000000ull

typedef struct shop {
    ls_workers *w;
    _Atomic uint64_t last;      /* job that was begun last */
    _Atomic int begun, running; /* jobs, ever and now */
    _Atomic bool open;          /* jobs may end */
    int value[16];              /* of job j in slot j mod slots */
    int slots, together;        /* jobs wait until so many run at once */
    uint64_t broken;            /* this job fails */
} shop;

/* Waits until what() holds; a test that waits in vain fails. */
#define WAIT_UNTIL(what)                                                                                               \
    do {                                                                                                               \
        const uint64_t wait_end = ls_env_get()->mono_ns() + 60 * S;                                                    \
        while (!(what)) {                                                                                              \
            if (ls_env_get()->mono_ns() > wait_end) fail_msg("waited in vain for " #what);                             \
            ls_env_get()->yield();                                                                                     \
        }                                                                                                              \
    } while (0)

/* Later jobs end first, where that can be. */
static ls_status squares(void *arg, uint64_t job)
{
    shop *s = arg;
    atomic_fetch_add(&s->begun, 1);
    for (uint64_t i = 0; i < 20 * (4 - job % 4); i++) ls_env_get()->yield();
    s->value[job % (uint64_t)s->slots] = (int)(job * job);
    return job == s->broken ? ls_fail(LS_IO, "job %d is broken", (int)job) : LS_OK;
}

static void are_taken_in_order(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++)
        for (int slots = 1; slots <= 8; slots += 3) {
            shop s = { .slots = slots, .broken = UINT64_MAX };
            assert_int_equal(ls_workers_create(threads, slots, squares, &s, &s.w), LS_OK);
            int posted = 0;
            for (int taken = 0; taken < 40; taken++) {
                for (; posted < 40 && posted < taken + slots; posted++) ls_workers_post(s.w);
                assert_int_equal(ls_workers_posted(s.w), posted - taken);
                assert_int_equal(ls_workers_next(s.w), taken);
                assert_int_equal(ls_workers_take(s.w), LS_OK);
                assert_int_equal(s.value[taken % slots], taken * taken);
            }
            assert_int_equal(atomic_load(&s.begun), 40); /* each of them once */
            ls_workers_destroy(s.w);
        }
}

static void hand_over_what_failed(void **state)
{
    (void)state;
    shop s = { .slots = 4, .broken = 2 };
    assert_int_equal(ls_workers_create(3, 4, squares, &s, &s.w), LS_OK);
    for (int i = 0; i < 4; i++) ls_workers_post(s.w);
    for (int i = 0; i < 4; i++) {
        (void)ls_fail(LS_INVALID, "the consumer's own");
        assert_int_equal(ls_workers_take(s.w), i == 2 ? LS_IO : LS_OK);
        assert_string_equal(ls_last_error(), i == 2 ? "job 2 is broken" : "the consumer's own");
    }
    ls_workers_destroy(s.w);
}

/* So many at once that one thread fewer would not do. */
static ls_status meets(void *arg, uint64_t job)
{
    shop *s = arg;
    (void)job;
    const uint64_t end = ls_env_get()->mono_ns() + 60 * S;
    atomic_fetch_add(&s->running, 1);
    while (atomic_load(&s->running) < s->together) {
        if (ls_env_get()->mono_ns() > end) return LS_JOIN_TIMEOUT;
        ls_env_get()->yield();
    }
    return LS_OK;
}

static void run_at_the_same_time(void **state)
{
    (void)state;
    shop s = { .slots = 3, .together = 3 };
    assert_int_equal(ls_workers_create(3, 3, meets, &s, &s.w), LS_OK);
    for (int i = 0; i < 3; i++) ls_workers_post(s.w);
    for (int i = 0; i < 3; i++) assert_int_equal(ls_workers_take(s.w), LS_OK);
    ls_workers_destroy(s.w);
}

/* Ends when it is dropped, and not before. */
static ls_status stays(void *arg, uint64_t job)
{
    shop *s = arg;
    atomic_store(&s->last, job);
    atomic_fetch_add(&s->running, 1);
    const uint64_t end = ls_env_get()->mono_ns() + 60 * S;
    while (!ls_workers_unwanted(s->w, job) && !atomic_load(&s->open) && ls_env_get()->mono_ns() < end)
        ls_env_get()->yield();
    atomic_fetch_add(&s->begun, 1);
    atomic_fetch_sub(&s->running, 1);
    return LS_ABORTED;
}

static void forget_what_is_dropped(void **state)
{
    (void)state;
    shop s = { .slots = 8 };
    assert_int_equal(ls_workers_create(2, 8, stays, &s, &s.w), LS_OK);
    for (int i = 0; i < 8; i++) ls_workers_post(s.w);
    WAIT_UNTIL(atomic_load(&s.running) == 2);
    ls_workers_drop(s.w);
    assert_int_equal(atomic_load(&s.running), 0); /* no job runs behind our back, */
    assert_int_equal(atomic_load(&s.begun), 2);   /* and six never did */
    assert_int_equal(ls_workers_posted(s.w), 0);
    assert_int_equal(ls_workers_next(s.w), 8);
    ls_workers_drop(s.w); /* nothing to drop */

    atomic_store(&s.open, true); /* what is posted afterwards is wanted */
    ls_workers_post(s.w);
    assert_int_equal(ls_workers_take(s.w), LS_ABORTED);
    assert_int_equal(atomic_load(&s.last), 8);
    assert_int_equal(atomic_load(&s.begun), 3); /* still none of the six */
    ls_workers_destroy(s.w);
}

static void end_in_the_middle_of_work(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        shop s = { .slots = 6 };
        assert_int_equal(ls_workers_create(threads, 6, stays, &s, &s.w), LS_OK);
        for (int i = 0; i < 6; i++) ls_workers_post(s.w);
        WAIT_UNTIL(atomic_load(&s.running) == threads);
        ls_workers_destroy(s.w);
        assert_int_equal(atomic_load(&s.begun), threads);
    }
    ls_workers_destroy(NULL);
}

/* --- threads that do not start ------------------------------------------------------------- */

static int starts;

static int refuse_third(void (*fn)(void *), void *arg, void **handle)
{
    return ++starts == 3 ? -11 : ls_env_real.thread_start(fn, arg, handle); /* EAGAIN */
}

static void say_which_thread_does_not_start(void **state)
{
    (void)state;
    ls_env env = *ls_env_get();
    env.thread_start = refuse_third;
    ls_context c = { .env = &env, .rank = -1 }, *before = ls_context_swap(&c);
    shop s = { .slots = 4 };
    const ls_status st = ls_workers_create(4, 4, squares, &s, &s.w);
    ls_context_swap(before);
    assert_int_equal(st, LS_SYSTEM);
    assert_null(s.w);
    if (!strstr(c.error, "worker thread 3 of 4 cannot be started")) fail_msg("%s", c.error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_taken_in_order),
        cmocka_unit_test(hand_over_what_failed),
        cmocka_unit_test(run_at_the_same_time),
        cmocka_unit_test(forget_what_is_dropped),
        cmocka_unit_test(end_in_the_middle_of_work),
        cmocka_unit_test(say_which_thread_does_not_start),
    };
    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
