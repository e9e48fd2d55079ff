/* optim: the same parameters as torch.optim after the same gradients, whatever their place in memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness.h"
#include "lockstep/optim.h"
#include "tensor/threads.h"
#include "lockstep/rng.h"
#include "optim/optim.h"

#include "golden/optim.h"
#include "golden/optim_groups.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Two parameters by hand, over the caller's memory. */
typedef struct pair { ls_param item[2]; ls_params params; } pair;

static void bind(pair *m, float *p0, float *g0, int64_t n0, float *p1, float *g1, int64_t n1)
{
    *m = (pair){ .item = { { .name = "a", .t = { .dtype = LS_F32, .ndim = 1, .dim = { n0 }, .data = p0, .grad_ready = true } },
                           { .name = "b", .t = { .dtype = LS_F32, .ndim = 1, .dim = { n1 }, .data = p1, .grad_ready = true } } } };
    m->item[0].grad = m->item[0].t;
    m->item[0].grad.data = g0;
    m->item[1].grad = m->item[1].t;
    m->item[1].grad.data = g1;
    m->item[0].own = (ls_range){ 0, (size_t)n0 };
    m->item[1].own = (ls_range){ 0, (size_t)n1 };
    m->params = (ls_params){ .item = m->item, .n = 2, .cap = 2 };
}

/* As a backward does that has written both gradients: a step makes them not ready. */
static void written(pair *m) { m->item[0].t.grad_ready = m->item[1].t.grad_ready = true; }

static ls_arena *arena_of(size_t nbytes)
{
    ls_arena *a;
    assert_int_equal(ls_arena_create(nbytes + 4096, false, NULL, &a), LS_OK);
    return a;
}

/* To the bit: every operation is an IEEE one (also the root, the quotient and the fused sum), in PyTorch's order. */
static void matches_pytorch_for_twenty_steps(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(golden); c++) {
        float p[GOLDEN_FIRST + GOLDEN_SECOND], g[GOLDEN_FIRST + GOLDEN_SECOND];
        ls_mt19937 random;
        pair m;
        ls_optim *o;
        ls_arena *a = arena_of(1 << 16);
        ls_mt19937_seed(&random, 7);
        ls_mt19937_uniform(&random, -1.0f, 1.0f, COUNT(p), p);
        bind(&m, p, g, GOLDEN_FIRST, p + GOLDEN_FIRST, g + GOLDEN_FIRST, GOLDEN_SECOND);
        assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
        int shown = 0;
        for (int step = 1; step <= GOLDEN_STEPS; step++) {
            ls_mt19937_uniform(&random, -1.0f, 1.0f, COUNT(g), g);
            written(&m);
            m.item[1].t.grad_ready = step % 3 != 0;
            assert_int_equal(ls_optim_step(o), LS_OK);
            if (step != golden_shown[shown]) continue;
            for (size_t i = 0; i < COUNT(p); i++) {
                float want = golden[c].want[shown][i];
                if (p[i] != want)
                    fail_msg("%s (case %zu) step %d element %zu: %a, want %a", golden[c].config.name, c, step, i,
                             (double)p[i], (double)want);
            }
            shown++;
        }
        assert_int_equal(shown, GOLDEN_SHOWN);
        assert_int_equal(ls_optim_steps(o), GOLDEN_STEPS);
        ls_optim_destroy(o);
        ls_arena_destroy(a);
    }
}

static void gives_the_same_bits_at_every_alignment(void **state)
{
    (void)state;
    enum { N = 133, STEPS = 3 };
    static float room[2][N + 32], want[N];
    for (size_t c = 0; c < COUNT(golden); c++)
        for (size_t shift = 0; shift < 17; shift++) {
            float *p = room[0] + shift, *g = room[1] + (shift * 5) % 17;
            ls_mt19937 random;
            pair m;
            ls_optim *o;
            ls_arena *a = arena_of(1 << 16);
            ls_mt19937_seed(&random, 3);
            ls_mt19937_uniform(&random, -1.0f, 1.0f, N, p);
            /* cut in two at a place that moves: a shard of a parameter updates as the whole does */
            int64_t first = (int64_t)(shift * 7 % N) + 1;
            bind(&m, p, g, first, p + first, g + first, N - first);
            assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
            for (int step = 0; step < STEPS; step++) {
                ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g);
                written(&m);
                assert_int_equal(ls_optim_step(o), LS_OK);
            }
            if (shift == 0) memcpy(want, p, sizeof want);
            assert_memory_equal(p, want, sizeof want);
            ls_optim_destroy(o);
            ls_arena_destroy(a);
        }
}

static void leaves_a_parameter_without_gradient_alone(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(golden); c++) {
        float p[4] = { 1, 2, 3, 4 }, g[4] = { 1, 1, 1, 1 };
        pair m;
        ls_optim *o;
        ls_arena *a = arena_of(4096);
        bind(&m, p, g, 2, p + 2, g + 2, 2);
        m.item[1].t.grad_ready = false;
        assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
        assert_int_equal(ls_optim_step(o), LS_OK);
        assert_true(p[0] < 1.0f && p[1] < 2.0f);
        assert_true(p[2] == 3.0f && p[3] == 4.0f);
        ls_optim_destroy(o);
        ls_arena_destroy(a);
    }
}

