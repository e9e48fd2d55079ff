/* check.c -- exercise 2 of lab 04: both lists are played; each stage stores two micro-batches at most, and the step
 * takes 3 * micro_batches + 1. */
#include "check.h"

enum { MICRO = 40, ROOM = 3 * MICRO };

void fill(int stage, int micro_batches, char *what, int *micro_batch); /* task.c */

typedef struct lists {
    int m;
    char what[2][ROOM];
    int micro_batch[2][ROOM];
} lists;

static const char *alone(const lists *l, int s)
{
    static const char letter[] = "FIW";
    int gone[3] = { 0 };
    for (int i = 0; i < 3 * l->m; i++) {
        const char *at = l->what[s][i] ? strchr(letter, l->what[s][i]) : NULL;
        if (!at) return "each action is 'F', 'I' or 'W'";
        const int k = (int)(at - letter);
        if (l->micro_batch[s][i] != gone[k]++ || gone[k] > l->m) return "F, I and W have each micro-batch once, in ascending order";
        if (k == 2 && gone[2] > gone[1]) return "W needs what I has computed: of a micro-batch I comes first";
        if (k == 1 && gone[1] > gone[0]) return "a micro-batch goes forward before it goes backward";
        if (gone[0] - gone[2] > 2) return "more than two micro-batches are stored: only a W releases one";
    }
    return NULL;
}

/* How long the step lasts; -1: the stages wait for each other forever. */
static int play(const lists *l)
{
    int ends[3][2][MICRO], at[2] = { 0 }, next[2] = { 0 }, left = 6 * l->m;
    memset(ends, 0xff, sizeof ends);
    for (int moved = 1; moved && left > 0;) {
        moved = 0;
        for (int s = 0; s < 2; s++) {
            if (next[s] == 3 * l->m) continue;
            const char w = l->what[s][next[s]];
            const int x = l->micro_batch[s][next[s]], k = w == 'F' ? 0 : w == 'I' ? 1 : 2;
            const int from = k == 0 && s == 1 ? ends[0][0][x] : k == 1 && s == 0 ? ends[1][1][x] : 0;
            if (from < 0) continue;
            at[s] = (from > at[s] ? from : at[s]) + 1;
            ends[k][s][x] = at[s];
            next[s]++, left--, moved = 1;
        }
    }
    return left ? -1 : at[0] > at[1] ? at[0] : at[1];
}

static void print_list(const lists *l, int s)
{
    printf("  stage %d  ", s);
    for (int i = 0; i < 3 * l->m; i++) {
        const char what = l->what[s][i];
        printf(" %c%d", what >= 'A' && what <= 'Z' ? what : '?', l->micro_batch[s][i]);
    }
    printf("\n");
}

static int red(const lists *l, int shape, int found, const char *idea)
{
    printf("shape %d of %d: %d micro-batches\n", shape + 1, CHECK_SHAPES, l->m);
    print_list(l, 0);
    print_list(l, 1);
    printf("  expected  a step of %d units\n", 3 * l->m + 1);
    if (found >= 0) printf("  found     a step of %d units\n", found);
    printf("  idea      %s\n", idea);
    return 1;
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        static lists l;
        l.m = check_between(&c, 2, MICRO);
        bool outside = false;
        for (int s = 0; s < 2; s++) {
            char what[2 * CHECK_GUARD + ROOM];
            int micro_batch[2 * CHECK_GUARD / sizeof(int) + ROOM];
            const size_t n = 3 * (size_t)l.m, size = n * sizeof *micro_batch;
            char *w = check_room(what, sizeof what, n);
            int *x = check_room(micro_batch, sizeof micro_batch, size);
            fill(s, l.m, w, x);
            memcpy(l.what[s], w, n);
            memcpy(l.micro_batch[s], x, size);
            outside = outside || check_outside(what, sizeof what, n);
            outside = outside || check_outside(micro_batch, sizeof micro_batch, size);
        }
        if (outside) return red(&l, shape, -1, "something is written outside of what and micro_batch, which have 3 * micro_batches elements");
        for (int s = 0; s < 2; s++) {
            const char *idea = alone(&l, s);
            if (idea) return red(&l, shape, -1, idea);
        }
        const int step = play(&l);
        if (step < 0) return red(&l, shape, step, "the stages wait for each other forever: what does stage 0 need that stage 1 has not begun?");
        if (step > 3 * l.m + 1) return red(&l, shape, step, "stage 0 waits for an I while stage 1 computes a W, which no stage waits for");
    }
    return check_green(CHECK_SHAPES);
}
