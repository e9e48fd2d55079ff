/* A world whose other ranks are not there: what is called in it is noted with the bytes that a real rank would move. */
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "group/group.h"
#include "harness.h"
#include "net/world.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct call {
    ls_coll coll;
    size_t count; /* floats */
    enum { EVENLY, BY_COUNTS, BY_SPANS } how; /* counts: twice as many for each rank as for the one before it */
} call;

static const call calls[] = {
    { LS_ALL_REDUCE, 300, EVENLY }, /* a form of its own where ranks share cores */
    { LS_ALL_REDUCE, 2, EVENLY }, { LS_ALL_REDUCE, 4097, EVENLY }, { LS_ALL_REDUCE, 1000003, EVENLY },
    { LS_REDUCE_SCATTER, 9, EVENLY }, { LS_REDUCE_SCATTER, 70001, EVENLY }, { LS_ALL_GATHER, 12, EVENLY },
    { LS_ALL_GATHER, 300007, EVENLY }, { LS_BROADCAST, 5, EVENLY }, { LS_BROADCAST, 500000, EVENLY },
    { LS_BARRIER, 0, EVENLY }, { LS_REDUCE, 5000, EVENLY }, { LS_GATHER, 5000, EVENLY },
    { LS_SCATTER, 5000, EVENLY }, { LS_ALL_TO_ALL, 12000, EVENLY }, { LS_ALL_GATHER, 3000, BY_COUNTS },
    { LS_REDUCE_SCATTER, 70001, BY_COUNTS }, { LS_ALL_TO_ALL, 12000, BY_COUNTS }, { LS_REDUCE_SCATTER, 70000, BY_SPANS },
    { LS_ALL_GATHER, 70000, BY_SPANS },
};

static const ls_matrix_span spans[] = { { 0, 7, 1000, NULL }, { 10000, 2, 30000, NULL } };

static ls_status make(ls_group *g, const call *c, float *p)
{
    ls_work *k;
    const int size = ls_group_size(g);
    size_t counts[LS_TEST_RANKS], left = c->count;
    ls_coll_args a = { .coll = c->coll, .out = p, .count = c->count, .dtype = LS_F32, .label = "test" };
    for (int r = size - 1; r >= 0; r--) {
        counts[r] = r > 0 ? (left + 1) / 2 : left;
        left -= counts[r];
    }
    if (c->how == BY_COUNTS) a.counts = counts;
    if (c->how == BY_COUNTS && c->coll == LS_ALL_TO_ALL) {
        for (int r = 0; r < size; r++) counts[r] = r == ls_group_rank(g) ? 5000 : 10; /* sent and received alike */
        a.recv_counts = counts;
        a.in = p + c->count;
    }
    if (c->how == BY_SPANS) a.span = spans, a.nspans = COUNT(spans);
    LS_TRY(ls_coll_start(g, &a, &k));
    return ls_work_wait(k);
}

/* Bytes that each call moves on each rank of a real world. */
static uint64_t counted[LS_TEST_RANKS][COUNT(calls)];

static ls_status real_rank(ls_world *w, void *arg)
{
    void *p;
    (void)arg;
    LS_TRY(ls_alloc(w, (size_t)4 << 20, LS_MEM_DATA, &p));
    memset(p, 0, (size_t)4 << 20);
    for (size_t i = 0; i < COUNT(calls); i++) {
        ls_comm_stats before, after;
        ls_group_stats_read(ls_world_group(w), &before);
        LS_TRY(make(ls_world_group(w), &calls[i], p));
        ls_group_stats_read(ls_world_group(w), &after);
        counted[ls_world_rank(w)][i] = after.bytes - before.bytes;
    }
    return LS_OK;
}

