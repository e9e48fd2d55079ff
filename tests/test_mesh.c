/* A world as a grid of ranks: coordinates, groups against brute force over all ranks, and sizes that do not fit. */
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "lockstep/mesh.h"

/* --- coordinates --------------------------------------------------------------------------------------- */

static void coordinates_count_slowest_axis_first(void **state)
{
    (void)state;
    static const int size[LS_AXES] = { 2, 3, 1, 2, 2 };
    int rank = 0, coord[LS_AXES];
    for (int pp = 0; pp < 2; pp++)
        for (int dp = 0; dp < 3; dp++)
            for (int cp = 0; cp < 2; cp++)
                for (int tp = 0; tp < 2; tp++, rank++) {
                    const int want[LS_AXES] = { pp, dp, 0, cp, tp };
                    ls_mesh_coord(size, NULL, rank, coord);
                    assert_memory_equal(coord, want, sizeof want);
                }
    assert_int_equal(rank, 24);
    assert_string_equal(ls_axis_name(LS_AXIS_PP), "pp");
    assert_string_equal(ls_axis_name(LS_AXIS_TP), "tp");
}

/* Ranks count along the last axis of an order first; a place along some axes counts likewise, and back. */
static void orders_say_which_axis_is_slowest(void **state)
{
    (void)state;
    static const int size[LS_AXES] = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 3, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 2,
                                       [LS_AXIS_TP] = 4 };
    int order[LS_AXES], named, stride[LS_AXES], rank = 0;
    assert_int_equal(ls_mesh_order_read("tp-cp-pp-dp", order, &named), LS_OK);
    static const int want_order[LS_AXES] = { LS_AXIS_EP, LS_AXIS_TP, LS_AXIS_CP, LS_AXIS_PP, LS_AXIS_DP };
    assert_memory_equal(order, want_order, sizeof order);
    assert_int_equal(named, 4);
    ls_mesh_strides(size, order, stride);
    assert_int_equal(stride[LS_AXIS_DP], 1);
    assert_int_equal(stride[LS_AXIS_PP], 3);
    assert_int_equal(stride[LS_AXIS_CP], 6);
    assert_int_equal(stride[LS_AXIS_TP], 12);
    for (int tp = 0; tp < 4; tp++)
        for (int cp = 0; cp < 2; cp++)
            for (int pp = 0; pp < 2; pp++)
                for (int dp = 0; dp < 3; dp++, rank++) {
                    const int want[LS_AXES] = { pp, dp, 0, cp, tp };
                    const unsigned along = LS_ALONG(LS_AXIS_TP) | LS_ALONG(LS_AXIS_DP);
                    int coord[LS_AXES], place, count;
                    ls_mesh_coord(size, order, rank, coord);
                    assert_memory_equal(coord, want, sizeof want);
                    ls_mesh_place(size, order, rank, along, &place, &count);
                    assert_int_equal(place, 3 * tp + dp);
                    assert_int_equal(count, 12);
                    assert_int_equal(ls_mesh_at(size, order, rank, along, place), rank);
                    /* tp 2, dp 1 */
                    assert_int_equal(ls_mesh_at(size, order, rank, along, 7), 2 * 12 + 6 * cp + 3 * pp + 1);
                }
}

static void orders_that_are_none_are_refused(void **state)
{
    (void)state;
    int order[LS_AXES], named;
    assert_int_equal(ls_mesh_order_read("tp-up", order, &named), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "there is no axis 'up': expected pp, dp, ep, cp and tp"));
    assert_int_equal(ls_mesh_order_read("tp-dp-tp", order, &named), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "tp is there twice"));
    assert_int_equal(ls_mesh_order_read("tp-dp-", order, &named), LS_BAD_CONFIG);
    assert_int_equal(ls_mesh_order_read("", order, &named), LS_BAD_CONFIG);
}

/* --- groups --------------------------------------------------------------------------------------------- */

/* The ranks of the grid that differ from `me` along none but the given axes. */
static ls_status is_plane(const ls_mesh *m, const char *what, ls_group *g, const char *along)
{
    int me = ls_world_rank(m->w), n = 0, mine[LS_AXES], other[LS_AXES];
    LS_EXPECT(g, "rank %d has no group %s", me, what);
    ls_mesh_coord(m->size, m->order, me, mine);
    for (int r = 0; r < ls_world_size(m->w); r++) {
        bool in = true;
        ls_mesh_coord(m->size, m->order, r, other);
        for (int a = 0; a < LS_AXES; a++) in &= mine[a] == other[a] || strstr(along, ls_axis_name((ls_axis)a)) != NULL;
        if (!in) continue;
        LS_EXPECT(n < ls_group_size(g) && ls_group_world_rank(g, n) == r, "%s of rank %d: member %d is rank %d, expected %d",
                  what, me, n, ls_group_world_rank(g, n), r);
        LS_EXPECT(r != me || ls_group_rank(g) == n, "%s of rank %d: it is member %d", what, me, ls_group_rank(g));
        n++;
    }
    LS_EXPECT(ls_group_size(g) == n, "%s of rank %d: %d members, expected %d", what, me, ls_group_size(g), n);
    if (ls_world_is_dry(m->w)) return LS_OK;
    double sum = 1.0, want = n; /* and its members can talk */
    LS_TRY(ls_all_reduce(g, NULL, &sum, 1, LS_F64, LS_SUM));
    LS_EXPECT(sum == want, "%s: sum %g", what, sum);
    return LS_OK;
}