static void follows_a_new_learning_rate(void **state)
{
    (void)state;
    float p[2] = { 1, 1 }, g[2] = { 1, 1 };
    pair m;
    ls_optim *o;
    ls_optim_config c;
    assert_int_equal(ls_optim_defaults("sgd", &c), LS_OK);
    bind(&m, p, g, 1, p + 1, g + 1, 1);
    assert_int_equal(ls_optim_create(&c, &m.params, NULL, &o), LS_OK); /* no state: no arena */
    ls_optim_set_lr(o, 0.25);
    assert_int_equal(ls_optim_step(o), LS_OK);
    assert_true(p[0] == 0.75f && p[1] == 0.75f);
    ls_optim_destroy(o);
    ls_optim_destroy(NULL);
}

static void says_how_much_state_it_takes(void **state)
{
    (void)state;
    static const struct { const char *name; double momentum; size_t want; } row[] = {
        { "sgd", 0.0, 0 }, { "sgd", 0.9, 128 + 64 }, { "adam", 0.0, 2 * (128 + 64) }, { "adamw", 0.0, 2 * (128 + 64) },
    };
    float p[20], g[20];
    pair m;
    bind(&m, p, g, 17, p + 17, g + 17, 3); /* 68 and 12 bytes, in lines of 64 */
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_optim_config c;
        ls_optim *o;
        ls_ledger ledger = { 0 };
        ls_arena *a;
        assert_int_equal(ls_optim_defaults(row[i].name, &c), LS_OK);
        c.momentum = row[i].momentum;
        for (int dry = 0; dry < 2; dry++) { /* a dry one is told the same, and touches nothing in a step */
            assert_int_equal(dry ? ls_arena_create_dry(&ledger, &a) : ls_arena_create(4096, false, &ledger, &a), LS_OK);
            assert_int_equal(ls_optim_create(&c, &m.params, a, &o), LS_OK);
            assert_int_equal(ledger.now[LS_MEM_OPTIM], row[i].want);
            if (dry) m.item[0].t.grad_ready = true;
            if (dry) assert_int_equal(ls_optim_step(o), LS_OK);
            ls_optim_destroy(o);
            ls_arena_destroy(a);
        }
    }
}

static void starts_from_zero_state_in_a_used_arena(void **state)
{
    (void)state;
    float p[2][2] = { { 1, 1 }, { 1, 1 } }, g[2] = { 0.5f, -0.5f };
    ls_arena *a = arena_of(4096);
    for (int round = 0; round < 2; round++) {
        pair m;
        ls_optim *o;
        ls_optim_config c;
        size_t mark = ls_arena_mark(a);
        assert_int_equal(ls_optim_defaults("adam", &c), LS_OK);
        bind(&m, p[round], g, 1, p[round] + 1, g + 1, 1);
        assert_int_equal(ls_optim_create(&c, &m.params, a, &o), LS_OK);
        for (int step = 0; step < 3; step++) {
            written(&m);
            assert_int_equal(ls_optim_step(o), LS_OK);
        }
        ls_optim_destroy(o);
        ls_arena_reset(a, mark);
    }
    assert_memory_equal(p[0], p[1], sizeof p[0]);
    ls_arena_destroy(a);
}

static void has_pytorchs_defaults(void **state)
{
    (void)state;
    ls_optim_config c;
    assert_int_equal(ls_optim_defaults("sgd", &c), LS_OK);
    assert_true(c.lr == 1e-3 && c.momentum == 0.0 && c.weight_decay == 0.0);
    assert_int_equal(ls_optim_defaults("adam", &c), LS_OK);
    assert_true(c.lr == 1e-3 && c.beta1 == 0.9 && c.beta2 == 0.999 && c.eps == 1e-8 && c.weight_decay == 0.0);
    assert_int_equal(ls_optim_defaults("adamw", &c), LS_OK);
    assert_true(c.weight_decay == 0.01);
    assert_int_equal(ls_optim_defaults("lion", &c), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "no optimizer is named 'lion': expected sgd, adam or adamw"));
}

static void refuses_settings_out_of_range(void **state)
{
    (void)state;
    static const struct { ls_optim_config c; const char *says; } row[] = {
        { { "sgd", -1, 0, 0, 0, 0, 0, NULL, NULL }, "sgd: lr is -1, expected >= 0" },
        { { "sgd", NAN, 0, 0, 0, 0, 0, NULL, NULL }, "sgd: lr is " },
        { { "sgd", 1, -0.5, 0, 0, 0, 0, NULL, NULL }, "sgd: momentum is -0.5, expected >= 0" },
        { { "sgd", 1, 0, 0, 0, 0, -1, NULL, NULL }, "sgd: weight_decay is -1" },
        { { "adam", 1, 0, 1.0, 0.9, 1e-8, 0, NULL, NULL }, "adam: beta1 is 1, expected in [0, 1)" },
        { { "adam", 1, 0, 0.9, -0.1, 1e-8, 0, NULL, NULL }, "adam: beta2 is -0.1, expected in [0, 1)" },
        { { "adamw", 1, 0, 0.9, 0.9, -1, 0, NULL, NULL }, "adamw: eps is -1" },
    };
    float p[2], g[2];
    pair m;
    bind(&m, p, g, 1, p + 1, g + 1, 1);
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_optim *o;
        assert_int_equal(ls_optim_create(&row[i].c, &m.params, NULL, &o), LS_BAD_CONFIG);
        assert_null(o);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("expected \"%s\" in \"%s\"", row[i].says, ls_last_error());
    }
    ls_optim *o;
    ls_optim_config c;
    ls_optim_defaults("adam", &c);
    m.item[1].t.dtype = LS_F16;
    assert_int_equal(ls_optim_create(&c, &m.params, NULL, &o), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "parameter b is half, expected float"));
}

