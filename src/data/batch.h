/* batch.h -- one batch of a loader: which samples it has, its memory, and filling it on whichever thread. */
#ifndef LS_DATA_BATCH_H
#define LS_DATA_BATCH_H
#include "lockstep/data.h"

/* Memory of one batch. */
typedef struct ls_batch {
    float *x;
    int64_t *ids, *label; /* all three owned, as in ls_loader */
} ls_batch;

ls_status ls_batch_create(const ls_loader *l, ls_batch *out);
void ls_batch_free(ls_batch *b); /* zeroed is fine */
/* Samples of an epoch on this rank. */
size_t ls_loader_samples(const ls_loader *l);
/* Samples of a batch are at most this many. */
size_t ls_loader_room(const ls_loader *l);
/* Samples of the batch that begins at position `at` of the epoch; 0: none does. */
size_t ls_loader_count(const ls_loader *l, size_t at);
/* Which sample stands at position `at` of the epoch. */
size_t ls_loader_index(const ls_loader *l, size_t at);
/* Writes sample `index` to place b of a batch. Reads of `l` only what never changes. */
ls_status ls_loader_fill(const ls_loader *l, const ls_batch *to, size_t b, size_t index);

#endif
