/* check.c -- exercise 2 of lab 10: small regressions on two ranks' samples, one of them without set_epoch. */
#include "check.h"

#include <math.h>

#include "lockstep/lockstep.h"

enum { EPOCHS = 3, STEPS = 16 };

typedef struct run {
    double loss[EPOCHS][STEPS]; /* as metrics.jsonl of the run has them, step by step */
} run;

int without(const run *runs, int n); /* task.c */

enum { RANKS = 2, BATCH = 4, WIDTH = 6, SAMPLES = RANKS * BATCH * STEPS, MOST = 6, MISTAKES = 3 };

static double real(check *c) { return check_between(c, -1000, 1000) / 1000.0; }

/* y = w x + noise. The loss is rank 0's, as a script prints it; the gradient is the mean over both ranks. */
static ls_status train(check *c, bool set_epoch, run *out)
{
    static double x[SAMPLES][WIDTH], y[SAMPLES];
    double w[WIDTH] = { 0 }, truth[WIDTH];
    ls_sampler *s[RANKS] = { NULL };
    const uint64_t seed = check_random(c) % 1000;
    ls_status st = LS_OK;
    for (int k = 0; k < WIDTH; k++) truth[k] = real(c);
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 2 * real(c);
        for (int k = 0; k < WIDTH; k++) y[i] += truth[k] * (x[i][k] = real(c));
    }
    for (int r = 0; r < RANKS && st == LS_OK; r++) st = ls_sampler_create(SAMPLES, RANKS, r, true, seed, false, &s[r]);
    for (int e = 0; e < EPOCHS && st == LS_OK; e++) {
        for (int r = 0; r < RANKS && set_epoch && st == LS_OK; r++) st = ls_sampler_set_epoch(s[r], (uint64_t)e);
        for (int b = 0; b < STEPS && st == LS_OK; b++) {
            double g[WIDTH] = { 0 };
            out->loss[e][b] = 0;
            for (int i = 0; i < RANKS * BATCH; i++) {
                const int64_t at = s[i / BATCH]->index[b * BATCH + i % BATCH];
                double d = -y[at];
                for (int k = 0; k < WIDTH; k++) d += w[k] * x[at][k];
                for (int k = 0; k < WIDTH; k++) g[k] += d * x[at][k] / (RANKS * BATCH);
                if (i < BATCH) out->loss[e][b] += d * d / BATCH;
            }
            for (int k = 0; k < WIDTH; k++) w[k] -= 0.02 * g[k];
        }
    }
    for (int r = 0; r < RANKS; r++) ls_sampler_destroy(s[r]);
    return st;
}

static double mean(const run *r, int e)
{
    double sum = 0;
    for (int b = 0; b < STEPS; b++) sum += r->loss[e][b] / STEPS;
    return sum;
}

/* What a typical mistake answers: 0: the run whose loss falls least; 1: none, as no losses are equal; 2: the run whose
 * epochs begin with the most similar losses. */
static int answered(const run *runs, int n, int mistake)
{
    int best = 0;
    double least = INFINITY;
    for (int k = 0; k < n; k++) {
        const run *r = &runs[k];
        const double x = mistake == 0 ? mean(r, 0) - mean(r, EPOCHS - 1) : fabs(r->loss[0][0] - r->loss[1][0]);
        if (x < least) least = x, best = k;
    }
    return mistake == 1 ? -1 : best;
}

static const char *idea(const bool *like)
{
    if (like[0]) return "the loss falls with and without set_epoch: look at which steps have high losses, not at how far it falls";
    if (like[1]) return "the samples repeat, the losses do not: weights have changed, so look for similar epochs and not for equal ones";
    if (like[2]) return "two steps may agree by chance: compare all steps of an epoch with those of the next";
    return "without set_epoch step b of each epoch has the same samples, so its loss is high or low in every epoch";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    bool like[MISTAKES] = { true, true, true }, red = false;
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        run runs[MOST];
        const int n = check_between(&c, 2, MOST), right = check_between(&c, 0, n - 1);
        for (int k = 0; k < n; k++)
            if (train(&c, k != right, &runs[k]) < 0) return printf("a run: %s\n", ls_last_error()), 1;
        const int found = without(runs, n);
        for (int k = 0; k < MISTAKES; k++) like[k] = like[k] && answered(runs, n, k) == found;
        if (red || found == right) continue;
        red = true;
        printf("shape %d of %d: %d runs\n", shape + 1, CHECK_SHAPES, n);
        for (int k = 0; k < n; k++)
            for (int e = 0; e < EPOCHS; e++) {
                printf("  run %d, epoch %d ", k, e);
                for (int b = 0; b < STEPS; b++) printf(" %.2f", runs[k].loss[e][b]);
                printf("\n");
            }
        printf("  expected  run %d\n  found     run %d\n", right, found);
    }
    if (!red) return check_green(CHECK_SHAPES);
    printf("  idea      %s\n", idea(like));
    return 1;
}
