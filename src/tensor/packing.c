/* packing.c -- packed copies of weights: made once, read by every micro-batch of a step.
 *
 * The library that multiplies likes weights in an order of its own. To bring one into it costs a part of what a product
 * of a few hundred rows does, and pays when several products read it. A copy belongs to one parameter (or a part of
 * it), one shape of product and one number of threads. It is made by the first product that wants it after
 * ls_tape_pack_begin, and counts for nothing after the next one; between them nobody changes a weight. So there is no
 * way to read a copy of what the weights once were: evaluation, samples and whatever else does not say "begin" read
 * the weights themselves.
 */
#include <stdlib.h>

#include "base/compiler.h"
#include "tensor/tape_impl.h"
#include "tensor/threads.h"

#define UNIT 64

struct packed_weight {
    const ls_tensor *w;
    int64_t first;
    ls_gemm_call call;  /* its shape, and whose values */
    int threads;
    size_t at;          /* in base */
    bool has_room;
    bool liked;         /* there is a copy: the library likes B otherwise */
    uint64_t round;     /* of the copy */
};

ls_status ls_tape_pack_memory(ls_tape *t, void *memory, size_t nbytes)
{
    if (t->dry) return ls_fail(LS_INVALID, "packing: a dry tape has no memory");
    ls_tape_pack_end(t);
    t->scratch->packing.base = memory;
    t->scratch->packing.size = memory ? nbytes : 0;
    t->scratch->packing.used = 0;
    t->scratch->packing.n = 0;
    return LS_OK;
}

void ls_tape_pack_begin(ls_tape *t)
{
    t->scratch->packing.on = t->dry || t->scratch->packing.base;
    t->scratch->packing.round++;
}

void ls_tape_pack_end(ls_tape *t) { t->scratch->packing.on = false; }
size_t ls_tape_packed_bytes(const ls_tape *t) { return t->scratch->packing.used; }

static bool matches(const struct packed_weight *p, const ls_gemm_call *c, const ls_tensor *w, int64_t first)
{
    const ls_gemm_call *o = &p->call;
    return p->w == w && p->first == first && o->b == c->b && o->m == c->m && o->n == c->n && o->k == c->k &&
           o->trans_b == c->trans_b && o->add == c->add && o->in == c->in && o->out == c->out && !o->bias == !c->bias &&
           p->threads == ls_team_size();
}

static LS_COLD ls_status add(ls_packing *p, bool dry, const struct packed_weight *what, struct packed_weight **out)
{
    if (p->n == p->cap) {
        const int cap = p->cap ? 2 * p->cap : 64;
        struct packed_weight *more = realloc(p->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "list of %d packed weights", cap);
        p->item = more;
        p->cap = cap;
    }
    const size_t nbytes = (ls_gemm_packed_bytes(&what->call) + UNIT - 1) / UNIT * UNIT;
    *out = &p->item[p->n++];
    **out = *what;
    (*out)->at = p->used;
    (*out)->has_room = dry || nbytes <= p->size - p->used;
    if ((*out)->has_room) p->used += nbytes;
    return LS_OK;
}

/* Points c->packed at the copy, if there can be one. */
static ls_status find_copy(ls_tape *t, ls_gemm_call *c, const ls_tensor *w, int64_t first)
{
    ls_packing *p = &t->scratch->packing;
    struct packed_weight *found = NULL;
    for (int i = 0; i < p->n && !found; i++)
        if (matches(&p->item[i], c, w, first)) found = &p->item[i];
    if (!found) {
        if (ls_gemm_packed_bytes(c) == 0) return LS_OK;
        const struct packed_weight what = { .w = w, .first = first, .call = *c, .threads = ls_team_size() };
        LS_TRY(add(p, t->dry, &what, &found));
    }
    if (t->dry || !found->has_room) return LS_OK;
    if (found->round != p->round) {
        LS_TRY(ls_gemm_pack(t->scratch->gemm, c, p->base + found->at, &found->liked));
        found->round = p->round;
    }
    if (found->liked) c->packed = p->base + found->at;
    return LS_OK;
}

ls_status ls_op_product(ls_tape *t, const ls_gemm_call *call, const ls_tensor *w, int64_t first)
{
    ls_gemm_call c = *call;
    if (t->scratch->packing.on && w && w->grad && !w->node) LS_TRY(find_copy(t, &c, w, first));
    return t->dry ? LS_OK : ls_gemm_run(t->scratch->gemm, &c);
}
