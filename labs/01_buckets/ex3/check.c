/* check.c -- exercise 3 of lab 01: the weighted mean over ranks beside the mean over samples. */
#include "check.h"

#include <math.h>

enum { MOST = 8, SAMPLES = 16 };

void weights(const int *count, int ranks, double *weight); /* task.c */

static bool like(const double *found, const double *other, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(found[i] - other[i]) <= 1e-9)) return false;
    return true;
}

static const char *idea(const int *count, int ranks, int all, const double *found)
{
    double same[MOST], share[MOST], sum[MOST], up[MOST];
    for (int r = 0; r < ranks; r++) {
        same[r] = 1.0;
        share[r] = (double)count[r] / all;
        sum[r] = count[r];
        up[r] = count[r] ? (double)all / ((double)count[r] * ranks) : 0.0;
    }
    if (like(found, same, ranks)) return "a sample on the rank with few samples counts more than one of another rank";
    if (like(found, share, ranks)) return "every gradient is 1/ranks of the mean: averaged twice, by you and by DDP";
    if (like(found, sum, ranks)) return "every gradient is a sum over samples divided by the ranks: the size of the batch is missing";
    if (like(found, up, ranks)) return "a rank with few samples has to count less, not more";
    return "write the mean over all samples as a sum over ranks of (mean of the rank) times something";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        const int ranks = check_between(&c, 2, MOST);
        int count[MOST], all = 0;
        double room[2 * CHECK_GUARD / sizeof(double) + MOST], joint = 0, averaged = 0;
        for (int r = 0; r < ranks; r++) all += count[r] = check_between(&c, r == 0, SAMPLES);
        const size_t size = (size_t)ranks * sizeof(double);
        double *weight = check_room(room, sizeof room, size);
        weights(count, ranks, weight);
        const bool outside = check_outside(room, sizeof room, size);
        for (int r = 0; r < ranks; r++) { /* a gradient has one element here, and a sample's is a random number */
            double mean = 0;
            for (int i = 0; i < count[r]; i++) {
                const double gradient = check_between(&c, 1, 1000);
                joint += gradient / all;
                mean += gradient / count[r];
            }
            averaged += weight[r] * mean / ranks;
        }
        if (!outside && fabs(averaged - joint) <= 1e-9 * joint) continue;
        printf("shape %d of %d\n", shape + 1, CHECK_SHAPES);
        check_print("count", count, ranks);
        printf("  weight   ");
        for (int r = 0; r < ranks; r++) printf(" %.6g", weight[r]);
        printf("\n  gradient  expected %.9g, found %.9g\n  idea      %s\n", joint, averaged,
               outside ? "something is written outside of weight[0] to weight[ranks - 1]" : idea(count, ranks, all, weight));
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
