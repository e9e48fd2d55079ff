/* Recompute: the same gradients to the bit, told in the same order, from less memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/model.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

static const ls_recompute ways[] = { LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL };

enum { V = 96, T = 8, B = 2, MICRO = 2, MOST_PARAMS = 64 };

/* A small model with all its memory. */
typedef struct fixture {
    ls_model *m;
    ls_arena *values, *grads;
    ls_tape *t;
    int64_t ids[MICRO * B * T], labels[MICRO * B * T];
    const ls_tensor *told[MICRO * MOST_PARAMS]; /* in the order of the calls */
    int ntold, pokes;
} fixture;

static ls_status tell(void *arg, ls_tensor *p)
{
    fixture *f = arg;
    assert_in_range(f->ntold, 0, COUNT(f->told) - 1);
    f->told[f->ntold++] = p;
    return LS_OK;
}

static ls_status poke(void *arg)
{
    ((fixture *)arg)->pokes++;
    return LS_OK;
}

static ls_lm_config sizes(int64_t layers)
{
    return (ls_lm_config){ .vocab_size = V, .seq_len = T, .n_layer = layers, .n_head = 4, .d_model = 32, .d_ff = 96 };
}

static void build(fixture *f, const char *name, ls_lm_config lm, ls_recompute how)
{
    *f = (fixture){ 0 };
    const bool gpt2 = strcmp(name, "gpt2") == 0;
    lm.tied = gpt2;
    if (gpt2) lm.embd_dropout = lm.resid_dropout = 0.25;
    else lm.n_kv_head = 2;
    const ls_model_config mc = { .name = name, .lm = lm, .init = LS_INIT_PHILOX, .seed = 5 };
    assert_done(ls_model_create(&mc, &f->m));
    ls_params *ps = &f->m->params;
    assert_in_range(ps->n, 1, MOST_PARAMS);
    const size_t room = ls_params_nbytes(ps) + 64u * (size_t)ps->n;
    assert_done(ls_arena_create(room, false, NULL, &f->values));
    assert_done(ls_arena_create(room, false, NULL, &f->grads));
    assert_done(ls_params_bind(ps, f->values, f->grads));
    assert_done(ls_model_init(f->m, &mc));
    const ls_tape_mode mode = { .recompute = how };
    assert_done(ls_tape_create(ls_model_tape_bytes_in(f->m, B, T, &mode), NULL, NULL, &f->t));
    ls_tape_set_recompute(f->t, how);
    assert_done(ls_tape_listen(f->t, &(ls_tape_events){ .grad_ready = tell, .progress = poke }, f));
    for (size_t i = 0; i < COUNT(f->ids); i++) {
        f->ids[i] = (int64_t)(i * 37 % V);
        f->labels[i] = (int64_t)((i * 53 + 7) % V);
    }
    f->m->draw.seed = 11;
}

static void drop(fixture *f)
{
    ls_tape_destroy(f->t);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->grads);
    ls_arena_destroy(f->values);
}

/* Forward of micro-batch k; sums stay until backward is over. */
static ls_tensor *forward(fixture *f, int k, ls_loss_sums *sums)
{
    const int64_t dim[2] = { B, T };
    ls_tape_reset(f->t);
    f->m->draw.step = 3;
    f->m->draw.sample = (uint64_t)(k * B);
    ls_tensor *x = ls_tape_input(f->t, LS_I64, 2, dim, f->ids + k * B * T);
    ls_tensor *y = ls_tape_input(f->t, LS_I64, 2, dim, f->labels + k * B * T);
    ls_tensor *loss = ls_model_loss(f->m, f->t, x, y, sums);
    assert_done(ls_tape_status(f->t));
    return loss;
}

static double step(fixture *f)
{
    double sum = 0;
    ls_params_zero_grad(&f->m->params);
    for (int k = 0; k < MICRO; k++) {
        ls_loss_sums sums;
        ls_tensor *loss = forward(f, k, &sums);
        f->m->draw = (ls_draw){ 99, 99, 99 }; /* as a schedule that is at another micro-batch by now */
        assert_done(ls_backward(f->t, loss));
        f->m->draw = (ls_draw){ .seed = 11 };
        sum += sums.sum;
    }
    return sum;
}

