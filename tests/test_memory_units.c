/* What each unit of a model holds, against closed forms, on every rank, planned and in a run; and how it is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_text.h"
#include "net/world.h"
#include "train/memory_units.h"
#include "train/trainer.h"

#define assert_done(expr)                                                          \
    do {                                                                           \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());           \
    } while (0)

enum { W = 3, C = 64, T = 32, LAYERS = 3, ROOT = 0, EMBEDDING, FIRST_BLOCK, HEAD = FIRST_BLOCK + LAYERS, ROWS };

typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
    ls_source source;
    ls_model_config mc;
} fixture;

static void open_gpt2(fixture *f, const char *dtype, const char *stage)
{
    const char *const key[] = { "model.name", "gpt2", "model.n_layer", "3", "model.n_head", "4", "model.d_model", "64",
                                "model.seq_len", "32", "data.name", text, "data.path", tokens, "data.tokenizer", "char",
                                "train.global_batch", "12", "train.micro_batch", "2", "optim.name", "adamw",
                                "train.dtype", dtype, "zero.stage", stage };
    *f = (fixture){ 0 };
    assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o));
    for (size_t i = 0; i < sizeof key / sizeof *key; i += 2) assert_done(ls_opts_set(f->o, key[i], key[i + 1], "flag"));
    assert_done(ls_train_config_resolve(f->o, &f->c));
    assert_done(ls_train_model(&f->c, &f->source, &f->mc));
}

static void close_gpt2(fixture *f)
{
    ls_source_free(&f->source);
    ls_opts_destroy(f->o);
}

/* --- closed forms ------------------------------------------------------------------------------- */

/* Elements of a unit: of matrices that are read in bf16, those of them that this rank owns, and of all else. */
typedef struct elements {
    size_t matrices, own, others;
    size_t state, padding; /* bytes of one moment, and what fills the cache lines of each parameter */
} elements;

/* Rows that this rank owns; of a vector its elements. */
static size_t mine(size_t rows, bool sharded, int rank)
{
    return sharded ? rows / W + ((size_t)rank < rows % W) : rows;
}

static void add_state(elements *e, size_t n, size_t own)
{
    e->state += n * own * 4;
    e->padding += n * ((64 - own * 4 % 64) % 64);
}

static void add_matrix(elements *e, size_t rows, size_t columns, bool sharded, int rank)
{
    const size_t own = mine(rows, sharded, rank) * columns;
    e->matrices += rows * columns;
    e->own += own;
    add_state(e, 1, own);
}

/* `n` parameters that are read in float. */
static void add_others(elements *e, size_t n, size_t rows, size_t columns, bool sharded, int rank)
{
    e->others += n * rows * columns;
    add_state(e, n, mine(rows, sharded, rank) * columns);
}

static elements elements_of(int row, size_t V, bool sharded, int rank)
{
    elements e = { 0 };
    if (row == ROOT) add_matrix(&e, V, C, sharded, rank);
    else if (row == EMBEDDING) add_others(&e, 1, T, C, sharded, rank); /* positions */
    else if (row == HEAD) add_others(&e, 2, C, 1, sharded, rank);
    else {
        add_matrix(&e, (size_t)3 * C, C, sharded, rank); /* q k v */
        add_matrix(&e, C, C, sharded, rank);
        add_matrix(&e, (size_t)4 * C, C, sharded, rank);
        add_matrix(&e, C, (size_t)4 * C, sharded, rank);
        assert_int_equal(e.matrices, 12 * C * C);
        add_others(&e, 6, C, 1, sharded, rank); /* two norms, and a bias of each product of C */
        add_others(&e, 1, (size_t)3 * C, 1, sharded, rank);
        add_others(&e, 1, (size_t)4 * C, 1, sharded, rank);
        assert_int_equal(e.others, 13 * C);
    }
    return e;
}

