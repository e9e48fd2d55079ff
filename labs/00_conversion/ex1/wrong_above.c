/* Wrong: the next batch that works out is not one sample away. */
int micro_batches(int global, int ranks, int micro, int *below, int *above)
{
    const int unit = ranks * micro;
    if (global % unit == 0) return global / unit;
    *below = global - 1;
    *above = global + 1;
    return 0;
}
