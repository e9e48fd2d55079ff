/* Vectors of matrices, of which each rank has rows: reduce_scatter and all_gather by every form, compared with a loop;
 * what is between the matrices stays. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define GUARD    777.0f

#define ROWS(first, rows, row) { first, rows, row, NULL }

/* Matrices side by side and apart, with fewer rows than ranks, with none, and one after which nothing comes. */
static const ls_matrix_span few[] = { ROWS(0, 5, 3), ROWS(16, 1, 7), ROWS(23, 7, 1), ROWS(40, 0, 4), ROWS(40, 3, 2) };
static const ls_matrix_span one[] = { ROWS(8, 4, 16) };
static const ls_matrix_span wide[] = { ROWS(0, 1001, 33), ROWS(33040, 3, 20000), /* several turns */
                                       ROWS(93040, 257, 130) };
static const ls_matrix_span huge[] = { ROWS(0, 513, 4096), ROWS(2101248, 1023, 1000) }; /* 3 ranks: past the caches */
static const struct row { const ls_matrix_span *span; int n; size_t count; } rows[] = {
    { few, COUNT(few), 46 }, { one, 1, 80 }, { wide, COUNT(wide), 126500 }, { huge, COUNT(huge), 3124300 }, { few, 0, 5 },
};

/* Whose row element i of the vector is in; -1: it is between the matrices. */
static int owner(const struct row *x, size_t i, int size)
{
    for (int k = 0; k < x->n; k++) {
        const ls_matrix_span *s = &x->span[k];
        if (i < s->first || i >= s->first + s->rows * s->row) continue;
        const size_t row = (i - s->first) / s->row;
        for (int r = 0; r < size; r++) {
            const ls_range rows_of = s->part ? s->part[r] : ls_shard_of(s->rows, r, size);
            if (row >= rows_of.first && row < rows_of.first + rows_of.count) return r;
        }
    }
    return -1;
}

static float value(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 13) % 101); } /* sums are exact */

static ls_status start(ls_world *w, const struct row *x, ls_coll coll, float *v, ls_work **work)
{
    const ls_coll_args a = { .coll = coll, .out = v, .count = x->count, .span = x->span, .nspans = x->n,
                             .dtype = LS_F32, .op = LS_SUM, .label = "spans" };
    return ls_coll_start(ls_world_group(w), &a, work);
}

static ls_status reduces(ls_world *w, const struct row *x, float *v)
{
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    ls_work *work;
    for (size_t i = 0; i < x->count; i++) v[i] = owner(x, i, size) < 0 ? GUARD : value(rank, i);
    LS_TRY(start(w, x, LS_REDUCE_SCATTER, v, &work));
    LS_TRY(ls_work_wait(work));
    for (size_t i = 0; i < x->count; i++) {
        const int whose = owner(x, i, size);
        float want = whose < 0 ? GUARD : 0;
        for (int r = 0; whose == rank && r < size; r++) want += value(r, i);
        LS_EXPECT(v[i] == want || (whose >= 0 && whose != rank), "reduce_scatter of %zu: v[%zu] = %g, expected %g",
                  x->count, i, (double)v[i], (double)want);
    }
    return LS_OK;
}

/* The part alone, packed into memory of its own; the vector stays as it was between the matrices. */
static ls_status reduces_apart(ls_world *w, const struct row *x, float *v)
{
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    ls_work *work;
    size_t mine = 0, at = 0;
    for (size_t i = 0; i < x->count; i++) {
        const int whose = owner(x, i, size);
        v[i] = whose < 0 ? GUARD : value(rank, i);
        mine += whose == rank;
    }
    float *got = malloc((mine + 1) * sizeof *got);
    LS_EXPECT(got, "memory");
    got[mine] = GUARD;
    const ls_coll_args a = { .coll = LS_REDUCE_SCATTER, .in = v, .out = got, .count = x->count, .span = x->span,
                             .nspans = x->n, .dtype = LS_F32, .op = LS_SUM };
    LS_TRY(ls_coll_start(ls_world_group(w), &a, &work));
    LS_TRY(ls_work_wait(work));
    for (size_t i = 0; i < x->count; i++) {
        const int whose = owner(x, i, size);
        float want = 0;
        for (int r = 0; whose == rank && r < size; r++) want += value(r, i);
        LS_EXPECT(whose != rank || got[at++] == want, "apart, of %zu: %g for v[%zu], expected %g", x->count,
                  (double)got[at - 1], i, (double)want);
        LS_EXPECT(whose >= 0 || v[i] == GUARD, "apart, of %zu: v[%zu] is %g", x->count, i, (double)v[i]);
    }
    LS_EXPECT(got[mine] == GUARD, "apart, of %zu: more than %zu elements", x->count, mine);
    free(got);
    return LS_OK;
}

