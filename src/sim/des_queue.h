/* des_queue.h -- which process comes next: a calendar queue of the engine.
 *
 * A process waits in it once at most. Times far ahead are kept unsorted; when all before them are gone, they are dealt
 * out to the buckets of a new calendar, and a bucket is sorted when its turn comes. Processes that wait for the same
 * moment, as those of a symmetric schedule do, are sorted by a set of bits. What is put into a bucket that is already
 * open goes to a heap. Order: time, then number of the process.
 */
#ifndef LS_SIM_DES_QUEUE_H
#define LS_SIM_DES_QUEUE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "lockstep/status.h"

typedef struct ls_des_event {
    double t;
    uint32_t p;
} ls_des_event;

typedef struct ls_des_listed { /* in a bucket; indexed by process */
    double t;
    uint32_t next;
} ls_des_listed;

#define LS_DES_NONE UINT32_MAX

typedef struct ls_des_queue {
    uint32_t n;              /* processes */
    ls_des_event *far;       /* owned, as all here: later than the calendar; in order of coming */
    uint32_t nfar;
    double far_first, far_last;
    uint32_t *bucket;        /* [nbuckets]: first process of each; LS_DES_NONE */
    ls_des_listed *list;     /* [n] */
    uint32_t nbuckets, open; /* those before `open` are used up, `open` - 1 is being emptied */
    double begins, per_s;    /* of the calendar; buckets per second */
    ls_des_event *low;       /* the open bucket, sorted: low[at .. nlow) is left */
    uint32_t nlow, at;
    ls_des_event *late;      /* a heap: came into the open bucket */
    uint32_t nlate;
    uint64_t *same;          /* bits of processes that wait for `same_t`, from word `word` on */
    uint32_t nsame, word;
    double same_t;
} ls_des_queue;

ls_status ls_des_queue_create(uint32_t n, ls_des_queue *out); /* LS_NO_MEMORY */
void ls_des_queue_free(ls_des_queue *q);
/* Opens the next bucket; false: nothing waits. */
bool ls_des_queue_open(ls_des_queue *q);
void ls_des_queue_push_late(ls_des_queue *q, double t, uint32_t p);
ls_des_event ls_des_queue_pop_late(ls_des_queue *q);

static inline bool ls_des_before(const ls_des_event *a, const ls_des_event *b)
{
    return a->t < b->t || (a->t == b->t && a->p < b->p);
}

/* t is finite, and not before what was popped last. */
static LS_ALWAYS_INLINE void ls_des_queue_push(ls_des_queue *q, double t, uint32_t p)
{
    const double at = (t - q->begins) * q->per_s;
    if (at < (double)q->open || (q->nbuckets == 0 && t <= q->same_t)) {
        ls_des_queue_push_late(q, t, p);
    } else if (at < (double)q->nbuckets) {
        const uint32_t b = (uint32_t)at;
        q->list[p] = (ls_des_listed){ t, q->bucket[b] };
        q->bucket[b] = p;
    } else {
        if (q->nfar == 0 || t < q->far_first) q->far_first = t;
        if (q->nfar == 0 || t > q->far_last) q->far_last = t;
        q->far[q->nfar++] = (ls_des_event){ t, p };
    }
}

/* False: nothing waits. */
static LS_ALWAYS_INLINE bool ls_des_queue_pop(ls_des_queue *q, ls_des_event *out)
{
    for (;;) {
        if (q->nsame > 0) {
            while (q->same[q->word] == 0) q->word++;
            *out = (ls_des_event){ q->same_t, q->word * 64 + (uint32_t)__builtin_ctzll(q->same[q->word]) };
            if (q->nlate > 0 && ls_des_before(&q->late[0], out)) break;
            q->same[q->word] &= q->same[q->word] - 1;
            q->nsame--;
            return true;
        }
        if (q->at < q->nlow) {
            *out = q->low[q->at];
            if (q->nlate > 0 && ls_des_before(&q->late[0], out)) break;
            q->at++;
            return true;
        }
        if (q->nlate > 0) break;
        if (!ls_des_queue_open(q)) return false;
    }
    *out = ls_des_queue_pop_late(q);
    return true;
}

#endif
