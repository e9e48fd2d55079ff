/* memory.c -- the memory of a run: planned, compared with what there is. */
#include "train/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/decode.h"
#include "lockstep/dp.h"
#include "train/feed.h"

#define UNIT            64u                 /* arenas hand out multiples of it, */
#define PAGE            4096u               /* and are multiples of it */
#define COMM_BYTES      ((size_t)2 << 20)   /* group areas and the like, beside the buckets */
#define COMM_PEER_BYTES ((size_t)256 << 10) /* pipes to one peer */
#define MOST_PARTS      1000000             /* micro-batches a step that are thought of */
#define MIB             1048576.0

static const char *const names[LS_MEM_KINDS] = {
    [LS_MEM_PARAM] = "parameters", [LS_MEM_GRAD] = "gradients",     [LS_MEM_OPTIM] = "optimizer",
    [LS_MEM_ACT] = "activations",  [LS_MEM_COMM] = "communication", [LS_MEM_DATA] = "data",
};

static size_t up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
static double mib(size_t n) { return (double)n / MIB; }

ls_status ls_train_model(const ls_train_config *c, ls_source *source, ls_model_config *out)
{
    *out = (ls_model_config){ .name = c->model.name,
                              .dims = c->model.dims.v,
                              .ndims = c->model.dims.n,
                              .activation = c->model.activation,
                              .init = strcmp(c->model.init, "torch") == 0 ? LS_INIT_TORCH : LS_INIT_PHILOX,
                              .seed = (uint64_t)c->train.seed };
    if (!ls_train_is_lm(c)) return LS_OK;
    int64_t vocab;
    LS_TRY(ls_source_find(c, source));
    LS_TRY(ls_source_vocab(c, source, &vocab));
    return ls_train_lm(c, vocab, &out->lm);
}

/* --- the plan ---------------------------------------------------------------------------- */

/* As large as the larger of a micro-batch of training and some rows of a test. */
static ls_status plan_tape(const ls_train_config *c, const ls_model *m, int size, ls_memory_plan *out)
{
    const bool lm = ls_train_is_lm(c);
    const int64_t local = c->train.global_batch / size > 0 ? c->train.global_batch / size : 1;
    const int64_t micro = c->train.micro_batch ? c->train.micro_batch : local;
    const int64_t tokens = lm ? ls_train_seq_len(c) : 0, test_rows = lm ? micro : LS_FEED_TEST_ROWS;
    ls_tape_mode mode = { .dtype = ls_train_dtype(c) };
    LS_TRY(ls_recompute_find(c->train.recompute, &mode.recompute));
    const ls_tape_mode test = { .dtype = mode.dtype, .evaluate = true };
    const size_t a = ls_model_tape_bytes_in(m, micro, tokens, &mode);
    const size_t b = ls_model_tape_bytes_in(m, test_rows, tokens, &test);
    if (a == 0 || b == 0) return ls_fail(LS_INVALID, "planning the memory of a step: %s", ls_last_error());
    out->tape = up(a > b ? a : b, UNIT);
    if (ls_train_packs(c, size)) LS_TRY(ls_model_packed_bytes(m, micro, tokens, &mode, &out->packed));
    return LS_OK;
}

/* Of what rank 0 updates: with zero.stage 1 a share. */
static ls_status plan_state(const ls_params *ps, int size, const ls_ddp_config *dc, const ls_optim_config *oc,
                            size_t *out)
{
    ls_params shares = *ps; /* a list of its own, which learns of shares */
    if (!(shares.item = malloc((size_t)(ps->n + 1) * sizeof *shares.item)))
        return ls_fail(LS_NO_MEMORY, "planning %d parameters", ps->n);
    memcpy(shares.item, ps->item, (size_t)ps->n * sizeof *shares.item);
    const ls_status st = ls_ddp_shard(&shares, 0, size, dc);
    *out = up(ls_optim_state_bytes(oc, &shares), UNIT);
    free(shares.item);
    return st;
}

