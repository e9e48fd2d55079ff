/* Forms in memory: which one runs, what each moves, what the cost model makes of that, and why measured sizes and not
 * these times choose among them. In dry worlds, so that any number of ranks has a core each. */
#include <string.h>

#include "coll/traffic.h"
#include "group/debug.h"
#include "group/engine.h"
#include "harness.h"
#include "lockstep/lockstep.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ELEM sizeof(float)
#define MOST ((size_t)64 << 20) /* bytes of a vector */

/* A rank of a world whose ranks have a core each, or share them; every rank may read every other one's memory. */
static ls_group *member(int rank, int size, bool crowded)
{
    ls_world *w;
    if (ls_world_dry(rank, size, NULL, NULL, &w) < 0) fail_msg("%s", ls_last_error());
    ls_group *g = ls_world_group(w);
    g->crowded = crowded;
    g->attached = true;
    g->e->tuning.cost = ls_cost_preset;
    return g;
}

static ls_coll_args call(ls_coll coll, size_t nbytes)
{
    return (ls_coll_args){ .coll = coll, .count = nbytes / ELEM, .dtype = LS_F32, .op = LS_SUM };
}

/* What a form would move for a call; NULL when it cannot carry it out. */
static const ls_debug_form *by_form(ls_group *g, const ls_coll_args *a, const char *name)
{
    static _Thread_local ls_debug_form form[LS_DEBUG_FORMS];
    int n;
    if (ls_debug_forms(g, a, form, &n) < 0) fail_msg("%s", ls_last_error());
    for (int i = 0; i < n; i++)
        if (strcmp(form[i].name, name) == 0) return &form[i];
    return NULL;
}

static const ls_debug_form *expect_form(ls_group *g, const ls_coll_args *a, const char *name)
{
    const ls_debug_form *f = by_form(g, a, name);
    if (!f) fail_msg("%s of %zu elements: no form %s", ls_coll_name(a->coll), a->count, name);
    return f;
}

/* --- which one runs ---------------------------------------------------------------------------------------- */

static const int ranks[] = { 2, 3, 4, 5, 8, 16 };

