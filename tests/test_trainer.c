/* A trainer from inside, alone in its world: the memory it takes, what a step does, and what is
 * written down about it. Whole runs are in test_train.sh. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "data/tokens.h"
#include "train/trainer.h"

/* A trainer on synthetic data with these options; its options live until drop(). */
typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
    ls_trainer *t;
} fixture;

static fixture *build(const char *const *more, size_t n)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o), LS_OK);
    assert_int_equal(ls_opts_set(f->o, "data.name", "synthetic", "default"), LS_OK);
    for (size_t i = 0; i + 1 < n; i += 2)
        if (ls_opts_set(f->o, more[i], more[i + 1], "flag") < 0) fail_msg("%s", ls_last_error());
    if (ls_trainer_create(&f->c, &f->t) < 0) fail_msg("%s", ls_last_error());
    return f;
}
#define BUILD(...) build((const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static void drop(fixture *f)
{
    ls_trainer_destroy(f->t);
    ls_opts_destroy(f->o);
    free(f);
}

static void step(fixture *f, ls_step_stats *s)
{
    if (ls_train_step(f->t, s) < 0) fail_msg("%s", ls_last_error());
}

/* --- tokens ------------------------------------------------------------------------------------------------ */

#define V 17
#define T 8

static char folder[64];

static void write_tokens(const char *name, size_t n)
{
    char path[128];
    ls_token_writer w;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(ls_token_writer_open(&w, path, LS_TOKENS_LLMC, V), LS_OK);
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)(i * i % 29 % V); /* 3 is one of them */
        assert_int_equal(ls_token_writer_add(&w, &id, 1), LS_OK);
    }
    assert_int_equal(ls_token_writer_finish(&w), LS_OK);
    ls_token_writer_close(&w);
}

static int make_tokens(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-trainer-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    write_tokens("train.bin", 401); /* 50 windows */
    write_tokens("val.bin", 60);    /* 7 */
    return 0;
}

static int remove_tokens(void **state)
{
    (void)state;
    static const char *const names[] = { "train.bin", "val.bin", "" };
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    return 0;
}

#define LM(model, ...)                                                                                              \
    BUILD("model.name", model, "data.name", "tokens", "data.path", folder, "model.vocab_size", "17", "model.seq_len", \
          "8", "model.n_layer", "2", "model.n_head", "2", "model.d_model", "16", __VA_ARGS__)

/* --- memory ------------------------------------------------------------------------------------------- */

