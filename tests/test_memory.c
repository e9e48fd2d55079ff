/* The plan of a run's memory: what the ledger says after steps and an evaluation, to the byte; and what is said before
 * the first step when it does not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "base/team.h"
#include "group/debug.h"
#include "net/world.h"
#include "harness_text.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
} fixture;

static void set(fixture *f, const char *key, const char *value)
{
    if (ls_opts_set(f->o, key, value, "flag") < 0) fail_msg("%s", ls_last_error());
}

static void begin(fixture *f, const char *model)
{
    *f = (fixture){ 0 };
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o), LS_OK);
    const char *const shape[] = { "model.name", model, "train.global_batch", "8", "train.micro_batch", "4" };
    const char *const lm[] = { "model.n_layer",  "3",   "model.n_head", "4",  "model.d_model", "64",
                               "model.seq_len",  "32",  "data.name",    text, "data.path",     tokens,
                               "data.tokenizer", "char" };
    for (size_t i = 0; i < COUNT(shape); i += 2) set(f, shape[i], shape[i + 1]);
    if (strcmp(model, "mlp") == 0) {
        set(f, "data.name", "synthetic");
        set(f, "model.dims", "20,30,7");
    } else {
        for (size_t i = 0; i < COUNT(lm); i += 2) set(f, lm[i], lm[i + 1]);
    }
}

/* What a whole run calls: steps, an evaluation, a digest, and the ranks meet. */
static ls_status run_all(ls_trainer *t)
{
    ls_step_stats s;
    ls_eval e;
    char digest[33];
    for (int i = 0; i < 3; i++) LS_TRY(ls_train_step(t, &s));
    LS_TRY(ls_train_evaluate(t, &e));
    const ls_values values = ls_ddp_values(t->par.ddp);
    LS_TRY(ls_params_digest_of(&t->par.model->params, &values, digest));
    return ls_barrier(ls_world_group(t->w));
}

static void expect_plan(fixture *f, const char *name)
{
    ls_trainer *t = NULL;
    if (ls_train_config_resolve(f->o, &f->c) < 0 || ls_trainer_create(&f->c, &t) < 0)
        fail_msg("%s: %s", name, ls_last_error());
    if (run_all(t) < 0) fail_msg("%s: %s", name, ls_last_error());
    const ls_ledger *l = ls_world_ledger(t->w);
    size_t total = 0;
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++) {
        if (l->peak[k] != t->plan.bytes[k])
            fail_msg("%s, %s: planned %zu bytes, the ledger's peak is %zu", name, ls_mem_kind_name(k), t->plan.bytes[k],
                     l->peak[k]);
        total += l->peak[k];
    }
    assert_int_equal(ls_arena_size(t->w->arena), t->plan.world_arena);
    assert_int_equal(t->plan.total, total);
    assert_int_equal(ls_arena_mark(t->arena), t->plan.own_arena);
    assert_true(ls_tape_peak(t->par.tape[0]) <= t->plan.tape); /* equal where training takes more than the test */
    if (f->c.train.sample_every == 0 && ls_train_is_lm(&f->c))
        assert_int_equal((ls_tape_peak(t->par.tape[0]) + 63) / 64 * 64, t->plan.tape);
    ls_trainer_destroy(t);
    ls_opts_destroy(f->o);
}

static void the_plan_is_the_ledger_s_peak(void **state)
{
    (void)state;
    static const char *const models[] = { "mlp", "gpt2", "llama" }, *const ways[] = { "none", "selective", "full" },
                             *const dtypes[] = { "f32", "bf16" };
    for (size_t m = 0; m < COUNT(models); m++)
        for (size_t w = 0; w < COUNT(ways); w++)
            for (size_t d = 0; d < COUNT(dtypes); d++) {
                fixture f;
                char name[64];
                begin(&f, models[m]);
                set(&f, "train.recompute", ways[w]);
                set(&f, "train.dtype", dtypes[d]);
                snprintf(name, sizeof name, "%s, %s, recompute %s", models[m], dtypes[d], ways[w]);
                if (ls_train_config_check(&f.c, 1) == LS_OK)
                    expect_plan(&f, name);
                else
                    ls_opts_destroy(f.o); /* an mlp trains in float */
            }
}

/* Copies of weights: four micro-batches want them, and `never` is the first change that is named. */
static void packed_weights_are_in_it(void **state)
{
    (void)state;
    static const char *const dtypes[] = { "f32", "bf16" }, *const ways[] = { "none", "selective", "full" };
    for (int i = 0; i < 6; i++) {
        fixture f;
        char name[64];
        begin(&f, i % 2 ? "gpt2" : "llama");
        set(&f, "train.micro_batch", "2");
        set(&f, "train.dtype", dtypes[i % 2]);
        set(&f, "train.recompute", ways[i / 2]);
        snprintf(name, sizeof name, "packed, %s, recompute %s", dtypes[i % 2], ways[i / 2]);
        if (i % 2) assert_true(ls_train_packs(&f.c, 1) && !ls_train_packs(&f.c, 2));
        set(&f, "train.numerics", "invariant"); /* where the number of ranks must not decide about bits */
        assert_false(ls_train_packs(&f.c, 1));
        set(&f, "train.numerics", "fast");
        set(&f, "train.pack_weights", "always");
        expect_plan(&f, name);
    }
}

