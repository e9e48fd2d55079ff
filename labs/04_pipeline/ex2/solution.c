/* Exercise 2 of lab 04: stage 1 puts off each W by one micro-batch, so that stage 0 gets its gradients earlier. */
static void put(char *what, int *micro_batch, int *n, char w, int m) { what[*n] = w, micro_batch[(*n)++] = m; }

void fill(int stage, int micro_batches, char *what, int *micro_batch)
{
    int n = 0;
    if (stage == 0) put(what, micro_batch, &n, 'F', 0), put(what, micro_batch, &n, 'F', 1);
    for (int m = 0; m < micro_batches; m++) {
        if (stage == 0) {
            put(what, micro_batch, &n, 'I', m), put(what, micro_batch, &n, 'W', m);
            if (m + 2 < micro_batches) put(what, micro_batch, &n, 'F', m + 2);
        } else {
            put(what, micro_batch, &n, 'F', m), put(what, micro_batch, &n, 'I', m);
            if (m > 0) put(what, micro_batch, &n, 'W', m - 1);
        }
    }
    if (stage == 1) put(what, micro_batch, &n, 'W', micro_batches - 1);
}
