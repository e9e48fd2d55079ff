/* Attention over sequences that ranks have parts of, in all four ways, against attention over whole ones (R133-R136).
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/group.h"
#include "lockstep/place.h"
#include "lockstep/rng.h"
#include "lockstep/world.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { B = 2, MOST_RANKS = 8, MOST = B * 48 * 4 * 8, TENSORS = 3 };

/* One problem, whole: q, k and v [B, T, heads, D], or side by side. */
typedef struct problem {
    int64_t T, Hq, Hkv, D;
    bool causal, packed, in_turn, dropped;
    ls_cp_mode mode;
    int exchange; /* ranks that exchange heads within a ring */
    float x[TENSORS][MOST], r[MOST]; /* inputs, and the gradient of out */
    float out[MOST], dx[TENSORS][MOST];
    double flops[MOST_RANKS]; /* that each rank counts forward */
} problem;

static float fraction(uint64_t i)
{
    float v;
    ls_philox_uniform(11, 5, i, 1, -1.0f, 1.0f, &v);
    return v;
}

static int64_t heads_of(const problem *p, int i) { return p->packed ? 3 * p->Hq : i == 0 ? p->Hq : p->Hkv; }
static int inputs_of(const problem *p) { return p->packed ? 1 : TENSORS; }

/* Columns of tokens between a whole tensor and a rank's. */
static void move(const ls_places *s, int64_t T, int64_t row, float *whole, float *part, bool to_part)
{
    int64_t here = 0;
    for (int k = 0; k < s->n; k++) here += s->count[k];
    for (int64_t b = 0; b < B; b++)
        for (int64_t k = 0, t = 0; k < s->n; k++)
            for (int64_t i = 0; i < s->count[k]; i++, t++) {
                float *const w = whole + (b * T + s->first[k] + i) * row, *const p = part + (b * here + t) * row;
                memcpy(to_part ? p : w, to_part ? w : p, (size_t)row * sizeof *w);
            }
}

/* With registered memory, as tapes of ranks that divide sequences have. */
static ls_status take(const ls_device *d, size_t n, void **out) { return ls_alloc(d->state, n, LS_MEM_ACT, out); }
static void leave(const ls_device *d, void *p, size_t n) { (void)d, (void)p, (void)n; }

static ls_status compute(problem *p, const ls_place *at, ls_world *w)
{
    ls_device device = ls_device_cpu;
    ls_places s;
    ls_tape *t;
    ls_tensor x[TENSORS] = { { 0 } }, grad[TENSORS];
    float *mine = calloc((2 * TENSORS + 2) * (size_t)MOST, sizeof *mine), *r = mine + 2 * TENSORS * MOST;
    if (!mine) return ls_fail(LS_NO_MEMORY, "a rank's part");
    if (w) device.state = w, device.alloc = take, device.release = leave;
    LS_TRY(ls_cp_tokens(at, p->T, &s));
    const int64_t T = p->T / (at->cp.size > 1 ? at->cp.size : 1), row_out = p->Hq * p->D;
    for (int i = 0; i < inputs_of(p); i++) {
        const int64_t H = heads_of(p, i);
        grad[i] =
            (ls_tensor){ .dtype = LS_F32, .ndim = 4, .dim = { B, T, H, p->D }, .data = mine + (TENSORS + i) * MOST };
        if (p->packed) grad[i].ndim = 3, grad[i].dim[2] = H * p->D, grad[i].dim[3] = 0;
        x[i] = grad[i];
        x[i].data = mine + i * MOST;
        x[i].grad = &grad[i];
        move(&s, p->T, H * p->D, p->x[i], x[i].data, true);
    }
    move(&s, p->T, row_out, p->r, r, true);
    LS_TRY(ls_tape_create_on(&device, 8 << 20, NULL, NULL, &t));
    const ls_attention_dropout drop = { .p = p->dropped ? 0.25f : 0.0f, .seed = 3, .stream = 9, .first = 77 };
    ls_status st = LS_OK;
    for (int k = 0; k < 2 && st == LS_OK; k++) { /* the second time gradients are added */
        ls_tape_reset(t);
        const ls_tensor *y = p->packed ? ls_cp_attention_packed(t, &x[0], p->Hq, 0.4f, p->causal, &drop, at)
                                       : ls_cp_attention(t, &x[0], &x[1], &x[2], 0.4f, p->causal, &drop, at);
        p->flops[at->cp.rank] = ls_tape_flops(t);
        st = y ? ls_backward_from(t, (ls_tensor *)(uintptr_t)y, r) : ls_tape_status(t);
        if (st == LS_OK) move(&s, p->T, row_out, p->out, y->data, false);
    }
    for (int i = 0; i < inputs_of(p); i++) move(&s, p->T, heads_of(p, i) * p->D, p->dx[i], grad[i].data, false);
    ls_tape_destroy(t);
    free(mine);
    return st;
}

