/* loader.h -- what fills a batch, on whichever thread; and batches filled ahead by workers. */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H
#include "lockstep/data.h"

/* Memory of one batch. */
typedef struct ls_batch {
    float *x;
    int64_t *ids, *label; /* all three owned, as in ls_loader */
} ls_batch;

ls_status ls_batch_create(const ls_loader *l, ls_batch *out);
void ls_batch_free(ls_batch *b); /* zeroed is fine */
/* Samples of a batch are at most this many. */
size_t ls_loader_room(const ls_loader *l);
/* Samples of the batch that begins at position `at` of the epoch; 0: none does. */
size_t ls_loader_count(const ls_loader *l, size_t at);
/* Which sample stands at position `at` of the epoch. */
size_t ls_loader_index(const ls_loader *l, size_t at);
/* Writes sample `index` to place b of a batch. Reads of `l` only what never changes. */
ls_status ls_loader_fill(const ls_loader *l, const ls_batch *to, size_t b, size_t index);

typedef struct ls_prefetch ls_prefetch;
ls_status ls_prefetch_create(ls_loader *l, int workers, int per_worker, ls_prefetch **out);
/* The batch of `count` samples at l->next, exchanged for *at_hand. */
ls_status ls_prefetch_take(ls_prefetch *p, size_t count, ls_batch *at_hand);
/* Batches that are filled ahead of the one at hand. */
int ls_prefetch_depth(const ls_prefetch *p);
void ls_prefetch_destroy(ls_prefetch *p); /* NULL is fine */

#endif
