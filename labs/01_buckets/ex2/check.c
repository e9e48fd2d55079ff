/* check.c -- exercise 2 of lab 01: the order of launches is ascending, and none is later than it has to be. */
#include "check.h"

enum { MOST = 12 };

void launch(const int *ready, int n, int *launched, int *count); /* task.c */

static const char *idea(const int *ready, int n, const int *right, const int *launched, const int *count)
{
    int late = 0, more = 0, at_end = 1;
    for (int i = 0; i < n; i++)
        if (launched[i] != i)
            return memcmp(launched, ready, (size_t)n * sizeof *ready) == 0
                ? "buckets leave as they become ready; another rank may have another order, and then both wait for ever"
                : "launched has the buckets in ascending order, each once";
    for (int i = 0; i < n; i++) {
        late += count[i] < right[i], more += count[i] > right[i];
        at_end &= i == n - 1 || count[i] == 0;
    }
    if (more) return "a bucket leaves before it is ready";
    if (at_end && count[n - 1] == n) return "nothing leaves before all are ready: no communication overlaps with backward";
    if (late) return "when bucket 0 becomes ready, those that have waited for it leave, too, and not one at a time";
    return "count[i] is how many have left once ready[i] was ready";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        const int n = check_between(&c, 2, MOST);
        int ready[MOST], right[MOST], seen = 0, next = 0;
        int room[2][2 * CHECK_GUARD / sizeof(int) + MOST];
        const size_t size = (size_t)n * sizeof *right;
        for (int i = 0; i < n; i++) ready[i] = i;
        for (int i = n - 1; i > 0; i--) {
            const int k = check_between(&c, 0, i), other = ready[k];
            ready[k] = ready[i], ready[i] = other;
        }
        for (int i = 0; i < n; i++) {
            for (seen |= 1 << ready[i]; next < n && (seen & 1 << next); next++) {}
            right[i] = next;
        }
        int *launched = check_room(room[0], sizeof room[0], size), *count = check_room(room[1], sizeof room[1], size);
        launch(ready, n, launched, count);
        bool outside = check_outside(room[0], sizeof room[0], size);
        outside = outside || check_outside(room[1], sizeof room[1], size);
        bool same = !outside && memcmp(count, right, size) == 0;
        for (int i = 0; i < n; i++) same = same && launched[i] == i;
        if (same) continue;
        printf("shape %d of %d\n", shape + 1, CHECK_SHAPES);
        check_print("ready", ready, n);
        check_print("launched", launched, n);
        check_print("expected", right, n);
        check_print("count", count, n);
        printf("  idea      %s\n", outside ? "something is written outside of launched[0 .. n - 1] and count[0 .. n - 1]"
                                          : idea(ready, n, right, launched, count));
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