static int row_of(const void *exchange, int rank) { return rank / *(const int *)exchange; }
static int column_of(const void *exchange, int rank) { return rank % *(const int *)exchange; }

static ls_status on_rank(ls_world *w, void *arg)
{
    problem *p = arg;
    ls_place at = { .cp = { ls_world_group(w), ls_world_size(w), ls_world_rank(w) },
                    .context = p->mode,
                    .in_turn = p->in_turn };
    if (p->mode != LS_CP_ULYSSES_RING) return compute(p, &at, w);
    ls_group *few, *ring;
    LS_TRY(ls_group_split_by(at.cp.ranks, row_of, &p->exchange, "exchange", &few));
    LS_TRY(ls_group_split_by(at.cp.ranks, column_of, &p->exchange, "ring", &ring));
    at.exchange = (ls_along){ few, ls_group_size(few), ls_group_rank(few) };
    at.ring = (ls_along){ ring, ls_group_size(ring), ls_group_rank(ring) };
    const ls_status st = compute(p, &at, w);
    ls_group_destroy(ring);
    ls_group_destroy(few);
    return st;
}

static void roll(problem *p)
{
    uint64_t n = 0;
    for (int i = 0; i < TENSORS; i++)
        for (int k = 0; k < MOST; k++) p->x[i][k] = fraction(n++);
    for (int k = 0; k < MOST; k++) p->r[k] = fraction(n++);
}

static void assert_close(const float *got, const float *want, int64_t n, const char *what, const char *where)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f * (1.0f + fabsf(want[i]))))
            fail_msg("%s: %s[%lld] = %.9g, whole %.9g", where, what, (long long)i, (double)got[i], (double)want[i]);
}

/* R136: each rank computes as many pairs of queries and keys as is predicted, and all together those of one rank. */
static void assert_work(const problem *p, int ranks, double whole, const char *where)
{
    double sum = 0.0;
    for (int r = 0; r < ranks; r++) {
        ls_cp_work work;
        ls_place at = { .cp = { .size = ranks }, .context = p->mode, .in_turn = p->in_turn };
        if (p->exchange) at.exchange.size = p->exchange, at.ring.size = ranks / p->exchange;
        ls_cp_work_of(&at, r, p->T, &work);
        const double want = p->causal ? work.share : 1.0 / ranks;
        sum += p->flops[r];
        if (!(fabs(p->flops[r] / whole - want) < 1e-12))
            fail_msg("%s: rank %d computes %.9g of the work: expected %.9g", where, r, p->flops[r] / whole, want);
    }
    if (!(fabs(sum / whole - 1.0) < 1e-12)) fail_msg("%s: %.9g flops of all ranks, of one %.9g", where, sum, whole);
}

static void parts_attend_as_whole_sequences_do(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        int64_t T, Hq, Hkv, D;
    } row[] = {
        { 2, 8, 2, 2, 4 }, { 2, 48, 4, 2, 8 }, { 3, 36, 3, 3, 5 },  { 4, 16, 4, 4, 8 },
        { 4, 40, 4, 4, 3 }, { 4, 48, 4, 2, 8 }, { 6, 36, 6, 6, 4 }, { 8, 48, 8, 4, 4 },
    };
    static const struct {
        ls_cp_mode mode;
        int exchange; /* of a ring with exchanges */
    } way[] = {
        { LS_CP_RING, 0 },        { LS_CP_GATHER, 0 },      { LS_CP_ULYSSES, 0 },
        { LS_CP_ULYSSES_RING, 2 }, { LS_CP_ULYSSES_RING, 3 }, { LS_CP_ULYSSES_RING, 4 },
    };
    int tried[COUNT(way)] = { 0 };
    problem *whole = calloc(1, sizeof *whole), *p = calloc(1, sizeof *p);
    assert_true(whole && p);
    roll(whole);
    for (size_t k = 0; k < COUNT(row); k++)
        for (unsigned bits = 0; bits < 16; bits++) {
            char where[96];
            whole->T = row[k].T, whole->Hq = row[k].Hq, whole->D = row[k].D;
            whole->causal = bits & 1, whole->in_turn = bits & 2, whole->packed = bits & 4, whole->dropped = bits & 8;
            whole->Hkv = whole->packed ? row[k].Hq : row[k].Hkv;
            assert_int_equal(compute(whole, &(ls_place){ 0 }, NULL), LS_OK);
            for (unsigned w = 0; w < COUNT(way); w++) {
                const int ranks = row[k].ranks, U = way[w].mode == LS_CP_ULYSSES ? ranks : way[w].exchange;
                if (U > 1 && whole->Hkv % U != 0) continue;
                if (way[w].exchange > 1 && (ranks % U != 0 || ranks == U)) continue;
                if (ranks > 4 && (way[w].exchange < 2 || bits % 3 != 0)) continue; /* many threads: few cases */
                *p = *whole;
                p->mode = way[w].mode;
                p->exchange = way[w].exchange;
                memset(p->out, 0, sizeof p->out);
                memset(p->dx, 0, sizeof p->dx);
                snprintf(where, sizeof where, "row %zu, way %u, bits %u", k, w, bits);
                if (ls_world_threads(ranks, NULL, on_rank, p) < 0) fail_msg("%s: %s", where, ls_last_error());
                tried[w]++;
                const int64_t each = B * row[k].T * row[k].D;
                assert_work(p, ranks, whole->flops[0], where);
                assert_close(p->out, whole->out, each * row[k].Hq, "out", where);
                for (int i = 0; i < inputs_of(p); i++)
                    assert_close(p->dx[i], whole->dx[i], each * heads_of(p, i), "dx", where);
            }
        }
    for (size_t w = 0; w < COUNT(way); w++) assert_true(tried[w] >= 6);
    free(whole);
    free(p);
}

