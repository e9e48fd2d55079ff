/* parallelize_check.c -- which plans are supported, and which fit a model; it needs no ranks. */
#include "train/parallelize.h"

#include <stdio.h>
#include <string.h>

#include "model/moe.h"

/* The sizes of an axis that divide n, the nearest below and above `size`: "2 or 4". */
static const char *nearest_divisors(int64_t n, int size, char *buf, size_t room)
{
    int64_t below = size - 1, above = size + 1;
    while (below > 1 && n % below != 0) below--;
    while (above < n && n % above != 0) above++;
    if (above > n) snprintf(buf, room, "%lld", (long long)below);
    else snprintf(buf, room, "%lld or %lld", (long long)below, (long long)above);
    return buf;
}

/* How many divisors n has but 1 and n, and which: "2, 3 or 6". */
static int divisors_between(int n, char *buf, size_t room)
{
    int count = 0, last = 0;
    size_t at = 0;
    buf[0] = 0;
    for (int d = 2; d < n; d++)
        if (n % d == 0) last = d;
    for (int d = 2; d < n && at < room; d++) {
        if (n % d != 0) continue;
        at += (size_t)snprintf(buf + at, room - at, "%s%d", count++ == 0 ? "" : d == last ? " or " : ", ", d);
    }
    return count;
}

/* Heads of keys are divided, too; if they are fewer than the ranks, each is on several. */
static bool keys_fit(const ls_lm_config *lm, int64_t tp)
{
    const int64_t n = lm->n_kv_head;
    return lm->n_head % tp == 0 && (n < tp ? tp % n == 0 : n % tp == 0);
}

static ls_status check_keys(const ls_lm_config *lm, int tp)
{
    int64_t below = tp - 1, above = tp + 1;
    char fit[48];
    if (tp < 2 || lm->n_kv_head < 1 || keys_fit(lm, tp)) return LS_OK;
    while (below > 1 && !keys_fit(lm, below)) below--;
    while (above <= lm->n_head && !keys_fit(lm, above)) above++;
    if (above > lm->n_head) snprintf(fit, sizeof fit, "%lld", (long long)below);
    else snprintf(fit, sizeof fit, "%lld or %lld", (long long)below, (long long)above);
    return ls_fail(LS_BAD_CONFIG, "plan: tp %d neither divides model.n_kv_head, which is %lld, nor is a multiple of it: nearest valid: %s", tp,
                   (long long)lm->n_kv_head, fit);
}

/* Heads that ranks of cp exchange, of those that a rank of tp has. */
static ls_status check_heads(const ls_plan *p, const ls_lm_config *lm)
{
    const struct { int64_t n; const char *what; } row[] = { { lm->n_head, "model.n_head" }, { lm->n_kv_head, "model.n_kv_head" } };
    const bool rings = p->exchange > 0;
    const int64_t tp = p->size[LS_AXIS_TP];
    const int U = rings ? p->exchange : p->size[LS_AXIS_CP];
    char fit[48], of[32] = "";
    if (!p->context || (!rings && strcmp(p->context, "ulysses") != 0)) return LS_OK;
    if (tp > 1) snprintf(of, sizeof of, "%d x tp %lld", U, (long long)tp);
    else snprintf(of, sizeof of, "%d", U);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const int64_t here = row[i].n < tp ? 1 : row[i].n / tp;
        if (row[i].n < 1 || here % U == 0) continue;
        return ls_fail(LS_BAD_CONFIG, "plan: %s exchanges heads: %s %s does not divide %s, which is %lld: nearest valid: %s; ring and gather take "
                       "any number of heads", p->context, rings ? "exchange" : "cp", of, row[i].what, (long long)row[i].n,
                       nearest_divisors(here, U, fit, sizeof fit));
    }
    return LS_OK;
}

/* Axes that cut a dimension of the model into equal parts. (A vocabulary, and the width of an mlp, are cut by
 * ls_shard_range; parts differ. Sequences need not be as long as the model allows: ls_cp_tokens looks at them.) */
