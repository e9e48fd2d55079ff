/* tcp.h -- what travels between two ranks on a TCP connection, and how the
 * connections come to be. Private to tcp_connect.c and transport_tcp.c.
 *
 *   connector                          acceptor
 *     the door (meet/door.h)         <->
 *     frame, frame, ...             <->  frame, frame, ...
 *
 * All integers are little-endian.
 */
#ifndef LS_NET_TCP_H
#define LS_NET_TCP_H
#include <stdint.h>
#include "net/world.h"

#define LS_TCP_FRAME_BYTES (248u << 10) /* payload of one frame, at most */
#define LS_TCP_WINDOW (512u << 10)      /* bytes a channel may have unread at its receiver; a power of two */
#define LS_TCP_ENTRY 16u                /* of which each frame costs so many, besides its payload rounded up to 16 */
_Static_assert(2 * (LS_TCP_FRAME_BYTES + LS_TCP_ENTRY) <= LS_TCP_WINDOW, "one comes while the other is read");

typedef enum ls_tcp_kind {
    LS_TCP_DATA = 1, /* payload of a message; `last` on its end */
    LS_TCP_CREDIT,   /* `credit`: bytes of the window ever read, modulo 2^32 */
    LS_TCP_BYE       /* the close that follows is in order */
} ls_tcp_kind;

#define LS_TCP_FRAME_MAGIC 0x534cu

typedef struct ls_tcp_frame {
    uint16_t magic;
    uint8_t kind, channel;
    uint32_t length; /* bytes of payload that follow */
    uint64_t sig;
    uint32_t generation;
    uint32_t seq;    /* counts the frames of this direction */
    union {
        uint32_t last;   /* LS_TCP_DATA: 1: the message ends with this frame */
        uint32_t credit; /* LS_TCP_CREDIT */
    };
    uint32_t crc;    /* CRC-32C of the 28 bytes above and the payload; unchecked with no_crc */
} ls_tcp_frame;
_Static_assert(sizeof(ls_tcp_frame) == 32, "no padding on the wire");

uint32_t ls_tcp_crc(const ls_tcp_frame *f, const void *payload);
uint32_t ls_tcp_crc_head(const ls_tcp_frame *f); /* what the payload's goes on from */

/* A connection. Its door is owned, on the heap, and everything goes through it; NULL: bytes go as they are. */
typedef struct ls_tcp_link {
    int fd; /* -1: none */
    struct ls_door *door;
} ls_tcp_link;

void ls_tcp_close(ls_tcp_link *l);

/* A transport over the links of link[size], which it takes over, also on failure. */
ls_status ls_transport_tcp_over(ls_world *w, ls_tcp_link link[], ls_transport **out);

/* Connects this rank with every other one of the set `with` (a bit for each); every rank calls it, and whoever
 * is in another's set has that one in its own. link[r] is the connection to rank r, the caller's to close; those
 * of ranks outside the set have none. LS_JOIN_TIMEOUT names the ranks that did not come. */
ls_status ls_tcp_connect(ls_world *w, const ls_rank_set *with, ls_tcp_link link[]);

#endif