/* What a rank of a dry world says of each call. */
static void expect_noted(ls_world *w, int calls_made)
{
    const ls_recorded *had;
    const int r = ls_world_rank(w), size = ls_world_size(w);
    assert_int_equal(ls_world_recorded(w, &had), calls_made);
    for (int i = 0; i < calls_made; i++) {
        uint64_t moved;
        int rounds;
        assert_int_equal(had[i].coll, calls[i].coll);
        assert_ptr_equal(had[i].group, ls_world_group(w));
        assert_string_equal(had[i].label, "test");
        if (ls_recorded_traffic(&had[i], &moved, &rounds) < 0) fail_msg("call %d: %s", i, ls_last_error());
        if (moved != counted[r][i])
            fail_msg("call %d by %s, rank %d of %d: noted %llu bytes, a real rank moves %llu", i, had[i].form, r, size,
                     (unsigned long long)moved, (unsigned long long)counted[r][i]);
        assert_in_range(rounds, 1, 2 * size);
        if (strcmp(had[i].form, "schedule") == 0) continue;
        assert_int_equal(had[i].moved, moved);
        assert_int_equal(had[i].rounds, rounds);
    }
}

static void expect_real_traffic(const ls_world_opts *opts)
{
    ls_world_opts o = *opts;
    o.arena_bytes = (size_t)8 << 20;
    for (int size = 2; size <= 4; size++) {
        const ls_rank_report report = ls_test_ranks(LS_TEST_THREADS, size, &o, real_rank, NULL);
        if (report.failed) fail_msg("%s", report.text);
        for (int r = 0; r < size; r++) {
            ls_world *w;
            void *p;
            const ls_recorded *had;
            if (ls_world_dry(r, size, o.node, &o, &w) < 0) fail_msg("%s", ls_last_error());
            assert_int_equal(ls_alloc(w, (size_t)4 << 20, LS_MEM_DATA, &p), LS_OK);
            assert_int_equal(ls_world_recorded(w, &had), 0);
            for (size_t i = 0; i < COUNT(calls); i++)
                if (make(ls_world_group(w), &calls[i], p) < 0) fail_msg("%s", ls_last_error());
            expect_noted(w, COUNT(calls));
            ls_world_record_clear(w);
            assert_int_equal(ls_world_recorded(w, &had), 0);
            ls_world_leave(w);
        }
    }
}

static void says_what_real_ranks_move(void **state)
{
    (void)state;
    static const int node[] = { 0, 0, 1, 1 };
    static const ls_world_opts opts[] = {
        { .progress = LS_PROGRESS_INLINE }, { .progress = LS_PROGRESS_THREAD }, { .transport = "tcp" },
        { .transport = "tcp", .algo = "ring" }, { .algo = "ring" }, { .transport = "fault:shm" }, { .transport = "mixed", .node = node },
    };
    for (size_t i = 0; i < COUNT(opts); i++) expect_real_traffic(&opts[i]);
}

/* Over two hosts nobody maps everybody: schedules, whose algorithm is chosen when it is asked for. */
static void hosts_decide_how(void **state)
{
    (void)state;
    static const int node[] = { 7, 7, 3, 3 };
    ls_world *w;
    void *p;
    const ls_recorded *had;
    const char *algo;
    assert_int_equal(ls_world_dry(2, 4, node, &(ls_world_opts){ .algo = "ring" }, &w), LS_OK);
    assert_string_equal(ls_world_transport(w), "mixed");
    assert_int_equal(ls_world_local_rank(w), 0);
    assert_int_equal(ls_world_local_size(w), 2);
    assert_int_equal(ls_alloc(w, 4096, LS_MEM_DATA, &p), LS_OK);
    assert_int_equal(make(ls_world_group(w), &(call){ LS_ALL_REDUCE, 1024, EVENLY }, p), LS_OK);
    assert_int_equal(ls_world_recorded(w, &had), 1);
    assert_string_equal(had[0].form, "schedule");
    assert_int_equal(ls_recorded_algo(&had[0], &algo), LS_OK);
    assert_string_equal(algo, "ring");
    ls_world_leave(w);
}