static ls_status check_model(const ls_plan *p, const ls_model_class *cls, const ls_model_config *mc)
{
    const ls_lm_config *lm = &mc->lm;
    char names[128];
    const struct { ls_axis axis; int64_t n; const char *what; } row[] = {
        { LS_AXIS_TP, lm->n_head, "model.n_head" },
        { LS_AXIS_EP, lm->n_experts, "model.n_experts" },
    };
    char fit[48];
    if (p->size[LS_AXIS_EP] > 1 && cls != &ls_model_moe)
        return ls_fail(LS_UNSUPPORTED, "plan: ep is %d, but %s has no experts: expected ep 1, or model moe", p->size[LS_AXIS_EP], cls->name);
    for (int a = LS_AXIS_CP; a <= LS_AXIS_TP && !cls->lm; a++)
        if (p->size[a] > 1)
            return ls_fail(LS_UNSUPPORTED,
                           "plan: %s is %d, but %s has no layers that ranks divide; %s have: expected %s 1",
                           ls_axis_name((ls_axis)a), p->size[a], cls->name,
                           ls_model_names(LS_LM_KEY, names, sizeof names), ls_axis_name((ls_axis)a));
    for (size_t i = 0; cls->lm && i < sizeof row / sizeof *row; i++) {
        const int size = p->size[row[i].axis];
        if (size < 2 || row[i].n < 1 || row[i].n % size == 0) continue;
        return ls_fail(LS_BAD_CONFIG, "plan: %s %d does not divide %s, which is %lld: nearest valid: %s",
                       ls_axis_name(row[i].axis), size, row[i].what, (long long)row[i].n,
                       nearest_divisors(row[i].n, size, fit, sizeof fit));
    }
    return cls->lm ? check_keys(lm, p->size[LS_AXIS_TP]) : LS_OK;
}

ls_status ls_plan_strategy(const ls_plan *p, const ls_dp_strategy **out)
{
    char range[32] = "";
    if (!p->dp) return ls_dp_strategy_of(p->ddp.zero_stage, out);
    const ls_status st = ls_dp_strategy_find(p->dp, p->own_dp, out);
    if (st < 0) return ls_while(st, "checking dp of the plan");
    const ls_dp_strategy *s = *out;
    if (ls_dp_strategy_has(s, p->ddp.zero_stage)) return LS_OK;
    if (s->last_stage > s->first_stage) snprintf(range, sizeof range, " to %d", s->last_stage);
    return ls_fail(LS_BAD_CONFIG, "plan: dp is '%s', but zero_stage is %d: expected zero_stage %d%s, or another dp (NULL: "
                   "what zero_stage means)", s->name, p->ddp.zero_stage, s->first_stage, range);
}

/* What only some stages have. */
static ls_status check_sharded(const ls_ddp_config *c)
{
    const bool gathers = c->zero_stage == 3 && c->copy == LS_ZERO_COPY_RANK;
    if (c->reduce_last && c->zero_stage < 2)
        return ls_fail(LS_BAD_CONFIG, "plan: reduce_last belongs to zero_stage 2 and 3, and zero_stage is %d: expected false", c->zero_stage);
    if (c->copy != LS_ZERO_COPY_HOST && c->zero_stage < 3)
        return ls_fail(LS_BAD_CONFIG, "plan: copy belongs to zero_stage 3, and zero_stage is %d: expected LS_ZERO_COPY_HOST", c->zero_stage);
    if ((c->prefetch != 0 || c->reshard != LS_RESHARD_DEFAULT) && !gathers)
        return ls_fail(LS_BAD_CONFIG, "plan: %s belongs to zero_stage 3 with LS_ZERO_COPY_RANK: expected %s",
                       c->prefetch ? "prefetch" : "reshard", c->prefetch ? "0" : "LS_RESHARD_DEFAULT");
    if (c->prefetch < 0) return ls_fail(LS_BAD_CONFIG, "plan: prefetch is %d: expected 0 or more units", c->prefetch);
    return LS_OK;
}

