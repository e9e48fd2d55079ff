/* Units: every parameter has one owner, forward and backward enter and leave each unit once, a range of units is a
 * stage, and a model whose units do not fit together is refused with their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/model.h"
#include "model/lm.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)
#define assert_refused(expr, status, text)                                                       \
    do {                                                                                         \
        const ls_status got_ = (expr);                                                           \
        if (got_ != (status)) fail_msg("%s: status %d: %s", #expr, got_, ls_last_error());       \
        if (!strstr(ls_last_error(), text)) fail_msg("'%s' lacks '%s'", ls_last_error(), text);  \
    } while (0)

enum { V = 64, T = 8, B = 2 };

static const int64_t dims[] = { 6, 5, 4, 3 };
#define SIZES .vocab_size = V, .seq_len = T, .n_layer = 3, .n_head = 4, .d_model = 32
static const ls_model_config models[] = {
    { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES, .tied = true, .resid_dropout = 0.1 } },
    { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES } },
    { .name = "llama", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES, .n_kv_head = 2, .tied = true } },
    { .name = "llama", .init = LS_INIT_PHILOX, .seed = 1, .lm = { SIZES } },
    { .name = "mlp", .init = LS_INIT_PHILOX, .seed = 1, .dims = dims, .ndims = COUNT(dims) },
};

/* --- who owns what --------------------------------------------------------------------------- */

static void every_parameter_belongs_to_one_unit_or_to_the_root(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(models); k++) {
        ls_model *m;
        assert_done(ls_model_create(&models[k], &m));
        int next = m->units.nroot;
        for (int i = 0; i < m->units.n; i++) {
            const ls_unit *u = &m->units.item[i];
            assert_int_equal(u->first, next);
            assert_int_equal(u->npositions, u->cls->nparams);
            int own = 0;
            for (int p = 0; p < u->npositions; p++) {
                const bool mine = u->position[p] >= u->first && u->position[p] < u->first + u->nparams;
                assert_true(mine || u->position[p] < m->units.nroot);
                own += mine;
            }
            assert_int_equal(own, u->nparams);
            next += u->nparams;
        }
        assert_int_equal(next, m->params.n);
        assert_int_equal(m->units.nroot, models[k].lm.tied ? 1 : 0);
        ls_model_destroy(m);
    }
}

static void a_unit_finds_its_parameters_by_position(void **state)
{
    (void)state;
    static const struct { int model, unit; const char *name; int position; const char *param; } row[] = {
        { 0, 0, "embedding", 0, "transformer.wte.weight" },
        { 0, 0, "embedding", 1, "transformer.wpe.weight" },
        { 0, 3, "h.2", 2, "transformer.h.2.attn.c_attn.weight" },
        { 0, 4, "head", 2, "transformer.wte.weight" },
        { 1, 0, "embedding", 1, "transformer.wpe.weight" },
        { 1, 4, "head", 2, "lm_head.weight" },
        { 2, 4, "head", 1, "model.embed_tokens.weight" },
        { 3, 1, "h.0", 0, "model.layers.0.self_attn.q_proj.weight" },
        { 3, 4, "head", 1, "lm_head.weight" },
        { 4, 2, "layers.2", 1, "4.bias" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_model *m;
        assert_done(ls_model_create(&models[row[i].model], &m));
        const ls_unit *u = &m->units.item[row[i].unit];
        const ls_pass pass = ls_model_pass(m);
        assert_string_equal(u->name, row[i].name);
        assert_string_equal(ls_unit_param(u, &pass, row[i].position)->name, row[i].param);
        ls_model_destroy(m);
    }
}

/* --- enter and leave ----------------------------------------------------------------------------- */

/* A model with all its memory, and what its tape says: "+h.0" enter, "-h.0" leave, in backward "(h.0" and ")h.0". */
typedef struct fixture {
    ls_model *m;
    ls_arena *values, *grads;
    ls_tape *t;
    char said[2048];
    const ls_unit *in; /* that backward is in */
    int64_t ids[B * T];
    float features[B * 6];
    int told;
} fixture;

static ls_status hear_unit(void *arg, const struct ls_unit *u, ls_unit_when when)
{
    static const char sign[] = { [LS_UNIT_ENTER] = '+', [LS_UNIT_LEAVE] = '-', [LS_UNIT_ENTER_BACKWARD] = '(',
                                 [LS_UNIT_LEAVE_BACKWARD] = ')' };
    fixture *f = arg;
    const size_t n = strlen(f->said);
    snprintf(f->said + n, sizeof f->said - n, "%c%s ", sign[when], u->name);
    f->in = when == LS_UNIT_ENTER_BACKWARD ? u : NULL;
    return LS_OK;
}

/* A unit's gradients are ready while backward is in it, and the root's in the first unit that uses them. */
static ls_status hear_gradient(void *arg, ls_tensor *t)
{
    fixture *f = arg;
    int index = 0;
    while (&f->m->params.item[index].t != t) index++;
    const ls_unit *u = f->in;
    assert_non_null(u);
    if (index < f->m->units.nroot && u != f->m->units.item) fail_msg("%s is ready in %s", f->m->params.item[index].name, u->name);
    if (index >= f->m->units.nroot) assert_in_range(index, u->first, u->first + u->nparams - 1);
    f->told++;
    return LS_OK;
}

static void build(fixture *f, const ls_model_config *c, ls_recompute how)
{
    *f = (fixture){ 0 };
    assert_done(ls_model_create(c, &f->m));
    ls_params *ps = &f->m->params;
    const size_t room = ls_params_nbytes(ps) + 64u * (size_t)ps->n;
    assert_done(ls_arena_create(room, false, NULL, &f->values));
    assert_done(ls_arena_create(room, false, NULL, &f->grads));
    assert_done(ls_params_bind(ps, f->values, f->grads));
    assert_done(ls_model_init(f->m, c));
    const size_t bytes = ls_model_tape_bytes_in(f->m, B, T, &(ls_tape_mode){ .recompute = how });
    assert_done(ls_tape_create(bytes, NULL, NULL, &f->t));
    ls_tape_set_recompute(f->t, how);
    const ls_tape_events events = { .unit = hear_unit, .grad_ready = hear_gradient };
    assert_done(ls_tape_listen(f->t, &events, f));
    for (int i = 0; i < B * T; i++) f->ids[i] = i * 37 % V;
    for (int i = 0; i < B * 6; i++) f->features[i] = (float)(i % 5) - 2.0f;
}

static void drop(fixture *f)
{
    ls_tape_destroy(f->t);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->grads);
    ls_arena_destroy(f->values);
}