/* --- the pass: scale, copy, flags ------------------------------------------------------------- */

static void scales_gradients_inside_the_pass(void **state)
{
    (void)state;
    enum { N = 37 };
    for (size_t c = 0; c < COUNT(golden); c++) {
        float p[2][N], g[2][N];
        for (int scaled = 0; scaled < 2; scaled++) {
            ls_mt19937 random;
            pair m;
            ls_optim *o;
            ls_arena *a = arena_of(1 << 16);
            ls_mt19937_seed(&random, 3);
            ls_mt19937_uniform(&random, -1.0f, 1.0f, N, p[scaled]);
            bind(&m, p[scaled], g[scaled], 20, p[scaled] + 20, g[scaled] + 20, N - 20);
            assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
            for (int step = 0; step < 3; step++) {
                ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g[scaled]);
                for (int i = 0; i < N && !scaled; i++) g[0][i] *= 0.3f; /* rounded, as in the pass */
                written(&m);
                assert_int_equal(scaled ? ls_optim_step_scaled(o, (double)0.3f) : ls_optim_step(o), LS_OK);
                assert_false(m.item[0].t.grad_ready || m.item[1].t.grad_ready);
            }
            ls_optim_destroy(o);
            ls_arena_destroy(a);
        }
        assert_memory_equal(p[0], p[1], sizeof p[0]);
    }
}

static void keeps_a_copy_in_bf16(void **state)
{
    (void)state;
    enum { FIRST = 5000, N = FIRST + 3 }; /* several pieces, the last one short */
    static float p[2][N], g[N];
    static uint16_t copy[N + 1];
    for (size_t c = 0; c < COUNT(golden); c++) {
        for (int copied = 0; copied < 2; copied++) {
            ls_mt19937 random;
            pair m;
            ls_optim *o;
            ls_arena *a = arena_of(1 << 17);
            ls_mt19937_seed(&random, 5);
            ls_mt19937_uniform(&random, -1.0f, 1.0f, N, p[copied]);
            bind(&m, p[copied], g, FIRST, p[copied] + FIRST, g + FIRST, N - FIRST);
            assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
            memset(copy, 0xee, sizeof copy);
            if (copied) m.item[0].bf16 = copy;
            for (int step = 0; step < 2; step++) {
                ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g);
                written(&m);
                assert_int_equal(ls_optim_step(o), LS_OK);
            }
            ls_optim_destroy(o);
            ls_arena_destroy(a);
        }
        assert_memory_equal(p[0], p[1], sizeof p[0]); /* the update is the same */
        for (int i = 0; i < FIRST; i++) assert_int_equal(copy[i], ls_f32_to_bf16(p[1][i]));
        assert_int_equal(copy[FIRST], 0xeeee);
    }
}

/* Three steps of every optimizer over a parameter large enough for threads, and the norm of its gradient. */
static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    enum { FIRST = 300001, N = FIRST + 77 };
    static float p[2][N], g[N];
    static uint16_t copy[2][FIRST];
    static const int threads[] = { 1, 2, 3, 5 };
    const int before = ls_team_size();
    assert_true(ls_threads_pay(4 * FIRST));
    for (size_t c = 0; c < COUNT(golden); c++) {
        double norm[2] = { 0 };
        uint64_t hash[2] = { 0 };
        for (size_t n = 0; n < COUNT(threads); n++) {
            const int k = n > 0;
            ls_mt19937 random;
            pair m;
            ls_optim *o;
            ls_arena *a = arena_of(3 * sizeof g);
            ls_team_resize(threads[n]);
            ls_mt19937_seed(&random, 5);
            ls_mt19937_uniform(&random, -1.0f, 1.0f, N, p[k]);
            bind(&m, p[k], g, FIRST, p[k] + FIRST, g + FIRST, N - FIRST);
            m.item[0].bf16 = copy[k];
            assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
            assert_int_equal(ls_optim_hash_values(o), LS_OK);
            for (int step = 0; step < 3; step++) {
                ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g);
                written(&m);
                assert_int_equal(ls_grad_norm(&m.params, &norm[k], NULL), LS_OK);
                assert_int_equal(ls_optim_step(o), LS_OK);
            }
            if (k) assert_memory_equal(p[0], p[1], sizeof p[0]);
            if (k) assert_memory_equal(copy[0], copy[1], sizeof copy[0]);
            if (k) assert_true(norm[0] == norm[1]);
            hash[k] = ls_optim_hash(o);
            if (k) assert_true(hash[0] == hash[1]);
            ls_optim_destroy(o);
            ls_arena_destroy(a);
        }
        double want = 0.0;
        for (int i = 0; i < N; i++) want += (double)g[i] * (double)g[i];
        assert_true(fabs(norm[0] - sqrt(want)) < 1e-12 * norm[0]);
    }
    ls_team_resize(before);
}