/* LS_BAD_CONFIG unless there is such a hook. */
static ls_status check_hook(const ls_plan *p, const ls_dp_strategy *s)
{
    ls_comm_hook *h;
    if (!p->hook) return LS_OK;
    LS_TRY(ls_hook_named(p->hook, &p->powersgd, &h));
    h->destroy(h);
    if (!s->shards) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "plan: hook is %s, and strategy %s shards gradients: expected NULL, or zero_stage 0", p->hook, s->name);
}

/* How often the sharded whole is there. */
static ls_status check_copies(const ls_plan *p, int world_size)
{
    char fit[48];
    if (p->ddp.node || p->ddp.column)
        return ls_fail(LS_BAD_CONFIG, "plan: ddp has groups of nodes, which ls_parallelize makes: expected NULL");
    if (p->ddp.shards || p->ddp.copies)
        return ls_fail(LS_BAD_CONFIG, "plan: ddp has groups for hybrid sharding, which ls_parallelize makes: expected NULL, and hsdp");
    if (p->hsdp == 0 || p->hsdp == 1) return LS_OK;
    if (p->ddp.zero_stage == 0)
        return ls_fail(LS_BAD_CONFIG, "plan: hsdp belongs to zero_stage 1 to 3, and zero_stage is 0: expected 1");
    const int replicas = world_size / p->size[LS_AXIS_PP] / p->size[LS_AXIS_TP];
    if (p->hsdp > 1 && p->hsdp <= replicas && replicas % p->hsdp == 0) return LS_OK;
    if (p->hsdp < 1 || p->hsdp > replicas)
        return ls_fail(LS_BAD_CONFIG, "plan: hsdp is %d: expected 1 to %d, the number of ranks", p->hsdp, replicas);
    return ls_fail(LS_BAD_CONFIG, "plan: hsdp %d does not divide the number of ranks, which is %d: nearest valid: %s", p->hsdp,
                   replicas, nearest_divisors(replicas, p->hsdp, fit, sizeof fit));
}

/* Experts have a wrapper of their own. */
static ls_status check_experts(const ls_plan *p)
{
    const int dp = p->size[LS_AXIS_DP];
    char fit[48];
    if (p->size[LS_AXIS_EP] < 2) return LS_OK;
    if (p->hsdp > 1 && dp % p->hsdp != 0)
        return ls_fail(LS_BAD_CONFIG, "plan: hsdp %d does not divide dp, which is %d: with ep %d each set of shards has all experts; "
                       "nearest valid: %s", p->hsdp, dp, p->size[LS_AXIS_EP], nearest_divisors(dp, p->hsdp, fit, sizeof fit));
    if (p->ddp.tree)
        return ls_fail(LS_UNSUPPORTED, "plan: sums of gradients as a tree, and ep is %d: an expert's gradient is a sum over tokens of several "
                       "ranks: expected ep 1", p->size[LS_AXIS_EP]);
    return LS_OK;
}

static ls_status check_dp(const ls_plan *p, int world_size)
{
    LS_TRY(check_experts(p));
    const ls_dp_strategy *s;
    LS_TRY(ls_plan_strategy(p, &s));
    LS_TRY(check_hook(p, s));
    if (s->shards && (p->ddp.find_unused || p->ddp.static_graph))
        return ls_fail(LS_UNSUPPORTED, "plan: %s is true, and strategy %s shards gradients: expected false, or zero_stage 0",
                       p->ddp.find_unused ? "find_unused" : "static_graph", s->name);
    LS_TRY(check_copies(p, world_size));
    return check_sharded(&p->ddp);
}

