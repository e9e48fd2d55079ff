/* Exercise 2 of lab 10: which run was started without set_epoch?
 *
 * You get the losses of n runs, n >= 2. Each has trained EPOCHS epochs of STEPS steps, on data of its own, with
 * shuffling. All but one have called set_epoch before each epoch. Return the number of the other one, from 0 to n - 1.
 *
 * Weights change from step to step, so in no run are two losses equal to the last digit.
 */
enum { EPOCHS = 3, STEPS = 16 };

typedef struct run {
    double loss[EPOCHS][STEPS]; /* as metrics.jsonl of the run has them, step by step */
} run;

int without(const run *runs, int n)
{
    (void)runs, (void)n;
    return 0; /* your code takes the place of these lines */
}
