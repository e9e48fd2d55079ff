/* Wrong: the run whose loss falls least. */
enum { EPOCHS = 3, STEPS = 16 };

typedef struct run {
    double loss[EPOCHS][STEPS]; /* as metrics.jsonl of the run has them, step by step */
} run;

int without(const run *runs, int n)
{
    int best = 0;
    double least = 0;
    for (int k = 0; k < n; k++) {
        double falls = 0;
        for (int b = 0; b < STEPS; b++) falls += runs[k].loss[0][b] / STEPS - runs[k].loss[EPOCHS - 1][b] / STEPS;
        if (k == 0 || falls < least) least = falls, best = k;
    }
    return best;
}
