/* config_values.c -- what the configuration means to other floors (plan, model, optimizer, steps), and defaults that
 * depend on other keys. */
#include "train/config.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/optim.h"
#include "lockstep/parallel.h"
#include "lockstep/world.h"
#include "parallel/strategy.h"
#include "train/load.h"

#define MOST_STEPS ((int64_t)UINT32_MAX) /* as in config.c */

bool ls_train_snapshots(const ls_train_config *c) { return c->checkpoint.snapshot > 0 && !c->eval_only; }
bool ls_train_copies(const ls_train_config *c) { return c->checkpoint.async && !c->eval_only; }

bool ls_train_as_threads(const ls_train_config *c) { return strcmp(c->ranks_as, "threads") == 0; }

bool ls_train_is_lm(const ls_train_config *c)
{
    const ls_model_class *cls = ls_model_class_find(c->model.name);
    return cls && cls->lm;
}

ls_ddp_config ls_train_ddp(const ls_train_config *c)
{
    const bool gathers = c->zero.stage == 3 && strcmp(c->zero.copy, "rank") == 0;
    return (ls_ddp_config){ .first_bucket = c->ddp.first_bucket, .bucket_cap = c->ddp.bucket_cap,
                            .bucket_view = c->ddp.bucket_view, .no_overlap = !c->ddp.overlap,
                            .find_unused = c->ddp.find_unused, .static_graph = c->ddp.static_graph,
                            .tree = ls_train_is_invariant(c),
                            .zero_stage = (int)c->zero.stage, .reduce_last = strcmp(c->zero.reduce, "last") == 0,
                            .copy = gathers ? LS_ZERO_COPY_RANK : LS_ZERO_COPY_HOST,
                            .prefetch = gathers ? (int)c->zero.prefetch : 0,
                            .reshard = strcmp(c->zero.reshard, "always") == 0  ? LS_RESHARD_ALWAYS
                                       : strcmp(c->zero.reshard, "never") == 0 ? LS_RESHARD_NEVER
                                                                               : LS_RESHARD_DEFAULT };
}

/* parallel.order, which names all axes that have several ranks. */
static ls_status read_order(const ls_train_config *c, ls_plan *out)
{
    int named = 0;
    char why[300];
    if (ls_mesh_order_read(c->parallel.order, out->order, &named) < 0) {
        snprintf(why, sizeof why, "%s", ls_last_error());
        return ls_fail(LS_BAD_CONFIG, "parallel.%s", why);
    }
    for (int i = 0; i < LS_AXES - named; i++) {
        const int a = out->order[i];
        if (out->size[a] > 1)
            return ls_fail(LS_BAD_CONFIG, "parallel.order %s: %s, which has %d ranks, is missing", c->parallel.order,
                           ls_axis_name((ls_axis)a), out->size[a]);
    }
    return LS_OK;
}

ls_status ls_train_plan(const ls_train_config *c, int world_size, ls_plan *out)
{
    const int64_t others = c->parallel.pp * c->parallel.ep * c->parallel.cp * c->parallel.tp;
    const int64_t rest = world_size > others ? world_size / others : 1, dp = c->parallel.dp ? c->parallel.dp : rest;
    const int64_t local = c->train.global_batch / (dp * c->parallel.ep);
    const int64_t micro = ls_train_micro_batch(c, local);
    const bool by_stage = strcmp(c->parallel.dp_strategy, "auto") == 0, hooked = strcmp(c->ddp.hook, "none") != 0;
    *out = (ls_plan){
        .size = { [LS_AXIS_PP] = (int)c->parallel.pp,
                  [LS_AXIS_DP] = (int)dp,
                  [LS_AXIS_EP] = (int)c->parallel.ep,
                  [LS_AXIS_CP] = (int)c->parallel.cp,
                  [LS_AXIS_TP] = (int)c->parallel.tp },
        .dp = by_stage ? NULL : c->parallel.dp_strategy,
        .ddp = ls_train_ddp(c),
        .hsdp = (int)c->zero.hsdp,
        .hook = hooked ? c->ddp.hook : NULL,
        .powersgd = { .rank = (int)c->ddp.powersgd_rank,
                      .start = c->ddp.powersgd_start,
                      .no_feedback = !c->ddp.powersgd_feedback,
                      .no_warm_start = !c->ddp.powersgd_warm_start,
                      .seed = (uint64_t)c->train.seed },
        .sequence_parallel = c->parallel.sp,
        .tp_pieces = (int)c->parallel.tp_pieces,
        .context = c->parallel.cp > 1 ? c->parallel.context : NULL,
        .exchange = ls_train_neighbours(c),
        .in_turn = c->parallel.cp > 1 && strcmp(c->parallel.cp_split, "contiguous") == 0,
        .schedule = c->pipeline.schedule,
        .chunks = (int)c->pipeline.chunks,
        .split = c->pipeline.split.n ? c->pipeline.split.v : NULL,
        .nsplit = c->pipeline.split.n,
        .tokens = ls_train_is_lm(c) ? ls_train_seq_len(c) : 0,
        .micro_batch = micro,
        .micro_batches = micro > 0 ? (int)((local + micro - 1) / micro) : 0,
        .dtype = ls_train_dtype(c),
    };
    if (out->ddp.tree) out->ddp.micro_batches = out->micro_batches;
    LS_TRY(read_order(c, out));
    return ls_recompute_find(c->train.recompute, &out->recompute);
}