/* The formula of optim.h, over the values as they are after the update. */
static uint32_t hash_by_hand(const float *p, int64_t n)
{
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &p[i], sizeof bits);
        sum += bits * (2u * (uint32_t)i + 1u);
    }
    return sum;
}

enum { HASHED = 100001 }; /* more than the optimizer hashes at once */

/* Updates HASHED values and 3 more; `bit`: the lowest bit of one of them is turned before. */
static uint64_t hash_after_update_by(const ls_optim_config *c, bool copy, int64_t bit, float *p)
{
    static float g[HASHED];
    static uint16_t bf16[HASHED];
    float p1[3] = { 1, 2, 3 }, g1[3] = { 4, 5, 6 };
    pair m;
    ls_optim *o;
    ls_arena *a = arena_of(8 * HASHED + 4096);
    ls_philox_normal(1, 0, 0, HASHED, 1.0f, p);
    ls_philox_normal(2, 0, 0, HASHED, 1.0f, g);
    if (bit >= 0) {
        uint32_t bits;
        memcpy(&bits, &p[bit], sizeof bits);
        bits ^= 1;
        memcpy(&p[bit], &bits, sizeof bits);
    }
    bind(&m, p, g, HASHED, p1, g1, 3);
    if (copy) m.params.item[0].bf16 = bf16;
    assert_int_equal(ls_optim_create(c, &m.params, a, &o), LS_OK);
    assert_true(ls_optim_hash(o) == 0);
    assert_int_equal(ls_optim_hash_values(o), LS_OK);
    assert_int_equal(ls_optim_step(o), LS_OK);
    assert_true(ls_optim_hash_of(o, 0) == hash_by_hand(p, HASHED) && ls_optim_hash_of(o, 1) == hash_by_hand(p1, 3));
    const uint64_t hash = ls_optim_hash(o);
    assert_true(hash != 0 && hash < 1ull << 48);
    assert_int_equal(ls_optim_hash_values(o), LS_INVALID);
    ls_optim_destroy(o);
    ls_arena_destroy(a);
    return hash;
}

static uint64_t hash_after_update(int64_t bit, float *p)
{
    const ls_optim_config c = { .name = "adamw", .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1 };
    return hash_after_update_by(&c, false, bit, p);
}

/* Each class that hashes by itself, and a program's own that leaves it to the library. */
static void every_optimizer_hashes_alike(void **state)
{
    (void)state;
    static float p[HASHED];
    ls_optim_class own = *ls_optim_class_find("adamw");
    assert_true(own.hashes);
    own.hashes = false;
    const ls_optim_config row[] = {
        { .name = "adamw", .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1 },
        { .name = "adamw", .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .cls = &own },
        { .name = "adam", .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1 },
        { .name = "sgd", .lr = 0.01, .momentum = 0.9 }, { .name = "sgd", .lr = 0.01 },
    };
    uint64_t hash[2][5];
    for (int copy = 0; copy < 2; copy++)
        for (int i = 0; i < 5; i++) hash[copy][i] = hash_after_update_by(&row[i], copy, -1, p);
    for (int i = 0; i < 5; i++) assert_true(hash[0][i] == hash[1][i]); /* a copy changes no value */
    assert_true(hash[0][0] == hash[0][1]);
    assert_true(hash[0][0] != hash[0][2] && hash[0][2] != hash[0][3]);
}

static void hashes_what_it_writes(void **state)
{
    (void)state;
    static float p[HASHED], q[HASHED];
    const uint64_t one = hash_after_update(-1, p);
    assert_true(hash_after_update(-1, q) == one);
    for (int64_t bit = 0; bit < HASHED; bit += 9973) {
        const uint64_t other = hash_after_update(bit, q);
        assert_true((other == one) == (memcmp(p, q, sizeof p) == 0)); /* rounding may have hidden it */
    }
}

static void refuses_a_factor_that_is_not_finite(void **state)
{
    (void)state;
    static const double bad[] = { NAN, INFINITY, -1.0 };
    float p[2] = { 1, 2 }, g[2] = { 1, 1 };
    pair m;
    ls_optim *o;
    ls_optim_config c;
    ls_optim_defaults("sgd", &c);
    bind(&m, p, g, 1, p + 1, g + 1, 1);
    assert_int_equal(ls_optim_create(&c, &m.params, NULL, &o), LS_OK);
    for (size_t i = 0; i < COUNT(bad); i++) assert_int_equal(ls_optim_step_scaled(o, bad[i]), LS_INVALID);
    assert_true(p[0] == 1.0f && p[1] == 2.0f && ls_optim_steps(o) == 0);
    ls_optim_destroy(o);
}

