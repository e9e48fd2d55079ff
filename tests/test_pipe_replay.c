/* Replay of pipeline schedules: closed forms of the literature, published bubbles, and any times of stages. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_pipe.h"
#include "lockstep/rng.h"
#include "parallel/pipe_replay.h"

#define COUNT(a)    (sizeof(a) / sizeof *(a))
#define MOST_STAGES 128

/* Of a step whose ranks take f, i and w for their part of the model, which chunks share evenly. */
static ls_pipe_replay even(const ls_pipe_program *g, double f, double i, double w, double transfer)
{
    static double time[3][MOST_STAGES];
    ls_pipe_replay r;
    for (int s = 0; s < g->shape.ranks * g->shape.chunks; s++) {
        time[0][s] = f / g->shape.chunks;
        time[1][s] = i / g->shape.chunks;
        time[2][s] = w / g->shape.chunks;
    }
    const ls_pipe_times t = { time[0], time[1], time[2], transfer };
    if (ls_pipe_replay_create(g, &t, &r) < 0) fail_msg("%s", ls_last_error());
    return r;
}

#define NEAR 1e-12 /* of the step: sums of a few hundred doubles */

static void is_near(const ls_pipe_program *g, double got, double want)
{
    if (fabs(got - want) > NEAR * fabs(want))
        fail_msg("%s, p %d v %d m %d: %.15g, expected %.15g", g->schedule->name, g->shape.ranks, g->shape.chunks,
                 g->shape.micro_batches, got, want);
}

/* --- closed forms -------------------------------------------------------------------------------- */

static void gpipe_and_1f1b_have_the_same_bubble(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 24; m++)
            for (int k = 0; k < 2; k++) {
                ls_pipe_program g = program_of(k ? "1f1b" : "gpipe", p, 0, m);
                ls_pipe_replay r = even(&g, 3.0, 2.0, 2.5, 0.0);
                is_near(&g, r.step, (m + p - 1) * 7.5);
                is_near(&g, 1.0 - ls_pipe_bubble(&r), 1.0 - (p - 1.0) / (m + p - 1.0));
                for (int rank = 0; rank < p; rank++) is_near(&g, r.busy[rank], m * 7.5);
                ls_pipe_replay_free(&r);
                ls_pipe_program_free(&g);
            }
}

static void chunks_divide_the_bubble(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int v = 2; v <= 4; v++)
            for (int m = p; m <= 4 * p; m += p) {
                ls_pipe_program g = program_of("interleaved", p, v, m);
                ls_pipe_replay r = even(&g, 1.0, 1.25, 0.75, 0.0);
                is_near(&g, r.step, m * 3.0 + (p - 1) * 3.0 / v);
                is_near(&g, 1.0 - ls_pipe_bubble(&r), 1.0 - (p - 1.0) / (v * m + p - 1.0));
                ls_pipe_replay_free(&r);
                r = even(&g, 1.0, 1.25, 0.75, 1e-3); /* the first micro-batch travels there and back */
                is_near(&g, r.step, m * 3.0 + (p - 1) * 3.0 / v + (2 * v * p - 2) * 1e-3);
                ls_pipe_replay_free(&r);
                ls_pipe_program_free(&g);
            }
}

static void zero_bubble_schedules_are_as_short_as_their_papers_say(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 2 * p; m <= 4 * p; m++) {
            ls_pipe_program h1 = program_of("zb-h1", p, 0, m), v = program_of("zb-v", p, 0, m);
            ls_pipe_replay r = even(&h1, 3.0, 2.5, 2.0, 0.0);
            is_near(&h1, r.step, m * 7.5 + (p - 1) * (3.0 + 2.5 - 2.0));
            ls_pipe_replay_free(&r);
            r = even(&h1, 1.0, 1.0, 1.0, 0.0); /* a third of 1F1B's */
            is_near(&h1, r.step, m * 3.0 + (p - 1) * 3.0 / 3.0);
            ls_pipe_replay_free(&r);
            r = even(&v, 1.0, 1.0, 1.0, 0.0);
            is_near(&v, r.span, m * 3.0); /* no rank idles between its first and last action */
            is_near(&v, r.step, m * 3.0 + (p - 1) * 0.5);
            ls_pipe_replay_free(&r);
            ls_pipe_program dual = program_of("dualpipe-v", p, 0, m);
            r = even(&dual, 1.0, 1.0, 1.0, 0.0);
            is_near(&dual, r.step, m * 3.0 + (p - 1) * 0.5);
            ls_pipe_replay_free(&r);
            ls_pipe_program_free(&dual);
            ls_pipe_program_free(&h1);
            ls_pipe_program_free(&v);
        }
}