static size_t expected(ls_mem_kind k, elements e, bool bf16, int64_t stage)
{
    const size_t all = e.matrices + e.others, floats = (stage > 0 ? e.own : e.matrices) + e.others;
    switch (k) {
    case LS_MEM_PARAM:
        if (stage == 3) return e.state + (bf16 ? 2 * e.own : 0); /* its part of the one copy, and floats beside bf16 */
        return !bf16 ? 4 * all : 4 * floats + 2 * e.matrices;
    case LS_MEM_GRAD: return stage >= 2 ? e.state : 4 * all; /* sums of own elements */
    case LS_MEM_OPTIM: return 2 * e.state; /* both moments */
    default: return 0;
    }
}

/* Gradients of no unit. Stages 0 and 1: each bucket ends at a cache line of each rank, and any assignment to
 * buckets has room. From 2 on: two blocks at a time and the root, each in one bucket, and what fills the last line
 * of the sums. */
static size_t unowned_gradients(size_t V, int64_t stage, size_t sums)
{
    const size_t nparams = 2 + 12 * LAYERS + 2, unit = W * 64, block = 4 * (12 * C * C + 13 * C), root = 4 * V * C;
    if (stage < 2) return nparams * unit;
    return (64 - sums % 64) % 64 + 2 * ((block + unit - 1) / unit * unit) + (root + unit - 1) / unit * unit;
}

static ls_status differs(const char *what, int rank, const char *row, ls_mem_kind k, size_t got, size_t want)
{
    return got == want ? LS_OK : ls_fail(LS_INTERNAL, "%s, rank %d, %s, %s: %zu bytes, expected %zu", what, rank, row,
                                         ls_mem_kind_name(k), got, want);
}

/* Rows of all kinds but activations; and what no unit holds, which makes the rows add up to the kind. */
static ls_status check(const char *what, const fixture *f, int rank, const ls_memory_units *u,
                       const size_t total[LS_MEM_KINDS])
{
    const bool bf16 = strcmp(f->c.train.dtype, "bf16") == 0;
    const int64_t stage = f->c.zero.stage;
    const size_t V = (size_t)f->mc.lm.vocab_size;
    if (u->n != ROWS) return ls_fail(LS_INTERNAL, "%s: %d rows", what, u->n);
    for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++) {
        size_t sum = 0, padding = 0;
        for (int i = 0; i < ROWS; i++) {
            const elements e = elements_of(i, V, stage > 0, rank);
            const size_t want = expected(k, e, bf16, stage), got = u->row[i].peak[k];
            padding += 2 * e.padding;
            if (k != LS_MEM_ACT) LS_TRY(differs(what, rank, u->row[i].name, k, got, want));
            sum += got;
        }
        const size_t rest = ls_memory_no_unit(u, k, total[k]);
        LS_TRY(differs(what, rank, "all rows and no unit", k, sum + rest, total[k]));
        if (sum > total[k]) return ls_fail(LS_INTERNAL, "%s, rank %d, %s: units hold more than there is", what, rank,
                                           ls_mem_kind_name(k));
        if (k == LS_MEM_GRAD) LS_TRY(differs(what, rank, "no unit", k, rest, unowned_gradients(V, stage, sum)));
        if (k == LS_MEM_OPTIM) LS_TRY(differs(what, rank, "no unit", k, rest, padding));
        if (k == LS_MEM_PARAM) LS_TRY(differs(what, rank, "no unit", k, rest, 0));
    }
    return LS_OK;
}

