/* probe.c -- a step of four ranks whose actions sleep 15 ms (a backward 30), beside the replay of its own times: how
 * long the step takes if each action lasts as long as it did, and ranks wait for nothing except each other's results.
 * It is the shortest of three steps, or, where other programs disturb them, of up to eight. Prints one JSON object.
 * `late`: rank 1 also sleeps before each forward, which no action has.
 *
 *   timed SCHEDULE MICRO_BATCHES [late]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lockstep/lockstep.h"

enum { RANKS = 4, STAGES = 2 * RANKS, SLOTS = 256, MOST = 512, MICRO = 64, HALF_MS = 15, FEW = 3, STEPS = 8 };

typedef struct action {
    ls_pipe_action a;
    double began, ended; /* ms, since the step began */
} action;

typedef struct told {
    action done[MOST];
    int n;
} told;

typedef struct job {
    ls_pipe_config c;
    bool late;
    int stages;
    told step[STEPS][RANKS];
} job;

typedef struct here {
    job *j;
    told *told;
    double zero; /* ms, when the step began */
    float y[SLOTS];
} here;

static bool enough(const job *j, int steps);

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void asleep(int ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    if (ms > 0) nanosleep(&t, NULL);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static int length_ms(const ls_pipe_action *a) { return a->what == LS_PIPE_BACKWARD ? 2 * HALF_MS : HALF_MS; }

static void act(here *h, const ls_pipe_action *a)
{
    const double began = now_ms() - h->zero;
    asleep(length_ms(a));
    if (h->told->n < MOST) h->told->done[h->told->n++] = (action){ *a, began, now_ms() - h->zero };
}

static ls_status feed(void *arg, const ls_pipe_action *a)
{
    const here *h = arg;
    if (h->j->late && a->stage == 1) asleep(2 * HALF_MS);
    return LS_OK;
}

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    here *h = arg;
    act(h, a);
    data->y = &h->y[a->slot];
    return LS_OK;
}

static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    (void)data;
    act(arg, a);
    return LS_OK;
}

static size_t edge(void *arg, int stage, int micro_batch, ls_dtype *dtype)
{
    (void)arg, (void)stage, (void)micro_batch;
    *dtype = LS_F32;
    return 1;
}

static ls_status step(ls_world *w, ls_pipe *pipe, here *h)
{
    static const ls_pipe_work work = { feed, forward, backward, edge };
    LS_TRY(ls_barrier(ls_world_group(w)));
    h->zero = now_ms();
    return ls_pipe_run(pipe, h->j->c.micro_batches, &work, h);
}

static ls_status run(ls_world *w, void *arg)
{
    job *j = arg;
    ls_pipe_config c = j->c;
    ls_pipe *pipe = NULL;
    here *h = calloc(1, sizeof *h);
    c.stages = ls_world_group(w);
    ls_status st = h ? ls_pipe_create(&c, &pipe) : LS_NO_MEMORY;
    if (st == LS_OK && ls_pipe_slots(pipe) > SLOTS) st = ls_fail(LS_INVALID, "more than %d micro-batches are alive", SLOTS);
    if (st == LS_OK) {
        h->j = j;
        for (int i = 0; st == LS_OK && !enough(j, i); i++) {
            h->told = &j->step[i][ls_world_rank(w)];
            st = step(w, pipe, h);
            if (st == LS_OK) st = ls_barrier(ls_world_group(w)); /* all ranks' times are there */
        }
    }
    ls_pipe_destroy(pipe);
    free(h);
    return st;
}

/* --- the replay of its times ----------------------------------------------------------------------------------------
 */

/* When an action of another stage ends that this one waits for, in ends[FORWARD or BACKWARD][stage][micro-batch]; -1:
 * it has not been replayed yet. */
static double needed(const job *j, const ls_pipe_action *a, double ends[2][STAGES][MICRO])
{
    if (a->what == LS_PIPE_BACKWARD_WEIGHT) return 0;
    if (a->what == LS_PIPE_FORWARD) return a->stage == 0 ? 0 : ends[0][a->stage - 1][a->micro_batch];
    return a->stage == j->stages - 1 ? 0 : ends[1][a->stage + 1][a->micro_batch];
}