/* Neighbours that exchange heads: some of cp, but not all. */
static ls_status check_exchange(const ls_plan *p, ls_cp_mode context)
{
    const int cp = p->size[LS_AXIS_CP], U = p->exchange;
    char fit[96];
    if (context != LS_CP_ULYSSES_RING) {
        if (U == 0) return LS_OK;
        return ls_fail(LS_BAD_CONFIG, "plan: exchange belongs to context ulysses-ring: expected 0, and it is %d", U);
    }
    if (U > 1 && U < cp && cp % U == 0) return LS_OK;
    if (divisors_between(cp, fit, sizeof fit) == 0)
        return ls_fail(LS_BAD_CONFIG, "plan: ulysses-ring divides cp again, and cp is %d: expected a product of two numbers above 1; ring and "
                       "ulysses take any", cp);
    return ls_fail(LS_BAD_CONFIG, "plan: %d neighbours of cp %d exchange heads in ulysses-ring: expected %s (ring: 1, ulysses: all)", U, cp, fit);
}

/* Pieces of all_reduces inside a layer. */
static ls_status check_pieces(const ls_plan *p)
{
    if (p->tp_pieces == 0) return LS_OK;
    if (p->tp_pieces < 0 || p->tp_pieces > LS_TP_MOST_PIECES)
        return ls_fail(LS_BAD_CONFIG, "plan: tp_pieces is %d: expected 1 to %d, or 0, as many as are worth it", p->tp_pieces, LS_TP_MOST_PIECES);
    if (p->size[LS_AXIS_TP] < 2)
        return ls_fail(LS_BAD_CONFIG, "plan: tp_pieces belongs to tp above 1, and tp is %d: expected 0", p->size[LS_AXIS_TP]);
    if (p->sequence_parallel)
        return ls_fail(LS_UNSUPPORTED, "plan: tp_pieces is %d, and with sequence_parallel collectives inside a layer are not divided: expected "
                       "0, or sequence_parallel false", p->tp_pieces);
    return LS_OK;
}

static ls_status check_sequence(const ls_plan *p)
{
    ls_cp_mode context = LS_CP_RING;
    if ((p->context || p->in_turn) && p->size[LS_AXIS_CP] < 2)
        return ls_fail(LS_BAD_CONFIG, "plan: %s belongs to cp above 1, and cp is %d: expected %s", p->context ? "context" : "in_turn",
                       p->size[LS_AXIS_CP], p->context ? "NULL" : "false");
    if (p->context) LS_TRY(ls_cp_mode_find(p->context, &context));
    LS_TRY(check_exchange(p, context));
    if (p->sequence_parallel && p->size[LS_AXIS_TP] < 2)
        return ls_fail(LS_BAD_CONFIG, "plan: sequence_parallel belongs to tp above 1, and tp is %d: expected false", p->size[LS_AXIS_TP]);
    return check_pieces(p);
}

ls_pipe_config ls_plan_pipe(const ls_plan *p)
{
    return (ls_pipe_config){ .schedule = p->schedule, .chunks = p->chunks, .micro_batches = p->micro_batches };
}

int ls_plan_stages(const ls_plan *p)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    return p->size[LS_AXIS_PP] * ls_pipe_chunks(&c, p->size[LS_AXIS_PP]);
}

/* What several micro-batches alive at a time leave out. */
static ls_status check_staged(const ls_plan *p)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    if (p->size[LS_AXIS_PP] < 2) {
        if (!p->split && p->chunks < 2) return LS_OK;
        return ls_fail(LS_BAD_CONFIG, "plan: %s belongs to pp above 1, and pp is 1: expected %s", p->split ? "split" : "chunks above 1",
                       p->split ? "NULL" : "1");
    }
    if (p->ddp.find_unused || p->ddp.static_graph)
        return ls_fail(LS_UNSUPPORTED, "plan: %s is true, and pp is %d: expected false, or pp 1",
                       p->ddp.find_unused ? "find_unused" : "static_graph", p->size[LS_AXIS_PP]);
    if (ls_pipe_splits(&c) && p->ddp.zero_stage >= 2 && !p->ddp.reduce_last)
        return ls_fail(LS_UNSUPPORTED, "plan: zero_stage %d reduces a gradient in each backward, and schedule %s has backwards in two "
                       "halves: expected reduce_last, a zero_stage up to 1, or another schedule", p->ddp.zero_stage, p->schedule);
    if (ls_pipe_splits(&c) && p->ddp.tree)
        return ls_fail(LS_UNSUPPORTED, "plan: sums of gradients as a tree, and schedule %s has backwards in two halves: expected another schedule, as "
                       "1f1b", p->schedule);
    return LS_OK;
}

