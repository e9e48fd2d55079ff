/* GPT-2 and Llama: which parameters, how many, with which first values. Names and shapes are
 * transformers' (tests/golden/hf_names.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "golden/hf_names.h"
#include "lockstep/model.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static ls_model *create(const char *preset)
{
    ls_model *m;
    const ls_model_preset *p = ls_model_preset_find(preset);
    if (!p) fail_msg("no preset %s", preset);
    const ls_model_config c = { .name = p->model, .lm = p->lm, .init = LS_INIT_PHILOX };
    if (ls_model_create(&c, &m) != LS_OK) fail_msg("%s: %s", preset, ls_last_error());
    return m;
}

/* The totals that the models' authors and transformers' num_parameters() give. */
static void presets_have_the_known_number_of_parameters(void **state)
{
    (void)state;
    static const struct { const char *name; int64_t count; } row[] = {
        { "gpt2", 124439808 },         { "gpt2-medium", 354823168 }, { "gpt2-large", 774030080 },
        { "gpt2-xl", 1557611200 },     { "llama-1b", 1100048384 },   { "llama-15m", 15191712 },
        { "llama-110m", 109529856 },   { "llama-tiny", 260032 },     { "gpt2-1m", 957184 },
        { "mixtral-8x7b", 46702792704 }, { "moe-tiny", 3544192 },
    };
    int presets = 0;
    for (int i = 0; ls_model_classes[i]; i++)
        for (const ls_model_preset *p = ls_model_classes[i]->presets; p && p->name; p++) {
            assert_string_equal(p->model, ls_model_classes[i]->name);
            presets++;
        }
    assert_int_equal(presets, COUNT(row));
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_model *m = create(row[i].name);
        const ls_model_preset *p = ls_model_preset_find(row[i].name);
        assert_int_equal(ls_params_count(&m->params), row[i].count);
        assert_int_equal(ls_model_count(&(ls_model_config){ .name = p->model, .lm = p->lm }), row[i].count);
        ls_model_destroy(m);
    }
}

/* The formula against the list of parameters, over sizes. */
static void the_formula_counts_what_is_registered(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt2", "llama", "moe" };
    for (int which = 0; which < 3; which++)
        for (int64_t i = 0; i < 24; i++) {
            const ls_lm_config lm = { .vocab_size = 7 + i, .seq_len = 3 + i % 5, .n_layer = 1 + i % 3, .n_head = 4,
                                      .n_kv_head = which && i % 2 ? 2 : 0, .d_model = 8 + 8 * (i % 3),
                                      .d_ff = i % 4 ? 5 + i : 0, .tied = i % 2 == 0,

                                      .n_experts = i % 5 ? i : 0, .d_expert = i % 3, .shared_expert = i % 4,
                                      .first_dense = i % 3 ? i % 2 : 0, .bias_rate = i % 3 ? 0 : 0.1 };
            const ls_model_config c = { .name = names[which], .lm = lm };
            ls_model *m;
            assert_int_equal(ls_model_create(&c, &m), LS_OK);
            assert_int_equal(ls_model_count(&c), ls_params_count(&m->params));
            ls_model_destroy(m);
        }
}

/* In Hugging Face's order; matrices of gpt2's blocks are the other way round in memory. */
static void assert_names(const ls_model_config *c, const golden_param *want, size_t n, bool transposed)
{
    ls_model *m;
    assert_int_equal(ls_model_create(c, &m), LS_OK);
    assert_int_equal(m->params.n, n);
    for (size_t i = 0; i < n; i++) {
        const ls_param *p = &m->params.item[i];
        assert_string_equal(p->name, want[i].name);
        assert_int_equal(p->t.ndim, want[i].ndim);
        const bool conv = transposed && strstr(p->name, ".h.") && p->t.ndim == 2;
        for (int d = 0; d < p->t.ndim; d++) assert_int_equal(p->t.dim[conv ? 1 - d : d], want[i].dim[d]);
    }
    ls_model_destroy(m);
}

static void names_and_shapes_are_transformers(void **state)
{
    (void)state;
    ls_model_config gpt2 = { .name = "gpt2", .lm = { .vocab_size = 64, .seq_len = 16, .n_layer = 2, .n_head = 4,
                                                     .d_model = 32, .tied = true } };
    ls_model_config llama = { .name = "llama", .lm = { .vocab_size = 64, .seq_len = 16, .n_layer = 2, .n_head = 4,
                                                       .n_kv_head = 2, .d_model = 32, .d_ff = 48 } };
    assert_names(&gpt2, golden_gpt2, COUNT(golden_gpt2), true);
    assert_names(&llama, golden_llama, COUNT(golden_llama), false);
    llama.lm.tied = true; /* the head is left out, and stood last */
    assert_names(&llama, golden_llama, COUNT(golden_llama) - 1, false);
}

