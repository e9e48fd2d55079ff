/* A mirror: a rank without the others computes what a real rank of the same layout does, operation by operation, and
 * calls as much. Collectives answer as if every other rank had given the same. Its memory is a run's, it learns where
 * its gradients are right, and its errors say that it is a mirror. */
#include "harness.h"
#include "harness_text.h"

#include <math.h>
#include <string.h>

#include "base/team.h"
#include "net/world.h"
#include "plan/step_list.h"
#include "train/measure.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { RANKS = 4, STEPS = 3, MOST = 4096 };

/* --- answers ------------------------------------------------------------------------------------------------ */

static const ls_mirror_opts turns = { .yields = true };

static void others_give_what_this_rank_gives(void **state)
{
    (void)state;
    static const size_t sent[] = { 1, 0, 2 }, came[] = { 2, 2, 1 };
    static const ls_matrix_span rows[] = { { 0, 3, 2, NULL }, { 6, 3, 1, NULL } };
    ls_world *w;
    void *p;
    assert_int_equal(ls_world_mirror(1, 3, NULL, NULL, &turns, &w), LS_OK);
    assert_true(ls_world_is_alone(w) && !ls_world_is_dry(w));
    assert_int_equal(ls_alloc(w, 4096, LS_MEM_DATA, &p), LS_OK);
    ls_group *g = ls_world_group(w);
    float *a = p, *b = a + 64;
    for (int i = 0; i < 9; i++) a[i] = (float)i, b[i] = 0;

    assert_int_equal(ls_all_reduce(g, a, b, 9, LS_F32, LS_SUM), LS_OK);
    assert_memory_equal(a, b, 9 * sizeof *a);
    assert_int_equal(ls_reduce_scatter(g, a, b, 9, LS_F32, LS_SUM), LS_OK);
    assert_memory_equal(b, a + 3, 3 * sizeof *a);
    assert_int_equal(ls_all_gather(g, NULL, a, 9, LS_F32), LS_OK);
    for (int i = 0; i < 9; i++) assert_true(a[i] == (float)(3 + i % 3));

    for (int i = 0; i < 9; i++) a[i] = (float)i;
    ls_coll_args args = { .coll = LS_ALL_TO_ALL, .dtype = LS_F32, .in = a, .out = b, .counts = sent,
                          .recv_counts = came };
    ls_work *k;
    assert_int_equal(ls_coll_start(g, &args, &k), LS_OK);
    assert_int_equal(ls_work_wait(k), LS_OK);
    for (int i = 0; i < 5; i++) assert_true(b[i] == (float)(i % 3)); /* three values, over and over */

    args = (ls_coll_args){ .coll = LS_ALL_GATHER, .dtype = LS_F32, .out = a, .count = 9, .span = rows, .nspans = 2 };
    assert_int_equal(ls_coll_start(g, &args, &k), LS_OK);
    assert_int_equal(ls_work_wait(k), LS_OK);
    static const float gathered[] = { 2, 3, 2, 3, 2, 3, 7, 7, 7 };
    assert_memory_equal(a, gathered, sizeof gathered);

    const ls_p2p op[] = { { .send = a, .count = 4, .dtype = LS_F32, .peer = 0 },
                          { .recv = b, .count = 4, .dtype = LS_F32, .peer = 2 } };
    memset(b, 0xff, 4 * sizeof *b);
    assert_int_equal(ls_p2p_batch(g, op, 2), LS_OK);
    for (int i = 0; i < 4; i++) assert_true((b[i] > .2f && b[i] < .6f) || (b[i] < -.2f && b[i] > -.6f));

    const ls_mirrored did = ls_world_mirrored(w);
    assert_int_equal(did.collectives, 5);
    assert_int_equal(did.messages, 2);
    assert_true(did.wall_ns > 0);
    ls_world_leave(w);
}