/* Values and gradients of what is owned, in memory of their own: those in t and grad are not looked at. */
static void updates_a_shard_that_lies_apart(void **state)
{
    (void)state;
    enum { N = 40, FIRST = 7, SHARD = 21 };
    for (size_t c = 0; c < COUNT(golden); c++) {
        float p[N], g[N], master[SHARD], before[SHARD], gradient[SHARD];
        double norm;
        uint16_t copy[N] = { 0 };
        ls_mt19937 random;
        pair m;
        ls_optim *o;
        ls_arena *a = arena_of(1 << 16);
        ls_mt19937_seed(&random, 3);
        ls_mt19937_uniform(&random, -1.0f, 1.0f, N, p);
        bind(&m, p, g, N - 1, p + N - 1, g + N - 1, 1);
        memcpy(master, p + FIRST, sizeof master);
        m.item[1].t.grad_ready = false;
        assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
        pair shard = m;
        ls_optim *of_shard;
        shard.params.item = shard.item;
        shard.item[0].own = (ls_range){ FIRST, SHARD };
        shard.item[0].master = master;
        shard.item[0].dmaster = gradient;
        shard.item[0].bf16 = copy;
        shard.item[0].t.data = shard.item[0].grad.data = NULL;
        const size_t whole = ls_arena_mark(a);
        assert_int_equal(ls_optim_create(&golden[c].config, &shard.params, a, &of_shard), LS_OK);
        assert_true(ls_arena_mark(a) - whole < whole || golden[c].config.momentum == 0.0);
        for (int step = 0; step < 3; step++) {
            ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g);
            memcpy(gradient, g + FIRST, sizeof gradient);
            m.item[0].t.grad_ready = true;
            memcpy(before, master, sizeof before); /* t.grad_ready is said of grad.data, which has no memory */
            shard.item[0].t.grad_ready = true;
            assert_int_equal(ls_optim_step(of_shard), LS_OK);
            assert_memory_equal(before, master, sizeof before);
            shard.item[0].t.grad_ready = false;
            shard.item[0].dmaster_ready = true;
            assert_int_equal(ls_optim_step(o), LS_OK);
            assert_int_equal(ls_grad_norm(&shard.params, &norm, NULL), LS_INVALID);
            assert_non_null(strstr(ls_last_error(), "a part of the gradient of a"));
            assert_int_equal(ls_optim_step(of_shard), LS_OK);
            assert_false(shard.item[0].dmaster_ready);
        }
        assert_memory_equal(master, p + FIRST, sizeof master);
        for (int i = 0; i < N; i++) {
            const bool mine = i >= FIRST && i < FIRST + SHARD;
            assert_int_equal(copy[i], mine ? ls_f32_to_bf16(p[i]) : 0);
        }
        ls_optim_destroy(o);
        ls_optim_destroy(of_shard);
        ls_arena_destroy(a);
    }
}

/* What a data parallel wrapper says about its parameters; without one (ranks 0) nobody asks. */
static const struct { int ranks; bool reduced[2], ready[2]; const char *blames; } differ[] = {
    { 0, { false, false }, { true, true }, NULL },   { 1, { false, false }, { true, true }, NULL },
    { 3, { true, true }, { true, true }, NULL },     { 3, { false, false }, { true, true }, "a" },
    { 3, { true, false }, { true, true }, "b" },     { 3, { true, false }, { true, false }, NULL },
    { 3, { false, false }, { false, false }, NULL }, { 3, { false, false }, { false, true }, "b" },
};

static ls_status steps_with_gradients(ls_world *w, void *arg)
{
    const size_t i = *(const size_t *)arg;
    float p[2] = { 1, 2 }, g[2] = { 1, 1 };
    char says[96];
    pair m;
    ls_optim *o;
    ls_optim_config c;
    ls_optim_defaults("sgd", &c);
    bind(&m, p, g, 1, p + 1, g + 1, 1);
    for (int k = 0; k < 2; k++) {
        m.item[k].replicas = differ[i].ranks ? ls_world_group(w) : NULL;
        m.item[k].t.grad_reduced = differ[i].reduced[k];
        m.item[k].t.grad_ready = differ[i].ready[k];
    }
    LS_TRY(ls_optim_create(&c, &m.params, NULL, &o));
    const ls_status st = ls_optim_step(o);
    LS_EXPECT(st == (differ[i].blames ? LS_INVALID : LS_OK), "row %zu: %s", i, ls_status_text(st));
    LS_EXPECT(ls_optim_steps(o) == (differ[i].blames ? 0 : 1), "row %zu: %d steps", i, (int)ls_optim_steps(o));
    snprintf(says, sizeof says, "sgd: step 1 on rank %d: the gradient of %s is this rank's own", ls_world_rank(w),
             differ[i].blames ? differ[i].blames : "");
    if (differ[i].blames) LS_EXPECT(strstr(ls_last_error(), says), "row %zu: %s", i, ls_last_error());
    if (differ[i].blames) LS_EXPECT(p[0] == 1.0f && p[1] == 2.0f, "row %zu: values have changed", i);
    for (int k = 0; k < 2 && !differ[i].blames; k++)
        LS_EXPECT(!m.item[k].t.grad_ready && !(differ[i].ready[k] && m.item[k].t.grad_reduced), "row %zu: used up", i);
    ls_optim_destroy(o);
    return LS_OK;
}

static void refuses_gradients_that_differ_from_rank_to_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(differ); i++) {
        const int ranks = differ[i].ranks ? differ[i].ranks : 1;
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, ranks, NULL, steps_with_gradients, &i);
        if (r.failed) fail_msg("%s", r.text);
    }
}

/* --- clipping, decay groups and schedules against PyTorch ------------------------------------------ */