static void the_same_bits_and_the_same_order(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt2", "llama" };
    for (size_t k = 0; k < COUNT(names); k++) {
        fixture none;
        build(&none, names[k], sizes(3), LS_RECOMPUTE_NONE);
        const double want = step(&none);
        for (size_t w = 1; w < COUNT(ways); w++) {
            fixture f;
            build(&f, names[k], sizes(3), ways[w]);
            for (int again = 0; again < 2; again++) { /* also on a tape that has been used */
                f.ntold = 0;
                const double sum = step(&f);
                assert_memory_equal(&sum, &want, sizeof sum);
                assert_int_equal(f.ntold, none.ntold);
                for (int i = 0; i < f.ntold; i++)
                    assert_int_equal((const ls_param *)f.told[i] - f.m->params.item,
                                     (const ls_param *)none.told[i] - none.m->params.item);
                for (int i = 0; i < f.m->params.n; i++) {
                    const ls_param *got = &f.m->params.item[i], *ref = &none.m->params.item[i];
                    if (memcmp(got->grad.data, ref->grad.data, ls_tensor_nbytes(&ref->t)) != 0)
                        fail_msg("%s, %s: the gradient of %s differs", names[k], ls_recompute_name(ways[w]), got->name);
                }
            }
            drop(&f);
        }
        assert_int_equal(none.ntold, MICRO * none.m->params.n);
        drop(&none);
    }
}

static void a_second_backward_does_it_all_once_more(void **state)
{
    (void)state;
    float *want = NULL;
    for (size_t w = 0; w < COUNT(ways); w++) {
        fixture f;
        ls_loss_sums sums;
        build(&f, "gpt2", sizes(2), ways[w]);
        ls_params_zero_grad(&f.m->params);
        ls_tensor *loss = forward(&f, 0, &sums);
        assert_done(ls_backward(f.t, loss));
        assert_done(ls_backward(f.t, loss));
        const size_t all = ls_arena_mark(f.grads);
        if (!want) memcpy(want = malloc(all), ls_arena_base(f.grads), all);
        assert_memory_equal(ls_arena_base(f.grads), want, all);
        drop(&f);
    }
    free(want);
}

/* --- memory ---------------------------------------------------------------------------------------- */

static size_t peak(const char *name, ls_lm_config lm, int64_t batch, ls_recompute how, bool evaluate)
{
    fixture f;
    build(&f, name, lm, how);
    const size_t n = ls_model_tape_bytes_in(f.m, batch, T, &(ls_tape_mode){ .recompute = how, .evaluate = evaluate });
    assert_true(n > 0);
    drop(&f);
    return n;
}

/* With N = B T rows of C floats as the unit, F = 3 C. What a layer more costs, data alone:
 *   gpt2    none       norm C, qkv 3C, attention C, its projection C, dropout C, sum C, norm C, c_fc F, gelu F,
 *                      projection C, dropout C, sum C
 *           selective  without the norms and gelu: 2C + F less
 *           full       one sum: C
 *   llama   (k and v: C / 2 each) norm C, q C, k, v C, ropes 1.5C, attention C, its projection C, sum C, norm C,
 *           gate F, up F, swiglu F, projection C, sum C;  selective: 2C + F less;  full: C
 * and beside it headers, nodes, 8 bytes a row for a norm, 4 bytes a row and head for attention: less than
 * N C / 4 floats at this size. */
static void a_layer_more_costs_what_the_formula_says(void **state)
{
    (void)state;
    enum { C = 256, F = 3 * C, ROWS = 64 * T };
    static const struct { const char *name; ls_recompute how; double units; } row[] = {
        { "gpt2", LS_RECOMPUTE_NONE, 12 + 2 * 3 },
        { "gpt2", LS_RECOMPUTE_SELECTIVE, 10 + 3 },
        { "gpt2", LS_RECOMPUTE_FULL, 1 },
        { "llama", LS_RECOMPUTE_NONE, 10.5 + 3 * 3 },
        { "llama", LS_RECOMPUTE_SELECTIVE, 8.5 + 2 * 3 },
        { "llama", LS_RECOMPUTE_FULL, 1 },
    };
    const double unit = 4.0 * ROWS * C;
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_lm_config lm = { .vocab_size = V, .seq_len = T, .n_head = 4, .d_model = C, .d_ff = F };
        lm.n_layer = 2;
        const size_t two = peak(row[i].name, lm, ROWS / T, row[i].how, false);
        lm.n_layer = 3;
        const double more = (double)(peak(row[i].name, lm, ROWS / T, row[i].how, false) - two) / unit;
        if (!(more >= row[i].units && more < row[i].units + 0.25))
            fail_msg("%s, %s: a layer costs %g N C, expected %g", row[i].name, ls_recompute_name(row[i].how), more,
                     row[i].units);
    }
}

