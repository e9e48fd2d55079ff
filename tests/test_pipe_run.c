/* What pipeline stages send and receive, in every schedule: each action gets what the stage before, or after, has made
 * of the same micro-batch, in memory that nothing else writes meanwhile. */
#include "harness.h"
#include "lockstep/pipe.h"
#include "parallel/pipe_list.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST 12

typedef struct job {
    const char *schedule;
    int chunks, micro_batches;
    size_t count;      /* elements of what passes */
    const int *order;  /* steps of so many micro-batches each, ended by 0 */
} job;

/* What a rank does: it writes numbers that say what they are, and looks at those that it gets. */
typedef struct play {
    const job *j;
    int stages, slots, alive, most;
    float *kept; /* [slots count]: what forwards gave, until their backward */
    void *x[64];
    int step, backwards;
} play;

static float number(int kind, int stage, int micro_batch, int step)
{
    return (float)(((step * MOST + micro_batch) * 16 + stage) * 2 + kind);
}

static ls_status look(const play *p, const void *found, int kind, int stage, const ls_pipe_action *a, const char *what)
{
    const float *v = found, want = number(kind, stage, a->micro_batch, p->step);
    LS_EXPECT(found, "stage %d, micro-batch %d: no %s", a->stage, a->micro_batch, what);
    for (size_t i = 0; i < p->j->count; i += p->j->count - 1)
        LS_EXPECT(v[i] == want, "%s of stage %d, micro-batch %d: found %g, expected %g", what, a->stage, a->micro_batch, (double)v[i],
                  (double)want);
    return LS_OK;
}

static void write(const play *p, void *to, int kind, const ls_pipe_action *a)
{
    float *v = to;
    for (size_t i = 0; i < p->j->count; i++) v[i] = number(kind, a->stage, a->micro_batch, p->step);
}

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *d)
{
    play *p = arg;
    LS_EXPECT(a->slot >= 0 && a->slot < p->slots, "slot %d of %d", a->slot, p->slots);
    if (a->stage > 0) LS_TRY(look(p, d->x, 0, a->stage - 1, a, "x"));
    else LS_EXPECT(!d->x, "something enters stage 0");
    float *y = p->kept + (size_t)a->slot * p->j->count;
    write(p, y, 0, a);
    p->x[a->slot] = d->x;
    d->y = y;
    if (++p->alive > p->most) p->most = p->alive;
    return LS_OK;
}

static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *d)
{
    play *p = arg;
    LS_TRY(look(p, p->kept + (size_t)a->slot * p->j->count, 0, a->stage, a, "y"));
    if (a->stage > 0) LS_TRY(look(p, p->x[a->slot], 0, a->stage - 1, a, "x, kept,"));
    if (a->what != LS_PIPE_BACKWARD_WEIGHT) {
        if (a->stage < p->stages - 1) LS_TRY(look(p, d->dy, 1, a->stage + 1, a, "dy"));
        if (a->stage > 0) write(p, d->dx, 1, a);
    }
    if (a->what == LS_PIPE_BACKWARD_INPUT) return LS_OK;
    p->alive--;
    p->backwards++;
    return LS_OK;
}

static size_t edge(void *arg, int number_of_edge, int micro_batch, ls_dtype *dtype)
{
    (void)number_of_edge, (void)micro_batch;
    *dtype = LS_F32;
    return ((const play *)arg)->j->count;
}

static const ls_pipe_work work = { NULL, forward, backward, edge };

static ls_status only_forward(void *arg, const ls_pipe_action *a, ls_pipe_data *d)
{
    play *p = arg;
    LS_TRY(forward(arg, a, d));
    p->alive--;
    return LS_OK;
}

/* Micro-batches of a rank that are alive at a time, as the prover finds. */
static int peak_of(const job *j, int ranks, int rank)
{
    const ls_pipe_schedule *s;
    const ls_pipe_shape shape = { ranks, j->chunks, j->micro_batches };
    ls_pipe_program g;
    int peak = -1;
    if (ls_pipe_schedule_find(j->schedule, &s) < 0 || ls_pipe_program_create(s, &shape, &g) < 0) return -1;
    if (ls_pipe_program_make(&g, j->micro_batches) == LS_OK) peak = g.slots[rank];
    ls_pipe_program_free(&g);
    return peak;
}

