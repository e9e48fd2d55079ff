/* attached.c -- when long vectors in private memory are read where they lie, by cross memory attach (net/attach.h).
 *
 * staged.c copies them twice, into a slot and out of it. Where every member can read every other one's memory,
 * whoever takes copies once: each says in its line at which address its vector is. That is faster where a rank puts
 * about as much as it takes: of an all_to_all, of an all_gather of two, and of messages (message.c). Elsewhere slots
 * are: what is put once and read by many stays in caches, a root and its leaf copy at the same time, a sum reads what
 * was put without a copy. So they are for vectors that are more than the caches hold.
 */
#include "group/memory/attached.h"

#include "group/memory/memory.h"
#include "net/attach.h"

/* Of vectors of so many bytes. */
static bool possible(const ls_work *k, size_t nbytes)
{
    const ls_group *g = k->g;
    if (!g->attached || (k->a.coll == LS_ALL_GATHER && g->size != 2)) return false;
    return nbytes / (size_t)g->size < LS_ATTACH_MOST;
}

static bool can(const ls_work *k) { return possible(k, k->nbytes); }

bool ls_attached_long(const ls_work *k, size_t nbytes)
{
    const ls_group *g = k->g;
    if (!(ls_form_attached.colls & 1u << k->a.coll) || !possible(k, nbytes)) return false;
    return (double)(nbytes / (size_t)g->size) >= g->e->tuning.cost.in_memory.attach;
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

/* One block. Everyone begins with its right neighbour, so that not all read one rank at once. */
static ls_status one_block(ls_work *k, bool *finished)
{
    ls_group *g = k->g;
    const char *from = NULL;
    char *to = NULL;
    size_t nbytes = 0;
    const int r = (g->rank + 1 + k->peer) % g->size;
    /* an address in r's process */
    const char *vector = (const char *)(uintptr_t)g->member[r].area->line[k->mseq & 1].at;
    LS_TRY(ls_part_from(k, vector, r, &from, &to, &nbytes));
    size_t n = nbytes - k->pos < LS_TURN_BYTES ? nbytes - k->pos : LS_TURN_BYTES;
    if (r == g->rank) {
        ls_copy_part(k, to + k->pos, from + k->pos, n);
    } else if (n > 0) {
        LS_TRY(ls_attach_read(g->w, g->world_rank[r], (uint64_t)(uintptr_t)from + k->pos, to + k->pos, n));
        ls_count_moved(k, n);
    }
    k->pos += n;
    if (k->pos == nbytes) {
        k->pos = 0;
        k->peer++;
    }
    *finished = k->peer == g->size;
    return LS_OK;
}

static ls_status turn(ls_work *k)
{
    ls_group *g = k->g;
    if (k->phase == 2) {
        bool finished;
        LS_TRY(one_block(k, &finished));
        if (!finished) return LS_AGAIN;
        /* release: our reads of the peers' vectors are over */
        atomic_store_explicit(&g->member[g->rank].area->line[k->mseq & 1].done, k->mseq, memory_order_release);
        k->peer = 0;
        k->phase = 3;
        ls_wake_members(g);
    }
    return ls_all_through(k);
}

ls_status ls_attached_start(ls_work *k)
{
    k->form = &ls_form_attached;
    k->peer = 0;
    k->phase = 2;
    return turn(k);
}

static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    *out = (ls_traffic){ .flags = 2, .rounds = 2, .read = ls_parts_of_others(k) * ls_dtype_size(k->a.dtype) };
    return ls_counted(out);
}

const ls_form ls_form_attached = {
    .name = "attached",
    .about = "in memory: read where private vectors lie",
    .colls = 1u << LS_ALL_TO_ALL | 1u << LS_ALL_GATHER,
    .can = can,
    .turn = turn,
    .traffic = traffic,
};
