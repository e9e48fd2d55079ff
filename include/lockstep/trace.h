/* trace.h -- what happened when: events in the world page, one merged trace.
 *
 * Each rank writes fixed-size events into a ring in the world page (its black
 * box). The ring outlives the process, so the launcher can say what a killed
 * rank did last, and rank 0 can merge all ranks into one Chrome trace.
 */
#ifndef LS_TRACE_H
#define LS_TRACE_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_ev_kind {
    LS_EV_NONE, LS_EV_OP, LS_EV_COLL, LS_EV_WAIT, LS_EV_SEND, LS_EV_RECV, LS_EV_OPTIM, LS_EV_DATA,
    LS_EV_STEP, LS_EV_MARK, LS_EV_KINDS
} ls_ev_kind;

/* One event, the same whether measured, recorded dry or simulated. 64 bytes. */
typedef struct ls_event {
    uint64_t t0_ns, t1_ns; /* CLOCK_MONOTONIC */
    uint64_t bytes;
    float gflops;          /* of an op; 0 where meaningless */
    uint32_t seq;          /* of the collective in its group */
    uint32_t step;
    uint16_t micro_batch;
    uint16_t label;        /* index into the rank's string table */
    uint16_t group;
    int16_t peer;          /* -1 where meaningless */
    uint8_t kind, dtype, backward;
    /* Of a collective and of waiting for it: indices into the rank's string table; 0: unknown */
    uint8_t algo;          /* what carried it out: "ring", or a form in memory, "oneshot" */
    uint8_t coll;          /* "all_reduce" */
    uint8_t peers;         /* the other ranks of its group: "0, 2-3" */
    uint16_t bucket;       /* 1 + the number of the gradient bucket that this is about; 0: of none */
    uint32_t group_name;   /* "tp 0-3"; 0: the group has its number alone */
    uint64_t moved;        /* bytes that this rank read from or wrote to memory of other ranks, or sent */
} ls_event;

#define LS_BLACKBOX_EVENTS 4096 /* in a box's own ring */
#define LS_BLACKBOX_MOST 131072 /* at most, in a longer ring outside the box */
#define LS_BLACKBOX_STRINGS 256 /* an index fits a byte */
#define LS_BLACKBOX_STRING_BYTES 48

/* A rank's ring and string table. Lives in the world page; one writer, which
 * may write at any moment: event i is in place while count lies in
 * (i, i + capacity), a string never changes once it is counted. */
typedef struct ls_blackbox {
    uint64_t count __attribute__((aligned(64))); /* events written to the ring; the newest is (count-1) % capacity */
    uint32_t nstrings;                           /* string[0] is "" */
    uint32_t capacity;                           /* LS_BLACKBOX_EVENTS: the ring is ev; more: it lies beside the box */
    char string[LS_BLACKBOX_STRINGS][LS_BLACKBOX_STRING_BYTES];
    ls_event ev[LS_BLACKBOX_EVENTS] __attribute__((aligned(64)));
} ls_blackbox;

/* A rank's handle for writing. All functions accept t == NULL and do nothing. */
typedef struct ls_tracer ls_tracer;

/* Starts with an empty ring of LS_BLACKBOX_EVENTS. `box` is borrowed. */
ls_status ls_tracer_create(ls_blackbox *box, ls_tracer **out);
/* From now on the ring, which is empty again, is more[capacity], borrowed until ls_tracer_destroy; who exports passes
 * its address (ls_trace_box.more). LS_INVALID unless LS_BLACKBOX_EVENTS < capacity <= LS_BLACKBOX_MOST. */
ls_status ls_tracer_set_capacity(ls_tracer *t, ls_event *more, uint32_t capacity);
/* How many events of a kind were added since the tracer was created. */
uint64_t ls_tracer_count(const ls_tracer *t, ls_ev_kind kind);
void ls_tracer_destroy(ls_tracer *t);
/* The index of a label, adding it (cut to 47 bytes) when new; 0 when the table is full. */
uint16_t ls_tracer_label(ls_tracer *t, const char *text);
/* Appends a copy; step and micro_batch are filled in from the tracer's current ones. */
void ls_tracer_add(ls_tracer *t, const ls_event *ev);
/* Appends a mark of this moment; bucket as in ls_event. */
void ls_tracer_mark(ls_tracer *t, const char *label, uint16_t bucket);
void ls_tracer_at(ls_tracer *t, uint32_t step, uint16_t micro_batch);
/* The world's time, for t0_ns and t1_ns; 0 when t is NULL. */
uint64_t ls_tracer_now(const ls_tracer *t);

/* A black box to read. Nothing that it says is trusted. */
typedef struct ls_trace_box {
    const ls_blackbox *box; /* NULL: a rank of another node, which an export leaves out */
    const ls_event *more;   /* [LS_BLACKBOX_MOST]: a ring longer than the box's own; NULL: there is none */
} ls_trace_box;

/* One Chrome trace (JSON object format) of nranks boxes, events whose step lies
 * in [first_step, last_step]: pid = rank, a tid per lane, M events for names,
 * X slices (i for marks) in microseconds relative to baseTimeNanoseconds, flow
 * events joining the ranks of one collective. Slices of one (pid, tid) nest or
 * follow, never cross. Ranks may go on writing meanwhile; a full ring shows all
 * but its oldest event. Writes the file at `path` atomically. LS_PROTOCOL: a box says a capacity that is
 * neither LS_BLACKBOX_EVENTS nor, where `more` is given, up to LS_BLACKBOX_MOST. */
ls_status ls_trace_export(const ls_trace_box *box, int nranks, uint32_t first_step,
                          uint32_t last_step, const char *path);
/* Whether newer events may have replaced some of first_step or of later ones: an export from there on may lack its
 * first events. */
bool ls_trace_is_cut(const ls_trace_box *box, uint32_t first_step);

#ifdef __cplusplus
}
#endif
#endif
