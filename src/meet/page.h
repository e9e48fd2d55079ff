/* page.h -- the world page: what every rank of a host and its launcher share.
 *
 * One sealed memfd, mapped by all of them, that outlives each: after a crash
 * the launcher reads here what a rank did last. Only fixed-width integers and
 * offsets; every word says who writes it.
 */
#ifndef LS_MEET_PAGE_H
#define LS_MEET_PAGE_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/compiler.h"
#include "base/context.h"
#include "lockstep/dtype.h"
#include "lockstep/trace.h"
#include "lockstep/world.h"
#include "meet/saved.h"
#include "meet/task.h"

#define LS_PAGE_MAGIC 0x4c4f434b53544550ull /* "LOCKSTEP" */
#define LS_PAGE_LAYOUT 9u
#define LS_PAGE_GROUPS 21  /* groups whose newest collectives a slot describes: all there can be, */
#define LS_PAGE_HISTORY 64 /* and as many of each as can be in flight */

/* The full description of a collective (32 bytes): enough to name both sides of a mismatch. Of a message: coll
 * LS_SENDRECV, op 0 for a send and 1 for a receive, root the other rank of the world. */
typedef struct ls_coll_desc {
    uint32_t generation, group, seq;
    uint8_t coll, dtype, op, block; /* block: which of the groups at once, < LS_PAGE_GROUPS */
    uint64_t count;
    int32_t root;
    uint32_t label; /* index into the rank's black box strings */
} ls_coll_desc;

typedef enum ls_rank_state {
    LS_RANK_STARTING, LS_RANK_RUNNING, LS_RANK_DONE, LS_RANK_DEAD, LS_RANK_STOPPED
} ls_rank_state;

/* What a rank has sent in one group, for whoever must say where a message was lost: written by whoever moves the
 * rank's works, read when a wait has failed. Ranks are those of the world. */
#define LS_PAGE_LANES 2
#define LS_GROUP_TEXT_BYTES 44
#define LS_GROUP_OTHER UINT32_MAX /* no group's id: of which group is not known, or not to be asked */
typedef struct ls_flow {
    _Atomic uint32_t group;              /* which group has this place now */
    _Atomic uint32_t seq, done;          /* its newest collective that ran a schedule; 1: that is complete */
    _Atomic uint64_t waits[LS_PAGE_LANES]; /* of each lane: ls_flow_wait(); 0: for nothing */
    _Atomic uint32_t named;              /* which group the name is of */
    char name[LS_GROUP_TEXT_BYTES];      /* for people: "tp 0-3" */
} ls_flow; /* and how many messages went to whom: ls_page_sent() */

/* A lane's wait in a word: for message `number` of a rank, of which a part may be here; or (sends) for that rank to
 * take what it was sent. */
static inline uint64_t ls_flow_wait(int rank, bool sends, bool part, uint32_t number)
{
    return 1ull << 63 | (uint64_t)sends << 62 | (uint64_t)part << 61 | (uint64_t)(uint32_t)rank << 32 | number;
}

typedef struct ls_rank_slot {
    /* Read by peers at every message and hardly ever written: a line of its own, or each look would
     * fetch what the rank has just written beside it. */
    _Alignas(64) _Atomic uint32_t parked; /* the rank sets it before sleeping; a peer clears and wakes */
    _Atomic uint32_t state;               /* ls_rank_state; the rank, and the launcher once it is dead */
    _Atomic int32_t pid;
    uint64_t proof_at, proof[2];          /* random words, and where else they stand in its private memory (attach.h) */

    /* Where the rank is: written by it alone, read when something is wrong. */
    _Alignas(64) _Atomic uint32_t step;
    _Atomic uint32_t micro_batch;
    _Atomic uint32_t in_coll;            /* LS_IN_COLL while it waits inside a collective */
    _Atomic uint64_t waits_for;          /* which one: ls_page_waits_for(); 0: none */
    _Atomic uint32_t newest;             /* index into desc of the collective entered last */
    _Atomic uint64_t beat_ns;            /* when a collective of this rank last moved */
    _Alignas(64) struct ls_desc_slot {
        _Atomic uint32_t version;        /* odd while the rank rewrites word: readers retry */
        _Atomic uint64_t word[4];        /* an ls_coll_desc */
    } desc[LS_PAGE_GROUPS * LS_PAGE_HISTORY]; /* ls_desc_index() */
    struct ls_desc_slot message;         /* the newest send or receive that it had to wait for */
    ls_flow flow[LS_PAGE_GROUPS];        /* by block, as desc */
    ls_task_slot task;                   /* its long work outside collectives, while it does any */
    ls_task_slot meanwhile;              /* the save that a thread of it writes while it trains, while there is one */
    ls_blackbox box;
} ls_rank_slot;

enum { LS_IN_NOTHING, LS_IN_COLL, LS_IN_MESSAGE };

#define LS_PAGE_MESSAGES LS_PAGE_LANES /* in place of a lane: messages of sends and receives */

