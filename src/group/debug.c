/* debug.c -- how a collective was carried out, and how one would be. */
#include "group/debug.h"

#include "group/choice.h"
#include "group/engine.h"
#include "group/select.h"

ls_debug_group ls_debug_look(const ls_group *g)
{
    const bool schedule = g->ran == &ls_form_schedule;
    return (ls_debug_group){ .ran = ls_select_ran(g), .segments = schedule ? g->ran_segments : 0,
                             .alone = g->ran == &ls_form_local, .mapped = g->mapped, .node = g->node,
                             .nnodes = g->nnodes, .cores = g->cores, .packed = g->has.packed.n,
                             .transport = g->w->tops->name,
                             .cost_from = g->e->tuning.cost_from, .asked = g->e->tuning.algo };
}

/* What a call becomes, as far as its form looks at it. */
static ls_work work_of(ls_group *g, const ls_coll_args *a)
{
    ls_work k = { .g = g, .a = *a, .counts = a->counts, .recv_counts = a->recv_counts };
    if (a->counts) {
        k.a.count = 0;
        for (int r = 0; r < g->size; r++) k.a.count += a->counts[r];
    }
    k.nbytes = k.a.count * ls_dtype_size(a->dtype);
    return k;
}

ls_status ls_debug_traffic(ls_group *g, const ls_coll_args *a, ls_traffic *out)
{
    if (a->span) return ls_fail(LS_UNSUPPORTED, "the bytes of spans are not counted beforehand");
    const ls_work k = work_of(g, a);
    const ls_form *form = a->coll == LS_SENDRECV ? &ls_form_messages : g->ran;
    *out = (ls_traffic){ 0 };
    if (!form || !form->traffic) return ls_fail(LS_UNSUPPORTED, "nothing is known of what %s moves", form ? form->name : "it");
    return form->traffic(&k, out);
}

ls_status ls_debug_explain(ls_group *g, const ls_coll_args *a, const char **about, ls_choice *out, int *n)
{
    if (a->span) return ls_fail(LS_UNSUPPORTED, "how spans are carried out is not told beforehand");
    const ls_work k = work_of(g, a);
    const ls_form *form = a->coll == LS_SENDRECV ? &ls_form_messages : ls_select(&k);
    *about = form->about;
    *n = 0;
    return form == &ls_form_schedule ? ls_choices_of(&k, out, n) : LS_OK;
}

ls_status ls_debug_forms(ls_group *g, const ls_coll_args *a, ls_debug_form *out, int *n)
{
    if (a->span) return ls_fail(LS_UNSUPPORTED, "how spans are carried out is not told beforehand");
    const ls_work k = work_of(g, a);
    const ls_form *form[LS_SELECT_MOST], *chosen = ls_select(&k);
    int registered;
    *n = ls_select_able(&k, form, &registered);
    for (int i = 0; i < *n; i++) {
        out[i] = (ls_debug_form){ .name = form[i]->name, .chosen = form[i] == chosen };
        out[i].private_memory = i >= registered;
        LS_TRY(form[i]->traffic(&k, &out[i].moved));
        out[i].ns = ls_traffic_ns(&g->e->tuning.cost, &out[i].moved);
    }
    return LS_OK;
}

_Static_assert(LS_DEBUG_FORMS == LS_SELECT_MOST, "all forms fit");
