/* slow_link.h -- messages to one rank over a link of a given rate.
 *
 * They cross it one after another, in the order in which they were sent: a message of n bytes takes n / rate, and is
 * handed to the transport below when that time is over. So a sender that looks late loses no time of the link. The
 * other direction is a link of its own, as on a full-duplex wire.
 */
#ifndef LS_NET_SLOW_LINK_H
#define LS_NET_SLOW_LINK_H
#include "lockstep/transport.h"

typedef struct ls_slow_link ls_slow_link;

/* Carries what goes to `peer` by `ops` and `inner`, which are borrowed; bytes_per_s > 0. */
ls_status ls_slow_link_create(const ls_transport_ops *ops, ls_transport *inner, int peer, uint64_t bytes_per_s,
                              ls_slow_link **out);
void ls_slow_link_destroy(ls_slow_link *l); /* NULL is fine */

/* As in ls_transport_ops. */
ls_status ls_slow_link_send(ls_slow_link *l, int channel, const ls_msg *m, uint64_t *ticket);
uint64_t ls_slow_link_sent(ls_slow_link *l, int channel);
/* Hands over what has crossed. Called often; the others call it, too. */
ls_status ls_slow_link_progress(ls_slow_link *l);

#endif
