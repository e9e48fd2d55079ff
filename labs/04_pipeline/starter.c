/* starter.c -- a pipeline in one screen: four ranks compute micro-batches one after another, in the order of a
 * schedule.
 *
 *   build/labs/04_pipeline [SCHEDULE [MICRO_BATCHES [CHUNKS]]]     default: 1f1b 8
 *
 * A stage adds 1 to each number of a micro-batch, and sleeps for as long as a layer would compute: 2 ms for a forward,
 * 2 ms for the gradient of its input, 2 ms for those of its weights. The ranks are threads of this process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lockstep/lockstep.h"

enum { RANKS = 4, WIDTH = 32, SLOTS = 1024, MOST = 1 << 14, HALF_MS = 2 };

/* What a rank did in the step, for main. */
typedef struct told {
    char log[MOST]; /* its actions, as they were carried out: 0F0,0F1,0B0 */
    size_t n;
    int alive, most; /* micro-batches between forward and backward: now, and most at a time */
    double result;   /* last stage: the sum of what came out */
} told;

typedef struct job {
    ls_pipe_config c;
    told rank[RANKS];
} job;

typedef struct here {
    told *told;
    int stages;
    float y[SLOTS][WIDTH]; /* what each slot's forward gave: it stays there until the slot's next forward */
} here;

static void asleep(int halves)
{
    nanosleep(&(struct timespec){ .tv_nsec = halves * HALF_MS * 1000000L }, NULL);
}

static void note(told *t, const ls_pipe_action *a)
{
    const char letter = "FBIW"[a->what]; /* forward, backward, and its halves: of the input, of the weights */
    if (t->n < MOST - 32)
        t->n += (size_t)snprintf(t->log + t->n, 32, "%s%d%c%d", t->n ? "," : "", a->stage, letter, a->micro_batch);
}

/* --- main transition: what an action does ---------------------------------------------------------------- */

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    here *h = arg;
    const float *x = data->x; /* what the stage before has sent; NULL: this is the first stage */
    float *y = h->y[a->slot];
    note(h->told, a);
    asleep(1);
    for (int i = 0; i < WIDTH; i++) y[i] = (x ? x[i] : (float)a->micro_batch) + 1;
    data->y = y; /* the pipe sends it to the next stage */
    if (++h->told->alive > h->told->most) h->told->most = h->told->alive;
    if (a->stage == h->stages - 1) h->told->result += (double)y[0];
    return LS_OK;
}

static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    here *h = arg;
    const float *dy = data->dy; /* NULL: this is the last stage, or the half of the weights */
    note(h->told, a);
    asleep(a->what == LS_PIPE_BACKWARD ? 2 : 1);
    if (data->dx && a->what != LS_PIPE_BACKWARD_WEIGHT)
        for (int i = 0; i < WIDTH; i++) ((float *)data->dx)[i] = dy ? dy[i] : 1.0f;
    if (a->what != LS_PIPE_BACKWARD_INPUT) h->told->alive--; /* what backward needs is released */
    return LS_OK;
}

static size_t edge(void *arg, int stage, int micro_batch, ls_dtype *dtype)
{
    (void)arg, (void)stage, (void)micro_batch, *dtype = LS_F32;
    return WIDTH;
}

/* --- setup and contract ----------------------------------------------------------------------------------- */

static ls_status run(ls_world *w, void *arg)
{
    static const ls_pipe_work work = { .forward = forward, .backward = backward, .edge = edge };
    job *j = arg;
    ls_pipe_config c = j->c;
    c.stages = ls_world_group(w); /* the ranks of the pipeline, in the order of its stages */
    ls_pipe *pipe = NULL;
    here *h = calloc(1, sizeof *h);
    ls_status st = h ? ls_pipe_create(&c, &pipe) : LS_NO_MEMORY; /* makes the lists of all ranks, and proves them */
    if (st == LS_OK && ls_pipe_slots(pipe) > SLOTS) st = ls_fail(LS_INVALID, "more than %d micro-batches are alive", SLOTS);
    if (st == LS_OK) {
        h->told = &j->rank[ls_world_rank(w)];
        h->stages = RANKS * ls_pipe_chunks(&c, RANKS);
        st = ls_pipe_run(pipe, c.micro_batches, &work, h); /* walks this rank's list: receives, computes, sends */
    }
    ls_pipe_destroy(pipe);
    free(h);
    return st;
}

int main(int argc, char **argv)
{
    static job j;
    j.c = (ls_pipe_config){ .schedule = argc > 1 ? argv[1] : "1f1b", .micro_batches = argc > 2 ? atoi(argv[2]) : 8,
                            .chunks = argc > 3 ? atoi(argv[3]) : 0, .edge_bytes = WIDTH * sizeof(float) };
    const ls_status st = ls_world_threads(RANKS, NULL, run, &j);
    if (st < 0) return fprintf(stderr, "starter: %s\n", ls_last_error()), ls_status_exit_code(st);
    double result = 0;
    for (int r = 0; r < RANKS; r++) {
        printf("rank %d, %d alive at most: %s\n", r, j.rank[r].most, j.rank[r].log);
        result += j.rank[r].result;
    }
    printf("{\"result\": %.17g, \"alive\": [%d, %d, %d, %d], \"lists\": \"%s | %s | %s | %s\"}\n", result, j.rank[0].most,
           j.rank[1].most, j.rank[2].most, j.rank[3].most, j.rank[0].log, j.rank[1].log, j.rank[2].log, j.rank[3].log);
    return 0;
}
