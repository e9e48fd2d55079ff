/* straggler: who is named in which step, from times that are made up; what names no rank; a recovery; two phases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/straggler.h"

enum { RANKS = 4, MS = 1000000, ROW = LS_STRAGGLER_WINDOWS * LS_STRAGGLER_STEPS };

typedef struct scene {
    ls_straggler *s;
    int n;
    uint64_t now;
    uint32_t random;
    double ns[RANKS][LS_BUSY_PHASES]; /* of the next step */
} scene;

static scene begin(int n, double ratio)
{
    scene x = { .n = n, .random = 1 };
    assert_int_equal(ls_straggler_create(n, ratio, &x.s), LS_OK);
    for (int r = 0; r < n; r++) x.ns[r][LS_BUSY_COMPUTE] = 600.0 * MS, x.ns[r][LS_BUSY_INPUT] = 60.0 * MS;
    return x;
}

static ls_straggler_change step(scene *x)
{
    double longest = 0;
    for (int r = 0; r < x->n; r++) {
        const double all = x->ns[r][0] + x->ns[r][1];
        ls_straggler_tell(x->s, r, x->ns[r]);
        if (all > longest) longest = all;
    }
    x->now += (uint64_t)longest;
    return ls_straggler_step(x->s, x->now);
}

/* Steps until something changes, at most `most`: how many there were, or 0. */
static int steps(scene *x, int most, ls_straggler_change *c)
{
    for (int i = 1; i <= most; i++) {
        *c = step(x);
        if (c->found || c->over) return i;
    }
    return 0;
}

static void nothing_for(scene *x, int n)
{
    ls_straggler_change c;
    if (steps(x, n, &c)) fail_msg("rank %d is %s", c.rank, c.found ? "slow" : "slow no longer");
}

/* --- */

static void names_the_slow_rank_and_its_phase(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        for (int phase = 0; phase < LS_BUSY_PHASES; phase++) {
            scene x = begin(RANKS, 1.5);
            ls_straggler_change c;
            x.ns[rank][phase] = 1260.0 * MS;
            const double normal = phase == LS_BUSY_COMPUTE ? 600.0 * MS : 60.0 * MS;
            assert_int_equal(steps(&x, 20, &c), ROW);
            assert_true(c.found && !c.over && c.rank == rank && (int)c.phase == phase && c.others == 0);
            assert_true(fabs(c.ns - 1260.0 * MS) < 1 && fabs(c.median_ns - normal) < 1 && c.steps == ROW);
            nothing_for(&x, 100); /* it is said once */
            ls_straggler_destroy(x.s);
        }
    }
}

/* However the windows lie: faults.md promises 20 steps. */
static void finds_it_in_time(void **state)
{
    (void)state;
    for (int before = 0; before < 3 * LS_STRAGGLER_STEPS; before++) {
        scene x = begin(RANKS, 1.5);
        ls_straggler_change c;
        nothing_for(&x, before);
        x.ns[2][LS_BUSY_COMPUTE] *= 2;
        const int n = steps(&x, 100, &c);
        assert_in_range(n, 1, 19); /* and one more until the times of a step are told */
        assert_true(c.rank == 2 && c.phase == LS_BUSY_COMPUTE);
        ls_straggler_destroy(x.s);
    }
}

/* Windows last two seconds at least, so that many short steps are averaged, and not much longer. */
static void waits_for_seconds_of_short_steps(void **state)
{
    (void)state;
    scene x = begin(RANKS, 1.5);
    ls_straggler_change c;
    for (int r = 0; r < RANKS; r++) x.ns[r][LS_BUSY_COMPUTE] = 1.0 * MS, x.ns[r][LS_BUSY_INPUT] = 0;
    x.ns[3][LS_BUSY_COMPUTE] = 2.0 * MS;
    assert_int_equal(steps(&x, 5000, &c), LS_STRAGGLER_WINDOWS * (1 + LS_STRAGGLER_NS / (2 * MS)));
    assert_true(c.rank == 3 && (double)x.now < (LS_STRAGGLER_WINDOWS + 0.1) * LS_STRAGGLER_NS);
    ls_straggler_destroy(x.s);
}

static void says_when_it_is_over(void **state)
{
    (void)state;
    scene x = begin(RANKS, 1.5);
    ls_straggler_change c;
    x.ns[1][LS_BUSY_COMPUTE] *= 3;
    assert_true(steps(&x, 20, &c) && c.found && c.rank == 1);
    x.ns[1][LS_BUSY_COMPUTE] /= 3;
    assert_in_range(steps(&x, 100, &c), ROW, 20);
    assert_true(c.over && !c.found && c.rank == 1);
    nothing_for(&x, 50);
    x.ns[0][LS_BUSY_COMPUTE] *= 3; /* another one is a new change, */
    assert_true(steps(&x, 20, &c) && c.found && c.rank == 0);
    x.ns[0][LS_BUSY_COMPUTE] /= 3; /* also where it follows at once */
    x.ns[0][LS_BUSY_INPUT] += 500.0 * MS;
    assert_true(steps(&x, 20, &c) && c.found && c.rank == 0 && c.phase == LS_BUSY_INPUT);
    ls_straggler_destroy(x.s);
}

/* One step in each window takes five times as long, of the same rank. */
static void forgives_a_pause(void **state)
{
    (void)state;
    scene x = begin(RANKS, 1.5);
    for (int i = 0; i < 200; i++) {
        x.ns[2][LS_BUSY_COMPUTE] = (i % LS_STRAGGLER_STEPS == 3 ? 5 : 1) * 600.0 * MS;
        nothing_for(&x, 1);
    }
    ls_straggler_destroy(x.s);
}

