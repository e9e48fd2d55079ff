/* peers.c -- the memory that the ranks of a host share: each one's arena, and those of the others as mapped here.
 *
 * All first segments are mapped when ranks join. Further ones come by the host's store: who adds one sets its
 * descriptor there, before anybody can hear of an offset in it, and who meets such an offset gets it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "net/world.h"

static const char *segment_key(char key[48], int rank, int segment)
{
    snprintf(key, 48, segment ? "arena/%d/%d" : "arena/%d", rank, segment);
    return key;
}

static ls_status map_segment(ls_world *w, int rank, int segment, ls_segment *out, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    char key[48];
    int fd;
    LS_TRY(ls_store_get_fd(w->host_store, segment_key(key, rank, segment), &fd, deadline_ns));
    const int64_t n = env->fd_size(fd);
    char *p = n > 0 ? env->map_shared(fd, (size_t)n, true) : NULL;
    env->close_fd(fd);
    if (!p)
        return ls_fail(LS_NO_MEMORY, "rank %d cannot map %lld bytes of rank %d's arena", w->rank, (long long)n, rank);
    *out = (ls_segment){ p, (size_t)n };
    return LS_OK;
}

/* A rank's own thread and the one that moves its messages share its connection. */
static void lock_store(ls_world *w)
{
    while (atomic_exchange_explicit(&w->store_busy, 1, memory_order_acquire)) ls_env_get()->yield();
}

static void unlock_store(ls_world *w) { atomic_store_explicit(&w->store_busy, 0, memory_order_release); }

/* Our arena has grown: the store has the descriptor before a peer can hear of an offset in it. */
static ls_status publish_segment(void *arg, int segment, int fd)
{
    ls_world *w = arg;
    char key[48];
    if (w->threads || w->size == 1 || !w->host_store) return LS_OK; /* nobody maps it */
    lock_store(w);
    ls_status st = ls_store_set_fd(w->host_store, segment_key(key, w->rank, segment), fd,
                                   ls_env_get()->mono_ns() + w->opts.join_timeout_ns);
    unlock_store(w);
    return st;
}

/* NULL: no memory. */
static ls_peer_segments *segments_of(ls_world *w, int rank)
{
    ls_peer_segments *its = atomic_load_explicit(&w->peer_more[rank], memory_order_acquire), *none = NULL;
    if (its || !(its = calloc(1, sizeof *its))) return its;
    if (atomic_compare_exchange_strong_explicit(&w->peer_more[rank], &none, its, memory_order_acq_rel,
                                                memory_order_acquire))
        return its;
    free(its); /* the other thread was first */
    return none;
}

/* The job ends: every wait does with this cause. (Not ls_world_abort: the rank's own thread notes its failure.) */
static void give_up(ls_world *w, ls_status st)
{
    if (st != LS_ABORTED) ls_page_abort(w->page, 1 + (uint32_t)w->rank, st, ls_last_error());
}

/* Of a process. */
static ls_segment mapped_segment(ls_world *w, int rank, int segment)
{
    const ls_segment none = { NULL, 0 };
    ls_peer_segments *its = w->host_store ? segments_of(w, rank) : NULL;
    if (!w->host_store) return none;
    ls_status st = its ? LS_OK : ls_fail(LS_NO_MEMORY, "rank %d: the segments of rank %d's arena", w->rank, rank);
    if (its && !(atomic_load_explicit(&its->mapped, memory_order_acquire) >> segment & 1u)) {
        lock_store(w);
        if (!(atomic_load_explicit(&its->mapped, memory_order_relaxed) >> segment & 1u)) {
            const uint64_t deadline = ls_env_get()->mono_ns() + w->opts.join_timeout_ns;
            st = map_segment(w, rank, segment, &its->segment[segment], deadline);
            if (st == LS_OK) atomic_fetch_or_explicit(&its->mapped, 1ull << segment, memory_order_release);
        }
        unlock_store(w);
    }
    if (st == LS_OK) return its->segment[segment];
    give_up(w, st); /* where only some ranks find a vector, they would go different ways */
    return none;
}

char *ls_world_peer_more(ls_world *w, int rank, uint64_t offset, size_t n)
{
    const uint64_t segment = offset >> LS_ARENA_PLACE_BITS;
    const uint64_t place = offset & (((uint64_t)1 << LS_ARENA_PLACE_BITS) - 1);
    if (segment == 0 || segment >= LS_ARENA_SEGMENTS || !w->peer_base[rank]) return NULL;
    const ls_segment s = rank == w->rank  ? ls_arena_segment(w->arena, (int)segment)
                         : w->thread_arena ? ls_arena_segment(w->thread_arena[rank], (int)segment)
                                           : mapped_segment(w, rank, (int)segment);
    return s.base && n <= s.size && place <= s.size - n ? s.base + place : NULL;
}

ls_status ls_world_share_arenas(ls_world *w, uint64_t deadline_ns)
{
    const size_t directory = (size_t)w->size * sizeof(uint64_t); /* the transport's, which peers find at its front */
    const size_t first = w->opts.arena_bytes > directory ? w->opts.arena_bytes : directory;
    LS_TRY(ls_arena_create(first, true, &w->ledger, &w->arena));
    ls_arena_may_grow(w->arena, publish_segment, w);
    w->peer_base[w->rank] = ls_arena_base(w->arena);
    w->peer_bytes[w->rank] = ls_arena_size(w->arena);
    if (w->size == 1) return LS_OK;

    char key[48];
    LS_TRY(ls_store_set_fd(w->host_store, segment_key(key, w->rank, 0), ls_arena_fd(w->arena), deadline_ns));
    for (int r = 0; r < w->size; r++) {
        ls_segment s;
        if (r == w->rank || !ls_world_is_local(w, r)) continue;
        LS_TRY(map_segment(w, r, 0, &s, deadline_ns));
        w->peer_base[r] = s.base;
        w->peer_bytes[r] = s.size;
    }
    return LS_OK;
}

void ls_world_unmap_peers(ls_world *w)
{
    const ls_env *env = ls_env_get();
    for (int r = 0; w->peer_base && r < w->size; r++) {
        if (r == w->rank || !w->peer_base[r]) continue;
        const ls_peer_segments *more = atomic_load_explicit(&w->peer_more[r], memory_order_acquire);
        env->unmap(w->peer_base[r], w->peer_bytes[r]);
        for (int i = 0; more && i < LS_ARENA_SEGMENTS; i++)
            if (more->segment[i].base) env->unmap(more->segment[i].base, more->segment[i].size);
    }
}

ls_status ls_alloc(ls_world *w, size_t nbytes, ls_mem_kind kind, void **out)
{
    ls_status st = ls_arena_alloc(w->arena, nbytes, kind, out);
    return st < 0 ? ls_while(st, "allocating registered memory on rank %d", w->rank) : st;
}

ls_status ls_assign(ls_world *w, const void *p, size_t nbytes, int unit)
{
    return ls_arena_assign(w->arena, p, nbytes, unit);
}