/* However long it is, and whether its reader looked at a clock. */
static void messages_are_the_same_numbers(void **state)
{
    (void)state;
    enum { SHORT = 8192, LONG = SHORT + 2 };
    ls_world *w;
    void *x;
    assert_int_equal(ls_world_mirror(0, 2, NULL, NULL, NULL, &w), LS_OK);
    assert_int_equal(ls_alloc(w, (size_t)2 * LONG, LS_MEM_DATA, &x), LS_OK);
    const struct { size_t nbytes; int looks; } row[] = { { SHORT, 0 }, { LONG, 1 }, { 0, 0 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        char *const to = (char *)x + i % 2 * LONG;
        const ls_p2p op = { .recv = to, .count = row[i].nbytes, .dtype = LS_U8, .peer = 1 };
        const int64_t before = ls_world_mirrored(w).looks;
        memset(to, 0xff, row[i].nbytes);
        assert_int_equal(ls_p2p_batch(ls_world_group(w), &op, 1), LS_OK);
        assert_int_equal(ls_world_mirrored(w).looks - before, row[i].looks);
    }
    assert_memory_equal(x, (char *)x + LONG, SHORT);
    ls_world_leave(w);
}

static int yields;
static uint64_t wall, cpu, wall_step = 10;
static void count_yield(void) { yields++; }
static uint64_t next_wall(void) { return wall += wall_step; }
static uint64_t next_cpu(void) { return cpu += 1000; }

/* Of n members the last one finds the others there, unless all wait for all twice; what a call takes is not the rank's.
 * Clocks are looked at around waits, and around calls that are not short. */
static void calls_are_not_the_ranks_time_and_all_but_one_of_n_wait(void **state)
{
    (void)state;
    enum { SHORT = 4, LONG = 1 << 16 };
    const struct { int size, calls, yields; bool messages, sends; size_t count; double waits; } row[] = {
        { 3, 6, 4, false, false, SHORT, 0 }, { 2, 6, 3, false, false, SHORT, 0 }, { 4, 8, 6, false, false, SHORT, 0 },
        { 3, 6, 3, true, false, SHORT, 0 }, { 1, 6, 0, false, false, SHORT, 0 },
        { 2, 6, 6, false, false, LONG, 0 }, { 4, 6, 6, false, false, LONG, 0 }, /* all wait for all, twice */
        { 3, 6, 3, true, true, SHORT, 0 }, { 3, 6, 5, true, true, LONG, 0 }, /* who sends waits, in the next call */
        { 3, 6, 6, true, false, SHORT, 1 }, { 3, 6, 2, true, false, SHORT, 1 / 3. }, { 3, 6, 4, false, false, SHORT, 1 },
    };
    ls_env env = *ls_env_get();
    env.yield = count_yield;
    env.mono_ns = next_wall;
    env.thread_cpu_ns = next_cpu;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_world *w;
        void *x;
        const ls_mirror_opts how = { .yields = true, .message_waits = row[i].waits };
        assert_int_equal(ls_world_mirror(0, row[i].size, NULL, NULL, &how, &w), LS_OK);
        assert_int_equal(ls_alloc(w, LONG * sizeof(float), LS_MEM_DATA, &x), LS_OK);
        memset(x, 0, LONG * sizeof(float));
        ls_group *g = ls_world_group(w);
        const ls_env *before = ls_context_get()->env;
        ls_context_get()->env = &env;
        yields = 0;
        for (int k = 0; k < row[i].calls; k++) {
            const ls_p2p op[] = { { .recv = x, .count = row[i].count, .dtype = LS_F32, .peer = 1 },
                                  { .send = x, .count = row[i].count, .dtype = LS_F32, .peer = 1 } };
            if (row[i].messages) assert_int_equal(ls_p2p_batch(g, op, row[i].sends ? 2 : 1), LS_OK);
            else assert_int_equal(ls_all_reduce(g, NULL, x, row[i].count, LS_F32, LS_SUM), LS_OK);
        }
        const ls_mirrored did = ls_world_mirrored(w);
        const int had = yields;
        if (row[i].count == LONG && !row[i].messages) /* nothing is owed: a short call alone is no whole wait */
            assert_int_equal(ls_all_reduce(g, NULL, x, SHORT, LS_F32, LS_SUM), LS_OK);
        assert_int_equal(yields, had);
        ls_context_get()->env = before;
        assert_int_equal(yields, row[i].yields);
        const bool longs = row[i].count == LONG; /* nothing is written for what a mirror sends */
        const int shorts = (longs ? 0 : row[i].calls) + (row[i].sends ? row[i].calls : 0);
        const uint64_t took = did.cpu_ns - 1010 * (uint64_t)did.looks, least = 10 * (uint64_t)shorts;
        assert_int_equal(did.looks, row[i].yields + (longs ? row[i].calls : 0));
        /* a message takes from one look at the wall's clock to the next; a collective looks at it, too */
        assert_true(row[i].messages || longs ? took == least : took >= least);
        if (!longs) assert_int_equal(did.wall_ns, 30 * (uint64_t)did.looks + took);
        ls_world_leave(w);
    }
}

