/* config_check.c -- which values of a configuration do not fit together, or are not supported. */
#include "train/config.h"

#include <stdio.h>
#include <string.h>

#include "lockstep/optim.h"
#include "lockstep/parallel.h"
#include "lockstep/sched.h"
#include "lockstep/transport.h"
#include "parallel/strategy.h"
#include "tensor/attention.h"

#define MOST_TOKENS ((int64_t)1 << 31) /* a rank computes at a time: times 2^24 values and 8 bytes they fit 64 bits */

ls_status ls_train_check_whole(const ls_train_config *c, const char *who)
{
    const struct { const char *name; int64_t size; } axis[] = {
        { "tp", c->parallel.tp }, { "cp", c->parallel.cp }, { "ep", c->parallel.ep }, { "pp", c->parallel.pp },
    };
    for (size_t i = 0; i < sizeof axis / sizeof *axis; i++)
        if (axis[i].size > 1)
            return ls_fail(LS_UNSUPPORTED, "%s knows of data parallelism alone, and parallel.%s is %lld: leave it out", who, axis[i].name,
                           (long long)axis[i].size);
    return LS_OK;
}

/* The strategy of a plan; a stage that it does not have is refused by the names of the keys. */
static ls_status check_strategy(const ls_plan *p, const ls_dp_strategy **out)
{
    const int stage = p->ddp.zero_stage;
    const ls_dp_strategy *s;
    LS_TRY(ls_dp_strategy_of(stage, out));
    if (!p->dp) return LS_OK;
    LS_TRY(ls_dp_strategy_find(p->dp, NULL, &s));
    if (!ls_dp_strategy_has(s, stage))
        return ls_fail(LS_BAD_CONFIG, "parallel.dp_strategy is %s, but zero.stage is %d: set zero.stage to %d, or "
                       "parallel.dp_strategy to %s or auto", s->name, stage, s->first_stage, (*out)->name);
    *out = s;
    return LS_OK;
}

/* Packing gives each rank a second copy of all weights, which stage 3 is there to avoid. */
static ls_status check_packed(const ls_train_config *c)
{
    if (c->zero.stage < 3 || strcmp(c->train.pack_weights, "always") != 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "train.pack_weights always with zero.stage 3: each rank would have a copy of all weights, "
                   "which stage 3 is there to avoid: set train.pack_weights to auto, or zero.stage to 2");
}

/* What needs whole gradients. */
static ls_status check_whole(const ls_train_config *c)
{
    const char *key = c->ddp.find_unused ? "find_unused true" : c->ddp.static_graph ? "static_graph true" : NULL;
    const bool hooked = strcmp(c->ddp.hook, "none") != 0;
    if (!key && !hooked) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "ddp.%s%s with zero.stage %lld: it is for stage 0, where gradients are not sharded: leave one of them "
                   "out", key ? key : "hook ", key ? "" : c->ddp.hook, (long long)c->zero.stage);
}

/* Whether each set of shards has all experts: sets are consecutive replicas, so those of dp have to be far apart. */
static ls_status check_sets(const ls_train_config *c, const ls_plan *p)
{
    if (p->hsdp < 2 || p->size[LS_AXIS_EP] < 2) return LS_OK;
    for (int i = 0; i < LS_AXES; i++) {
        const ls_axis a = ls_mesh_axis(p->order, i);
        if (a == LS_AXIS_DP) return LS_OK;
        if ((a == LS_AXIS_EP || a == LS_AXIS_CP) && p->size[a] > 1)
            return ls_fail(LS_UNSUPPORTED, "parallel.order %s with zero.hsdp %d and parallel.ep %d: each set of shards has all "
                           "experts, so dp comes before %s: expected an order like pp-dp-ep-cp-tp", c->parallel.order, p->hsdp,
                           p->size[LS_AXIS_EP], ls_axis_name(a));
    }
    return LS_OK;
}

/* Which values of parallelism are implemented is the plan's business (ls_plan_supported). It is asked for one key after
 * another, so that a message names the one that is refused. */
