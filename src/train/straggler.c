/* straggler.c -- windows of steps, and what some of them in a row agree about. */
#include "train/straggler.h"

#include <stdlib.h>
#include <string.h>

/* A rank that is busy for longer than the median rank by less than this share of a step costs the others little. */
#define LEAST_SHARE 0.1

/* A rank's times in the window at hand. */
typedef struct times {
    double sum[LS_BUSY_PHASES], most[LS_BUSY_PHASES]; /* the longest step is left out of the mean */
} times;

/* The slowest rank of a window; rank -1: none is slow. */
typedef struct finding {
    int rank;
    ls_busy phase;
    int others;
    int64_t steps;
    double ns, median_ns;
} finding;

struct ls_straggler {
    int size;
    double ratio;
    times *rank;         /* owned, [size] */
    double *sorted;      /* owned, [size] */
    int64_t steps;       /* of the window at hand */
    uint64_t began_ns;   /* 0: at its first step, which is to come */
    finding row;         /* what the newest windows agree about: sums over them, */
    int agreed;          /* and how many these are */
    finding said;        /* last; rank -1: nothing, or that it is over */
};

ls_status ls_straggler_create(int size, double ratio, ls_straggler **out)
{
    ls_straggler *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s) s->rank = calloc((size_t)size, sizeof *s->rank);
    if (s) s->sorted = calloc((size_t)size, sizeof *s->sorted);
    if (!s || !s->rank || !s->sorted) {
        ls_straggler_destroy(s);
        return ls_fail(LS_NO_MEMORY, "the step times of %d ranks", size);
    }
    s->size = size;
    s->ratio = ratio;
    s->row.rank = s->said.rank = -1;
    *out = s;
    return LS_OK;
}

void ls_straggler_destroy(ls_straggler *s)
{
    if (!s) return;
    free(s->rank);
    free(s->sorted);
    free(s);
}

void ls_straggler_tell(ls_straggler *s, int rank, const double ns[LS_BUSY_PHASES])
{
    times *t = &s->rank[rank];
    for (int p = 0; p < LS_BUSY_PHASES; p++) {
        t->sum[p] += ns[p];
        if (ns[p] > t->most[p]) t->most[p] = ns[p];
    }
}

static double mean(const ls_straggler *s, int rank, int phase)
{
    const times *t = &s->rank[rank];
    return (t->sum[phase] - t->most[phase]) / (double)(s->steps - 1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of an even number of ranks the lower one of both in the middle: of two ranks, the faster one. */
static double median(ls_straggler *s, int phase)
{
    for (int r = 0; r < s->size; r++) s->sorted[r] = mean(s, r, phase);
    qsort(s->sorted, (size_t)s->size, sizeof *s->sorted, ascending);
    return s->sorted[(s->size - 1) / 2];
}

/* How long the rank that waits least is busy: about as long as a step. */
static double longest(const ls_straggler *s)
{
    double most = 0;
    for (int r = 0; r < s->size; r++) {
        double busy = 0;
        for (int p = 0; p < LS_BUSY_PHASES; p++) busy += mean(s, r, p);
        if (busy > most) most = busy;
    }
    return most;
}

bool ls_straggler_is_slow(double ratio, double ns, double median_ns, double step_ns)
{
    return ns >= ratio * median_ns && ns - median_ns >= LEAST_SHARE * step_ns && ns > median_ns;
}

/* The rank and the phase that cost the others most. */
static finding look(ls_straggler *s)
{
    finding f = { .rank = -1 };
    const double step_ns = longest(s);
    for (int p = 0; p < LS_BUSY_PHASES; p++) {
        const double m = median(s, p);
        int slow = 0, worst = -1;
        for (int r = 0; r < s->size; r++) {
            if (!ls_straggler_is_slow(s->ratio, mean(s, r, p), m, step_ns)) continue;
            slow++;
            if (worst < 0 || mean(s, r, p) > mean(s, worst, p)) worst = r;
        }
        if (worst < 0 || (f.rank >= 0 && mean(s, worst, p) - m <= f.ns - f.median_ns)) continue;
        f = (finding){ worst, (ls_busy)p, slow - 1, s->steps, mean(s, worst, p), m };
    }
    return f;
}

static bool same(const finding *a, const finding *b)
{
    return a->rank == b->rank && (a->rank < 0 || a->phase == b->phase);
}

/* Another window of the row, or the first one of another. */
static void add(ls_straggler *s, const finding *f)
{
    const bool goes_on = s->agreed > 0 && same(f, &s->row);
    const finding sum = goes_on ? s->row : (finding){ .rank = f->rank, .phase = f->phase };
    s->row = *f;
    s->row.steps += sum.steps;
    s->row.ns = f->ns * (double)f->steps + sum.ns;
    s->row.median_ns = f->median_ns * (double)f->steps + sum.median_ns;
    s->agreed = goes_on ? s->agreed + 1 : 1;
}

/* What the row says, if it is long enough and that was not said. */
static ls_straggler_change change(ls_straggler *s)
{
    const finding *f = &s->row, was = s->said;
    if (s->agreed < LS_STRAGGLER_WINDOWS || same(f, &was)) return (ls_straggler_change){ 0 };
    s->said = *f;
    if (f->rank < 0) return (ls_straggler_change){ .over = true, .rank = was.rank, .phase = was.phase };
    return (ls_straggler_change){ .found = true,
                                  .rank = f->rank,
                                  .phase = f->phase,
                                  .others = f->others,
                                  .steps = f->steps,
                                  .ns = f->ns / (double)f->steps,
                                  .median_ns = f->median_ns / (double)f->steps };
}

ls_straggler_change ls_straggler_step(ls_straggler *s, uint64_t now_ns)
{
    if (s->steps++ == 0) s->began_ns = now_ns;
    if (s->steps < LS_STRAGGLER_STEPS || now_ns - s->began_ns < LS_STRAGGLER_NS) return (ls_straggler_change){ 0 };
    const finding f = look(s);
    add(s, &f);
    s->steps = 0;
    memset(s->rank, 0, (size_t)s->size * sizeof *s->rank);
    return change(s);
}
