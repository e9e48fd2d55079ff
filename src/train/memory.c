/* memory.c -- the memory of a run, planned in dry worlds. Whether there is as much: memory_check.c. */
#include "train/memory.h"

#include <stdlib.h>
#include <string.h>

#include "lockstep/decode.h"
#include "net/world.h"
#include "train/feed.h"
#include "train/memory_units.h"

#define PAGE 4096u /* arenas are multiples of it */

static size_t up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

ls_status ls_train_model(const ls_train_config *c, ls_source *source, ls_model_config *out)
{
    *out = (ls_model_config){ .name = c->model.name,
                              .dims = c->model.dims.v,
                              .ndims = c->model.dims.n,
                              .activation = c->model.activation,
                              .forward_ms = c->model.forward_ms.v, .nforward_ms = c->model.forward_ms.n,
                              .backward_ms = c->model.backward_ms.v, .nbackward_ms = c->model.backward_ms.n,
                              .init = strcmp(c->model.init, "torch") == 0 ? LS_INIT_TORCH : LS_INIT_PHILOX,
                              .seed = (uint64_t)c->train.seed };
    if (!ls_train_is_lm(c)) return LS_OK;
    int64_t vocab = c->model.vocab_size;
    if (!source && vocab == 0)
        return ls_fail(LS_BAD_CONFIG, "model.vocab_size is missing: no data are read here that would say it");
    if (source) LS_TRY(ls_source_find(c, source));
    if (source) LS_TRY(ls_source_vocab(c, source, &vocab));
    return ls_train_lm(c, vocab, &out->lm);
}

/* --- the plan ---------------------------------------------------------------------------- */

/* With pipeline stages: what tapes share, and the tapes of each chunk, which keep what its forward does. */
static ls_status plan_stages(const ls_train_config *c, int size, ls_train_dry *d, int64_t test_rows,
                             ls_memory_plan *out)
{
    const ls_parallel *par = &d->par;
    int at = 0;
    void *p;
    LS_TRY(ls_train_dry_evaluate(c, d, test_rows));
    out->tape = up(ls_tape_scratch_peak(par->scratch) + 1, LS_MEMORY_UNIT);
    for (int k = 0; k < par->nchunks; k++)
        for (int i = 0; i < ls_pipe_slots_of(par->pipe, k); i++) {
            const size_t peak = up(ls_tape_peak(par->tape[at++]), LS_MEMORY_UNIT);
            if (peak > out->chunk[k]) out->chunk[k] = peak;
        }
    for (int k = 0; k < par->nchunks; k++) out->tapes += (size_t)ls_pipe_slots_of(par->pipe, k) * out->chunk[k];
    if (!ls_train_packs(c, size)) return LS_OK;
    out->packed = ls_tape_packed_bytes(par->tape[0]);
    return ls_arena_alloc(d->own, out->packed, LS_MEM_PARAM, &p);
}

/* All that a run calls, whose steps are all like the second: buckets have been rebuilt. The tape is as large as the
 * larger of a micro-batch of training and some rows of a test. */
static ls_status plan_steps(const ls_train_config *c, int size, ls_train_dry *d, ls_memory_plan *out)
{
    const bool lm = ls_train_is_lm(c);
    const int64_t each = c->train.global_batch / ls_train_batch_ranks(c, size), local = each > 0 ? each : 1;
    const int64_t micro = ls_train_micro_batch(c, local);
    const int64_t tokens = lm ? ls_train_seq_len(c) : 0, test_rows = lm ? micro : LS_FEED_TEST_ROWS;
    const ls_tape_mode test = { .dtype = ls_train_dtype(c), .evaluate = true };
    void *p;
    const int steps = strcmp(c->ddp.hook, "powersgd") == 0 ? LS_TRAIN_DRY_SETTLED : 2; /* factors come with the third */
    for (int i = 0; i < steps; i++) LS_TRY(ls_train_dry_step(c, d, micro));
    LS_TRY(ls_train_dry_end(d));
    if (ls_parallel_staged(&d->par)) return plan_stages(c, size, d, test_rows, out);
    const size_t a = ls_tape_peak(d->par.tape[0]);
    const size_t b = ls_model_tape_bytes_in(d->par.model, test_rows, tokens, &test);
    if (b == 0) return LS_INVALID; /* and the sentence says why */
    out->tape = up(a > b ? a : b, LS_MEMORY_UNIT);
    if (!ls_train_packs(c, size)) return LS_OK;
    out->packed = ls_tape_packed_bytes(d->par.tape[0]);
    return ls_arena_alloc(d->own, out->packed, LS_MEM_PARAM, &p);
}

size_t ls_memory_samples(const ls_train_config *c, const ls_parallel *par)
{
    const ls_params *ps = &par->model->params;
    size_t n = 0;
    const bool divided = ls_parallel_divides(par);
    if (c->train.sample_every == 0 || !ls_train_is_lm(c) || !par->mesh.speaks) return 0;
    if (!divided && ls_ddp_values_stay(par->ddp)) return 0;
    for (int i = 0; i < ls_params_total(ps); i++) {
        const ls_param *p = ls_params_at(ps, i);
        ls_tensor whole = p->t;
        ls_part_shape(&p->part, &p->t, whole.dim);
        if (divided || !whole.data) n += up(ls_tensor_nbytes(&whole), LS_MEMORY_UNIT);
    }
    return n;
}

