/* Exercise 1 of lab 04: the order in which a stage computes the micro-batches of a step under 1F1B.
 *
 * There is one stage per rank. Write the 2 * micro_batches actions of stage `stage`, 0 <= stage < stages: what[i] is
 * 'F' for a forward and 'B' for a backward, and micro_batch[i] says of which micro-batch, from 0. A stage begins with
 * a few forwards, then takes a forward and a backward in turn, and ends with backwards. Forwards are in ascending
 * order, and so are backwards. The step may not last longer than with any other number of forwards at the beginning,
 * and the stage may not store more micro-batches than that takes. There may be fewer micro-batches than stages.
 *
 * Example: stages 2, stage 0, micro_batches 3: F0 F1 B0 F2 B1 B2.
 */
void schedule_1f1b(int stages, int stage, int micro_batches, char *what, int *micro_batch)
{
    (void)stages, (void)stage;
    for (int i = 0; i < micro_batches; i++) { /* your code takes the place of this loop */
        what[2 * i] = 'F', micro_batch[2 * i] = i;
        what[2 * i + 1] = 'B', micro_batch[2 * i + 1] = i;
    }
}