static void the_dry_run_is_what_a_step_takes(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt2", "llama" };
    for (size_t k = 0; k < COUNT(names); k++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            fixture f;
            build(&f, names[k], sizes(4), ways[w]);
            (void)step(&f);
            const ls_tape_mode mode = { .recompute = ways[w] };
            assert_int_equal(ls_tape_peak(f.t), ls_model_tape_bytes_in(f.m, B, T, &mode));
            drop(&f);
        }
}

/* Without gradients a layer costs its result, whatever the tape recomputes. */
static void evaluation_keeps_results_of_blocks_only(void **state)
{
    (void)state;
    for (size_t w = 0; w < COUNT(ways); w++) {
        const size_t one = peak("gpt2", sizes(1), B, ways[w], true), four = peak("gpt2", sizes(4), B, ways[w], true);
        const size_t header = (sizeof(ls_tensor) + 63) / 64 * 64;
        assert_int_equal(four, one + 3 * (header + sizeof(float) * B * T * 32));
        fixture f;
        ls_loss_sums sums;
        build(&f, "gpt2", sizes(4), ways[w]);
        ls_tape *small;
        assert_done(ls_tape_create(four, NULL, NULL, &small));
        ls_tape_set_grad(small, false);
        ls_tape_set_grad(f.t, false);
        const double want = (forward(&f, 0, &sums), sums.sum);
        ls_tape *const whole = f.t;
        f.t = small;
        forward(&f, 0, &sums);
        assert_true(sums.sum == want);
        assert_int_equal(ls_tape_peak(small), four);
        f.t = whole;
        ls_tape_destroy(small);
        drop(&f);
    }
}

/* --- work ------------------------------------------------------------------------------------------- */

static void work_done_again_is_counted_apart(void **state)
{
    (void)state;
    double flops[3], again[3];
    int pokes[3];
    for (size_t w = 0; w < COUNT(ways); w++) {
        fixture f;
        ls_loss_sums sums;
        build(&f, "gpt2", sizes(3), ways[w]);
        ls_tensor *loss = forward(&f, 0, &sums);
        const double forward_flops = ls_tape_flops(f.t);
        assert_true(ls_tape_flops_again(f.t) == 0.0);
        assert_done(ls_backward(f.t, loss));
        flops[w] = ls_tape_flops(f.t);
        again[w] = ls_tape_flops_again(f.t);
        pokes[w] = f.pokes;
        if (ways[w] == LS_RECOMPUTE_FULL) /* all of forward but embedding, positions, their dropout, the last norm */
            assert_true(again[w] == forward_flops - (double)(B * T * 32) * (1 + 1 + 8));
        drop(&f);
    }
    assert_true(flops[1] == flops[0] && flops[2] == flops[0]);
    assert_true(again[0] == 0.0);
    assert_true(again[1] == 3.0 * (double)(B * T) * (2 * 8.0 * 32 + 16.0 * 96)); /* two norms and a gelu a layer */
    assert_true(pokes[2] > pokes[0]); /* collectives go on while a block is done again */
}

/* --- blocks of other forms ----------------------------------------------------------------------------- */

static float ws[2][16], gs[2][16], data[4 * 4];
static ls_param w[2];

static ls_tape *bare(ls_recompute how)
{
    ls_tape *t;
    assert_done(ls_tape_create(1 << 16, NULL, NULL, &t));
    ls_tape_set_recompute(t, how);
    for (int k = 0; k < 2; k++) {
        w[k] = (ls_param){ .t = { .dtype = LS_F32, .ndim = 2, .dim = { 4, 4 }, .data = ws[k] } };
        w[k].grad = w[k].t;
        w[k].grad.data = gs[k];
        w[k].t.grad = &w[k].grad;
        for (int i = 0; i < 16; i++) ws[k][i] = (float)((i * 7 + k) % 5 - 2);
    }
    for (int i = 0; i < 16; i++) data[i] = (float)(i % 3 - 1);
    return t;
}

static ls_tensor *input(ls_tape *t) { return ls_tape_input(t, LS_F32, 2, (const int64_t[]){ 4, 4 }, data); }