static ls_tensor *input(fixture *f, ls_tensor **labels)
{
    static int64_t label[B * T];
    ls_model_input in;
    f->m->cls->input(f->m, B, T, &in);
    *labels = ls_tape_input(f->t, LS_I64, in.label_ndim, in.label_dim, label);
    return ls_tape_input(f->t, in.dtype, in.ndim, in.dim, in.dtype == LS_I64 ? (void *)f->ids : (void *)f->features);
}

static void forward_and_backward_say_which_unit_they_are_in(void **state)
{
    (void)state;
    static const ls_recompute ways[] = { LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL };
    static const char lm[] = "+embedding -embedding +h.0 -h.0 +h.1 -h.1 +h.2 -h.2 +head -head "
                             "(head )head (h.2 )h.2 (h.1 )h.1 (h.0 )h.0 (embedding )embedding ";
    static const char mlp[] = "+layers.0 -layers.0 +layers.1 -layers.1 +layers.2 -layers.2 "
                              "(layers.2 )layers.2 (layers.1 )layers.1 (layers.0 )layers.0 ";
    for (size_t k = 0; k < COUNT(models); k++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            fixture f;
            ls_tensor *labels;
            build(&f, &models[k], ways[w]);
            ls_tensor *x = input(&f, &labels);
            assert_done(ls_backward(f.t, ls_model_loss(f.m, f.t, x, labels, NULL)));
            assert_string_equal(f.said, models[k].dims ? mlp : lm);
            assert_int_equal(f.told, f.m->params.n);

            const size_t n = strlen(f.said) / 2; /* without gradients, as in evaluation: the forward half */
            char half[sizeof f.said];
            snprintf(half, sizeof half, "%.*s", (int)(strstr(f.said, "(") - f.said), f.said);
            assert_true(n > 0);
            f.said[0] = '\0';
            ls_tape_reset(f.t);
            ls_tape_set_grad(f.t, false);
            x = input(&f, &labels);
            assert_non_null(ls_model_loss(f.m, f.t, x, labels, NULL));
            assert_string_equal(f.said, half);
            drop(&f);
        }
}

/* The root's parameters know no unit: they are needed in several. */
static void every_parameter_knows_its_unit(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(models); k++) {
        ls_model *m;
        int of_units = 0;
        assert_done(ls_model_create(&models[k], &m));
        for (int i = 0; i < m->units.nroot; i++) assert_int_equal(m->params.item[i].unit, -1);
        for (int u = 0; u < m->units.n; u++)
            for (int i = 0; i < m->units.item[u].nparams; i++, of_units++)
                assert_int_equal(m->params.item[m->units.item[u].first + i].unit, u);
        assert_int_equal(of_units + m->units.nroot, m->params.n);
        ls_model_destroy(m);
    }
}

/* --- stages ---------------------------------------------------------------------------------------- */