/* A rank that is slow in one window fewer than there have to be, then the next rank, and so on. */
static void wants_windows_in_a_row(void **state)
{
    (void)state;
    scene x = begin(RANKS, 1.5);
    for (int i = 0; i < 40 * ROW; i++) {
        for (int r = 0; r < RANKS; r++) x.ns[r][LS_BUSY_COMPUTE] = 600.0 * MS;
        x.ns[i / (ROW - LS_STRAGGLER_STEPS) % RANKS][LS_BUSY_COMPUTE] *= 4;
        nothing_for(&x, 1);
    }
    ls_straggler_destroy(x.s);
}

/* Each step of each rank takes up to three times the least, without order. */
static void noise_is_no_straggler(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        scene x = begin(RANKS, 1.5);
        x.random = seed;
        for (int i = 0; i < 10000; i++) {
            for (int r = 0; r < RANKS; r++) {
                x.random = x.random * 1664525u + 1013904223u;
                x.ns[r][LS_BUSY_COMPUTE] = (1 + 2.0 * (x.random >> 8) / (1u << 24)) * 10 * MS;
            }
            nothing_for(&x, 1);
        }
        ls_straggler_destroy(x.s);
    }
}

static void a_little_longer_is_not_slow(void **state)
{
    (void)state;
    scene x = begin(RANKS, 1.5);
    ls_straggler_change c;
    x.ns[1][LS_BUSY_COMPUTE] = 1.49 * 600.0 * MS;
    nothing_for(&x, 100);
    x.ns[1][LS_BUSY_COMPUTE] = 1.51 * 600.0 * MS;
    assert_true(steps(&x, 20, &c) && c.rank == 1);
    ls_straggler_destroy(x.s);

    x = begin(RANKS, 1.5); /* beside a very slow rank the others' times, which are a few ms, do not matter */
    for (int r = 0; r < RANKS; r++) x.ns[r][LS_BUSY_COMPUTE] = (1 + r * r) * MS, x.ns[r][LS_BUSY_INPUT] = 0;
    x.ns[1][LS_BUSY_COMPUTE] = 600.0 * MS;
    assert_true(steps(&x, 20, &c) && c.rank == 1 && c.others == 0);
    ls_straggler_destroy(x.s);

    x = begin(RANKS, 1.5); /* many times as long, and next to nothing of the step */
    for (int r = 0; r < RANKS; r++) x.ns[r][LS_BUSY_INPUT] = 0.1 * MS;
    x.ns[1][LS_BUSY_INPUT] = 10.0 * MS;
    nothing_for(&x, 100);
    x.ns[1][LS_BUSY_INPUT] = 90.0 * MS;
    assert_true(steps(&x, 20, &c) && c.rank == 1 && c.phase == LS_BUSY_INPUT);
    ls_straggler_destroy(x.s);
}

/* Of two ranks the faster one is the measure. Of two slow ones the slower one is named, and the other is counted. */
static void counts_the_others(void **state)
{
    (void)state;
    ls_straggler_change c;
    scene x = begin(2, 1.5);
    x.ns[1][LS_BUSY_COMPUTE] *= 2;
    assert_true(steps(&x, 20, &c) && c.rank == 1 && c.others == 0 && fabs(c.median_ns - 600.0 * MS) < 1);
    ls_straggler_destroy(x.s);
    x = begin(RANKS, 1.5);
    x.ns[0][LS_BUSY_COMPUTE] *= 2;
    x.ns[3][LS_BUSY_COMPUTE] *= 2.5;
    assert_true(steps(&x, 20, &c) && c.rank == 3 && c.others == 1);
    ls_straggler_destroy(x.s);
    x = begin(RANKS, 1.5); /* the phase that costs more */
    x.ns[0][LS_BUSY_INPUT] += 600.0 * MS;
    x.ns[3][LS_BUSY_COMPUTE] += 660.0 * MS;
    assert_true(steps(&x, 20, &c) && c.rank == 3 && c.phase == LS_BUSY_COMPUTE && c.others == 0);
    x.ns[0][LS_BUSY_INPUT] += 100.0 * MS;
    assert_true(steps(&x, 20, &c) && c.rank == 0 && c.phase == LS_BUSY_INPUT && c.others == 0);
    ls_straggler_destroy(x.s);
}

/* Times of 0, as where a clock is too coarse to see a phase. */
static void nothing_measured(void **state)
{
    (void)state;
    scene x = begin(RANKS, 1.5);
    for (int r = 0; r < RANKS; r++) x.ns[r][0] = x.ns[r][1] = 0;
    for (int i = 0; i < 100; i++) {
        x.now += LS_STRAGGLER_NS;
        nothing_for(&x, 1);
    }
    ls_straggler_destroy(x.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_slow_rank_and_its_phase),
        cmocka_unit_test(finds_it_in_time),
        cmocka_unit_test(waits_for_seconds_of_short_steps),
        cmocka_unit_test(says_when_it_is_over),
        cmocka_unit_test(forgives_a_pause),
        cmocka_unit_test(wants_windows_in_a_row),
        cmocka_unit_test(noise_is_no_straggler),
        cmocka_unit_test(a_little_longer_is_not_slow),
        cmocka_unit_test(counts_the_others),
        cmocka_unit_test(nothing_measured),
    };
    return cmocka_run_group_tests_name("straggler", tests, NULL, NULL);
}
