/* nearest.c -- "did you mean": the known word nearest to a mistyped one. */
#include <string.h>

#include "base/opts_impl.h"

#define LONGEST 128
#define FAR     1000u

static char folded(char c)
{
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    return c == '_' ? '-' : c;
}

static unsigned min2(unsigned a, unsigned b) { return a < b ? a : b; }

/* Insertions, deletions, replacements and swaps of neighbours (Damerau 1964, optimal string
 * alignment): row i of the table needs the two rows above it only. */
unsigned ls_edit_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST) return FAR;
    unsigned two_up[LONGEST + 1] = { 0 }, up[LONGEST + 1], row[LONGEST + 1];
    for (size_t j = 0; j <= nb; j++) up[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            char x = folded(a[i - 1]), y = folded(b[j - 1]);
            unsigned best = up[j - 1] + (x != y);
            best = min2(best, min2(up[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y) best = min2(best, two_up[j - 2] + 1);
            row[j] = best;
        }
        memcpy(two_up, up, sizeof up);
        memcpy(up, row, sizeof up);
    }
    return up[nb];
}

unsigned ls_edit_slip(const char *name)
{
    unsigned third = (unsigned)min2((unsigned)strlen(name), LONGEST) / 3;
    return third < 2 ? third + 1 : third;
}

const char *ls_nearest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    unsigned least = ls_edit_slip(name) + 1;
    for (size_t i = 0; i < n; i++) {
        unsigned d = ls_edit_distance(name, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}
