/* des.h -- the event engine: processes that compute, send, receive and meet, in virtual time.
 *
 * A process (a lane of a rank, a rank of a pipeline, a communication stream) runs a program: a list of operations, one
 * after another. Schedules of collectives, pipelines and training steps are read into such programs (coll/program.h,
 * parallel/pipe_events.h, plan/step_sim.h), so every simulated time comes from the lists that the runtime executes.
 *
 *   WORK   the process is busy for `cost` seconds, on a core unless `via` is LS_DES_ASLEEP
 *   SEND   a message of `cost` bytes leaves for process `who`; the sender goes on at once
 *   RECV   waits for the next message from process `who` of the same `via`, then is busy for `cost` seconds
 *   MEET   waits until all members of its group of axis `who` are there, and all go on `cost` seconds later
 *   END    of the program
 *
 * Messages between two processes with equal `via` arrive in the order in which they were sent. Each place (a device,
 * on which one or several processes run) has a port out and a port in:
 *
 *   LS_DES_FREE   a message waits for its sender's port alone. Then no process depends on the order in which others
 *                 run: no queue is kept, and processes run ahead as far as their messages allow
 *   LS_DES_FIFO   a message holds every link on its way, each for its bytes over that link's rate, from the moment at
 *                 which the last one becomes free; links serve messages in the order in which they were offered
 *   LS_DES_FAIR   messages share links: rates are max-min fair, computed anew whenever a message begins or ends
 *
 * Sends are carried out in the order of time, and at equal times in that of processes. Nothing here depends on
 * addresses, on threads or on the clock: the same model gives the same bits.
 */
#ifndef LS_SIM_DES_H
#define LS_SIM_DES_H
#include "lockstep/topo.h"

typedef enum ls_des_kind { LS_DES_END, LS_DES_WORK, LS_DES_SEND, LS_DES_RECV, LS_DES_MEET } ls_des_kind;

#define LS_DES_MOST_PROCESSES (1u << 28)
#define LS_DES_MOST_COSTS     (1u << 20)
#define LS_DES_MOST_VIA       (1u << 12)

/* 8 bytes, since there may be 10^8 of them. */
typedef struct ls_des_op {
    uint32_t kind : 3, who : 29; /* process, as an offset from the process's `base` (modulo 2^29) unless the model
                                  * `flips`; axis of a MEET */
    uint32_t via : 12, cost : 20; /* index into the model's costs */
} ls_des_op;

static inline ls_des_op ls_des_op_of(ls_des_kind kind, uint32_t who, uint32_t via, uint32_t cost)
{
    return (ls_des_op){ .kind = (unsigned)kind & 7u, .who = who & 0x1fffffffu, .via = via & 0xfffu,
                        .cost = cost & 0xfffffu };
}

#define LS_DES_ASLEEP 1u /* `via` of a WORK: the process waits for a clock, and leaves its core to others */

typedef enum ls_des_sharing { LS_DES_FREE, LS_DES_FIFO, LS_DES_FAIR } ls_des_sharing;

/* A link that carries nothing from `from_s` until `until_s` (INFINITY: never again): the ports of one unit of a level,
 * as ls_topo counts them; on a network without topology unit = place. What is on its way then is sent again. */
typedef struct ls_des_failure {
    int level;
    int64_t unit;
    double from_s, until_s;
} ls_des_failure;

typedef struct ls_des_net {
    const ls_topo *topo;   /* borrowed; NULL: every pair of places has the latency and rate that follow */
    double latency_s, bytes_per_s; /* INFINITY: bytes take no time */
    double gap;            /* which part of its latency a message holds ports for, besides its bytes, 0 to 1. 1 is
                            * Hockney's model, in which a rank sends when the message before has arrived */
    ls_des_sharing sharing;
    const ls_des_failure *failure; /* [nfailures], borrowed; with LS_DES_FIFO */
    int nfailures;
} ls_des_net;

/* Who is told of each operation: from when until when. Of a RECV and a MEET `from_s` is when the process began to wait,
 * `ready_s` when it had what it waited for; the work of a RECV is not in it. */
