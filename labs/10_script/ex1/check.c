/* check.c -- exercise 1 of lab 10, beside the library's own sampler. */
#include "check.h"

#include "lockstep/lockstep.h"

enum { MOST = 64 };

int shard(int n, int ranks, int rank, bool drop_last, int *index); /* task.c */

/* What a typical mistake gives: 0: runs of neighbours; 1: nothing is padded or dropped; 2: drop_last is not read. */
static int mistaken(int kind, int n, int ranks, int rank, bool drop_last, int *index)
{
    int each = drop_last && kind == 0 ? n / ranks : (n + ranks - 1) / ranks;
    if (kind == 1) each = (n - rank + ranks - 1) / ranks;
    for (int i = 0; i < each; i++) index[i] = (kind == 0 ? rank * each + i : rank + i * ranks) % n;
    return each;
}

/* Whether task.c answers as this mistake does. All shapes are asked, because one shape fits several mistakes. */
static bool alike(int kind, int n, int ranks, int rank, bool drop_last, const int *found, int result)
{
    int index[MOST + 1];
    if (mistaken(kind, n, ranks, rank, drop_last, index) != result) return false;
    return memcmp(index, found, (size_t)result * sizeof *index) == 0;
}

static const char *idea(const bool *like)
{
    if (like[0]) return "ranks take turns: the next sample is the next rank's";
    if (like[1]) return "all ranks must have as many samples, or one waits in an all_reduce that others never start";
    if (like[2]) return "with drop_last no sample is seen twice";
    return "first find how many samples each rank has, then which";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    bool like[3] = { true, true, true }, red = false, over = false;
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        int right[MOST + 1], room[2 * CHECK_GUARD / sizeof(int) + MOST + 1];
        const int ranks = check_between(&c, 2, 8), n = check_between(&c, ranks, MOST);
        const int rank = check_between(&c, 0, ranks - 1);
        const bool drop_last = check_between(&c, 0, 1) == 1;
        ls_sampler *s;
        if (ls_sampler_create((size_t)n, ranks, rank, false, 0, drop_last, &s) < 0) {
            printf("the library's sampler: %s\n", ls_last_error());
            return 1;
        }
        const int count = (int)s->num_samples;
        for (int i = 0; i < count; i++) right[i] = (int)s->index[i];
        ls_sampler_destroy(s);
        const size_t size = (size_t)count * sizeof *right;
        int *found = check_room(room, sizeof room, size);
        const int result = shard(n, ranks, rank, drop_last, found);
        const bool outside = check_outside(room, sizeof room, size);
        over |= outside && result == count;
        const int shown = result < 0 ? 0 : result > MOST ? MOST : result;
        for (int kind = 0; kind < 3; kind++)
            like[kind] = like[kind] && alike(kind, n, ranks, rank, drop_last, found, result);
        if (red || (!outside && result == count && memcmp(right, found, size) == 0)) continue;
        red = true;
        printf("shape %d of %d: n = %d, ranks = %d, rank = %d, drop_last = %s\n", shape + 1, CHECK_SHAPES, n, ranks,
               rank, drop_last ? "true" : "false");
        check_print("expected", right, count);
        check_print("found", found, shown);
        printf("  result    expected %d, found %d\n", count, result);
    }
    if (!red) return check_green(CHECK_SHAPES);
    printf("  idea      %s\n", over ? "something is written outside of index[0] to index[result - 1]" : idea(like));
    return 1;
}