static void trains_as_pytorch_with_clipping_groups_and_schedules(void **state)
{
    (void)state;
    enum { FIRST = GROUPS_ROWS * GROUPS_COLUMNS, N = FIRST + GROUPS_SECOND };
    const double peak = groups_peak;
    for (size_t c = 0; c < COUNT(groups); c++) {
        float p[N], g[N];
        ls_mt19937 random;
        pair m;
        ls_optim *o;
        ls_optim_config config;
        ls_arena *a = arena_of(1 << 16);
        ls_lr lr = { .peak = peak, .min_ratio = groups_ratio, .warmup = GROUPS_WARMUP, .steps = GROUPS_STEPS,
                     .decay = GROUPS_DECAY };
        assert_int_equal(ls_lr_find(groups[c].schedule, &lr.kind), LS_OK);
        ls_mt19937_seed(&random, 7);
        ls_mt19937_uniform(&random, -1.0f, 1.0f, FIRST, p);
        ls_mt19937_uniform(&random, -1.0f, 1.0f, GROUPS_SECOND, p + FIRST);
        bind(&m, p, g, FIRST, p + FIRST, g + FIRST, GROUPS_SECOND);
        m.item[0].t.ndim = 2;
        m.item[0].t.dim[0] = GROUPS_ROWS;
        m.item[0].t.dim[1] = GROUPS_COLUMNS;
        ls_params_decay_matrices(&m.params);
        assert_true(!m.item[0].no_decay && m.item[1].no_decay);
        ls_optim_defaults("adamw", &config);
        config.beta2 = 0.95;
        config.weight_decay = 0.1;
        assert_int_equal(ls_optim_create(&config, &m.params, a, &o), LS_OK);
        int shown = 0, clipped = 0;
        for (int step = 1; step <= GROUPS_STEPS; step++) {
            double norm;
            ls_mt19937_uniform(&random, -1.0f, 1.0f, FIRST, g);
            ls_mt19937_uniform(&random, -1.0f, 1.0f, GROUPS_SECOND, g + FIRST);
            for (int i = 0; i < N && step % 4 == 0; i++) g[i] *= 0.1f;
            written(&m);
            assert_int_equal(ls_grad_norm(&m.params, &norm, NULL), LS_OK);
            /* PyTorch sums the 27 squares in float */
            if (!(fabs(norm - groups[c].norm[step - 1]) < 27.0 * 0x1p-24 * norm))
                fail_msg("%s step %d: norm %.9g, want %.9g", groups[c].schedule, step, norm, groups[c].norm[step - 1]);
            const double scale = ls_clip_scale(norm, 1.0), rate = ls_lr_at(&lr, ls_optim_steps(o));
            if (!(fabs(rate - groups[c].lr[step - 1]) < 1e-15))
                fail_msg("%s step %d: rate %.17g, want %.17g", groups[c].schedule, step, rate, groups[c].lr[step - 1]);
            clipped += scale < 1.0;
            ls_optim_set_lr(o, rate);
            assert_int_equal(ls_optim_step_scaled(o, scale), LS_OK);
            if (step != groups_shown[shown]) continue;
            for (size_t i = 0; i < N; i++) {
                /* a coefficient that is off by 27 2^-24 moves a step of at most the rate by as much, and the new value
                 * is rounded to 2^-24; so many steps later: */
                const double want = (double)groups[c].want[shown][i], off = step * (peak * 27.0 * 0x1p-24 + 0x1p-24);
                if (!(fabs((double)p[i] - want) <= off))
                    fail_msg("%s step %d element %zu: %.9g, want %.9g", groups[c].schedule, step, i, (double)p[i], want);
            }
            shown++;
        }
        assert_int_equal(shown, GROUPS_SHOWN);
        assert_int_equal(clipped, GROUPS_STEPS - GROUPS_STEPS / 4); /* the small gradients stay as they are */
        ls_optim_destroy(o);
        ls_arena_destroy(a);
    }
}

static void clips_to_a_largest_norm(void **state)
{
    (void)state;
    static const struct { float g[3]; double max, norm, scale; } row[] = {
        { { 3, 4, 0 }, 1.0, 5.0, 1.0 / (5.0 + 1e-6) }, { { 3, 4, 0 }, 10.0, 5.0, 1.0 }, { { 3, 4, 0 }, 5.0, 5.0, 5.0 / (5.0 + 1e-6) },
        { { 3, 4, 0 }, 0.0, 5.0, 1.0 },                { { 0, 0, 0 }, 1.0, 0.0, 1.0 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        float p[3] = { 0 }, g[3];
        double norm;
        pair m;
        memcpy(g, row[i].g, sizeof g);
        bind(&m, p, g, 2, p + 2, g + 2, 1);
        assert_int_equal(ls_grad_norm(&m.params, &norm, NULL), LS_OK);
        assert_true(norm == row[i].norm);
        assert_true(ls_clip_scale(norm, row[i].max) == row[i].scale);
    }
}

static void sums_norms_of_any_length_and_skips_what_is_not_ready(void **state)
{
    (void)state;
    enum { N = 1003 };
    static float p[N], g[N];
    double norm, want = 0.0;
    pair m;
    ls_mt19937 random;
    ls_mt19937_seed(&random, 1);
    ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g);
    for (int i = 0; i < 1000; i++) want += (double)g[i] * (double)g[i];
    bind(&m, p, g, 1000, p + 1000, g + 1000, 3);
    g[1001] = NAN;
    m.item[1].t.grad_ready = false;
    assert_int_equal(ls_grad_norm(&m.params, &norm, NULL), LS_OK);
    assert_true(fabs(norm - sqrt(want)) < 1e-13 * norm);
}