/* Every rank has the place that it would have on its host. */
static void places_are_those_of_a_rank_that_has_joined(void **state)
{
    (void)state;
    static const struct { int size, node[6], number[6], local_rank[6], first[6]; } row[] = {
        { 3, { 5, 5, 5 }, { 0, 0, 0 }, { 0, 1, 2 }, { 0, 0, 0 } },
        { 4, { 7, 7, 3, 3 }, { 0, 0, 1, 1 }, { 0, 1, 0, 1 }, { 0, 0, 2, 2 } },
        { 6, { 2, 9, 2, 4, 9, 2 }, { 0, 1, 0, 2, 1, 0 }, { 0, 0, 1, 0, 1, 2 }, { 0, 1, 0, 3, 1, 0 } },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        for (int r = 0; r < row[i].size; r++) {
            ls_world *w;
            int here = 0;
            assert_int_equal(ls_world_dry(r, row[i].size, row[i].node, NULL, &w), LS_OK);
            for (int q = 0; q < row[i].size; q++) here += row[i].node[q] == row[i].node[r];
            assert_memory_equal(w->node, row[i].number, (size_t)row[i].size * sizeof(int));
            assert_int_equal(w->local_rank, row[i].local_rank[r]);
            assert_int_equal(w->local_size, here);
            assert_int_equal(w->host_first, row[i].first[r]);
            ls_world_leave(w);
        }
}

static int four(void) { return 4; }

/* A rank whose messages a thread moves needs two cores to spin. */
static void waits_spin_where_those_of_a_real_rank_would(void **state)
{
    (void)state;
    ls_env env = ls_env_real;
    env.cpus = four;
    ls_context context = { .env = &env, .rank = -1 };
    for (int size = 1; size <= 5; size++)
        for (int thread = 0; thread < 2; thread++) {
            const ls_world_opts o = { .progress = thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
            ls_world *w;
            ls_context_swap(&context);
            const ls_status st = ls_world_dry(0, size, NULL, &o, &w);
            const bool spins = st == LS_OK && w->waiter.may_spin;
            if (st == LS_OK) ls_world_leave(w);
            ls_context_swap(NULL);
            assert_int_equal(st, LS_OK);
            assert_int_equal(spins, size * (thread ? 2 : 1) <= 4);
        }
}

/* --- algorithms, over a wire ------------------------------------------------------------------------------- */

static const call wire_calls[] = {
    { LS_ALL_REDUCE, 2, EVENLY }, { LS_ALL_REDUCE, 64, EVENLY }, { LS_ALL_REDUCE, 1024, EVENLY },
    { LS_ALL_REDUCE, 4096, EVENLY }, { LS_ALL_REDUCE, 16384, EVENLY }, { LS_ALL_REDUCE, 65536, EVENLY },
    { LS_ALL_REDUCE, 262144, EVENLY }, { LS_ALL_GATHER, 16, EVENLY }, { LS_ALL_GATHER, 4096, EVENLY },
    { LS_ALL_GATHER, 65536, EVENLY }, { LS_BROADCAST, 16, EVENLY }, { LS_BROADCAST, 65536, EVENLY },
    { LS_REDUCE_SCATTER, 64, EVENLY }, { LS_REDUCE_SCATTER, 4096, EVENLY }, { LS_REDUCE_SCATTER, 65536, EVENLY },
};
static const char *ran[COUNT(wire_calls)]; /* by rank 0 of a real world */

static ls_status wire_rank(ls_world *w, void *arg)
{
    ls_group *g = ls_world_group(w);
    void *p;
    (void)arg;
    LS_TRY(ls_alloc(w, (size_t)2 << 20, LS_MEM_DATA, &p));
    memset(p, 0, (size_t)2 << 20);
    for (size_t i = 0; i < COUNT(wire_calls); i++) {
        LS_TRY(make(g, &wire_calls[i], p));
        if (ls_world_rank(w) == 0) ran[i] = g->ran_algo->name;
    }
    return LS_OK;
}

static void algorithms_are_those_that_real_ranks_choose(void **state)
{
    (void)state;
    const ls_world_opts o = { .arena_bytes = (size_t)8 << 20, .transport = "tcp" };
    const ls_rank_report report = ls_test_ranks(LS_TEST_THREADS, 4, &o, wire_rank, NULL);
    if (report.failed) fail_msg("%s", report.text);
    ls_world *w;
    void *p;
    const ls_recorded *had;
    int kinds = 0;
    if (ls_world_dry(0, 4, NULL, &o, &w) < 0) fail_msg("%s", ls_last_error());
    assert_false(ls_world_group(w)->mapped);
    assert_int_equal(ls_alloc(w, (size_t)2 << 20, LS_MEM_DATA, &p), LS_OK);
    for (size_t i = 0; i < COUNT(wire_calls); i++) {
        const char *algo;
        assert_int_equal(make(ls_world_group(w), &wire_calls[i], p), LS_OK);
        assert_int_equal(ls_world_recorded(w, &had), i + 1);
        if (ls_recorded_algo(&had[i], &algo) < 0) fail_msg("%s", ls_last_error());
        if (strcmp(algo, ran[i]) != 0) fail_msg("call %zu: %s, real ranks chose %s", i, algo, ran[i]);
        kinds += i > 0 && strcmp(ran[i], ran[i - 1]) != 0;
    }
    assert_true(kinds > 2); /* or the sizes say nothing */
    ls_world_leave(w);
}

static int by_pairs(const void *arg, int rank)
{
    (void)arg;
    return rank / 2;
}

static void a_destroyed_group_s_algorithms_are_not_known(void **state)
{
    (void)state;
    ls_world *w;
    ls_group *g;
    void *p;
    const ls_recorded *had;
    const char *algo;
    assert_int_equal(ls_world_dry(1, 4, NULL, &(ls_world_opts){ .transport = "tcp" }, &w), LS_OK);
    assert_int_equal(ls_alloc(w, 4096, LS_MEM_DATA, &p), LS_OK);
    assert_int_equal(ls_group_split_by(ls_world_group(w), by_pairs, NULL, "pair", &g), LS_OK);
    ls_world_record_clear(w);
    assert_int_equal(make(g, &(call){ LS_ALL_REDUCE, 100, EVENLY }, p), LS_OK);
    assert_int_equal(ls_world_recorded(w, &had), 1);
    assert_int_equal(ls_recorded_algo(&had[0], &algo), LS_OK);
    ls_group_destroy(g);
    assert_int_equal(ls_recorded_algo(&had[0], &algo), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "group was destroyed"));
    ls_world_leave(w);
}

/* On one host, a transport of connections maps nobody either. */
static void the_transport_decides_how(void **state)
{
    (void)state;
    static const struct { const char *transport; bool schedule; } row[] = { { "shm", false }, { "tcp", true }, { "mixed", false } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_world *w;
        void *p;
        const ls_recorded *had;
        assert_int_equal(ls_world_dry(0, 4, NULL, &(ls_world_opts){ .transport = row[i].transport }, &w), LS_OK);
        assert_string_equal(ls_world_transport(w), row[i].transport);
        assert_int_equal(ls_alloc(w, 4096, LS_MEM_DATA, &p), LS_OK);
        assert_int_equal(make(ls_world_group(w), &(call){ LS_ALL_REDUCE, 1024, EVENLY }, p), LS_OK);
        assert_int_equal(ls_world_recorded(w, &had), 1);
        assert_int_equal(strcmp(had[0].form, "schedule") == 0, row[i].schedule);
        ls_world_leave(w);
    }
}

static uint64_t a_page(void) { return 4096; }

/* ThreadSanitizer leaves a program 1.5 TiB of addresses, of which the kernel's random layout takes up to 1 TiB. */
#define MORE_THAN_THERE_IS ((size_t)1 << 37)

static void any_rank_of_a_thousand(void **state)
{
    (void)state;
    ls_world *w;
    void *p;
    const ls_recorded *had;
    ls_env env = ls_env_real;
    env.mem_available = a_page;
    ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
    assert_int_equal(ls_world_dry(777, 1024, NULL, NULL, &w), LS_OK);
    assert_int_equal(ls_world_rank(w), 777);
    assert_int_equal(ls_group_size(ls_world_group(w)), 1024);
    if (ls_alloc(w, MORE_THAN_THERE_IS, LS_MEM_PARAM, &p) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_world_ledger(w)->now[LS_MEM_PARAM], MORE_THAN_THERE_IS);
    assert_int_equal(ls_broadcast(ls_world_group(w), p, MORE_THAN_THERE_IS / 4, LS_F32, 0), LS_OK);
    assert_int_equal(ls_world_recorded(w, &had), 1);
    assert_int_equal(had[0].bytes, MORE_THAN_THERE_IS);
    ls_world_leave(w);
    ls_context_swap(was);
}

/* 1000 bytes take 1024. */
static void a_rank_s_part_of_shared_memory(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        ls_world *w;
        void *p;
        assert_int_equal(ls_world_dry(rank, 2, NULL, NULL, &w), LS_OK);
        const size_t before = ls_world_arena_used(w);
        assert_int_equal(ls_alloc(w, 1000, LS_MEM_PARAM, &p), LS_OK);
        assert_int_equal(ls_world_arena_used(w) - before, 1024);
        assert_int_equal(ls_group_alloc_shared(ls_world_group(w), (size_t)1 << 30, LS_MEM_PARAM, &p), LS_OK);
        assert_int_equal(ls_world_arena_used(w) - before, 1024 + (rank == 0 ? 1 << 30 : 0));
        ls_world_leave(w);
    }
}

