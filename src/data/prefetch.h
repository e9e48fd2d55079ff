/* prefetch.h -- batches that workers fill ahead of the one at hand. */
#ifndef LS_DATA_PREFETCH_H
#define LS_DATA_PREFETCH_H
#include "data/batch.h"

typedef struct ls_prefetch ls_prefetch;
/* Reads of `l` its data, sampler and position; it belongs to the loader, which destroys it. */
ls_status ls_prefetch_create(const ls_loader *l, int workers, int per_worker, ls_prefetch **out);
/* The batch of `count` samples at l->next, exchanged for *at_hand. */
ls_status ls_prefetch_take(ls_prefetch *p, size_t count, ls_batch *at_hand);
/* Batches that are filled ahead of the one at hand. */
int ls_prefetch_depth(const ls_prefetch *p);
void ls_prefetch_destroy(ls_prefetch *p); /* NULL is fine */

#endif
