/* check.c -- exercise 1 of lab 04: the lists of all stages are played; nothing may be missing, stuck, late or stored
 * without need. */
#include "check.h"

enum { STAGES = 8, MICRO = 24, ROOM = 2 * MICRO };

void schedule_1f1b(int stages, int stage, int micro_batches, char *what, int *micro_batch); /* task.c */

typedef struct lists {
    int p, m;
    char what[STAGES][ROOM];
    int micro_batch[STAGES][ROOM];
} lists;

/* What is wrong with the list of a stage on its own; NULL: nothing. */
static const char *alone(const lists *l, int s)
{
    int forward = 0, backward = 0;
    for (int i = 0; i < 2 * l->m; i++) {
        const int x = l->micro_batch[s][i];
        if (x < 0 || x >= l->m) return "a micro-batch that the step does not have: there may be fewer micro-batches than stages";
        if (l->what[s][i] == 'F') {
            if (x != forward++) return "each micro-batch goes forward once, in ascending order";
        } else if (l->what[s][i] == 'B') {
            if (x != backward++) return "each micro-batch goes backward once, in ascending order: all stages add gradients in the same order";
            if (backward > forward) return "a micro-batch goes forward before it goes backward";
        } else return "each action is 'F' or 'B'";
    }
    return NULL;
}

static int alive(const lists *l, int s)
{
    int now = 0, most = 0;
    for (int i = 0; i < 2 * l->m; i++) {
        now += l->what[s][i] == 'F' ? 1 : -1;
        if (now > most) most = now;
    }
    return most;
}

/* How long the step lasts if a forward takes 1 and a backward 2; -1: stages wait for each other forever. */
static int play(const lists *l)
{
    int ends[2][STAGES][MICRO], at[STAGES] = { 0 }, next[STAGES] = { 0 }, last = 0, left = l->p * 2 * l->m;
    memset(ends, 0xff, sizeof ends);
    for (int moved = 1; moved && left > 0;) {
        moved = 0;
        for (int s = 0; s < l->p; s++) {
            if (next[s] == 2 * l->m) continue;
            const int back = l->what[s][next[s]] == 'B', x = l->micro_batch[s][next[s]];
            const int first = back ? s == l->p - 1 : s == 0, from = first ? 0 : ends[back][back ? s + 1 : s - 1][x];
            if (from < 0) continue;
            at[s] = (from > at[s] ? from : at[s]) + 1 + back;
            ends[back][s][x] = at[s];
            if (at[s] > last) last = at[s];
            next[s]++, left--, moved = 1;
        }
    }
    return left ? -1 : last;
}

static int red(const lists *l, int shape, int stage, const char *idea)
{
    printf("shape %d of %d: %d stages, %d micro-batches, stage %d\n", shape + 1, CHECK_SHAPES, l->p, l->m, stage);
    printf("  found    ");
    for (int i = 0; i < 2 * l->m; i++) {
        const char what = l->what[stage][i];
        printf(" %c%d", what == 'F' || what == 'B' ? what : '?', l->micro_batch[stage][i]);
    }
    const int behind = l->p - 1 - stage;
    printf("\n  expected  %d forwards before the first backward\n", behind + 1 < l->m ? behind + 1 : l->m);
    printf("  idea      %s\n", idea);
    return 1;
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        static lists l;
        l.p = check_between(&c, 2, STAGES), l.m = check_between(&c, 1, MICRO);
        for (int s = 0; s < l.p; s++) {
            char what[2 * CHECK_GUARD + ROOM];
            int micro_batch[2 * CHECK_GUARD / sizeof(int) + ROOM];
            const size_t n = 2 * (size_t)l.m, size = n * sizeof *micro_batch;
            char *w = check_room(what, sizeof what, n);
            int *x = check_room(micro_batch, sizeof micro_batch, size);
            schedule_1f1b(l.p, s, l.m, w, x);
            memcpy(l.what[s], w, n);
            memcpy(l.micro_batch[s], x, size);
            if (check_outside(what, sizeof what, n) || check_outside(micro_batch, sizeof micro_batch, size))
                return red(&l, shape, s, "something is written outside of what and micro_batch, which have 2 * micro_batches elements");
        }
        for (int s = 0; s < l.p; s++) {
            const char *idea = alone(&l, s);
            if (idea) return red(&l, shape, s, idea);
        }
        const int step = play(&l), right = 3 * (l.m + l.p - 1);
        for (int s = l.p - 1; s >= 0; s--) {
            const int most = alive(&l, s), needed = l.p - s < l.m ? l.p - s : l.m;
            if (most > needed + 1)
                return red(&l, shape, s, "all micro-batches are stored at once, as under GPipe: 1F1B begins with backwards as soon as it can");
            if (most > needed) return red(&l, shape, s, "one micro-batch more than needed is stored: the step is not shorter for it");
        }
        if (step < 0) return red(&l, shape, 0, "the stages wait for each other forever");
        for (int s = 0; s < l.p; s++)
            if (step > right && alive(&l, s) < (l.p - s < l.m ? l.p - s : l.m))
                return red(&l, shape, s, "the stage waits for a gradient while it could compute a forward: one more at the beginning");
        if (step > right) return red(&l, shape, 0, "the step lasts longer than (micro_batches + stages - 1) forwards and backwards");
    }
    return check_green(CHECK_SHAPES);
}