static void takes_16_bytes_a_parameter_with_adam(void **state)
{
    (void)state;
    static const struct { const char *optim; int param, grad, state; } row[] = { { "adam", 4, 4, 8 }, { "adamw", 4, 4, 8 }, { "sgd", 4, 4, 0 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fixture *f = BUILD("model.dims", "300,200,100,10", "optim.name", row[i].optim);
        const ls_ledger *l = ls_world_ledger(f->t->w);
        double n = (double)ls_params_count(&f->t->par.model->params);
        /* every tensor starts at a multiple of 64 bytes: below 1 % of 81,210 parameters */
        assert_true(fabs((double)l->now[LS_MEM_PARAM] / n - row[i].param) < 0.01 * row[i].param);
        assert_true(fabs((double)l->now[LS_MEM_GRAD] / n - row[i].grad) < 0.01 * row[i].grad);
        assert_true(fabs((double)l->now[LS_MEM_OPTIM] / n - row[i].state) <= 0.01 * row[i].state);
        drop(f);
    }
}

/* --- steps --------------------------------------------------------------------------------------------- */

static void uses_every_sample_once_an_epoch(void **state)
{
    (void)state;
    static const struct { const char *batch, *micro, *drop_last; int steps, last; } row[] = {
        { "128", "0", "false", 8, 104 }, /* 1,000 samples */
        { "128", "32", "false", 8, 104 }, /* 104 is three micro-batches and 8 more */
        { "128", "0", "true", 7, 128 },
        { "1000", "0", "false", 1, 1000 },
        { "2000", "0", "false", 1, 1000 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fixture *f = BUILD("model.dims", "8,4", "train.global_batch", row[i].batch, "train.micro_batch", row[i].micro,
                           "data.drop_last", row[i].drop_last);
        ls_step_stats s = { 0 };
        assert_int_equal(f->t->feed.steps_per_epoch, row[i].steps);
        for (int k = 0; k < row[i].steps; k++) {
            step(f, &s);
            if (k + 1 < row[i].steps) assert_int_equal(s.samples, atoi(row[i].batch));
        }
        assert_int_equal(s.samples, row[i].last);
        assert_int_equal(f->t->step, row[i].steps);
        drop(f);
    }
}

/* Micro-batches of one size, of another, and of a rest: the step is that of the whole batch. */
static void weights_micro_batches_by_their_samples(void **state)
{
    (void)state;
    fixture *whole = BUILD("model.dims", "8,16,4", "optim.name", "sgd", "optim.lr", "0.1", "train.global_batch", "120");
    fixture *parts = BUILD("model.dims", "8,16,4", "optim.name", "sgd", "optim.lr", "0.1", "train.global_batch", "120",
                           "train.micro_batch", "24"); /* the last step has 40 samples: 24 and 16 */
    for (int k = 0; k < 9; k++) {
        ls_step_stats a, b;
        step(whole, &a);
        step(parts, &b);
        /* sums of up to 120 floats split otherwise, over 9 steps: roundings of 2^-24 each */
        assert_true(fabs(a.loss - b.loss) < 1e-6 * a.loss);
        assert_true(fabs(a.grad_norm - b.grad_norm) < 1e-5 * a.grad_norm);
    }
    drop(whole);
    drop(parts);
}

static void leaves_weights_alone_when_a_gradient_is_not_finite(void **state)
{
    (void)state;
    fixture *f = BUILD("model.dims", "4,1,2", "train.global_batch", "1");
    ls_params *ps = &f->t->par.model->params; /* 0.weight [1, 4], 0.bias [1], 2.weight [2, 1], 2.bias [2] */
    float *w0 = ps->item[0].t.data, *b0 = ps->item[1].t.data, *w2 = ps->item[2].t.data;
    /* The hidden value is 1e-38 whatever x is, the logits are 3 and -3 or the other way round, so the loss is finite.
     * Its gradient by the hidden value, the sum of 3e38 and 3e38, is not: the wrong class is the likely one. */
    int64_t label = f->t->feed.train.label[f->t->feed.sampler->index[0]];
    memset(w0, 0, 4 * sizeof *w0);
    b0[0] = 1.2e-38f;
    w2[label] = -3e38f;
    w2[!label] = 3e38f;
    char before[33], after[33];
    ls_step_stats s;
    assert_int_equal(ls_params_digest(ps, before), LS_OK);
    assert_int_equal(ls_train_step(f->t, &s), LS_NAN);
    assert_non_null(strstr(ls_last_error(), "the gradient of 0.weight in step 1 is not finite"));
    assert_int_equal(ls_params_digest(ps, after), LS_OK);
    assert_string_equal(before, after);
    assert_int_equal(f->t->step, 0);
    drop(f);
}

/* An embedding that holds no number, or weights so large that a product overflows. A block has 10 operations, two come
 * before the first. */
static void names_the_first_tensor_that_is_not_finite(void **state)
{
    (void)state;
    static const struct { int param; float value; const char *says; } row[] = {
        { 0, NAN, "is not finite: it began with the parameter transformer.wte.weight;" },
        { 4, 3e38f, "is not finite: it began with the result [4, 8, 48] of linear 16x48, operation 4 of forward;" },
        { 16, 3e38f, "of linear 16x48, operation 14 of forward;" },
    };
    for (int k = 0; k < 6; k++) {
        fixture *f = LM("gpt2", "train.global_batch", "4", "train.micro_batch", k < 3 ? "4" : "2");
        ls_params *ps = &f->t->par.model->params;
        const ls_tensor *w = &ps->item[row[k % 3].param].t;
        char before[33], after[33];
        ls_step_stats s;
        for (int64_t i = 0; i < ls_tensor_count(w); i++) ((float *)w->data)[i] = row[k % 3].value;
        assert_int_equal(ls_params_digest(ps, before), LS_OK);
        assert_int_equal(ls_train_step(f->t, &s), LS_NAN);
        if (k < 3 && !strstr(ls_last_error(), row[k].says)) fail_msg("%s: %s", ps->item[row[k].param].name, ls_last_error());
        assert_non_null(strstr(ls_last_error(), "the loss of rank 0 in step 1 is not finite: it began with the "));
        assert_int_equal(ls_params_digest(ps, after), LS_OK);
        assert_string_equal(before, after);
        assert_int_equal(f->t->step, 0);
        drop(f);
    }
}

/* Plain SGD changes weights by rate times gradient, so the rate and the clipping of each step can be read off them. */
static void follows_the_schedule_and_clips(void **state)
{
    (void)state;
    static const double want[] = { 0.05, 0.1, 0.1, 0.08, 0.06, 0.04, 0.02 }; /* warm-up of 2, then to 0 in 5 steps */
    for (int clip = 0; clip < 2; clip++) {
        fixture *f = BUILD("model.dims", "8,4", "optim.name", "sgd", "optim.lr", "0.1", "optim.schedule", "linear",
                           "optim.warmup", "2", "train.steps", "7", "optim.clip", clip ? "0.01" : "0");
        const ls_params *ps = &f->t->par.model->params;
        for (int k = 0; k < 7; k++) {
            float before[32], bias[4];
            ls_step_stats s;
            memcpy(before, ps->item[0].t.data, sizeof before);
            memcpy(bias, ps->item[1].t.data, sizeof bias);
            step(f, &s);
            assert_true(fabs(s.lr - want[k]) < 1e-15);
            assert_true(s.grad_norm > 0.02); /* the norm before clipping */
            double moved = 0.0;
            for (int i = 0; i < 32; i++)
                moved += pow((double)before[i] - (double)((float *)ps->item[0].t.data)[i], 2.0);
            for (int i = 0; i < 4; i++)
                moved += pow((double)bias[i] - (double)((float *)ps->item[1].t.data)[i], 2.0);
            /* 36 weights below 1 in size, each rounded to 2^-25, may hide 36 2^-25 = 1.1e-6 of the way */
            const double way = want[k] * (clip ? 0.01 : s.grad_norm);
            assert_true(fabs(sqrt(moved) - way) < 1.1e-6 + (clip ? 1e-4 * way : 0.0)); /* norm + 1e-6 */
        }
        drop(f);
    }
}

static void decays_matrices_only_where_told(void **state)
{
    (void)state;
    static const char *const decay[] = { "all", "matrices" };
    for (int k = 0; k < 2; k++) {
        fixture *f = BUILD("model.dims", "8,4", "optim.name", "adamw", "optim.decay", decay[k]);
        assert_false(f->t->par.model->params.item[0].no_decay);
        assert_int_equal(f->t->par.model->params.item[1].no_decay, k);
        drop(f);
    }
}

/* --- tokens: steps --------------------------------------------------------------------------------------- */

/* Sum of -log softmax(logits)[label] of the window in double, from all its logits; adds the labels that count. */
static double reference(fixture *f, const ls_tokens *data, size_t window, int64_t ignore, int64_t *counted)
{
    int64_t id[T + 1], dim[2] = { 1, T };
    double sum = 0.0;
    assert_int_equal(ls_tokens_read(data, window * T, T + 1, V, id), LS_OK);
    ls_tape_reset(f->t->par.tape[0]);
    ls_tape_set_grad(f->t->par.tape[0], false);
    ls_tensor *x = ls_tape_input(f->t->par.tape[0], LS_I64, 2, dim, id);
    const ls_tensor *y = ls_model_forward(f->t->par.model, f->t->par.tape[0], x);
    ls_tape_set_grad(f->t->par.tape[0], true);
    assert_int_equal(ls_tape_status(f->t->par.tape[0]), LS_OK);
    for (int t = 0; t < T; t++) {
        const float *l = (const float *)y->data + t * V;
        double z = 0.0;
        if (id[t + 1] == ignore) continue;
        for (int v = 0; v < V; v++) z += exp((double)l[v]);
        sum += log(z) - (double)l[id[t + 1]];
        ++*counted;
    }
    return sum;
}

static void a_loss_of_tokens_is_the_mean_over_those_that_count(void **state)
{
    (void)state;
    static const char *const models[] = { "gpt2", "llama" }, *const ignore[] = { "-1", "3" };
    for (int k = 0; k < 8; k++) {
        fixture *f = LM(models[k % 2], "data.ignore_token", ignore[k / 2 % 2], "train.micro_batch", k / 4 ? "2" : "0",
                        "train.global_batch", "8", "train.seed", "5");
        for (int64_t i = 0; i < 3; i++) {
            double sum = 0.0;
            int64_t counted = 0;
            ls_step_stats s;
            for (uint64_t g = 0; g < 8; g++) {
                const size_t window = ls_token_loader_window(f->t->feed.token_loader, (uint64_t)i * 8 + g);
                sum += reference(f, &f->t->feed.train_tokens, window, f->t->feed.ignore, &counted);
            }
            assert_true(k / 2 % 2 ? counted < 64 : counted == 64);
            step(f, &s);
            /* 64 losses whose logits are floats */
            if (!(fabs(s.loss - sum / (double)counted) < 1e-6 * s.loss))
                fail_msg("%s: loss %.9g, want %.9g", models[k % 2], s.loss, sum / (double)counted);
            assert_int_equal(s.samples, 8);
            assert_int_equal(s.tokens, 64);
        }
        drop(f);
    }
}

static void an_evaluation_takes_what_it_is_told(void **state)
{
    (void)state;
    /* of 7 windows: all of them, in threes; or the first 2 batches of 2 */
    static const struct { const char *batch, *batches; size_t windows; } row[] = { { "3", "0", 7 }, { "2", "2", 4 } };
    for (size_t k = 0; k < 2; k++) {
        fixture *f = LM("gpt2", "train.global_batch", row[k].batch, "train.eval_batches", row[k].batches, "data.ignore_token", "3");
        double sum = 0.0;
        int64_t counted = 0;
        ls_eval e;
        for (size_t w = 0; w < row[k].windows; w++) sum += reference(f, &f->t->feed.test_tokens, w, 3, &counted);
        assert_int_equal(ls_train_evaluate(f->t, &e), LS_OK);
        assert_true(e.done && fabs(e.loss - sum / (double)counted) < 1e-6 * e.loss);
        assert_true(fabs(log(e.perplexity) - e.loss) < 1e-12);
        drop(f);
    }
}

static void epochs_of_tokens_are_steps(void **state)
{
    (void)state;
    fixture *f = LM("gpt2", "train.global_batch", "8", "train.epochs", "2"); /* 50 windows */
    assert_int_equal(f->t->feed.steps_per_epoch, 7);
    assert_int_equal(f->t->steps, 14);
    drop(f);
    f = LM("gpt2", "train.global_batch", "8", "train.steps", "3", "train.seq_len", "4"); /* 100 */
    assert_int_equal(f->t->feed.steps_per_epoch, 13);
    assert_int_equal(f->t->steps, 3);
    assert_int_equal(f->t->mc.lm.seq_len, 8);
    drop(f);
}

/* Dropout follows from the run's seed, the step, and the sample's place in it: so a step is the same however it is
 * divided. */
static void dropout_does_not_depend_on_micro_batches(void **state)
{
    (void)state;
    fixture *whole = LM("gpt2", "train.global_batch", "8", "model.embd_dropout", "0.3", "model.resid_dropout", "0.2");
    fixture *parts = LM("gpt2", "train.global_batch", "8", "model.embd_dropout", "0.3", "model.resid_dropout", "0.2",
                        "train.micro_batch", "2");
    fixture *none = LM("gpt2", "train.global_batch", "8");
    for (int k = 0; k < 5; k++) {
        ls_step_stats a, b, c;
        step(whole, &a);
        step(parts, &b);
        step(none, &c);
        assert_true(fabs(a.loss - b.loss) < 1e-6 * a.loss);
        assert_true(fabs(a.grad_norm - b.grad_norm) < 1e-5 * a.grad_norm);
        assert_true(fabs(a.loss - c.loss) > 1e-5 * a.loss);
    }
    drop(whole);
    drop(parts);
    drop(none);
}

/* --- what is written down ----------------------------------------------------------------------------------- */

static json_t *line(fixture *f, const ls_step_stats *s, const ls_eval *eval)
{
    f->t->metrics.n = 0;
    assert_int_equal(ls_record_step(f->t, s, eval, false), LS_OK);
    assert_int_equal(f->t->metrics.p[f->t->metrics.n - 1], '\n');
    json_error_t error;
    json_t *j = json_loadb(f->t->metrics.p, f->t->metrics.n, JSON_REJECT_DUPLICATES, &error);
    if (!j) fail_msg("%s in %s", error.text, f->t->metrics.p);
    return j;
}

static void names_numbers_that_are_not_finite(void **state)
{
    (void)state;
    fixture *f = BUILD("model.dims", "8,4");
    const ls_step_stats s = { .loss = 0.1, .grad_norm = NAN, .samples = 4, .step_ns = 1000 };
    const ls_eval none = { 0 }, infinite = { .done = true, .loss = INFINITY, .accuracy = 0.5 };
    f->t->watch.peak.gflops = 100.0; /* ls_record_open would measure it */
    json_t *j = line(f, &s, &none);
    assert_true(json_real_value(json_object_get(j, "loss_metrics/global_avg_loss")) == 0.1); /* to the last bit */
    assert_true(json_is_null(json_object_get(j, "grad_norm")));
    assert_null(json_object_get(j, "eval/loss"));
    assert_int_equal(json_array_size(json_object_get(j, "nonfinite")), 1);
    json_decref(j);
    j = line(f, &s, &infinite);
    assert_true(json_is_null(json_object_get(j, "eval/loss")));
    assert_int_equal(json_array_size(json_object_get(j, "nonfinite")), 2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "nonfinite"), 1)), "eval/loss");
    json_decref(j);
    drop(f);
}