static ls_status is_mesh(const ls_mesh *m)
{
    const int last = m->size[LS_AXIS_PP] - 1, stage = m->coord[LS_AXIS_PP], me = ls_world_rank(m->w);
    for (int a = 0; a < LS_AXES; a++)
        LS_TRY(is_plane(m, ls_axis_name((ls_axis)a), m->axis[a], ls_axis_name((ls_axis)a)));
    int index, count;
    LS_TRY(is_plane(m, "batch", m->batch, "dp ep"));
    ls_mesh_place(m->size, m->order, me, LS_ALONG(LS_AXIS_DP) | LS_ALONG(LS_AXIS_EP), &index, &count);
    LS_EXPECT(index == ls_group_rank(m->batch) && count == ls_group_size(m->batch), "rank %d: batch %d of %d", me, index, count);
    LS_TRY(is_plane(m, "replicas", m->replicas, "dp ep cp"));
    LS_TRY(is_plane(m, "expert replicas", m->expert_replicas, "dp cp"));
    LS_EXPECT(m->speaks == (me == 0), "rank %d speaks", me);
    LS_EXPECT(m->has_loss == (stage == last && m->coord[LS_AXIS_TP] == 0), "rank %d has the loss: %d", me, m->has_loss);
    LS_EXPECT((m->embedding != NULL) == (last > 0 && (stage == 0 || stage == last)), "rank %d: embedding", me);
    if (m->embedding) {
        int coord[LS_AXES];
        LS_EXPECT(ls_group_size(m->embedding) == 2, "embedding of %d", ls_group_size(m->embedding));
        for (int i = 0; i < 2; i++) {
            ls_mesh_coord(m->size, m->order, ls_group_world_rank(m->embedding, i), coord);
            LS_EXPECT(coord[LS_AXIS_PP] == i * last, "embedding: member %d is of stage %d", i, coord[LS_AXIS_PP]);
            coord[LS_AXIS_PP] = stage;
            LS_EXPECT(memcmp(coord, m->coord, sizeof coord) == 0, "embedding: member %d is elsewhere", i);
        }
    }
    return LS_OK;
}

static ls_status mesh_rank(ls_world *w, void *arg)
{
    static const int orders[][LS_AXES] = {
        { 0 },
        { LS_AXIS_TP, LS_AXIS_CP, LS_AXIS_EP, LS_AXIS_DP, LS_AXIS_PP },
        { LS_AXIS_DP, LS_AXIS_PP, LS_AXIS_TP, LS_AXIS_EP, LS_AXIS_CP },
    };
    ls_status st = LS_OK;
    for (size_t i = 0; st == LS_OK && i < sizeof orders / sizeof *orders; i++) {
        ls_mesh m;
        LS_TRY(ls_mesh_create(w, arg, orders[i], &m));
        st = is_mesh(&m);
        if (st == LS_OK) ls_mesh_destroy(&m);
    }
    return st;
}

static void groups_are_lines_and_planes(void **state)
{
    (void)state;
    static const int sizes[][LS_AXES] = {
        { 1, 1, 1, 1, 1 }, { 1, 4, 1, 1, 1 }, { 2, 1, 1, 1, 2 }, { 1, 2, 1, 2, 2 }, { 2, 2, 1, 1, 2 }, { 3, 2, 1, 1, 1 },
        { 1, 2, 3, 1, 1 }, { 2, 1, 2, 2, 1 }, { 3, 1, 2, 1, 2 }, { 2, 2, 2, 2, 1 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int n = 1, size[LS_AXES];
        memcpy(size, sizes[i], sizeof size);
        for (int a = 0; a < LS_AXES; a++) n *= size[a];
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, NULL, mesh_rank, size);
        if (r.failed) fail_msg("sizes %zu: %s", i, r.text);
    }
}

