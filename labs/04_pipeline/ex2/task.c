/* Exercise 2 of lab 04: a schedule for two stages that idles less than 1F1B.
 *
 * A backward has two halves here: 'I', the gradient of the stage's input, which the stage before waits for, and 'W',
 * the gradients of the stage's weights, which no other stage waits for. A forward 'F', an 'I' and a 'W' take one unit
 * of time each. Write the 3 * micro_batches actions of stage 0 or 1 of two: what[i] and micro_batch[i]. Of each
 * micro-batch F comes before I and I before W; the F, the I and the W are each in ascending order of micro-batches. A
 * stage stores what a micro-batch needs from its F to its W, of two micro-batches at most. There are at least two
 * micro-batches. The step may take 3 * micro_batches + 1 units; 1F1B takes two more, or one more if what I gives is
 * sent before W begins.
 *
 * Example: micro_batches 2, stage 0: F0 F1 I0 W0 I1 W1.
 */
void fill(int stage, int micro_batches, char *what, int *micro_batch)
{
    (void)stage;
    for (int m = 0; m < micro_batches; m++) /* your code takes the place of this loop */
        for (int i = 0; i < 3; i++) what[3 * m + i] = 'F', micro_batch[3 * m + i] = m;
}
