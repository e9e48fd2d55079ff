/* Wrong: one sample that two ranks have read is taken for a missing sampler. */
#include <string.h>

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

static int same_ids(const int *a, const int *b) { return memcmp(a, b, IDS * sizeof *a) == 0; }

static int share_one(const int *a, const int *b)
{
    for (int i = 0; i < IDS; i++)
        for (int k = 0; k < IDS; k++)
            if (a[i] == b[k]) return 1;
    return 0;
}

enum step missing(const evidence *e)
{
    int digests = 0, writers = 0;
    for (int r = 1; r < e->ranks; r++) {
        digests += e->digest[r] != e->digest[0];
        writers += e->wrote[r];
    }
    if (e->size[0] != e->ranks) return GROUP;
    if (writers) return SAVE;
    if (e->rank_batch * e->ranks != e->global_batch) return BATCH;
    if (digests) return WRAPPER;
    if (share_one(e->id[0][0], e->id[1][0])) return SAMPLER;
    return same_ids(e->id[0][0], e->id[0][1]) ? SET_EPOCH : NOTHING;
}
