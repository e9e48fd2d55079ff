/* What a rank that has a part of every sequence stores, to the byte: 1 / cp of what one rank does, and the buffers of
 * each way to meet the keys of others (R131, R135). On dry tapes; test_layouts_axes.c compares those with real steps.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

#include "base/team.h"
#include "lockstep/model.h"
#include "lockstep/place.h"
#include "lockstep/tensor.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { B = 2, HQ = 8, HKV = 4, D = 16, F = 4 /* bytes of a float */ };
enum { C = HQ * D, K = HKV * D }; /* channels of queries, and of keys */

/* Bytes of a tape: after forward; and most, of forward and of forward and backward. */
typedef struct bytes {
    int64_t kept, forward, backward;
} bytes;

static ls_place place_of(ls_cp_mode mode, int cp, int exchange, bool in_turn)
{
    ls_place p = { .cp = { .size = cp }, .context = mode, .in_turn = in_turn };
    if (exchange) p.exchange.size = exchange, p.ring.size = cp / exchange;
    return p;
}

static bytes of_attention(const ls_place *p, int64_t T)
{
    const int64_t N = T / (p->cp.size > 1 ? p->cp.size : 1);
    ls_tensor grad[3] = {
        { .dtype = LS_F32, .ndim = 4, .dim = { B, N, HQ, D } },
        { .dtype = LS_F32, .ndim = 4, .dim = { B, N, HKV, D } },
        { .dtype = LS_F32, .ndim = 4, .dim = { B, N, HKV, D } },
    };
    ls_tensor x[3];
    ls_tape *t;
    bytes b;
    for (int i = 0; i < 3; i++) x[i] = grad[i], x[i].grad = &grad[i];
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    ls_tensor *y = ls_cp_attention(t, &x[0], &x[1], &x[2], 1.0f, true, NULL, p);
    if (!y) fail_msg("%s", ls_last_error());
    b.kept = (int64_t)ls_tape_in_use(t);
    b.forward = (int64_t)ls_tape_peak(t);
    const float nothing = 0.0f; /* a dry tape reads no gradient */
    if (ls_backward_from(t, y, &nothing) < 0) fail_msg("%s", ls_last_error());
    b.backward = (int64_t)ls_tape_peak(t);
    ls_tape_destroy(t);
    return b;
}

