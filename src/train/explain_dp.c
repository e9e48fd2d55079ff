/* explain_dp.c -- data parallelism, and ZeRO, which shards what data parallel ranks would all have. */
#include <stdio.h>
#include <string.h>

#include "train/explain_topic.h"

static const char *const plan[] = { "model.name", "gpt2", "model.preset", "gpt2", "model.vocab_size", "50257",
                                    "train.global_batch", "8", "train.micro_batch", "1",
                                    "optim.name", "adamw", NULL };

/* What is often said of data parallelism, with the numbers of this plan and a command that shows it. */
static void add_asked(const ls_topic_of *t, const ls_axis_cost *dp, ls_text *out)
{
    char a[32], b[32], c[32];
    const ls_explain_rank *r = &t->l->rank[0];
    const int W = t->l->plan.size[LS_AXIS_DP], m = t->l->plan.micro_batches;
    const double P = 4.0 * (double)(r->dense.here + r->experts.here);
    const size_t *bytes = r->plan.bytes;
    const double state = (double)(bytes[LS_MEM_PARAM] + bytes[LS_MEM_GRAD] + bytes[LS_MEM_OPTIM]);
    ls_topic_say(out, "How does DDP hide communication? Backward goes on while a bucket is summed: of %llu call%s per step "
                      "the last one has nothing to hide behind. `lockstep lab 1 --claim 6`", (unsigned long long)dp->calls,
                 dp->calls == 1 ? "" : "s");
    ls_topic_say(out, "DDP or DataParallel? DDP has one process per device, DataParallel threads of one process, of which "
                      "one sends parameters to all and adds up their gradients: %s bytes through it, and %s through each "
                      "rank of DDP. `lockstep lab 10 --claim 11,11b`",
                 ls_number_text(2.0 * (W - 1) * P, 0, a, sizeof a), ls_number_text(dp->sent, 0, b, sizeof b));
    ls_topic_say(out, "FSDP or DDP? FSDP if parameters, gradients and optimizer state, %s bytes per rank, do not fit: "
                      "stage 3 stores about %s. `lockstep lab 2 --claim 8`",
                 ls_number_text(state, 0, a, sizeof a), ls_number_text(state / W, 0, b, sizeof b));
    ls_topic_say(out, "How many bytes does an all_reduce move? A rank of a ring sends 2 (W-1)/W of the vector: %s bytes with "
                      "%d ranks, and never more than %s. `lockstep lab 10 --claim 10`",
                 ls_number_text(2.0 * (W - 1) / W * P, 0, a, sizeof a), W, ls_number_text(2.0 * P, 0, b, sizeof b));
    ls_topic_say(out, "What does no_sync do? Gradients of %d micro-batch%s per step are accumulated, and only the last one's "
                      "backward sums them over the ranks: %s bytes, and not %s. `lockstep lab 1 --claim 14,14b`", m,
                 m == 1 ? "" : "es", ls_number_text(dp->sent, 0, a, sizeof a), ls_number_text(m * dp->sent, 0, c, sizeof c));
    ls_topic_say(out, "torchrun or spawn? Both start a process per rank; torchrun also restarts all of them if one is lost. "
                      "`lockstep lab 10 --claim 12`");
}