bool ls_train_exchanges(const ls_train_config *c) { return c->parallel.cp > 1 && strcmp(c->parallel.context, "ulysses-ring") == 0; }

int ls_train_neighbours(const ls_train_config *c)
{
    if (!ls_train_exchanges(c)) return 0;
    return c->parallel.cp_ulysses ? (int)c->parallel.cp_ulysses : 2;
}

const char *ls_train_backend(const ls_train_config *c) { return strcmp(c->comm.backend, "mpi") == 0 ? "mpi" : "sched"; }
ls_dtype ls_train_dtype(const ls_train_config *c) { return strcmp(c->train.dtype, "bf16") == 0 ? LS_BF16 : LS_F32; }

const char *ls_train_data_name(const ls_train_config *c)
{
    return *c->data.name ? c->data.name : ls_train_is_lm(c) ? "tokens" : "fashion-mnist";
}

#define PACKS_FROM 4 /* micro-batches: by then a copy has been worth its price (docs/performance.md) */

bool ls_train_packs(const ls_train_config *c, int world_size)
{
    if (strcmp(c->train.pack_weights, "auto") != 0) return strcmp(c->train.pack_weights, "always") == 0;
    if (c->zero.stage == 3) return false; /* no rank has weights of its own */
    if (ls_train_is_invariant(c)) return false; /* packed products round differently: layouts must not decide */
    const int64_t local = c->train.global_batch / ls_train_batch_ranks(c, world_size);
    return ls_train_dtype(c) == LS_BF16 && c->train.micro_batch > 0 && local / c->train.micro_batch >= PACKS_FROM;
}

int ls_train_batch_ranks(const ls_train_config *c, int world_size)
{
    const int64_t same = c->parallel.pp * c->parallel.cp * c->parallel.tp;
    return world_size > same ? (int)(world_size / same) : 1;
}

int64_t ls_train_seq_len(const ls_train_config *c) { return c->train.seq_len ? c->train.seq_len : c->model.seq_len; }

ls_status ls_train_lm(const ls_train_config *c, int64_t vocab, ls_lm_config *out)
{
    ls_model_config resolved, mc = { .name = c->model.name };
    mc.lm = (ls_lm_config){
        .vocab_size = vocab, .seq_len = c->model.seq_len, .n_layer = c->model.n_layer, .n_head = c->model.n_head,
        .n_kv_head = c->model.n_kv_head, .d_model = c->model.d_model, .d_ff = c->model.d_ff, .tied = c->model.tied,
        .norm_eps = c->model.norm_eps, .rope_theta = c->model.rope_theta, .embd_dropout = c->model.embd_dropout,
        .attn_dropout = c->model.attn_dropout, .resid_dropout = c->model.resid_dropout,
        .n_experts = c->model.n_experts, .top_k = c->model.top_k, .d_expert = c->model.d_expert,
        .shared_expert = c->model.shared_expert, .first_dense = c->model.first_dense, .norm_topk = c->model.norm_topk,
        .drop_by_probability = strcmp(c->moe.drop, "probability") == 0, .capacity_factor = c->moe.capacity_factor,
        .aux_loss = c->moe.aux_loss, .z_loss = c->moe.z_loss, .bias_rate = c->moe.bias_rate,
        .forced_expert = c->moe.force_expert + 1,
    };
    LS_TRY(ls_model_resolve(&mc, &resolved));
    *out = resolved.lm;
    return LS_OK;
}

