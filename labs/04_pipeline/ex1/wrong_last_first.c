/* Wrong: the newest micro-batch goes backward first, as a stack would have it. */
void schedule_1f1b(int stages, int stage, int micro_batches, char *what, int *micro_batch)
{
    const int behind = stages - 1 - stage, first = behind < micro_batches ? behind : micro_batches;
    int n = 0;
    for (int m = 0; m < first; m++) what[n] = 'F', micro_batch[n++] = m;
    for (int m = first; m < micro_batches; m++) {
        what[n] = 'F', micro_batch[n++] = m;
        what[n] = 'B', micro_batch[n++] = m;
    }
    for (int m = first - 1; m >= 0; m--) what[n] = 'B', micro_batch[n++] = m;
}