static ls_status print(const ls_topic_of *t, ls_text *out)
{
    char b[32], c[32], ms[32], alpha[32];
    const ls_explain_rank *r = &t->l->rank[0];
    const ls_axis_cost dp = ls_axis_cost_of(t, t->l, LS_AXIS_DP);
    const double P = 4.0 * (double)(r->dense.here + r->experts.here);
    const ls_link_cost *net = &t->cost.link[LS_LEVEL_NETWORK];
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "A step of %lld samples takes one rank too long. Each of %d ranks computes %lld of them.",
                 (long long)t->l->batch,
                 t->l->plan.size[LS_AXIS_DP], (long long)(t->l->batch / t->l->plan.size[LS_AXIS_DP]));
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "Ranks average gradients before each update. Why gradients, and not parameters: the "
                      "update of %s is not linear in the "
                 "gradient, so the mean of updated parameters is another model than one rank with the whole "
                 "batch would have, and its state "
                 "would have to be averaged as well. The same gradient gives the same update on each rank, and "
                 "nothing else has to be sent.",
                 t->c->optim.name);
    ls_topic_calls(t, LS_AXIS_DP, out);
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "Samples differ from rank to rank. Parameters, gradients and optimizer state, %s + %s + "
                      "%s bytes, are the same on each "
                 "rank; ZeRO shards them (`lockstep explain zero`).",
                 ls_number_text((double)r->plan.bytes[LS_MEM_PARAM], 0, b, sizeof b),
                 ls_number_text((double)r->plan.bytes[LS_MEM_GRAD], 0, c, sizeof c),
                 ls_number_text((double)r->plan.bytes[LS_MEM_OPTIM], 0, ms, sizeof ms));
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "2 (W-1)/W 4 P = %s bytes per rank and step, in %llu calls; %s by the cost model over a "
                      "network, of which backward hides all "
                 "but the last bucket's if it takes longer.", ls_number_text(dp.sent, 0, b, sizeof b),
                 (unsigned long long)dp.calls,
                 ls_topic_ms(dp.ns[LS_LEVEL_NETWORK], ms, sizeof ms));
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    ls_topic_say(out, "\"Data parallelism scales for ever.\" With a batch of %lld a rank's work falls with 1/W, "
                      "and its bytes do not:", (long long)t->l->batch);
    ls_text_add(out, "  %6s %16s %20s %16s %16s\n", "ranks", "samples per rank", "bytes per rank", "time of "
                                                                                                   "bytes",
                                                                                                   "of messages");
    for (int w = 2; w <= 1024; w *= w < 16 ? 2 : 8)
        ls_text_add(out, "  %6d %16.3g %20s %16s %16s\n", w, (double)t->l->batch / w,
                    ls_number_text(2.0 * (w - 1) / w * P, 0, b, sizeof b),
                    ls_topic_ms(2.0 * (w - 1) / w * P * net->beta_ns, ms, sizeof ms),
                    ls_topic_ms(2.0 * (w - 1) * net->alpha_ns * (double)dp.calls, alpha, sizeof alpha));
    ls_topic_say(out, "Times are those of a ring over a network, by costs of %s.", t->cost_from);
    ls_topic_say(out, "\"Plain TCP is enough.\" The calls of a step take %s in memory, %s by TCP within a machine and %s over "
                      "a network. `lockstep topo links` measures your links.",
                 ls_topic_ms(dp.ns[LS_LEVEL_MEMORY], b, sizeof b), ls_topic_ms(dp.ns[LS_LEVEL_LOOPBACK], c, sizeof c),
                 ls_topic_ms(dp.ns[LS_LEVEL_NETWORK], ms, sizeof ms));
    ls_topic_say(out, "\"Only the algorithm matters.\" Here it is the same in every line of the table. What else decides has "
                      "commands of its own: the bucket cap `lockstep tune buckets`, a slow link `lockstep topo links`, a slow "
                      "rank or loader `lockstep explain RUN`.");
    ls_topic_head(LS_TOPIC_ASKED, out);
    add_asked(t, &dp, out);
    return LS_OK;
}

const ls_topic ls_topic_dp = { .name = "dp", .title = "data parallelism (dp)", .plan = plan, .ranks = 4,
                               .print = print, .axis = LS_AXIS_DP };

/* --- the stages of ZeRO ------------------------------------------------------------------------------------- */

static const ls_zero_column *column_of(const ls_zero_costs *z, int stage)
{
    for (int i = 0; i < z->n; i++)
        if (z->column[i].stage == stage && !*z->column[i].refused) return &z->column[i];
    return NULL;
}