/* Bytes for each further token that the rank has: what does not depend on the length is not in it. */
static bytes per_token(const ls_place *p)
{
    const int P = p->cp.size > 1 ? p->cp.size : 1;
    const int64_t few = 256, N = few * (1024 / P) / 256; /* tokens here of a sequence of 1024, a multiple of 64 */
    const bytes a = of_attention(p, N * P), b = of_attention(p, 2 * N * P);
    return (bytes){ (b.kept - a.kept) / N, (b.forward - a.forward) / N, (b.backward - a.backward) / N };
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void a_rank_stores_its_part_and_the_buffers_of_its_way(void **state)
{
    (void)state;
    const bytes whole = per_token(&(ls_place){ 0 });
    const int64_t qkv = B * F * (C + 2 * K), out = B * F * C, kv = B * F * 2 * K, lse = B * F * HQ;
    const int64_t copies = 2 * D * F * (int64_t)ls_team_size(); /* that kernels make of keys and values, forward */
    assert_int_equal(whole.kept, out + lse);
    assert_int_equal(whole.forward, whole.kept + copies);
    assert_int_equal(whole.backward, whole.kept + 2 * copies);
    for (int P = 2; P <= 4; P += 2)
        for (int in_turn = 0; in_turn < 2; in_turn++) {
            const int64_t runs = in_turn ? 1 : 2, joins = (out + lse) / runs;
            const int64_t ring = copies / runs, seen = in_turn ? copies : P * copies; /* keys of a piece, on rank 0 */
            const struct {
                ls_cp_mode mode;
                int exchange;
                bytes more; /* than out and lse: kept, and beside that in forward, and in backward */
            } row[] = {
                { LS_CP_RING, 0, { 0, 2 * kv + joins + ring, 5 * kv + 2 * ring } },
                { LS_CP_GATHER, 0, { 0, P * kv + seen, (2 * P + 1) * kv + 2 * seen } },
                { LS_CP_ULYSSES, 0,
                  { qkv + out, larger(2 * qkv, P * copies), out + qkv + larger(2 * qkv, 2 * P * copies) } },
                { LS_CP_ULYSSES_RING, 2,
                  { qkv + out, larger(2 * qkv, 2 * kv + joins + 2 * ring),
                    out + qkv + larger(2 * qkv, 5 * kv + 4 * ring) } },
            };
            for (size_t k = 0; k < COUNT(row); k++) {
                const ls_place p = place_of(row[k].mode, P, row[k].exchange, in_turn);
                if (row[k].exchange >= P) continue;
                const bytes got = per_token(&p);
                const int64_t kept = out + lse + row[k].more.kept;
                if (got.kept != kept || got.forward != kept + row[k].more.forward ||
                    got.backward != larger(got.forward, kept + row[k].more.backward))
                    fail_msg("%d ranks, way %d%s: %lld, %lld and %lld bytes per token, expected %lld, %lld and %lld", P,
                             (int)row[k].mode, in_turn ? ", in turn" : "", (long long)got.kept, (long long)got.forward,
                             (long long)got.backward, (long long)kept, (long long)(kept + row[k].more.forward),
                             (long long)larger(got.forward, kept + row[k].more.backward));
            }
        }
}

/* After the forward of a whole model of two layers. */
static int64_t kept_by_model(const ls_place *p, int64_t T)
{
    const ls_model_config mc = {
        .name = "llama", .init = LS_INIT_PHILOX,
        .lm = { .vocab_size = 64, .seq_len = 4096, .n_layer = 2, .n_head = HQ, .n_kv_head = HKV, .d_model = C,
                .d_ff = 64 },
    };
    const int64_t dim[] = { B, T };
    ls_loss_sums sums;
    ls_model *m;
    ls_tape *t;
    assert_int_equal(ls_model_create_at(&mc, p, &m), LS_OK);
    for (int i = 0; i < m->params.n; i++) m->params.item[i].t.grad = &m->params.item[i].grad; /* all want gradients */
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    ls_tensor *ids = ls_tape_input(t, LS_I64, 2, dim, NULL), *labels = ls_tape_input(t, LS_I64, 2, dim, NULL);
    if (!ls_model_loss(m, t, ids, labels, &sums)) fail_msg("%s", ls_last_error());
    const int64_t kept = (int64_t)ls_tape_in_use(t);
    ls_tape_destroy(t);
    ls_model_destroy(m);
    return kept;
}

/* R131. Beside its part a rank has its columns of ids and labels; ulysses keeps what it has exchanged. */
static void a_model_keeps_one_part_of_its_activations(void **state)
{
    (void)state;
    const ls_place alone = { 0 };
    const int64_t T = 512, whole = kept_by_model(&alone, 2 * T) - kept_by_model(&alone, T);
    static const struct {
        ls_cp_mode mode;
        int exchange;
    } row[] = { { LS_CP_RING, 0 }, { LS_CP_GATHER, 0 }, { LS_CP_ULYSSES, 0 }, { LS_CP_ULYSSES_RING, 2 } };
    for (int P = 2; P <= 4; P += 2)
        for (size_t k = 0; k < COUNT(row); k++) {
            const ls_place p = place_of(row[k].mode, P, row[k].exchange, false);
            if (row[k].exchange >= P) continue;
            const int64_t kept = kept_by_model(&p, 2 * T) - kept_by_model(&p, T);
            const int64_t picked = 2 * (int64_t)sizeof(int64_t) * B * T / P;
            const int64_t swapped = 2 * F * (2 * C + 2 * K) * B * T / P;
            const int64_t want = whole / P + picked + (row[k].mode >= LS_CP_ULYSSES ? swapped : 0);
            if (kept != want)
                fail_msg("%d ranks, way %d: %lld bytes more, expected %lld", P, (int)row[k].mode, (long long)kept,
                         (long long)want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_stores_its_part_and_the_buffers_of_its_way),
        cmocka_unit_test(a_model_keeps_one_part_of_its_activations),
    };
    return cmocka_run_group_tests_name("memory of context parallelism", tests, NULL, NULL);
}