static ls_status gathers(ls_world *w, const struct row *x, float *v)
{
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    ls_work *work;
    for (size_t i = 0; i < x->count; i++) v[i] = owner(x, i, size) == rank ? value(rank, i) : GUARD;
    LS_TRY(start(w, x, LS_ALL_GATHER, v, &work));
    LS_TRY(ls_work_wait(work));
    for (size_t i = 0; i < x->count; i++) {
        const int whose = owner(x, i, size);
        const float want = whose < 0 ? GUARD : value(whose, i);
        LS_EXPECT(v[i] == want, "all_gather of %zu: v[%zu] = %g, expected %g", x->count, i, (double)v[i], (double)want);
    }
    return LS_OK;
}

/* Several at a time, of different lengths, in bf16: copies alone. */
static ls_status gathers_several(ls_world *w, const struct row *x, uint16_t *v)
{
    enum { AT_ONCE = 3 };
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    ls_work *work[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) {
        for (size_t i = 0; i < x->count; i++)
            v[(size_t)k * x->count + i] = owner(x, i, size) == rank ? ls_f32_to_bf16(value(rank + k, i)) : 1;
        const ls_coll_args a = { .coll = LS_ALL_GATHER, .out = v + (size_t)k * x->count, .count = x->count,
                                 .span = x->span, .nspans = x->n, .dtype = LS_BF16 };
        LS_TRY(ls_coll_start(ls_world_group(w), &a, &work[k]));
    }
    for (int k = 0; k < AT_ONCE; k++) LS_TRY(ls_work_wait(work[k]));
    for (int k = 0; k < AT_ONCE; k++)
        for (size_t i = 0; i < x->count; i++) {
            const int whose = owner(x, i, size);
            const uint16_t want = whose < 0 ? 1 : ls_f32_to_bf16(value(whose + k, i));
            const uint16_t got = v[(size_t)k * x->count + i];
            LS_EXPECT(got == want, "work %d of %zu: v[%zu] = %u, expected %u", k, x->count, i, got, want);
        }
    return LS_OK;
}

static ls_status all_rows(ls_world *w, void *arg)
{
    const size_t n = *(const size_t *)arg;
    void *v;
    LS_TRY(ls_alloc(w, 13u << 20, LS_MEM_GRAD, &v));
    for (size_t i = 0; i < n; i++) {
        LS_TRY(reduces(w, &rows[i], v));
        LS_TRY(reduces_apart(w, &rows[i], v));
        LS_TRY(gathers(w, &rows[i], v));
        if (rows[i].count < 1 << 20) LS_TRY(gathers_several(w, &rows[i], v));
    }
    return LS_OK;
}

/* Every other of twice as many parts, the last rank's first: the rows between them are nobody's. */
static ls_status rows_of_choice(ls_world *w, void *arg)
{
    enum { MOST = 8 };
    static _Thread_local ls_range part[MOST][LS_TEST_RANKS];
    ls_matrix_span span[MOST];
    const int size = ls_world_size(w);
    const size_t n = *(const size_t *)arg;
    void *v;
    LS_TRY(ls_alloc(w, 13u << 20, LS_MEM_GRAD, &v));
    for (size_t i = 0; i < n; i++) {
        struct row x = rows[i];
        LS_EXPECT(x.n <= MOST, "%d spans", x.n);
        for (int k = 0; k < x.n; k++) {
            span[k] = x.span[k];
            span[k].part = part[k];
            for (int r = 0; r < size; r++) part[k][r] = ls_shard_of(span[k].rows, 2 * (size - 1 - r), 2 * size);
        }
        x.span = span;
        LS_TRY(reduces(w, &x, v));
        LS_TRY(reduces_apart(w, &x, v));
        LS_TRY(gathers(w, &x, v));
        LS_TRY(gathers_several(w, &x, v));
    }
    return LS_OK;
}

static void works_by_every_form(void **state)
{
    (void)state;
    static const ls_world_opts opts[] = { { .arena_bytes = 16u << 20 },
                                          { .arena_bytes = 16u << 20, .progress = LS_PROGRESS_THREAD },
                                          { .arena_bytes = 16u << 20, .transport = "tcp" },
                                          { .arena_bytes = 16u << 20, .algo = "ring" },
                                          { .arena_bytes = 16u << 20, .algo = "oneshot" } };
    size_t all = COUNT(rows), small = 3;
    for (size_t o = 0; o < COUNT(opts); o++)
        for (int size = 1; size <= 5; size++) {
            const bool processes = opts[o].transport != NULL;
            const ls_rank_report r = ls_test_ranks(processes ? LS_TEST_PROCESSES : LS_TEST_THREADS, size, &opts[o],
                                                   all_rows, o == 0 && size <= 3 ? &all : &small);
            if (r.failed) fail_msg("options %zu, %d ranks: %s", o, size, r.text);
            const ls_rank_report c = ls_test_ranks(processes ? LS_TEST_PROCESSES : LS_TEST_THREADS, size, &opts[o],
                                                   rows_of_choice, &small);
            if (c.failed) fail_msg("options %zu, %d ranks, parts of choice: %s", o, size, c.text);
        }
}

