/* aead.h -- sealing and opening messages under a key that both ends share.
 *
 * ChaCha20-Poly1305 (RFC 8439) with a 64-bit counter as nonce, as the Noise
 * protocol framework, revision 34, has its CipherState: each message is sealed
 * under the next number, so a message that is repeated, dropped or moved does
 * not open. Another cipher can take its place behind these few functions.
 */
#ifndef LS_MEET_AEAD_H
#define LS_MEET_AEAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_AEAD_KEY_BYTES 32
#define LS_AEAD_TAG_BYTES 16         /* what a sealed message is longer by */
#define LS_AEAD_REKEY (1ull << 24)   /* both ends derive a new key after this many messages */

/* One direction. Holds a key: wipe it. */
typedef struct ls_aead {
    uint8_t key[LS_AEAD_KEY_BYTES];
    uint64_t n;   /* of the next message */
    bool set;     /* false: no key yet, nothing seals or opens */
} ls_aead;

void ls_aead_init(ls_aead *a, const uint8_t key[LS_AEAD_KEY_BYTES]);
/* out[n + LS_AEAD_TAG_BYTES] = in[n] sealed, with ad[nad] authenticated beside it; out may be in, but not overlap it
 * otherwise. False when there is no key. */
bool ls_aead_seal(ls_aead *a, const void *ad, size_t nad, const void *in, size_t n, void *out);
/* out[n - LS_AEAD_TAG_BYTES] = in[n] opened; out as above. False, with out zeroed and the number not used up, when it
 * is not the next message that the other end sealed under this key with this ad. */
bool ls_aead_open(ls_aead *a, const void *ad, size_t nad, const void *in, size_t n, void *out);
void ls_aead_wipe(ls_aead *a);

#endif
