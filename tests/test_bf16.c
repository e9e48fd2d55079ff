/* Training with activations in bf16: whole models against themselves in float. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
#include "lockstep/model.h"
#include "lockstep/optim.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

enum { V = 96, T = 64, B = 8, STEPS = 200 };

static const char *const names[] = { "gpt2", "llama" };

/* A small model with all that trains it. */
typedef struct fixture {
    ls_model *m;
    ls_arena *arena;
    ls_optim *o;
    ls_tape *t;
    int64_t token[B][T + 1], ids[B * T], labels[B * T];
    ls_loss_sums sums;
} fixture;

static void build(fixture *f, const char *name, const ls_tape_mode *mode)
{
    const bool gpt2 = strcmp(name, "gpt2") == 0;
    const ls_model_config mc = {
        .name = name, .init = LS_INIT_PHILOX, .seed = 5,
        .lm = { .vocab_size = V, .seq_len = T, .n_layer = 3, .n_head = 4, .n_kv_head = gpt2 ? 4 : 2, .d_model = 64,
                .d_ff = 192, .tied = gpt2, .resid_dropout = gpt2 ? 0.1 : 0.0 },
    };
    ls_optim_config oc;
    *f = (fixture){ 0 };
    assert_done(ls_model_create(&mc, &f->m));
    ls_params *ps = &f->m->params;
    assert_done(ls_optim_defaults("adamw", &oc));
    oc.lr = 2e-3;
    assert_done(ls_arena_create(8 * (ls_params_nbytes(ps) + 64u * (size_t)ps->n), false, NULL, &f->arena));
    assert_done(ls_params_bind(ps, f->arena, f->arena));
    if (mode->dtype == LS_BF16) assert_done(ls_params_bind_bf16(ps, f->arena));
    assert_done(ls_model_init(f->m, &mc));
    ls_params_round(ps);
    ls_params_decay_matrices(ps);
    assert_done(ls_optim_create(&oc, ps, f->arena, &f->o));
    assert_done(ls_tape_create(ls_model_tape_bytes_in(f->m, B, T, mode), NULL, NULL, &f->t));
    assert_done(ls_tape_set_dtype(f->t, mode->dtype));
    ls_tape_set_recompute(f->t, mode->recompute);
    f->m->draw.seed = 3;
}

static void drop(fixture *f)
{
    ls_tape_destroy(f->t);
    ls_optim_destroy(f->o);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->arena);
}

/* A language to be learnt: what follows a token is one of four. */
static void next_batch(fixture *f, uint64_t step)
{
    for (int b = 0; b < B; b++) {
        uint32_t word[4 * ((T + 4) / 4)];
        ls_philox_blocks(77, step * B + (uint64_t)b, 0, (T + 4) / 4, word);
        for (int t = 0; t <= T; t++) {
            const int64_t last = t > 0 ? f->token[b][t - 1] : 0;
            f->token[b][t] = (last * 7 + (int64_t)(word[t] % 4) * 11) % V;
        }
        for (int t = 0; t < T; t++) {
            f->ids[b * T + t] = f->token[b][t];
            f->labels[b * T + t] = f->token[b][t + 1];
        }
    }
}

/* Forward and backward of a step; its mean loss. */
static double gradients(fixture *f, uint64_t step)
{
    const int64_t dim[2] = { B, T };
    next_batch(f, step);
    ls_tape_reset(f->t);
    ls_params_zero_grad(&f->m->params);
    f->m->draw.step = step;
    ls_tensor *x = ls_tape_input(f->t, LS_I64, 2, dim, f->ids), *y = ls_tape_input(f->t, LS_I64, 2, dim, f->labels);
    assert_done(ls_backward(f->t, ls_model_loss(f->m, f->t, x, y, &f->sums)));
    return f->sums.sum / (double)f->sums.counted;
}

static double train(fixture *f, uint64_t step)
{
    double norm;
    const double loss = gradients(f, step);
    assert_done(ls_grad_norm(&f->m->params, &norm, NULL));
    assert_done(ls_optim_step_scaled(f->o, ls_clip_scale(norm, 1.0)));
    return loss;
}