static ls_status check_pipe(const ls_plan *p)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    if (p->micro_batch < 1)
        return ls_fail(LS_BAD_CONFIG, "plan: micro_batch is %lld: expected at least 1 sample per forward", (long long)p->micro_batch);
    LS_TRY(check_staged(p));
    const ls_status st = ls_pipe_check(&c, p->size[LS_AXIS_PP]);
    return st < 0 ? ls_while(st, "checking the plan") : LS_OK;
}

/* What depends on the model, too: there are as many units, and a tied matrix that one rank uses in two chunks stays. */
static ls_status check_stages(const ls_plan *p, const ls_model_class *cls, const ls_model_config *mc)
{
    const ls_pipe_config c = ls_plan_pipe(p);
    const int ranks = p->size[LS_AXIS_PP], stages = ls_plan_stages(p);
    const int64_t units = cls->lm ? 2 * mc->lm.n_layer + 2 : INT64_MAX;
    if (stages > units)
        return ls_fail(LS_BAD_CONFIG, "plan: %d stages of a model that has %lld units (embedding, halves of layers and head): expected at most %lld "
                       "stages, pp by chunks: lower parallel.pp or pipeline.chunks, or raise model.n_layer", stages, (long long)units,
                       (long long)units);
    const bool gathers = p->ddp.zero_stage == 3 && p->ddp.copy == LS_ZERO_COPY_RANK;
    if (ranks > 1 && cls->lm && mc->lm.tied && p->ddp.tree)
        return ls_fail(LS_UNSUPPORTED, "plan: sums of gradients as a tree, and the first and the last of %d stages each add up a part of a tied "
                       "embedding's gradient: expected model.tied false, or pp 1", stages);
    if (ranks == 1 || !cls->lm || !mc->lm.tied || !gathers || ls_pipe_rank_of(&c, ranks, stages - 1) != 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "plan: LS_ZERO_COPY_RANK gathers values chunk by chunk, and schedule %s has a tied embedding in two chunks "
                   "of a rank: expected LS_ZERO_COPY_HOST, model.tied false or another schedule", p->schedule);
}

static ls_status check_numbers(const ls_plan *p, const ls_model_class *cls)
{
    char names[128];
    const int how = (int)p->recompute;
    if (how != LS_RECOMPUTE_NONE && how != LS_RECOMPUTE_SELECTIVE && how != LS_RECOMPUTE_FULL)
        return ls_fail(LS_BAD_CONFIG, "plan: recompute is %d: expected none, selective or full", how);
    if (p->dtype == LS_F32) return LS_OK;
    if (p->dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "plan: dtype is %s: expected f32 or bf16", ls_dtype_name(p->dtype));
    if (cls->lm) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "plan: dtype is bf16, but %s computes in f32 only: expected f32; %s compute in bf16, too",
                   cls->name, ls_model_names(LS_LM_KEY, names, sizeof names));
}

ls_status ls_plan_supported(const ls_plan *p, int world_size)
{
    LS_TRY(check_dp(p, world_size));
    LS_TRY(check_sequence(p));
    return check_pipe(p);
}

ls_status ls_plan_check(const ls_plan *p, const ls_model_config *mc, int world_size)
{
    ls_model_config resolved;
    const ls_model_class *cls;
    LS_TRY(ls_model_class_of(mc, &cls));
    LS_TRY(cls->resolve(mc, &resolved));
    LS_TRY(check_model(p, cls, &resolved));
    LS_TRY(ls_plan_supported(p, world_size));
    LS_TRY(check_stages(p, cls, &resolved));
    LS_TRY(check_heads(p, &resolved.lm));
    LS_TRY(check_numbers(p, cls));
    return ls_mesh_check(p->size, world_size);
}
