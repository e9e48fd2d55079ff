/* Wrong: nothing leaves before all buckets are ready. */
void launch(const int *ready, int n, int *launched, int *count)
{
    (void)ready;
    for (int i = 0; i < n; i++) launched[i] = i, count[i] = i < n - 1 ? 0 : n;
}
