/* Exercise 3 of lab 04: find where a pipeline is stuck.
 *
 * stages lists of 2 * micro_batches actions each: what[s][i] is 'F' or 'B', and micro_batch[s][i] says of which
 * micro-batch. Each stage carries its list out one action after another. A forward of a stage needs the forward of the
 * same micro-batch on the stage before; a backward needs the stage's own forward, and the backward on the stage after.
 * An action that lacks something waits, and with it all that follow in the list. Messages take no time and never fill
 * up.
 *
 * Return the first stage, counted from 0, that does not come to the end of its list, and write to *action which of its
 * actions waits forever. Return -1 if all stages come to their ends.
 *
 * Example: two stages, two micro-batches, stage 0: F0 B0 F1 B1, stage 1: F0 F1 B0 B1. Stage 1 waits for F1, which stage
 * 0 computes only after B0: return 0, *action 1.
 */
int stuck(int stages, int micro_batches, char *const *what, int *const *micro_batch, int *action)
{
    (void)stages, (void)micro_batches, (void)what, (void)micro_batch;
    *action = 0;
    return 0; /* your code takes the place of this line */
}
