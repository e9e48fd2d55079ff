/* wait.h -- the only waiting loop in the project. */
#ifndef LS_BASE_WAIT_H
#define LS_BASE_WAIT_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/env.h"
#include "lockstep/status.h"

/* How long a rank that waits for another on its node yields before it sleeps: a nap costs some 50 us to wake from, so
 * only long waits take one. */
#define LS_WAIT_YIELD_NS 200000u
#define LS_WAIT_WIRE_YIELD_NS 1000000u /* for one that is reached through sockets */

/* Never: only for what something else bounds. */
#define LS_NO_DEADLINE UINT64_MAX

/* How one rank waits. Zero-initialised is valid: yields early, no abort word. */
typedef struct ls_waiter {
    const _Atomic uint32_t *abort_word; /* nonzero: stop with LS_ABORTED; may be NULL */
    _Atomic uint32_t *parked;           /* set to 1 while asleep; who moves something for us
                                           clears it and wakes; may be NULL */
    const uint64_t *moved;              /* counted up by ready() when something moved though all is not done:
                                           more will move soon, so no nap before a new round of yields; may be NULL */
    bool may_spin;                      /* every local rank has a core of its own */
    bool wire;                          /* what is waited for comes through sockets: who brings it needs a core too, so
                                           yield soon; a turn is system calls, so a yield is no dearer than a spin;
                                           and it takes longer than a local peer, so sleep late */
    int (*fds)(void *arg, int *fds, int max); /* optional: descriptors that can end the wait */
    void *fds_arg;
} ls_waiter;

/* Calls ready(arg) until it returns something other than LS_AGAIN and returns
 * that. Spins (when may_spin), then yields until nothing has moved for
 * LS_WAIT_YIELD_NS (LS_WAIT_WIRE_YIELD_NS), then sleeps for at most 1 ms at a time. While
 * spinning it looks at the abort word every 64 turns and at the clock every
 * 1,024; afterwards at every turn and every 16.
 * LS_RANK_HUNG at the deadline (ls_last_error() is left to the caller),
 * LS_ABORTED when the abort word is set. The deadline pauses while a debugger is
 * attached. ready() may be called with parked set; it must not wait itself. */
ls_status ls_wait(const ls_waiter *w, ls_status (*ready)(void *arg), void *arg, uint64_t deadline_ns);

#endif