static void stages_one_after_another_are_the_whole_model(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(models); k++)
        for (int cut = 0; cut <= 3; cut++) {
            fixture f;
            ls_tensor *labels;
            build(&f, &models[k], LS_RECOMPUTE_NONE);
            ls_tape_set_grad(f.t, false);
            const ls_pass pass = ls_model_pass(f.m);
            const ls_tensor *y = ls_model_forward(f.m, f.t, input(&f, &labels));
            assert_non_null(y);
            float *want = malloc(ls_tensor_nbytes(y));
            assert_non_null(want);
            memcpy(want, y->data, ls_tensor_nbytes(y));

            ls_tape_reset(f.t);
            ls_tensor *x = ls_units_forward(&f.m->units, 0, cut, f.t, input(&f, &labels), &pass);
            y = ls_units_forward(&f.m->units, cut, f.m->units.n - cut, f.t, x, &pass);
            assert_non_null(y);
            assert_memory_equal(y->data, want, ls_tensor_nbytes(y));
            free(want);
            drop(&f);
        }
}

/* --- models that do not fit together -------------------------------------------------------------------- */

static ls_tensor *linear(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    ls_tensor *y = ls_linear(t, x, &ls_unit_param(u, pass, 0)->t, NULL);
    const bool loss = u->number == 1 && pass->output == LS_OUTPUT_LOSS && strcmp(u->name, "no-loss") != 0;
    return loss ? ls_softmax_cross_entropy(t, y, pass->labels, NULL, NULL) : y;
}

static const ls_unit_class one_matrix = { .forward = linear, .nparams = 1 };

static ls_status resolve(const ls_model_config *c, ls_model_config *out)
{
    *out = *c;
    return LS_OK;
}

static ls_status add(ls_model *m, const char *name, int64_t out, int64_t in)
{
    return ls_units_add(&m->units, &m->params, name, 2, (const int64_t[]){ out, in });
}

/* Two units of a matrix each: what is wrong with them is the configuration's seed. */
enum {
    NOTHING, SHAPE, TWICE, TOO_FEW, TOO_FEW_LAST, TOO_MANY, SAME_NAME, NOT_THE_ROOTS, OUTSIDE, OUTSIDE_LAST, NO_UNIT,
    LONG_NAME, ROOTS_NAME, NO_LOSS
};

static ls_status create(const ls_model_config *c, ls_model *m)
{
    const int wrong = (int)c->seed;
    if (wrong == NO_UNIT) return LS_OK;
    if (wrong == NOT_THE_ROOTS) LS_TRY(add(m, "shared", 3, 4));
    const char *first = wrong == LONG_NAME    ? "a-name-that-is-longer-than-a-unit-may-have"
                        : wrong == ROOTS_NAME ? "root"
                                              : "first";
    LS_TRY(ls_units_begin(&m->units, first, 0, &one_matrix, NULL));
    if (wrong != TOO_FEW) LS_TRY(add(m, "a", 4, 6));
    if (wrong == TOO_MANY) LS_TRY(add(m, "b", 4, 4));
    if (wrong == OUTSIDE) LS_TRY(ls_params_add(&m->params, "c", 1, (const int64_t[]){ 4 }));
    const char *second = wrong == SAME_NAME ? "first" : wrong == NO_LOSS ? "no-loss" : "second";
    LS_TRY(ls_units_begin(&m->units, second, 1, &one_matrix, NULL));
    if (wrong == TOO_FEW_LAST) return LS_OK;
    if (wrong == NOT_THE_ROOTS) LS_TRY(ls_units_share(&m->units, &m->params, "a"));
    else LS_TRY(add(m, wrong == TWICE ? "a" : "b", 3, wrong == SHAPE ? 5 : 4));
    return wrong == OUTSIDE_LAST ? ls_params_add(&m->params, "c", 1, (const int64_t[]){ 4 }) : LS_OK;
}

static void features(const ls_model *m, int64_t batch, int64_t tokens, ls_model_input *in)
{
    (void)m;
    (void)tokens;
    *in = (ls_model_input){ .dtype = LS_F32, .ndim = 2, .dim = { batch, 6 }, .label_ndim = 1, .label_dim = { batch } };
}

static const ls_model_class of_my_own = { .name = "own", .resolve = resolve, .create = create, .input = features };

static void a_model_that_does_not_fit_together_is_refused_at_creation(void **state)
{
    (void)state;
    static const struct { int wrong; ls_status status; const char *says; } row[] = {
        { SHAPE, LS_SHAPE, "creating model 'own': while checking the shapes of unit 'second' (b [3, 5]): linear: input [2, 4] and weight [3, 5]" },
        { TWICE, LS_INVALID, "the parameters of unit 'second': parameter 'a' is registered twice" },
        { TOO_FEW, LS_INVALID, "unit 'first' has 0 parameters, but its forward reads 1" },
        { TOO_FEW_LAST, LS_INVALID, "unit 'second' has 0 parameters, but its forward reads 1" },
        { TOO_MANY, LS_INVALID, "unit 'first': parameter 'b' is one more than the 1 that its forward reads" },
        { SAME_NAME, LS_INVALID, "two units are called 'first'" },
        { NOT_THE_ROOTS, LS_INVALID, "unit 'second' shares parameter 'a', which is not the root's" },
        { OUTSIDE, LS_INVALID, "unit 'second': parameter 'b' follows 2 parameters, of which the units know 1" },
        { OUTSIDE_LAST, LS_INVALID, "parameter 'c' belongs to no unit" },
        { NO_UNIT, LS_INVALID, "has no unit" },
        { LONG_NAME, LS_INVALID, "expected 1 to 31 bytes" },
        { ROOTS_NAME, LS_INVALID, "the unit name 'root' is reserved for parameters that several units use" },
        { NO_LOSS, LS_SHAPE, "unit 'no-loss' gives [2, 3] where pass->output asks for a loss" },
    };
    ls_model *m;
    ls_model_config c = { 0 };
    assert_done(ls_model_create_of(&of_my_own, &c, &m));
    assert_int_equal(m->units.n, 2);
    ls_model_destroy(m);
    for (size_t i = 0; i < COUNT(row); i++) {
        m = (ls_model *)(uintptr_t)1;
        c.seed = (uint64_t)row[i].wrong;
        assert_refused(ls_model_create_of(&of_my_own, &c, &m), row[i].status, row[i].says);
        assert_null(m);
    }
}

static void a_language_models_tables_are_checked(void **state)
{
    (void)state;
    static const ls_lm_param hole[] = { [1] = { "b", { LS_LM_C, LS_LM_C }, .init = LS_LM_NORMAL } };
    static const ls_lm_param unmarked[] = { { "a", { LS_LM_V, LS_LM_C }, .init = LS_LM_NORMAL } };
    const ls_model_class *llama = ls_model_class_find("llama");
    const ls_model_config c = { .lm = { SIZES, .tied = true } };
    ls_lm_class tables = *llama->lm;
    ls_model_class own = *llama;
    ls_model *m;
    own.lm = &tables;
    assert_done(ls_model_create_of(&own, &c, &m));
    ls_model_destroy(m);
    tables.block = (ls_lm_unit){ .param = hole, .cls = { tables.block.cls.forward, COUNT(hole), true } };
    assert_refused(ls_model_create_of(&own, &c, &m), LS_INVALID, "the table of unit 'h' has no parameter at position 0");
    tables = *llama->lm;
    tables.embedding.param = unmarked;
    assert_refused(ls_model_create_of(&own, &c, &m), LS_INVALID, "unit 'embedding' marks no parameter as the head's matrix");
}

/* --- keys --------------------------------------------------------------------------------------------------- */

static void names_list_who_reads_a_key(void **state)
{
    (void)state;
    char buf[64];
    assert_true(strncmp(ls_model_names(NULL, buf, sizeof buf), "mlp, gpt2", 9) == 0);
    assert_non_null(strstr(buf, " and "));
    assert_true(strncmp(ls_model_names(LS_LM_KEY, buf, sizeof buf), "gpt2", 4) == 0);
    assert_string_equal(ls_model_names("model.dims", buf, sizeof buf), "mlp, cnn and timed");
    assert_string_equal(ls_model_names("optim.lr", buf, sizeof buf), "");
    assert_string_equal(ls_model_names(NULL, buf, 6), "mlp, ");
    const ls_model_class *mlp = ls_model_class_find("mlp"), *gpt2 = ls_model_class_find("gpt2");
    assert_true(ls_model_reads(mlp, "model.dims") && !ls_model_reads(gpt2, "model.dims"));
    assert_true(ls_model_reads(gpt2, "train.recompute") && !ls_model_reads(mlp, "train.recompute"));
    assert_true(ls_model_reads(mlp, "optim.lr") && ls_model_reads(gpt2, "optim.lr"));
    assert_null(ls_model_class_find("bert"));
    assert_non_null(strstr(ls_model_choices, "mlp|gpt2|llama|"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_belongs_to_one_unit_or_to_the_root),
        cmocka_unit_test(every_parameter_knows_its_unit),
        cmocka_unit_test(a_unit_finds_its_parameters_by_position),
        cmocka_unit_test(forward_and_backward_say_which_unit_they_are_in),
        cmocka_unit_test(stages_one_after_another_are_the_whole_model),
        cmocka_unit_test(a_model_that_does_not_fit_together_is_refused_at_creation),
        cmocka_unit_test(a_language_models_tables_are_checked),
        cmocka_unit_test(names_list_who_reads_a_key),
    };
    return cmocka_run_group_tests_name("unit", tests, NULL, NULL);
}
