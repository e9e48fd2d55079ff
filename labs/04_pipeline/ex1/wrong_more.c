/* Wrong: one forward too many at the beginning. */
void schedule_1f1b(int stages, int stage, int micro_batches, char *what, int *micro_batch)
{
    const int behind = stages - stage, first = behind < micro_batches ? behind : micro_batches;
    int n = 0;
    for (int m = 0; m < first; m++) what[n] = 'F', micro_batch[n++] = m;
    for (int m = first; m < micro_batches; m++) {
        what[n] = 'F', micro_batch[n++] = m;
        what[n] = 'B', micro_batch[n++] = m - first;
    }
    for (int m = micro_batches - first; m < micro_batches; m++) what[n] = 'B', micro_batch[n++] = m;
}