/* Partial sums: 0, 2 or 3 of all gradients; or of this rank's rows, which wait where the optimizer reads, one less. */
static void partial_sums_are_in_it(void **state)
{
    (void)state;
    static const char *const models[] = { "mlp", "gpt2" }, *const stages[] = { "0", "1", "2", "3" }, *const grains[] = { "8", "2", "1" };
    for (size_t i = 0; i < COUNT(models) * COUNT(stages) * COUNT(grains); i++) {
        fixture f;
        const char *const model = models[i % 2];
        begin(&f, model);
        set(&f, "zero.stage", stages[i / 2 % 4]);
        set(&f, "train.numerics", "invariant");
        set(&f, "train.grain", grains[i / 8]);
        if (strcmp(model, "gpt2") == 0 && i % 3 == 0) set(&f, "train.dtype", "bf16");
        expect_plan(&f, model);
    }
}

/* Values, or their copies, among what peers map. */
static void shares_are_in_it(void **state)
{
    (void)state;
    static const char *const models[] = { "mlp", "gpt2", "llama", "gpt2" }, *const dtypes[] = { "f32", "bf16", "bf16", "f32" };
    static const char *const stages[] = { "1", "2", "3" };
    for (size_t i = 0; i < COUNT(models) * COUNT(stages); i++) {
        fixture f;
        begin(&f, models[i % COUNT(models)]);
        set(&f, "train.dtype", dtypes[i % COUNT(models)]);
        set(&f, "zero.stage", stages[i / COUNT(models)]);
        expect_plan(&f, models[i % COUNT(models)]);
    }
}

/* The copy of checkpoint.async: 12 bytes an element, and what the trainer adds to its state. */
static void the_copy_for_checkpoints_is_in_it(void **state)
{
    (void)state;
    static const char *const models[] = { "mlp", "gpt2", "llama" }, *const stages[] = { "0", "1", "2", "3" };
    for (size_t i = 0; i < COUNT(models) * COUNT(stages); i++) {
        fixture f;
        ls_source source = { 0 };
        ls_model_config mc;
        ls_memory_plan with, without;
        begin(&f, models[i % COUNT(models)]);
        set(&f, "optim.name", "adamw");
        set(&f, "zero.stage", stages[i / COUNT(models)]);
        assert_int_equal(ls_train_config_resolve(f.o, &f.c), LS_OK);
        assert_int_equal(ls_train_model(&f.c, &source, &mc), LS_OK);
        size_t copy = 0, optim = 0;
        for (int r = 0; r < 3; r++) {
            f.c.checkpoint.async = false;
            assert_int_equal(ls_memory_plan_make(&f.c, &mc, r, 3, &without), LS_OK);
            f.c.checkpoint.async = true;
            assert_int_equal(ls_memory_plan_make(&f.c, &mc, r, 3, &with), LS_OK);
            assert_int_equal(without.bytes[LS_MEM_CKPT], 0);
            assert_int_equal(with.total - without.total, with.bytes[LS_MEM_CKPT]);
            copy += with.bytes[LS_MEM_CKPT];
            optim += with.bytes[LS_MEM_OPTIM] / (i < COUNT(models) ? 3 : 1); /* each of the replicas has all of it */
        }
        /* optimizer state is padded to lines: at most 64 bytes a state of a parameter, of a rank */
        const size_t want = optim / 8 * 12, padding = 3 * 2 * 64 * 12 / 8 * 64;
        if (copy > want + 1024 || copy + padding < want) fail_msg("%s: %zu bytes of copies, %zu of state", models[i % COUNT(models)], copy, optim);
        for (int r = 0; r < 3; r++) { /* two snapshots are two copies */
            f.c.checkpoint.async = true;
            f.c.checkpoint.snapshot = 0;
            assert_int_equal(ls_memory_plan_make(&f.c, &mc, r, 3, &without), LS_OK);
            f.c.checkpoint.async = false;
            f.c.checkpoint.snapshot = 1;
            assert_int_equal(ls_memory_plan_make(&f.c, &mc, r, 3, &with), LS_OK);
            const size_t lines = (with.bytes[LS_MEM_CKPT] / 2 + 63) / 64; /* of an arena */
            assert_int_equal(lines * 64, without.bytes[LS_MEM_CKPT]);
            static const int node[] = { 0, 1, 2 }; /* and each of several nodes has another's, too */
            ls_memory_plan on;
            assert_int_equal(ls_memory_plan_on(&f.c, &mc, r, 3, node, &on), LS_OK);
            assert_int_equal(on.bytes[LS_MEM_CKPT], 2 * with.bytes[LS_MEM_CKPT]);
        }
        set(&f, "checkpoint.snapshot", "1");
        set(&f, "checkpoint.async", "true");
        ls_source_free(&source);
        expect_plan(&f, models[i % COUNT(models)]);
    }
}

static void every_optimizer_and_samples_are_in_it(void **state)
{
    (void)state;
    static const char *const row[][2] = {
        { "optim.name", "adamw" }, { "optim.name", "sgd" }, { "optim.momentum", "0.9" }, { "train.sample_every", "5" }
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        fixture f;
        begin(&f, "gpt2");
        if (strcmp(row[i][0], "optim.momentum") == 0) set(&f, "optim.name", "sgd");
        set(&f, row[i][0], row[i][1]);
        expect_plan(&f, row[i][1]);
    }
}

