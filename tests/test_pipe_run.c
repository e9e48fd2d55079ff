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

/* --- neighbours that disagree ------------------------------------------------------------------------------------ */

typedef struct disagreement {
    size_t count[2]; /* elements that pass, as the ranks of the two stages have it */
    ls_dtype dtype[2];
    int rank;        /* of the play that is running; each rank has a copy */
    float *memory;
} disagreement;

static ls_status gives_zeros(void *arg, const ls_pipe_action *a, ls_pipe_data *d)
{
    (void)a;
    d->y = ((const disagreement *)arg)->memory;
    return LS_OK;
}

static ls_status takes_any(void *arg, const ls_pipe_action *a, ls_pipe_data *d)
{
    (void)arg, (void)a, (void)d;
    return LS_OK;
}

static size_t as_this_rank_has_it(void *arg, int edge_number, int micro_batch, ls_dtype *dtype)
{
    const disagreement *d = arg;
    (void)edge_number, (void)micro_batch;
    *dtype = d->dtype[d->rank];
    return d->count[d->rank];
}

static ls_status disagrees(ls_world *w, void *arg)
{
    static const ls_pipe_work own = { NULL, gives_zeros, takes_any, as_this_rank_has_it };
    const ls_pipe_config c = { .stages = ls_world_group(w), .micro_batches = 2, .edge_bytes = 4096 };
    float zeros[1024] = { 0 };
    disagreement d = *(const disagreement *)arg;
    ls_pipe *pipe;
    d.rank = ls_world_rank(w), d.memory = zeros;
    LS_TRY(ls_pipe_create(&c, &pipe));
    const ls_status st = ls_pipe_run(pipe, 2, &own, &d);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_pipe_destroy(pipe);
    return st;
}

/* A stage that returns another shape than the next one expects, one that computes in another dtype, and more than the
 * pipe was created for. */
static void what_passes_has_one_shape(void **state)
{
    (void)state;
    static const struct { disagreement d; ls_status st; const char *says[2]; } row[] = {
        { { { 64, 48 }, { LS_F32, LS_F32 }, 0, NULL }, LS_COLL_MISMATCH, { "48 float", "64 float" } },
        { { { 48, 64 }, { LS_F32, LS_F32 }, 0, NULL }, LS_COLL_MISMATCH, { "48 float", "64 float" } },
        { { { 64, 64 }, { LS_F32, LS_BF16 }, 0, NULL }, LS_COLL_MISMATCH, { "64 float", "64 bfloat16" } },
        { { { 2048, 2048 }, { LS_F32, LS_F32 }, 0, NULL }, LS_INVALID,
          { "8192 bytes enter stage 1: expected at most 4096", "ls_pipe_config.edge_bytes" } },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        for (int wire = 0; wire < 2; wire++) {
            const ls_world_opts o = { .transport = wire ? "tcp" : NULL };
            disagreement d = row[i].d;
            const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, disagrees, &d);
            if (!r.failed || r.status != row[i].st) fail_msg("row %zu: %s: %s", i, ls_status_word(r.status), r.text);
            for (int k = 0; k < 2; k++)
                if (!strstr(r.text, row[i].says[k])) fail_msg("row %zu: '%s' is not in '%s'", i, row[i].says[k], r.text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_passes_has_one_shape),
        cmocka_unit_test(every_action_gets_what_it_needs),
        cmocka_unit_test(over_connections_as_well),
    };
    return cmocka_run_group_tests_name("pipe run", tests, NULL, NULL);
}