/* A start and a wait: long works have times of their own, which are read within both. */
static void starting_and_waiting_are_not_the_ranks_time(void **state)
{
    (void)state;
    ls_env env = *ls_env_get();
    env.mono_ns = next_wall;
    ls_work *k;
    ls_world *w;
    void *x;
    assert_int_equal(ls_world_mirror(0, 2, NULL, NULL, &turns, &w), LS_OK);
    assert_int_equal(ls_alloc(w, 1 << 22, LS_MEM_DATA, &x), LS_OK);
    memset(x, 0, 1 << 22);
    const ls_env *before = ls_context_get()->env;
    ls_context_get()->env = &env;
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .out = x, .count = 1 << 20 };
    assert_int_equal(ls_coll_start(ls_world_group(w), &a, &k), LS_OK);
    const ls_mirrored started = ls_world_mirrored(w);
    assert_int_equal(started.looks, 1);
    assert_true(started.wall_ns > 30); /* more than its two ends */
    assert_int_equal(ls_work_wait(k), LS_OK);
    const ls_mirrored waited = ls_world_mirrored(w);
    assert_int_equal(waited.looks, 2); /* what is left to do then is short */
    assert_true(waited.wall_ns - started.wall_ns > 30);
    const ls_p2p op = { .recv = x, .count = 4, .dtype = LS_F32, .peer = 1 };
    for (int i = 1; i <= 4; i++) { /* of four short messages two are waited for, with a look each */
        assert_int_equal(ls_p2p_start(ls_world_group(w), &op, "hop", &k), LS_OK);
        assert_int_equal(ls_work_wait(k), LS_OK);
        assert_int_equal(ls_world_mirrored(w).looks, 2 + i / 2);
    }
    static const size_t few[] = { 1, 1 }, many[] = { 1, 1 << 12 };
    const struct { const size_t *sent, *came; int looks; } v[] = { { few, few, 0 }, { many, few, 1 },
                                                                   { few, many, 1 } };
    for (size_t i = 0; i < COUNT(v); i++) { /* as long as the longer one of what it sends and receives */
        const ls_coll_args to_all = { .coll = LS_ALL_TO_ALL, .dtype = LS_F32, .in = x, .out = (float *)x + (1 << 18),
                                      .counts = v[i].sent, .recv_counts = v[i].came };
        const int64_t had = ls_world_mirrored(w).looks;
        assert_int_equal(ls_coll_start(ls_world_group(w), &to_all, &k), LS_OK);
        assert_int_equal(ls_world_mirrored(w).looks - had, v[i].looks);
        assert_int_equal(ls_work_wait(k), LS_OK);
    }
    ls_context_get()->env = before;
    ls_world_leave(w);
}

/* One of 13 short calls says how long all of them take, unless others had the core meanwhile. Half of what a look takes
 * is added to what the processor's clock says. */
static void short_calls_are_timed_by_some_of_them(void **state)
{
    (void)state;
    enum { CALLS = 27, READ = 1000, SHORT = 8192 };
    const struct { uint64_t first, later, all, step, read; } row[] = {
        { 10, 40, 13 * 10 + 13 * 25 + 30, 10, 10 }, /* of three that are timed, the first took 10, the others 40 */
        { 10, 6000, 27 * 10, 1500, 1500 }, { 6000, 10, 14 * 10, 4000, 4000 }, { 6000, 6000, 14 * 6000, 200000, 5000 },
    };
    ls_env env = *ls_env_get();
    env.mono_ns = next_wall;
    env.thread_cpu_ns = next_cpu;
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_world *w;
        void *x;
        assert_int_equal(ls_world_mirror(0, 2, NULL, NULL, NULL, &w), LS_OK);
        assert_int_equal(ls_alloc(w, 1 << 16, LS_MEM_DATA, &x), LS_OK);
        const ls_p2p op = { .recv = x, .count = SHORT, .dtype = LS_U8, .peer = 1 };
        const ls_p2p longer = { .recv = x, .count = 1 << 16, .dtype = LS_U8, .peer = 1 };
        const ls_env *before = ls_context_get()->env;
        ls_context_get()->env = &env;
        for (int k = 0; k < CALLS; k++) {
            wall_step = k < 13 ? row[i].first : row[i].later;
            assert_int_equal(ls_p2p_batch(ls_world_group(w), &op, 1), LS_OK);
        }
        const ls_mirrored shorts = ls_world_mirrored(w);
        wall_step = row[i].step;
        assert_int_equal(ls_p2p_batch(ls_world_group(w), &longer, 1), LS_OK);
        const ls_mirrored all = ls_world_mirrored(w);
        ls_context_get()->env = before;
        wall_step = 10;
        if (shorts.cpu_ns != row[i].all || shorts.wall_ns != shorts.cpu_ns)
            fail_msg("row %zu: short calls took %llu ns", i, (unsigned long long)shorts.cpu_ns);
        assert_int_equal(shorts.looks, 0);
        assert_int_equal(all.looks, 1);
        assert_int_equal(all.cpu_ns - shorts.cpu_ns, READ + row[i].read);
        ls_world_leave(w);
    }
}