static uint64_t moved(const ls_zero_column *c)
{
    uint64_t sum = 0;
    for (int i = 0; i < LS_ZERO_TRAVELS; i++) sum += c->rank[0].counted[i];
    return sum;
}

static size_t stored(const ls_zero_column *c)
{
    const size_t *bytes = c->rank[0].plan.bytes;
    return bytes[LS_MEM_PARAM] + bytes[LS_MEM_GRAD] + bytes[LS_MEM_OPTIM];
}

static void add_zero_four(const ls_zero_costs *z, const ls_zero_column *none, const ls_zero_column *all, ls_text *out)
{
    char a[32], b[32], c[32], d[32];
    ls_topic_head(LS_TOPIC_FOUR, out);
    ls_topic_say(out, "state: optimizer state with stage 1, gradients too with 2, parameters too with 3.");
    ls_topic_say(out, "axis and shape: dp %d; of each parameter a shard of whole rows, on %d ranks.", z->size, z->size / z->sets);
    ls_topic_say(out, "collective and link: reduce_scatter of gradients, all_gather of values, in place of all_reduce; in "
                      "memory of one node.");
    if (none && all)
        ls_topic_say(out, "number: rank 0 stores %s bytes of these with stage 0 and %s with stage 3, and moves %s and %s "
                          "bytes per step.", ls_number_text((double)stored(none), 0, a, sizeof a),
                     ls_number_text((double)stored(all), 0, b, sizeof b),
                     ls_number_text((double)moved(none), 0, c, sizeof c),
                     ls_number_text((double)moved(all), 0, d, sizeof d));
    else ls_topic_say(out, "number: the tables above have those of the stages that were asked for.");
}

void ls_topic_zero(const ls_zero_costs *z, ls_text *out)
{
    char a[32], b[32];
    const ls_zero_column *none = column_of(z, 0), *all = column_of(z, 3);
    ls_topic_head(LS_TOPIC_PROBLEM, out);
    ls_topic_say(out, "Data parallel ranks all store the same parameters, gradients and optimizer state: 4 + 4 "
                      "+ %d bytes per parameter of f32.",
                 4 * z->nstates);
    ls_topic_head(LS_TOPIC_SYNC, out);
    ls_topic_say(out, "An all_reduce is a reduce_scatter and an all_gather. Stage 1 and 2 put the optimizer's "
                      "update of a rank's own rows between the two; "
                 "stage 3 gathers values before they are used, or has one copy per node.");
    ls_topic_head(LS_TOPIC_STATE, out);
    ls_topic_say(out, "Stage 1 shards optimizer state over the ranks, stage 2 gradients as well, stage 3 "
                      "parameters as well: from stage 1 to 3 what is "
                 "sharded grows, and samples stay divided as before.");
    ls_topic_head(LS_TOPIC_COST, out);
    ls_topic_say(out, "Stages 1 and 2 move as many bytes as stage 0. Stage 3 with gathered layers moves up to "
                      "half as many more; with one copy per node, "
                 "half as many, on one node.");
    ls_topic_head(LS_TOPIC_MISTAKE, out);
    if (!none || !all) {
        ls_topic_say(out, "\"With stage 3 memory is no problem.\" Activations, and the values and gradients of "
                          "units in use, are not sharded.");
        add_zero_four(z, none, all, out);
        return;
    }
    const ls_memory_plan *p = &none->rank[0].plan, *q = &all->rank[0].plan;
    ls_topic_say(out, "\"With stage 3 memory is no problem.\" The peak of rank 0 is %s bytes with stage 3 and "
                      "%s with stage 0, and not 1/%d of it: "
                 "activations (%.0f %% of it), communication, and values and gradients of units in use are not "
                 "sharded.",
                 ls_number_text((double)q->total, 0, a, sizeof a), ls_number_text((double)p->total, 0, b, sizeof b),
                 z->size,
                 100.0 * (double)q->bytes[LS_MEM_ACT] / (double)q->total);
    add_zero_four(z, none, all, out);
}
