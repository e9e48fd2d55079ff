/* door.h -- who may come in over TCP, and a sealed stream for those who did.
 *
 *   initiator                                     acceptor
 *     head (32), psk, e (48)                 ->
 *                                            <-     head (32), e, ee (48)
 *     confirmation (16)                      ->
 *     {length (4), sealed bytes (n + 16)} ...       and the same the other way
 *
 * The two messages in the middle are Noise_NNpsk0 (meet/noise.h); its prologue is
 * the initiator's head (version, role, generation, ranks) and the job's name, so
 * what was recorded in one place opens in no other. A stranger is found out by
 * his first 80 bytes, and until the confirmation opens nothing is kept of anybody
 * but this struct. All integers are little-endian.
 */
#ifndef LS_MEET_DOOR_H
#define LS_MEET_DOOR_H
#include <stdint.h>
#include <sys/types.h>
#include "base/env.h"
#include "lockstep/status.h"
#include "meet/noise.h"

#define LS_DOOR_MAGIC 0x706574736b636f6cull /* "lockstep" */
#define LS_DOOR_VERSION 1u
#define LS_DOOR_JOB_BYTES 16
#define LS_DOOR_FRAME 61440u                /* bytes of one sealed frame, at most: Noise allows 65,535 with the tag */
#define LS_DOOR_NS 5000000000ull            /* a stranger's time to come in */
#define LS_DOOR_STRANGERS 64                /* of them at once */
#define LS_DOOR_PER_ADDRESS 16              /* from one address that is not our own */
#define LS_DOOR_ACCEPTS 16                  /* let in at a turn: each is heard before others take its place */

/* Of a launcher that goes to a job's store: node 0 tells it which generation there is. */
#define LS_DOOR_ANY_GENERATION 0u

typedef enum ls_door_role { LS_DOOR_STORE = 1, LS_DOOR_RANK = 2 } ls_door_role;

typedef struct ls_door_head {
    uint64_t magic;
    uint16_t version, role;
    uint32_t generation;
    uint32_t from, to; /* ranks; 0 where the role has none */
    uint32_t sealed;   /* 1: what follows on a link between ranks is sealed, not only authenticated at its beginning */
    uint32_t reserved;
} ls_door_head;
_Static_assert(sizeof(ls_door_head) == 32, "no padding on the wire");
#define LS_DOOR_HELLO_BYTES (sizeof(ls_door_head) + LS_NOISE_MESSAGE_BYTES)

/* What an acceptor is asked once a head is here: the key for it, or false for nobody we expect. */
typedef bool (*ls_door_key_fn)(void *arg, const ls_door_head *head, uint8_t psk[LS_NOISE_KEY_BYTES]);

/* One connection. Holds keys: wipe it. */
typedef struct ls_door {
    bool initiator;
    int stage;
    ls_door_head head;       /* the initiator's; for an acceptor valid once it was asked for a key */
    uint8_t job[LS_DOOR_JOB_BYTES];
    ls_door_key_fn key;      /* acceptor's */
    void *key_arg;
    ls_noise noise;
    ls_aead seal, open;      /* once it is open */
    uint8_t buf[LS_DOOR_HELLO_BYTES];
    size_t have, at, n;      /* read into buf; of buf, at..n are to be sent */
    uint8_t *in, *out;       /* owned: frames of the stream; NULL until used */
    size_t nin;              /* bytes of the frame in `in` */
    size_t plain, nplain;    /* of it, once opened: bytes taken, bytes there are */
    size_t from, to;         /* of `out`: not yet sent */
} ls_door;

/* Keys for one purpose each: BLAKE2b of `what` and two numbers under a key. */
void ls_door_derive(const uint8_t key[LS_NOISE_KEY_BYTES], const char *what, uint32_t a, uint32_t b,
                    uint8_t out[LS_NOISE_KEY_BYTES]);
/* A job's 16-byte name from its text. */
void ls_door_job(const char *run_id, uint8_t job[LS_DOOR_JOB_BYTES]);

void ls_door_connect(ls_door *d, const ls_door_head *head, const uint8_t job[LS_DOOR_JOB_BYTES],
                     const uint8_t psk[LS_NOISE_KEY_BYTES]);
void ls_door_accept(ls_door *d, ls_door_role role, uint32_t generation, const uint8_t job[LS_DOOR_JOB_BYTES],
                    ls_door_key_fn key, void *arg);
/* Moves the handshake along. LS_OK: open. LS_AGAIN: wants to read, or to write when ls_door_writes. LS_AUTH_FAILED:
 * drop it; no hint which part. LS_VERSION_MISMATCH names both (connector). LS_PEER_RESET: the connection ended. */
ls_status ls_door_step(ls_door *d, int fd);
bool ls_door_is_open(const ls_door *d);
bool ls_door_has_proof(const ls_door *d); /* an acceptor's: the first message was right. Those make room last */
bool ls_door_writes(const ls_door *d);   /* has bytes that the socket did not take yet */
bool ls_door_holds(const ls_door *d);    /* has bytes to receive that no poll will show */

/* Like env->send and env->recv, behind an open door. What was taken may wait in here for ls_door_flush (0, -EAGAIN or
 * the failure). A frame that does not open is -EBADMSG, and the end. */
ssize_t ls_door_send(ls_door *d, int fd, const void *p, size_t n);
ssize_t ls_door_recv(ls_door *d, int fd, void *p, size_t n);
ssize_t ls_door_sendv(ls_door *d, int fd, const ls_span *from, int n);
ssize_t ls_door_recvv(ls_door *d, int fd, const ls_span *to, int n);
int ls_door_flush(ls_door *d, int fd);
/* Frees and wipes; the descriptor is the caller's. */
void ls_door_close(ls_door *d);

#endif