/* As a run's, whose peers map it: pages of the same size. */
static void memory_is_that_of_a_run(void **state)
{
    (void)state;
    ls_world *w;
    assert_int_equal(ls_world_mirror(0, 2, NULL, NULL, NULL, &w), LS_OK);
    assert_true(ls_arena_fd(w->arena) >= 0);
    ls_world_leave(w);
}

/* Groups are those of the real ranks: who gives which color is known. */
static void groups_are_those_of_the_layout(void **state)
{
    (void)state;
    ls_world *w;
    ls_mesh m;
    static const int size[LS_AXES] = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1,
                                        [LS_AXIS_TP] = 2 };
    assert_int_equal(ls_world_mirror(3, 4, NULL, NULL, NULL, &w), LS_OK);
    if (ls_mesh_create(w, size, NULL, &m) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_group_size(m.axis[LS_AXIS_PP]), 2);
    assert_int_equal(ls_group_size(m.axis[LS_AXIS_TP]), 2);
    assert_int_equal(ls_group_rank(m.axis[LS_AXIS_PP]), 1);
    ls_mesh_destroy(&m);
    ls_world_leave(w);
}

/* --- steps ---------------------------------------------------------------------------------------------------- */

typedef struct op {
    char what[112]; /* "unit: name" */
    ls_tape_phase phase;
    double flops, bytes;
} op;

typedef struct rank_steps {
    int n;            /* operations of the last step */
    op of[MOST];
    uint64_t calls;   /* collectives and messages of the last step */
} rank_steps;

static rank_steps real[RANKS], mirrored;
static ls_train_config c;
static ls_opts *o;

static void on_op(void *arg, const ls_op_event *e)
{
    rank_steps *to = arg;
    if (to->n == MOST) return;
    op *at = &to->of[to->n++];
    snprintf(at->what, sizeof at->what, "%s: %s", e->unit ? e->unit->name : "root", e->name);
    at->phase = e->phase;
    at->flops = e->flops;
    at->bytes = e->bytes;
}

static ls_status take_steps(ls_world *w, rank_steps *to)
{
    static const ls_tape_events events = { .op = on_op };
    ls_trainer *t;
    ls_step_stats s;
    (void)ls_team_resize(ls_team_planned(RANKS)); /* as joining leaves it */
    LS_TRY(ls_trainer_create_in(&c, w, NULL, &t));
    ls_status st = LS_OK;
    for (int i = 0; i < t->par.ntapes && st == LS_OK; i++) st = ls_tape_listen(t->par.tape[i], &events, to);
    for (int i = 0; i < STEPS && st == LS_OK; i++) {
        const ls_mirrored had = ls_world_mirrored(w);
        to->n = 0;
        st = ls_train_step(t, &s);
        const ls_mirrored now = ls_world_mirrored(w);
        to->calls = (uint64_t)(now.collectives - had.collectives + now.messages - had.messages);
        if (!ls_world_is_alone(w)) to->calls = s.comm.ops;
    }
    ls_trainer_destroy(t);
    return st;
}

static ls_status real_rank(ls_world *w, void *arg)
{
    (void)arg;
    return take_steps(w, &real[ls_world_rank(w)]);
}

