/* Wrong: DDP divides by the number of ranks, too. */
void weights(const int *count, int ranks, double *weight)
{
    int all = 0;
    for (int r = 0; r < ranks; r++) all += count[r];
    for (int r = 0; r < ranks; r++) weight[r] = (double)count[r] / (double)all;
}