static ls_tensor *two_products(ls_tape *t, ls_tensor *x, const void *arg)
{
    (void)arg;
    return ls_linear(t, ls_gelu(t, ls_linear(t, x, &w[0].t, NULL)), &w[1].t, NULL);
}

static void the_trace_says_what_is_done_again(void **state)
{
    (void)state;
    ls_blackbox *box = calloc(1, sizeof *box);
    ls_tracer *tracer = NULL;
    assert_non_null(box);
    assert_done(ls_tracer_create(box, &tracer));
    for (size_t how = 0; how < COUNT(ways); how++) {
        ls_tape *t;
        ls_tape_destroy(bare(ways[how]));
        assert_done(ls_tape_create(1 << 16, NULL, tracer, &t));
        ls_tape_set_recompute(t, ways[how]);
        const uint64_t before = box->count;
        ls_tensor *y = ls_block(t, input(t), two_products, NULL, 0);
        assert_done(ls_backward_from(t, y, data));
        char all[512] = "";
        for (uint64_t i = before; i < box->count; i++) {
            const ls_event *e = &box->ev[i];
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s%s", *all ? ", " : "", e->backward ? "-" : "",
                     box->string[e->label]);
        }
        static const char *const want[] = {
            "linear 4x4, gelu 16, linear 4x4, -linear 4x4, -linear 4x4, -gelu 16, -linear 4x4",
            "linear 4x4, gelu 16, linear 4x4, gelu 16 again, -linear 4x4, -linear 4x4, -gelu 16, -linear 4x4",
            ("linear 4x4, gelu 16, linear 4x4, linear 4x4 again, gelu 16 again, linear 4x4 again, "
             "-linear 4x4, -linear 4x4, -gelu 16, -linear 4x4"),
        };
        assert_string_equal(all, want[how]);
        ls_tape_destroy(t);
    }
    ls_tracer_destroy(tracer);
    free(box);
}

static ls_status count(void *arg, ls_tensor *p)
{
    (void)p;
    ++*(int *)arg;
    return LS_OK;
}

/* The same two parameters in three blocks without a residual, whose gradients move; each is told once. */
static void blocks_may_share_their_parameters(void **state)
{
    (void)state;
    float want[2][16];
    for (size_t how = 0; how < COUNT(ways); how++) {
        ls_tape *t = bare(ways[how]);
        int told = 0;
        assert_done(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = count }, &told));
        ls_tensor *x = input(t);
        assert_false(ls_tape_pending(t));
        for (int i = 0; i < 3; i++) x = ls_block(t, x, two_products, NULL, 0);
        assert_non_null(x);
        assert_true(ls_tape_pending(t)); /* however a block is recorded */
        float dy[16];
        for (int i = 0; i < 16; i++) dy[i] = (float)(i % 4) - 1.5f;
        assert_done(ls_backward_from(t, x, dy));
        assert_false(ls_tape_pending(t));
        assert_int_equal(told, 2);
        if (how == 0) memcpy(want, gs, sizeof want);
        assert_memory_equal(gs, want, sizeof want);
        ls_tape_destroy(t);
    }
}

static ls_tensor *nothing(ls_tape *t, ls_tensor *x, const void *arg)
{
    (void)t;
    (void)arg;
    return x;
}

static ls_tensor *turned_norm(ls_tape *t, ls_tensor *x, const void *arg)
{
    const ls_tensor *const *v = arg;
    ls_tensor *h = ls_linear(t, x, &w[0].t, NULL);
    return ls_reshape(t, ls_rmsnorm(t, h, (ls_tensor *)(uintptr_t)*v, 1e-5f), 1, (const int64_t[]){ 16 });
}

/* A block that is nothing; one whose result is another shape of what could be made again; one inside another. */
static void odd_blocks_are_right_too(void **state)
{
    (void)state;
    float one[4] = { 1, 2, 3, 4 }, want[2][16];
    ls_tensor v = { .dtype = LS_F32, .ndim = 1, .dim = { 4 }, .data = one };
    const ls_tensor *arg = &v;
    for (size_t how = 0; how < COUNT(ways); how++) {
        ls_tape *t = bare(ways[how]);
        memset(gs, 0, sizeof gs);
        ls_tensor *x = input(t);
        assert_ptr_equal(ls_block(t, x, nothing, NULL, 0), x);
        ls_tensor *h = ls_block(t, x, two_products, NULL, 0);
        assert_ptr_equal(ls_block(t, h, nothing, NULL, 0), h);
        ls_tensor *y = ls_gelu(t, ls_block(t, h, turned_norm, &arg, sizeof arg));
        assert_done(ls_tape_status(t));
        float dy[16];
        for (int i = 0; i < 16; i++) dy[i] = (float)(i % 5) - 2.0f;
        assert_done(ls_backward_from(t, y, dy));
        if (how == 0) memcpy(want, gs, sizeof want);
        assert_memory_equal(gs, want, sizeof want);
        ls_tape_destroy(t);
    }
}

