/* Exercise 3 of lab 01: a rank's share of the samples, times the number by which DDP divides. */
void weights(const int *count, int ranks, double *weight)
{
    int all = 0;
    for (int r = 0; r < ranks; r++) all += count[r];
    for (int r = 0; r < ranks; r++) weight[r] = (double)count[r] * (double)ranks / (double)all;
}
