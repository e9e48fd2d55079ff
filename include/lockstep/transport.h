/* transport.h -- moving messages between two ranks.
 *
 * In order per (peer, channel); channels never block one another; called from
 * one thread per rank only. A transport knows nothing of collectives.
 */
#ifndef LS_TRANSPORT_H
#define LS_TRANSPORT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"
#include "lockstep/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_transport ls_transport;

typedef struct ls_msg {
    const void *p;
    size_t n;     /* bytes; 0 is a message too */
    uint64_t sig; /* which collective this belongs to, or which message of which group it is */
} ls_msg;

#define LS_MAX_CHANNELS 64 /* per pair of ranks */

typedef struct ls_transport_ops {
    const char *name; /* "shm" */
    /* Configuration keys that it reads and not every transport does ("comm.check"); NULL-ended; NULL: none. */
    const char *const *keys;

    ls_status (*open)(ls_world *w, ls_transport **out); /* blocks; every rank calls it */
    void (*close)(ls_transport *t);

    /* Offers m to peer and returns a ticket. m->p must not change until sent()
     * has reached the ticket. LS_AGAIN: the queue is full. */
    ls_status (*send)(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket);
    uint64_t (*sent)(ls_transport *t, int peer, int channel);

    /* Shows the part of the oldest unread message that is here already, in
     * multiples of 16 bytes but for its end; LS_AGAIN when that is nothing.
     * m->n == 0 with LS_OK is an empty message. take() says n bytes are read;
     * take(0) consumes an empty message. */
    ls_status (*view)(ls_transport *t, int peer, int channel, ls_msg *m);
    ls_status (*take)(ls_transport *t, int peer, int channel, size_t n);

    /* Optional, both: a large message that sender and receiver copy together.
     * pull() copies a part of the message that view() shows whole to dst, any
     * part; *got grows with each, and is all of it with LS_OK, when the message
     * is taken too. LS_AGAIN: call it again with the same dst, and no take().
     * LS_UNSUPPORTED: such a message must be read and taken.
     * help(), by a sender that waits: LS_OK when it has copied a part. */
    ls_status (*pull)(ls_transport *t, int peer, int channel, void *dst, size_t *got);
    ls_status (*help)(ls_transport *t, int peer, int channel);

    /* Optional: as send(), of a message in private memory for a receiver that calls pull(): it is read there.
     * LS_UNSUPPORTED: not by that peer, or not that memory; send() it. view() shows it with p NULL. */
    ls_status (*lend)(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket);

    /* Optional: allocates what messages to a peer on a channel need of this rank's arena, so that the memory plan has
     * it; else the first send() does. Called before a schedule sends to that peer; a second call does nothing. */
    ls_status (*reserve)(ls_transport *t, int peer, int channel);

    /* Optional: progresses queued output and input without waiting. It fails when a peer will never get some
     * messages; a caller that waits for sent() to reach their tickets needs to know. */
    ls_status (*progress)(ls_transport *t);

    /* Optional: descriptors to sleep on when nothing moves; returns how many
     * (at most max) were written to fds. */
    int (*fds)(ls_transport *t, int *fds, int max);

    /* Optional: true when peer's arena is mapped here, so that its registered memory may be read and written
     * in place. Both ranks get the same answer. NULL: no peer's arena is mapped. */
    bool (*is_mapped)(ls_transport *t, int peer);
} ls_transport_ops;

extern const ls_transport_ops *const ls_transports[]; /* NULL-ended */
extern const char ls_transport_choices[]; /* their names, except fault's: "shm|tcp|mixed|self" */
const ls_transport_ops *ls_transport_find(const char *name); /* "shm", "fault:shm,drop@1:5"; NULL if unknown */
/* LS_BAD_CONFIG unless there is one of that name; the message names those that there are. */
ls_status ls_transport_check(const char *name);
/* Whether the transport of that name, or the one after its colon, reads a key: yes, if there is none. */
bool ls_transport_reads(const char *name, const char *key);
/* LS_BAD_CONFIG unless sums may travel as bf16 over that transport (ls_world_opts.wire_bf16). */
ls_status ls_transport_check_wire(const char *name);
/* Those that read the key (NULL: all, except fault), as "tcp and mixed" into buf; returns buf. */
const char *ls_transport_names(const char *key, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