ls_status ls_memory_plan_make(const ls_train_config *c, const ls_model *m, int size, ls_memory_plan *out)
{
    const ls_params *ps = &m->params;
    const ls_ddp_config dc = ls_train_ddp(c);
    ls_optim_config oc;
    size_t samples = 0, own;
    *out = (ls_memory_plan){ 0 };
    LS_TRY(ls_optim_defaults(c->optim.name, &oc));
    oc.momentum = c->optim.momentum;
    LS_TRY(plan_tape(c, m, size, out));
    if (c->train.sample_every > 0 && ls_train_is_lm(c)) LS_TRY(ls_decoder_bytes(m, &samples));

    LS_TRY(ls_ddp_bind_bytes(ps, size, &dc, ls_train_dtype(c), &out->shared, &own));
    LS_TRY(plan_state(ps, size, &dc, &oc, &out->bytes[LS_MEM_OPTIM]));
    out->bytes[LS_MEM_PARAM] = out->shared + own + out->packed;
    out->bytes[LS_MEM_GRAD] = up(ls_ddp_arena_bytes(ps, size, &dc), UNIT);
    out->bytes[LS_MEM_ACT] = out->tape + samples;
    out->own_arena = own + out->packed + out->bytes[LS_MEM_OPTIM];
    out->world_arena = up(out->shared + out->bytes[LS_MEM_GRAD] + COMM_BYTES + (size_t)size * COMM_PEER_BYTES, PAGE);
    out->bytes[LS_MEM_COMM] = out->world_arena - out->shared - out->bytes[LS_MEM_GRAD];
    for (int k = 0; k < LS_MEM_KINDS; k++) out->total += out->bytes[k];
    return LS_OK;
}

/* --- what fits ------------------------------------------------------------------------------ */

static uint64_t available(const ls_train_config *c)
{
    return c->memory.limit ? c->memory.limit : ls_env_get()->mem_available();
}

static bool fits(const ls_train_config *c, const ls_memory_plan *p, int here)
{
    return p->total <= available(c) / (uint64_t)here;
}

/* Whether it would be served, and needs so little. */
static bool would_do(const ls_train_config *c, const ls_model *m, int size, int here, ls_memory_plan *p)
{
    return ls_train_config_check(c, size) == LS_OK && ls_memory_plan_make(c, m, size, p) == LS_OK && fits(c, p, here);
}

/* The first of `base` with one change that fits; `also` says what base has changed already. False: none does. */
static bool change_that_fits(const ls_train_config *base, const ls_model *m, int size, int here, const char *also,
                             char *out, size_t n)
{
    static const char *const recompute[] = { "selective", "full" };
    ls_memory_plan p;
    const int64_t local = base->train.global_batch / size > 0 ? base->train.global_batch / size : 1;
    const int64_t micro = base->train.micro_batch ? base->train.micro_batch : local;
    ls_train_config changed = *base;
    for (int i = 0; i < 2; i++) {
        changed.train.recompute = recompute[i];
        if (!would_do(&changed, m, size, here, &p)) continue;
        snprintf(out, n, "train.recompute %s%s fits: %.1f MiB a rank", recompute[i], also, mib(p.total));
        return true;
    }
    for (int way = 0; way < 2; way++) {
        changed.train.recompute = way == 0 ? base->train.recompute : "full";
        for (int64_t parts = local / micro + 1; parts <= local && parts <= MOST_PARTS; parts++) {
            if (local % parts != 0) continue;
            changed.train.micro_batch = local / parts;
            if (!would_do(&changed, m, size, here, &p)) continue;
            snprintf(out, n, "train.micro_batch %lld%s%s fits: %.1f MiB a rank", (long long)changed.train.micro_batch,
                     way ? " with train.recompute full" : "", also, mib(p.total));
            return true;
        }
    }
    changed.train.micro_batch = 1;
    changed.train.dtype = "bf16";
    if (!would_do(&changed, m, size, here, &p)) return false;
    snprintf(out, n, "train.dtype bf16, train.micro_batch %lld and train.recompute full%s fit: %.1f MiB a rank",
             (long long)changed.train.micro_batch, also, mib(p.total));
    return true;
}

