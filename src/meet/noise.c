/* noise.c -- Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b over libsodium. The names are the
 * specification's: MixHash, MixKey, MixKeyAndHash, EncryptAndHash, Split. */
#include "meet/noise.h"

#include <sodium.h>
#include <string.h>

#include "base/log.h"

#define HASH LS_NOISE_HASH_BYTES
#define KEY LS_NOISE_KEY_BYTES
#define BLOCK 128 /* bytes of a block of BLAKE2b */

static const char name[] = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b";
_Static_assert(sizeof name - 1 <= HASH, "a short name is padded, not hashed");

/* --- BLAKE2b, HMAC, HKDF ------------------------------------------------------------------- */

static void hash2(uint8_t out[HASH], const void *a, size_t na, const void *b, size_t nb)
{
    crypto_generichash_blake2b_state s;
    crypto_generichash_blake2b_init(&s, NULL, 0, HASH);
    crypto_generichash_blake2b_update(&s, a, na);
    if (nb > 0) crypto_generichash_blake2b_update(&s, b, nb);
    crypto_generichash_blake2b_final(&s, out, HASH);
}

/* HMAC of RFC 2104: not BLAKE2b's own keyed mode. */
static void hmac(uint8_t out[HASH], const uint8_t key[HASH], const void *a, size_t na, const void *b, size_t nb)
{
    uint8_t pad[BLOCK], inner[HASH];
    crypto_generichash_blake2b_state s;
    for (int i = 0; i < BLOCK; i++) pad[i] = (uint8_t)((i < HASH ? key[i] : 0) ^ 0x36);
    crypto_generichash_blake2b_init(&s, NULL, 0, HASH);
    crypto_generichash_blake2b_update(&s, pad, BLOCK);
    crypto_generichash_blake2b_update(&s, a, na);
    if (nb > 0) crypto_generichash_blake2b_update(&s, b, nb);
    crypto_generichash_blake2b_final(&s, inner, HASH);
    for (int i = 0; i < BLOCK; i++) pad[i] ^= 0x36 ^ 0x5c;
    hash2(out, pad, BLOCK, inner, HASH);
    sodium_memzero(pad, sizeof pad);
    sodium_memzero(inner, sizeof inner);
}

/* n outputs of HASH bytes, at most 3. */
static void hkdf(const uint8_t ck[HASH], const uint8_t *ikm, size_t nikm, int n, uint8_t out[][HASH])
{
    uint8_t temp[HASH];
    hmac(temp, ck, ikm, nikm, NULL, 0);
    for (uint8_t i = 1; i <= n; i++) hmac(out[i - 1], temp, i > 1 ? out[i - 2] : &i, i > 1 ? HASH : 1, &i, i > 1);
    sodium_memzero(temp, sizeof temp);
}

/* --- SymmetricState -------------------------------------------------------------------------- */

static void mix_hash(ls_noise *s, const void *p, size_t n) { hash2(s->h, s->h, HASH, p, n); }

static void mix_key(ls_noise *s, const uint8_t ikm[KEY])
{
    uint8_t out[2][HASH];
    hkdf(s->ck, ikm, KEY, 2, out);
    memcpy(s->ck, out[0], HASH);
    ls_aead_init(&s->c, out[1]);
    sodium_memzero(out, sizeof out);
}

static void mix_key_and_hash(ls_noise *s, const uint8_t ikm[KEY])
{
    uint8_t out[3][HASH];
    hkdf(s->ck, ikm, KEY, 3, out);
    memcpy(s->ck, out[0], HASH);
    mix_hash(s, out[1], HASH);
    ls_aead_init(&s->c, out[2]);
    sodium_memzero(out, sizeof out);
}

static void encrypt_and_hash(ls_noise *s, const void *p, size_t n, uint8_t *out)
{
    LS_ASSERT(ls_aead_seal(&s->c, s->h, HASH, p, n, out)); /* psk0: there is a key before the first payload */
    mix_hash(s, out, n + LS_AEAD_TAG_BYTES);
}

static bool decrypt_and_hash(ls_noise *s, const uint8_t *p, size_t n, void *out)
{
    uint8_t h[HASH];
    memcpy(h, s->h, HASH);
    mix_hash(s, p, n); /* before p may be overwritten by out */
    return ls_aead_open(&s->c, h, HASH, p, n, out);
}

/* --- HandshakeState ---------------------------------------------------------------------------- */

void ls_noise_init(ls_noise *s, bool initiator, const uint8_t psk[KEY], const uint8_t e[KEY], const void *prologue,
                   size_t n)
{
    LS_ASSERT(sodium_init() >= 0); /* picks the fastest code for the processor; once, and from any thread */
    *s = (ls_noise){ .initiator = initiator };
    memcpy(s->h, name, sizeof name - 1);
    memcpy(s->ck, s->h, HASH);
    memcpy(s->psk, psk, KEY);
    memcpy(s->e, e, KEY);
    mix_hash(s, prologue, n);
}

/* The token e: with a psk, the public key is mixed into the key as well (section 9.2). */
static void mix_e(ls_noise *s, const uint8_t public[KEY])
{
    mix_hash(s, public, KEY);
    mix_key(s, public);
}

/* The token ee. False: the product is zero, whatever our key is. */
static bool mix_ee(ls_noise *s)
{
    uint8_t shared[KEY];
    bool good = crypto_scalarmult_curve25519(shared, s->e, s->re) == 0;
    if (good) mix_key(s, shared);
    sodium_memzero(shared, sizeof shared);
    return good;
}

static bool fail(ls_noise *s)
{
    ls_noise_wipe(s);
    s->failed = true;
    return false;
}

/* Messages alternate, the initiator's first. */
static bool ours(const ls_noise *s) { return s->turn < 2 && (s->turn == 0) == s->initiator; }

bool ls_noise_write(ls_noise *s, const void *payload, size_t n, void *message)
{
    uint8_t *public = message;
    if (s->failed || !ours(s)) return false;
    if (s->turn == 0) mix_key_and_hash(s, s->psk);
    crypto_scalarmult_curve25519_base(public, s->e);
    mix_e(s, public);
    if (s->turn == 1 && !mix_ee(s)) return fail(s);
    encrypt_and_hash(s, payload, n, public + KEY);
    s->turn++;
    return true;
}

bool ls_noise_read(ls_noise *s, const void *message, size_t n, void *payload)
{
    const uint8_t *in = message;
    if (s->failed || s->turn > 1 || ours(s)) return false;
    if (n < LS_NOISE_MESSAGE_BYTES) return fail(s);
    if (s->turn == 0) mix_key_and_hash(s, s->psk);
    memcpy(s->re, in, KEY);
    mix_e(s, s->re);
    if (s->turn == 1 && !mix_ee(s)) return fail(s);
    if (!decrypt_and_hash(s, in + KEY, n - KEY, payload)) return fail(s);
    s->turn++;
    return true;
}

void ls_noise_split(ls_noise *s, ls_aead *send, ls_aead *receive)
{
    uint8_t out[2][HASH], h[HASH];
    LS_ASSERT(ls_noise_complete(s));
    hkdf(s->ck, NULL, 0, 2, out);
    ls_aead_init(s->initiator ? send : receive, out[0]);
    ls_aead_init(s->initiator ? receive : send, out[1]);
    sodium_memzero(out, sizeof out);
    memcpy(h, s->h, HASH);
    ls_noise_wipe(s);
    memcpy(s->h, h, HASH);
}

void ls_noise_wipe(ls_noise *s) { sodium_memzero(s, sizeof *s); }
