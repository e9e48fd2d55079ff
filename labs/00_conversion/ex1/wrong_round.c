/* Wrong: a batch that does not work out is rounded down in silence. */
int micro_batches(int global, int ranks, int micro, int *below, int *above)
{
    const int unit = ranks * micro;
    *below = global / unit * unit;
    *above = *below + unit;
    return global / unit;
}
