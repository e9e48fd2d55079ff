/* hash.h -- digests of bytes; xxHash inside. */
#ifndef LS_BASE_HASH_H
#define LS_BASE_HASH_H
#include <stddef.h>
#include <stdint.h>

uint64_t ls_hash64(const void *p, size_t n, uint64_t seed);

/* XXH3 of bytes that come in pieces; 128 or 64 bits of it. */
typedef struct ls_digest ls_digest;
ls_digest *ls_digest_create(void); /* NULL when out of memory */
void ls_digest_add(ls_digest *d, const void *p, size_t n);
/* Begins again, with no byte. */
void ls_digest_reset(ls_digest *d);
/* Canonical order (high word first), 32 lower-case hex digits and a NUL. */
void ls_digest_hex(const ls_digest *d, char out[33]);
/* XXH3-64 of the same bytes: what ls_hash64 gives with seed 0. */
uint64_t ls_digest_u64(const ls_digest *d);
void ls_digest_destroy(ls_digest *d);

/* CRC-32C (Castagnoli), as iSCSI and safetensors tooling use it. */
uint32_t ls_crc32c(uint32_t crc, const void *p, size_t n);
/* The same as on a machine without wide vectors: for tests. */
uint32_t ls_crc32c_narrow(uint32_t crc, const void *p, size_t n);

/* One step of a running CRC-32C over 8 bytes, lowest first, without the inversions at its ends: a hash of numbers that
 * is the same on every machine. On most it is one instruction. */
#ifdef __SSE4_2__
static inline uint32_t ls_crc32c_step(uint32_t crc, uint64_t x) { return (uint32_t)__builtin_ia32_crc32di(crc, x); }
#else
uint32_t ls_crc32c_step(uint32_t crc, uint64_t x);
#endif

#endif
