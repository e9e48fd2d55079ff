/* Wrong: all forwards, then all backwards. */
void schedule_1f1b(int stages, int stage, int micro_batches, char *what, int *micro_batch)
{
    (void)stages, (void)stage;
    for (int m = 0; m < micro_batches; m++) {
        what[m] = 'F', micro_batch[m] = m;
        what[micro_batches + m] = 'B', micro_batch[micro_batches + m] = m;
    }
}
