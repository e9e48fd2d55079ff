/* explain_3d.c -- all axes of a plan in one table: what each divides, where it belongs, and what it costs. */
#include <stdio.h>
#include <string.h>

#include "train/explain_topic.h"

static const char *const plan[] = { "model.name", "gpt2", "model.preset", "gpt2", "model.vocab_size", "50257",
                                    "train.global_batch", "16", "train.micro_batch", "1",
                                    "optim.name", "adamw", "parallel.tp", "2", "parallel.pp", "2", NULL };

static const struct { const char *parts, *place; } of[LS_AXES] = {
    [LS_AXIS_PP] = { "the list of layers", "between nodes" },
    [LS_AXIS_DP] = { "samples; with ZeRO state", "over what is left" },
    [LS_AXIS_EP] = { "experts; samples", "inside a node, else next to it" },
    [LS_AXIS_CP] = { "tokens of a sequence", "inside a node, else next to it" },
    [LS_AXIS_TP] = { "each layer's matrices", "inside a node" },
};

static void add_table(const ls_topic_of *t, ls_text *out)
{
    ls_text_add(out, "  %-4s %5s  %-26s %-32s %6s %14s %12s %12s\n", "axis", "size", "what it divides",
                "where it belongs", "calls",
                "bytes sent", "in memory", "on a network");
    for (int a = LS_AXES - 1; a >= 0; a--) {
        char b[32], m[32], n[32];
        const ls_axis_cost k = ls_axis_cost_of(t, t->l, (ls_axis)a);
        if (t->l->plan.size[a] < 2 && k.calls == 0) continue;
        ls_text_add(out, "  %-4s %5d  %-26s %-32s %6llu %14s %12s %12s\n", ls_axis_name((ls_axis)a),
                    t->l->plan.size[a], of[a].parts, of[a].place,
                    (unsigned long long)k.calls, ls_number_text(k.sent, 0, b, sizeof b),
                    ls_topic_ms(k.ns[LS_LEVEL_MEMORY], m, sizeof m),
                    ls_topic_ms(k.ns[LS_LEVEL_NETWORK], n, sizeof n));
    }
    ls_topic_say(out, "Per step, of rank 0; bytes and times of calls that go round a ring, by costs of %s. dp: "
                      "gradients and new values of all replicas.",
                 t->cost_from);
}

/* Time of all axes if `slow` crosses the network and the others stay inside a node. */
static double with_slow(const ls_topic_of *t, int slow)
{
    double ns = 0;
    for (int a = 0; a < LS_AXES; a++) {
        const ls_axis_cost k = ls_axis_cost_of(t, t->l, (ls_axis)a);
        ns += k.ns[a == slow ? LS_LEVEL_NETWORK : LS_LEVEL_MEMORY];
    }
    return ns;
}

/* Time of all axes over one kind of link. */
static double at_level(const ls_topic_of *t, ls_level level)
{
    double ns = 0;
    for (int a = 0; a < LS_AXES; a++) ns += ls_axis_cost_of(t, t->l, (ls_axis)a).ns[level];
    return ns;
}

/* Of tp, cp and ep the one that takes longest over a network. */
static ls_axis slowest(const ls_topic_of *t)
{
    ls_axis worst = LS_AXIS_TP;
    for (int a = LS_AXIS_EP; a < LS_AXIS_TP; a++)
        if (ls_axis_cost_of(t, t->l, (ls_axis)a).ns[LS_LEVEL_NETWORK] > ls_axis_cost_of(t, t->l,
                                                                                        worst).ns[LS_LEVEL_NETWORK])
            worst = (ls_axis)a;
    return worst;
}

static ls_status print(const ls_topic_of *t, ls_text *out)
{
    char b[32], c[32];
    const int *size = t->l->plan.size;
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "No axis alone divides everything: %d ranks as %d x %d x %d x %d x %d (pp, dp, ep, cp, "
                      "tp) divide samples, tokens, layers' matrices and "
                 "state at the same time. The product is the number of ranks.", t->l->size, size[0], size[1], size[2],
                 size[3], size[4]);
    ls_topic_head(LS_TOPIC_SYNC, out);
    add_table(t, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    for (int a = 0; a < LS_AXES; a++) {
        char in[96], st[96];
        if (size[a] < 2) continue;
        ls_topic_say(out, "%s: inputs: %s. Model state: %s.", ls_axis_name((ls_axis)a), ls_explain_divides(t->l,
                                                                                                           (ls_axis)a,
                                                                                                           true, in,
                                                                                                           sizeof in),
                     ls_explain_divides(t->l, (ls_axis)a, false, st, sizeof st));
    }
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "Ranks are numbered along the axes of parallel.order, here %s, of which the last varies "
                      "fastest: ranks along it are neighbours. "
                 "`lockstep explain CONFIG --nodes N` shows which rank is where. Calls of tp, cp and ep are "
                 "inside forward and backward, where the next "
                 "operation waits for them; those of dp are beside backward.", t->c->parallel.order);
    if (size[LS_AXIS_PP] > 1)
        ls_topic_say(out, "Messages of pp are beside other micro-batches; what pp costs is the bubble: ranks idle %.1f %% of a "
                          "step with %d micro-batches of schedule %s.", 100 * t->l->pipe.bubble, t->l->pipe.micro_batches,
                     t->l->pipe.schedule);
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    const ls_axis worst = slowest(t);
    ls_topic_say(out, "\"It does not matter which ranks form which axis.\" If only dp crosses the network a "
                      "step's collectives take %s; if %s does in its place, "
                 "%s.", ls_topic_ms(with_slow(t, LS_AXIS_DP), b, sizeof b), ls_axis_name(worst),
                 ls_topic_ms(with_slow(t, (int)worst), c, sizeof c));
    ls_topic_say(out, "\"Only operations matter, and all pairs of ranks are equal.\" Every product of these degrees has the "
                      "same operations. The collectives above take %s if all ranks are in one node, and %s if each of "
                      "them crosses the network. `lockstep plan --rank-by flops` shows the plan that operations alone "
                      "would choose, and what it costs.", ls_topic_ms(at_level(t, LS_LEVEL_MEMORY), b, sizeof b),
                 ls_topic_ms(at_level(t, LS_LEVEL_NETWORK), c, sizeof c));
    ls_topic_say(out, "\"Every method for several ranks is data parallel.\" Above, dp and ep divide samples, cp "
                      "tokens; tp and pp give all their ranks the same "
                 "inputs and divide the model.");
    return LS_OK;
}

const ls_topic ls_topic_3d = { .name = "3d", .title = "several axes at once", .plan = plan, .ranks = 8,
                               .print = print, .axis = LS_AXES };
