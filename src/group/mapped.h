/* mapped.h -- what the forms of a collective in mapped memory share. */
#ifndef LS_GROUP_MAPPED_H
#define LS_GROUP_MAPPED_H
#include <string.h>

#include "group/impl.h"

#define LS_TURN_BYTES ((size_t)256 << 10) /* of one turn: a poke must not take long */

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

/* Offset of memory in a member's arena, or LS_NOT_REGISTERED. */
static inline uint64_t ls_offset_of(const ls_member *m, const void *p, size_t nbytes)
{
    uintptr_t offset = (uintptr_t)p - (uintptr_t)m->base;
    return LS_LIKELY(nbytes <= m->bytes && offset <= m->bytes - nbytes) ? offset : LS_NOT_REGISTERED;
}

/* An offset that a member shows us as an address; NULL unless n bytes lie there. */
static inline char *ls_at_member(const ls_member *m, uint64_t offset, size_t n)
{
    return n <= m->bytes && offset <= m->bytes - n ? m->base + offset : NULL;
}

/* A short vector in packets, and what they hold once they are here. */
static inline bool ls_in_packets(const ls_group *g, ls_coll coll, size_t nbytes)
{
    return coll == LS_ALL_REDUCE && nbytes > LS_LINE_BYTES && ls_sum_is_short(g, nbytes);
}
static inline void ls_packets_write(ls_packet *p, const char *bytes, size_t nbytes, uint32_t sig, uint32_t mseq)
{
    for (; nbytes > 0; p++) {
        size_t n = nbytes < LS_PACKET_BYTES ? nbytes : LS_PACKET_BYTES;
        if (LS_LIKELY(n == LS_PACKET_BYTES)) memcpy(p->bytes, bytes, LS_PACKET_BYTES);
        else memcpy(p->bytes, bytes, n);
        p->sig = sig;
        atomic_store_explicit(&p->seq, mseq, memory_order_release);
        bytes += n;
        nbytes -= n;
    }
}
static inline void ls_packet_read(const ls_packet *p, char *to, size_t nbytes)
{
    if (LS_LIKELY(nbytes >= LS_PACKET_BYTES)) memcpy(to, p->bytes, LS_PACKET_BYTES);
    else memcpy(to, p->bytes, nbytes);
}

static inline double ls_scale_of(const ls_work *k) { return k->a.op == LS_AVG ? 1.0 / k->g->size : 1.0; }

/* A vector that is offered and, in place, receives the result too. */
static inline const char *ls_offered(const ls_work *k) { return k->a.in ? k->a.in : k->a.out; }

/* mail.c: writes this rank's line of rooted collective `rooted`, with up to LS_MAIL_MOST bytes; false while its place
 * in the ring is in use. */
bool ls_mail_post(ls_group *g, uint32_t rooted, uint32_t sig, const char *bytes, size_t nbytes, uint64_t offset);
/* Member r's line of this collective, checked: LS_OK once it is here. */
ls_status ls_mail_from(ls_work *k, int r, const ls_line **out);
/* We read and write nothing more of collective `rooted`: said now and then, or at once, where somebody waits. */
void ls_mail_through(ls_group *g, uint32_t rooted);
void ls_mail_tell(ls_group *g, uint32_t rooted);
/* Where the nbytes of member r's line lie; NULL when it does not say. */
const char *ls_mail_bytes(const ls_group *g, int r, const ls_line *line, size_t nbytes);
bool ls_mail_publish(ls_work *k);
ls_status ls_mail_turn(ls_work *k);

/* mapped.c: LS_OK once every member's line shows this collective; once no member touches anybody's vector any more. */
ls_status ls_all_here(ls_work *k);
ls_status ls_all_through(ls_work *k);

/* fold.c: long vectors where they lie. */
void ls_fold_place(ls_work *k, ls_line *line);
ls_status ls_fold_turn(ls_work *k);
bool ls_rooted_publish(ls_work *k);
ls_status ls_rooted_turn(ls_work *k);
/* Rank r's share of a sum that everybody gets, or the root. */
ls_range ls_sum_share(const ls_work *k, int r);
/* Member r's block for q, of all that it sends; false when it says none. */
bool ls_block_of(const ls_work *k, int r, int q, ls_range *out);

/* attached.c: whether vectors of so many bytes are read in private memory, if that is where one is; what the line says
 * of ours; once everyone is here, whether these are, and where. */
bool ls_attached_long(const ls_work *k, size_t nbytes);
uint64_t ls_attached_address(const ls_work *k, const void *p);
bool ls_attached_all(const ls_work *k);
void ls_attached_find(const ls_work *k, char **from);

/* staged.c: what becomes of either when somebody's memory is private. LS_AGAIN, or a failure. */
ls_status ls_staged_start(ls_work *k);
ls_status ls_staged_turn(ls_work *k);
/* Says once per group that the caller's private memory costs a copy. */
void ls_hint_private(const ls_work *k);

#endif
