/* Pipelines in the event engine: the bits of the replay (parallel/pipe_replay.h) for any times, closed forms, links. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_pipe.h"
#include "lockstep/plan.h"
#include "lockstep/rng.h"
#include "parallel/pipe_events.h"
#include "parallel/pipe_replay.h"

#define MOST_STAGES 128

static double simulated(const ls_pipe_program *g, const ls_pipe_loads *t, uint32_t copies, const ls_des_net *net,
                        double *ends)
{
    ls_pipe_events e;
    ls_des_model m;
    ls_des_result r = { .ends_s = ends };
    if (ls_pipe_events_create(g, t, copies, &e) < 0) fail_msg("%s", ls_last_error());
    ls_pipe_events_model(&e, &m);
    m.net = *net;
    if (ls_des_run(&m, &r) < 0) fail_msg("%s", ls_last_error());
    ls_pipe_events_free(&e);
    return r.end_s;
}

static void has_the_bits_of_the_replay(void **state)
{
    (void)state;
    static double time[3][MOST_STAGES];
    static float draw[3 * MOST_STAGES];
    uint64_t seed = 0;
    for (int i = 0; ls_pipe_schedules[i]; i++) {
        const ls_pipe_schedule *s = ls_pipe_schedules[i];
        for (int p = 2; p <= 8; p += 2)
            for (int v = s->least_chunks; v <= s->most_chunks && v <= 4; v++)
                for (int m = 1; m <= 4 * p; m += 3)
                    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
                        ls_pipe_program g = program_of(s->name, p, v, m);
                        const double hop = 0.07 * (double)(seed % 3);
                        const int stages = p * v;
                        double ends[3 * 8];
                        ls_pipe_replay r;
                        ls_philox_uniform(++seed, 0, 0, (size_t)(3 * stages), 0.1f, 2.0f, draw);
                        for (int k = 0; k < 3 * stages; k++) time[k / stages][k % stages] = (double)draw[k];
                        const ls_pipe_times t = { time[0], time[1], time[2], hop };
                        const ls_pipe_loads loads = { time[0], time[1], time[2], 1000 };
                        const ls_des_net net = { .latency_s = hop, .bytes_per_s = (double)INFINITY,
                                                 .sharing = (ls_des_sharing)how };
                        assert_int_equal(ls_pipe_replay_create(&g, &t, &r), LS_OK);
                        const double got = simulated(&g, &loads, 3, &net, ends);
                        if (got != r.step)
                            fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %.17g, replay %.17g", s->name, p, v,
                                     m, got, r.step);
                        for (int k = 0; k < 3 * p; k++)
                            assert_true(ends[k] == r.action[k % p][g.list[k % p].n - 1].ends);
                        ls_pipe_replay_free(&r);
                        ls_pipe_program_free(&g);
                    }
    }
}

/* Rank 1 needs the third message of rank 0 before the second. */
static void messages_of_chunks_are_apart(void **state)
{
    (void)state;
    static const struct { ls_pipe_what what; int chunk, micro_batch; } list[2][8] = {
        { { LS_PIPE_FORWARD, 0, 0 }, { LS_PIPE_FORWARD, 0, 1 }, { LS_PIPE_FORWARD, 1, 0 }, { LS_PIPE_FORWARD, 1, 1 },
          { LS_PIPE_BACKWARD, 1, 0 }, { LS_PIPE_BACKWARD, 1, 1 }, { LS_PIPE_BACKWARD, 0, 0 },
              { LS_PIPE_BACKWARD, 0, 1 } },
        { { LS_PIPE_FORWARD, 0, 0 }, { LS_PIPE_FORWARD, 1, 0 }, { LS_PIPE_FORWARD, 0, 1 }, { LS_PIPE_FORWARD, 1, 1 },
          { LS_PIPE_BACKWARD, 1, 0 }, { LS_PIPE_BACKWARD, 1, 1 }, { LS_PIPE_BACKWARD, 0, 0 },
              { LS_PIPE_BACKWARD, 0, 1 } },
    };
    static const double second[4] = { 1, 1, 1, 1 }, half[4] = { .5, .5, .5, .5 };
    const ls_pipe_shape shape = { 2, 2, 2 };
    const ls_pipe_times t = { second, half, half, 0.25 };
    const ls_pipe_loads loads = { second, half, half, 0 };
    const ls_des_net net = { .latency_s = 0.25, .bytes_per_s = 1 };
    ls_pipe_program g;
    ls_pipe_replay r;
    assert_int_equal(ls_pipe_program_create_empty(LS_PIPE_LOOP, &shape, 8, &g), LS_OK);
    for (int k = 0; k < 16; k++) {
        g.list[k / 8].wanted = 2;
        ls_pipe_put(&g.list[k / 8], list[k / 8][k % 8].what, list[k / 8][k % 8].chunk, list[k / 8][k % 8].micro_batch);
    }
    if (ls_pipe_prove(&g, 0, 0) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_pipe_replay_create(&g, &t, &r), LS_OK);
    assert_true(simulated(&g, &loads, 1, &net, NULL) == r.step);
    ls_pipe_replay_free(&r);
    ls_pipe_program_free(&g);
}