static ls_status check_plan(const ls_train_config *c, int world_size)
{
    static const struct { const char *key; size_t at; } number[] = {
        { "parallel.tp", offsetof(ls_plan, size[LS_AXIS_TP]) }, { "parallel.pp", offsetof(ls_plan, size[LS_AXIS_PP]) },
        { "parallel.cp", offsetof(ls_plan, size[LS_AXIS_CP]) }, { "parallel.ep", offsetof(ls_plan, size[LS_AXIS_EP]) },
    };
    ls_plan p;
    LS_TRY(ls_train_plan(c, world_size, &p));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        ls_plan one = { .size = { 1, world_size, 1, 1, 1 }, .micro_batch = 1, .micro_batches = 1 };
        memcpy((char *)&one + number[i].at, (const char *)&p + number[i].at, sizeof(int));
        const ls_status st = ls_plan_supported(&one, world_size);
        if (st < 0) return ls_while(st, "checking %s", number[i].key);
    }
    const ls_plan context = { .size = { [LS_AXIS_PP] = 1, 1, 1, p.size[LS_AXIS_CP], 1 }, .context = p.context,
                              .exchange = p.exchange, .micro_batch = 1, .micro_batches = 1 };
    const ls_status rings = ls_plan_supported(&context, p.size[LS_AXIS_CP]);
    if (rings < 0) return ls_while(rings, "checking parallel.%s", p.exchange ? "cp_ulysses" : "context");
    if (p.size[LS_AXIS_PP] > 1 || p.chunks > 1 || p.split) {
        const ls_status st = ls_plan_supported(&p, world_size);
        if (st < 0) return ls_while(st, "checking parallel.pp, pipeline.schedule and pipeline.chunks");
    }
    LS_TRY(check_sets(c, &p));
    const ls_dp_strategy *s;
    LS_TRY(check_strategy(&p, &s));
    LS_TRY(check_packed(c));
    const ls_plan hybrid = { .size = { 1, world_size, 1, 1, 1 }, .ddp.zero_stage = p.ddp.zero_stage, .hsdp = p.hsdp,
                             .micro_batch = 1, .micro_batches = 1 };
    const ls_status sets = ls_plan_supported(&hybrid, world_size);
    if (sets < 0) return ls_while(sets, "checking zero.hsdp");
    if (s->shards && c->zero.hsdp < 2 && strncmp(c->inject, "diverge", 7) == 0)
        return ls_fail(LS_UNSUPPORTED, "--inject diverge with zero.stage %lld: each shard is on one rank, and there is nothing to compare it "
                       "with: use zero.stage 0, or zero.hsdp above 1", (long long)c->zero.stage);
    return s->shards ? check_whole(c) : LS_OK;
}

/* What is accepted above for the versions to come, and what this one supports instead. */
static ls_status check_supported(const ls_train_config *c, int world_size)
{
    LS_TRY(check_plan(c, world_size));
    if (strcmp(c->comm.backend, "nccl") == 0)
        return ls_fail(LS_UNSUPPORTED, "comm.backend %s is not implemented: sched, mpi, auto and gloo are", c->comm.backend);
    return LS_OK;
}

/* Whether ranks can divide a sequence: cp into one or two pieces for each rank, and with sequence parallelism tp what a
 * rank has of it. */
static ls_status check_sequence(const ls_train_config *c)
{
    const bool in_turn = strcmp(c->parallel.cp_split, "contiguous") == 0;
    const int64_t T = ls_train_seq_len(c), cp = c->parallel.cp, pieces = cp == 1 || in_turn ? cp : 2 * cp;
    const int64_t parts = cp * (c->parallel.sp ? c->parallel.tp : 1), unit = pieces % parts == 0   ? pieces
                                                                             : parts % pieces == 0 ? parts
                                                                                                   : pieces * parts;
    const int64_t below = T / unit * unit;
    if (T % pieces == 0 && T % parts == 0) return LS_OK;
    char fit[64], among[96] = "", parts_of[64] = "";
    if (below > 0 && below + unit <= c->model.seq_len)
        snprintf(fit, sizeof fit, "%lld or %lld", (long long)below, (long long)(below + unit));
    else snprintf(fit, sizeof fit, "%lld", (long long)(below > 0 ? below : unit));
    if (cp > 1) snprintf(among, sizeof among, "parallel.cp %lld%s", (long long)cp, pieces > cp ? " (two pieces for each rank)" : "");
    if (parts > cp)
        snprintf(parts_of, sizeof parts_of, "%sparallel.tp %lld (parallel.sp)", cp > 1 ? " and " : "", (long long)c->parallel.tp);
    return ls_fail(LS_BAD_CONFIG, "a sequence of %lld tokens (train.seq_len) cannot be divided by %s%s: expected a multiple of %lld; "
                   "nearest that fit: %s", (long long)T, among, parts_of, (long long)unit, fit);
}

