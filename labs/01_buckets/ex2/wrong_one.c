/* Wrong: at most one bucket leaves when one becomes ready. */
#include <stdbool.h>
#include <string.h>

void launch(const int *ready, int n, int *launched, int *count)
{
    bool is_ready[64];
    int next = 0;
    memset(is_ready, 0, sizeof is_ready);
    for (int i = 0; i < n; i++) {
        is_ready[ready[i]] = true;
        if (is_ready[next]) launched[next] = next, next++;
        count[i] = next;
    }
    for (int i = next; i < n; i++) launched[i] = i;
}