/* Up to so many bytes of a vector of floats the first form, then the second: for each number of ranks. */
static const struct {
    ls_coll coll;
    bool crowded;
    const char *up_to, *above;
    size_t last[COUNT(ranks)];
} choice[] = {
    /* packets hold 1 KiB, and a rank reads 4 KiB at most */
    { LS_ALL_REDUCE, false, "oneshot", "fold", { 1024, 1024, 1024, 1024, 584, 272 } },
    { LS_REDUCE_SCATTER, false, "oneshot", "fold", { 1024, 1024, 1024, 1024, 1024, 1024 } },
    { LS_ALL_GATHER, false, "oneshot", "fold", { 4096, 4096, 4096, 4096, 4096, 4096 } },
    { LS_ALL_TO_ALL, false, "oneshot", "fold", { 4096, 4092, 4096, 4080, 4096, 4096 } },
    { LS_BROADCAST, false, "mail", "rooted", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    { LS_SCATTER, false, "mail", "rooted", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    { LS_REDUCE, false, "mail", "fold", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    /* a mailbox takes 8 KiB of each rank */
    { LS_GATHER, false, "mail", "rooted", { 16384, 24576, 32768, 40960, 65536, 131072 } },
    /* 512 bytes for each rank */
    { LS_ALL_REDUCE, true, "oneshot", "fold", { 1024, 1536, 2048, 2560, 4096, 8192 } },
    { LS_REDUCE_SCATTER, true, "oneshot", "fold", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    /* a slot takes 16 KiB of each rank */
    { LS_ALL_GATHER, true, "oneshot", "fold", { 32768, 49152, 65536, 81920, 131072, 262144 } },
    { LS_ALL_TO_ALL, true, "oneshot", "fold", { 16384, 16380, 16384, 16380, 16384, 16384 } },
    { LS_BROADCAST, true, "mail", "rooted", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    { LS_SCATTER, true, "mail", "rooted", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    { LS_REDUCE, true, "mail", "fold", { 8192, 8192, 8192, 8192, 8192, 8192 } },
    { LS_GATHER, true, "mail", "rooted", { 16384, 24576, 32768, 40960, 65536, 131072 } },
};

/* What a call is recorded as, and what is said of it beforehand. */
static void expect_choice(ls_group *g, ls_coll coll, size_t nbytes, void *p, const char *want)
{
    ls_coll_args a = call(coll, nbytes);
    const ls_recorded *had;
    ls_debug_form form[LS_DEBUG_FORMS];
    ls_work *k;
    int n, chosen = 0;
    if (ls_debug_forms(g, &a, form, &n) < 0) fail_msg("%s", ls_last_error());
    for (int i = 0; i < n; i++) {
        chosen += form[i].chosen;
        if (form[i].chosen && (form[i].private_memory || strcmp(form[i].name, want) != 0))
            fail_msg("%s of %zu bytes over %d ranks: %s, expected %s", ls_coll_name(coll), nbytes, g->size,
                     form[i].name, want);
    }
    assert_int_equal(chosen, 1);
    a.out = p;
    if (coll == LS_ALL_TO_ALL) a.in = (char *)p + MOST;
    ls_world_record_clear(g->w);
    if (ls_coll_start(g, &a, &k) < 0 || ls_work_wait(k) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_world_recorded(g->w, &had), 1);
    if (strcmp(had[0].form, want) != 0)
        fail_msg("%s of %zu bytes over %d ranks ran as %s, expected %s", ls_coll_name(coll), nbytes, g->size,
                 had[0].form, want);
}

static void each_form_runs_where_the_table_says(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(ranks); n++)
        for (int crowded = 0; crowded < 2; crowded++) {
            ls_group *g = member(1, ranks[n], crowded);
            void *p;
            assert_int_equal(ls_alloc(g->w, 2 * MOST, LS_MEM_DATA, &p), LS_OK);
            for (size_t i = 0; i < COUNT(choice); i++) {
                if (choice[i].crowded != crowded) continue;
                const size_t last = choice[i].last[n];
                const size_t unit = choice[i].coll == LS_ALL_TO_ALL ? ELEM * (size_t)g->size : ELEM;
                expect_choice(g, choice[i].coll, last / unit * unit, p, choice[i].up_to);
                expect_choice(g, choice[i].coll, (last / unit + 1) * unit, p, choice[i].above);
                for (size_t b = 8; b <= MOST; b *= 2) {
                    const size_t cut = b / unit * unit;
                    expect_choice(g, choice[i].coll, cut, p, cut <= last ? choice[i].up_to : choice[i].above);
                }
            }
            ls_world_leave(g->w);
        }
}

/* --- what each moves ---------------------------------------------------------------------------------------- */

/* Bytes, of a vector of S bytes cut into n shares of s: times[0] S + times[1] s, with the number n - 1 as N. */
#define N 100
typedef struct bytes { int whole, share; } bytes;
static const struct {
    ls_coll coll;
    const char *form;
    enum { ALL, ROOT, LEAF } who;
    int rounds;
    bytes read, written, added, copied;
} moves[] = {
    { LS_ALL_REDUCE, "oneshot", ALL, 1, { N, 0 }, { 0, 0 }, { N, 0 }, { 1, 0 } },
    { LS_ALL_REDUCE, "fold", ALL, 2, { 0, N }, { 0, N }, { 0, N }, { 0, 0 } },
    { LS_ALL_REDUCE, "staged", ALL, 3, { 1, N - 1 }, { 0, 0 }, { 0, N }, { 1, 0 } },
    { LS_REDUCE_SCATTER, "oneshot", ALL, 1, { 0, N }, { 0, 0 }, { 0, N }, { 1, -1 } },
    { LS_REDUCE_SCATTER, "fold", ALL, 2, { 0, N }, { 0, 0 }, { 0, N }, { 0, 0 } },
    { LS_REDUCE_SCATTER, "staged", ALL, 2, { 0, N }, { 0, 0 }, { 0, N }, { 1, -1 } },
    { LS_ALL_GATHER, "oneshot", ALL, 1, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 1 } },
    { LS_ALL_GATHER, "fold", ALL, 2, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_ALL_GATHER, "staged", ALL, 2, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 1 } },
    { LS_ALL_TO_ALL, "oneshot", ALL, 1, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 1, 0 } },
    { LS_ALL_TO_ALL, "fold", ALL, 2, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_ALL_TO_ALL, "attached", ALL, 2, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_ALL_TO_ALL, "staged", ALL, 2, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 1, -1 } },
    { LS_REDUCE, "mail", ROOT, 1, { N, 0 }, { 0, 0 }, { N, 0 }, { 0, 0 } },
    { LS_REDUCE, "mail", LEAF, 1, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 1, 0 } },
    { LS_REDUCE, "fold", ROOT, 2, { 0, N }, { 0, 0 }, { 0, N }, { 0, 0 } },
    { LS_REDUCE, "fold", LEAF, 2, { 0, N }, { 0, 1 }, { 0, N }, { 0, 0 } },
    { LS_REDUCE, "staged", ROOT, 3, { 1, N - 1 }, { 0, 0 }, { 0, N }, { 1, -1 } },
    { LS_REDUCE, "staged", LEAF, 3, { 0, N }, { 0, 0 }, { 0, N }, { 1, 0 } },
    { LS_BROADCAST, "mail", ROOT, 1, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 1, 0 } },
    { LS_BROADCAST, "mail", LEAF, 1, { 1, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_BROADCAST, "rooted", LEAF, 2, { 1, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_BROADCAST, "staged", ROOT, 2, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 1, 0 } },
    { LS_BROADCAST, "staged", LEAF, 2, { 1, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_GATHER, "mail", ROOT, 1, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_GATHER, "mail", LEAF, 1, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 1 } },
    { LS_GATHER, "rooted", LEAF, 1, { 0, 0 }, { 0, 1 }, { 0, 0 }, { 0, 0 } },
    { LS_GATHER, "staged", ROOT, 2, { 1, -1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_GATHER, "staged", LEAF, 2, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 1 } },
    { LS_SCATTER, "mail", ROOT, 1, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 1, 0 } },
    { LS_SCATTER, "mail", LEAF, 1, { 0, 1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_SCATTER, "rooted", LEAF, 1, { 0, 1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { LS_SCATTER, "staged", ROOT, 2, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 1, -1 } },
    { LS_SCATTER, "staged", LEAF, 2, { 0, 1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
};

static int64_t times(int x, int n) { return x >= N - 1 ? x - N + n - 1 : x; }

static uint64_t in_all(bytes b, int n, int64_t share)
{
    return (uint64_t)(times(b.whole, n) * share * n + times(b.share, n) * share);
}

static void moves_what_the_table_says(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++)
        for (int rank = 0; rank < 2; rank++) {
            ls_group *g = member(rank, size, false);
            for (size_t i = 0; i < COUNT(moves); i++) {
                if (moves[i].who != ALL && (moves[i].who == ROOT) != (rank == 0)) continue;
                for (int64_t share = 64; share <= 1600; share += 256) {
                    const ls_coll_args a = call(moves[i].coll, (size_t)(share * size));
                    const ls_traffic *t = &expect_form(g, &a, moves[i].form)->moved;
                    if (t->rounds != moves[i].rounds || t->read != in_all(moves[i].read, size, share) ||
                        t->written != in_all(moves[i].written, size, share) ||
                        t->added != in_all(moves[i].added, size, share) ||
                        t->copied != in_all(moves[i].copied, size, share))
                        fail_msg("%s by %s, rank %d of %d, shares of %d bytes: %d rounds, read %d, written %d, added %d, "
                                 "copied %d",
                                 ls_coll_name(a.coll), moves[i].form, rank, size, (int)share, t->rounds, (int)t->read,
                                 (int)t->written, (int)t->added, (int)t->copied);
                }
            }
            ls_world_leave(g->w);
        }
}

/* What fits a flag's line goes into it whole. */
static void a_vector_in_a_line_is_whole(void **state)
{
    (void)state;
    ls_group *g = member(0, 2, false);
    ls_coll_args a = call(LS_REDUCE_SCATTER, 40);
    assert_int_equal(expect_form(g, &a, "oneshot")->moved.copied, 40);
    a = call(LS_REDUCE_SCATTER, 48);
    assert_int_equal(expect_form(g, &a, "oneshot")->moved.copied, 24);
    a = call(LS_BARRIER, 0);
    assert_int_equal(expect_form(g, &a, "oneshot")->moved.copied, 0);
    ls_world_leave(g->w);
}

/* A form that has no room for a vector, or is not for such a collective, is not told of. */
static void tells_of_forms_that_can(void **state)
{
    (void)state;
    static const struct { ls_coll coll; size_t nbytes; int size; const char *form; bool can; } row[] = {
        { LS_ALL_REDUCE, 16384, 4, "oneshot", true }, { LS_ALL_REDUCE, 16388, 4, "oneshot", false },
        { LS_ALL_GATHER, 65536, 4, "oneshot", true }, { LS_ALL_GATHER, 65540, 4, "oneshot", false },
        { LS_BROADCAST, 8192, 4, "mail", true }, { LS_BROADCAST, 8196, 4, "mail", false },
        { LS_BROADCAST, 8192, 4, "fold", false }, { LS_ALL_REDUCE, 8, 4, "attached", false },
        { LS_ALL_GATHER, 8, 2, "attached", true }, { LS_ALL_GATHER, 8, 3, "attached", false },
        { LS_ALL_TO_ALL, (size_t)4 << 24, 4, "attached", false },
        { LS_ALL_TO_ALL, (size_t)4 << 23, 4, "attached", true },
        { LS_BARRIER, 0, 4, "staged", false }, { LS_SENDRECV, 8, 4, "staged", false },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_group *g = member(0, row[i].size, false);
        const ls_coll_args a = call(row[i].coll, row[i].nbytes);
        const ls_debug_form *f = by_form(g, &a, row[i].form);
        if ((f != NULL) != row[i].can)
            fail_msg("%s of %zu bytes by %s: %d", ls_coll_name(a.coll), row[i].nbytes, row[i].form, f != NULL);
        ls_world_leave(g->w);
    }
}

/* --- what the cost model makes of it ------------------------------------------------------------------------- */

/* The size at which two forms take as long follows from the costs: where one round is worth the bytes of the other. */
static void times_cross_where_the_arithmetic_says(void **state)
{
    (void)state;
    static const double round[] = { 1024, 3072, 6144 }, byte[] = { 1, 0.5 }, add[] = { 1, 3 };
    for (int n = 2; n <= 4; n += 2)
        for (size_t i = 0; i < COUNT(round) * COUNT(byte) * COUNT(add); i++) {
            const double a = round[i % 3], b = byte[i / 3 % 2], c = add[i / 6], m = n - 1;
            ls_group *g = member(0, n, false);
            g->e->tuning.cost.link[LS_LEVEL_MEMORY].alpha_ns = a;
            g->e->tuning.cost.link[LS_LEVEL_MEMORY].beta_ns = b;
            g->e->tuning.cost.gamma_ns = c;
            const struct { ls_coll coll; double per_byte; } row[] = { /* of the vector: what oneshot takes more */
                { LS_ALL_REDUCE, c * m + b - (c + b) * m / n },
                { LS_REDUCE_SCATTER, b * m / n },
                { LS_ALL_GATHER, b / n },
                { LS_ALL_TO_ALL, b },
            };
            for (size_t r = 0; r < COUNT(row); r++) {
                const double cross = a / row[r].per_byte;
                for (size_t nbytes = 256; nbytes <= 16384; nbytes += 256) {
                    const ls_coll_args x = call(row[r].coll, nbytes);
                    const double one = expect_form(g, &x, "oneshot")->ns, two = expect_form(g, &x, "fold")->ns;
                    const double want = row[r].per_byte * ((double)nbytes - cross);
                    if (one - two > want + 1e-6 || one - two < want - 1e-6)
                        fail_msg("%s of %zu bytes over %d ranks: oneshot %g ns, fold %g, expected %g between them",
                                 ls_coll_name(x.coll), nbytes, n, one, two, want);
                }
            }
            ls_world_leave(g->w);
        }
}

/* --- why it does not choose ----------------------------------------------------------------------------------- */

/* Between two ranks a reduce_scatter and an all_gather gain and lose the same by going through slots: a round, and half
 * a vector copied. So whatever these cost, both would change forms at one size. Measured, they do not. */
static void two_measured_sizes_have_one_traffic(void **state)
{
    (void)state;
    ls_group *g = member(0, 2, false);
    for (size_t nbytes = 64; nbytes <= 16384; nbytes += 64) {
        ls_traffic t[2][2];
        for (int c = 0; c < 2; c++)
            for (int f = 0; f < 2; f++) {
                const ls_coll_args a = call(c == 0 ? LS_REDUCE_SCATTER : LS_ALL_GATHER, nbytes);
                t[c][f] = expect_form(g, &a, f == 0 ? "oneshot" : "fold")->moved;
            }
#define GAIN(c, what) ((int64_t)t[c][0].what - (int64_t)t[c][1].what)
        assert_int_equal(GAIN(0, copied), GAIN(1, copied));
        assert_int_equal(GAIN(0, rounds), GAIN(1, rounds));
        assert_int_equal(GAIN(0, flags), GAIN(1, flags));
        assert_int_equal(GAIN(0, read), GAIN(1, read));
        assert_int_equal(GAIN(0, written), GAIN(1, written));
        assert_int_equal(GAIN(0, added), GAIN(1, added));
#undef GAIN
    }
    assert_true(ls_cost_preset.in_memory.sum_in_place != ls_cost_preset.in_memory.copy_in_place);
    ls_world_leave(g->w);
}

/* Three more sizes choose with which instructions the same bytes are stored. */
static void stores_past_the_caches_move_the_same(void **state)
{
    (void)state;
    ls_group *g = member(1, 2, false);
    ls_switch_points *s = &g->e->tuning.cost.in_memory;
    for (ls_coll coll = 0; coll < LS_COLLS; coll++)
        for (size_t nbytes = 4096; nbytes <= MOST; nbytes *= 16) {
            const ls_coll_args a = call(coll, nbytes);
            ls_debug_form form[2][LS_DEBUG_FORMS];
            int n[2];
            for (int way = 0; way < 2; way++) {
                s->past_cache = s->mail_string = s->stage_past_cache = way == 0 ? 0.0 : LS_COST_NEVER;
                assert_int_equal(ls_debug_forms(g, &a, form[way], &n[way]), LS_OK);
            }
            assert_int_equal(n[0], n[1]);
            for (int i = 0; i < n[0]; i++) {
                const ls_traffic *x = &form[0][i].moved, *y = &form[1][i].moved;
                assert_int_equal(x->read, y->read);
                assert_int_equal(x->written, y->written);
                assert_int_equal(x->added, y->added);
                assert_int_equal(x->copied, y->copied);
            }
        }
    ls_world_leave(g->w);
}

/* By its traffic, reading private memory in its owner's process would never lose to slots. (A system call is not in
 * it.) */
static void attached_moves_no_more_than_slots(void **state)
{
    (void)state;
    ls_group *g = member(0, 2, false);
    for (size_t nbytes = 8; nbytes <= (size_t)16 << 20; nbytes *= 2) {
        const ls_coll_args a = call(LS_ALL_TO_ALL, nbytes);
        const double attached = expect_form(g, &a, "attached")->ns, staged = expect_form(g, &a, "staged")->ns;
        assert_true(attached < staged);
    }
    ls_world_leave(g->w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_runs_where_the_table_says),
        cmocka_unit_test(moves_what_the_table_says),
        cmocka_unit_test(a_vector_in_a_line_is_whole),
        cmocka_unit_test(tells_of_forms_that_can),
        cmocka_unit_test(times_cross_where_the_arithmetic_says),
        cmocka_unit_test(two_measured_sizes_have_one_traffic),
        cmocka_unit_test(stores_past_the_caches_move_the_same),
        cmocka_unit_test(attached_moves_no_more_than_slots),
    };
    return cmocka_run_group_tests_name("forms", tests, NULL, NULL);
}