/* What a model of tokens and its data have to do with each other. */
static ls_status check_lm(const ls_train_config *c, int world_size)
{
    static const char *const images[] = { "fashion-mnist", "idx", "synthetic" };
    const char *name = ls_train_data_name(c);
    ls_lm_config lm;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, images[i]) == 0)
            return ls_fail(LS_BAD_CONFIG, "data.name is %s: %s learns from text: tokens, sotu, moby-dick, or a text file or a folder "
                           "of them", name, c->model.name);
    if (strcmp(c->data.format, "idx") == 0)
        return ls_fail(LS_BAD_CONFIG, "data.format is idx: token files are llmc or nanogpt, auto finds out");
    if (strcmp(name, "tokens") == 0 && !*c->data.path)
        return ls_fail(LS_BAD_CONFIG, "data.path is missing: a folder that `lockstep data prepare` made, or a token file; or set "
                       "data.name to sotu, moby-dick or a text file");
    if (strcmp(c->model.init, "torch") == 0)
        return ls_fail(LS_UNSUPPORTED, "model.init torch: only mlp, cnn and timed have PyTorch's initial values; set it to philox");
    LS_TRY(ls_train_lm(c, c->model.vocab_size ? c->model.vocab_size : 1, &lm));
    if (lm.d_model / lm.n_head > LS_ATTENTION_MOST_D)
        return ls_fail(LS_BAD_CONFIG, "model.d_model %lld over model.n_head %lld gives heads of %lld channels: at most %d are supported",
                       (long long)lm.d_model, (long long)lm.n_head, (long long)(lm.d_model / lm.n_head),
                       LS_ATTENTION_MOST_D);
    if (ls_train_seq_len(c) > lm.seq_len)
        return ls_fail(LS_BAD_CONFIG, "train.seq_len is %lld, but the model's longest sequence, model.seq_len, is %lld",
                       (long long)ls_train_seq_len(c), (long long)lm.seq_len);
    LS_TRY(check_sequence(c));
    const int64_t micro = ls_train_micro_batch(c, c->train.global_batch / ls_train_batch_ranks(c, world_size));
    if (micro > MOST_TOKENS / ls_train_seq_len(c))
        return ls_fail(LS_BAD_CONFIG, "train.micro_batch is %lld and a sample has %lld tokens: expected at most %lld tokens at a time on one "
                       "rank: set train.micro_batch to %lld or less (0: all samples of the rank)",
                       (long long)micro, (long long)ls_train_seq_len(c), (long long)MOST_TOKENS,
                       (long long)(MOST_TOKENS / ls_train_seq_len(c)));
    return LS_OK;
}

/* A model of features. */
static ls_status check_features(const ls_train_config *c)
{
    const char *a = c->model.name[0] == 'm' ? "an" : "a"; /* mlp, cnn */
    char names[128];
    const char *words = ls_model_names(LS_LM_KEY, names, sizeof names);
    const char *name = ls_train_data_name(c);
    const int64_t divided = c->parallel.tp > 1 ? c->parallel.tp : c->parallel.cp;
    if (divided > 1)
        return ls_fail(LS_UNSUPPORTED, "parallel.%s is %lld, but %s has no layers that ranks divide; %s have: leave it out",
                       c->parallel.tp > 1 ? "tp" : "cp", (long long)divided, c->model.name, words);
    if (ls_train_dtype(c) != LS_F32)
        return ls_fail(LS_UNSUPPORTED, "train.dtype %s: %s %s trains in f32; %s train in bf16, too", c->train.dtype, a,
                       c->model.name, words);
    if (c->model.dims.n < 2)
        return ls_fail(LS_BAD_CONFIG, "model.dims has %d numbers: expected inputs, widths or channels, classes",
                       c->model.dims.n);
    if (strcmp(name, "fashion-mnist") != 0 && strcmp(name, "idx") != 0 && strcmp(name, "synthetic") != 0)
        return ls_fail(LS_BAD_CONFIG, "data.name is '%s': %s %s learns from fashion-mnist, idx or synthetic; %s from "
                       "text", name, a, c->model.name, words);
    if (strcmp(c->data.format, "auto") != 0 && strcmp(c->data.format, "idx") != 0)
        return ls_fail(LS_BAD_CONFIG, "data.format is %s: %s %s learns from idx files", c->data.format, a, c->model.name);
    return LS_OK;
}

/* PowerSGD puts what it has left out of a step into the next one: what is not finite would stay for good. */
static ls_status check_scaler(const ls_train_config *c)
{
    ls_grad_scaler scaler;
    bool adapts;
    LS_TRY(ls_train_scaler(c, &scaler, &adapts));
    if (!adapts || strcmp(c->ddp.hook, "powersgd") != 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "optim.loss_scale dynamic with ddp.hook powersgd: factors and errors of a skipped step would "
                   "not be finite any more: set optim.loss_scale to none or a number");
}

/* Whether the degrees make up the job. */
static ls_status check_product(const ls_train_config *c, int world_size)
{
    const int64_t same = c->parallel.pp * c->parallel.cp * c->parallel.tp * c->parallel.ep;
    if (same == 1 && c->parallel.dp != 0 && c->parallel.dp != world_size)
        return ls_fail(LS_BAD_CONFIG,
                       "parallel.dp is %lld but the job has %d ranks: the product of the parallel degrees must be the "
                       "number of ranks: set it to %d, or to 0 for all",
                       (long long)c->parallel.dp, world_size, world_size);
    ls_plan p;
    LS_TRY(ls_train_plan(c, world_size, &p));
    const ls_status st = ls_mesh_check(p.size, world_size);
    return st < 0 ? ls_while(st, "checking parallel.dp, parallel.ep, parallel.cp, parallel.tp and parallel.pp") : LS_OK;
}