static ls_status run(ls_world *w, void *arg)
{
    const job *j = arg;
    const ls_pipe_work forwards = { NULL, only_forward, NULL, edge };
    const ls_pipe_config c = { .stages = ls_world_group(w), .schedule = j->schedule, .chunks = j->chunks,
                               .micro_batches = j->micro_batches, .edge_bytes = j->count * sizeof(float) };
    ls_pipe *pipe;
    LS_TRY(ls_pipe_create(&c, &pipe));
    const int chunks = ls_pipe_chunks(&c, ls_world_size(w));
    play p = { .j = j, .stages = ls_world_size(w) * chunks, .slots = ls_pipe_slots(pipe) };
    p.kept = calloc((size_t)p.slots * j->count, sizeof *p.kept);
    ls_status st = LS_OK;
    for (const int *n = j->order; *n && st == LS_OK; n++, p.step++) {
        p.backwards = 0;
        st = *n > 0 ? ls_pipe_run(pipe, *n, &work, &p) : ls_pipe_forward(pipe, -*n, &forwards, &p);
        if (st == LS_OK && *n > 0 && p.backwards != *n * chunks) st = ls_fail(LS_INTERNAL, "%d backwards", p.backwards);
        if (st == LS_OK && p.alive != 0) st = ls_fail(LS_INTERNAL, "%d micro-batches are alive at the end", p.alive);
    }
    if (st == LS_OK && p.most != peak_of(j, ls_world_size(w), ls_world_rank(w)))
        st = ls_fail(LS_INTERNAL, "%d micro-batches were alive at a time, by the proof %d", p.most, peak_of(j, ls_world_size(w), ls_world_rank(w)));
    if (st == LS_OK && chunks == 1 && p.slots != p.most) st = ls_fail(LS_INTERNAL, "%d slots for %d micro-batches", p.slots, p.most);
    const bool first = ls_pipe_forwards_first(pipe, 0), expected = strcmp(j->schedule, "gpipe") == 0;
    if (st == LS_OK && chunks == 1 && first != expected)
        st = ls_fail(LS_INTERNAL, "all forwards are %s", first ? "first" : "not first");
    if (st == LS_OK) st = ls_barrier(ls_world_group(w));
    free(p.kept);
    ls_pipe_destroy(pipe);
    return st;
}

/* Short messages, and such that the receiver reads where they lie; steps of few micro-batches, and an evaluation. */
static void every_action_gets_what_it_needs(void **state)
{
    (void)state;
    static const int order[] = { 4, 8, -3, 1, 8, 3, -8, 8, 0 };
    static const size_t counts[] = { 5, 100000 };
    for (int s = 0; ls_pipe_schedules[s]; s++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (size_t k = 0; k < COUNT(counts); k++)
                for (int chunks = ls_pipe_schedules[s]->least_chunks;
                     chunks <= ls_pipe_schedules[s]->most_chunks && chunks <= 3; chunks++) {
                    job j = { ls_pipe_schedules[s]->name, chunks, 8, counts[k], order };
                    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, ranks, NULL, run, &j);
                    if (r.failed) fail_msg("%s, %d ranks, %d chunks, %zu elements: %s", j.schedule, ranks, chunks, counts[k], r.text);
                }
}

static void over_connections_as_well(void **state)
{
    (void)state;
    static const int order[] = { 8, -3, 5, 8, 0 };
    const ls_world_opts tcp = { .transport = "tcp" };
    for (int s = 0; ls_pipe_schedules[s]; s++) {
        job j = { ls_pipe_schedules[s]->name, 0, 8, 100000, order };
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 3, &tcp, run, &j);
        if (r.failed) fail_msg("%s: %s", j.schedule, r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_action_gets_what_it_needs),
        cmocka_unit_test(over_connections_as_well),
    };
    return cmocka_run_group_tests_name("pipe run", tests, NULL, NULL);
}
