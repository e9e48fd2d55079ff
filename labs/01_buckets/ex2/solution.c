/* Exercise 2 of lab 01: whenever a bucket becomes ready, all that are next in line leave. */
#include <stdbool.h>
#include <string.h>

void launch(const int *ready, int n, int *launched, int *count)
{
    bool is_ready[64];
    int next = 0;
    memset(is_ready, 0, sizeof is_ready);
    for (int i = 0; i < n; i++) {
        is_ready[ready[i]] = true;
        while (next < n && is_ready[next]) {
            launched[next] = next;
            next++;
        }
        count[i] = next;
    }
}
