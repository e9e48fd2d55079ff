/* store_wire.h -- the store's messages, shared by server and client. */
#ifndef LS_NET_STORE_WIRE_H
#define LS_NET_STORE_WIRE_H
#include <stdint.h>
#include "net/store.h"

#define LS_STORE_MAGIC 0x6c732d73746f7265ull /* "ls-store" */
#define LS_STORE_VERSION 1u

typedef struct store_hello {
    uint64_t magic;
    uint32_t version, rank, size;
    int32_t pid;
    uint8_t secret[LS_SECRET_BYTES];
} store_hello;

typedef enum store_op {
    STORE_SET = 1, /* key, value -> done */
    STORE_GET,     /* key -> value, once it is set */
    STORE_SET_FD,  /* key, then one byte that carries a descriptor -> done */
    STORE_GET_FD,  /* key -> a byte that carries the descriptor, once it is set */
    STORE_MISSING, /* -> text: the ranks that have not joined */
    STORE_BYE      /* -> done; the connection will close in order */
} store_op;

typedef struct store_request {
    uint32_t op, nkey, nvalue, reserved;
} store_request;

typedef struct store_reply {
    int32_t status; /* ls_status; a failure's value is its sentence */
    uint32_t nvalue, has_fd, reserved;
} store_reply;

#endif
