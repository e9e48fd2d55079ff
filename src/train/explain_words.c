/* explain_words.c -- what a plan's axes divide, and when its collectives happen, in words. */
#include <stdio.h>
#include <string.h>

#include "train/explain_layout.h"

static const char *or_default(const char *word, const char *def) { return word ? word : def; }

/* How ranks of tp exchange, where the plan says so. */
static const char *of_tp(const ls_plan *p, char *buf, size_t n)
{
    if (p->sequence_parallel) return "sequence parallel";
    if (p->tp_pieces > 0) snprintf(buf, n, "%d piece%s", p->tp_pieces, p->tp_pieces > 1 ? "s" : "");
    return buf;
}

const char *ls_explain_axes(const ls_explain_layout *l, char *buf, size_t n)
{
    size_t at = 0;
    char pieces[24] = "";
    *buf = 0;
    for (int a = LS_AXES - 1; a >= 0; a--) {
        const int size = l->plan.size[a];
        if (size < 2) continue;
        const char *how = a == LS_AXIS_TP ? of_tp(&l->plan, pieces, sizeof pieces)
                          : a == LS_AXIS_CP ? or_default(l->plan.context, "ring")
                          : a == LS_AXIS_PP ? or_default(l->plan.schedule, "1f1b") : "";
        if (at < n)
            at += (size_t)snprintf(buf + at, n - at, "%s%s %d%s%s%s", at ? " x " : "", ls_axis_name((ls_axis)a), size,
                                   *how ? " (" : "", how, *how ? ")" : "");
    }
    if (!*buf) snprintf(buf, n, "one rank");
    return buf;
}

/* Of what replicas would all have: the part that ZeRO shards over them. */
static const char *sharded(const ls_plan *p)
{
    static const char *const of[] = { "nothing: all of it is on each rank", "optimizer state",
                                      "gradients and optimizer state", "parameters, gradients and optimizer state" };
    return of[p->ddp.zero_stage >= 0 && p->ddp.zero_stage <= 3 ? p->ddp.zero_stage : 0];
}

static void divided_inputs(const ls_explain_layout *l, ls_axis axis, char *buf, size_t n)
{
    const int *size = l->plan.size;
    const int64_t T = l->tokens;
    if (axis == LS_AXIS_DP || axis == LS_AXIS_EP)
        snprintf(buf, n, "samples: %lld of %lld per rank", (long long)(l->batch / size[LS_AXIS_DP] / size[LS_AXIS_EP]), (long long)l->batch);
    else if (axis == LS_AXIS_CP)
        snprintf(buf, n, "tokens: %lld of %lld per sequence", (long long)(T / size[LS_AXIS_CP]), (long long)T);
    else if (axis == LS_AXIS_TP && l->plan.sequence_parallel)
        snprintf(buf, n, "activations between products: %lld of %lld tokens", (long long)(T / size[LS_AXIS_CP] / size[LS_AXIS_TP]),
                 (long long)(T / size[LS_AXIS_CP]));
    else snprintf(buf, n, "nothing: the same samples on each rank");
}

const char *ls_explain_divides(const ls_explain_layout *l, ls_axis axis, bool inputs, char *buf, size_t n)
{
    if (inputs) divided_inputs(l, axis, buf, n);
    else if (axis == LS_AXIS_TP) snprintf(buf, n, "each layer: heads, width of the mlp, vocabulary");
    else if (axis == LS_AXIS_PP) snprintf(buf, n, "the list of layers");
    else if (axis == LS_AXIS_EP)
        snprintf(buf, n, "experts%s%s", l->plan.ddp.zero_stage ? "; of the rest " : "", l->plan.ddp.zero_stage ? sharded(&l->plan) : "");
    else snprintf(buf, n, "%s", sharded(&l->plan));
    return buf;
}

static bool begins(const ls_explain_calls *k, const char *with) { return strncmp(k->what, with, strlen(with)) == 0; }

/* What passes between two stages of a pipeline: "send 0-1". */
static bool of_boundary(const ls_explain_calls *k) { return begins(k, "send ") || begins(k, "recv "); }

/* Keys, values, queries or results that ranks of cp exchange. */
static bool of_attention(const ls_explain_calls *k)
{
    static const char *const word[] = { "keys", "queries", "results" };
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (strstr(k->what, word[i])) return true;
    return false;
}

int ls_explain_axis(const ls_explain_calls *k)
{
    static const struct { const char *label; ls_axis axis; } of[] = {
        { "bucket", LS_AXIS_DP }, { "values", LS_AXIS_DP }, { "enter", LS_AXIS_TP }, { "leave", LS_AXIS_TP },
        { "largest logits", LS_AXIS_TP }, { "sums of exp", LS_AXIS_TP }, { "gradients of sp", LS_AXIS_TP },
        { "counts of rows", LS_AXIS_EP }, { "dispatch", LS_AXIS_EP }, { "combine", LS_AXIS_EP },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (begins(k, of[i].label)) return (int)of[i].axis;
    if (strcmp(k->what, "tied embedding") == 0 || of_boundary(k)) return LS_AXIS_PP;
    if (k->coll == LS_SENDRECV || of_attention(k)) return LS_AXIS_CP;
    return k->coll == LS_BARRIER ? LS_AXIS_DP : LS_AXES;
}

/* Of the collectives that a strategy calls around a model. */
static const char *when_of_bucket(const ls_explain_layout *l, const ls_explain_group *g, const ls_explain_calls *k)
{
    if (k->coll == LS_ALL_GATHER) return "after the optimizer: exposed";
    if (strcmp(g->role, "sets of shards") == 0) return "in the last backward, after the sums in a set";
    return l->overlaps ? "in backward: the last bucket is exposed" : "after backward: exposed";
}

const char *ls_explain_when(const ls_explain_layout *l, const ls_explain_rank *r, const ls_explain_calls *k)
{
    static const struct { const char *label, *when; } inside[] = {
        { "enter", "between two products: exposed" },
        { "leave", "between two products: exposed" },
        { "largest logits", "in the loss: exposed, short" },
        { "sums of exponentials", "in the loss: exposed, short" },
        { "counts of rows", "before dispatch: exposed, short" },
        { "dispatch", "before the experts: exposed" },
        { "combine", "after the experts: exposed" },
    };
    const ls_explain_group *g = &r->group[k->group];
    const bool inside_layers = begins(k, "enter") || begins(k, "leave");
    if (l->plan.tp_pieces > 1 && inside_layers) return "in layers beside products: the last piece is exposed";
    if (l->plan.tp_pieces == 0 && !l->plan.sequence_parallel && inside_layers && g->nodes > 1)
        return "between two products, or in pieces beside them";
    if (g->size == 1) return "one rank: nothing moves";
    if (k->coll == LS_BARRIER) return "around the optimizer: exposed, short";
    if (begins(k, "bucket") || begins(k, "values in")) return when_of_bucket(l, g, k);
    if (begins(k, "values of"))
        return l->plan.ddp.prefetch > 0 ? "ahead of each unit: the first one is exposed" : "before each unit: exposed";
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (begins(k, inside[i].label)) return inside[i].when;
    if (of_boundary(k)) return "beside other micro-batches: what is waited for is the bubble";
    if (k->coll == LS_SENDRECV) return "beside attention: exposed if it takes longer";
    if (of_attention(k)) return "around attention: exposed";
    return "after backward: exposed, short";
}
