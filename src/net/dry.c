/* dry.c -- one rank of a world whose other ranks are not there: to plan with, or to time.
 *
 * It knows who is where and has a page, an arena and a tracer, as a rank that has joined. In a dry world the arena has
 * addresses alone; in a mirror, where the rank computes, it has memory. Nothing
 * goes over its transport, which is there for its name, for what it says of mapped memory (by these collectives choose
 * how they are carried out), and for what pipes to ranks of this host take of the arena.
 */
#include <stdlib.h>
#include <string.h>

#include "net/open.h"
#include "net/transports.h"

struct ls_transport {
    const ls_world *w;
    ls_transport_ops ops; /* named as the real one; peers are mapped where its may be */
    uint64_t *pipes;      /* owned, [size]: a bit for each channel to a rank that has a pipe; NULL: none are used */
};
_Static_assert(LS_MAX_CHANNELS <= 64, "a bit for each");

static bool on_this_host(ls_transport *t, int peer) { return ls_world_is_local(t->w, peer); }

static void close_dry(ls_transport *t)
{
    free(t->pipes);
    free(t);
}

static ls_status take(const ls_world *w, size_t nbytes)
{
    void *p;
    return ls_arena_alloc(w->arena, nbytes, LS_MEM_COMM, &p);
}

static ls_status reserve_dry(ls_transport *t, int peer, int channel)
{
    const uint64_t bit = (uint64_t)1 << channel;
    if (!t->pipes || !on_this_host(t, peer) || (t->pipes[peer] & bit)) return LS_OK;
    if (t->pipes[peer] == 0) LS_TRY(take(t->w, ls_shm_row_bytes()));
    t->pipes[peer] |= bit;
    return take(t->w, ls_shm_pipe_bytes());
}

const char *ls_world_alone_name(bool dry) { return dry ? "a dry world" : "a mirror"; }

static const char *name_of(const ls_world *w) { return ls_world_alone_name(w->dry); }

static ls_status no_message(const ls_transport *t)
{
    return ls_fail(LS_UNSUPPORTED, "%s has no messages: the rank at the other end does not exist", name_of(t->w));
}

static ls_status send_dry(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    (void)peer, (void)channel, (void)m, (void)ticket;
    return no_message(t);
}

static ls_status view_dry(ls_transport *t, int peer, int channel, ls_msg *m)
{
    (void)peer, (void)channel, (void)m;
    return no_message(t);
}

/* Hosts numbered by their lowest rank; this rank's place on its own. */
static void take_places(ls_world *w, const int *node)
{
    for (int r = 0; r < w->size; r++) {
        int q = r > 0 && (!node || node[r - 1] == node[r]) ? r - 1 : 0; /* mostly */
        while (q < r && node && node[q] != node[r]) q++;
        w->node[r] = q == r ? w->nnodes++ : w->node[q];
    }
    for (int r = 0; r < w->size; r++) {
        if (!ls_world_is_local(w, r)) continue;
        if (w->local_size++ == 0) w->host_first = r;
        if (r < w->rank) w->local_rank++;
    }
}

static ls_status open_transport(ls_world *w)
{
    const char *name = w->opts.transport ? w->opts.transport : w->size == 1 ? "self" : w->nnodes == 1 ? "shm" : "mixed";
    const char *colon = strchr(name, ':'); /* faults are of messages: they hide what the other transport maps */
    const ls_transport_ops *real = ls_transport_find(name), *inner = colon ? ls_transport_find(colon + 1) : real;
    char names[128];
    w->opts.transport = name;
    if (!real || !inner || inner == &ls_transport_fault || (colon && real != &ls_transport_fault))
        return ls_fail(LS_BAD_CONFIG, "no transport of %s is named '%s': expected one of %s, or fault:<one of them>",
                       name_of(w), name, ls_transport_names(NULL, names, sizeof names));
    w->inner = colon ? inner : NULL;
    w->tp = calloc(1, sizeof *w->tp);
    if (!w->tp) return ls_fail(LS_NO_MEMORY, "the transport of %s", name_of(w));
    w->tp->w = w;
    w->tp->ops = (ls_transport_ops){ .name = real->name, .close = close_dry, .send = send_dry, .view = view_dry,
                                     .reserve = reserve_dry, .is_mapped = real->is_mapped ? on_this_host : NULL };
    w->tops = &w->tp->ops;
    if (!inner->is_mapped) return LS_OK; /* no pipes; those of shm a fault's messages go through, too */
    if (!(w->tp->pipes = calloc((size_t)w->size, sizeof *w->tp->pipes)))
        return ls_fail(LS_NO_MEMORY, "pipes to %d ranks of %s", w->size, name_of(w));
    return take(w, ls_shm_directory_bytes(w->size));
}

static ls_status open_memory(ls_world *w)
{
    LS_TRY(ls_page_create_dry(w->size, w->rank, 1, &w->page));
    if (w->dry) {
        LS_TRY(ls_arena_create_dry(&w->ledger, &w->arena));
    } else {
        /* shared memory as in a run (peers.c), so pages have the same size and as many TLB misses cost time */
        LS_TRY(ls_arena_create(w->opts.arena_bytes, true, &w->ledger, &w->arena));
        ls_arena_may_grow(w->arena, NULL, NULL);
    }
    return ls_tracer_create(&w->page->rank[w->rank].box, &w->tracer);
}

ls_status ls_world_open_alone(int rank, int size, const int *node, const ls_world_opts *opts, bool dry, ls_world **out)
{
    const char *kind = ls_world_alone_name(dry);
    *out = NULL;
    if (size < 1 || size > LS_WORLD_MOST_RANKS)
        return ls_fail(LS_INVALID, "%s of %d ranks: expected 1 to %d", kind, size, LS_WORLD_MOST_RANKS);
    if (rank < 0 || rank >= size) return ls_fail(LS_INVALID, "rank %d of %s: expected 0 to %d", rank, kind, size - 1);
    ls_world *w = calloc(1, sizeof *w);
    if (!w) return ls_fail(LS_NO_MEMORY, "%s", kind);
    w->alone = true;
    w->dry = dry;
    w->rank = rank;
    w->size = size;
    w->source_text = "the program: the other ranks are not there";
    ls_world_fill_defaults(w, opts);
    ls_status st = ls_world_make_room(w);
    if (st == LS_OK) {
        take_places(w, node);
        w->opts.node = NULL; /* it is in w->node now */
        st = open_memory(w);
    }
    if (st == LS_OK) st = open_transport(w);
    if (st < 0) {
        ls_world_close(w);
        return st;
    }
    w->generation = w->page->generation;
    w->cpus = ls_world_cpus_here(); /* algorithms are chosen by them, as the real ranks do */
    w->waiter = (ls_waiter){ .abort_word = &w->page->abort_by, .parked = &w->page->rank[rank].parked,
                             .may_spin = ls_world_has_cores(w) };
    *out = w;
    return LS_OK;
}