typedef struct ls_world_page {
    uint64_t magic;
    uint32_t layout, generation; /* messages of another generation are refused */
    uint32_t nranks;             /* of the world; slots that follow */
    uint8_t host[16];            /* random: ranks that see the same are on one host */
    _Atomic uint32_t abort_by;   /* 0, or 1 + the rank that failed first (compare-and-swap);
                                    LS_ABORT_BY_LAUNCHER: the launcher itself */
    _Atomic uint32_t abort_ready;/* 1 once status and text below are written */
    int32_t abort_status;
    int32_t abort_about;         /* the rank to blame: not the one that noticed */
    char abort_text[LS_ERROR_BYTES];
    ls_saved_slot saved;         /* the newest checkpoint: written by rank 0, or by who mirrors its host */
    ls_saved_slot snapshot;      /* likewise the newest snapshot in memory; a mirror has its step alone */
    ls_run_dir_slot run_dir;     /* of a training: written by rank 0 */
    ls_rank_slot rank[];         /* [nranks]; then what ls_page_sent() says, and longer rings of
                                    events: memory that is there once it is used */
} ls_world_page;

#define LS_ABORT_BY_LAUNCHER UINT32_MAX

size_t ls_page_bytes(int nranks);
/* Formats fresh, zeroed memory of that size. */
void ls_page_format(ls_world_page *p, int nranks, uint32_t generation);
/* A new page in shared memory, formatted and mapped; the caller closes *fd and unmaps ls_page_bytes(nranks).
 * LS_NO_MEMORY. */
ls_status ls_page_create(int nranks, uint32_t generation, ls_world_page **out, int *fd);
/* One for a single rank, of a world whose other ranks are not there: only its slot has memory. */
ls_status ls_page_create_dry(int nranks, int rank, uint32_t generation, ls_world_page **out);
/* Maps the page that a peer made. LS_PROTOCOL where it is none for nranks ranks, LS_NO_MEMORY. */
ls_status ls_page_map(int fd, int nranks, ls_world_page **out);
/* How many messages of a lane's newest collective a rank has handed to the transport, [nranks] by the rank of the world
 * that they go to; with LS_PAGE_MESSAGES how many of all its sends. The rank has them reserved before it writes:
 * ls_page_reserve_sent(). */
static inline size_t ls_page_sent_bytes(uint32_t nranks)
{
    return ((LS_PAGE_LANES + 1) * (size_t)nranks * sizeof(uint32_t) + 63) & ~(size_t)63; /* of one group */
}
static inline size_t ls_page_slots_end(uint32_t nranks)
{
    return (sizeof(ls_world_page) + (size_t)nranks * sizeof(ls_rank_slot) + 4095) & ~(size_t)4095;
}
static inline _Atomic uint32_t *ls_page_sent(const ls_world_page *p, int rank, uint32_t block, int lane)
{
    const size_t group = (size_t)(uint32_t)rank * LS_PAGE_GROUPS + block;
    const size_t at = ls_page_slots_end(p->nranks) + group * ls_page_sent_bytes(p->nranks);
    return (_Atomic uint32_t *)(void *)((char *)(uintptr_t)p + at) + (size_t)lane * p->nranks;
}
/* Where the ring of a rank's black box lies when it is longer than the box's own, [LS_BLACKBOX_MOST]. The rank has it
 * reserved before it writes: ls_page_reserve_events(). */
static inline size_t ls_page_sent_end(uint32_t nranks)
{
    return (ls_page_slots_end(nranks) + nranks * LS_PAGE_GROUPS * ls_page_sent_bytes(nranks) + 4095) & ~(size_t)4095;
}
static inline ls_event *ls_page_events(const ls_world_page *p, int rank)
{
    char *at = (char *)(uintptr_t)p + ls_page_sent_end(p->nranks);
    return (ls_event *)(void *)at + (size_t)(uint32_t)rank * LS_BLACKBOX_MOST;
}
/* The first n. LS_NO_MEMORY */
ls_status ls_page_reserve_events(ls_world_page *p, int rank, uint32_t n);
/* LS_NO_MEMORY */
ls_status ls_page_reserve_sent(ls_world_page *p, int rank, uint32_t block);
/* LS_PROTOCOL unless magic, layout and size fit. */
ls_status ls_page_check(const ls_world_page *p, size_t nbytes, int nranks);

/* First caller wins: status, message and `by` (1 + rank, or LS_ABORT_BY_LAUNCHER)
 * become the job's cause; every parked rank is woken. True for the winner. */
bool ls_page_abort(ls_world_page *p, uint32_t by, ls_status s, const char *text);
/* The same when `by` noticed what rank `about` did, or did not do. */
bool ls_page_blame(ls_world_page *p, uint32_t by, int about, ls_status s, const char *text);
/* The cause once there is one: false before. *rank is the one to blame, -1: none. text gets at most n bytes. */
bool ls_page_cause(const ls_world_page *p, int *rank, ls_status *s, char *text, size_t n);

/* Aborts with LS_RANK_DIED: the rank has ended without saying goodbye; says where it was. */
void ls_page_died(ls_world_page *p, int rank, int pid);

/* "all_reduce #118 (bucket 3) of tp 0-3: 1024 float sum" into buf; label and group as the rank's slot names them.
 * Returns buf. */