/* The vector lies in a segment that the arena has got later. */
static void works_after_the_first_segment(void **state)
{
    (void)state;
    static const ls_world_opts o = { .arena_bytes = (size_t)256 << 10 };
    size_t small = 3;
    for (int mode = 0; mode < 2; mode++) {
        const ls_rank_report r = ls_test_ranks(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, 3, &o, all_rows, &small);
        if (r.failed) fail_msg("%s: %s", mode ? "processes" : "threads", r.text);
    }
}

/* --- mistakes ------------------------------------------------------------------------------------ */

typedef struct wrong {
    ls_coll_args a;
    bool apart;
    const char *says;
} wrong;

static const ls_matrix_span back[] = { ROWS(8, 2, 3), ROWS(10, 2, 3) }, beyond[] = { ROWS(8, 5, 9) };
static const ls_range past[] = { { 0, 2 }, { 3, 2 } };
static const ls_matrix_span astray[] = { { .first = 8, .rows = 4, .row = 2, .part = past } };
static const ls_matrix_span empty[] = { ROWS(8, 5, 0) };

static ls_status starts(ls_world *w, void *arg)
{
    wrong *x = arg;
    ls_coll_args a = x->a;
    static _Thread_local float apart[64];
    void *v;
    ls_work *work;
    LS_TRY(ls_alloc(w, 4096, LS_MEM_GRAD, &v));
    a.out = v;
    if (x->apart) a.in = apart;
    LS_TRY(ls_coll_start(ls_world_group(w), &a, &work));
    return ls_work_wait(work);
}

static void says_what_is_wrong_with_spans(void **state)
{
    (void)state;
    static wrong row[] = {
        { { .coll = LS_ALL_REDUCE, .count = 80, .span = one, .nspans = 1 }, false,
          "spans are for reduce_scatter and all_gather" },
        { { .coll = LS_ALL_GATHER, .count = 80, .span = one, .nspans = 1 }, true, "a vector of spans is gathered in place" },
        { { .coll = LS_ALL_GATHER, .count = 80, .span = back, .nspans = 2 }, false,
          "span 1, 2 rows of 3 elements from element 10 on: expected it after element 14" },
        { { .coll = LS_ALL_GATHER, .count = 50, .span = beyond, .nspans = 1 }, false, "in a vector of 50" },
        { { .coll = LS_REDUCE_SCATTER, .count = 50, .span = empty, .nspans = 1 }, false, "5 rows of 0 elements" },
        { { .coll = LS_ALL_GATHER, .count = 50, .span = astray, .nspans = 1 }, false,
          "span 0: rank 1's part is 2 rows from row 3 on: expected rows of 4" },
        { { .coll = LS_ALL_GATHER, .count = 80, .span = one, .nspans = -1 }, false, "-1 spans: expected 0 or more" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, starts, &row[i]);
        assert_int_equal(r.status, LS_INVALID);
        if (!strstr(r.text, row[i].says)) fail_msg("'%s' does not say '%s'", r.text, row[i].says);
    }
}

/* Parts of equal size, of matrices that lie elsewhere on rank 1. */
static ls_status lies_elsewhere(ls_world *w, void *arg)
{
    static const ls_matrix_span here[] = { ROWS(0, 4, 2), ROWS(8, 4, 2) }, there[] = { ROWS(0, 4, 2), ROWS(10, 4, 2) };
    (void)arg;
    void *v;
    ls_work *work;
    LS_TRY(ls_alloc(w, 4096, LS_MEM_GRAD, &v));
    const ls_coll_args a = { .coll = LS_REDUCE_SCATTER, .out = v, .count = 40, .nspans = 2,
                             .span = ls_world_rank(w) == 1 ? there : here };
    LS_TRY(ls_coll_start(ls_world_group(w), &a, &work));
    return ls_work_wait(work);
}

static void ranks_whose_spans_differ_are_told(void **state)
{
    (void)state;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, lies_elsewhere, NULL);
    assert_int_equal(r.status, LS_COLL_MISMATCH);
}

static ls_status private_memory(ls_world *w, void *arg)
{
    (void)arg;
    const struct row *x = &rows[2];
    float *v = malloc(x->count * sizeof *v);
    if (!v) return LS_NO_MEMORY;
    const ls_status st = gathers(w, x, v);
    free(v);
    return st;
}

static void wants_registered_memory_where_it_is_mapped(void **state)
{
    (void)state;
    const ls_world_opts wires = { .transport = "tcp" };
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, private_memory, NULL);
    assert_int_equal(r.status, LS_INVALID);
    assert_non_null(strstr(r.text, "has to lie in memory from ls_alloc()"));
    r = ls_test_ranks(LS_TEST_PROCESSES, 2, &wires, private_memory, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_by_every_form),
        cmocka_unit_test(works_after_the_first_segment),
        cmocka_unit_test(ranks_whose_spans_differ_are_told),
        cmocka_unit_test(says_what_is_wrong_with_spans),
        cmocka_unit_test(wants_registered_memory_where_it_is_mapped),
    };
    return cmocka_run_group_tests_name("spans", tests, NULL, NULL);
}
