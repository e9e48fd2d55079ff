/* A step in a dry world calls the collectives that ls_train_step calls: the same, in the same order; and counts the
 * events that it writes. */
#include <string.h>

#include "harness.h"
#include "harness_text.h"
#include "meet/page.h"
#include "net/world.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { RANKS = 3, STEPS = 5, MOST = LS_PAGE_HISTORY };

typedef struct call {
    int coll, dtype, op;
    uint64_t bytes;
} call;

typedef struct calls {
    int n;
    call of[MOST];
} calls;

typedef struct run {
    ls_train_config c;
    ls_opts *o;
    ls_model_config mc;
    calls real[RANKS][STEPS];
    ls_train_events wrote[RANKS][STEPS];
    uint64_t waits[RANKS][STEPS];
    int ranks;
} run;

/* --- a real rank: what it said of each call in the world page -------------------------------------- */

/* The number that the next collective in the world's group has. */
static uint32_t next_call(const ls_trainer *t)
{
    ls_coll_desc d;
    return ls_page_last_coll(t->w->page, ls_world_rank(t->w), &d) ? d.seq + 1 : 0;
}

static ls_status read_calls(const ls_trainer *t, uint32_t first, calls *out)
{
    ls_coll_desc newest, d;
    LS_EXPECT(ls_page_last_coll(t->w->page, ls_world_rank(t->w), &newest) && newest.group == 0, "no call in group world");
    out->n = (int)(newest.seq + 1 - first);
    LS_EXPECT(out->n <= MOST, "%d calls, of which the page keeps %d", out->n, MOST);
    for (int i = 0; i < out->n; i++) {
        ls_coll_desc mine = newest;
        mine.seq = first + (uint32_t)i;
        LS_EXPECT(ls_page_find_coll(t->w->page, ls_world_rank(t->w), &mine, &d), "call %d is not in the page", i);
        out->of[i] = (call){ d.coll, d.dtype, d.op, d.count * ls_dtype_size((ls_dtype)d.dtype) };
    }
    return LS_OK;
}

/* What is in the black box of one step. */
static ls_status read_events(const ls_trainer *t, uint32_t step, ls_train_events *out, uint64_t *waits)
{
    const ls_blackbox *box = &t->w->page->rank[ls_world_rank(t->w)].box;
    LS_EXPECT(box->capacity == LS_BLACKBOX_EVENTS && box->count < box->capacity, "%llu events", (unsigned long long)box->count);
    *out = (ls_train_events){ 0 };
    *waits = 0;
    for (uint64_t i = 0; i < box->count; i++) {
        const ls_event *e = &box->ev[i];
        if (e->step != step) continue;
        out->ops += e->kind == LS_EV_OP;
        out->colls += e->kind == LS_EV_COLL;
        *waits += e->kind == LS_EV_WAIT;
        out->marks += e->kind == LS_EV_MARK;
        out->others += e->kind == LS_EV_OPTIM || e->kind == LS_EV_STEP;
    }
    return LS_OK;
}

static ls_status steps(ls_trainer *t, run *x)
{
    for (int i = 0; i < STEPS; i++) {
        ls_step_stats s;
        const uint32_t first = next_call(t);
        LS_TRY(ls_train_step(t, &s));
        const int r = ls_world_rank(t->w);
        LS_TRY(read_events(t, (uint32_t)i + 1, &x->wrote[r][i], &x->waits[r][i]));
        LS_TRY(read_calls(t, first, &x->real[ls_world_rank(t->w)][i]));
        LS_EXPECT(s.comm.ops == (uint64_t)x->real[ls_world_rank(t->w)][i].n, "%llu collectives were counted",
                  (unsigned long long)s.comm.ops);
    }
    return LS_OK;
}

