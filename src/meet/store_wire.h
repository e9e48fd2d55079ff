/* store_wire.h -- the store's messages, shared by server and client. */
#ifndef LS_MEET_STORE_WIRE_H
#define LS_MEET_STORE_WIRE_H
#include <stdatomic.h>
#include <stdint.h>
#include "meet/store.h"

#define LS_STORE_MAGIC 0x6c732d73746f7265ull /* "ls-store" */
#define LS_STORE_VERSION 3u

typedef struct store_hello {
    uint64_t magic;
    uint32_t version, rank, size;
    int32_t pid;
    uint32_t agent, reserved;           /* agent 1: a host's, and rank and size are its node and their number */
    uint8_t secret[LS_SECRET_BYTES];    /* on a Unix socket; over TCP the door has seen to it, and this is zero */
    char host[LS_STORE_HOST_BYTES];
} store_hello;

/* The reply to a hello has the key that the links of this job derive theirs from. */

typedef enum store_op {
    STORE_SET = 1, /* key, value -> done */
    STORE_GET,     /* key -> value, once it is set */
    STORE_SET_FD,  /* key, then one byte that carries a descriptor -> done */
    STORE_GET_FD,  /* key -> a byte that carries the descriptor, once it is set */
    STORE_MISSING, /* -> store_missing: the ranks that have not joined */
    STORE_BYE,     /* -> done; the connection will close in order */
    STORE_EXCHANGE,/* key, value -> the values of all ranks in their order, once all have sent theirs */
    STORE_BEAT     /* an agent's: a beat (meet/beat.h) -> another, of the ranks it does not know */
} store_op;

/* The reply to STORE_MISSING. */
typedef struct store_missing {
    int32_t count;
    char text[252]; /* ls_rank_set_text */
} store_missing;

typedef struct store_request {
    uint32_t op, nkey, nvalue, reserved;
} store_request;

typedef struct store_reply {
    int32_t status; /* ls_status; a failure's value is its sentence */
    uint32_t nvalue, has_fd, reserved;
} store_reply;

struct ls_store_client {
    int fd;
    bool unix_socket;
    bool reset; /* the connection ended with what we had said unread */
    ls_door door; /* tcp */
    const _Atomic uint32_t *abort_word; /* borrowed; may be NULL */
};

#endif
