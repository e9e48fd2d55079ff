/* check.c -- exercise 2 of lab 00: what random runs leave, of which each lacks at most one step. */
#include "check.h"

enum step { NOTHING, GROUP, WRAPPER, SAMPLER, SET_EPOCH, BATCH, SAVE };
enum { MOST_RANKS = 4, EPOCHS = 2, IDS = 6 };

typedef struct evidence {
    int ranks;                          /* processes that were started */
    int size[MOST_RANKS];               /* how many ranks each of them found in its job */
    int global_batch, rank_batch;       /* samples per step: as they are wanted, and as each rank reads them */
    int digest[MOST_RANKS];             /* of a rank's weights at the end: equal numbers mean equal weights */
    int id[MOST_RANKS][EPOCHS][IDS];    /* the first samples of each epoch that it has read */
    int wrote[MOST_RANKS];              /* 1: the rank has written the checkpoint */
} evidence;

enum step missing(const evidence *e); /* task.c */

static const char *const word[] = { "NOTHING", "GROUP", "WRAPPER", "SAMPLER", "SET_EPOCH", "BATCH", "SAVE" };
enum { STEPS = sizeof word / sizeof *word, MOST_SAMPLES = MOST_RANKS * IDS };

/* Deals a random order of n samples in turn, and repeats the first ones at the end, as ls_sampler does. */
static void deal(check *c, evidence *e, int epoch, int n)
{
    int order[MOST_SAMPLES];
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int k = check_between(c, 0, i), other = order[k];
        order[k] = order[i], order[i] = other;
    }
    for (int r = 0; r < e->ranks; r++)
        for (int i = 0; i < IDS; i++) e->id[r][epoch][i] = order[(i * e->ranks + r) % n];
}

static void draw(check *c, enum step lacks, evidence *e)
{
    memset(e, 0, sizeof *e);
    e->ranks = check_between(c, 2, MOST_RANKS);
    e->rank_batch = check_between(c, 1, 16);
    e->global_batch = e->rank_batch * e->ranks;
    if (lacks == BATCH) e->rank_batch = check_between(c, 0, 1) ? e->global_batch : e->rank_batch + 1;
    const int writer = check_between(c, 1, e->ranks - 1); /* besides rank 0 */
    const int n = e->ranks * IDS - check_between(c, 0, e->ranks - 1), digest = check_between(c, 1000, 9999);
    for (int epoch = 0; epoch < EPOCHS; epoch++) deal(c, e, epoch, n);
    if (memcmp(e->id[0][0], e->id[0][1], sizeof e->id[0][0]) == 0) e->id[0][1][0] = e->id[0][1][1];
    if (lacks == GROUP) { /* all of them do the same: read the whole batch in one order, and write */
        e->rank_batch = e->global_batch;
        for (int r = 0; r < e->ranks; r++) {
            e->wrote[r] = e->size[r] = 1, e->digest[r] = digest;
            memmove(e->id[r], e->id[0], sizeof e->id[r]);
        }
        return;
    }
    for (int r = 0; r < e->ranks; r++) {
        e->size[r] = e->ranks;
        e->digest[r] = lacks == WRAPPER ? digest + r : digest;
        e->wrote[r] = r == 0 || (lacks == SAVE && r == writer);
        if (lacks == SAMPLER) memmove(e->id[r], e->id[0], sizeof e->id[r]);
        if (lacks == SET_EPOCH) memcpy(e->id[r][1], e->id[r][0], sizeof e->id[r][1]);
    }
}

static const char *idea(enum step lacks, int found)
{
    if (lacks == GROUP) return "a process that has not joined is rank 0 of 1: it writes, reads every sample and the whole batch";
    if (lacks != SAMPLER && found == SAMPLER)
        return "two ranks may share a few samples: a sampler repeats some, so that every rank has equally many";
    if (lacks == BATCH || found == BATCH) return "each rank reads its share: all ranks together make the global batch";
    switch (lacks) {
    case WRAPPER: return "ranks that train alone on different samples end with different weights";
    case SAMPLER: return "ranks without a sampler read the same samples in the same order";
    case SET_EPOCH: return "a sampler that is not told the epoch gives a rank the same order again";
    case SAVE: return "in a right run rank 0 writes, and nobody else does";
    default: return "nothing is missing here: each step has left its trace";
    }
}

static void print(const evidence *e)
{
    printf("  ranks %d, global_batch %d, rank_batch %d\n", e->ranks, e->global_batch, e->rank_batch);
    for (int r = 0; r < e->ranks; r++) {
        printf("  process %d  size %d, digest %d, wrote %d, samples", r, e->size[r], e->digest[r], e->wrote[r]);
        for (int epoch = 0; epoch < EPOCHS; epoch++)
            for (int i = 0; i < IDS; i++) printf("%s%d", i ? " " : epoch ? " | " : " ", e->id[r][epoch][i]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        const enum step lacks = (enum step)check_between(&c, 0, STEPS - 1);
        evidence e;
        draw(&c, lacks, &e);
        const int found = (int)missing(&e);
        if (found == (int)lacks) continue;
        printf("shape %d of %d\n", shape + 1, CHECK_SHAPES);
        print(&e);
        printf("  expected  %s\n  found     %s\n  idea      %s\n", word[lacks],
               found >= 0 && found < STEPS ? word[found] : "no step", idea(lacks, found));
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
