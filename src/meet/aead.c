/* aead.c -- ChaCha20-Poly1305 of libsodium, with the counter of a Noise CipherState. */
#include "meet/aead.h"

#include <sodium.h>
#include <string.h>

#define NONCE_BYTES 12

void ls_aead_init(ls_aead *a, const uint8_t key[LS_AEAD_KEY_BYTES])
{
    memcpy(a->key, key, LS_AEAD_KEY_BYTES);
    a->n = 0;
    a->set = true;
}

/* 32 zero bits, then the number, little-endian (Noise, section 12.3). */
static void nonce_of(uint64_t n, uint8_t nonce[NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t)(n >> 8 * i);
}

/* REKEY(k): the first 32 bytes of 32 zeros sealed under the greatest number (Noise, section 4.2). */
static void rekey(ls_aead *a)
{
    uint8_t nonce[NONCE_BYTES], zeros[LS_AEAD_KEY_BYTES] = { 0 }, out[LS_AEAD_KEY_BYTES + LS_AEAD_TAG_BYTES];
    nonce_of(UINT64_MAX, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, zeros, sizeof zeros, NULL, 0, NULL, nonce, a->key);
    memcpy(a->key, out, sizeof a->key);
    sodium_memzero(out, sizeof out);
}

/* The number was used. It cannot reach its end: at a message a nanosecond that takes 580 years. */
static void next(ls_aead *a)
{
    if (++a->n % LS_AEAD_REKEY == 0) rekey(a);
}

bool ls_aead_seal(ls_aead *a, const void *ad, size_t nad, const void *in, size_t n, void *out)
{
    uint8_t nonce[NONCE_BYTES];
    if (!a->set) return false;
    nonce_of(a->n, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, in, n, ad, nad, NULL, nonce, a->key);
    next(a);
    return true;
}

bool ls_aead_open(ls_aead *a, const void *ad, size_t nad, const void *in, size_t n, void *out)
{
    uint8_t nonce[NONCE_BYTES];
    if (!a->set || n < LS_AEAD_TAG_BYTES) return false;
    nonce_of(a->n, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, in, n, ad, nad, nonce, a->key) != 0) return false;
    next(a);
    return true;
}

void ls_aead_wipe(ls_aead *a) { sodium_memzero(a, sizeof *a); }