static void prints_times_as_people_do(void **state)
{
    (void)state;
    static const struct { double s; const char *text; } row[] = {
        { 0, "0:00" }, { -3, "0:00" }, { 0.4, "0:00" }, { 59.6, "1:00" }, { 65, "1:05" }, { 3599, "59:59" }, { 7384, "2:03:04" },
    };
    char buf[32];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_string_equal(ls_eta_text(row[i].s, buf, sizeof buf), row[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_16_bytes_a_parameter_with_adam),
        cmocka_unit_test(uses_every_sample_once_an_epoch),
        cmocka_unit_test(weights_micro_batches_by_their_samples),
        cmocka_unit_test(leaves_weights_alone_when_a_gradient_is_not_finite),
        cmocka_unit_test(names_the_first_tensor_that_is_not_finite),
        cmocka_unit_test(follows_the_schedule_and_clips),
        cmocka_unit_test(decays_matrices_only_where_told),
        cmocka_unit_test(a_loss_of_tokens_is_the_mean_over_those_that_count),
        cmocka_unit_test(an_evaluation_takes_what_it_is_told),
        cmocka_unit_test(epochs_of_tokens_are_steps),
        cmocka_unit_test(dropout_does_not_depend_on_micro_batches),
        cmocka_unit_test(names_numbers_that_are_not_finite),
        cmocka_unit_test(prints_times_as_people_do),
    };
    return cmocka_run_group_tests_name("trainer", tests, make_tokens, remove_tokens);
}