/* y = 2 x, as ranks gather: cheap to make again, and in a block only there where it is read. */
static ls_status double_again(ls_tape *t, struct ls_node *n)
{
    (void)t;
    for (int i = 0; i < 16; i++) ((float *)n->out->data)[i] = 2 * ((const float *)n->in[0]->data)[i];
    return LS_OK;
}

static ls_status double_backward(ls_tape *t, struct ls_node *n)
{
    bool add;
    void *dx;
    assert_done(ls_grad_begin(t, n->in[0], &add, &dx));
    const float *dy = n->out->grad->data;
    for (int i = 0; i < 16; i++) ((float *)dx)[i] = 2 * dy[i] + (add ? ((float *)dx)[i] : 0);
    return ls_grad_end(t, n->in[0]);
}

static const ls_tape_op doubled = {
    .name = "double", .napplied = 1, .backward_input = double_backward, .again = double_again, .transient = true
};

/* Products of a transient result in another shape, one of them transient, too, and dropped. */
static ls_tensor *of_transients(ls_tape *t, ls_tensor *x, const void *arg)
{
    (void)arg;
    if (!ls_op_begin(t, doubled.name, x != NULL)) return NULL;
    ls_tensor *y = ls_op_output_transient(t, LS_F32, x->ndim, x->dim);
    struct ls_node n = { .op = &doubled, .in = { x }, .out = y };
    assert_non_null(y);
    assert_done(double_again(t, &n));
    y = ls_reshape(t, ls_op_end(t, y, &n), 2, (const int64_t[]){ 4, 4 });
    ls_tensor *product = ls_linear_transient(t, y, &w[0].t);
    ls_tensor *sum = ls_add(t, product, ls_linear(t, y, &w[1].t, NULL));
    ls_tape_drop(t, product);
    return sum;
}

static void what_is_transient_is_there_when_it_is_read(void **state)
{
    (void)state;
    float want[2][16], dy[16];
    for (int i = 0; i < 16; i++) dy[i] = (float)(i % 5) - 2.0f;
    for (size_t how = 0; how <= COUNT(ways); how++) { /* first without blocks */
        ls_tape *t = bare(how ? ways[how - 1] : LS_RECOMPUTE_NONE);
        memset(gs, 0, sizeof gs);
        ls_tensor *x = input(t);
        size_t kept = 0;
        for (int i = 0; i < 3; i++) {
            const size_t before = ls_tape_in_use(t);
            x = how ? ls_block(t, x, of_transients, NULL, 0) : of_transients(t, x, NULL);
            if (how && i > 1) assert_true(ls_tape_in_use(t) - before == kept);
            kept = ls_tape_in_use(t) - before;
        }
        assert_done(ls_tape_status(t));
        assert_done(ls_backward_from(t, x, dy));
        if (how == 0) memcpy(want, gs, sizeof want);
        assert_memory_equal(gs, want, sizeof want);
        ls_tape_destroy(t);
    }
}

/* Attention over what can be made again: queries, keys and values normed, and a packed gelu. */
static ls_tensor *attention(ls_tape *t, ls_tensor *x, const void *arg)
{
    const ls_tensor *const *v = arg;
    ls_tensor *h = ls_reshape(t, ls_linear(t, x, &w[0].t, NULL), 4, (const int64_t[]){ 1, 4, 1, 4 });
    h = ls_rmsnorm(t, h, (ls_tensor *)(uintptr_t)*v, 1e-5f);
    h = ls_attention(t, h, ls_silu(t, h), ls_gelu(t, h), 0.5f, true);
    return ls_linear(t, ls_reshape(t, h, 2, (const int64_t[]){ 4, 4 }), &w[1].t, NULL);
}