typedef struct ls_des_span {
    uint32_t process, at; /* at: index of the operation in its program */
    double from_s, ready_s, until_s;
} ls_des_span;
typedef void ls_des_told(void *arg, const ls_des_op *op, const ls_des_span *span);

/* All borrowed. */
typedef struct ls_des_model {
    uint32_t n;                        /* processes */
    const ls_des_op *const *program;   /* [n]: each ends with END; processes may share one */
    int log2_stride;                   /* the operations of a program are 2^log2_stride apart, so that those of many
                                        * processes that take the same steps share cache lines */
    const uint32_t *base;              /* [n]; NULL: 0, operations name processes by number */
    bool flips;                        /* `who` names the process whose number differs from the own one in these bits;
                                        * base is not read. So ranks that exchange along the axes of a cube share
                                        * one program */
    const uint32_t *place;             /* [n]: the device of a process; NULL: one each */
    const double *cost;                /* [ncosts]: seconds or bytes, finite and not negative */
    uint32_t ncosts;
    uint32_t axes, ngroups;            /* of MEET */
    const uint32_t *group;             /* [axes][n]: a process's group */
    const uint32_t *members;           /* [ngroups] */
    ls_des_net net;
    double cores;                      /* that the work of all processes shares, a core each at most; 0: each process
                                        * has its own. Above 0 only with LS_DES_FIFO */
    const uint32_t *core;              /* [n], below `cores`, a whole number then: each process stays on this one; NULL:
                                        * all of them share all */
    double poll;                       /* with `core`: so large a part of what a process that computes gets of its core
                                        * gets one that waits there for a message, until that is sent, since it polls */
    uint32_t poll_via;                 /* of messages with this `via` or a higher one; other waits take nothing */
    double idle_s;                     /* with wake_s: seconds without work on a core, after which processes that wait
                                        * there sleep; without `cores`, seconds of a wait */
    const double *wake_s;              /* [n], with idle_s: seconds between the end of a wait and the moment at which
                                        * the process goes on, if it slept: without `cores` in each wait of idle_s or
                                        * more, else see ls_des_cores_sleeps. NULL: 0. Such a model is not folded */
    const double *pace;                /* [n]: its work takes so many times as long (stragglers); NULL: 1 */
    /* each time is multiplied by a number drawn evenly from 1 - jitter to 1 + jitter */
    double jitter;
    uint64_t seed;                     /* of these draws, which depend on process and operation alone */
    ls_des_told *told;                 /* NULL: no one is told */
    void *arg;
} ls_des_model;

typedef struct ls_des_result {
    double end_s;       /* when the last process ends */
    uint64_t events;    /* operations that were carried out */
    uint64_t messages;  /* SENDs among them */
    double *ends_s;     /* [n], the caller's memory or NULL: when each process ends */
} ls_des_result;

/* Which process an operation of process p names. */
static inline uint32_t ls_des_peer(const ls_des_model *m, uint32_t p, ls_des_op a)
{
    return m->flips ? p ^ a.who : ((m->base ? m->base[p] : 0) + a.who) & 0x1fffffffu;
}

/* Carries a model out. out->ends_s is read. LS_INVALID: a program names a process, cost or group that is not there,
 * or a number is out of range; LS_INTERNAL: processes wait forever, with the first of them and for whom;
 * LS_NO_MEMORY. */
ls_status ls_des_run(const ls_des_model *m, ls_des_result *out);

/* --- des_fold.c ------------------------------------------------------------------------------------- */

/* A smaller model with one process for each class of processes that do the same at the same times: with equal programs
 * and paces, whose peers and groups are of equal classes. Running it gives the same bits. */
typedef struct ls_des_folded {
    ls_des_model model; /* its arrays are owned by what follows */
    uint32_t *class_of; /* owned, [n of the unfolded]: which process stands for it */
    void *memory;
} ls_des_folded;
/* Where nothing can be folded (jitter, links that are shared, processes all unlike), out->model is *m and class_of
 * NULL. LS_NO_MEMORY. */
ls_status ls_des_fold(const ls_des_model *m, ls_des_folded *out);
void ls_des_folded_free(ls_des_folded *f);

#endif
