/* Wrong: what the last uses needed is not released. */
#include <stdbool.h>

enum { GATHER, USE, RELEASE };
enum { MOST = 64 };

static int unit_of(int units, int use) { return use < units ? use : 2 * units - 1 - use; }

static bool is_near(int units, int ahead, int first, int unit)
{
    for (int use = first; use <= first + ahead && use < 2 * units; use++)
        if (unit_of(units, use) == unit) return true;
    return false;
}

int schedule(int units, int ahead, int *what, int *unit)
{
    bool there[MOST] = { false };
    int n = 0;
    for (int t = 0; t < 2 * units; t++) {
        for (int u = 0; u < units; u++)
            if (there[u] && !is_near(units, ahead, t, u)) there[u] = false, what[n] = RELEASE, unit[n++] = u;
        for (int use = t; use <= t + ahead && use < 2 * units; use++) {
            const int u = unit_of(units, use);
            if (!there[u]) there[u] = true, what[n] = GATHER, unit[n++] = u;
        }
        what[n] = USE, unit[n++] = unit_of(units, t);
    }
    return n;
}