/* The vocabulary is the data's, unless it is given: it decides after the data is known. */
static ls_status apply_preset(ls_opts *o, const ls_train_config *c)
{
    const ls_model_preset *p = ls_model_preset_find(c->model.preset);
    char names[256], origin[96];
    if (!p)
        return ls_fail(LS_BAD_CONFIG, "model.preset is '%s': expected one of %s", c->model.preset,
                       ls_model_preset_names(names, sizeof names));
    if (ls_opts_is_set(o, "model.name") && strcmp(c->model.name, p->model) != 0)
        return ls_fail(LS_BAD_CONFIG, "model.preset %s is of model.name %s, not %s", p->name, p->model, c->model.name);
    const struct { const char *key; int64_t value; } size[] = {
        { "model.n_layer", p->lm.n_layer }, { "model.n_head", p->lm.n_head }, { "model.n_kv_head", p->lm.n_kv_head },
        { "model.d_model", p->lm.d_model }, { "model.d_ff", p->lm.d_ff },     { "model.seq_len", p->lm.seq_len },
        { "model.n_experts", p->lm.n_experts }, { "model.top_k", p->lm.top_k }, { "model.d_expert", p->lm.d_expert },
    };
    snprintf(origin, sizeof origin, "model.preset %s", p->name);
    if (!ls_opts_is_set(o, "model.name")) LS_TRY(ls_opts_set(o, "model.name", p->model, origin));
    if (!ls_opts_is_set(o, "model.tied")) LS_TRY(ls_opts_set(o, "model.tied", p->lm.tied ? "true" : "false", origin));
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)size[i].value);
        const bool read = ls_model_reads(ls_model_class_find(p->model), size[i].key);
        if (!ls_opts_is_set(o, size[i].key) && read) LS_TRY(ls_opts_set(o, size[i].key, text, origin));
    }
    return LS_OK;
}

bool ls_train_nproc_auto(const ls_train_config *c) { return strcmp(c->nproc_per_node, "auto") == 0; }

int ls_train_nproc(const ls_train_config *c)
{
    const int cpus = ls_train_nproc_auto(c) ? ls_env_get()->cpus() : 0;
    if (cpus > 0) return cpus < LS_HOST_MOST_RANKS ? cpus : LS_HOST_MOST_RANKS;
    char *end;
    const long n = strtol(c->nproc_per_node, &end, 10);
    return end == c->nproc_per_node || *end || n < 0 || n > LS_HOST_MOST_RANKS ? -1 : (int)n;
}

int ls_train_ranks(const ls_train_config *c)
{
    const int64_t product =
        c->parallel.tp * c->parallel.pp * c->parallel.cp * c->parallel.ep * (c->parallel.dp ? c->parallel.dp : 1);
    const int nproc = ls_train_nproc(c);
    return nproc ? nproc : (int)product;
}

ls_status ls_train_optim_defaults(ls_opts *o, const ls_train_config *c, const ls_optim_class *cls)
{
    const ls_optim_config *d = cls ? &cls->defaults : NULL;
    const ls_opt_doubles *b = &c->optim.betas;
    char betas[64];
    if (!d) return LS_OK; /* the name is wrong: whoever creates it says so */
    const struct { const char *key; double now, own; } number[] = {
        { "optim.lr", c->optim.lr, d->lr },    { "optim.momentum", c->optim.momentum, d->momentum },
        { "optim.eps", c->optim.eps, d->eps }, { "optim.weight_decay", c->optim.weight_decay, d->weight_decay },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        const char *key = number[i].key;
        char text[32];
        if (number[i].now == number[i].own || ls_opts_is_set(o, key) || !ls_optim_reads(cls, key)) continue;
        snprintf(text, sizeof text, "%.17g", number[i].own);
        LS_TRY(ls_opts_set(o, key, text, "default"));
    }
    if ((b->n == 2 && b->v[0] == d->beta1 && b->v[1] == d->beta2) || ls_opts_is_set(o, "optim.betas") ||
        !ls_optim_reads(cls, "optim.betas"))
        return LS_OK;
    snprintf(betas, sizeof betas, "%.17g,%.17g", d->beta1, d->beta2);
    return ls_opts_set(o, "optim.betas", betas, "default");
}

/* A strategy that is chosen by name, where no zero.stage is given, has the first of its own. */
static ls_status default_stage(ls_opts *o, const ls_train_config *c)
{
    const char *name = c->parallel.dp_strategy;
    const ls_dp_strategy *s;
    char text[32], origin[96];
    if (strcmp(name, "auto") == 0 || ls_opts_is_set(o, "zero.stage")) return LS_OK;
    LS_TRY(ls_dp_strategy_find(name, NULL, &s));
    if (ls_dp_strategy_has(s, (int)c->zero.stage)) return LS_OK;
    snprintf(text, sizeof text, "%d", s->first_stage);
    snprintf(origin, sizeof origin, "parallel.dp_strategy %s", name);
    return ls_opts_set(o, "zero.stage", text, origin);
}

ls_status ls_train_config_resolve(ls_opts *o, const ls_train_config *c)
{
    if (ls_train_nproc(c) < 0)
        return ls_fail(LS_USAGE, "--nproc-per-node is '%.40s': expected 0 to %d, or auto", c->nproc_per_node, LS_HOST_MOST_RANKS);
    if (*c->model.preset) LS_TRY(apply_preset(o, c));
    LS_TRY(ls_train_load_config(o, c));
    LS_TRY(default_stage(o, c));
    return ls_train_optim_defaults(o, c, ls_optim_class_find(c->optim.name));
}

