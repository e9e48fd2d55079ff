/* sign.h -- what a collective says of itself: the signature that its messages carry, for peers to compare, and the
 * description in the world page, for people.
 */
#ifndef LS_GROUP_SIGN_H
#define LS_GROUP_SIGN_H
#include "base/hash.h"
#include "group/engine.h"

/* A call of ours, as the words of its description (meet/page.h). They are made once and stay in registers: both its
 * signature and its place in the world page are made of them. */
typedef struct ls_coll_words { uint64_t word[4]; } ls_coll_words;

/* `count` is what all ranks must agree on. */
static inline ls_coll_words ls_coll_describe(const ls_group *g, uint32_t seq, const ls_coll_args *a, size_t count)
{
    return (ls_coll_words){ { g->desc_word[0],
                              g->desc_word[1] | seq | (uint64_t)a->coll << 32 | (uint64_t)a->dtype << 40 |
                                  (uint64_t)a->op << 48,
                              count, (uint32_t)a->root } };
}

/* For a new group: what its descriptions have in common, and where its signatures begin. */
static inline void ls_coll_describes(ls_group *g)
{
    const uint32_t block = (uint32_t)(g->channel / LS_GROUP_CHANNELS);
    g->desc_first = ls_desc_index(block, 0);
    g->desc_word[0] = g->generation | (uint64_t)g->id << 32;
    g->desc_word[1] = (uint64_t)block << 56;
    g->chain = ls_crc32c_step(~0u, g->desc_word[0]);
}

/* 32 bits that two ranks share only if they mean the same collective and have called the same ones before it: whoever
 * runs ahead of a difference takes it along. A CRC-32C of all descriptions so far: of two calls that differ in 32
 * neighbouring bits at most it always differs, of others almost surely. No root reaches 2^16 and no count 2^48, so both
 * fit a word. `counts`: a hash of the counts per rank, where there are some.
 * bench/verdict measures what LS_NO_VERDICT leaves out, here and below. */
static inline uint32_t ls_coll_sign(ls_group *g, const ls_coll_words *d, uint32_t counts)
{
#ifndef LS_NO_VERDICT
    g->chain = ls_crc32c_step(ls_crc32c_step(g->chain, d->word[1]), d->word[2] ^ d->word[3] << 48);
    if (LS_UNLIKELY(counts != 0)) g->chain = ls_crc32c_step(g->chain, counts);
#else
    (void)d, (void)counts;
#endif
    return g->chain;
}

/* For people: what this rank does. After what its peers wait for. */
static inline void ls_coll_entered(ls_group *g, const ls_coll_words *d)
{
#ifndef LS_NO_VERDICT
    ls_page_enter_words(g->slot, g->desc_first + (uint32_t)d->word[1] % LS_PAGE_HISTORY, d->word);
#endif
    ls_count_op(g, (ls_coll)(d->word[1] >> 32 & 0xff));
}

#endif