/* How much of a hop 1F1B and ZB-H1 wait for, where ranks divide micro-batches. */
static void hops_take_the_time_that_a_round_trip_waits_for_them(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = p; m <= 4 * p; m += p) {
            const double x = 1e-2;
            ls_pipe_program g = program_of("1f1b", p, 0, m);
            ls_pipe_replay r = even(&g, 3.0, 2.5, 2.0, x);
            is_near(&g, r.step, (m + p - 1) * 7.5 + 2 * x * ((p - 1.0) * (m + p) / p - 1));
            ls_pipe_replay_free(&r);
            ls_pipe_program_free(&g);
            g = program_of("gpipe", p, 0, m);
            r = even(&g, 3.0, 2.5, 2.0, x);
            is_near(&g, r.step, (m + p - 1) * 7.5 + 2 * (p - 1) * x);
            ls_pipe_replay_free(&r);
            ls_pipe_program_free(&g);
        }
}

/* Qi et al. 2023 (arXiv 2401.10241): the times of a stage in ms (Table 9), and the bubbles that follow from them (Table
 * 5). Chunks are one layer each. Their interleaved 1F1B waits for p hops fewer than the first micro-batch makes. */
static void bubbles_are_those_of_the_zero_bubble_paper(void **state)
{
    (void)state;
    static const struct { int p, v, m; double f, i, w, x, f1b1, interleaved, zb_h1, zb_h2; } row[] = {
        { 8, 3, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1055, 0.1585, 0.1083 },
        { 8, 3, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0443, 0.0674, 0.0444 },
        { 8, 4, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.0808, 0.1323, 0.0698 },
        { 8, 4, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0320, 0.0554, 0.0294 },
        { 16, 3, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1104, 0.1397, 0.0672 },
        { 16, 3, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0445, 0.0576, 0.0266 },
        { 32, 2, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1493, 0.1421, 0.0641 },
        { 32, 2, 256, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0624, 0.0594, 0.0257 },
    };
    for (size_t k = 0; k < COUNT(row); k++)
        for (int how = 0; how < 4; how++) {
            static const char *const name[] = { "1f1b", "interleaved", "zb-h1", "zb-h2" };
            const double wants[] = { row[k].f1b1, row[k].interleaved, row[k].zb_h1, row[k].zb_h2 };
            ls_pipe_program g = program_of(name[how], row[k].p, how == 1 ? row[k].v : 1, row[k].m);
            ls_pipe_replay r = even(&g, row[k].f, row[k].i, row[k].w, row[k].x);
            const double cost = r.span - (how == 1 ? row[k].p * row[k].x : 0.0);
            char got[16], expected[16];
            snprintf(got, sizeof got, "%.4f", (cost - row[k].m * (row[k].f + row[k].i + row[k].w)) / cost);
            snprintf(expected, sizeof expected, "%.4f", wants[how]);
            assert_string_equal(got, expected);
            ls_pipe_replay_free(&r);
            ls_pipe_program_free(&g);
        }
}

/* --- any times ----------------------------------------------------------------------------------- */

/* The end of each action by its definition: passes over all actions, until no end moves. */
typedef struct naive {
    double end[4][MOST_STAGES][32]; /* by ls_pipe_what; of a whole backward at LS_PIPE_BACKWARD_INPUT, too */
} naive;

static double naive_step(const ls_pipe_program *g, const ls_pipe_times *t, naive *n)
{
    const int stages = g->shape.ranks * g->shape.chunks;
    double step = 0.0;
    memset(n, 0, sizeof *n);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < g->shape.ranks; rank++) {
            double now = 0.0;
            for (int i = 0; i < g->list[rank].n; i++) {
                const ls_pipe_action *a = &g->list[rank].action[i];
                const int s = a->stage, m = a->micro_batch;
                const int from = a->what == LS_PIPE_FORWARD ? s - 1 : a->what == LS_PIPE_BACKWARD_WEIGHT ? -1 : s + 1;
                const ls_pipe_what what = a->what == LS_PIPE_BACKWARD ? LS_PIPE_BACKWARD_INPUT : a->what;
                if (from >= 0 && from < stages) {
                    const bool local = ls_pipe_place_rank(g->placement, g->shape.ranks, from) == rank;
                    now = fmax(now, n->end[what][from][m] + (local ? 0.0 : t->transfer));
                }
                if (a->what == LS_PIPE_FORWARD) now += t->forward[s];
                if (a->what == LS_PIPE_BACKWARD || a->what == LS_PIPE_BACKWARD_INPUT) now += t->input[s];
                if (a->what == LS_PIPE_BACKWARD || a->what == LS_PIPE_BACKWARD_WEIGHT) now += t->weight[s];
                moved = moved || n->end[what][s][m] < now;
                n->end[what][s][m] = now;
                step = fmax(step, now);
            }
        }
    }
    return step;
}