/* Pairs of queries and keys that a rank computes, of T (T + 1) / 2. */
static double pairs_of(const ls_place *p, int rank, int64_t T)
{
    ls_place at = *p;
    ls_places s;
    double pairs = 0.0;
    at.cp.rank = rank;
    assert_int_equal(ls_cp_tokens(&at, T, &s), LS_OK);
    for (int k = 0; k < s.n; k++)
        for (int64_t i = 0; i < s.count[k]; i++) pairs += (double)(s.first[k] + i + 1);
    return pairs;
}

/* R136: in turn, rank r has (2 r + 1) / P^2 of the work and the last one (2 P - 1) / P times the mean; in pieces from
 * both ends all have the same. */
static void pieces_from_both_ends_are_equal_work(void **state)
{
    (void)state;
    for (int P = 2; P <= 8; P *= 2) {
        const int64_t T = 4096;
        const double all = (double)T * (double)(T + 1) / 2.0;
        for (int r = 0; r < P; r++) {
            const ls_place zigzag = { .cp = { .size = P } }, turn = { .cp = { .size = P }, .in_turn = true };
            const double share = pairs_of(&turn, r, T) / all;
            ls_cp_work a, b;
            assert_true(fabs(share - (2.0 * r + 1.0) / (P * P)) < 1e-3);
            assert_true(fabs(pairs_of(&zigzag, r, T) / all - 1.0 / P) < 1e-12);
            ls_cp_work_of(&turn, r, T, &a);
            ls_cp_work_of(&zigzag, r, T, &b);
            assert_true(fabs(a.share - share) < 1e-12 && fabs(b.share - 1.0 / P) < 1e-12);
            assert_int_equal(a.blocks, P);
            assert_int_equal(a.skipped, P - 1 - r); /* the keys of later ranks */
            assert_int_equal(b.blocks, 4 * P);      /* of 2 P pieces r sees r + 1, and 2 P - 1 - r all but r */
            assert_int_equal(b.skipped, 2 * P - 1);
        }
    }
}

static void tokens_that_cannot_be_divided_are_named(void **state)
{
    (void)state;
    ls_places s;
    const ls_place three = { .cp = { .size = 3 } };
    assert_int_equal(ls_cp_tokens(&three, 40, &s), LS_SHAPE);
    assert_string_equal(ls_last_error(),
                        "a sequence of 40 tokens for 3 ranks: expected a multiple of 6, two pieces for each rank; "
                        "42 is the nearest above");
    assert_int_equal(ls_cp_tokens(&three, 4, &s), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "it is too short: 6 is the nearest above"));
    ls_tape *t;
    const ls_place four = { .cp = { .size = 4 }, .context = LS_CP_ULYSSES };
    ls_tensor q = { .dtype = LS_F32, .ndim = 4, .dim = { 1, 8, 6, 4 } }, k = q, v = q;
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    assert_null(ls_cp_attention(t, &q, &k, &v, 1.0f, true, NULL, &four));
    assert_non_null(
        strstr(ls_last_error(), "ulysses: 6 heads of queries and 6 of keys for 4 ranks: expected multiples of 4"));
    ls_place rings = { .cp = { .size = 8 }, .context = LS_CP_ULYSSES_RING };
    rings.exchange.size = 4;
    rings.ring.size = 2;
    ls_tape_reset(t);
    assert_null(ls_cp_attention(t, &q, &k, &v, 1.0f, true, NULL, &rings));
    assert_non_null(strstr(ls_last_error(), "expected multiples of 4"));
    rings.exchange.size = 2;
    ls_tape_reset(t);
    assert_null(ls_cp_attention(t, &q, &k, &v, 1.0f, true, NULL, &rings));
    assert_non_null(strstr(ls_last_error(), "ulysses-ring: 2 ranks that exchange heads in rings of 2: expected at least 2 "
                                            "of both, and their product to be cp, which is 8"));
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_attend_as_whole_sequences_do),
        cmocka_unit_test(pieces_from_both_ends_are_equal_work),
        cmocka_unit_test(tokens_that_cannot_be_divided_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
