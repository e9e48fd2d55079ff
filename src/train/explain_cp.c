/* explain_cp.c -- context parallelism: which tokens each rank has, and how much attention that is. */
#include <stdio.h>
#include <string.h>

#include "parallel/cp_attention.h"
#include "train/explain_topic.h"

static const char *const plan[] = { "model.name", "gpt2", "model.preset", "gpt2", "model.vocab_size", "50257",
                                    "train.global_batch", "8", "train.micro_batch", "1",
                                    "optim.name", "adamw", "parallel.cp", "4", NULL };

static const char *divide_sequences(ls_train_config *c)
{
    if (c->parallel.cp > 1) return NULL;
    c->parallel.cp = 2;
    return "parallel.cp 2";
}

/* --- the work of a rank  ------------------------------------------------------------------------------------ */

static void add_split(const ls_topic_of *t, bool in_turn, ls_text *out)
{
    const int P = t->l->plan.size[LS_AXIS_CP];
    const int64_t T = t->l->tokens;
    const ls_place place = { .cp = { NULL, P, 0 }, .in_turn = in_turn };
    const double all = (double)T * (double)(T + 1) / 2;
    double most = 0;
    ls_text_add(out, "\n  %s%s\n  %6s %-26s %10s %8s %16s %10s\n", in_turn ? "contiguous" : "zigzag",
                in_turn == t->l->plan.in_turn ? ", as this plan has it" : "", "rank", "tokens", "computed", "skipped", "query-key pairs",
                "of mean");
    for (int r = 0; r < P; r++) {
        char tokens[64];
        ls_places at;
        ls_cp_work w;
        ls_cp_work_of(&place, r, T, &w);
        ls_cp_tokens_of(&place, r, T, &at);
        size_t n = (size_t)snprintf(tokens, sizeof tokens, "%lld-%lld", (long long)at.first[0],
                                    (long long)(at.first[0] + at.count[0] - 1));
        if (at.n > 1)
            snprintf(tokens + n, sizeof tokens - n, ", %lld-%lld", (long long)at.first[1],
                     (long long)(at.first[1] + at.count[1] - 1));
        ls_text_add(out, "  %6d %-26s %10d %8d %16.0f %10.3f\n", r, tokens, w.blocks - w.skipped, w.skipped, w.share * all,
                    w.share * P);
        if (w.share * P > most) most = w.share * P;
    }
    ls_text_add(out, "  all ranks wait for the busiest one: %.3f times the mean\n", most);
}

/* --- activations with other degrees  ------------------------------------------------------------------------ */

/* Bytes of rank 0 with cp `degree` and as many data parallel ranks; 0: a run would refuse it. */
static size_t activations(const ls_topic_of *t, int degree)
{
    ls_explain_layout l;
    ls_train_config c = *t->c;
    const int size = t->l->size / t->l->plan.size[LS_AXIS_CP] * degree;
    c.parallel.cp = degree;
    c.parallel.dp = t->l->plan.size[LS_AXIS_DP];
    const size_t bytes = ls_explain_layout_make(&c, t->mc, size, 1, NULL,
                                                &l) == LS_OK ? l.rank[0].plan.bytes[LS_MEM_ACT] : 0;
    ls_explain_layout_free(&l);
    return bytes;
}

static void add_activations(const ls_topic_of *t, ls_text *out)
{
    char a[32];
    const size_t one = activations(t, 1);
    ls_text_add(out, "  %6s %20s %10s\n", "cp", "activations, bytes", "of cp 1");
    for (int degree = 1; degree <= 8; degree *= 2) {
        const size_t bytes = activations(t, degree);
        if (bytes > 0 && one > 0)
            ls_text_add(out, "  %6d %20s %10.3f\n", degree, ls_number_text((double)bytes, 0, a, sizeof a),
                        (double)bytes / (double)one);
    }
}

/* --- the text  ---------------------------------------------------------------------------------------------- */

static const char *how(const ls_plan *p)
{
    if (p->context && strcmp(p->context, "gather") == 0)
        return "Every rank gathers all keys and values, once forward and once backward, and a reduce_scatter "
               "adds up their gradients.";
    if (p->context && strcmp(p->context, "ulysses") == 0)
        return "Ranks exchange tokens for heads: two all_to_alls forward and two backward per layer. Heads must "
               "be a multiple of cp.";
    return "Keys and values go round a ring, cp - 1 times forward and backward, and their gradients cp times. "
           "While a rank computes with one part, the "
           "next one arrives; results of two parts are merged by the logarithm of their sums of exponentials.";
}

static ls_status print(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32], c[32];
    const int P = t->l->plan.size[LS_AXIS_CP];
    const ls_axis_cost cp = ls_axis_cost_of(t, t->l, LS_AXIS_CP), tp = ls_axis_cost_of(t, t->l, LS_AXIS_TP);
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "The activations of a long sequence do not fit on one rank. Each of %d ranks has %lld of "
                      "the %lld tokens of every sequence:", P,
                 (long long)(t->l->tokens / P), (long long)t->l->tokens);
    add_activations(t, out);
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "Only attention looks beyond a rank's tokens. %s", how(&t->l->plan));
    ls_topic_calls(t, LS_AXIS_CP, out);
    ls_topic_say(out, "A token sees the tokens before it, so where a rank's tokens are decides how much it has "
                      "to do. Pairs of runs of tokens: whole, causal "
                 "(the same run), skipped:");
    add_split(t, false, out);
    add_split(t, true, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "Tokens and activations: different on each rank. Parameters and optimizer state: the "
                      "same, unless ZeRO shards them over dp x cp. "
                 "Gradients are averaged over dp x cp. Positions and dropout are those of the token's place in "
                 "the whole sequence.");
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "cp: %llu calls per step, of %s bytes; by the cost model %s in memory, %s over a network.",
                 (unsigned long long)cp.calls,
                 ls_number_text((double)cp.bytes, 0, a, sizeof a), ls_topic_ms(cp.ns[LS_LEVEL_MEMORY], b, sizeof b),
                 ls_topic_ms(cp.ns[LS_LEVEL_NETWORK], c, sizeof c));
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    if (tp.calls > 0)
        ls_topic_say(out, "\"Dividing sequences and dividing layers exclude each other.\" This plan has tp %d "
                          "and cp %d: tp's calls carry vectors of the tokens "
                     "of a rank of cp, %s bytes per step.", t->l->plan.size[LS_AXIS_TP], P,
                     ls_number_text((double)tp.bytes, 0, a, sizeof a));
    else
        ls_topic_say(out, "\"Equal parts of a sequence are equal work.\" With a causal mask the last of %d "
                          "ranks with one part each has (2 cp - 1) / cp = "
                     "%.3f times the mean; two parts from both ends make all ranks equal.", P, (2.0 * P - 1) / P);
    return LS_OK;
}

const ls_topic ls_topic_cp = { .name = "cp", .title = "context parallelism (cp)", .plan = plan, .ranks = 4,
                               .adjust = divide_sequences,
                               .print = print, .axis = LS_AXIS_CP };
