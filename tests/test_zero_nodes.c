/* ZeRO-3 with one copy of the values per node, beside ranks that each gather: the same values, and every new row
 * travels to each other node once; then groups that are no nodes. */
#include "harness_zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "group/debug.h"

static const int two_nodes[] = { 0, 0, 1, 1 }, four_nodes[] = { 0, 0, 1, 1, 2, 2, 3, 3 };

typedef struct on_nodes {
    const ls_ddp_config *ddp;
    int ranks;
    const int *node; /* as many ranks on each */
    int sets;        /* hybrid sharding: each of several nodes; 1: none */
} on_nodes;

static int node_of(const void *g, int rank) { return ls_group_node(g, rank); }

static int place_of(const void *g, int rank)
{
    int place = 0;
    for (int r = 0; r < rank; r++) place += ls_group_node(g, r) == ls_group_node(g, rank);
    return place;
}

static ls_status split_nodes(ls_world *w, const on_nodes *o, ls_ddp_config *c)
{
    const hybrid sets = { o->ddp, o->sets, 1, false };
    *c = *o->ddp;
    if (o->sets > 1) LS_TRY(split(w, &sets, c));
    ls_group *g = c->shards ? c->shards : ls_world_group(w);
    LS_TRY(ls_group_split_by(g, node_of, g, "node-ranks", &c->node));
    return ls_group_split_by(g, place_of, g, "column", &c->column);
}

static void destroy_nodes(ls_ddp_config *c)
{
    ls_group_destroy(c->column);
    ls_group_destroy(c->node);
    destroy_sets(c);
}

/* Where each rank gathers, the sums are the same: so are the values. Every rank has all of them in its node's copy. */
static ls_status nodes_equal_ranks(ls_world *w, void *arg)
{
    const on_nodes *o = arg;
    ls_ddp_config shared, each;
    LS_TRY(split_nodes(w, o, &shared));
    each = shared;
    each.node = each.column = NULL;
    each.copy = LS_ZERO_COPY_RANK;
    const ls_replica_config ca = config_of(&each, "adamw"), cb = config_of(&shared, "adamw");
    ls_replica a, b;
    LS_TRY(ls_replica_create(w, &ca, &a));
    LS_TRY(ls_replica_create(w, &cb, &b));
    LS_EXPECT(!ls_ddp_forwards_meet(b.ddp), "forwards have collectives");
    for (uint64_t s = 0; s < STEPS; s++) {
        double na, nb;
        LS_TRY(step(w, &a, s, 2, &na));
        LS_TRY(step(w, &b, s, 2, &nb));
        LS_EXPECT(fabs(na - nb) <= 1e-12 * na, "step %d: norm %.17g, of nodes %.17g", (int)s, na, nb);
        float *va = NULL, *vb = ls_replica_values(&b);
        LS_TRY(ls_replica_whole(&a, &va));
        const bool same = memcmp(va, vb, ls_params_nbytes(&a.model->params)) == 0;
        free(va);
        free(vb);
        LS_EXPECT(same, "step %d: other values than where each rank gathers", (int)s);
        LS_TRY(ls_barrier(ls_world_group(w))); /* the next step changes the copy */
    }
    ls_replica_destroy(&a);
    ls_replica_destroy(&b);
    destroy_nodes(&shared);
    return LS_OK;
}

static ls_world_opts opts_of(const on_nodes *o) { return (ls_world_opts){ .transport = "mixed", .node = o->node }; }

static void nodes_have_the_values_of_gathering_ranks(void **state)
{
    (void)state;
    static const ls_ddp_config late = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 3, .no_overlap = true };
    on_nodes row[] = { { &one_copy, 4, two_nodes, 1 }, { &late, 4, two_nodes, 1 }, { &one_copy, 8, four_nodes, 1 },
                       { &one_copy, 8, four_nodes, 2 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_world_opts o = opts_of(&row[i]);
        expect(ls_test_ranks(LS_TEST_THREADS, row[i].ranks, &o, nodes_equal_ranks, &row[i]));
        o.progress = LS_PROGRESS_THREAD;
        if (i == 0) expect(ls_test_ranks(LS_TEST_PROCESSES, row[i].ranks, &o, nodes_equal_ranks, &row[i]));
    }
}

/* A step sends the rank's rows to each other node, once, and nothing else of the values; each copy is counted once by
 * the ranks of its node together. */
