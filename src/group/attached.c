/* attached.c -- when long vectors in private memory are read where they lie, by cross memory attach (net/attach.h).
 *
 * staged.c copies them twice, into a slot and out of it. Where every member can read every other one's memory, whoever
 * takes copies once: each says in its line at which address its vector is, and fold.c goes on as with registered
 * memory. That is faster where a rank puts about as much as it takes: of an all_to_all, of an all_gather of two, and of
 * messages (p2p.c). Elsewhere slots are: what is put once and read by many stays in caches, a root and its leaf copy at
 * the same time, a sum reads what was put without a copy. So they are for vectors that are more than the caches hold.
 */
#include "group/mapped.h"
#include "net/attach.h"

bool ls_attached_long(const ls_work *k, size_t nbytes)
{
    const ls_group *g = k->g;
    if (!g->attached || (k->a.coll != LS_ALL_TO_ALL && !(k->a.coll == LS_ALL_GATHER && g->size == 2))) return false;
    const size_t part = nbytes / (size_t)g->size;
    return part < LS_ATTACH_MOST && (double)part >= g->e->terms.cost.in_memory.attach;
}

uint64_t ls_attached_address(const ls_work *k, const void *p)
{
    /* in place each would overwrite what another one has yet to read */
    return k->a.coll == LS_ALL_TO_ALL && !k->a.in && k->nbytes > 0 ? LS_NOT_REGISTERED : (uint64_t)(uintptr_t)p;
}

/* Ranks of an all_to_all need not send alike: so much they send on average. */
static size_t sent_bytes(const ls_work *k)
{
    const ls_group *g = k->g;
    size_t elements = 0;
    if (!k->recv_counts) return k->nbytes;
    for (int r = 0; r < g->size; r++)
        for (int q = 0; q < g->size; q++) {
            ls_range s;
            if (!ls_block_of(k, r, q, &s)) return 0;
            elements += s.count / (size_t)g->size;
        }
    return elements * ls_dtype_size(k->a.dtype);
}

bool ls_attached_all(const ls_work *k)
{
    const ls_group *g = k->g;
    for (int r = 0; r < g->size; r++)
        if (g->member[r].area->line[k->mseq & 1].at == LS_NOT_REGISTERED) return false;
    return ls_attached_long(k, sent_bytes(k));
}

void ls_attached_find(const ls_work *k, char **from)
{
    const ls_group *g = k->g;
    for (int r = 0; r < g->size; r++) from[r] = (char *)(uintptr_t)g->member[r].area->line[k->mseq & 1].at;
}
