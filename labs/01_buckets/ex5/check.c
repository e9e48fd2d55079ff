/* check.c -- exercise 5 of lab 01: buckets and gradients of random runs, of which some have forgotten a tensor. */
#include "check.h"

enum { MOST_RANKS = 4, MOST_TENSORS = 6, MOST_STEPS = 6 };

typedef struct evidence {
    int ranks, tensors, steps;
    int bucket[MOST_STEPS][MOST_TENSORS];               /* [step - 1][tensor]; -1: in no bucket */
    int gradient[MOST_STEPS][MOST_TENSORS][MOST_RANKS]; /* [step - 1][tensor][rank] */
} evidence;

void forgotten(const evidence *e, int *tensor, int *step); /* task.c */

/* A run in which `tensor` (-1: none) shows in `step` (from 1), and `frozen` (-1: none) is never trained. */
static void draw(check *c, evidence *e, int *tensor, int *step, int *frozen)
{
    memset(e, 0, sizeof *e);
    e->ranks = check_between(c, 2, MOST_RANKS);
    e->tensors = check_between(c, 3, MOST_TENSORS);
    e->steps = check_between(c, 3, MOST_STEPS);
    *frozen = check_between(c, 0, 1) ? check_between(c, 0, e->tensors - 1) : -1;
    *tensor = check_between(c, 0, 3) > 0 ? check_between(c, 0, e->tensors - 1) : -1;
    if (*tensor == *frozen) *tensor = -1;
    *step = *tensor < 0 ? -1 : check_between(c, 2, e->steps);
    for (int s = 0; s < e->steps; s++)
        for (int t = 0; t < e->tensors; t++) {
            const int mean = t == *frozen || (t == *tensor && s > 0 && s + 1 < *step) ? 0 : check_between(c, 100, 999);
            e->bucket[s][t] = s == 0 ? 0 : t == *frozen || t == *tensor ? -1 : (e->tensors - 1 - t) / 2;
            for (int r = 0; r < e->ranks; r++) e->gradient[s][t][r] = mean;
            if (t != *tensor || s + 1 < *step) continue;
            /* Not averaged: often only the last rank's samples reach this tensor. */
            const bool last_only = check_between(c, 0, 1) == 1;
            for (int r = 0; r < e->ranks; r++)
                e->gradient[s][t][r] = r == e->ranks - 1 ? mean : last_only ? 0 : check_between(c, 1000, 9999);
        }
}

typedef struct shape {
    evidence e;
    int tensor, step, frozen, found, found_step;
} shape;

/* from_0: every step that was found is one too small. */
static const char *idea(const shape *x, bool from_0)
{
    const evidence *e = &x->e;
    const int tensor = x->tensor, step = x->step, frozen = x->frozen, found = x->found, found_step = x->found_step;
    if (from_0) return "steps are counted from 1: the first one is step 1";
    if (frozen >= 0 && found == frozen) return "a frozen tensor has no gradient on any rank: nothing of it has to be averaged";
    if (found == tensor && found_step >= 1 && found_step < step)
        return "it was in no bucket by then, but no rank had a gradient of it: weights were still equal after that step";
    const int *first = tensor < 0 ? NULL : e->gradient[step - 1][tensor]; /* by rank, when it shows */
    if (first && (found < 0 || found_step > step) && first[0] == first[1])
        return "two ranks may agree while a third one does not: compare all of them";
    if (tensor < 0) return "every trained tensor is in a bucket, or has equal gradients on all ranks";
    return "a tensor in no bucket whose gradients differ between ranks makes different weights";
}

static void print(const evidence *e)
{
    printf("  ranks %d, tensors %d, steps %d\n", e->ranks, e->tensors, e->steps);
    for (int s = 0; s < e->steps; s++) {
        printf("  step %d  ", s + 1);
        for (int t = 0; t < e->tensors; t++) {
            printf("%sbucket %d:", t ? " | " : "", e->bucket[s][t]);
            for (int r = 0; r < e->ranks; r++) printf(" %d", e->gradient[s][t][r]);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static shape all[CHECK_SHAPES];
    check c = check_begin(argc, argv);
    bool from_0 = true;
    int wrong = -1, frozen = -1; /* shapes: the first wrong one, and the first in which a frozen tensor was named */
    for (int i = 0; i < CHECK_SHAPES; i++) {
        shape *x = &all[i];
        draw(&c, &x->e, &x->tensor, &x->step, &x->frozen);
        x->found = x->found_step = -2;
        const evidence given = x->e;
        forgotten(&given, &x->found, &x->found_step);
        from_0 &= x->tensor < 0 || (x->found == x->tensor && x->found_step == x->step - 1);
        if (frozen < 0 && x->frozen >= 0 && x->found == x->frozen) frozen = i;
        if (wrong < 0 && (x->found != x->tensor || x->found_step != x->step)) wrong = i;
    }
    if (wrong < 0) return check_green(CHECK_SHAPES);
    if (frozen >= 0) wrong = frozen;
    const shape *x = &all[wrong];
    printf("shape %d of %d: gradients of each tensor, rank by rank\n", wrong + 1, CHECK_SHAPES);
    print(&x->e);
    printf("  expected  tensor %d, step %d\n  found     tensor %d, step %d\n  idea      %s\n", x->tensor, x->step, x->found,
           x->found_step, idea(x, from_0));
    return 1;
}
