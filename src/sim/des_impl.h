/* des_impl.h -- what the files of the event engine share. */
#ifndef LS_SIM_DES_IMPL_H
#define LS_SIM_DES_IMPL_H
#include "sim/des.h"
#include "sim/des_cores.h"
#include "sim/des_links.h"
#include "sim/des_queue.h"

#define GOT UINT64_MAX /* of process.waits: what it waited for has come */

/* A cache line. A key names a sender and a `via`. */
typedef struct process {
    _Alignas(64) double t; /* its time; */
    double port, in;     /* from when on its ports out and in are free, on a flat network */
    const ls_des_op *op; /* the next one */
    uint64_t waits;      /* for the message of this key; 0: for none, GOT */
    uint64_t key;        /* of the oldest message that came too early; 0: there is none, */
    double arrives;      /* when it comes, */
    uint32_t later;      /* the last of those after it, a ring in `early`; LS_DES_NONE */
    uint32_t next;       /* of its group, who waits, too; LS_DES_NONE */
} process;
_Static_assert(sizeof(process) == 64, "a process is a cache line");

typedef struct message {
    uint64_t key;
    double arrives;
    uint32_t next;
} message;

typedef struct meeting {
    uint32_t left, first; /* members that are to come; who waits */
    double latest;
    uint64_t held;        /* how often it took place */
} meeting;

typedef struct sim {
    const ls_des_model *m;
    process *p;          /* owned, as all here: [n] */
    meeting *group;      /* [ngroups] */
    message *early;      /* of all processes */
    uint32_t nearly, cap, spare; /* spare: first of those that are free; LS_DES_NONE */
    uint64_t *ready;     /* bits of processes that can go on (LS_DES_FREE) */
    uint32_t *stack;     /* the same, otherwise */
    uint32_t nready;
    ls_des_queue queue;  /* of processes before a SEND, unless LS_DES_FREE, and before a WORK on shared cores */
    ls_des_cores cores;
    ls_des_links links;
    bool flat;           /* one process per place, one latency and rate for all: */
    double latency, pace, gap;
    uint64_t messages;
    ls_status st;        /* the first failure: nothing goes on */
} sim;

static inline uint32_t index_of(const sim *x, uint32_t p)
{
    return (uint32_t)((x->p[p].op - x->m->program[p]) >> x->m->log2_stride);
}

/* A process that can go on. */
static LS_ALWAYS_INLINE void resume(sim *x, uint32_t p, bool in_turn)
{
    if (in_turn) x->stack[x->nready] = p;
    else x->ready[p / 64] |= 1ull << (p % 64);
    x->nready++;
}

/* Runs all processes until none can go on; x->st says how it ended. */
void ls_des_go(sim *x);

#endif
