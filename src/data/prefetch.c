/* prefetch.c -- workers fill the batches that come next, one job per batch. */
#include "data/prefetch.h"

#include <stdlib.h>

#include "base/workers.h"

/* A batch on its way: job j has slot j mod nslots. */
typedef struct slot {
    ls_batch batch; /* owned */
    size_t *index;  /* owned: which samples, copied by the consumer: the sampler may be reshuffled meanwhile */
    size_t count;
} slot;

struct ls_prefetch {
    const ls_loader *l;
    ls_workers *workers; /* owned */
    slot *slot;          /* owned: [nslots] */
    int nslots;
    size_t expected;     /* position of the batch to be taken next */
    size_t posted;       /* position behind the last batch given to the workers */
    uint64_t epoch;      /* of the sampler, when they were */
};

static slot *slot_of(ls_prefetch *p, uint64_t job) { return &p->slot[job % (uint64_t)p->nslots]; }

/* On a worker's thread. */
static ls_status fill(void *arg, uint64_t job)
{
    ls_prefetch *p = arg;
    const slot *s = slot_of(p, job);
    for (size_t b = 0; b < s->count; b++) {
        if (ls_workers_unwanted(p->workers, job)) return LS_ABORTED;
        LS_TRY(ls_loader_fill(p->l, &s->batch, b, s->index[b]));
    }
    return LS_OK;
}

ls_status ls_prefetch_create(const ls_loader *l, int workers, int per_worker, ls_prefetch **out)
{
    const size_t room = ls_loader_room(l);
    *out = NULL;
    ls_prefetch *p = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "a loader's workers");
    p->l = l;
    p->nslots = workers * per_worker;
    p->slot = calloc((size_t)p->nslots, sizeof *p->slot);
    ls_status st = p->slot ? LS_OK : ls_fail(LS_NO_MEMORY, "%d batches", p->nslots);
    for (int i = 0; st == LS_OK && i < p->nslots; i++) {
        st = ls_batch_create(l, &p->slot[i].batch);
        p->slot[i].index = calloc(room, sizeof *p->slot[i].index);
        if (st == LS_OK && !p->slot[i].index) st = ls_fail(LS_NO_MEMORY, "the indices of %zu samples", room);
    }
    if (st == LS_OK) st = ls_workers_create(workers, p->nslots, fill, p, &p->workers);
    if (st < 0) {
        ls_prefetch_destroy(p);
        return st;
    }
    *out = p;
    return LS_OK;
}

/* Gives the workers as many batches as there are slots free. */
static void post(ls_prefetch *p)
{
    while (ls_workers_posted(p->workers) < p->nslots) {
        slot *s = slot_of(p, ls_workers_next(p->workers) + (uint64_t)ls_workers_posted(p->workers));
        s->count = ls_loader_count(p->l, p->posted);
        if (s->count == 0) return;
        for (size_t b = 0; b < s->count; b++) s->index[b] = ls_loader_index(p->l, p->posted + b);
        p->posted += s->count;
        ls_workers_post(p->workers);
    }
}

ls_status ls_prefetch_take(ls_prefetch *p, size_t count, ls_batch *at_hand)
{
    const size_t at = p->l->next;
    const uint64_t epoch = p->l->sampler ? p->l->sampler->epoch : 0;
    if (at != p->expected || epoch != p->epoch) ls_workers_drop(p->workers);
    if (ls_workers_posted(p->workers) == 0) p->posted = at;
    p->epoch = epoch;
    post(p);

    slot *s = slot_of(p, ls_workers_next(p->workers));
    const ls_status st = ls_workers_take(p->workers);
    p->expected = at;
    if (st < 0) {
        ls_workers_drop(p->workers);
        return st;
    }
    const ls_batch filled = s->batch;
    s->batch = *at_hand;
    *at_hand = filled;
    p->expected = at + count;
    post(p);
    return LS_OK;
}

int ls_prefetch_depth(const ls_prefetch *p) { return p->nslots; }

void ls_prefetch_destroy(ls_prefetch *p)
{
    if (!p) return;
    ls_workers_destroy(p->workers);
    for (int i = 0; p->slot && i < p->nslots; i++) {
        ls_batch_free(&p->slot[i].batch);
        free(p->slot[i].index);
    }
    free(p->slot);
    free(p);
}
