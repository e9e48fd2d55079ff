/* check.c -- exercise 1 of lab 00: the batches of random runs, of which about half work out. */
#include "check.h"

int micro_batches(int global, int ranks, int micro, int *below, int *above); /* task.c */

typedef struct answer {
    int n, below, above;
} answer;

/* The answer of someone who looks at multiples of `unit` alone. */
static answer by_unit(int global, int unit)
{
    if (global % unit == 0) return (answer){ .n = global / unit };
    return (answer){ .below = global / unit * unit, .above = global / unit * unit + unit };
}

static bool same(answer a, answer b) { return a.n == b.n && (a.n > 0 || (a.below == b.below && a.above == b.above)); }

static const char *idea(int global, int ranks, int micro, answer right, answer found)
{
    if (right.n == 0 && found.n == global / (ranks * micro))
        return "a batch that does not work out is refused, not rounded: the run would train on fewer samples than it says";
    answer ranks_only = by_unit(global, ranks);
    if (ranks_only.n) ranks_only.n /= micro;
    if (same(found, ranks_only)) return "a rank's share has to be a number of whole micro-batches, too";
    if (same(found, by_unit(global, micro))) return "`global` counts the samples of all ranks";
    if (right.n == 0 && found.n == 0) return "below and above are multiples of what all ranks compute with one micro-batch each";
    return "the global batch is micro-batch x micro-batches per step x ranks";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        const int ranks = check_between(&c, 2, 8), micro = check_between(&c, 2, 16), unit = ranks * micro;
        const bool fits = check_between(&c, 0, 1) == 1;
        int global = fits ? unit * check_between(&c, 1, 9) : check_between(&c, 1, 9 * unit);
        /* The first shapes tell a rounded batch from one that only the ranks can share. */
        global += !fits && shape < CHECK_SHAPES / 2 && global % ranks == 0;
        const answer right = by_unit(global, unit);
        answer found = { .below = -1, .above = -1 };
        found.n = micro_batches(global, ranks, micro, &found.below, &found.above);
        if (same(right, found)) continue;
        printf("shape %d of %d: global = %d, ranks = %d, micro = %d\n", shape + 1, CHECK_SHAPES, global, ranks, micro);
        if (right.n > 0) printf("  expected  %d micro-batches per rank\n", right.n);
        else printf("  expected  0, below = %d, above = %d\n", right.below, right.above);
        printf("  found     %d, below = %d, above = %d (-1: not written)\n  idea      %s\n", found.n, found.below, found.above,
               idea(global, ranks, micro, right, found));
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
