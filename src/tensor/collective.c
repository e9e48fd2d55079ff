/* collective.c -- collectives that are a part of an op. */
#include "tensor/collective.h"

#include "net/world.h"

/* That this rank brings. */
static size_t elements(const ls_group *g, const ls_coll_args *a)
{
    size_t n = a->count;
    for (int r = 0; a->counts && r < ls_group_size(g); r++) n += a->counts[r];
    return n;
}

#define POKE_NS 20000u /* for what is in flight, after the start of another collective */

/* *out is NULL where nothing is called. */
static ls_status start(ls_tape *t, ls_group *g, const ls_coll_args *a, bool in_place, ls_work **out)
{
    ls_coll_args call = *a;
    *out = NULL;
    if (ls_tape_dry(t) && !g) return LS_OK;
    if (ls_tape_dry(t)) {
        ls_world *w = ls_group_world(g);
        if (!ls_world_is_dry(w)) return LS_OK;
        call.out = ls_arena_base(w->arena);
        call.in = in_place ? NULL : call.out;
        if (!in_place) call.out = (char *)call.out + elements(g, a) * ls_dtype_size(a->dtype);
    }
    return ls_coll_start(g, &call, out);
}

ls_status ls_op_collective(ls_tape *t, ls_group *g, const ls_coll_args *a, bool in_place)
{
    ls_work *work;
    LS_TRY(start(t, g, a, in_place, &work));
    return ls_work_wait(work);
}

ls_status ls_flight_start(ls_flight *f, ls_tape *t, ls_group *g, const ls_coll_args *a, bool in_place)
{
    if (f->n == LS_FLIGHT_MOST)
        return ls_fail(LS_INVALID, "%s: more than %d collectives of an op in flight", a->label ? a->label : "an op", f->n);
    LS_TRY(start(t, g, a, in_place, &f->work[f->n]));
    return f->work[f->n++] ? ls_progress(ls_group_world(g), POKE_NS) : LS_OK;
}

ls_status ls_flight_wait(ls_flight *f)
{
    ls_status first = LS_OK;
    for (int i = 0; i < f->n; i++) {
        const ls_status st = ls_work_wait(f->work[i]);
        if (first == LS_OK) first = st;
    }
    f->n = 0;
    return first;
}

ls_status ls_op_message(ls_tape *t, ls_group *g, bool sends, int peer, void *buf, size_t nbytes, const char *label,
                        ls_work **out)
{
    *out = NULL;
    if (ls_tape_dry(t)) {
        if (!g || !ls_world_is_dry(ls_group_world(g))) return LS_OK;
        buf = ls_arena_base(ls_group_world(g)->arena);
    }
    const ls_p2p op = {
        .send = sends ? buf : NULL, .recv = sends ? NULL : buf, .count = nbytes, .dtype = LS_U8, .peer = peer
    };
    return ls_p2p_start(g, &op, label, out);
}
