/* transports.h -- what each transport file exports; the list is registry.c's. */
#ifndef LS_NET_TRANSPORTS_H
#define LS_NET_TRANSPORTS_H
#include "lockstep/transport.h"

extern const ls_transport_ops ls_transport_self;
extern const ls_transport_ops ls_transport_shm;
extern const ls_transport_ops ls_transport_tcp;
extern const ls_transport_ops ls_transport_fault;

#endif