static void any_times_give_what_the_definition_says(void **state)
{
    (void)state;
    static naive n;
    static double time[3][MOST_STAGES];
    float drawn[3 * MOST_STAGES];
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 12; m++) {
                ls_pipe_program g = program_of(ls_pipe_schedules[k]->name, p, 0, m);
                ls_philox_uniform(7, (uint64_t)(100 * p + m), 0, COUNT(drawn), 0.1f, 1.1f, drawn);
                for (int i = 0; i < 3; i++)
                    for (int s = 0; s < MOST_STAGES; s++) time[i][s] = (double)drawn[i * MOST_STAGES + s];
                const ls_pipe_times t = { time[0], time[1], time[2], 0.3 };
                ls_pipe_replay r;
                assert_int_equal(ls_pipe_replay_create(&g, &t, &r), LS_OK);
                is_near(&g, r.step, naive_step(&g, &t, &n));
                for (int rank = 0; rank < p; rank++)
                    for (int i = 1; i < g.list[rank].n; i++) /* one after another */
                        assert_true(r.action[rank][i].begins >= r.action[rank][i - 1].ends);
                ls_pipe_replay_free(&r);
                ls_pipe_program_free(&g);
            }
}

/* 1F1B on 4 ranks: rank r begins with p - r forwards, and idles between the last of them and its first backward. */
static void phases_add_up_to_the_step(void **state)
{
    (void)state;
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int m = 1; m <= 12; m++) {
            ls_pipe_program g = program_of(ls_pipe_schedules[k]->name, 4, 0, m);
            ls_pipe_replay r = even(&g, 1.0, 1.0, 1.0, 0.125);
            for (int rank = 0; rank < 4; rank++) {
                ls_pipe_phases f;
                ls_pipe_phases_of(&g, &r, rank, &f);
                is_near(&g, f.warm_up + f.steady + f.cool_down + f.idle, r.step);
                is_near(&g, f.warm_up + f.steady + f.cool_down, r.busy[rank]);
                assert_true(f.steady_begins <= f.cool_down_begins && f.cool_down_begins <= r.step);
                const bool is_1f1b = strcmp(g.schedule->name, "1f1b") == 0;
                if (is_1f1b) is_near(&g, f.warm_up, m < 4 - rank ? m : 4 - rank);
                if (is_1f1b) is_near(&g, f.cool_down, 2.0 * (m < 4 - rank ? m : 4 - rank));
                if (is_1f1b) is_near(&g, 1.0 + f.steady, 1.0 + 3.0 * (m < 4 - rank ? 0 : m - 4 + rank));
                if (strcmp(g.schedule->name, "gpipe") == 0) assert_true(f.warm_up == m && f.steady == 0.0);
            }
            ls_pipe_replay_free(&r);
            ls_pipe_program_free(&g);
        }
}

static void times_that_are_none_are_refused(void **state)
{
    (void)state;
    const double good[2] = { 1.0, 1.0 }, negative[2] = { 1.0, -1.0 }, infinite[2] = { INFINITY, 1.0 };
    ls_pipe_program g = program_of("1f1b", 2, 0, 2);
    ls_pipe_replay r;
    assert_int_equal(ls_pipe_replay_create(&g, &(ls_pipe_times){ good, negative, good, 0.0 }, &r), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "stage 1 takes -1 s: expected 0 or more"));
    assert_int_equal(ls_pipe_replay_create(&g, &(ls_pipe_times){ good, good, infinite, 0.0 }, &r), LS_INVALID);
    assert_int_equal(ls_pipe_replay_create(&g, &(ls_pipe_times){ good, good, good, -1.0 }, &r), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "a transfer of -1 s"));
    ls_pipe_program_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_and_1f1b_have_the_same_bubble),
        cmocka_unit_test(chunks_divide_the_bubble),
        cmocka_unit_test(zero_bubble_schedules_are_as_short_as_their_papers_say),
        cmocka_unit_test(hops_take_the_time_that_a_round_trip_waits_for_them),
        cmocka_unit_test(bubbles_are_those_of_the_zero_bubble_paper),
        cmocka_unit_test(any_times_give_what_the_definition_says),
        cmocka_unit_test(phases_add_up_to_the_step),
        cmocka_unit_test(times_that_are_none_are_refused),
    };
    return cmocka_run_group_tests_name("pipe_replay", tests, NULL, NULL);
}
