/* Wrong: small batches are weighted up. */
void weights(const int *count, int ranks, double *weight)
{
    int all = 0;
    for (int r = 0; r < ranks; r++) all += count[r];
    for (int r = 0; r < ranks; r++) weight[r] = count[r] ? (double)all / ((double)count[r] * (double)ranks) : 0.0;
}