ls_status ls_train_steps(const ls_train_config *c, int64_t steps_per_epoch, int64_t *out)
{
    const int64_t epochs = c->train.epochs;
    *out = c->train.steps;
    if (*out > 0) return LS_OK;
    if (steps_per_epoch > 0 && epochs > MOST_STEPS / steps_per_epoch)
        return ls_fail(LS_BAD_CONFIG, "train.epochs is %lld: of %lld steps each, a run of at most %lld steps has %lld: lower it or set "
                       "train.steps", (long long)epochs, (long long)steps_per_epoch, (long long)MOST_STEPS,
                       (long long)(MOST_STEPS / steps_per_epoch));
    *out = epochs * steps_per_epoch;
    return LS_OK;
}

ls_status ls_train_betas(const ls_train_config *c, double *beta1, double *beta2)
{
    const ls_opt_doubles *b = &c->optim.betas;
    *beta1 = b->v[0];
    *beta2 = b->v[1];
    return b->n == 2 ? LS_OK
                     : ls_fail(LS_BAD_CONFIG, "optim.betas has %d numbers: expected two, as [0.9, 0.999]", b->n);
}

ls_status ls_train_optim(const ls_train_config *c, ls_optim_config *out)
{
    LS_TRY(ls_optim_defaults(c->optim.name, out));
    out->lr = c->optim.lr;
    out->momentum = c->optim.momentum;
    out->eps = c->optim.eps;
    out->weight_decay = c->optim.weight_decay;
    return ls_train_betas(c, &out->beta1, &out->beta2);
}

ls_status ls_train_lr(const ls_train_config *c, int ranks, int64_t steps, ls_lr *out)
{
    double factor;
    LS_TRY(ls_lr_scale(c->optim.scale_lr, ranks, &factor));
    const double peak = c->optim.lr * factor, low = c->optim.min_lr, ratio = c->optim.min_lr_ratio;
    if (low > 0.0 && ratio > 0.0)
        return ls_fail(LS_BAD_CONFIG, "optim.min_lr is %g and optim.min_lr_ratio is %g: expected only one of them: set the other to 0", low,
                       ratio);
    if (low > peak)
        return ls_fail(LS_BAD_CONFIG, "optim.min_lr is %g, more than optim.lr, which is %g%s%s", low, peak,
                       factor > 1 ? " after optim.scale_lr " : "", factor > 1 ? c->optim.scale_lr : "");
    *out = (ls_lr){
        .peak = peak, .min_ratio = low > 0.0 ? low / peak : ratio, .warmup = c->optim.warmup, .steps = steps,
        .decay = c->optim.decay_steps ? c->optim.decay_steps : steps / 5,
    };
    return ls_lr_find(c->optim.schedule, &out->kind);
}

ls_status ls_train_scaler(const ls_train_config *c, ls_grad_scaler *out, bool *adapts)
{
    const char *text = c->optim.loss_scale;
    char *end;
    double scale = 1.0;
    ls_grad_scaler_init(out);
    *adapts = strcmp(text, "dynamic") == 0;
    if (*adapts) {
        scale = c->optim.scale_init;
        out->growth = c->optim.scale_growth;
        out->backoff = c->optim.scale_backoff;
        out->interval = c->optim.scale_interval;
        if (!(out->backoff > 0.0)) return ls_fail(LS_BAD_CONFIG, "optim.scale_backoff is 0: expected more, and less than 1");
    } else if (strcmp(text, "none") != 0) {
        scale = strtod(text, &end);
        if (end == text || *end)
            return ls_fail(LS_BAD_CONFIG, "optim.loss_scale is '%s': expected none, dynamic or a number above 0", text);
    }
    out->scale = (float)scale;
    if (out->scale >= FLT_MIN && isfinite(out->scale)) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "optim.%s is %g: expected a number from %g to %g", *adapts ? "scale_init" : "loss_scale", scale,
                   (double)FLT_MIN, (double)FLT_MAX);
}

ls_status ls_train_trace_steps(const ls_train_config *c, uint32_t *first, uint32_t *last)
{
    const char *text = c->trace.steps;
    *first = *last = 0;
    if (!*text) return LS_OK;
    char *end;
    unsigned long a = strtoul(text, &end, 10), b = a;
    if (*end == ':') b = strtoul(end + 1, &end, 10);
    if (*end || a < 1 || b < a || b > UINT32_MAX)
        return ls_fail(LS_BAD_CONFIG, "trace.steps is '%s': expected FIRST:LAST, counted from 1, as 3:5", text);
    *first = (uint32_t)a;
    *last = (uint32_t)b;
    return LS_OK;
}