static void refuses_sizes_that_do_not_fit(void **state)
{
    (void)state;
#define GOOD .vocab_size = 64, .seq_len = 16, .n_layer = 2, .n_head = 4, .d_model = 32
    static const struct { const char *name; ls_lm_config lm; ls_status status; const char *says; } row[] = {
        { "gpt2", { GOOD }, LS_OK, "" },
        { "llama", { GOOD, .n_kv_head = 2 }, LS_OK, "" },
        { "bert", { GOOD }, LS_BAD_CONFIG, "no model 'bert'; known: mlp, gpt2" },
        { "moe", { GOOD, .n_experts = 4 }, LS_OK, "" },
        { "moe", { GOOD, .n_experts = 4, .top_k = 5 }, LS_BAD_CONFIG, "model.top_k is 5; expected 1 to 4" },
        { "moe", { GOOD, .n_experts = 2000 }, LS_BAD_CONFIG, "model.n_experts is 2000; expected 1 to 1024" },
        { "moe", { GOOD, .first_dense = 3 }, LS_BAD_CONFIG, "model.first_dense is 3; expected 0 to 1, so that" },
        { "moe", { GOOD, .first_dense = 2 }, LS_BAD_CONFIG, "model.first_dense is 2; expected 0 to 1" },
        { "moe", { GOOD, .aux_loss = -1 }, LS_BAD_CONFIG, "moe.aux_loss is -1" },
        { "moe", { GOOD, .forced_expert = 9 }, LS_BAD_CONFIG, "moe.force_expert is 8; expected -1 (none) to 7" },
        { "gpt2", { .seq_len = 16, .n_layer = 2, .n_head = 4, .d_model = 32 }, LS_BAD_CONFIG, "model.vocab_size is 0" },
        { "gpt2", { .vocab_size = 64, .seq_len = -1, .n_layer = 2, .n_head = 4, .d_model = 32 }, LS_BAD_CONFIG, "seq_len is -1" },
        { "gpt2", { .vocab_size = 64, .seq_len = 1, .n_layer = 1025, .n_head = 4, .d_model = 32 }, LS_BAD_CONFIG, "n_layer is 1025" },
        { "gpt2", { .vocab_size = 64, .seq_len = 1, .n_layer = 2, .n_head = 5, .d_model = 32 }, LS_BAD_CONFIG, "multiple of model.n_head 5" },
        { "llama", { GOOD, .n_kv_head = 3 }, LS_BAD_CONFIG, "multiple of model.n_kv_head 3" },
        { "gpt2", { GOOD, .n_kv_head = 2 }, LS_UNSUPPORTED, "as many heads" },
        { "llama", { .vocab_size = 64, .seq_len = 16, .n_layer = 2, .n_head = 4, .d_model = 36 }, LS_BAD_CONFIG, "even number" },
        { "gpt2", { GOOD, .norm_eps = -1 }, LS_BAD_CONFIG, "norm_eps" },
        { "llama", { GOOD, .rope_theta = 0.5 }, LS_BAD_CONFIG, "rope_theta" },
        { "gpt2", { GOOD, .resid_dropout = 1 }, LS_BAD_CONFIG, "a dropout of 1" },
        { "llama", { GOOD, .attn_dropout = 0.1 }, LS_UNSUPPORTED, "llama has none" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_model_config out;
        const ls_status st = ls_model_resolve(&(ls_model_config){ .name = row[i].name, .lm = row[i].lm }, &out);
        if (st != row[i].status) fail_msg("row %zu: status %d", i, st);
        if (st < 0 && !strstr(ls_last_error(), row[i].says)) fail_msg("row %zu: %s", i, ls_last_error());
    }
    assert_null(ls_model_preset_find("gpt3"));
    assert_null(ls_model_preset_find(NULL));
}

/* --- first values ------------------------------------------------------------------------- */

typedef struct bound {
    ls_model *m;
    ls_arena *arena;
} bound;

static bound build(const ls_model_config *c)
{
    bound b = { 0 };
    assert_int_equal(ls_model_create(c, &b.m), LS_OK);
    const size_t room = ls_params_nbytes(&b.m->params) + 64u * (size_t)b.m->params.n;
    assert_int_equal(ls_arena_create(room, false, NULL, &b.arena), LS_OK);
    assert_int_equal(ls_params_bind(&b.m->params, b.arena, NULL), LS_OK);
    assert_int_equal(ls_model_init(b.m, c), LS_OK);
    return b;
}

static void drop(bound *b)
{
    ls_model_destroy(b->m);
    ls_arena_destroy(b->arena);
}

static void moments(const ls_param *p, double *mean, double *stddev)
{
    const float *v = p->t.data;
    const double n = (double)ls_tensor_count(&p->t);
    double sum = 0, squares = 0;
    for (int64_t k = 0; k < ls_tensor_count(&p->t); k++) sum += (double)v[k];
    for (int64_t k = 0; k < ls_tensor_count(&p->t); k++) squares += ((double)v[k] - sum / n) * ((double)v[k] - sum / n);
    *mean = sum / n;
    *stddev = sqrt(squares / n);
}

/* Of n values of a normal distribution the mean is within 5 sigma / sqrt(n), and the standard deviation within
 * 5 sigma / sqrt(2 n), of what was asked for, but once in a million. */
static void first_values_are_gpt2s(void **state)
{
    (void)state;
    static const char *const presets[] = { "gpt2-1m", "llama-tiny" };
    for (int which = 0; which < 2; which++) {
        const ls_model_preset *preset = ls_model_preset_find(presets[which]);
        const ls_model_config c = { .name = preset->model, .lm = preset->lm, .init = LS_INIT_PHILOX, .seed = 11 };
        bound b = build(&c);
        for (int i = 0; i < b.m->params.n; i++) {
            const ls_param *p = &b.m->params.item[i];
            const double n = (double)ls_tensor_count(&p->t);
            double mean, stddev, want = 0.02;
            moments(p, &mean, &stddev);
            if (p->t.ndim == 1) {
                assert_true(stddev == 0.0);
                assert_true(mean == (strstr(p->name, ".bias") ? 0.0 : 1.0));
                continue;
            }
            if (strstr(p->name, "c_proj") || strstr(p->name, "o_proj") || strstr(p->name, "down_proj"))
                want = 0.02 / sqrt(2.0 * (double)preset->lm.n_layer);
            if (fabs(mean) > 5 * want / sqrt(n) || fabs(stddev - want) > 5 * want / sqrt(2 * n))
                fail_msg("%s: mean %g, standard deviation %g, want %g", p->name, mean, stddev, want);
        }
        drop(&b);
    }
}

/* Element k of parameter i is the k-th normal number of stream i: so a shard can make its own part. */
static void first_values_are_keyed_by_parameter_and_element(void **state)
{
    (void)state;
    const ls_model_preset *preset = ls_model_preset_find("gpt2-1m");
    const ls_model_config c = { .name = "gpt2", .lm = preset->lm, .init = LS_INIT_PHILOX, .seed = 5 };
    bound b = build(&c);
    float part[100];
    ls_philox_normal(5, 1, 333, 100, 0.02f, part);
    assert_memory_equal((const float *)b.m->params.item[1].t.data + 333, part, sizeof part);
    drop(&b);

    ls_model_config torch = c;
    torch.init = LS_INIT_TORCH;
    ls_model *m;
    assert_int_equal(ls_model_create(&torch, &m), LS_OK);
    assert_int_equal(ls_model_init(m, &torch), LS_UNSUPPORTED);
    assert_int_equal(ls_model_init(m, &c), LS_INVALID); /* no memory yet */
    assert_non_null(strstr(ls_last_error(), "ls_params_bind"));
    ls_model_destroy(m);
}

/* --- the last norm ------------------------------------------------------------------------- */

/* With blocks that add nothing, the logits of one token are the last norm of its embedding (gpt2: and position) times
 * the embeddings: worked out here in double, with an epsilon far from the usual one. */
static void the_last_norm_has_the_models_epsilon(void **state)
{
    (void)state;
    enum { V = 5, C = 8 };
    for (int llama = 0; llama < 2; llama++)
        for (double eps = 1e-5; eps < 1.0; eps *= 30) {
            const ls_model_config c = {
                .name = llama ? "llama" : "gpt2", .init = LS_INIT_PHILOX, .seed = 4,
                .lm = { .vocab_size = V, .seq_len = 4, .n_layer = 1, .n_head = 2, .d_model = C, .tied = true,
                        .norm_eps = eps },
            };
            bound b = build(&c);
            for (int i = 0; i < b.m->params.n; i++) {
                const ls_param *p = &b.m->params.item[i];
                const bool block = strstr(p->name, ".h.") || strstr(p->name, ".layers.");
                if (block) memset(p->t.data, 0, ls_tensor_nbytes(&p->t));
            }
            ls_tape *t;
            int64_t id = 3;
            assert_int_equal(ls_tape_create(ls_model_tape_bytes_of(b.m, 1, 1), NULL, NULL, &t), LS_OK);
            ls_tape_set_grad(t, false);
            const ls_tensor *y = ls_model_forward(b.m, t, ls_tape_input(t, LS_I64, 2, (int64_t[]){ 1, 1 }, &id));
            assert_non_null(y);
            const float *w = b.m->params.item[0].t.data, *wpe = b.m->params.item[1].t.data;
            double x[C], mean = 0, squares = 0;
            for (int k = 0; k < C; k++) x[k] = (double)w[id * C + k] + (llama ? 0.0 : (double)wpe[k]);
            for (int k = 0; k < C && !llama; k++) mean += x[k] / C;
            for (int k = 0; k < C; k++) squares += (x[k] - mean) * (x[k] - mean) / C;
            for (int v = 0; v < V; v++) {
                double want = 0;
                for (int k = 0; k < C; k++) want += (x[k] - mean) / sqrt(squares + eps) * (double)w[v * C + k];
                const double got = (double)((const float *)y->data)[v];
                if (!(fabs(got - want) <= 1e-5 * (1e-3 + fabs(want))))
                    fail_msg("%s, eps %g: logit %d is %.9g, want %.9g", c.name, eps, v, got, want);
            }
            ls_tape_destroy(t);
            drop(&b);
        }
}

/* --- dropout ------------------------------------------------------------------------------ */

enum { LAYERS = 3, TOKENS = 16, WIDTH = 32, MASKS = 2 * (1 + 2 * LAYERS) };

typedef struct masks {
    uint8_t zero[MASKS][TOKENS * WIDTH];
    int n;
} masks;

static void keep_mask(void *arg, const char *op, const ls_tensor *out)
{
    masks *m = arg;
    if (strncmp(op, "dropout", 7) != 0) return;
    assert_true(m->n < MASKS);
    assert_int_equal(ls_tensor_count(out), TOKENS * WIDTH);
    for (int i = 0; i < TOKENS * WIDTH; i++) m->zero[m->n][i] = ((const float *)out->data)[i] == 0.0f;
    m->n++;
}

/* Behind the embedding and twice in each layer, in two steps: masks of 512 elements, half of them kept. Two that are
 * independent agree in 256 +- 11 places; all of them do to ten deviations. */
static void every_place_and_step_has_a_dropout_mask_of_its_own(void **state)
{
    (void)state;
    static masks m;
    static int64_t ids[TOKENS];
    const ls_model_config c = {
        .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 3,
        .lm = { .vocab_size = 64, .seq_len = TOKENS, .n_layer = LAYERS, .n_head = 2, .d_model = WIDTH, .tied = true,
                .embd_dropout = 0.5, .resid_dropout = 0.5 },
    };
    bound b = build(&c);
    ls_arena *grads;
    ls_tape *t;
    const size_t room = ls_params_nbytes(&b.m->params) + 64u * (size_t)b.m->params.n;
    assert_int_equal(ls_arena_create(room, false, NULL, &grads), LS_OK);
    for (int i = 0; i < b.m->params.n; i++) {
        ls_param *p = &b.m->params.item[i];
        assert_int_equal(ls_arena_alloc(grads, ls_tensor_nbytes(&p->grad), LS_MEM_GRAD, &p->grad.data), LS_OK);
        p->t.grad = &p->grad;
    }
    assert_int_equal(ls_tape_create(ls_model_tape_bytes_of(b.m, 1, TOKENS), NULL, NULL, &t), LS_OK);
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .output = keep_mask }, &m), LS_OK);
    m.n = 0;
    for (uint64_t step = 0; step < 2; step++) {
        const int64_t dim[2] = { 1, TOKENS };
        b.m->draw = (ls_draw){ .seed = 9, .step = step };
        ls_tape_reset(t);
        assert_non_null(ls_model_forward(b.m, t, ls_tape_input(t, LS_I64, 2, dim, ids)));
    }
    assert_int_equal(m.n, MASKS);
    for (int i = 0; i < MASKS; i++)
        for (int k = 0; k < i; k++) {
            int alike = 0;
            for (int e = 0; e < TOKENS * WIDTH; e++) alike += m.zero[i][e] == m.zero[k][e];
            if (abs(alike - TOKENS * WIDTH / 2) > 113) fail_msg("masks %d and %d agree in %d of 512 places", i, k, alike);
        }
    ls_tape_destroy(t);
    ls_arena_destroy(grads);
    drop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_norm_has_the_models_epsilon),
        cmocka_unit_test(every_place_and_step_has_a_dropout_mask_of_its_own),
        cmocka_unit_test(presets_have_the_known_number_of_parameters),
        cmocka_unit_test(the_formula_counts_what_is_registered),
        cmocka_unit_test(names_and_shapes_are_transformers),
        cmocka_unit_test(refuses_sizes_that_do_not_fit),
        cmocka_unit_test(first_values_are_gpt2s),
        cmocka_unit_test(first_values_are_keyed_by_parameter_and_element),
    };
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