/* Eight sums of every eighth square, in ascending order, and then these in pairs. */
static double norm_in_order(const float *g, int n)
{
    double part[8] = { 0 };
    for (int i = 0; i < n; i++) part[i % 8] += (double)g[i] * (double)g[i];
    return sqrt(((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])));
}

static void adds_squares_in_one_order_at_any_length(void **state)
{
    (void)state;
    static const int length[] = { 1, 7, 8, 9, 64, 1087, 1088, 1089, 1151, 1152, 1153, 5003 };
    enum { MOST = 5003 };
    static float p[MOST + 1], g[MOST + 1];
    ls_mt19937 random;
    ls_mt19937_seed(&random, 2);
    ls_mt19937_uniform(&random, -1.0f, 1.0f, MOST, g + 1);
    for (size_t i = 0; i < COUNT(length); i++) {
        double norm;
        pair m;
        bind(&m, p + 1, g + 1, length[i], p, g, 1);
        m.item[1].t.grad_ready = false;
        assert_int_equal(ls_grad_norm(&m.params, &norm, NULL), LS_OK);
        if (norm != norm_in_order(g + 1, length[i])) fail_msg("the norm of %d numbers: %a", length[i], norm);
    }
}

static void names_the_first_gradient_that_is_not_finite(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t k = 0; k < COUNT(bad); k++)
        for (int at = 0; at < 30; at++) {
            float p[30] = { 0 }, g[30] = { 1 };
            double norm;
            const ls_param *culprit;
            pair m;
            g[29] = NAN;
            g[at] = bad[k];
            bind(&m, p, g, 20, p + 20, g + 20, 10);
            assert_int_equal(ls_grad_norm(&m.params, &norm, &culprit), LS_NAN);
            assert_true(!isfinite(norm));
            assert_ptr_equal(culprit, &m.item[at < 20 ? 0 : 1]);
            assert_non_null(strstr(ls_last_error(), at < 20 ? "gradient of a is" : "gradient of b is"));
        }
}

/* --- learning rates ------------------------------------------------------------------------------------ */

static void scales_rates_with_the_number_of_ranks(void **state)
{
    (void)state;
    static const struct { const char *how; int ranks; double want; } row[] = {
        { "none", 1, 1 },   { "none", 8, 1 },    { "linear", 1, 1 }, { "linear", 3, 3 },
        { "linear", 8, 8 }, { "sqrt", 1, 1 },    { "sqrt", 4, 2 },   { "sqrt", 2, 1.4142135623730951 },
    };
    double got;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_lr_scale(row[i].how, row[i].ranks, &got), LS_OK);
        assert_true(got == row[i].want);
    }
    assert_int_equal(ls_lr_scale("cubic", 2, &got), LS_BAD_CONFIG);
    assert_int_equal(ls_lr_scale(NULL, 2, &got), LS_BAD_CONFIG);
    assert_int_equal(ls_lr_scale("linear", 0, &got), LS_INVALID);
}

static void has_rates_that_can_be_checked_by_hand(void **state)
{
    (void)state;
    const struct { ls_lr lr; int64_t step; double want; } row[] = {
        { { LS_LR_CONSTANT, 1.0, 0.5, 0, 10, 0 }, 0, 1.0 },  { { LS_LR_CONSTANT, 1.0, 0.5, 0, 10, 0 }, 1000, 1.0 },
        { { LS_LR_CONSTANT, 1.0, 0.0, 4, 10, 0 }, 0, 0.25 }, { { LS_LR_CONSTANT, 1.0, 0.0, 4, 10, 0 }, 3, 1.0 },
        { { LS_LR_LINEAR, 2.0, 0.5, 0, 10, 0 }, 0, 2.0 },    { { LS_LR_LINEAR, 2.0, 0.5, 0, 10, 0 }, 5, 1.5 },
        { { LS_LR_LINEAR, 2.0, 0.5, 0, 10, 0 }, 10, 1.0 },   { { LS_LR_LINEAR, 2.0, 0.5, 0, 10, 0 }, 99, 1.0 },
        { { LS_LR_COSINE, 2.0, 0.5, 2, 10, 0 }, 2, 2.0 },    { { LS_LR_COSINE, 2.0, 0.5, 2, 10, 0 }, 6, 1.5 },
        { { LS_LR_COSINE, 2.0, 0.5, 2, 10, 0 }, 10, 1.0 },   { { LS_LR_COSINE, 2.0, 0.5, 2, 10, 0 }, 1 << 30, 1.0 },
        { { LS_LR_WSD, 2.0, 0.0, 2, 10, 4 }, 6, 2.0 },       { { LS_LR_WSD, 2.0, 0.0, 2, 10, 4 }, 8, 1.0 },
        { { LS_LR_WSD, 2.0, 0.0, 2, 10, 4 }, 10, 0.0 },
        { { LS_LR_WSD, 2.0, 0.0, 2, 10, 40 }, 2, 2.0 },      { { LS_LR_WSD, 2.0, 0.0, 2, 10, 40 }, 6, 1.0 },
        { { LS_LR_LINEAR, 2.0, 0.0, 20, 10, 0 }, 9, 1.0 },   { { LS_LR_COSINE, 2.0, 0.0, 10, 10, 0 }, 10, 0.0 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const double got = ls_lr_at(&row[i].lr, row[i].step);
        if (!(fabs(got - row[i].want) < 1e-15)) fail_msg("row %zu: %.17g, want %.17g", i, got, row[i].want);
    }
    ls_lr_kind kind;
    assert_int_equal(ls_lr_find("polynomial", &kind), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "named 'polynomial': expected constant, linear, cosine or wsd"));
}

