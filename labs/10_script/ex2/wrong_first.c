/* Wrong: compares the first step of an epoch only. */
enum { EPOCHS = 3, STEPS = 16 };

typedef struct run {
    double loss[EPOCHS][STEPS]; /* as metrics.jsonl of the run has them, step by step */
} run;
#include <math.h>

int without(const run *runs, int n)
{
    int best = 0;
    double least = 0;
    for (int k = 0; k < n; k++) {
        const double x = fabs(runs[k].loss[0][0] - runs[k].loss[1][0]);
        if (k == 0 || x < least) least = x, best = k;
    }
    return best;
}