/* Samples of a step: of each rank that has its own, and of each of its micro-batches. */
static ls_status check_batch(const ls_train_config *c, int world_size)
{
    const int samplers = ls_train_batch_ranks(c, world_size);
    const int64_t batch = c->train.global_batch, micro = c->train.micro_batch, each = batch / samplers;
    char nearest[80];
    if (batch % samplers != 0) {
        const long long unit = samplers * (micro > 0 ? micro : 1), below = batch / unit * unit;
        if (below == 0) snprintf(nearest, sizeof nearest, "nearest that fits is %lld", unit);
        else snprintf(nearest, sizeof nearest, "nearest that fit are %lld and %lld", below, below + unit);
        return ls_fail(LS_BAD_CONFIG, "train.global_batch is %lld, which %d ranks cannot share equally: the %s",
                       (long long)batch, samplers, nearest);
    }
    if (micro == 0 || each % micro == 0) return LS_OK;
    int64_t less = micro < each ? micro : each, more = micro;
    while (each % less != 0) less--;
    while (more < each && each % more != 0) more++;
    if (more > each || more == less) snprintf(nearest, sizeof nearest, "nearest that does is %lld", (long long)less);
    else snprintf(nearest, sizeof nearest, "nearest that do are %lld and %lld", (long long)less, (long long)more);
    return ls_fail(LS_BAD_CONFIG, "train.micro_batch is %lld, which does not divide the %lld samples of a rank: the %s",
                   (long long)micro, (long long)each, nearest);
}

ls_status ls_train_config_check(const ls_train_config *c, int world_size)
{
    double b1, b2;
    ls_lr lr;
    uint32_t first, last;
    ls_injection inject;
    const int64_t same = c->parallel.pp * c->parallel.cp * c->parallel.tp;
    if (c->parallel.pp > 1 && world_size % same == 0) LS_TRY(check_batch(c, world_size)); /* before stages count it */
    LS_TRY(check_supported(c, world_size));
    LS_TRY(ls_train_betas(c, &b1, &b2));
    LS_TRY(ls_train_lr(c, world_size, c->train.steps, &lr));
    LS_TRY(check_scaler(c));
    LS_TRY(ls_train_trace_steps(c, &first, &last));
    LS_TRY(ls_injection_parse(c->inject, world_size, &inject));
    if (c->log.straggler > 0 && c->log.straggler <= 1)
        return ls_fail(LS_BAD_CONFIG, "log.straggler is %g: a rank is slow from so many times the median rank's time on: set it "
                       "above 1, or to 0 for no warning", c->log.straggler);
    const ls_algo *by[LS_COLLS];
    ls_status st = ls_algo_parse(c->comm.algo, by);
    if (st < 0) return ls_while(st, "comm.algo");
    if (*c->comm.transport && (st = ls_transport_check(c->comm.transport)) < 0) return ls_while(st, "reading comm.transport");
    LS_TRY(check_product(c, world_size));
    LS_TRY(check_batch(c, world_size));
    LS_TRY(ls_train_check_invariant(c, world_size));
    bool file = strcmp(c->model.init, "file") == 0;
    if (ls_train_is_lm(c) && strcmp(c->checkpoint.best, "accuracy") == 0)
        return ls_fail(LS_BAD_CONFIG, "checkpoint.best is accuracy, and an evaluation of %s has a loss alone: set it to loss", c->model.name);
    if (c->checkpoint.async && strcmp(c->checkpoint.consolidate, "always") == 0)
        return ls_fail(LS_BAD_CONFIG, "checkpoint.async true with checkpoint.consolidate always: all ranks would stop training for "
                       "each model.safetensors: set checkpoint.consolidate to last or never (`lockstep ckpt merge` makes the file from a "
                       "checkpoint), or checkpoint.async to false");
    if (c->eval_only && strcmp(c->checkpoint.resume, "never") != 0)
        return ls_fail(LS_BAD_CONFIG, "--eval-only reads model.load, and checkpoint.resume %s goes on with a training: leave "
                       "one of them out", c->checkpoint.resume);
    if ((file || c->eval_only) && !*c->model.load)
        return ls_fail(LS_BAD_CONFIG, "%s needs model.load: the safetensors file to read",
                       file ? "model.init file" : "--eval-only");
    return ls_train_is_lm(c) ? check_lm(c, world_size) : check_features(c);
}
