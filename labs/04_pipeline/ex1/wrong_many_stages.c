/* Wrong: forgets that there may be fewer micro-batches than stages behind. */
void schedule_1f1b(int stages, int stage, int micro_batches, char *what, int *micro_batch)
{
    const int first = stages - 1 - stage;
    int n = 0;
    for (int m = 0; m < first && n < 2 * micro_batches; m++) what[n] = 'F', micro_batch[n++] = m;
    for (int m = first; m < micro_batches; m++) {
        what[n] = 'F', micro_batch[n++] = m;
        what[n] = 'B', micro_batch[n++] = m - first;
    }
    const int left = micro_batches > first ? micro_batches - first : 0;
    for (int m = left; n < 2 * micro_batches; m++) what[n] = 'B', micro_batch[n++] = m;
}