static ls_tensor *packed_attention(ls_tape *t, ls_tensor *x, const void *arg)
{
    const ls_tensor *const *v = arg;
    ls_tensor *h = ls_rmsnorm(t, ls_linear(t, x, &w[0].t, NULL), (ls_tensor *)(uintptr_t)*v, 1e-5f);
    return ls_attention_packed(t, ls_gelu(t, ls_reshape(t, h, 3, (const int64_t[]){ 1, 2, 6 })), 1, 0.5f, true);
}

static void attention_reads_what_is_made_again(void **state)
{
    (void)state;
    float one[4] = { 1, 2, 3, 4 }, want[2][2][16], dy[16];
    ls_tensor v = { .dtype = LS_F32, .ndim = 1, .dim = { 4 }, .data = one };
    const ls_tensor *arg = &v;
    for (int i = 0; i < 16; i++) dy[i] = (float)(i % 5) - 2.0f;
    for (size_t how = 0; how < COUNT(ways); how++)
        for (int packed = 0; packed < 2; packed++) {
            ls_tape *t = bare(ways[how]);
            memset(gs, 0, sizeof gs);
            ls_tensor *x = ls_tape_input(t, LS_F32, 2, (const int64_t[]){ packed ? 3 : 4, 4 }, data);
            ls_tensor *y = ls_block(t, x, packed ? packed_attention : attention, &arg, sizeof arg);
            assert_done(ls_tape_status(t));
            assert_done(ls_backward_from(t, y, dy));
            if (how == 0) memcpy(want[packed], gs, sizeof gs);
            assert_memory_equal(gs, want[packed], sizeof gs);
            ls_tape_destroy(t);
        }
}

static ls_tensor *with_outside(ls_tape *t, ls_tensor *x, const void *arg)
{
    ls_tensor *other;
    memcpy(&other, arg, sizeof other);
    return ls_add(t, ls_linear(t, x, &w[1].t, NULL), other);
}

static void refuses_a_block_that_takes_more_than_its_input(void **state)
{
    (void)state;
    ls_tape *t = bare(LS_RECOMPUTE_FULL);
    ls_tensor *h = ls_linear(t, input(t), &w[0].t, NULL);
    assert_null(ls_block(t, input(t), with_outside, &h, sizeof h));
    assert_int_equal(ls_tape_status(t), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "add takes a result of linear from outside the block"));
    ls_tape_destroy(t);
}

static ls_tensor *every_other_time(ls_tape *t, ls_tensor *x, const void *arg)
{
    int *times;
    memcpy(&times, arg, sizeof times);
    return ls_linear(t, x, (*times)++ == 0 ? &w[0].t : NULL, NULL);
}

static void a_block_that_fails_when_done_again_fails_backward(void **state)
{
    (void)state;
    int times = 0, *arg = &times;
    ls_tape *t = bare(LS_RECOMPUTE_FULL);
    ls_tensor *y = ls_block(t, input(t), every_other_time, &arg, sizeof arg);
    assert_non_null(y);
    float dy[16] = { 0 };
    assert_int_equal(ls_backward_from(t, y, dy), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "linear: an input is NULL"));
    assert_int_equal(ls_tape_status(t), LS_INVALID);
    ls_tape_destroy(t);
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(ways); i++) {
        ls_recompute how;
        assert_done(ls_recompute_find(ls_recompute_name(ways[i]), &how));
        assert_int_equal(how, ways[i]);
    }
    ls_recompute how;
    assert_int_equal(ls_recompute_find("some", &how), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "'some'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_and_the_same_order),
        cmocka_unit_test(a_second_backward_does_it_all_once_more),
        cmocka_unit_test(a_layer_more_costs_what_the_formula_says),
        cmocka_unit_test(the_dry_run_is_what_a_step_takes),
        cmocka_unit_test(evaluation_keeps_results_of_blocks_only),
        cmocka_unit_test(work_done_again_is_counted_apart),
        cmocka_unit_test(the_trace_says_what_is_done_again),
        cmocka_unit_test(blocks_may_share_their_parameters),
        cmocka_unit_test(odd_blocks_are_right_too),
        cmocka_unit_test(what_is_transient_is_there_when_it_is_read),
        cmocka_unit_test(attention_reads_what_is_made_again),
        cmocka_unit_test(refuses_a_block_that_takes_more_than_its_input),
        cmocka_unit_test(a_block_that_fails_when_done_again_fails_backward),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests_name("recompute", tests, NULL, NULL);
}