/* The requirement of mixed precision: at every one of 200 steps the loss is within 1 % of float's. */
static void the_loss_stays_within_a_percent_of_float_s_for_200_steps(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(names); k++) {
        fixture wide, narrow;
        double first = 0.0, last = 0.0, worst = 0.0;
        build(&wide, names[k], &(ls_tape_mode){ .dtype = LS_F32 });
        build(&narrow, names[k], &(ls_tape_mode){ .dtype = LS_BF16 });
        for (int step = 0; step < STEPS; step++) {
            const double want = train(&wide, (uint64_t)step), got = train(&narrow, (uint64_t)step);
            if (!(fabs(got - want) <= 0.01 * want))
                fail_msg("%s, step %d: loss %.6f in bf16, %.6f in float", names[k], step, got, want);
            worst = fmax(worst, fabs(got - want) / want);
            if (step == 0) first = want;
            last = want;
        }
        print_message("%s: loss %.3f to %.3f, bf16 at most %.2f %% off\n", names[k], first, last, 100.0 * worst);
        assert_true(last < 0.6 * first); /* it has learnt */
        assert_true(worst > 0.0);        /* and not in float */
        drop(&narrow);
        drop(&wide);
    }
}

/* The gradient of a whole model: its angle to float's, and its length. Each of the about 10 values on the way through
 * each of 3 layers is rounded forward and backward, an error of 2^-8 / sqrt(3) of itself on average: 60 of them, were
 * they independent, add up to sqrt(60) of that, 1.8 %. */
static void gradients_point_where_float_s_do(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(names); k++) {
        fixture wide, narrow;
        build(&wide, names[k], &(ls_tape_mode){ .dtype = LS_F32 });
        build(&narrow, names[k], &(ls_tape_mode){ .dtype = LS_BF16 });
        gradients(&wide, 0);
        gradients(&narrow, 0);
        double difference = 0.0, length = 0.0;
        for (int i = 0; i < wide.m->params.n; i++) {
            const ls_tensor *a = &wide.m->params.item[i].grad, *b = &narrow.m->params.item[i].grad;
            for (int64_t j = 0; j < ls_tensor_count(a); j++) {
                const double x = (double)((float *)a->data)[j], y = (double)((float *)b->data)[j];
                difference += (x - y) * (x - y);
                length += x * x;
            }
        }
        print_message("%s: gradient off by %.2f %%\n", names[k], 100.0 * sqrt(difference / length));
        assert_true(sqrt(difference / length) < 0.018);
        drop(&narrow);
        drop(&wide);
    }
}

static void assert_same_gradients(fixture *f, fixture *want, const char *what)
{
    assert_true(f->sums.sum == want->sums.sum);
    for (int i = 0; i < f->m->params.n; i++) {
        const ls_param *got = &f->m->params.item[i], *ref = &want->m->params.item[i];
        if (memcmp(got->grad.data, ref->grad.data, ls_tensor_nbytes(&ref->t)) != 0)
            fail_msg("%s: the gradient of %s differs", what, got->name);
    }
}

static void recompute_and_threads_change_no_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(names); k++) {
        fixture want;
        const int before = ls_team_size();
        ls_team_resize(1);
        build(&want, names[k], &(ls_tape_mode){ .dtype = LS_BF16 });
        gradients(&want, 0);
        for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++) {
            fixture f;
            ls_team_resize(how + 1); /* before the tape is planned: threads have memory of their own */
            build(&f, names[k], &(ls_tape_mode){ .dtype = LS_BF16, .recompute = (ls_recompute)how });
            gradients(&f, 0);
            assert_same_gradients(&f, &want, ls_recompute_name((ls_recompute)how));
            drop(&f);
        }
        ls_team_resize(before);
        drop(&want);
    }
}

/* The plan of a dry run holds in bf16, too, and is well below float's. */
static void a_tape_takes_what_was_planned(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(names); k++) {
        fixture f;
        const ls_tape_mode mode = { .dtype = LS_BF16 };
        build(&f, names[k], &mode);
        gradients(&f, 0);
        assert_int_equal(ls_tape_peak(f.t), ls_model_tape_bytes_in(f.m, B, T, &mode));
        assert_true((double)ls_tape_peak(f.t) < 0.7 * (double)ls_model_tape_bytes_of(f.m, B, T));
        drop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_stays_within_a_percent_of_float_s_for_200_steps),
        cmocka_unit_test(gradients_point_where_float_s_do),
        cmocka_unit_test(recompute_and_threads_change_no_bit),
        cmocka_unit_test(a_tape_takes_what_was_planned),
    };
    return cmocka_run_group_tests_name("bf16", tests, NULL, NULL);
}
