/* noise.h -- the handshake Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b, exactly as
 * published (Perrin, The Noise Protocol Framework, revision 34, noiseprotocol.org).
 *
 *   initiator                        responder
 *     psk, e              ->
 *                         <-           e, ee
 *
 * Both ends know a 32-byte key. The first message proves it with its tag: who
 * does not know the key is found out with one fixed-size read. Afterwards there
 * is a key for each direction that nobody can compute later from the shared one.
 * The prologue is what both must agree on beforehand: version, job, role.
 *
 * A state machine on memory: no sockets, no clock, no random numbers of its own.
 */
#ifndef LS_MEET_NOISE_H
#define LS_MEET_NOISE_H
#include "meet/aead.h"

#define LS_NOISE_KEY_BYTES 32
#define LS_NOISE_HASH_BYTES 64
#define LS_NOISE_MESSAGE_BYTES (LS_NOISE_KEY_BYTES + LS_AEAD_TAG_BYTES) /* of both, with empty payloads */

/* Holds keys: wipe it. */
typedef struct ls_noise {
    bool initiator, failed;
    int turn;                                        /* 0: first message, 1: second, 2: complete */
    uint8_t ck[LS_NOISE_HASH_BYTES], h[LS_NOISE_HASH_BYTES];
    uint8_t psk[LS_NOISE_KEY_BYTES], e[LS_NOISE_KEY_BYTES], re[LS_NOISE_KEY_BYTES];
    ls_aead c;
} ls_noise;

/* `e` is a fresh private key: 32 random bytes, never used twice. */
void ls_noise_init(ls_noise *s, bool initiator, const uint8_t psk[LS_NOISE_KEY_BYTES],
                   const uint8_t e[LS_NOISE_KEY_BYTES], const void *prologue, size_t n);
/* The message whose turn it is, of n + LS_NOISE_MESSAGE_BYTES bytes. False: it is not our turn, or the handshake has
 * failed. */
bool ls_noise_write(ls_noise *s, const void *payload, size_t n, void *message);
/* Reads n bytes; payload gets n - LS_NOISE_MESSAGE_BYTES. False: the other end does not know the key, disagrees about
 * the prologue, sent a key of small order, or the message was changed. Nothing more can be done with s then. */
bool ls_noise_read(ls_noise *s, const void *message, size_t n, void *payload);
static inline bool ls_noise_complete(const ls_noise *s) { return s->turn == 2 && !s->failed; }
/* The keys of a complete handshake, which is wiped but for its hash h. */
void ls_noise_split(ls_noise *s, ls_aead *send, ls_aead *receive);
void ls_noise_wipe(ls_noise *s);

#endif