static void expect_the_same(const rank_steps *r, const rank_steps *m, size_t layout, int rank)
{
    for (int i = 0; i < r->n && i < m->n; i++) {
        const op *x = &r->of[i], *y = &m->of[i];
        const bool same = x->phase == y->phase && x->flops == y->flops && x->bytes == y->bytes;
        if (same && strcmp(x->what, y->what) == 0) continue;
        fail_msg("layout %zu, rank %d, operation %d: the run has %s, phase %d, %.0f FLOP, %.0f bytes; the mirror has %s, phase %d, "
                 "%.0f FLOP, %.0f bytes", layout, rank, i, x->what, (int)x->phase, x->flops, x->bytes, y->what, (int)y->phase,
                 y->flops, y->bytes);
    }
    if (r->n != m->n) fail_msg("layout %zu, rank %d: %d operations in the run, %d in the mirror", layout, rank, r->n, m->n);
    if (r->calls != m->calls)
        fail_msg("layout %zu, rank %d: %llu calls in the run, %llu in the mirror", layout, rank, (unsigned long long)r->calls,
                 (unsigned long long)m->calls);
    assert_in_range(r->n, 10, MOST - 1);
}

static void set(const char *key, const char *value)
{
    if (ls_opts_set(o, key, value, "flag") < 0) fail_msg("%s", ls_last_error());
}

#define MOE "model.name", "moe", "model.n_experts", "2", "model.top_k", "2" /* each token goes to both: an even load */

static const char *const layouts[][14] = {
    { "parallel.tp", "2", "parallel.sp", "true" },
    { "parallel.cp", "4", "train.micro_batch", "2" },
    { "parallel.cp", "2", "parallel.context", "ulysses", "zero.stage", "2" },
    { "parallel.pp", "2", "parallel.cp", "2", "train.micro_batch", "1" },
    { "parallel.pp", "2", "pipeline.schedule", "zb-h1", "train.micro_batch", "1", "zero.stage", "1" },
    { "zero.stage", "3" },
    { "zero.stage", "3", "zero.copy", "rank", "train.micro_batch", "1" },
    { "zero.stage", "2", "zero.hsdp", "2", "train.dtype", "bf16" },
    { "train.recompute", "full", "parallel.tp", "4" },
    { MOE, "parallel.ep", "2", "parallel.tp", "2" },
    { "train.micro_batch", "1" }, /* two of them, and gradients are reduced after the second */
};

static void configure(size_t layout)
{
    memset(&c, 0, sizeof c);
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    static const char *const usual[] = { "model.name", "gpt2", "model.n_layer", "2", "model.d_model", "32", "model.n_head", "4",
                                         "model.seq_len", "16", "train.global_batch", "8", "data.tokenizer", "char",
                                         "train.eval_every", "0", "ddp.guard", "false" };
    for (size_t i = 0; i < COUNT(usual); i += 2) set(usual[i], usual[i + 1]);
    set("data.name", text), set("data.path", tokens);
    const char *const *of = layouts[layout];
    for (size_t i = 0; i < COUNT(layouts[0]) && of[i]; i += 2) set(of[i], of[i + 1]);
    if (ls_train_config_resolve(o, &c) < 0 || ls_train_config_check(&c, RANKS) < 0)
        fail_msg("layout %zu: %s", layout, ls_last_error());
}

static void a_mirror_computes_what_a_real_rank_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        ls_source source = { 0 };
        ls_model_config mc;
        ls_memory_plan plan;
        configure(i);
        if (ls_train_model(&c, &source, &mc) < 0 || ls_memory_plan_make(&c, &mc, 0, RANKS, &plan) < 0) fail_msg("%s", ls_last_error());
        ls_world_opts wo = ls_train_world_opts(&c, &plan);
        if (ls_world_threads(RANKS, &wo, real_rank, NULL) < 0) fail_msg("layout %zu: %s", i, ls_last_error());
        for (int r = 0; r < RANKS; r++) {
            ls_world *w;
            const ls_memory_plan none = { 0 };
            wo = ls_train_world_opts(&c, &none);
            if (ls_world_mirror(r, RANKS, NULL, &wo, r % 2 ? &turns : NULL, &w) < 0 || take_steps(w, &mirrored) < 0)
                fail_msg("layout %zu, rank %d: %s", i, r, ls_last_error());
            ls_world_leave(w);
            expect_the_same(&real[r], &mirrored, i, r);
        }
        ls_source_free(&source);
        ls_opts_destroy(o);
    }
}