/* The cheapest change first: a share of the optimizer's state costs nothing, weights that are not packed a few percent
 * of a step, selective a few elementwise ops, full a third more products, smaller micro-batches their efficiency, bf16
 * bits. */
static void cheapest_change(const ls_train_config *c, const ls_model *m, int size, int here, char *out, size_t n)
{
    ls_memory_plan p;
    ls_train_config unpacked = *c, shared = *c;
    unpacked.train.pack_weights = "never";
    shared.zero.stage = 1;
    const bool shares = size > 1 && c->zero.stage == 0;
    if (shares && would_do(&shared, m, size, here, &p))
        snprintf(out, n, "zero.stage 1 fits: %.1f MiB a rank", mib(p.total));
    else if (ls_train_packs(c, size) && would_do(&unpacked, m, size, here, &p))
        snprintf(out, n, "train.pack_weights never fits: %.1f MiB a rank", mib(p.total));
    else if (!change_that_fits(c, m, size, here, "", out, n) &&
             !change_that_fits(&unpacked, m, size, here, " with train.pack_weights never", out, n) &&
             !(shares && change_that_fits(&shared, m, size, here, " with zero.stage 1", out, n)))
        snprintf(out, n,
                 "neither recompute nor smaller micro-batches are enough: use a smaller model, fewer ranks or a "
                 "machine with more memory");
}

static int largest(const ls_memory_plan *p, int but1, int but2)
{
    int most = -1;
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (k != but1 && k != but2 && (most < 0 || p->bytes[k] > p->bytes[most])) most = k;
    return most;
}

ls_status ls_memory_check(const ls_train_config *c, const ls_model *m, int size, int here)
{
    ls_memory_plan p;
    char change[200];
    if (!c->memory.check) return LS_OK;
    LS_TRY(ls_memory_plan_make(c, m, size, &p));
    if (fits(c, &p, here)) return LS_OK;
    cheapest_change(c, m, size, here, change, sizeof change);
    const int a = largest(&p, -1, -1), b = largest(&p, a, -1), d = largest(&p, a, b);
    return ls_fail(LS_NO_MEMORY,
                   "%d rank%s on this machine need%s %.1f MiB, but %.1f MiB are available; a rank's: %s %.1f, %s "
                   "%.1f, %s %.1f MiB; %s (memory.check false starts all the same)",
                   here, here == 1 ? "" : "s", here == 1 ? "s" : "", mib(p.total) * here, (double)available(c) / MIB,
                   names[a], mib(p.bytes[a]), names[b], mib(p.bytes[b]), names[d], mib(p.bytes[d]), change);
}

/* --- before ranks are started ------------------------------------------------------------------ */

static ls_status add_table(const ls_train_config *c, const ls_model *m, int size, ls_text *out)
{
    ls_memory_plan p;
    LS_TRY(ls_memory_plan_make(c, m, size, &p));
    ls_text_add(out, "memory per rank, before the first step:\n%-16s%16s%12s\n", "", "bytes", "MiB");
    for (int k = 0; k < LS_MEM_KINDS; k++)
        if (p.bytes[k]) ls_text_add(out, "%-16s%16zu%12.2f\n", names[k], p.bytes[k], mib(p.bytes[k]));
    ls_text_add(out, "%-16s%16zu%12.2f\n", "total", p.total, mib(p.total));
    ls_text_add(out, "%d rank%s: %.2f MiB of %.2f MiB available", size, size == 1 ? "" : "s", mib(p.total) * size,
                (double)available(c) / MIB);
    if (!fits(c, &p, size)) {
        char change[200];
        cheapest_change(c, m, size, size, change, sizeof change);
        ls_text_add(out, ": does not fit; %s", change);
    }
    ls_text_add(out, "\n");
    return ls_text_status(out);
}

ls_status ls_memory_explain(const ls_train_config *c, int size, ls_text *out)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_model *m = NULL;
    ls_status st = ls_train_model(c, &source, &mc);
    if (st == LS_OK) st = ls_model_create(&mc, &m);
    if (st == LS_OK) st = out ? add_table(c, m, size, out) : ls_memory_check(c, m, size, size);
    ls_model_destroy(m);
    ls_source_free(&source);
    return st;
}