/* The end of the last action if each began as soon as it could, and took as long as it did, or as it sleeps. */
static double replay(const job *j, const told *rank, bool undisturbed)
{
    double ends[2][STAGES][MICRO];
    double at[RANKS] = { 0 }, last = 0;
    int next[RANKS] = { 0 };
    for (int i = 0; i < 2 * STAGES * MICRO; i++) (&ends[0][0][0])[i] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < RANKS; r++) {
            if (next[r] == rank[r].n) continue;
            const action *x = &rank[r].done[next[r]];
            const double from = needed(j, &x->a, ends);
            if (from < 0) continue;
            at[r] = (from > at[r] ? from : at[r]) + (undisturbed ? length_ms(&x->a) : x->ended - x->began);
            const bool back = x->a.what != LS_PIPE_FORWARD;
            if (x->a.what != LS_PIPE_BACKWARD_WEIGHT) ends[back][x->a.stage][x->a.micro_batch] = at[r];
            if (at[r] > last) last = at[r];
            next[r]++;
            moved = true;
        }
    }
    return last;
}

static double length(const told *rank)
{
    double last = 0;
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < rank[r].n; i++)
            if (rank[r].done[i].ended > last) last = rank[r].done[i].ended;
    return last;
}

static const told *shortest(const job *j, int steps)
{
    const told *best = j->step[0];
    for (int i = 1; i < steps; i++)
        if (length(j->step[i]) < length(best)) best = j->step[i];
    return best;
}

static int steps_of(const job *j)
{
    int n = 0;
    while (n < STEPS && j->step[n][0].n > 0) n++;
    return n;
}

/* Whether one of the steps was hardly disturbed, or there are as many as there may be. All ranks find the same. */
static bool enough(const job *j, int steps)
{
    if (steps < FEW || steps == STEPS || j->late) return steps >= FEW;
    const told *best = shortest(j, steps);
    return length(best) <= 1.02 * replay(j, best, true);
}

/* The largest share of the time between its first and its last action in which a rank idles. */
static double most_idle_between(const told *rank)
{
    double most = 0;
    for (int r = 0; r < RANKS; r++) {
        const told *t = &rank[r];
        double busy = 0;
        for (int i = 0; i < t->n; i++) busy += t->done[i].ended - t->done[i].began;
        const double idle = 1 - busy / (t->done[t->n - 1].ended - t->done[0].began);
        if (idle > most) most = idle;
    }
    return most;
}

static void print_timed(const job *j)
{
    const told *best = shortest(j, steps_of(j));
    double busy = 0;
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < best[r].n; i++) busy += best[r].done[i].ended - best[r].done[i].began;
    const double took = length(best), replayed = replay(j, best, false);
    printf("{\"step_ms\": %.3f, \"replay_ms\": %.3f, \"idle\": %.6f, \"replay_idle\": %.6f, \"between\": %.6f}\n", took, replayed,
           1 - busy / (RANKS * took), 1 - busy / (RANKS * replayed), most_idle_between(best));
}

int main(int argc, char **argv)
{
    static job j;
    if (argc < 4 || strcmp(argv[1], "timed") != 0)
        return fprintf(stderr, "probe: expected timed SCHEDULE MICRO_BATCHES [late]\n"), 64;
    j.c = (ls_pipe_config){ .schedule = argv[2], .micro_batches = atoi(argv[3]), .edge_bytes = sizeof(float) };
    j.late = argc > 4 && strcmp(argv[4], "late") == 0;
    if (j.c.micro_batches > MICRO) return fprintf(stderr, "probe: at most %d micro-batches\n", MICRO), 64;
    j.stages = RANKS * ls_pipe_chunks(&j.c, RANKS);
    const ls_status st = ls_world_threads(RANKS, NULL, run, &j);
    if (st < 0) return fprintf(stderr, "probe: %s\n", ls_last_error()), ls_status_exit_code(st);
    print_timed(&j);
    return 0;
}