/* --- the step of a model ------------------------------------------------------------------------------------- */

/* The gradients of a step travel once: reduced in one bucket at first, in those of the order of arrival then. */
static void a_step_s_gradients_are_noted(void **state)
{
    (void)state;
    static const int64_t dims[] = { 300, 200, 10 };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX };
    const int64_t xdim[] = { 4, 300 }, ydim[] = { 4 };
    for (int stage = 0; stage < 2; stage++) {
        const ls_ddp_config c = { .zero_stage = stage, .first_bucket = 4096, .bucket_cap = 1 << 16 };
        ls_optim_config oc;
        ls_world *w;
        ls_model *m;
        ls_arena *a;
        ls_ddp *ddp;
        ls_optim *o;
        ls_tape *t;
        assert_int_equal(ls_world_dry(1, 4, NULL, NULL, &w), LS_OK);
        assert_int_equal(ls_model_create(&mc, &m), LS_OK);
        assert_int_equal(ls_arena_create_dry(ls_world_ledger(w), &a), LS_OK);
        if (ls_ddp_bind(ls_world_group(w), &m->params, &c, LS_F32, a) < 0 ||
            ls_ddp_create(ls_world_group(w), &m->params, &c, &ddp) < 0)
            fail_msg("%s", ls_last_error());
        assert_int_equal(ls_optim_defaults("adamw", &oc), LS_OK);
        assert_int_equal(ls_optim_create(&oc, &m->params, a, &o), LS_OK);
        assert_int_equal(ls_tape_create_dry(&t), LS_OK);
        for (int step = 0; step < 2; step++) {
            const ls_recorded *had;
            uint64_t reduced = 0, gathered = 0, squares = 0;
            double norm = 1.0;
            ls_tape_reset(t);
            ls_world_record_clear(w);
            if (ls_ddp_begin_forward(ddp, t, true) < 0) fail_msg("%s", ls_last_error());
            ls_tensor *x = ls_tape_input(t, LS_F32, 2, xdim, NULL), *y = ls_tape_input(t, LS_I64, 1, ydim, NULL);
            if (ls_backward(t, ls_model_loss(m, t, x, y, NULL)) < 0 ||
                ls_grad_norm_shared(ls_world_group(w), &m->params, &norm, NULL) < 0 || ls_optim_step(o) < 0 ||
                ls_ddp_after_step(ddp) < 0)
                fail_msg("stage %d: %s", stage, ls_last_error());
            const int n = ls_world_recorded(w, &had);
            for (int i = 0; i < n; i++) {
                if (had[i].dtype == LS_F64) squares += had[i].bytes;
                else if (had[i].coll == LS_ALL_REDUCE || had[i].coll == LS_REDUCE_SCATTER) reduced += had[i].bytes;
                if (had[i].coll == LS_ALL_GATHER) gathered += had[i].bytes;
            }
            const uint64_t bytes = ls_params_nbytes(&m->params);
            assert_in_range(reduced, bytes, bytes + (uint64_t)ls_ddp_buckets(ddp) * 4 * 64);
            assert_int_equal(gathered, stage ? bytes : 0);
            assert_int_equal(squares, (uint64_t)m->params.n * sizeof(double)); /* of the norm: a sum per parameter */
            assert_true(norm <= 0.0 && norm >= 0.0);
        }
        ls_tape_destroy(t);
        ls_optim_destroy(o);
        ls_ddp_destroy(ddp);
        ls_arena_destroy(a);
        ls_model_destroy(m);
        ls_world_leave(w);
    }
}