static ls_status rank_holds_what_it_should(ls_world *w, void *arg)
{
    fixture *f = arg;
    const int rank = ls_world_rank(w);
    ls_trainer *t;
    ls_step_stats s;
    ls_eval e;
    ls_memory_plan plan;
    ls_memory_units planned = { 0 };
    ls_status st = LS_OK;
    LS_TRY(ls_trainer_create_in(&f->c, w, NULL, &t));
    for (int i = 0; st == LS_OK && i < 3; i++) st = ls_train_step(t, &s);
    if (st == LS_OK) st = ls_train_evaluate(t, &e);
    if (st == LS_OK) st = ls_memory_plan_units(&f->c, &f->mc, rank, W, NULL, &plan, &planned);
    const ls_ledger *l = ls_world_ledger(w);
    const ls_memory_units held = { l->row, l->nrows };
    if (st == LS_OK) st = check("planned", f, rank, &planned, plan.bytes);
    if (st == LS_OK) st = check("in the run", f, rank, &held, l->peak);
    for (int i = 0; st == LS_OK && i < ROWS; i++) {
        const size_t act = l->row[i].peak[LS_MEM_ACT];
        st = differs("run and plan", rank, l->row[i].name, LS_MEM_ACT, act, planned.row[i].peak[LS_MEM_ACT]);
        if (st == LS_OK && (i == ROOT) != (act == 0)) st = differs("run", rank, l->row[i].name, LS_MEM_ACT, act, 0);
        if (st == LS_OK) st = differs("after the step", rank, l->row[i].name, LS_MEM_ACT, l->row[i].now[LS_MEM_ACT], 0);
        for (ls_mem_kind k = 0; st == LS_OK && k < LS_MEM_KINDS; k++) /* the others never change */
            if (k != LS_MEM_ACT) st = differs("now", rank, l->row[i].name, k, l->row[i].now[k], l->row[i].peak[k]);
    }
    ls_memory_units_free(&planned);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    if (st == LS_OK && l->row) st = ls_fail(LS_INTERNAL, "rank %d: rows of a model that has gone", rank);
    return st;
}

static void every_rank_s_units_hold_what_closed_forms_say(void **state)
{
    (void)state;
    static const char *const stages[] = { "0", "1", "2", "3" };
    for (int i = 0; i < 8; i++) {
        fixture f;
        ls_memory_plan plan;
        open_gpt2(&f, i % 2 ? "bf16" : "f32", stages[i / 2]);
        assert_done(ls_memory_plan_make(&f.c, &f.mc, 0, W, &plan));
        const ls_world_opts o = ls_train_world_opts(&f.c, &plan);
        assert_done(ls_world_threads(W, &o, rank_holds_what_it_should, &f));
        close_gpt2(&f);
    }
}

/* --- on several nodes ---------------------------------------------------------------------------- */

enum { NODES_RANKS = 4 };
static const int two_nodes[NODES_RANKS] = { 0, 0, 1, 1 };

/* A trainer has the units of the plan that it runs with. With a set of shards on each node, sums of own rows lie beside
 * all gradients, 4 bytes of each of a rank's elements, which they do not on one node. */
