/* Wrong: a bucket leaves as soon as it is ready. */
void launch(const int *ready, int n, int *launched, int *count)
{
    for (int i = 0; i < n; i++) launched[i] = ready[i], count[i] = i + 1;
}
