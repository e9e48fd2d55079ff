/* rng.h -- random numbers of two kinds.
 *
 * Philox (Salmon et al. 2011, Random123's Philox4x32-10) is keyed by
 * (seed, stream) and addressed by the *global* element index, so a value does
 * not depend on how a tensor is sharded. mt19937 follows PyTorch's CPU
 * generator draw by draw, for parity with scripts that call torch.manual_seed.
 */
#ifndef LS_RNG_H
#define LS_RNG_H
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- counter-based ------------------------------------------------------ */

/* The four random words of elements 4 block .. 4 block + 3: Philox4x32-10 with key = seed and
 * counter = (block, stream), low words first. */
void ls_philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);

/* The same for n blocks from `block` on, 4 n words: how to make many. */
void ls_philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, size_t n, uint32_t *out);

/* Every use of the run's seed has streams of its own: the use is the top byte of a stream, the
 * number below it is what the use counts. Streams are half of Philox's counter, so two uses never share a word. */
typedef enum ls_stream_use {
    LS_STREAM_VALUES = 0x00,  /* initial values; number: the parameter's index. A program's own streams are here, too */
    LS_STREAM_FACTORS = 0x20, /* factors of PowerSGD; number: 2^24 backward + the parameter's index */
    LS_STREAM_SAMPLE = 0x40,  /* tokens that are generated; number: 0, blocks count positions */
    LS_STREAM_ORDER = 0x80,   /* the order of token windows; number: the epoch */
    LS_STREAM_DROPOUT = 0xc0, /* language models' dropout; number: 2^16 step + the place in the model. With ls_dropout
                               * whatever a program counts */
} ls_stream_use;

/* The stream of a use and a number below 2^56, the rest of which is cut off. */
static inline uint64_t ls_stream(ls_stream_use use, uint64_t number)
{
    return (uint64_t)use << 56 | (number & UINT64_MAX >> 8);
}

/* out[i] = uniform in [lo, hi) for global element `first + i`. The stream
 * separates uses of one seed (ls_stream). Each
 * value has 24 random bits. Splitting [first, first+n) changes nothing. */
void ls_philox_uniform(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float lo, float hi,
                       float *out);
/* The same for a standard normal times stddev: Box-Muller in double on the words of elements
 * 2k and 2k+1, so a shard may begin with an odd element. */
void ls_philox_normal(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float stddev,
                      float *out);

/* --- PyTorch's CPU generator --------------------------------------------- */

typedef struct ls_mt19937 {
    uint32_t state[624];
    int next;            /* index of the next word; 624: refill first */
    int has_cached;      /* randn of fewer than 16 elements keeps its second value */
    double cached;
} ls_mt19937;

/* torch.manual_seed(seed): init_genrand on the low 32 bits of the seed. */
void ls_mt19937_seed(ls_mt19937 *g, uint64_t seed);
uint32_t ls_mt19937_next(ls_mt19937 *g);
/* torch.rand and uniform_: float (next & 0xFFFFFF) * 2^-24 * (hi - lo) + lo, n times; the product
 * and sum are rounded once. */
void ls_mt19937_uniform(ls_mt19937 *g, float lo, float hi, size_t n, float *out);
/* torch.randn(n): the cached double path below 16 elements, the block path from 16. */
void ls_mt19937_normal(ls_mt19937 *g, size_t n, float *out);
/* torch.randint(lo, hi, (n,)). Fails with LS_INVALID unless lo < hi and hi - lo < 2^32. */
ls_status ls_mt19937_randint(ls_mt19937 *g, int64_t lo, int64_t hi, size_t n, int64_t *out);
/* torch.randperm(n) for n < 2^32 / 20; LS_INVALID above. */
ls_status ls_mt19937_randperm(ls_mt19937 *g, size_t n, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif
