/* Whole trainings against PyTorch's (tests/golden/make-train-optim.py): every key of `optim.`, far from its default,
 * and language models that model.load names, with micro-batches and a token that does not count. A key that the trainer
 * does not hand on moves the weights by 100 tolerances and more; the generator checks that. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/env.h"
#include "base/file.h"
#include "data/tokens.h"
#include "golden/train_optim.h"
#include "report/rundir.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct fixture {
    ls_train_config c;
    ls_opts *o;
    ls_trainer *t;
} fixture;

static void set(fixture *f, const char *key, const char *value)
{
    if (ls_opts_set(f->o, key, value, "flag") < 0) fail_msg("%s", ls_last_error());
}

/* Pairs of keys and values, then NULL. */
static void set_all(fixture *f, const char *const *pair)
{
    for (; *pair; pair += 2) set(f, pair[0], pair[1]);
}

static fixture *configure(void)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &f->c, &f->o), LS_OK);
    set(f, "data.shuffle", "false");
    return f;
}

static void build(fixture *f)
{
    if (ls_train_config_resolve(f->o, &f->c) < 0) fail_msg("%s", ls_last_error());
    if (ls_trainer_create(&f->c, &f->t) < 0) fail_msg("%s", ls_last_error());
}

static void drop(fixture *f)
{
    ls_trainer_destroy(f->t);
    ls_opts_destroy(f->o);
    free(f);
}

static void assert_near(double got, double want, double tolerance, const char *what, const char *where)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %s is %.9g, PyTorch has %.9g", where, what, got, want);
}

static void steps_are(fixture *f, int steps, const double *loss, const char *where)
{
    for (int s = 0; s < steps; s++) {
        char what[32];
        ls_step_stats stats;
        if (ls_train_step(f->t, &stats) < 0) fail_msg("%s: %s", where, ls_last_error());
        snprintf(what, sizeof what, "the loss of step %d", s + 1);
        assert_near(stats.loss, loss[s], golden_tolerance, what, where);
    }
}

/* --- every key of the optimizer ------------------------------------------------------------------- */

/* The golden numbers are double's. Weights stay below 4, whose rounding is 2.4e-7: 12 steps of a few roundings each
 * make at most 1e-5. */
static void every_key_of_the_optimizer_is_pytorchs(void **state)
{
    (void)state;
    static const char *const model[] = { "model.name", "mlp", "model.dims", "4,5,3", "model.init", "torch", "train.seed",
                                         "3", "data.name", "synthetic", "train.global_batch", "8", "train.steps", "12",
                                         NULL };
    for (size_t c = 0; c < COUNT(golden_mlp); c++) {
        char where[400] = "";
        for (const char *const *k = golden_mlp[c].key; *k; k++)
            snprintf(where + strlen(where), sizeof where - strlen(where), "%s ", *k);
        fixture *f = configure();
        set_all(f, model);
        set_all(f, golden_mlp[c].key);
        build(f);
        steps_are(f, GOLDEN_STEPS, golden_mlp[c].loss, where);
        const ls_params *ps = &f->t->par.model->params;
        int at = 0;
        for (int i = 0; i < ps->n; i++)
            for (int64_t k = 0; k < ls_tensor_count(&ps->item[i].t); k++, at++)
                assert_near((double)((float *)ps->item[i].t.data)[k], golden_mlp[c].weight[at], golden_tolerance,
                            ps->item[i].name, where);
        assert_int_equal(at, GOLDEN_WEIGHTS);
        drop(f);
    }
}

/* --- language models --------------------------------------------------------------------------------- */

static char folder[64];

static void write_tokens(void)
{
    char path[128];
    ls_token_writer w;
    snprintf(path, sizeof path, "%s/train.bin", folder);
    assert_int_equal(ls_token_writer_open(&w, path, LS_TOKENS_LLMC, GOLDEN_LM_VOCAB), LS_OK);
    for (uint32_t i = 0; i < GOLDEN_LM_STEPS * GOLDEN_LM_BATCH * GOLDEN_LM_LENGTH + 1; i++) {
        const uint32_t id = (i * i / 7 + 3 * i) % GOLDEN_LM_VOCAB;
        assert_int_equal(ls_token_writer_add(&w, &id, 1), LS_OK);
    }
    assert_int_equal(ls_token_writer_finish(&w), LS_OK);
    ls_token_writer_close(&w);
}

/* The number of a key of config.json becomes another. */
static void change(ls_text *json, const char *key, const char *number)
{
    char quoted[64];
    ls_text changed = { 0 };
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(json->p, quoted);
    assert_non_null(at);
    at += strlen(quoted);
    ls_text_add(&changed, "%.*s%s%s", (int)(at - json->p), json->p, number, at + strcspn(at, ",\n"));
    ls_text_free(json);
    *json = changed;
}

/* The golden folder with another epsilon and base. */
static void copy_model(const char *model, const char *eps, const char *theta, char *out, size_t n)
{
    char from[400], to[400], names[1024], *text;
    size_t bytes;
    snprintf(out, n, "%s/%s", folder, model);
    assert_int_equal(ls_mkdirs(out), LS_OK);
    snprintf(from, sizeof from, "%s/tests/golden/hf/%s", LOCKSTEP_SOURCE, model);
    int count = ls_env_get()->list(from, names, sizeof names);
    assert_true(count >= 2);
    for (const char *name = names; count-- > 0; name += strlen(name) + 1) {
        snprintf(from, sizeof from, "%s/tests/golden/hf/%s/%.100s", LOCKSTEP_SOURCE, model, name);
        snprintf(to, sizeof to, "%s/%.100s", out, name);
        assert_int_equal(ls_file_read(from, (size_t)1 << 20, &text, &bytes), LS_OK);
        if (strcmp(name, "config.json") == 0) {
            ls_text json = { 0 };
            ls_text_addn(&json, text, bytes);
            const bool llama = strcmp(model, "llama") == 0;
            change(&json, llama ? "rms_norm_eps" : "layer_norm_epsilon", eps);
            if (llama) change(&json, "rope_theta", theta);
            assert_int_equal(ls_file_write(to, json.p, json.n), LS_OK);
            ls_text_free(&json);
        } else {
            assert_int_equal(ls_file_write(to, text, bytes), LS_OK);
        }
        free(text);
    }
}

/* In the order of the file: a matrix of GPT-2 is the other way round in memory. */
static double weighed(const ls_param *p)
{
    const float *v = p->t.data;
    const int64_t rows = p->t.dim[0], columns = p->t.ndim > 1 ? p->t.dim[1] : 1;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            sum += (double)v[r * columns + c] * cos((double)(p->transposed ? c * rows + r : r * columns + c));
    return sum;
}

static void a_loaded_model_trains_as_transformers_does(void **state)
{
    (void)state;
    static const char *const run[] = { "data.ignore_token", "5", "train.global_batch", "6", "train.micro_batch", "2",
                                       "train.seq_len", "12", "train.steps", "6", NULL };
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-optim-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_tokens();
    for (size_t c = 0; c < COUNT(golden_lm); c++) {
        char load[128], data[128];
        copy_model(golden_lm[c].model, golden_lm[c].norm_eps, golden_lm[c].rope_theta, load, sizeof load);
        snprintf(data, sizeof data, "%s/train.bin", folder);
        fixture *f = configure();
        set(f, "model.load", load);
        set(f, "data.path", data);
        set_all(f, run);
        for (size_t k = 0; k < COUNT(golden_lm_key); k += 2) set(f, golden_lm_key[k], golden_lm_key[k + 1]);
        build(f);
        steps_are(f, GOLDEN_LM_STEPS, golden_lm[c].loss, golden_lm[c].model);
        const ls_params *ps = &f->t->par.model->params;
        for (int i = 0; i < ps->n; i++) {
            const char *name = golden_lm[c].param[i].name;
            assert_non_null(name);
            const ls_param *p = ls_params_find(ps, name);
            if (!p) fail_msg("%s: no parameter %s", golden_lm[c].model, name);
            /* a value's error is a step's, lr 3e-3, by the relative error of its gradient, 1e-4 at worst: 2e-6 in 6
             * steps; errors of n values add up as their root */
            assert_near(weighed(p), golden_lm[c].param[i].sum, 2e-6 * sqrt((double)ls_tensor_count(&p->t)), name,
                        golden_lm[c].model);
        }
        assert_null(golden_lm[c].param[ps->n].name);
        drop(f);
        ls_remove_folder(load);
    }
    ls_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_the_optimizer_is_pytorchs),
        cmocka_unit_test(a_loaded_model_trains_as_transformers_does),
    };
    return cmocka_run_group_tests_name("train_optim", tests, NULL, NULL);
}