/* As in the run: parts of 4 sequences of 16 tokens, of rows for experts, and whole gradients. */
static void vectors_of_a_step_lie_as_in_the_run(void **state)
{
    (void)state;
    const struct { size_t layout; ls_coll coll; ls_step_vector vector; } row[] = {
        { 0, LS_ALL_GATHER, { .spans = 4, .rows = 16 } }, { 0, LS_REDUCE_SCATTER, { .spans = 4, .rows = 16 } },
        { 0, LS_ALL_REDUCE, { 0 } }, { 10, LS_ALL_REDUCE, { 0 } }, { 9, LS_ALL_TO_ALL, { .counts = true, .apart = true } },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_step_rates rates = { .flops_per_s = 1e9 };
        ls_step_lists l = { 0 };
        int found = 0;
        configure(row[i].layout);
        if (ls_step_lists_create(&c, RANKS, RANKS, &rates, &l) < 0) fail_msg("%s", ls_last_error());
        for (int k = 0; k < l.of[0].n; k++) {
            const ls_step_item *x = &l.of[0].item[k];
            const bool tp = x->span.axes == LS_ALONG(LS_AXIS_TP);
            if ((x->kind != LS_ITEM_COLL && x->kind != LS_ITEM_BEGIN) || x->coll != row[i].coll) continue;
            if (row[i].vector.spans > 0 && !tp) continue;
            if (row[i].vector.counts && strcmp(x->label, "counts of rows") == 0) continue; /* it tells them */
            const ls_step_vector *v = &x->vector;
            if (!ls_step_same_vector(v, &row[i].vector))
                fail_msg("row %zu, '%s': %d spans of %g rows, counts %d, apart %d", i, x->label, v->spans, v->rows, v->counts, v->apart);
            found++;
        }
        assert_true(found > 0);
        double items = 0, ops = 0;
        for (int k = 0; k < l.of[0].n; k++) items += l.of[0].item[k].seconds;
        for (int k = 0; k < l.of[0].nops; k++) ops += l.of[0].op[k].busy_s;
        assert_true(items > 0 && fabs(ops / items - 1) < 1e-9); /* the same work, by kind */
        ls_step_lists_free(&l);
        ls_opts_destroy(o);
    }
}

/* With zero.copy host, ranks of a node read one copy of the weights: nothing is gathered there, and between nodes each
 * rank gathers from those at its place in other nodes. Sets of shards are reduced at once where memory is shared. */
static void ranks_of_a_node_share_memory_in_a_list(void **state)
{
    (void)state;
    enum { NONE, ALL, PARTS };
    const struct { const char *copy, *hsdp, *transport; int local, gathers, reduces; ls_coll coll; } row[] = {
        { "host", "1", "", RANKS, NONE, ALL, LS_REDUCE_SCATTER }, { "host", "1", "", 2, PARTS, ALL, LS_REDUCE_SCATTER },
        { "host", "1", "", 1, ALL, ALL, LS_REDUCE_SCATTER },      { "rank", "1", "", RANKS, ALL, ALL, LS_REDUCE_SCATTER },
        { "host", "2", "", RANKS, NONE, ALL, LS_ALL_REDUCE },     { "host", "2", "", 1, PARTS, PARTS, LS_REDUCE_SCATTER },
        { "rank", "2", "tcp", RANKS, PARTS, PARTS, LS_REDUCE_SCATTER },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_step_rates rates = { .flops_per_s = 1e9 };
        ls_step_lists l = { 0 };
        int gathers = NONE, reduces = NONE;
        configure(5);
        set("zero.copy", row[i].copy), set("zero.hsdp", row[i].hsdp), set("comm.transport", row[i].transport);
        assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
        if (ls_step_lists_create(&c, RANKS, row[i].local, &rates, &l) < 0) fail_msg("row %zu: %s", i, ls_last_error());
        assert_int_equal(l.local, row[i].local);
        for (int k = 0; k < l.of[0].n; k++) {
            const ls_step_item *x = &l.of[0].item[k];
            const int span = x->span.sets > 1 ? PARTS : ALL;
            if (x->kind != LS_ITEM_COLL && x->kind != LS_ITEM_BEGIN) continue;
            if (x->coll == LS_ALL_GATHER && x->bytes > 4096) gathers = span;
            if (x->coll == row[i].coll && strncmp(x->label, "bucket", 6) == 0) reduces = span;
        }
        if (gathers != row[i].gathers || reduces != row[i].reduces) fail_msg("row %zu: gathers %d, reduces %d", i, gathers, reduces);
        ls_step_lists_free(&l);
        ls_opts_destroy(o);
    }
}