static ls_status plan_samples(const ls_train_config *c, ls_train_dry *d)
{
    void *p;
    const size_t nbytes = ls_memory_samples(c, &d->par);
    return nbytes ? ls_arena_alloc(d->own, nbytes, LS_MEM_PARAM, &p) : LS_OK;
}

/* Of the whole model, whatever of it is here. */
static ls_status plan_decoder(ls_train_dry *d, ls_decoder **out)
{
    ls_model *whole = NULL;
    if (ls_parallel_divides(&d->par)) LS_TRY(ls_model_create(d->mc, &whole));
    const ls_status st = ls_decoder_create_dry(whole ? whole : d->par.model, ls_world_ledger(d->w), out);
    ls_model_destroy(whole);
    return st;
}

ls_status ls_memory_plan_of(const ls_train_config *c, ls_train_dry *d, ls_memory_plan *out)
{
    const ls_ledger *l = ls_world_ledger(d->w);
    const int size = ls_world_size(d->w);
    ls_decoder *decoder = NULL;
    *out = (ls_memory_plan){ 0 };
    ls_status st = plan_steps(c, size, d, out);
    if (st < 0) return ls_while(st, "planning the memory of a step");
    if (c->train.sample_every > 0 && ls_train_is_lm(c) && d->par.mesh.speaks)
        LS_TRY(plan_decoder(d, &decoder));
    LS_TRY(plan_samples(c, d));
    memcpy(out->bytes, l->peak, sizeof out->bytes);
    /* first values may have had memory of this kind, which is given back before there are activations */
    const size_t act = l->now[LS_MEM_ACT] + out->tape + out->tapes;
    if (out->bytes[LS_MEM_ACT] < act) out->bytes[LS_MEM_ACT] = act;
    ls_decoder_destroy(decoder);
    out->own_arena = ls_arena_mark(d->own);
    const size_t shared = ls_parallel_shares_tapes(&d->par) ? up(out->tape, LS_MEMORY_UNIT) + out->tapes : 0;
    out->world_arena = up(ls_arena_mark(d->w->arena) + shared, PAGE);
    for (int k = 0; k < LS_MEM_KINDS; k++) out->total += out->bytes[k];
    return LS_OK;
}

/* `units` may be NULL. */
static ls_status plan_rank(const ls_train_config *c, const ls_model_config *mc, int rank, int size, const int *node,
                           ls_memory_plan *out, ls_memory_units *units)
{
    const ls_world_opts o = ls_train_dry_opts(c);
    ls_train_config settled;
    ls_train_dry d;
    *out = (ls_memory_plan){ 0 };
    (void)ls_train_dry_settle(c, &settled);
    ls_status st = ls_train_dry_open(&settled, mc, rank, size, node, &o, &d);
    if (st == LS_OK) st = ls_memory_plan_of(&settled, &d, out);
    if (st == LS_OK && units) st = ls_memory_units_copy(ls_world_ledger(d.w), units);
    ls_train_dry_close(&d);
    return st;
}

ls_status ls_memory_plan_on(const ls_train_config *c, const ls_model_config *mc, int rank, int size, const int *node,
                            ls_memory_plan *out)
{
    return plan_rank(c, mc, rank, size, node, out, NULL);
}

ls_status ls_memory_plan_units(const ls_train_config *c, const ls_model_config *mc, int rank, int size,
                               const int *node, ls_memory_plan *out, ls_memory_units *units)
{
    *units = (ls_memory_units){ 0 };
    return plan_rank(c, mc, rank, size, node, out, units);
}

ls_status ls_memory_plan_make(const ls_train_config *c, const ls_model_config *mc, int rank, int size,
                              ls_memory_plan *out)
{
    return ls_memory_plan_on(c, mc, rank, size, NULL, out);
}

ls_status ls_memory_plan_arenas(const ls_train_config *c, const ls_model_config *mc, int size, size_t *arena)
{
    for (int r = 0; r < size; r++) {
        ls_memory_plan p;
        LS_TRY(ls_memory_plan_make(c, mc, r, size, &p));
        arena[r] = p.world_arena;
    }
    return LS_OK;
}

ls_status ls_memory_plan_largest(const ls_train_config *c, const ls_model_config *mc, int size, int *rank,
                                 ls_memory_plan *most)
{
    const int stages = c->parallel.pp <= size ? (int)c->parallel.pp : 1;
    int apart[LS_AXES];
    ls_plan plan;
    LS_TRY(ls_train_plan(c, size, &plan));
    ls_mesh_strides(plan.size, plan.order, apart);
    *rank = 0;
    *most = (ls_memory_plan){ 0 };
    for (int s = 0; s < stages; s++) {
        ls_memory_plan p;
        LS_TRY(ls_memory_plan_make(c, mc, s * apart[LS_AXIS_PP], size, &p));
        if (s > 0 && p.total <= most->total) continue;
        *most = p;
        *rank = s * apart[LS_AXIS_PP];
    }
    return LS_OK;
}
