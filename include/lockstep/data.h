/* data.h -- data sets, which samples are whose, and batches. */
#ifndef LS_DATA_H
#define LS_DATA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/mem.h"
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n samples of `features` floats with one label each, whole in memory. */
typedef struct ls_dataset {
    size_t n, features;
    int64_t classes;     /* labels are in [0, classes) */
    const float *x;      /* [n, features]; NULL when bytes is set */
    const uint8_t *bytes;/* [n, features] raw pixels; a loader yields (byte / 255 - mean) / std */
    float mean, std;     /* of bytes / 255; 0 and 1: plain [0, 1] */
    const int64_t *label;/* [n] */
    void *owner;         /* freed by ls_dataset_free; NULL: everything is borrowed */
} ls_dataset;

/* An IDX file (LeCun's format), gzipped or not, unsigned bytes. `dims` gets up to 4
 * sizes, *data is malloc'd for the caller. LS_BAD_FILE names file, byte offset
 * and rule; LS_IO when it cannot be read. `limit` bounds the payload's bytes. */
ls_status ls_idx_read(const char *path, size_t limit, int *ndim, size_t dims[4], uint8_t **data);

/* Images and labels of MNIST's layout in `dir`: {train,t10k}-{images-idx3,labels-idx1}-ubyte,
 * each with or without .gz, 10 classes. split: "train" or "test". mean is 0 and std 1.
 * LS_IO: a file is missing; LS_BAD_FILE: as above, or counts differ, or a label is not in [0, 10). */
ls_status ls_dataset_open_idx(const char *dir, const char *split, ls_dataset *out);
/* The exercise's synthetic data: torch.manual_seed(seed); randn(n, features); randint(0, classes, (n,)).
 * LS_INVALID unless features >= 1 and 1 <= classes < 2^32. */
ls_status ls_dataset_synthetic(uint64_t seed, size_t n, size_t features, int64_t classes, ls_dataset *out);
/* Mean and standard deviation of all bytes / 255, for `mean` and `std` above (of both splits: those
 * of the training images). 0 and 1 unless the set has bytes that differ. */
void ls_dataset_moments(const ls_dataset *d, float *mean, float *std);
void ls_dataset_free(ls_dataset *d); /* zeroed is fine */

/* torch.utils.data.DistributedSampler, exactly (pytorch-semantics B1). */
typedef struct ls_sampler {
    size_t n;
    int num_replicas, rank;
    bool shuffle, drop_last;
    uint64_t seed;
    uint64_t epoch;
    size_t num_samples; /* this rank's, the same on every rank */
    int64_t *index;     /* owned: [num_samples], of the current epoch */
} ls_sampler;
/* LS_INVALID unless 0 <= rank < num_replicas (and n < 2^32 / 20 to shuffle). Starts at epoch 0. */
ls_status ls_sampler_create(size_t n, int num_replicas, int rank, bool shuffle, uint64_t seed,
                            bool drop_last, ls_sampler **out);
/* Reshuffles for the epoch: without it every epoch repeats the same order. */
ls_status ls_sampler_set_epoch(ls_sampler *s, uint64_t epoch);
void ls_sampler_destroy(ls_sampler *s);

/* Batches in the sampler's order. The last one may be smaller unless drop_last. */
typedef struct ls_loader {
    const ls_dataset *data;     /* borrowed */
    const ls_sampler *sampler;  /* borrowed; NULL: 0..n-1 in order */
    size_t batch, next;         /* samples a batch; position in this epoch */
    bool drop_last;
    float *x;                   /* owned: [batch or an epoch, whichever is less; features] */
    int64_t *label;             /* owned: as many */
    float of_byte[256];         /* (byte / 255 - mean) / std */
} ls_loader;
/* LS_INVALID: batch is 0, or the sampler is for another number of samples. */
ls_status ls_loader_create(const ls_dataset *d, const ls_sampler *s, size_t batch, bool drop_last, ls_loader **out);
size_t ls_loader_batches(const ls_loader *l); /* an epoch */
void ls_loader_rewind(ls_loader *l);          /* to the start of the sampler's current epoch */
/* The next batch into l->x and l->label; returns its samples, 0 at the end of the epoch. */
size_t ls_loader_next(ls_loader *l);
void ls_loader_destroy(ls_loader *l);

#ifdef __cplusplus
}
#endif
#endif
