/* Wrong: looks only whether the ranks can share the batch. */
int micro_batches(int global, int ranks, int micro, int *below, int *above)
{
    if (global % ranks == 0) return global / ranks / micro;
    *below = global / ranks * ranks;
    *above = *below + ranks;
    return 0;
}
