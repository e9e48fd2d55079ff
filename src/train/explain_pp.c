/* explain_pp.c -- pipeline parallelism: the stages, what passes between them, and what ranks idle. */
#include <stdio.h>

#include "train/explain_topic.h"

static const char *const plan[] = { "model.name", "gpt2", "model.preset", "gpt2", "model.vocab_size", "50257",
                                    "train.global_batch", "16", "train.micro_batch", "1", "optim.name", "adamw",
                                    "parallel.pp", "4", NULL };

static const char *divide_model(ls_train_config *c)
{
    if (c->parallel.pp > 1) return NULL;
    c->parallel.pp = 2;
    return "parallel.pp 2";
}

/* The first rank of each stage. */
static void add_stages(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32], c[32];
    const int p = t->l->plan.size[LS_AXIS_PP];
    int stride[LS_AXES];
    ls_mesh_strides(t->l->plan.size, t->l->plan.order, stride);
    const int apart = stride[LS_AXIS_PP];
    ls_text_add(out, "\n  %6s %16s %20s %20s\n", "rank", "parameters", "activations, bytes", "all memory, bytes");
    for (int s = 0; s < p; s++) {
        const ls_explain_rank *r = &t->l->rank[s * apart];
        ls_text_add(out, "  %6d %16s %20s %20s\n", s * apart,
                    ls_number_text((double)(r->dense.here + r->experts.here), 0, a, sizeof a),
                    ls_number_text((double)r->plan.bytes[LS_MEM_ACT], 0, b, sizeof b),
                    ls_number_text((double)r->plan.total, 0, c, sizeof c));
    }
}

static ls_status print(const ls_topic_of *t, ls_text *out)
{
    char a[32], b[32], c[32];
    const ls_explain_pipe *r = &t->l->pipe;
    const ls_plan *p = &t->l->plan;
    const int stages = p->size[LS_AXIS_PP], m = p->micro_batches;
    const ls_axis_cost pp = ls_axis_cost_of(t, t->l, LS_AXIS_PP);
    const double C = (double)t->mc->lm.d_model, T = (double)(t->l->tokens / p->size[LS_AXIS_CP]);
    const double edge = 2.0 * m * (double)t->l->micro * T * C * (double)ls_dtype_size(p->dtype) /
                        (p->sequence_parallel ? p->size[LS_AXIS_TP] : 1);
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "The model's layers do not fit on one rank, or the link between ranks is too slow for tp. "
                      "Each of %d ranks has "
                 "%s:", stages, r->stages > r->ranks ? "several runs of layers" : "a run of layers");
    add_stages(t, out);
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "A stage sends its activations to the next one, and gets their gradients back, "
                      "micro-batch by micro-batch, in the "
                 "order of schedule %s. The stages hold different parameters, so no gradient is summed between "
                 "them, except of a tied "
                 "embedding.", p->schedule ? p->schedule : "1f1b");
    ls_topic_calls(t, LS_AXIS_PP, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "Parameters, gradients and optimizer state of layers: different on each stage. Samples: "
                      "the same %d micro-batches "
                 "pass through all of them. Activations: those of the micro-batches that are alive, at most %d "
                 "on the first rank and %d on "
                 "the last.", m, r->alive[0], r->alive[r->ranks - 1]);
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "A boundary carries 2 m b T C values, %s bytes per step: activations one way, gradients "
                      "the other. Ranks idle %.1f %% "
                 "of the time if all stages take equally long (the bubble; (p - 1) / (m + p - 1) = %.1f %% of "
                 "gpipe and 1f1b), and %.1f %% by the operations of these stages.",
                 ls_number_text(edge, 0, a, sizeof a), 100 * r->equal, 100.0 * (stages - 1) / (m + stages - 1),
                 100 * r->bubble);
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    ls_topic_say(out, "\"Pipelines are bound by communication.\" Rank 0 sends and receives %s bytes per step, "
                      "with the gradient of a tied "
                 "embedding, which take %s over a network by costs of %s; data parallelism on as many ranks "
                 "would send %s bytes. What a pipeline loses is the bubble: %.1f %% here.",
                 ls_number_text((double)pp.bytes, 0, a, sizeof a), ls_topic_ms(pp.ns[LS_LEVEL_NETWORK], b, sizeof b),
                 t->cost_from,
                 ls_number_text(8.0 * (double)t->l->parameters * (stages - 1) / stages, 0, c, sizeof c),
                 100 * r->equal);
    return LS_OK;
}

const ls_topic ls_topic_pp = { .name = "pp", .title = "pipeline parallelism (pp)", .plan = plan, .ranks = 4,
                               .adjust = divide_model,
                               .print = print, .axis = LS_AXIS_PP };