/* --- each rank's ------------------------------------------------------------------------------- */

typedef struct planned {
    fixture f;
    ls_source source;
    ls_model_config mc;
} planned;

static void open_plan(planned *p, const char *model)
{
    memset(p, 0, sizeof *p);
    begin(&p->f, model);
    if (ls_train_model(&p->f.c, &p->source, &p->mc) < 0)
        fail_msg("%s", ls_last_error());
}

static void close_plan(planned *p)
{
    ls_source_free(&p->source);
    ls_opts_destroy(p->f.o);
}

/* To the byte: the ledger, and the arena, which has not grown. */
static ls_status as_planned(const ls_trainer *t)
{
    const ls_ledger *l = ls_world_ledger(t->w);
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++)
        if (l->peak[k] != t->plan.bytes[k])
            return ls_fail(LS_INTERNAL, "rank %d, %s: planned %zu bytes, the ledger's peak is %zu", ls_world_rank(t->w),
                           ls_mem_kind_name(k), t->plan.bytes[k], l->peak[k]);
    if (ls_arena_size(t->w->arena) == t->plan.world_arena) return LS_OK;
    return ls_fail(LS_INTERNAL, "an arena of %zu bytes was planned, it has %zu", t->plan.world_arena,
                   ls_arena_size(t->w->arena));
}

