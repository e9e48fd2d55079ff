/* address.h -- where we listen: on the loopback, unless told otherwise and there is a secret. */
#ifndef LS_MEET_ADDRESS_H
#define LS_MEET_ADDRESS_H
#include <stdbool.h>
#include <stddef.h>
#include "lockstep/status.h"

#define LS_ADDRESS_BYTES 46 /* of a numeric one, IPv6 included */

/* Whether a numeric address (or "localhost") is this host's own only: 127.0.0.0/8, ::1. */
bool ls_address_is_loopback(const char *addr);
/* LS_AUTH_FAILED, with the sentence that says how to make a secret, for any other address without one. */
ls_status ls_address_check(const char *addr, bool secret);
/* The numeric address of a host's name; numeric ones stay. Names may take the resolver's own time. LS_INVALID. */
ls_status ls_address_resolve(const char *host, char addr[LS_ADDRESS_BYTES]);
/* "host:port", "[v6]:port", or only a host: then *port stays. LS_INVALID. */
ls_status ls_address_parse(const char *text, char *host, size_t n, int *port);

#endif
