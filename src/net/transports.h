/* transports.h -- what each transport file exports; the list is registry.c's. */
#ifndef LS_NET_TRANSPORTS_H
#define LS_NET_TRANSPORTS_H
#include "lockstep/transport.h"

extern const ls_transport_ops ls_transport_self;
extern const ls_transport_ops ls_transport_shm;
extern const ls_transport_ops ls_transport_tcp;
extern const ls_transport_ops ls_transport_mixed;
extern const ls_transport_ops ls_transport_fault;

/* The same transports for some of the ranks: tcp with those of the set `with` (a bit for each; the set of everyone
 * in it has us), shm with those of this host. */
ls_status ls_transport_tcp_open(ls_world *w, uint64_t with, ls_transport **out);
ls_status ls_transport_shm_open(ls_world *w, ls_transport **out);

/* For tests of transport_shm: where pipes made from now on begin to count their pieces. */
void ls_shm_count_from(ls_transport *t, uint32_t first);

#endif