/* Any rank of a world that is not there finds the same groups: by the rule of the mesh, not by asking. */
static void a_dry_world_has_the_same_groups(void **state)
{
    (void)state;
    static const struct { int size[LS_AXES], step; } row[] = {
        { { 2, 2, 2, 2, 1 }, 1 }, { { 3, 1, 2, 1, 2 }, 1 }, { { 4, 8, 2, 2, 8 }, 341 }, { { 1, 1024, 1, 1, 1 }, 511 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int n = 1;
        for (int a = 0; a < LS_AXES; a++) n *= row[i].size[a];
        for (int r = 0; r < n; r += row[i].step) {
            ls_world *w;
            ls_mesh m;
            if (ls_world_dry(r, n, NULL, NULL, &w) < 0 || ls_mesh_create(w, row[i].size, NULL, &m) < 0 ||
                is_mesh(&m) < 0)
                fail_msg("sizes %zu, rank %d of %d: %s", i, r, n, ls_last_error());
            ls_mesh_destroy(&m);
            if (ls_mesh_create(w, row[i].size, NULL, &m) < 0 || is_mesh(&m) < 0) fail_msg("again: %s", ls_last_error());
            ls_mesh_destroy(&m);
            ls_world_leave(w);
        }
    }
}

/* Who has the same members has the same group: a mesh of data parallel ranks alone costs one group of one. */
static ls_status shared_rank(ls_world *w, void *arg)
{
    static const int size[LS_AXES] = { 1, 4, 1, 1, 1 };
    ls_group *const all = ls_world_group(w);
    ls_mesh m;
    (void)arg;
    LS_TRY(ls_mesh_create(w, size, NULL, &m));
    LS_EXPECT(m.axis[LS_AXIS_DP] == all && m.batch == all && m.replicas == all && m.expert_replicas == all, "not the world's");
    LS_EXPECT(m.nowned == 1 && m.axis[LS_AXIS_PP] == m.axis[LS_AXIS_TP] && ls_group_size(m.axis[LS_AXIS_PP]) == 1 &&
              !m.embedding, "%d groups", m.nowned);
    for (int i = 0; i < 30; i++) { /* and gives back what it takes */
        ls_mesh_destroy(&m);
        LS_EXPECT(!m.w && m.nowned == 0, "destroyed, it is not empty");
        LS_TRY(ls_mesh_create(w, size, NULL, &m));
    }
    ls_mesh_destroy(&m);
    return LS_OK;
}

static void equal_members_share_a_group(void **state)
{
    (void)state;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 4, NULL, shared_rank, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* --- sizes that do not fit -------------------------------------------------------------------------------- */

static void sizes_that_do_not_fit_are_refused_with_those_that_do(void **state)
{
    (void)state;
    static const struct {
        int size[LS_AXES], world;
        const char *says;
    } row[] = {
        { { 1, 4, 1, 1, 1 }, 4, NULL },
        { { 2, 1, 1, 1, 4 }, 8, NULL },
        { { 1, 3, 1, 1, 1 }, 4, "mesh: dp 3 = 3, but the world has 4 ranks: dp 4 fits" },
        { { 1, 1, 1, 1, 1 }, 2, "mesh: dp 1 = 1, but the world has 2 ranks: dp 2 fits" },
        { { 1, 4, 1, 1, 4 }, 8, "mesh: dp 4 x tp 4 = 16, but the world has 8 ranks: dp 2 fits" },
        { { 1, 1, 1, 1, 3 }, 8, "mesh: tp 3 = 3, but the world has 8 ranks: with tp 2 or 4, dp 4 or 2 fits" },
        { { 2, 1, 1, 1, 3 }, 8, "mesh: pp 2 x tp 3 = 6, but the world has 8 ranks: with tp 2 or 4, dp 2 or 1 fits" },
        { { 3, 1, 1, 1, 1 }, 4, "mesh: pp 3 = 3, but the world has 4 ranks: with pp 2 or 4, dp 2 or 1 fits" },
        { { 3, 1, 1, 3, 3 }, 8, "mesh: pp 3 x cp 3 x tp 3 = 27, but the world has 8 ranks: make all axes smaller, or start "
                                "more ranks" },
        { { 1, 0, 1, 1, 1 }, 4, "mesh: dp is 0; expected 1 to 4, the number of ranks" },
        { { 1, 1, 1, 1, 5 }, 4, "mesh: tp is 5; expected 1 to 4, the number of ranks" },
        { { 65536, 65536, 65536, 1, 1 }, 65536, "mesh: its sizes multiply to more than 2^40 ranks" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const ls_status st = ls_mesh_check(row[i].size, row[i].world);
        assert_int_equal(st, row[i].says ? LS_BAD_CONFIG : LS_OK);
        if (row[i].says) assert_string_equal(ls_last_error(), row[i].says);
    }
}

static ls_status refused_rank(ls_world *w, void *arg)
{
    ls_mesh m;
    LS_EXPECT(ls_mesh_create(w, arg, NULL, &m) == LS_BAD_CONFIG && !m.w && m.nowned == 0, "a mesh of wrong sizes");
    ls_mesh_destroy(&m);
    return ls_barrier(ls_world_group(w)); /* nothing was harmed */
}

static void a_refused_mesh_leaves_the_world_as_it_was(void **state)
{
    (void)state;
    int size[LS_AXES] = { 1, 1, 1, 1, 3 };
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, refused_rank, size);
    if (r.failed) fail_msg("%s", r.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinates_count_slowest_axis_first),
        cmocka_unit_test(orders_say_which_axis_is_slowest),
        cmocka_unit_test(orders_that_are_none_are_refused),
        cmocka_unit_test(groups_are_lines_and_planes),
        cmocka_unit_test(a_dry_world_has_the_same_groups),
        cmocka_unit_test(equal_members_share_a_group),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_with_those_that_do),
        cmocka_unit_test(a_refused_mesh_leaves_the_world_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
