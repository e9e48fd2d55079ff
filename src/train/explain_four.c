/* explain_four.c -- a topic in four parts, in the order in which an answer is easiest to check: state, axis and shape,
 * collective and link, number.
 */
#include <stdio.h>

#include "train/explain_topic.h"

/* Of rank 0's collectives for an axis the ones with most bytes; NULL: there is none between several ranks. */
static const ls_explain_calls *largest(const ls_explain_rank *r, ls_axis axis)
{
    const ls_explain_calls *most = NULL;
    for (int i = 0; i < r->ncalls; i++) {
        const ls_explain_calls *k = &r->calls[i];
        if (ls_explain_axis(k) != (int)axis || r->group[k->group].size < 2) continue;
        if (!most || k->bytes > most->bytes) most = k;
    }
    return most;
}

static void add_state(const ls_topic_of *t, ls_axis axis, ls_text *out)
{
    char divides[96], here[32], whole[32];
    const ls_explain_rank *r = &t->l->rank[0];
    ls_topic_say(out, "state: %s; rank 0 stores %s of %s parameters and updates %s.",
                 ls_explain_divides(t->l, axis, false, divides, sizeof divides),
                 ls_number_text((double)(r->dense.here + r->experts.here), 0, here, sizeof here),
                 ls_number_text((double)t->l->parameters, 0, whole, sizeof whole),
                 ls_number_text((double)(r->dense.own + r->experts.own), 0, (char[32]){ 0 }, 32));
}

static void add_shape(const ls_topic_of *t, ls_axis axis, ls_text *out)
{
    char divides[96], shape[96] = "";
    if (ls_train_is_lm(t->c))
        snprintf(shape, sizeof shape, "; a micro-batch of rank 0 is [%lld, %lld, %lld]", (long long)t->l->micro,
                 (long long)(t->l->tokens / t->l->plan.size[LS_AXIS_CP]), (long long)t->mc->lm.d_model);
    ls_topic_say(out, "axis and shape: %s %d; inputs: %s%s.", ls_axis_name(axis), t->l->plan.size[axis],
                 ls_explain_divides(t->l, axis, true, divides, sizeof divides), shape);
}

static void add_collective(const ls_topic_of *t, ls_axis axis, ls_text *out)
{
    const ls_explain_rank *r = &t->l->rank[0];
    const ls_explain_calls *k = largest(r, axis);
    char bytes[32];
    if (!k) {
        ls_topic_say(out, "collective and link: none, as the axis has one rank.");
        return;
    }
    const int nodes = ls_explain_crosses(t->l, 0, axis);
    ls_topic_say(out, "collective and link: mostly %s (%s), %llu call%s with %s bytes in group %s, %s; %s.",
                 ls_coll_name(k->coll), k->what, (unsigned long long)k->calls, k->calls == 1 ? "" : "s",
                 ls_number_text((double)k->bytes, 0, bytes, sizeof bytes), r->group[k->group].text,
                 nodes > 1 ? "over the network" : "in memory of one node", ls_explain_when(t->l, r, k));
}

static void add_number(const ls_topic_of *t, ls_axis axis, ls_text *out)
{
    char sent[32], memory[32], network[32];
    const ls_axis_cost k = ls_axis_cost_of(t, t->l, axis);
    const double near = k.ns[LS_LEVEL_MEMORY], far = k.ns[LS_LEVEL_NETWORK];
    ls_topic_say(out, "number: %llu call%s, in which rank 0 sends %s bytes per step: %s in memory, %s over a network, "
                      "%.3g times as long (costs of %s).",
                 (unsigned long long)k.calls, k.calls == 1 ? "" : "s", ls_number_text(k.sent, 0, sent, sizeof sent),
                 ls_topic_ms(near, memory, sizeof memory), ls_topic_ms(far, network, sizeof network),
                 near > 0 ? far / near : 1.0, t->cost_from);
}

void ls_topic_four(const ls_topic_of *t, ls_axis axis, ls_text *out)
{
    add_state(t, axis, out);
    add_shape(t, axis, out);
    add_collective(t, axis, out);
    add_number(t, axis, out);
}
