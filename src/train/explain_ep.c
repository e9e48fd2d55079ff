/* explain_ep.c -- expert parallelism: where experts are, and the rows that travel to them. */
#include <stdio.h>
#include <string.h>

#include "train/explain_topic.h"

static const char *const plan[] = {
    "model.name", "moe", "model.n_layer", "4", "model.n_head", "4", "model.n_kv_head", "2", "model.d_model", "128",
    "model.d_expert", "96",
    "model.n_experts", "8", "model.top_k", "2", "model.seq_len", "64", "model.vocab_size", "256",
    "train.global_batch", "8", NULL
};

static const char *divide_experts(ls_train_config *c)
{
    if (c->parallel.ep > 1) return NULL;
    c->parallel.ep = 2;
    return "parallel.ep 2";
}

static void add_picture(const ls_topic_of *t, ls_text *out)
{
    const ls_lm_config *lm = &t->mc->lm;
    const int N = t->l->plan.size[LS_AXIS_EP];
    const int64_t E = lm->n_experts;
    const long long B = t->l->micro, T = t->l->tokens / t->l->plan.size[LS_AXIS_CP], C = lm->d_model, k = lm->top_k;
    ls_text_add(out, "\n  x [%lld, %lld, %lld]: other samples on each rank of ep\n       |  router: %lld of "
                     "%lld experts for each token\n", B, T, C, k,
                (long long)E);
    ls_text_add(out, "  dispatch  all_to_all of counts, all_to_all_v of rows of %lld: %lld rows leave a rank, "
                     "(N-1)/N of them to others if loads are equal\n",
                C, B * T * k);
    for (int r = 0; r < N; r++)
        ls_text_add(out, "       |    rank %d of ep: experts %lld to %lld, each of %lld x %lld x 3\n", r,
                    (long long)(E * r / N),
                    (long long)(E * (r + 1) / N - 1), C, (long long)lm->d_expert);
    ls_text_add(out, "  combine   all_to_all_v of results\n       |\n  x + sum over %lld of weight times "
                     "result\n", k);
}

static ls_status print(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32], c[32];
    const ls_lm_config *lm = &t->mc->lm;
    const ls_explain_rank *r = &t->l->rank[0];
    const int N = t->l->plan.size[LS_AXIS_EP];
    const double size = (double)ls_dtype_size(t->l->plan.dtype), C = (double)lm->d_model, F = (double)lm->d_expert;
    const double rows = (double)(t->l->micro * t->l->tokens / t->l->plan.size[LS_AXIS_CP] * lm->top_k);
    const double there = rows * (N - 1) / N, flops = 3 * 6 * C * F, bytes = 4 * C * size * (N - 1) / N; /* of a row,
    forward and backward */
    const ls_axis_cost ep = ls_axis_cost_of(t, t->l, LS_AXIS_EP);
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "A model with %lld experts per layer has %s parameters, %s of them in experts: too many "
                      "for one rank. With ep %d rank 0 has %s of "
                 "those.", (long long)lm->n_experts, ls_number_text((double)(r->dense.whole + r->experts.whole), 0, a,
                                                                    sizeof a),
                 ls_number_text((double)r->experts.whole, 0, b, sizeof b), N, ls_number_text((double)r->experts.here,
                                                                                             0, c, sizeof c));
    add_picture(t, out);
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "Tokens travel to their experts, and results travel back; backward does the same with "
                      "gradients. A plan knows the most rows that "
                 "there can be; a run moves those that were routed. All ranks wait for the one whose experts "
                 "got most.");
    ls_topic_calls(t, LS_AXIS_EP, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "Experts with their gradients and optimizer state, and samples: different on each rank of "
                      "ep. Router, attention, norms, embedding and "
                 "head: the same. An expert's gradient is averaged over dp x cp, all others over dp x ep x cp.");
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "If loads are equal, %s of %s rows of a micro-batch and layer leave rank 0, with %s bytes "
                      "each way; the plan has at most the %llu calls "
                 "and bytes above per step.", ls_number_text(there, 0, a, sizeof a), ls_number_text(rows, 0, b,
                                                                                                    sizeof b),
                 ls_number_text(there * C * size, 0, c, sizeof c), (unsigned long long)ep.calls);
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    ls_topic_say(out, "\"Expert parallelism is always bound by compute\", or \"always by bandwidth\". A row "
                      "takes 18 C F = %.3g operations in its expert and moves "
                 "4 C (N-1)/N values, %.3g bytes: %.4g operations per byte. A machine with more operations per "
                 "second than that per byte of its link per "
                 "second waits for the link; by costs of %s, over a network, above %.3g GFLOP/s per rank, in "
                 "memory above %.3g.", flops, bytes,
                 flops / bytes, t->cost_from, flops / bytes / t->cost.link[LS_LEVEL_NETWORK].beta_ns,
                 flops / bytes / t->cost.link[LS_LEVEL_MEMORY].beta_ns);
    return LS_OK;
}

const ls_topic ls_topic_ep = { .name = "ep", .title = "expert parallelism (ep)", .plan = plan, .ranks = 4,
                               .adjust = divide_experts,
                               .print = print, .axis = LS_AXIS_EP };