/* --- bad input -------------------------------------------------------------------------------------------------- */

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    ls_world *w;
    ls_group *g;
    float x = 0;
    assert_int_equal(ls_world_dry(4, 4, NULL, NULL, &w), LS_INVALID);
    assert_string_equal(ls_last_error(), "rank 4 of a dry world: expected 0 to 3");
    assert_null(w);
    assert_int_equal(ls_world_dry(0, 0, NULL, NULL, &w), LS_INVALID);
    assert_int_equal(ls_world_dry(0, LS_WORLD_MOST_RANKS + 1, NULL, NULL, &w), LS_INVALID);
    assert_int_equal(ls_world_dry(0, 2, NULL, &(ls_world_opts){ .transport = "pigeon" }, &w), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "'pigeon': expected one of shm, tcp, mixed and self"));
    static const char *const faults[] = { "fault", "fault:pigeon", "fault:fault:shm", "shm:tcp" };
    for (size_t i = 0; i < COUNT(faults); i++)
        assert_int_equal(ls_world_dry(0, 2, NULL, &(ls_world_opts){ .transport = faults[i] }, &w), LS_BAD_CONFIG);
    assert_int_equal(ls_world_dry(0, 2, NULL, &(ls_world_opts){ .algo = "carrousel" }, &w), LS_BAD_CONFIG);
    assert_int_equal(ls_world_dry(0, 2, NULL, NULL, &w), LS_OK);
    assert_int_equal(ls_group_split(ls_world_group(w), 0, &g), LS_UNSUPPORTED);
    assert_string_equal(ls_last_error(), "splitting group world in a dry world needs the colors that the other ranks give, which do not "
                                         "exist: call ls_group_split_by");
    assert_int_equal(ls_send(ls_world_group(w), &x, 1, LS_F32, 1), LS_UNSUPPORTED);
    ls_world_leave(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_real_ranks_move), cmocka_unit_test(hosts_decide_how),
        cmocka_unit_test(the_transport_decides_how),
        cmocka_unit_test(any_rank_of_a_thousand),    cmocka_unit_test(a_rank_s_part_of_shared_memory),
        cmocka_unit_test(a_step_s_gradients_are_noted),
        cmocka_unit_test(refuses_what_cannot_be),    cmocka_unit_test(places_are_those_of_a_rank_that_has_joined),
        cmocka_unit_test(waits_spin_where_those_of_a_real_rank_would),
        cmocka_unit_test(algorithms_are_those_that_real_ranks_choose),
        cmocka_unit_test(a_destroyed_group_s_algorithms_are_not_known),
    };
    return cmocka_run_group_tests_name("dry", tests, NULL, NULL);
}