/* As a run refuses them. */
static void lists_of_what_no_run_has_are_refused(void **state)
{
    (void)state;
    static const struct { const char *transport; int ranks, local; ls_status st; } row[] = {
        { "tcp", RANKS, RANKS, LS_UNSUPPORTED }, { "", RANKS, 3, LS_INVALID }, { "", RANKS, 0, LS_INVALID }, { "", 512, 512, LS_UNSUPPORTED },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_step_rates rates = { .flops_per_s = 1e9 };
        ls_step_lists l;
        configure(5);
        set("comm.transport", row[i].transport);
        set("train.global_batch", "512");
        assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
        if (ls_step_lists_create(&c, row[i].ranks, row[i].local, &rates, &l) != row[i].st) fail_msg("row %zu: %s", i, ls_last_error());
        ls_opts_destroy(o);
    }
}

static bool has_values(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] > 1e-6f || v[i] < -1e-6f) return true;
    return false;
}

/* Also where rank 0 of a run would send them to others. */
static void every_mirror_has_initial_weights(void **state)
{
    (void)state;
    const size_t zero[] = { 5, 6, 7 };
    for (size_t i = 0; i < 3 * COUNT(zero); i++) {
        configure(zero[i / 3]);
        if (i % 3 == 1) set("zero.hsdp", "2");
        if (i % 3 == 2) set("train.dtype", "bf16");
        assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
        for (int r = 0; r < RANKS; r++) {
            const ls_memory_plan none = { 0 };
            const ls_world_opts wo = ls_train_world_opts(&c, &none);
            ls_trainer *t;
            ls_world *w;
            if (ls_world_mirror(r, RANKS, NULL, &wo, NULL, &w) < 0 || ls_trainer_create_in(&c, w, NULL, &t) < 0) fail_msg("%s", ls_last_error());
            const ls_params *ps = &t->par.model->params;
            int weights = 0;
            for (int k = 0; k < ps->n; k++) {
                const ls_param *p = &ps->item[k];
                if (!strstr(p->name, ".weight") || p->t.ndim < 2) continue;
                const bool all = p->t.data ? has_values(p->t.data, (size_t)ls_tensor_count(&p->t)) : true;
                const uint16_t *bits = p->bf16;
                const size_t count = (size_t)ls_tensor_count(&p->t);
                size_t zeros = 0;
                while (bits && zeros < count && bits[zeros] == 0) zeros++;
                if (bits && zeros == count) fail_msg("layout %zu, variant %d, rank %d: %s has no values in bf16", zero[i / 3], (int)(i % 3), r, p->name);
                const bool own = p->master && p->own.count > 0 ? has_values(p->master, p->own.count) : true;
                if (!all || !own) fail_msg("layout %zu, variant %d, rank %d: %s has no values", zero[i / 3], (int)(i % 3), r, p->name);
                weights += p->t.data || p->master || p->bf16;
            }
            assert_true(weights > 4);
            ls_trainer_destroy(t);
            ls_world_leave(w);
        }
        ls_opts_destroy(o);
    }
}

/* Rows of a stage are the operations of its ranks: as many calls and FLOP as their last steps had. */
static void stages_have_the_operations_of_their_ranks(void **state)
{
    (void)state;
    ls_measured m[2];
    double flops[2] = { 0 }, calls[2] = { 0 };
    configure(3);
    set("ddp.guard", "true"); /* every other rank answers with this rank's hash */
    if (ls_measure_stages(&c, RANKS, RANKS, 2, LS_MEASURE_LONG_S, m) < 0) fail_msg("%s", ls_last_error());
    for (int r = 0; r < RANKS; r++) {
        ls_world *w;
        if (ls_world_mirror(r, RANKS, NULL, NULL, NULL, &w) < 0 || take_steps(w, &mirrored) < 0) fail_msg("%s", ls_last_error());
        ls_world_leave(w);
        calls[r / 2] += mirrored.n;
        for (int i = 0; i < mirrored.n; i++) flops[r / 2] += mirrored.of[i].flops;
    }
    for (int k = 0; k < 2; k++) {
        double f = 0;
        int64_t n = 0;
        for (int i = 0; i < m[k].n; i++) f += m[k].row[i].flops, n += m[k].row[i].calls;
        assert_true(n == (int64_t)calls[k] && f == flops[k]);
        assert_in_range(m[k].steps, 3, 25);
    }
    for (int k = 0; k < 2; k++) ls_measured_free(&m[k]);
    ls_opts_destroy(o);
}

