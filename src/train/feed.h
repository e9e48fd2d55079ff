/* feed.h -- what a run learns from: this rank's samples of each step, of features or of tokens, micro-batch by
 * micro-batch; and the samples that it is tested with.
 *
 * A step's samples follow from its number alone, and so does where each of them stands in the step, whatever the
 * number of ranks and however a step is divided. (Of features unless `inner` is above 0 this needs a number of samples
 * that the ranks share equally.)
 */
#ifndef LS_TRAIN_FEED_H
#define LS_TRAIN_FEED_H
#include "lockstep/data.h"
#include "lockstep/model.h"
#include "train/config.h"
#include "train/source.h"

/* n samples one after another: x [n, features] of F32 with a label each, or x [n, tokens] and as many labels, I64. */
typedef struct ls_rows {
    void *x;        /* borrowed from the feed */
    int64_t *label;
    size_t n;
    size_t tokens;  /* of a sample; 0: of features */
    size_t first;   /* place of the first sample: in the step, over all ranks; or among those for tests */
    size_t counts;  /* in training: n, or 0 where the step ends before the first of them */
} ls_rows;

#define LS_FEED_TEST_ROWS 256 /* test_rows of features; of tokens it is the micro-batch */

/* With pipeline stages: samples per forward, if an evaluation has more of them than training (ls_parallel_opts); 0: it
 * has not. */
static inline int64_t ls_feed_most_rows(const ls_train_config *c) { return ls_train_is_lm(c) ? 0 : LS_FEED_TEST_ROWS; }

typedef struct ls_feed ls_feed;

/* Where a sample of the run's order comes from. */
typedef struct ls_feed_place {
    int64_t epoch;    /* from 0 */
    int64_t position; /* in the epoch's order, over all ranks; of features `samples` and more are repeats: the order
                         begins again, so that each rank has as many samples */
    int64_t index;    /* of the sample in the data set: of tokens, a window of them */
} ls_feed_place;

/* A kind of data: one of each in feed.c. */
typedef struct ls_feed_kind {
    ls_status (*step)(ls_feed *f, int64_t step);              /* f->step: this rank's samples */
    ls_status (*test)(ls_feed *f, size_t first, ls_rows *out); /* some samples from `first` on, at least one */
    ls_feed_place (*place)(const ls_feed *f, size_t i);       /* of a sample of f->step */
} ls_feed_kind;

struct ls_feed {
    const ls_feed_kind *kind;
    int rank, size;
    size_t local, micro;          /* samples of a whole step and of a micro-batch, on this rank */
    int inner;                    /* above 0: samples follow ls_deal, with micro as the grain (train.numerics
                                     invariant), and every step has `local` samples here, of which the rest of an
                                     epoch not all count; 0: DistributedSampler's, or a run of tokens */
    size_t samples, test_samples; /* that there are; test_samples 0: nothing to test with */
    size_t test_rows;             /* most that kind->test gives at once */
    size_t features, tokens;      /* of a sample: one of them is 0 */
    int64_t steps_per_epoch;
    int64_t ignore;               /* a token that does not count as a label; -1: all do */
    int64_t number;               /* of the step at hand, from 0 */
    ls_rows step;                 /* the samples of the step at hand */
    size_t all;                   /* how many it has on all ranks */
    int64_t counted;              /* labels of the step at hand that count: all but LS_IGNORE_INDEX */

    ls_dataset train, test;       /* of features; owned, as all below */
    ls_sampler *sampler;
    ls_loader *loader, *test_loader;
    ls_tokens train_tokens, test_tokens;
    ls_token_loader *token_loader, *test_token_loader;
};

/* Opens what c names, for rank `rank` of `size`; local and micro are set, and `source` (tokens) has been found.
 * `model` says what a sample is. LS_BAD_CONFIG where data and model do not fit. */
ls_status ls_feed_open(ls_feed *f, const ls_train_config *c, const ls_model_config *model, const ls_source *source);
void ls_feed_close(ls_feed *f); /* zeroed is fine */

/* A checksum of some of the training data: their beginning, middle and end. Another file has another one. */
uint64_t ls_feed_checksum(const ls_feed *f);
/* Begins step `step`, from 0: f->step are its samples on this rank. LS_BAD_FILE: a token outside the vocabulary. */
ls_status ls_feed_step(ls_feed *f, int64_t step);
/* The i-th sample of the step at hand on this rank, in [0, step.n). */
ls_feed_place ls_feed_place_of(const ls_feed *f, size_t i);
/* Micro-batches of it. */
size_t ls_feed_micro_batches(const ls_feed *f);
/* One of them, from 0; n is 0 beyond the last. */
ls_rows ls_feed_micro_batch(const ls_feed *f, size_t number);
/* Samples [first, first + n) for tests, as many of the n as come at once. */
ls_status ls_feed_test(ls_feed *f, size_t first, size_t n, ls_rows *out);

#endif