static ls_status rank_takes_what_was_planned(ls_world *w, void *arg)
{
    fixture *f = arg;
    ls_trainer *t;
    LS_TRY(ls_trainer_create_in(&f->c, w, NULL, &t));
    ls_status st = run_all(t);
    if (st == LS_OK) st = as_planned(t);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

/* How ranks that are threads join, each with the memory of its own plan: arena[ranks]. */
static ls_world_opts of_ranks(const planned *p, const ls_memory_plan *plan, int ranks, size_t *arena)
{
    ls_world_opts o = ls_train_world_opts(&p->f.c, plan);
    assert_int_equal(ls_memory_plan_arenas(&p->f.c, &p->mc, ranks, arena), LS_OK);
    o.arena_of = arena;
    return o;
}

/* Rows that three ranks cannot share evenly; samples, which are the first rank's alone. */
static void every_rank_s_plan_is_its_ledger_s_peak(void **state)
{
    (void)state;
    static const char *const stages[] = { "0", "1", "2", "3" }, *const dtypes[] = { "f32", "bf16" };
    for (int i = 0; i < 8; i++) {
        planned p;
        ls_memory_plan plan;
        open_plan(&p, "gpt2");
        set(&p.f, "train.global_batch", "6");
        set(&p.f, "train.micro_batch", "2");
        set(&p.f, "train.dtype", dtypes[i % 2]);
        set(&p.f, "zero.stage", stages[i / 2]);
        set(&p.f, "train.sample_every", "5");
        assert_int_equal(ls_train_config_resolve(p.f.o, &p.f.c), LS_OK);
        assert_int_equal(ls_memory_plan_make(&p.f.c, &p.mc, 0, 3, &plan), LS_OK);
        size_t arena[3];
        const ls_world_opts o = of_ranks(&p, &plan, 3, arena);
        if (ls_world_threads(3, &o, rank_takes_what_was_planned, &p.f) < 0)
            fail_msg("stage %s, %s: %s", stages[i / 2], dtypes[i % 2], ls_last_error());
        close_plan(&p);
    }
}

/* Partial sums of all gradients, and of each rank's rows. */
static void plans_with_partial_sums_are_ledgers_peaks(void **state)
{
    (void)state;
    static const char *const transports[] = { "shm", "tcp" }, *const stages[] = { "0", "1", "2" };
    for (int i = 0; i < 6; i++) {
        planned p;
        ls_memory_plan plan;
        size_t arena[2];
        open_plan(&p, "gpt2");
        set(&p.f, "train.numerics", "invariant");
        set(&p.f, "comm.transport", transports[i % 2]);
        set(&p.f, "zero.stage", stages[i / 2]);
        assert_int_equal(ls_train_config_resolve(p.f.o, &p.f.c), LS_OK);
        assert_int_equal(ls_memory_plan_make(&p.f.c, &p.mc, 0, 2, &plan), LS_OK);
        const ls_world_opts o = of_ranks(&p, &plan, 2, arena);
        if (ls_world_threads(2, &o, rank_takes_what_was_planned, &p.f) < 0)
            fail_msg("stage %s, %s: %s", stages[i / 2], transports[i % 2], ls_last_error());
        close_plan(&p);
    }
}

/* --- first values in memory of their own ------------------------------------------------------------- */

enum { WIDE = 8192 }; /* rows of the largest matrix, of 64 elements each */

/* A gpt2 whose largest matrix is larger than the activations of a few tokens. */
static void open_wide(planned *p, const char *stage, const char *samples, const char *length)
{
    static const char *const wide[] = { "model.n_layer", "1", "model.d_ff", "8192", "train.dtype", "bf16",
                                        "train.pack_weights", "never" };
    memset(p, 0, sizeof *p);
    begin(&p->f, "gpt2");
    for (size_t i = 0; i < COUNT(wide); i += 2) set(&p->f, wide[i], wide[i + 1]);
    set(&p->f, "train.micro_batch", samples);
    set(&p->f, "train.seq_len", length);
    set(&p->f, "zero.stage", stage);
    if (ls_train_config_resolve(p->f.o, &p->f.c) < 0 || ls_train_model(&p->f.c, &p->source, &p->mc) < 0)
        fail_msg("%s", ls_last_error());
}

/* In bf16 the floats of one parameter at a time have memory, of kind activations, until the model is wrapped: of
 * the two the larger one is the peak. */
static void first_values_and_activations_do_not_add_up(void **state)
{
    (void)state;
    static const struct { const char *samples, *length; bool room; } row[] = { { "1", "2", true }, { "4", "32", false } };
    static const char *const stages[] = { "1", "2", "3" };
    for (size_t i = 0; i < COUNT(row) * COUNT(stages); i++) {
        const bool room = row[i % COUNT(row)].room;
        const char *stage = stages[i / COUNT(row)];
        for (int ranks = 1; ranks <= 2; ranks++) {
            planned p;
            ls_memory_plan m;
            open_wide(&p, stage, row[i % COUNT(row)].samples, row[i % COUNT(row)].length);
            if (ls_memory_plan_make(&p.f.c, &p.mc, 0, ranks, &m) < 0) fail_msg("%s", ls_last_error());
            assert_int_equal(m.tape < WIDE * 64 * sizeof(float), room);
            assert_int_equal(m.bytes[LS_MEM_ACT], room ? WIDE * 64 * sizeof(float) : m.tape);
            size_t arena[2];
            const ls_world_opts o = of_ranks(&p, &m, ranks, arena);
            if (ls_world_threads(ranks, &o, rank_takes_what_was_planned, &p.f) < 0)
                fail_msg("stage %s, %d ranks, %s samples: %s", stage, ranks, row[i % COUNT(row)].samples, ls_last_error());
            close_plan(&p);
        }
    }
}

/* A gpt2 whose shards on two ranks end at cache lines: by elements, those with a copy in bf16 apart. */
enum { GPT2_MATRICES = (3 * 12 * 64 + 15) * 64, GPT2_REST = (3 * 13 + 2 + 32) * 64 };

/* Bytes of `kind` that rank `rank` of `size` takes. */
static size_t planned_for(const planned *p, int rank, int size, ls_mem_kind kind)
{
    ls_memory_plan plan;
    if (ls_memory_plan_make(&p->f.c, &p->mc, rank, size, &plan) < 0) fail_msg("%s", ls_last_error());
    return plan.bytes[kind];
}

/* 8 bytes of the optimizer's state per element that a rank owns: without shards per element, with them per element of
 * all ranks together. Values in float stay where they are read, and go where copies are read in their place. */
static void a_share_takes_what_the_formula_says(void **state)
{
    (void)state;
    static const char *const dtypes[] = { "f32", "bf16" };
    for (int i = 0; i < 4; i++) {
        const int size = i < 2 ? 1 : 2, bf16 = i % 2;
        planned p;
        open_plan(&p, "gpt2");
        set(&p.f, "optim.name", "adamw");
        set(&p.f, "train.dtype", dtypes[bf16]);
        assert_int_equal(ls_train_config_resolve(p.f.o, &p.f.c), LS_OK);
        const size_t all = 4 * (GPT2_MATRICES + GPT2_REST) + (bf16 ? 2 * GPT2_MATRICES : 0);
        size_t sum = 0, values = 0;
        for (int rank = 0; rank < size; rank++) {
            p.f.c.zero.stage = 0;
            assert_int_equal(planned_for(&p, rank, size, LS_MEM_OPTIM), 8 * (GPT2_MATRICES + GPT2_REST));
            assert_int_equal(planned_for(&p, rank, size, LS_MEM_PARAM), all);
            p.f.c.zero.stage = 1;
            sum += planned_for(&p, rank, size, LS_MEM_OPTIM);
            values += planned_for(&p, rank, size, LS_MEM_PARAM);
        }
        assert_int_equal(sum, 8 * (GPT2_MATRICES + GPT2_REST));
        /* rows of the embedding differ by one from rank to rank */
        assert_int_equal(values, (size_t)size * all - (bf16 ? 4 * (size_t)(size - 1) * GPT2_MATRICES : 0));
        close_plan(&p);
    }
}

/* --- on wires ----------------------------------------------------------------------------------- */

/* On each rank: a bucket that ranks share by rows is packed in one place, which is as large as the largest one. */
typedef struct wired {
    fixture *f;
    size_t place; /* that is wanted, bytes */
} wired;

static ls_status wired_rank(ls_world *w, void *arg)
{
    const wired *x = arg;
    ls_trainer *t;
    LS_TRY(ls_trainer_create_in(&x->f->c, w, NULL, &t));
    ls_status st = run_all(t);
    const size_t place = ls_debug_look(t->par.mesh.replicas).packed;
    if (st == LS_OK) st = as_planned(t);
    if (st == LS_OK && place != x->place)
        st = ls_fail(LS_INTERNAL, "%zu bytes to pack in, expected %zu", place, x->place);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

static void a_bucket_is_packed_where_the_plan_says(void **state)
{
    (void)state;
    static const int hosts[] = { 0, 0, 1, 1 };
    enum { /* largest: attn.c_attn, ln_1, and the c_proj of the block before */
        all = (3 * (12 * 64 * 64 + 13 * 64) + (15 + 32 + 2) * 64) * sizeof(float),
        largest = (3 * 64 * 64 + 3 * 64 + 2 * 64 + 4 * 64 * 64 + 64) * sizeof(float),
        floats = (20 * 13 * 64 + (32 + 2) * 64) * sizeof(float) /* more than the largest matrix */
    };
    static const struct {
        const char *key[6][2];
        int ranks;
        const int *node;
        size_t place;
    } row[] = {
        { { { "zero.stage", "1" } }, 2, NULL, 0 },
        { { { "zero.stage", "1" }, { "comm.backend", "gloo" } }, 2, NULL, 0 }, /* another name for sched */
        { { { "zero.stage", "1" }, { "comm.transport", "tcp" } }, 2, NULL, all },
        { { { "zero.stage", "1" }, { "comm.transport", "tcp" }, { "train.dtype", "bf16" } }, 3, NULL, all },
        { { { "zero.stage", "1" }, { "comm.transport", "tcp" }, { "ddp.bucket_cap", "80KiB" }, { "ddp.first_bucket", "1KiB" },
            { "comm.progress", "thread" } }, 2, NULL, largest },
        { { { "zero.stage", "1" }, { "comm.transport", "tcp" }, { "train.dtype", "bf16" }, { "ddp.bucket_cap", "1" },
            { "ddp.first_bucket", "1" }, { "model.n_layer", "20" } }, 2, NULL, floats },
        { { { "zero.stage", "1" }, { "comm.algo", "ring" } }, 2, NULL, all },
        { { { "zero.stage", "1" } }, 4, hosts, all },
        { { { "zero.stage", "0" }, { "comm.transport", "tcp" } }, 2, NULL, 0 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        planned p;
        ls_memory_plan plan;
        open_plan(&p, "gpt2");
        set(&p.f, "train.global_batch", "12");
        set(&p.f, "train.micro_batch", "1");
        for (size_t k = 0; k < COUNT(row[i].key) && row[i].key[k][0]; k++)
            set(&p.f, row[i].key[k][0], row[i].key[k][1]);
        assert_int_equal(ls_train_config_resolve(p.f.o, &p.f.c), LS_OK);
        p.mc.lm.n_layer = p.f.c.model.n_layer;
        assert_int_equal(ls_memory_plan_on(&p.f.c, &p.mc, 0, row[i].ranks, row[i].node, &plan), LS_OK);
        ls_world_opts o = ls_train_world_opts(&p.f.c, &plan);
        o.node = row[i].node;
        if (o.node) o.transport = "mixed";
        wired x = { &p.f, row[i].place };
        if (ls_world_threads(row[i].ranks, &o, wired_rank, &x) < 0) fail_msg("row %zu: %s", i, ls_last_error());
        close_plan(&p);
    }
}

/* --- what communication takes: closed forms -------------------------------------------------------- */

#define UP(n)    (((n) + 63) / 64 * 64)
#define SLOTS    ((size_t)(4 * 256 + 2 * 512) << 10) /* of private vectors: four, and two for whole ones */
#define LIST     ((size_t)64)                        /* of pipes, for up to 8 ranks */
#define MATRICES ((size_t)(3 * (4 * 64 + 3 * 256) + 15) * 64 * sizeof(float)) /* 3 layers, 15 characters */
#define BUCKET   (MATRICES + (size_t)7 * 64 * sizeof(float)) /* with the norms: each begins a line */
#define PIPE     ((size_t)(64 * 64 + (256 << 10)) + 3 * 64) /* cells, bytes, a line each of who takes, who counts,
                                                               who helps */
#define ROW      ((size_t)64 * 8)                    /* of the channels to a rank */

/* Every rank is in two groups: the world's, and one of its own, for the axes of a single rank. With DDP over a wire it
 * is in a second one of all ranks, too. On a wire a ring has no
 * scratch, recursive doubling receives a whole vector there, and what travels as bf16 is written down in 2 bytes per
 * element. A ring of two ranks has two lanes, with a pipe each. */
static void communication_takes_what_its_parts_take(void **state)
{
    (void)state;
    const size_t groups = UP(ls_group_bytes(2)) + UP(ls_group_bytes(1)), second = UP(ls_group_bytes(2));
    const struct {
        const char *key[8][2];
        int ranks;
        size_t want;
    } row[] = {
        { { { NULL } }, 1, UP(ls_group_bytes(1)) },
        { { { NULL } }, 2, groups + LIST + SLOTS },
        /* parameters are short; a description of them all is not */
        { { { "model.n_layer", "20" }, { "model.d_model", "16" } }, 2, groups + LIST + SLOTS },
        { { { "model.n_layer", "2" }, { "model.d_model", "16" } }, 2, groups + LIST },
        { { { "comm.transport", "tcp" }, { "comm.algo", "ring" } }, 2, groups + second },
        { { { "comm.transport", "tcp" }, { "comm.algo", "ring" }, { "zero.stage", "1" } }, 2, groups + BUCKET },
        /* one place from the start, for the largest that travels: a matrix of the mlp, or all norms together */
        { { { "comm.transport", "tcp" }, { "comm.algo", "ring" }, { "zero.stage", "1" }, { "model.d_model", "16" },
            { "ddp.bucket_cap", "1" }, { "ddp.first_bucket", "1" } }, 2, groups + sizeof(float) * 16 * 64 },
        { { { "comm.transport", "tcp" }, { "comm.algo", "ring" }, { "zero.stage", "1" }, { "model.d_model", "16" },
            { "ddp.bucket_cap", "1" }, { "ddp.first_bucket", "1" }, { "train.dtype", "bf16" }, { "model.n_layer", "40" } },
          2, groups + sizeof(float) * 16 * (2 * 40 + 1) },
        { { { "comm.transport", "tcp" }, { "comm.algo", "recursive_doubling" } }, 2, groups + second + BUCKET },
        { { { "comm.transport", "tcp" }, { "comm.algo", "direct" }, { "comm.wire", "bf16" } }, 2, groups + second + BUCKET / 2 },
        { { { "comm.transport", "fault:shm" }, { "comm.algo", "ring" } }, 2, groups + second + LIST + ROW + 2 * PIPE },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        planned p;
        ls_memory_plan plan;
        memset(&p, 0, sizeof p);
        begin(&p.f, "llama");
        for (size_t k = 0; k < COUNT(row[i].key) && row[i].key[k][0]; k++)
            set(&p.f, row[i].key[k][0], row[i].key[k][1]);
        assert_int_equal(ls_train_config_resolve(p.f.o, &p.f.c), LS_OK);
        assert_int_equal(ls_train_model(&p.f.c, &p.source, &p.mc), LS_OK);
        if (ls_memory_plan_make(&p.f.c, &p.mc, 0, row[i].ranks, &plan) < 0) fail_msg("row %zu: %s", i, ls_last_error());
        if (plan.bytes[LS_MEM_COMM] != row[i].want)
            fail_msg("row %zu: communication takes %zu bytes, expected %zu", i, plan.bytes[LS_MEM_COMM], row[i].want);
        const ls_world_opts o = ls_train_world_opts(&p.f.c, &plan);
        if (row[i].ranks > 1 && ls_world_threads(row[i].ranks, &o, rank_takes_what_was_planned, &p.f) < 0)
            fail_msg("row %zu: %s", i, ls_last_error());
        close_plan(&p);
    }
}

/* --- threads of a rank: scratch memory of each --------------------------------------------------- */

static int eight_cores(void) { return 8; }
static const char *threads_not_told(const char *name)
{
    return strcmp(name, "OMP_NUM_THREADS") == 0 ? NULL : ls_env_real.getenv(name);
}
static const char *three_threads(const char *name)
{
    return strcmp(name, "OMP_NUM_THREADS") == 0 ? "3" : ls_env_real.getenv(name);
}

/* Activations of a rank of `size`, planned by a thread whose loops take `threads`, and do so after that, too. */
static size_t acts(planned *p, const char *(*told)(const char *), int threads, int size, const int *node)
{
    ls_memory_plan plan;
    ls_env env = ls_env_real;
    env.cpus = eight_cores;
    env.getenv = told;
    ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
    const int before = ls_team_resize(threads);
    if (ls_memory_plan_on(&p->f.c, &p->mc, 0, size, node, &plan) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_team_resize(before), threads);
    ls_context_swap(was);
    return plan.bytes[LS_MEM_ACT];
}

static void plans_with_the_threads_of_a_rank(void **state)
{
    (void)state;
    static const int two_nodes[] = { 0, 0, 1, 1 };
    planned p;
    open_plan(&p, "gpt2");
    set(&p.f, "train.recompute", "full");
    set(&p.f, "train.global_batch", "16");
    set(&p.f, "train.micro_batch", "1");
    const size_t one = acts(&p, three_threads, 1, 4, NULL), two = acts(&p, three_threads, 2, 4, NULL),
                 four = acts(&p, three_threads, 4, 4, NULL);
    assert_true(one < two && two < four);                                     /* as many as it was told */
    assert_int_equal(acts(&p, threads_not_told, 8, 4, NULL), two);            /* 8 cores, 4 ranks */
    assert_int_equal(acts(&p, threads_not_told, 8, 4, two_nodes), four);      /* 2 of them here */
    assert_int_equal(acts(&p, threads_not_told, 1, 4, NULL), one);            /* never more than it has */
    assert_int_equal(acts(&p, threads_not_told, 8, 16, NULL), acts(&p, three_threads, 1, 16, NULL)); /* too few cores */
    close_plan(&p);
}

/* --- when it does not fit ----------------------------------------------------------------------- */

static size_t total(planned *p, const char *recompute, int64_t micro, int size)
{
    ls_memory_plan plan;
    ls_train_config c = p->f.c;
    c.train.recompute = recompute;
    c.train.micro_batch = micro;
    assert_int_equal(ls_memory_plan_make(&c, &p->mc, 0, size, &plan), LS_OK);
    return plan.total;
}

/* Whether rank `rank` of `size` fits where rank r is on node[r]; its plan is made so. */
static ls_status check_rank(const planned *p, int rank, int size, int here, const int *node)
{
    ls_memory_plan plan;
    const ls_memory_ranks r = { .size = size, .here = here, .rank = rank, .node = node };
    if (ls_memory_plan_on(&p->f.c, &p->mc, rank, size, node, &plan) < 0) fail_msg("%s", ls_last_error());
    return ls_memory_check(&p->f.c, &p->mc, &r, &plan);
}

static void expect_advice(planned *p, size_t limit, int here, const char *says)
{
    p->f.c.memory.limit = limit * (size_t)here;
    assert_int_equal(check_rank(p, 0, here, here, NULL), LS_NO_MEMORY);
    if (!strstr(ls_last_error(), says)) fail_msg("'%s' is not in '%s'", says, ls_last_error());
}

static void names_the_cheapest_change_that_fits(void **state)
{
    (void)state;
    planned p;
    open_plan(&p, "gpt2");
    set(&p.f, "zero.stage", "3"); /* which would come before all others */
    for (int here = 1; here <= 2; here++) {
        const size_t none = total(&p, "none", 4, here), selective = total(&p, "selective", 4, here),
                     full = total(&p, "full", 4, here), full1 = total(&p, "full", 1, here);
        assert_true(none > selective && selective > full && full > full1);
        p.f.c.memory.limit = none * (size_t)here;
        assert_int_equal(check_rank(&p, 0, here, here, NULL), LS_OK);
        expect_advice(&p, none - 1, here, "; train.recompute selective fits: ");
        expect_advice(&p, selective - 1, here, "; train.recompute full fits: ");
        expect_advice(&p, full - 1, here,
                      total(&p, "none", 2, here) < full ? "; train.micro_batch 2 fits: "
                                                        : "; train.micro_batch 1 fits: ");
        expect_advice(&p, full1, here, "; train.micro_batch 1 with train.recompute full fits: ");
        expect_advice(&p, 1 << 20, here,
                      "; neither recompute nor smaller micro-batches are enough: use model parallelism (parallel.tp, "
                      "parallel.cp, parallel.pp)");
    }
    close_plan(&p);
}

static void names_the_largest_micro_batch_that_fits(void **state)
{
    (void)state;
    planned p;
    open_plan(&p, "gpt2");
    p.f.c.train.recompute = "full";
    p.f.c.train.global_batch = p.f.c.train.micro_batch = 48;
    expect_advice(&p, total(&p, "full", 16, 1), 1, "; train.micro_batch 16 fits: "); /* not only halves of 48 */
    expect_advice(&p, total(&p, "full", 3, 1), 1, "; train.micro_batch 3 fits: ");
    close_plan(&p);
}

static void names_a_share_of_the_state_first(void **state)
{
    (void)state;
    planned p;
    open_plan(&p, "gpt2");
    const size_t whole = total(&p, "none", 4, 2);
    set(&p.f, "zero.stage", "1");
    const size_t shared = total(&p, "none", 4, 2), full1 = total(&p, "full", 1, 2);
    set(&p.f, "zero.stage", "0");
    assert_true(shared < whole && full1 < total(&p, "full", 1, 2));
    expect_advice(&p, shared, 2, "; zero.stage 1 fits: ");
    expect_advice(&p, full1, 2, "; train.micro_batch 1 with train.recompute full with zero.stage 1 fits: ");
    set(&p.f, "parallel.dp_strategy", "ddp"); /* which has no other stage */
    const size_t full = total(&p, "full", 4, 2);
    assert_true(full >= shared); /* another stage would do */
    expect_advice(&p, full, 2, "; train.recompute full fits: ");
    close_plan(&p);
}

static void names_packed_weights_first(void **state)
{
    (void)state;
    planned p;
    ls_memory_plan plan;
    open_plan(&p, "gpt2");
    set(&p.f, "train.micro_batch", "2");
    set(&p.f, "train.dtype", "bf16");
    assert_int_equal(ls_memory_plan_make(&p.f.c, &p.mc, 0, 1, &plan), LS_OK);
    if (plan.packed > 0) expect_advice(&p, plan.total - 1, 1, "; train.pack_weights never fits: ");
    close_plan(&p);
}

static void says_what_is_needed_and_what_takes_it(void **state)
{
    (void)state;
    planned p;
    char want[160];
    ls_memory_plan plan;
    open_plan(&p, "gpt2");
    assert_int_equal(ls_memory_plan_make(&p.f.c, &p.mc, 0, 2, &plan), LS_OK);
    snprintf(want, sizeof want,
             "2 ranks on this machine need %.1f MiB, but 1.0 MiB are available; a rank's: communication %.1f",
             2.0 * (double)plan.total / 1048576.0, (double)plan.bytes[LS_MEM_COMM] / 1048576.0);
    expect_advice(&p, 1 << 19, 2, want);
    close_plan(&p);
}

static void a_trainer_refuses_and_can_be_told_not_to(void **state)
{
    (void)state;
    fixture f;
    ls_trainer *t;
    begin(&f, "llama");
    set(&f, "memory.limit", "1MiB");
    assert_int_equal(ls_trainer_create(&f.c, &t), LS_NO_MEMORY);
    assert_null(t);
    assert_non_null(strstr(ls_last_error(), "(memory.check false starts all the same)"));
    set(&f, "memory.check", "false");
    if (ls_trainer_create(&f.c, &t) < 0) fail_msg("%s", ls_last_error());
    ls_trainer_destroy(t);
    ls_opts_destroy(f.o);
}

/* --- on several nodes ----------------------------------------------------------------------------- */

static const int two_nodes[] = { 0, 0, 1, 1 };
enum { NODES_RANKS = 4 };

static size_t total_on(const planned *p, int rank, const int *node)
{
    ls_memory_plan plan;
    if (ls_memory_plan_on(&p->f.c, &p->mc, rank, NODES_RANKS, node, &plan) < 0) fail_msg("%s", ls_last_error());
    return plan.total;
}

/* A gpt2 whose buckets are packed between nodes and not within one: each rank of two nodes needs more memory. */
static void open_nodes(planned *p)
{
    open_plan(p, "gpt2");
    set(&p->f, "train.micro_batch", "1");
    set(&p->f, "zero.stage", "1");
    assert_true(total_on(p, 0, two_nodes) > total_on(p, 0, NULL));
}

static ls_status rank_of_two_nodes(ls_world *w, void *arg)
{
    fixture *f = arg;
    ls_trainer *t;
    LS_TRY(ls_trainer_create_in(&f->c, w, NULL, &t));
    ls_trainer_destroy(t);
    return LS_OK;
}

static ls_status start_on_two_nodes(planned *p, size_t limit)
{
    ls_memory_plan plan;
    if (ls_memory_plan_on(&p->f.c, &p->mc, 0, NODES_RANKS, two_nodes, &plan) < 0) fail_msg("%s", ls_last_error());
    ls_world_opts o = ls_train_world_opts(&p->f.c, &plan);
    o.node = two_nodes;
    o.transport = "mixed";
    p->f.c.memory.limit = limit;
    return ls_world_threads(NODES_RANKS, &o, rank_of_two_nodes, &p->f);
}

static void a_trainer_compares_the_plan_of_its_nodes(void **state)
{
    (void)state;
    planned p;
    open_nodes(&p);
    const size_t one = total_on(&p, 0, NULL), two = total_on(&p, 0, two_nodes);
    assert_int_equal(start_on_two_nodes(&p, one + (two - one) / 2), LS_NO_MEMORY); /* a rank may have fewer threads */
    if (start_on_two_nodes(&p, two) < 0) fail_msg("%s", ls_last_error());
    close_plan(&p);
}

/* Rank 0 writes samples, for which it puts the model together; the others do not. */
static void each_rank_needs_what_its_own_plan_says(void **state)
{
    (void)state;
    planned p;
    open_nodes(&p);
    set(&p.f, "zero.stage", "3");
    set(&p.f, "zero.copy", "rank");
    set(&p.f, "train.sample_every", "5");
    const size_t last = total_on(&p, NODES_RANKS - 1, two_nodes);
    assert_true(last < total_on(&p, 0, two_nodes));
    p.f.c.memory.limit = last;
    assert_int_equal(check_rank(&p, NODES_RANKS - 1, NODES_RANKS, 1, two_nodes), LS_OK);
    assert_int_equal(check_rank(&p, 0, NODES_RANKS, 1, two_nodes), LS_NO_MEMORY);
    close_plan(&p);
}

static void a_change_fits_if_it_does_on_these_nodes(void **state)
{
    (void)state;
    planned p;
    open_nodes(&p);
    const size_t one = total_on(&p, 0, NULL), two = total_on(&p, 0, two_nodes);
    set(&p.f, "zero.stage", "0");
    assert_true(two < total_on(&p, 0, two_nodes));
    p.f.c.memory.limit = two;
    assert_int_equal(check_rank(&p, 0, NODES_RANKS, 1, two_nodes), LS_NO_MEMORY);
    assert_non_null(strstr(ls_last_error(), "; zero.stage 1 fits: "));
    p.f.c.memory.limit = two - 1;
    assert_true(one < two);
    assert_int_equal(check_rank(&p, 0, NODES_RANKS, 1, two_nodes), LS_NO_MEMORY);
    assert_null(strstr(ls_last_error(), "; zero.stage 1 fits: "));
    close_plan(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_the_ledger_s_peak),
        cmocka_unit_test(packed_weights_are_in_it),
        cmocka_unit_test(partial_sums_are_in_it),
        cmocka_unit_test(plans_with_partial_sums_are_ledgers_peaks),
        cmocka_unit_test(shares_are_in_it),
        cmocka_unit_test(the_copy_for_checkpoints_is_in_it),
        cmocka_unit_test(every_optimizer_and_samples_are_in_it),
        cmocka_unit_test(every_rank_s_plan_is_its_ledger_s_peak),
        cmocka_unit_test(first_values_and_activations_do_not_add_up),
        cmocka_unit_test(a_share_takes_what_the_formula_says),
        cmocka_unit_test(a_bucket_is_packed_where_the_plan_says),
        cmocka_unit_test(communication_takes_what_its_parts_take),
        cmocka_unit_test(plans_with_the_threads_of_a_rank),
        cmocka_unit_test(names_the_cheapest_change_that_fits),
        cmocka_unit_test(names_the_largest_micro_batch_that_fits),
        cmocka_unit_test(names_a_share_of_the_state_first),
        cmocka_unit_test(names_packed_weights_first),
        cmocka_unit_test(says_what_is_needed_and_what_takes_it),
        cmocka_unit_test(a_trainer_refuses_and_can_be_told_not_to),
        cmocka_unit_test(a_trainer_compares_the_plan_of_its_nodes),
        cmocka_unit_test(each_rank_needs_what_its_own_plan_says),
        cmocka_unit_test(a_change_fits_if_it_does_on_these_nodes),
    };
    return cmocka_run_group_tests_name("memory", tests, make_text, remove_text);
}