static ls_status units_of_its_nodes(ls_world *w, void *arg)
{
    fixture *f = arg;
    const int rank = ls_world_rank(w);
    const ls_ledger *l = ls_world_ledger(w);
    ls_trainer *t;
    ls_step_stats s;
    LS_TRY(ls_trainer_create_in(&f->c, w, NULL, &t));
    ls_status st = ls_train_step(t, &s);
    if (st == LS_OK && t->planned.n != ROWS) st = ls_fail(LS_INTERNAL, "%d rows", t->planned.n);
    for (int i = 0; st == LS_OK && i < ROWS; i++) {
        const ls_ledger_row *row = &t->planned.row[i];
        size_t all = 0, own = 0;
        for (int k = 0; k < t->par.model->params.n; k++) {
            const ls_param *p = &t->par.model->params.item[k];
            if (p->unit != i - 1) continue;
            all += (size_t)ls_tensor_count(&p->t);
            own += p->own.count;
        }
        st = differs("beside all gradients", rank, row->name, LS_MEM_GRAD, row->peak[LS_MEM_GRAD], 4 * (all + own));
        for (ls_mem_kind k = 0; st == LS_OK && k < LS_MEM_KINDS; k++)
            st = differs("run and plan", rank, row->name, k, l->row[i].peak[k], row->peak[k]);
    }
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

static void a_trainer_plans_units_on_its_nodes(void **state)
{
    (void)state;
    fixture f;
    ls_memory_plan plan;
    open_gpt2(&f, "f32", "1");
    assert_done(ls_opts_set(f.o, "zero.hsdp", "2", "flag"));
    assert_done(ls_opts_set(f.o, "train.micro_batch", "1", "flag"));
    assert_done(ls_memory_plan_on(&f.c, &f.mc, 0, NODES_RANKS, two_nodes, &plan));
    ls_world_opts o = ls_train_world_opts(&f.c, &plan);
    o.node = two_nodes;
    o.transport = "mixed";
    assert_done(ls_world_threads(NODES_RANKS, &o, units_of_its_nodes, &f));
    close_gpt2(&f);
}

/* --- how it is shown ------------------------------------------------------------------------------ */

static const ls_ledger_row shown[] = {
    { .name = "root" },
    { .name = "embedding", .peak = { [LS_MEM_PARAM] = 100, [LS_MEM_ACT] = 7 } },
    { .name = "h.0", .peak = { [LS_MEM_PARAM] = 200, [LS_MEM_ACT] = 30 } },
    { .name = "h.1", .peak = { [LS_MEM_PARAM] = 200, [LS_MEM_ACT] = 30 } },
    { .name = "h.2", .peak = { [LS_MEM_PARAM] = 200, [LS_MEM_ACT] = 30 } },
    { .name = "head", .peak = { [LS_MEM_PARAM] = 200, [LS_MEM_ACT] = 31 } },
};
enum { SHOWN = sizeof shown / sizeof *shown };

static ls_memory_units units_shown(ls_ledger_row row[SHOWN])
{
    memcpy(row, shown, sizeof shown);
    return (ls_memory_units){ row, SHOWN };
}

static void neighbours_that_hold_the_same_have_one_line(void **state)
{
    (void)state;
    ls_ledger_row row[SHOWN];
    const ls_memory_units u = units_shown(row);
    const ls_memory_plan p = { .bytes = { [LS_MEM_PARAM] = 1000, [LS_MEM_ACT] = 128, [LS_MEM_COMM] = 64 } };
    ls_text out = { 0 };
    ls_memory_units_table(&p, &u, &out);
    assert_string_equal(ls_text_str(&out),
                        "memory per unit, bytes:\n"
                        "                           parameters    activations  communication          total\n"
                        "embedding                         100              7              0            107\n"
                        "h.0 - h.2, each                   200             30              0            230\n"
                        "head                              200             31              0            231\n"
                        "no unit                           100              0             64            164\n"
                        "total                            1000            128             64           1192\n");
    ls_text_free(&out);
}

static void a_kind_s_object_has_every_unit_and_what_none_holds(void **state)
{
    (void)state;
    ls_ledger_row row[SHOWN], now[SHOWN];
    const ls_memory_units planned = units_shown(row), held = units_shown(now);
    now[2].peak[LS_MEM_PARAM] = 150;
    ls_text out = { 0 };
    ls_memory_units_json(&planned, 1000, &held, 960, LS_MEM_PARAM, &out);
    assert_string_equal(ls_text_str(&out), "{\"root\": [0, 0], \"embedding\": [100, 100], \"h.0\": [200, 150], "
                                           "\"h.1\": [200, 200], \"h.2\": [200, 200], \"head\": [200, 200], "
                                           "\"\": [100, 110]}");
    ls_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_s_units_hold_what_closed_forms_say),
        cmocka_unit_test(a_trainer_plans_units_on_its_nodes),
        cmocka_unit_test(neighbours_that_hold_the_same_have_one_line),
        cmocka_unit_test(a_kind_s_object_has_every_unit_and_what_none_holds),
    };
    return cmocka_run_group_tests_name("memory_units", tests, make_text, remove_text);
}