/* What fails in a mirror says so, and does not speak of a dry world. */
static void errors_say_that_it_is_a_mirror(void **state)
{
    (void)state;
    ls_world *w;
    ls_group *g;
    assert_int_equal(ls_world_mirror(4, 4, NULL, NULL, NULL, &w), LS_INVALID);
    assert_string_equal(ls_last_error(), "rank 4 of a mirror: expected 0 to 3");
    assert_int_equal(ls_world_mirror(0, 0, NULL, NULL, NULL, &w), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "a mirror of 0 ranks: expected 1 to "));
    assert_int_equal(ls_world_mirror(0, 2, NULL, &(ls_world_opts){ .transport = "pigeon" }, NULL, &w), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "no transport of a mirror is named 'pigeon': expected one of shm, tcp, "));
    assert_int_equal(ls_world_mirror(0, 2, NULL, NULL, NULL, &w), LS_OK);
    assert_int_equal(ls_group_split(ls_world_group(w), 0, &g), LS_UNSUPPORTED);
    assert_string_equal(ls_last_error(), "splitting group world in a mirror needs the colors that the other ranks give, which do not "
                                         "exist: call ls_group_split_by");
    ls_world_leave(w);
}

/* Where ranks divide a model a mirror's gradients are wrong. Replicas' are those of some samples. */
static void a_mirror_learns_from_gradients_that_are_right(void **state)
{
    (void)state;
    static const struct { size_t layout; int ranks; const char *key, *value; bool learns; } row[] = {
        { 0, RANKS, NULL, NULL, false }, { 1, RANKS, NULL, NULL, false },  { 5, RANKS, NULL, NULL, false },
        { 5, 1, NULL, NULL, true },      { 5, 2, "zero.stage", "0", true }, { 9, RANKS, NULL, NULL, false },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_measured m;
        configure(row[i].layout);
        if (row[i].key) set(row[i].key, row[i].value);
        assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
        c.train.steps = 4;
        if (ls_measure_stages(&c, row[i].ranks, row[i].ranks, 4, LS_MEASURE_LONG_S, &m) < 0)
            fail_msg("layout %zu: %s", row[i].layout, ls_last_error());
        assert_true(c.optim.lr > 1e-10);
        if ((m.learning_rate == c.optim.lr) != row[i].learns)
            fail_msg("layout %zu on %d ranks: a rate of %g; the run has %g", row[i].layout, row[i].ranks, m.learning_rate, c.optim.lr);
        assert_true(row[i].learns || m.learning_rate < 1e-10);
        ls_measured_free(&m);
        ls_opts_destroy(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_give_what_this_rank_gives), cmocka_unit_test(messages_are_the_same_numbers),
        cmocka_unit_test(errors_say_that_it_is_a_mirror),
        cmocka_unit_test(calls_are_not_the_ranks_time_and_all_but_one_of_n_wait),
        cmocka_unit_test(short_calls_are_timed_by_some_of_them),
        cmocka_unit_test(starting_and_waiting_are_not_the_ranks_time),
        cmocka_unit_test(memory_is_that_of_a_run),
        cmocka_unit_test(groups_are_those_of_the_layout),
        cmocka_unit_test(a_mirror_computes_what_a_real_rank_does),
        cmocka_unit_test(vectors_of_a_step_lie_as_in_the_run),
        cmocka_unit_test(ranks_of_a_node_share_memory_in_a_list),
        cmocka_unit_test(lists_of_what_no_run_has_are_refused),
        cmocka_unit_test(every_mirror_has_initial_weights),
        cmocka_unit_test(stages_have_the_operations_of_their_ranks),
        cmocka_unit_test(a_mirror_learns_from_gradients_that_are_right),
    };
    return cmocka_run_group_tests_name("mirror", tests, make_text, remove_text);
}