const char *ls_desc_text(const ls_coll_desc *d, const ls_rank_slot *slot, char *buf, size_t n);
/* Where a collective is described. */
static inline uint32_t ls_desc_index(uint32_t block, uint32_t seq)
{
    return block % LS_PAGE_GROUPS * LS_PAGE_HISTORY + seq % LS_PAGE_HISTORY;
}
/* A description as the words of a slot, and back. By shifts: what was written field by field and read as a whole would
 * have to wait for the fields to reach the cache. */
static inline void ls_desc_pack(const ls_coll_desc *d, uint64_t word[4])
{
    word[0] = d->generation | (uint64_t)d->group << 32;
    word[1] = d->seq | (uint64_t)d->coll << 32 | (uint64_t)d->dtype << 40 | (uint64_t)d->op << 48 |
              (uint64_t)d->block << 56;
    word[2] = d->count;
    word[3] = (uint32_t)d->root | (uint64_t)d->label << 32;
}
static inline void ls_desc_unpack(const uint64_t word[4], ls_coll_desc *d)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ /* they lie as the fields do */
    memcpy(d, word, sizeof *d);
#else
    *d = (ls_coll_desc){ .generation = (uint32_t)word[0], .group = (uint32_t)(word[0] >> 32), .seq = (uint32_t)word[1],
                         .coll = (uint8_t)(word[1] >> 32), .dtype = (uint8_t)(word[1] >> 40),
                         .op = (uint8_t)(word[1] >> 48), .block = (uint8_t)(word[1] >> 56), .count = word[2],
                         .root = (int32_t)(uint32_t)word[3], .label = (uint32_t)(word[3] >> 32) };
#endif
}
static inline void ls_desc_write(struct ls_desc_slot *ds, const uint64_t word[4])
{
    uint32_t v = atomic_load_explicit(&ds->version, memory_order_relaxed);
    atomic_store_explicit(&ds->version, v + 1, memory_order_relaxed);
    LS_FENCE_RELEASE(); /* readers that see a new field see the odd version */
    atomic_store_explicit(&ds->word[0], word[0], memory_order_relaxed); /* (compilers leave a loop over these a loop) */
    atomic_store_explicit(&ds->word[1], word[1], memory_order_relaxed);
    atomic_store_explicit(&ds->word[2], word[2], memory_order_relaxed);
    atomic_store_explicit(&ds->word[3], word[3], memory_order_relaxed);
    atomic_store_explicit(&ds->version, v + 2, memory_order_release); /* the description is whole */
}
/* The owner writes: these words, of which `i` is the ls_desc_index, become its newest collective. */
static inline void ls_page_enter_words(ls_rank_slot *slot, uint32_t i, const uint64_t word[4])
{
    ls_desc_write(&slot->desc[i], word);
    atomic_store_explicit(&slot->newest, i, memory_order_release);
}
static inline void ls_page_enter(ls_rank_slot *slot, const ls_coll_desc *d)
{
    uint64_t word[4];
    ls_desc_pack(d, word);
    ls_page_enter_words(slot, ls_desc_index(d->block, d->seq), word);
}
/* Likewise d is the message that it waits for. */
void ls_page_enter_message(ls_rank_slot *slot, const ls_coll_desc *d);
/* That message, if it does wait for one. */
bool ls_page_awaited(const ls_world_page *p, int rank, ls_coll_desc *out);
/* The rank whose message, or whose attention, `rank` waits for; -1: none. */
int ls_page_message_peer(const ls_world_page *p, int rank);
/* A consistent copy of what a rank said about the collective that `mine` numbers (block, group, seq); false when
 * it is not there (yet, or any more: see ls_page_entered), or the rank stopped in the middle of writing it: half
 * a description must not be taken for another one. */
bool ls_page_find_coll(const ls_world_page *p, int rank, const ls_coll_desc *mine, ls_coll_desc *out);
/* Whether a rank has entered it, or a later one of the same group. */
bool ls_page_entered(const ls_world_page *p, int rank, const ls_coll_desc *mine);
/* A word for ls_rank_slot.waits_for, and its parts. */
static inline uint64_t ls_page_waits_for(uint32_t group, uint32_t seq)
{
    return 1ull << 63 | (uint64_t)group << 32 | seq;
}
static inline uint32_t ls_waited_group(uint64_t waits_for) { return (uint32_t)(waits_for >> 32) & 0x7fffffffu; }
static inline uint32_t ls_waited_seq(uint64_t waits_for) { return (uint32_t)waits_for; }
/* A consistent copy of a rank's newest collective; false when it has none yet, or is writing it. */
bool ls_page_last_coll(const ls_world_page *p, int rank, ls_coll_desc *out);
/* The same for people: of a rank that was killed while it wrote, as far as it came. */
bool ls_page_last_words(const ls_world_page *p, int rank, ls_coll_desc *out);
/* "in step 12, in all_reduce #118 (bucket 3)", "in step 12, computing" or "in step 12, saving FILE for 3.1 s" into buf. */
const char *ls_page_where(const ls_world_page *p, int rank, char *buf, size_t n);

#endif