static ls_status sends_its_rows_once(ls_world *w, void *arg)
{
    const on_nodes *o = arg;
    ls_ddp_config c;
    ls_replica r;
    ls_comm_stats before, after;
    double norm;
    LS_TRY(split_nodes(w, o, &c));
    const size_t had = ls_world_ledger(w)->now[LS_MEM_PARAM];
    const ls_replica_config rc = config_of(&c, "sgd");
    LS_TRY(ls_replica_create(w, &rc, &r));
    int64_t counted = (int64_t)(ls_world_ledger(w)->now[LS_MEM_PARAM] - had), lines = 0;
    size_t own = 0;
    for (int i = 0; i < r.model->params.n; i++) {
        own += r.model->params.item[i].own.count * sizeof(float);
        lines += (int64_t)((ls_tensor_nbytes(&r.model->params.item[i].t) + 63) / 64 * 64);
    }
    LS_TRY(ls_all_reduce(c.node, NULL, &counted, 1, LS_I64, LS_SUM));
    LS_EXPECT(counted == lines, "the ranks of a node count %lld bytes of values, expected %lld", (long long)counted,
              (long long)lines);
    ls_group_stats_read(c.column, &before);
    LS_TRY(step(w, &r, 0, 2, &norm));
    ls_group_stats_read(c.column, &after);
    int64_t column = (int64_t)own;
    LS_TRY(ls_all_reduce(c.column, NULL, &column, 1, LS_I64, LS_SUM));
    const size_t packed = ls_debug_look(c.column).packed;
    LS_EXPECT(ls_ddp_buckets(r.ddp) == 1 ? packed == (size_t)column : packed < (size_t)column,
              "%zu bytes to pack the column's rows in, which are %lld", packed, (long long)column);
    const uint64_t sent = after.bytes - before.bytes, want = own * (uint64_t)(ls_group_size(c.column) - 1);
    LS_EXPECT(sent == want, "%llu bytes to the other nodes, expected %llu", (unsigned long long)sent,
              (unsigned long long)want);
    ls_replica_destroy(&r);
    destroy_nodes(&c);
    return LS_OK;
}

static void nodes_exchange_new_values_once(void **state)
{
    (void)state;
    on_nodes row[] = { { &one_copy, 4, two_nodes, 1 }, { &last_of_one, 4, two_nodes, 1 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_world_opts o = opts_of(&row[i]);
        expect(ls_test_ranks(LS_TEST_THREADS, row[i].ranks, &o, sends_its_rows_once, &row[i]));
    }
}

static ls_status refuses_nodes(ls_world *w, void *arg)
{
    const on_nodes *o = arg;
    ls_group *g = ls_world_group(w), *again;
    ls_ddp_config c;
    ls_replica r;
    LS_TRY(split_nodes(w, o, &c));
    LS_TRY(ls_group_split_by(g, node_of, g, "again", &again));
    const struct { ls_ddp_config c; const char *want; } row[] = {
        { { .zero_stage = 2, .node = c.node, .column = c.column }, "belong to zero_stage 3 with LS_ZERO_COPY_HOST" },
        { { .zero_stage = 3, .copy = LS_ZERO_COPY_RANK, .node = c.node, .column = c.column }, "belong to zero_stage 3 with" },
        { { .zero_stage = 3, .node = c.node }, "ls_ddp_config.node and column: column is NULL" },
        { { .zero_stage = 3, .column = c.column }, "ls_ddp_config.node and column: node is NULL" },
        { { .zero_stage = 3, .node = g, .column = c.column }, "are 8 ranks: expected 4, the number of shards" },
        { { .zero_stage = 3, .node = c.node, .column = again }, "is in this rank's node and in its column" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_replica_config rc = config_of(&row[i].c, "sgd");
        const ls_status st = ls_replica_create(w, &rc, &r);
        LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), row[i].want), "row %zu: %s", i, ls_last_error());
    }
    const ls_replica_config alone = config_of(o->ddp, "sgd"); /* no groups: these ranks cannot share one copy */
    const ls_status st = ls_replica_create(w, &alone, &r);
    LS_EXPECT(st == LS_UNSUPPORTED && strstr(ls_last_error(), "do not map each other's memory"), "%s", ls_last_error());
    ls_group_destroy(again);
    destroy_nodes(&c);
    return LS_OK;
}

static void refuses_groups_that_are_no_nodes(void **state)
{
    (void)state;
    on_nodes row = { &one_copy, 4, two_nodes, 1 };
    const ls_world_opts o = opts_of(&row);
    expect(ls_test_ranks(LS_TEST_THREADS, row.ranks, &o, refuses_nodes, &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_have_the_values_of_gathering_ranks),
        cmocka_unit_test(nodes_exchange_new_values_once),
        cmocka_unit_test(refuses_groups_that_are_no_nodes),
    };
    return cmocka_run_group_tests_name("zero_nodes", tests, NULL, NULL);
}