/* --- loss scaling ---------------------------------------------------------------------------------------- */

/* What torch.cuda.amp.GradScaler's documentation says of update(): the scale times backoff_factor when a step was
 * skipped; times growth_factor after growth_interval steps in a row that were not; else as it was. */
static void scales_losses_as_pytorch_says(void **state)
{
    (void)state;
    ls_grad_scaler s;
    ls_grad_scaler_init(&s);
    assert_true(s.scale == 65536.0f && s.growth == 2.0 && s.backoff == 0.5 && s.interval == 2000 && s.clean == 0);
    s.interval = 3;
    static const struct { bool clean; float scale; int64_t count; } row[] = {
        { true, 65536, 1 },  { true, 65536, 2 },  { true, 131072, 0 }, { true, 131072, 1 }, { false, 65536, 0 },
        { false, 32768, 0 }, { true, 32768, 1 },  { true, 32768, 2 },  { false, 16384, 0 }, { true, 16384, 1 },
        { true, 16384, 2 },  { true, 32768, 0 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(ls_grad_scaler_update(&s, row[i].clean ? 1.5 : i % 2 ? NAN : INFINITY), row[i].clean);
        assert_true(s.scale == row[i].scale);
        assert_int_equal(s.clean, row[i].count);
    }
    s.scale = 0x1p127f; /* does not grow past what a float holds */
    for (int i = 0; i < 3; i++) assert_true(ls_grad_scaler_update(&s, 1.0));
    assert_true(s.scale == 0x1p127f && s.clean == 0);
}

static void goes_on_from_a_saved_scale(void **state)
{
    (void)state;
    ls_grad_scaler s, saved, back = { 0 };
    ls_grad_scaler_init(&s);
    for (int i = 0; i < 1999; i++) ls_grad_scaler_update(&s, 1.0);
    saved = s;
    assert_int_equal(ls_grad_scaler_restore(&back, &saved), LS_OK);
    ls_grad_scaler_update(&s, 1.0);
    ls_grad_scaler_update(&back, 1.0);
    assert_true(s.scale == 131072.0f && back.scale == s.scale && back.clean == s.clean);

    static const ls_grad_scaler bad[] = {
        { 0, 2, 0.5, 10, 0 }, { NAN, 2, 0.5, 10, 0 }, { INFINITY, 2, 0.5, 10, 0 }, { 1, 1, 0.5, 10, 0 },
        { 1, 2, 1, 10, 0 },   { 1, 2, 0, 10, 0 },     { 1, 2, 0.5, 0, 0 },         { 1, 2, 0.5, 10, 10 },
        { 1, 2, 0.5, 10, -1 },
    };
    for (size_t i = 0; i < COUNT(bad); i++) assert_int_equal(ls_grad_scaler_restore(&back, &bad[i]), LS_BAD_FILE);
    assert_true(back.scale == 131072.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_pytorch_for_twenty_steps),
        cmocka_unit_test(gives_the_same_bits_at_every_alignment),
        cmocka_unit_test(leaves_a_parameter_without_gradient_alone),
        cmocka_unit_test(follows_a_new_learning_rate),
        cmocka_unit_test(says_how_much_state_it_takes),
        cmocka_unit_test(starts_from_zero_state_in_a_used_arena),
        cmocka_unit_test(has_pytorchs_defaults),
        cmocka_unit_test(refuses_settings_out_of_range),
        cmocka_unit_test(scales_gradients_inside_the_pass),
        cmocka_unit_test(keeps_a_copy_in_bf16),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(hashes_what_it_writes),
        cmocka_unit_test(every_optimizer_hashes_alike),
        cmocka_unit_test(refuses_a_factor_that_is_not_finite),
        cmocka_unit_test(updates_a_shard_that_lies_apart),
        cmocka_unit_test(refuses_gradients_that_differ_from_rank_to_rank),
        cmocka_unit_test(trains_as_pytorch_with_clipping_groups_and_schedules),
        cmocka_unit_test(clips_to_a_largest_norm),
        cmocka_unit_test(sums_norms_of_any_length_and_skips_what_is_not_ready),
        cmocka_unit_test(adds_squares_in_one_order_at_any_length),
        cmocka_unit_test(names_the_first_gradient_that_is_not_finite),
        cmocka_unit_test(scales_rates_with_the_number_of_ranks),
        cmocka_unit_test(has_rates_that_can_be_checked_by_hand),
        cmocka_unit_test(scales_losses_as_pytorch_says),
        cmocka_unit_test(goes_on_from_a_saved_scale),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
