/* Wrong: the run with equal losses. */
enum { EPOCHS = 3, STEPS = 16 };

typedef struct run {
    double loss[EPOCHS][STEPS]; /* as metrics.jsonl of the run has them, step by step */
} run;

int without(const run *runs, int n)
{
    for (int k = 0; k < n; k++)
        for (int b = 0; b < STEPS; b++)
            if (runs[k].loss[0][b] == runs[k].loss[1][b]) return k;
    return -1;
}
