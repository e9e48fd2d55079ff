/* check.c -- exercise 3 of lab 04: lists of 1F1B and GPipe in which two actions of a stage may be exchanged. */
#include "check.h"

enum { STAGES = 6, MICRO = 12, ROOM = 2 * MICRO };

int stuck(int stages, int micro_batches, char *const *what, int *const *micro_batch, int *action); /* task.c */

typedef struct lists {
    int p, m;
    char what[STAGES][ROOM];
    int micro_batch[STAGES][ROOM];
} lists;

static void put(lists *l, int s, int *n, char what, int micro_batch)
{
    l->what[s][*n] = what;
    l->micro_batch[s][(*n)++] = micro_batch;
}

static void make(check *c, lists *l)
{
    const bool gpipe = check_between(c, 0, 2) == 0;
    l->p = check_between(c, 2, STAGES), l->m = check_between(c, 2, MICRO);
    for (int s = 0; s < l->p; s++) {
        const int behind = gpipe ? l->m : l->p - 1 - s, first = behind < l->m ? behind : l->m;
        int n = 0;
        for (int m = 0; m < first; m++) put(l, s, &n, 'F', m);
        for (int m = first; m < l->m; m++) put(l, s, &n, 'F', m), put(l, s, &n, 'B', m - first);
        for (int m = l->m - first; m < l->m; m++) put(l, s, &n, 'B', m);
    }
    for (int swaps = check_between(c, 0, 2); swaps > 0; swaps--) {
        const int s = check_between(c, 0, l->p - 1), last = 2 * l->m - 1;
        const int a = check_between(c, 0, last), b = check_between(c, 0, last);
        const char what = l->what[s][a];
        const int micro_batch = l->micro_batch[s][a];
        l->what[s][a] = l->what[s][b], l->micro_batch[s][a] = l->micro_batch[s][b];
        l->what[s][b] = what, l->micro_batch[s][b] = micro_batch;
    }
}

/* Plays the lists; next[s] is where each stage comes to. `backward` false: backwards wait for no other stage. */
static void play(const lists *l, bool backward, int *next)
{
    bool done[2][STAGES][MICRO] = { 0 };
    memset(next, 0, STAGES * sizeof *next);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < l->p; s++) {
            if (next[s] == 2 * l->m) continue;
            const bool back = l->what[s][next[s]] == 'B';
            const int m = l->micro_batch[s][next[s]];
            if (!back && s > 0 && !done[0][s - 1][m]) continue;
            if (back && (!done[0][s][m] || (backward && s < l->p - 1 && !done[1][s + 1][m]))) continue;
            done[back][s][m] = true;
            next[s]++;
            moved = true;
        }
    }
}

static int first_stuck(const lists *l, const int *next)
{
    for (int s = 0; s < l->p; s++)
        if (next[s] < 2 * l->m) return s;
    return -1;
}

static const char *idea(const lists *l, const int *next, int right, int found, int action)
{
    int forward[STAGES];
    play(l, false, forward);
    const int without = first_stuck(l, forward);
    if (found < -1 || found >= l->p) return "the result is a stage, or -1";
    if (right < 0) return "nothing is stuck: play the lists until no stage can move; one pass over the stages is not enough";
    if (found >= 0 && found == without && action == forward[found]) return "a backward also waits for the backward of the stage after";
    if (found < 0) return "some stage never comes to its end: play the lists until nothing moves";
    if (found > right) return "several stages are stuck: the first of them is asked for";
    if (found < right) return "this stage comes to its end: what it waits for arrives later";
    return next[right] > 0 ? "the stage is right, the action is not: it is the first one that never runs" : "the action waits from the beginning";
}

static void print_stage(const lists *l, int s)
{
    printf("  stage %d  ", s);
    for (int i = 0; i < 2 * l->m; i++) printf(" %c%d", l->what[s][i], l->micro_batch[s][i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        static lists l, given;
        char *what[STAGES];
        int *micro_batch[STAGES], next[STAGES], action = -1;
        make(&c, &l);
        given = l;
        for (int s = 0; s < STAGES; s++) what[s] = given.what[s], micro_batch[s] = given.micro_batch[s];
        play(&l, true, next);
        const int right = first_stuck(&l, next), found = stuck(l.p, l.m, what, micro_batch, &action);
        if (found == right && (right < 0 || action == next[right])) continue;
        printf("shape %d of %d\n", shape + 1, CHECK_SHAPES);
        for (int s = 0; s < l.p; s++) print_stage(&l, s);
        if (right < 0) printf("  expected  -1\n");
        else printf("  expected  stage %d, action %d\n", right, next[right]);
        printf(found < 0 ? "  found     %d\n" : "  found     stage %d, action %d\n", found, action);
        printf("  idea      %s\n", idea(&l, next, right, found, action));
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
