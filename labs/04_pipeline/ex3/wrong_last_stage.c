/* Wrong: names the last stage that is stuck, and not the first. */
#include <stdbool.h>

static bool done(int s, int n, char *const *what, int *const *micro_batch, char w, int m)
{
    for (int i = 0; i < n; i++)
        if (what[s][i] == w && micro_batch[s][i] == m) return true;
    return false;
}

int stuck(int stages, int micro_batches, char *const *what, int *const *micro_batch, int *action)
{
    int next[64] = { 0 };
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < stages; s++) {
            if (next[s] == 2 * micro_batches) continue;
            const char w = what[s][next[s]];
            const int m = micro_batch[s][next[s]];
            if (w == 'F' && s > 0 && !done(s - 1, next[s - 1], what, micro_batch, 'F', m)) continue;
            if (w == 'B' && !done(s, next[s], what, micro_batch, 'F', m)) continue;
            if (w == 'B' && s < stages - 1 && !done(s + 1, next[s + 1], what, micro_batch, 'B', m)) continue;
            next[s]++;
            moved = true;
        }
    }
    for (int s = stages - 1; s >= 0; s--)
        if (next[s] < 2 * micro_batches) return *action = next[s], s;
    return -1;
}
