/* Wrong: stage 0 waits for the gradient of micro-batch 0 before it computes anything else, and stage 1 wants two
 * micro-batches first. */
static void put(char *what, int *micro_batch, int *n, char w, int m) { what[*n] = w, micro_batch[(*n)++] = m; }

void fill(int stage, int micro_batches, char *what, int *micro_batch)
{
    int n = 0;
    if (stage == 1) put(what, micro_batch, &n, 'F', 0);
    for (int m = 0; m < micro_batches; m++) {
        if (stage == 0) put(what, micro_batch, &n, 'F', m);
        else if (m + 1 < micro_batches) put(what, micro_batch, &n, 'F', m + 1);
        put(what, micro_batch, &n, 'I', m), put(what, micro_batch, &n, 'W', m);
    }
}
