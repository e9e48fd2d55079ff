/* Exercise 2 of lab 00: which step of the conversion is missing?
 *
 * A converted script has run on several ranks for two epochs. You get what the run has left, and not its source. At
 * most one step of the conversion is missing. Return its name, or NOTHING.
 *
 *   GROUP      no rank joins the job: each process is rank 0 of a job of one, and does what such a rank does
 *   WRAPPER    no ls_ddp: every rank trains alone
 *   SAMPLER    every rank reads the samples of rank 0
 *   SET_EPOCH  the sampler is not told the epoch
 *   BATCH      a rank's batch is not its share of the global batch: it is the whole, or another number
 *   SAVE       another rank than 0 writes the checkpoint, too, and perhaps not every one
 *
 * A sampler gives every rank equally many samples. If the ranks cannot share them evenly, it repeats a few.
 */
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

enum step missing(const evidence *e)
{
    (void)e;
    return NOTHING; /* your code takes the place of this line */
}
