/* memory.h -- what the forms of a collective in mapped memory share. */
#ifndef LS_GROUP_MEMORY_H
#define LS_GROUP_MEMORY_H
#include <string.h>

#include "base/copy.h"
#include "group/engine.h"
#include "group/form.h"
#include "group/mismatch.h"

#define LS_SHARE_UNIT 64 /* bytes: shares of a sum end at cache lines */

/* Looks at a word until it is `want` or later; a few turns when the caller waits for nothing else. */
static inline bool ls_reached(const ls_group *g, const _Atomic uint32_t *word, uint32_t want)
{
    /* acquire: pairs with the release store of whoever counts the word up */
    for (int turn = 0; (int32_t)(atomic_load_explicit(word, memory_order_acquire) - want) < 0; turn++) {
        if (turn >= g->patience) return false;
        ls_cpu_relax();
    }
    return true;
}

/* The same for a word that cannot be later, and may be so old that numbers have wrapped since. */
static inline bool ls_reads(const ls_group *g, const _Atomic uint32_t *word, uint32_t want)
{
    for (int turn = 0; atomic_load_explicit(word, memory_order_acquire) != want; turn++) {
        if (turn >= g->patience) return false;
        ls_cpu_relax();
    }
    return true;
}

/* Offset of memory in our own arena, or LS_NOT_REGISTERED. */
static inline uint64_t ls_offset_of(const ls_group *g, const void *p, size_t nbytes)
{
    return ls_world_offset(g->w, p, nbytes);
}

/* An offset that a member shows us as an address; NULL unless n bytes lie there. */
static inline char *ls_at_member(const ls_group *g, int r, uint64_t offset, size_t n)
{
    const ls_member *m = &g->member[r];
    if (LS_LIKELY(n <= m->bytes && offset <= m->bytes - n)) return m->base + offset;
    return offset == LS_NOT_REGISTERED ? NULL : ls_world_peer(g->w, g->world_rank[r], offset, n);
}

static inline double ls_scale_of(const ls_work *k) { return k->a.op == LS_AVG ? 1.0 / k->g->size : 1.0; }

/* A vector that is offered and, in place, receives the result too. */
static inline const char *ls_offered(const ls_work *k) { return k->a.in ? k->a.in : k->a.out; }

/* The most that any one rank writes for its peers. */
size_t ls_most_from_one(const ls_work *k);

/* Ends publishing where everyone waits for everyone. */
static inline void ls_line_show(const ls_work *k, ls_line *line)
{
    line->sig = k->sig;
    atomic_store_explicit(&line->seq, k->mseq, memory_order_release); /* line, slot and vector are visible before it */
    ls_wake_members(k->g);
}
/* LS_OK once every member's line shows this collective. */
static inline ls_status ls_all_here(ls_work *k)
{
    ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++) {
        const ls_line *line = &g->member[k->peer].area->line[k->mseq & 1];
        if (!ls_reached(g, &line->seq, k->mseq)) return LS_AGAIN;
        if (LS_UNLIKELY(line->sig != k->sig)) return ls_mismatch(g, k, k->peer);
    }
    /* whoever is here is through with what was before */
    if ((int32_t)(k->rooted - g->mail.seen) > 0) g->mail.seen = k->rooted;
    return LS_OK;
}

/* LS_OK once no member touches anybody's vector any more. */
static inline ls_status ls_all_through(ls_work *k)
{
    ls_group *g = k->g;
    for (; k->peer < g->size; k->peer++)
        if (!ls_reads(g, &g->member[k->peer].area->line[k->mseq & 1].done, k->mseq)) return LS_AGAIN;
    return LS_OK;
}

/* Rank r's share of a sum that everybody gets, or the root: whole cache lines. */
ls_range ls_sum_share(const ls_work *k, int r);
/* Member r's block for q, of all that it sends; false when it says none. */
bool ls_block_of(const ls_work *k, int r, int q, ls_range *out);
/* Our part of what member r shows (all_gather, all_to_all), whose vector begins at `vector`, and where it goes. */
ls_status ls_part_from(const ls_work *k, const char *vector, int r, const char **from, char **to, size_t *nbytes);

/* What a rank receives of all others, in elements, where each has a part for it (all_gather, all_to_all). */
size_t ls_parts_of_others(const ls_work *k);
/* out->counted is what was read and written. */
static inline ls_status ls_counted(ls_traffic *out)
{
    out->counted = out->read + out->written;
    return LS_OK;
}

/* Whether all ranks touch so much together that stores go past the caches. */
bool ls_past_cache(const ls_work *k);
/* As the work's `past_cache` says. */
static inline void ls_copy_part(const ls_work *k, char *to, const char *from, size_t nbytes)
{
    if (nbytes == 0 || to == from) return;
    if (k->past_cache) ls_copy_past_cache(to, from, nbytes);
    else memcpy(to, from, nbytes);
}

#endif