/* The rows of ls_pipe_seconds; of interleaved 1F1B and ZB-H1 without hops, where the runtime's lists wait for others
 * than those of the papers (test_pipe_replay.c). */
static void takes_what_the_closed_forms_say(void **state)
{
    (void)state;
    static const struct { const char *name; ls_pipe_form form; bool hops; int v; } row[] = {
        { "gpipe", LS_PIPE_GPIPE, true, 1 },         { "1f1b", LS_PIPE_1F1B, true, 1 },
        { "interleaved", LS_PIPE_INTERLEAVED, false, 2 }, { "interleaved", LS_PIPE_INTERLEAVED, false, 4 },
        { "zb-h1", LS_PIPE_ZB_H1, false, 1 },
    };
    static double time[3][MOST_STAGES];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int p = 2; p <= 16; p++)
            for (int m = 2 * p; m <= 6 * p; m += p) {
                const ls_pipe_costs c = { .forward = 3, .input = 2.5, .weight = 2, .hop = row[i].hops ? 0.25 : 0,
                                          .p = p, .v = row[i].v, .m = m };
                ls_pipe_program g = program_of(row[i].name, p, row[i].v, m);
                for (int s = 0; s < p * row[i].v; s++)
                    time[0][s] = 3.0 / row[i].v, time[1][s] = 2.5 / row[i].v, time[2][s] = 2.0 / row[i].v;
                const ls_pipe_loads loads = { time[0], time[1], time[2], 25 };
                const ls_des_net net = { .latency_s = row[i].hops ? 0.2 : 0, .bytes_per_s = row[i].hops ? 500
                                         : (double)INFINITY };
                const double got = simulated(&g, &loads, 1, &net, NULL), want = ls_pipe_seconds(row[i].form, &c);
                if (!(fabs(got - want) <= 1e-9 * want))
                    fail_msg("%s, p %d, m %d: %.17g s, expected %.17g", row[i].name, p, m, got, want);
                ls_pipe_program_free(&g);
            }
}

/* Two pipelines whose messages cross the same slow link between two nodes. */
static void pipelines_wait_for_links_that_they_share(void **state)
{
    (void)state;
    ls_topo t = { .name = "t", .nlevels = 2, .device = { .name = "d" },
                  .level = { { .name = "node", .count = 2, .link = "a", .bytes_per_s = 1e12, .ports = 1,
                               .oversubscription = 1 },
                             { .name = "all", .count = 2, .link = "b", .bytes_per_s = 100, .ports = 1,
                               .oversubscription = 1 } } };
    const double second[] = { 1, 1 }, none[] = { 0, 0 };
    const ls_pipe_loads loads = { second, second, none, 100 };
    ls_pipe_program g = program_of("gpipe", 2, 1, 1);
    ls_pipe_events e;
    ls_des_model m;
    ls_des_result r = { 0 };
    const uint32_t place[] = { 0, 2, 1, 3 }; /* stages on different nodes */
    assert_int_equal(ls_pipe_events_create(&g, &loads, 2, &e), LS_OK);
    ls_pipe_events_model(&e, &m);
    m.place = place;
    m.net = (ls_des_net){ .topo = &t, .sharing = LS_DES_FREE };
    assert_int_equal(ls_des_run(&m, &r), LS_OK);
    assert_true(fabs(r.end_s - 6) < 1e-9); /* 1 + hop + 1 + 1 + hop + 1 */
    m.net.sharing = LS_DES_FIFO; /* the second pipeline waits for the first one's message, once: then they alternate */
    assert_int_equal(ls_des_run(&m, &r), LS_OK);
    assert_true(fabs(r.end_s - 7) < 1e-9);
    ls_pipe_events_free(&e);
    ls_pipe_program_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_bits_of_the_replay),
        cmocka_unit_test(messages_of_chunks_are_apart),
        cmocka_unit_test(takes_what_the_closed_forms_say),
        cmocka_unit_test(pipelines_wait_for_links_that_they_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