static ls_status real_rank(ls_world *w, void *arg)
{
    run *x = arg;
    ls_trainer *t;
    LS_TRY(ls_trainer_create_in(&x->c, w, NULL, &t));
    const ls_status st = steps(t, x);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

/* --- the same rank in a dry world -------------------------------------------------------------------- */

static void expect_calls(const ls_recorded *had, int n, const calls *want, int rank, int step)
{
    for (int i = 0; i < n && i < want->n; i++) {
        const call *w = &want->of[i];
        const bool same = (int)had[i].coll == w->coll && (int)had[i].dtype == w->dtype && (int)had[i].op == w->op;
        if (same && had[i].bytes == w->bytes) continue;
        fail_msg("rank %d, step %d, call %d: recorded %s of %llu bytes, a real rank calls %s of %llu", rank, step + 1, i,
                 ls_coll_name(had[i].coll), (unsigned long long)had[i].bytes, ls_coll_name((ls_coll)w->coll),
                 (unsigned long long)w->bytes);
    }
    if (n != want->n) fail_msg("rank %d, step %d: %d calls recorded, a real rank makes %d", rank, step + 1, n, want->n);
}

/* How long a rank waits nobody knows before: once for each collective, and for each bucket, at most. */
static void expect_events(const ls_train_events *e, const run *x, int rank, int step)
{
    const ls_train_events *w = &x->wrote[rank][step];
    if (e->ops != w->ops || e->colls != w->colls || e->marks != w->marks || e->others != w->others || w->ops == 0 ||
        w->marks == 0 || w->others != 2)
        fail_msg("rank %d, step %d: counted %llu + %llu + %llu + %llu events, a real rank wrote %llu + %llu + %llu + %llu", rank,
                 step + 1, (unsigned long long)e->ops, (unsigned long long)e->colls, (unsigned long long)e->marks,
                 (unsigned long long)e->others, (unsigned long long)w->ops, (unsigned long long)w->colls,
                 (unsigned long long)w->marks, (unsigned long long)w->others);
    assert_true(x->waits[rank][step] <= w->colls + w->marks);
    assert_int_equal(ls_train_events_most(e), w->ops + 2 * (w->colls + w->marks) + w->others);
}

static void expect_dry(const run *x, int rank)
{
    const ls_world_opts o = ls_train_dry_opts(&x->c);
    ls_train_dry d;
    if (ls_train_dry_open(&x->c, &x->mc, rank, x->ranks, NULL, &o, &d) < 0) fail_msg("%s", ls_last_error());
    for (int i = 0; i < STEPS; i++) {
        const ls_recorded *had;
        ls_train_events e;
        ls_world_record_clear(d.w);
        if (ls_train_dry_count(&x->c, &d, 2, &e) < 0) fail_msg("%s", ls_last_error());
        const int n = ls_world_recorded(d.w, &had);
        expect_calls(had, n, &x->real[rank][i], rank, i);
        expect_events(&e, x, rank, i);
    }
    ls_train_dry_close(&d);
}

/* --- runs ---------------------------------------------------------------------------------------------- */

static run x; /* too large for a stack */

static void set(const char *key, const char *value)
{
    if (ls_opts_set(x.o, key, value, "flag") < 0) fail_msg("%s", ls_last_error());
}

static void a_dry_step_calls_what_a_real_one_calls(void **state)
{
    (void)state;
    static const char *const models[][10] = {
        { "model.name", "mlp", "data.name", "synthetic", "model.dims", "20,31,7" },
        { "model.name", "gpt2", "model.n_layer", "2", "model.d_model", "32", "model.n_head", "4", "model.seq_len", "16" },
    };
    static const char *const ways[][6] = {
        { "zero.stage", "0" },
        { "zero.stage", "1" },
        { "zero.stage", "0", "ddp.bucket_cap", "4KiB", "ddp.first_bucket", "1KiB" },
        { "zero.stage", "1", "ddp.bucket_cap", "4KiB", "ddp.overlap", "false" },
        { "zero.stage", "1", "train.micro_batch", "1", "data.ignore_token", "1" },
        { "zero.stage", "1", "train.dtype", "bf16" },
        { "zero.stage", "0", "train.micro_batch", "1", "comm.transport", "tcp" },
        { "zero.stage", "2", "train.micro_batch", "1" },
        { "zero.stage", "3", "train.micro_batch", "1" },
        { "zero.stage", "2", "train.dtype", "bf16", "ddp.overlap", "false" },
        { "zero.stage", "3", "train.dtype", "bf16", "zero.reduce", "last" },
    };
    for (size_t m = 0; m < COUNT(models); m++)
        for (size_t k = 0; k < 3 * (m == 0 ? 4 : COUNT(ways)); k++) {
            const size_t i = k / 3;
            ls_source source = { 0 };
            ls_memory_plan plan;
            memset(&x, 0, sizeof x);
            x.ranks = (int)(k % 3) + 1;
            assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &x.c, &x.o), LS_OK);
            set("train.global_batch", "6");
            for (size_t f = 0; f < COUNT(models[m]) && models[m][f]; f += 2) set(models[m][f], models[m][f + 1]);
            if (m > 0) set("data.name", text), set("data.path", tokens), set("data.tokenizer", "char");
            for (size_t f = 0; f < COUNT(ways[i]) && ways[i][f]; f += 2) set(ways[i][f], ways[i][f + 1]);
            if (ls_train_config_resolve(x.o, &x.c) < 0 || ls_train_model(&x.c, &source, &x.mc) < 0 ||
                ls_memory_plan_make(&x.c, &x.mc, 0, x.ranks, &plan) < 0)
                fail_msg("%s", ls_last_error());
            const ls_world_opts o = ls_train_world_opts(&x.c, &plan);
            if (ls_world_threads(x.ranks, &o, real_rank, &x) < 0) fail_msg("%zu, %zu, %d ranks: %s", m, i, x.ranks, ls_last_error());
            for (int r = 0; r < x.ranks; r++) expect_dry(&x, r);
            ls_source_free(&source);
            ls_opts_destroy(x.o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_dry_step_calls_what_a_real_one_calls) };
    return cmocka_run_group_tests_name("train_dry", tests, make_text, remove_text);
}
