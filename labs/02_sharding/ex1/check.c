/* check.c -- exercise 1 of lab 02, beside the library's own ls_shard_of. */
#include "check.h"

#include "lockstep/lockstep.h"

enum { SHAPES = 300 };

typedef struct shape {
    int stage, what, ranks, rank;
    size_t rows, columns;
} shape;

size_t held(int stage, int what, size_t rows, size_t columns, int ranks, int rank); /* task.c */

static size_t expected(const shape *s)
{
    const bool sharded = s->stage > 0 && s->what >= 3 - s->stage;
    const size_t rows = sharded ? ls_shard_of(s->rows, s->rank, s->ranks).count : s->rows;
    return rows * s->columns * (s->what == 2 ? 8 : 4);
}

static const char *idea(const shape *s, size_t right, size_t found)
{
    const shape all = { 3, s->what, s->ranks, s->rank, s->rows, s->columns };
    const size_t elements = s->rows * s->columns / (size_t)s->ranks;
    if (s->what == 2 && 2 * found == right) return "Adam has two states of f32 per parameter";
    if (right > expected(&all) && found == expected(&all))
        return "this class is not sharded in this stage: every rank holds all of it";
    if (found == elements * (s->what == 2 ? 8 : 4))
        return "whole rows are owned, and the first rows % ranks ranks own one more";
    return "first ask whether the stage shards this class, then how many rows the rank owns";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int i = 0; i < SHAPES; i++) {
        /* 3 ranks and 5 rows at least: no shard is half of its matrix, so mistakes can be told apart. */
        shape s = { .stage = check_between(&c, 0, 3), .what = check_between(&c, 0, 2), .ranks = check_between(&c, 3, 9),
                    .rows = (size_t)check_between(&c, 5, 40), .columns = (size_t)check_between(&c, 1, 16) };
        s.rank = check_between(&c, 0, s.ranks - 1);
        const size_t right = expected(&s), found = held(s.stage, s.what, s.rows, s.columns, s.ranks, s.rank);
        if (found == right) continue;
        printf("shape %d of %d: stage %d, what = %d, %zu x %zu, rank %d of %d\n", i + 1, SHAPES, s.stage, s.what,
               s.rows, s.columns, s.rank, s.ranks);
        printf("  expected  %zu bytes\n  found     %zu bytes\n  idea      %s\n", right, found, idea(&s, right, found));
        return 1;
    }
    return check_green(SHAPES);
}
