/* verify_impl.h -- the prover's state, shared by verify.c (what is promised),
 * verify_run.c (how it gets there) and rounds.c (in which rounds). */
#ifndef LS_COLL_VERIFY_IMPL_H
#define LS_COLL_VERIFY_IMPL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/sched.h"

/* Unread messages per pair and lane. A transport may have room for one only
 * (a long one that is staged in pieces), so a schedule that needs more is
 * refused here. */
#define QUEUE 1

typedef struct value {
    uint64_t order;  /* hash of the tree of additions; a + b and b + a are equal, as in IEEE 754 */
    uint32_t id;     /* what it is: chunk of the vector; all_to_all: block_id() */
    bool defined;
    bool raw;        /* a rank's own contribution, nothing added */
    bool finished;   /* a last_reduce has made it */
} value;

typedef struct message {
    ls_slice src;     /* of the sender */
    uint32_t step;    /* of the sender's lane */
    value *v;         /* pushed: owned, [src.n] */
    uint8_t *count;   /* pushed: owned, [src.n][size]; barrier: [size], whom the sender had heard of */
} message;

typedef struct queue { message m[QUEUE]; int head, n; } queue;

typedef struct lane_state {
    uint32_t pc, released;
    bool *read;       /* per step, for sends: the peer has taken it */
} lane_state;

typedef struct prover {
    const ls_sched *const *s; /* [size] */
    int size, nlanes;
    ls_coll coll;
    bool pulled;
    char what[160];           /* starts every sentence */
    uint32_t base[3], nchunks;/* of one rank: IN, OUT and TMP after one another */
    value *v;                 /* [size][nchunks] */
    uint8_t *count;           /* [size][nchunks][size], saturating */
    uint16_t *unread;         /* [size][nchunks]: sends of the chunk that a peer has yet to read */
    uint8_t *heard;           /* [size][size]: barrier */
    lane_state *lane;         /* [size][nlanes] */
    bool *read;               /* all lanes' read flags */
    queue *q;                 /* [from][to][lane] */
    uint64_t seed;
} prover;

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t leaf(int rank) { return mix((uint64_t)rank + 1); }
static inline uint64_t plus(uint64_t a, uint64_t b) { return mix((a < b ? a : b) ^ mix(a < b ? b : a)); }

static inline uint64_t ascending(int size)
{
    uint64_t order = leaf(0);
    for (int r = 1; r < size; r++) order = plus(order, leaf(r));
    return order;
}

static inline size_t slot(const prover *p, int rank, ls_bufid buf, uint32_t i)
{
    return (size_t)rank * p->nchunks + p->base[buf] + i;
}
static inline uint8_t *counts(const prover *p, size_t at) { return p->count + at * (size_t)p->size; }
static inline lane_state *lane_of(const prover *p, int rank, int l) { return &p->lane[rank * p->nlanes + l]; }
static inline queue *queue_of(const prover *p, int from, int to, int l)
{
    return &p->q[((size_t)from * (size_t)p->size + (size_t)to) * (size_t)p->nlanes + (size_t)l];
}
static inline const ls_step *step_of(const prover *p, int rank, int l, uint32_t i)
{
    return &p->s[rank]->lane[l].step[i];
}

static inline bool has_in(ls_coll c) { return c == LS_ALL_TO_ALL || c == LS_SENDRECV; }

/* all_to_all: segment `seg` of what goes from rank to rank. */
static inline uint32_t block_id(const prover *p, int from, int to, uint32_t seg)
{
    return (uint32_t)(from * p->size + to) * (uint32_t)p->s[0]->shape.segments + seg;
}

/* What belongs at chunk i of a buffer. A value may lie there only if it is as long, whatever the counts: all shares
 * may differ, but for the blocks of an all_to_all that is not uneven, and whole vectors. */
static inline uint32_t home(const prover *p, int rank, ls_bufid buf, uint32_t i)
{
    uint32_t segments = (uint32_t)p->s[0]->shape.segments;
    int other = (int)(i / segments);
    if (!has_in(p->coll)) return i;
    if (p->coll == LS_SENDRECV) { /* chunks of a vector that goes from one rank to the next */
        int before = (rank + p->size - 1) % p->size;
        return buf == LS_BUF_IN ? block_id(p, rank, (rank + 1) % p->size, i) : block_id(p, before, rank, i);
    }
    return buf == LS_BUF_IN ? block_id(p, rank, other, i % segments) : block_id(p, other, rank, i % segments);
}

/* The oldest message, or NULL. */
static inline const message *peek(const prover *p, int from, int to, int l)
{
    const queue *q = queue_of(p, from, to, l);
    return q->n ? &q->m[q->head] : NULL;
}

/* Fails with LS_INTERNAL and the step in front:
 * "all_reduce over 4 ranks ...: rank 2, lane 0, step 3 (send out[1] -> 3): <text>" */
ls_status ls_prover_red(const prover *p, int rank, int l, uint32_t step, const char *text);

/* What a value is, for people: "chunk 3 of the vector". */
void ls_prover_value(const prover *p, uint32_t id, char *buf, size_t n);

/* What every rank has at the start. To be closed also after a failure. */
ls_status ls_prover_open(prover *out, const ls_sched *const *s, int size, bool pulled, uint64_t seed);
void ls_prover_close(prover *p);
/* The next step of a lane that has one; LS_AGAIN: it waits for a peer. */
ls_status ls_prover_step(prover *p, int rank, int l);
/* LS_INTERNAL: a lane waits for ever, named with what for. */
ls_status ls_prover_ended(const prover *p);
/* Steps all lanes to their ends, or fails. greedy: each as far as it goes before another moves. */
ls_status ls_prover_run(prover *p, bool greedy);

#endif
