/* Exercise 2 of lab 10: epochs of the same batches have high losses in the same steps. */
enum { EPOCHS = 3, STEPS = 16 };

typedef struct run {
    double loss[EPOCHS][STEPS]; /* as metrics.jsonl of the run has them, step by step */
} run;

static double mean(const double *loss)
{
    double sum = 0;
    for (int b = 0; b < STEPS; b++) sum += loss[b] / STEPS;
    return sum;
}

int without(const run *runs, int n)
{
    int best = 0;
    double least = 0;
    for (int k = 0; k < n; k++) {
        double sum = 0;
        for (int e = 0; e + 1 < EPOCHS; e++) {
            const double *a = runs[k].loss[e], *z = runs[k].loss[e + 1], more = mean(a) - mean(z);
            for (int b = 0; b < STEPS; b++) sum += (a[b] - z[b] - more) * (a[b] - z[b] - more);
        }
        if (k == 0 || sum < least) least = sum, best = k;
    }
    return best;
}
