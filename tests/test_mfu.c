/* mfu: PaLM's formula on published models, and what counts as a parameter in products. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "report/mfu.h"

static ls_mfu of_preset(const char *name, int64_t T)
{
    const ls_model_preset *p = ls_model_preset_find(name);
    assert_non_null(p);
    const ls_model_config c = { .name = p->model, .lm = p->lm };
    ls_mfu m;
    ls_mfu_count(&c, ls_model_count(&c), T, &m);
    return m;
}

/* GPT-2 small, by hand: 12 layers of 12 C^2 + 13 C, V C for the head, 2 C of the last norm; 1024 C of positions
 * do not multiply. Attention: 12 * 12 layers * 768 * T. nanoGPT's estimate_mfu gives the same 8.5e8 at T 1024. */
static void gpt2_by_hand(void **state)
{
    (void)state;
    const double C = 768, N = 12 * (12 * C * C + 13 * C) + 50257 * C + 2 * C;
    ls_mfu m = of_preset("gpt2", 1024);
    assert_true(m.params == 124439808 && m.tables == 1024 * 768);
    assert_true((double)(m.params - m.tables) == N);
    assert_true(m.flops == 6 * N + 12 * 12 * C * 1024);
    assert_true(fabs(m.flops - 855e6) < 1e6);
    assert_true(of_preset("gpt2", 64).flops == 6 * N + 12 * 12 * C * 64); /* T is the run's, not the model's */
}

/* A Llama's embedding is a table of its own: only the head multiplies. */
static void an_untied_embedding_is_only_looked_up(void **state)
{
    (void)state;
    const ls_lm_config tied = { .vocab_size = 1000,
                                .seq_len = 128,
                                .n_layer = 2,
                                .n_head = 4,
                                .n_kv_head = 2,
                                .d_model = 64,
                                .d_ff = 96,
                                .tied = true };
    const ls_model_config sizes = { .name = "llama", .lm = tied };
    ls_model_config c;
    ls_mfu a, b;
    assert_int_equal(ls_model_resolve(&sizes, &c), LS_OK);
    ls_mfu_count(&c, ls_model_count(&c), 128, &a);
    c.lm.tied = false;
    ls_mfu_count(&c, ls_model_count(&c), 128, &b);
    assert_true(a.tables == 0 && b.tables == 64000 && b.params == a.params + 64000);
    assert_true(a.flops == b.flops);
    assert_true(a.flops == 6.0 * (double)a.params + 12.0 * 2 * 4 * 16 * 128);
}

static void a_model_without_tokens_has_only_products(void **state)
{
    (void)state;
    const int64_t dims[] = { 784, 256, 10 };
    const ls_model_config c = { .name = "mlp", .dims = dims, .ndims = 3 };
    ls_mfu m;
    ls_mfu_count(&c, 784 * 256 + 256 + 256 * 10 + 10, 0, &m);
    assert_true(m.flops == 6.0 * 203530 && m.tables == 0 && m.tokens == 0);
}

static void the_explanation_has_this_runs_numbers(void **state)
{
    (void)state;
    static const char *const want[] = {
        "F x tokens per second / peak\n",
        "N = 123653376 parameters in products: 124439808, less 786432 that are only looked up\n",
        "L = 12 layers, H = 12 heads of Q = 64 channels, T = 256 tokens per sequence\n",
        "F = 6 N + 12 L H Q T = 7.419e+08 + 2.831e+07 = 7.702e+08 operations per token",
        "peak = 2 ranks x 115.0 GFLOP/s = 230.0 GFLOP/s: measured\n",
        "100 % would be 299 tokens per second\n",
    };
    ls_text out = { 0 };
    ls_mfu m = of_preset("gpt2", 256);
    ls_mfu_explain(&m, 2, 115.0, "measured", &out);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(ls_text_str(&out), want[i])) fail_msg("expected \"%s\" in \"%s\"", want[i], ls_text_str(&out));
    ls_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_by_hand),
        cmocka_unit_test(an_untied_embedding_is_only_looked_up),
        cmocka_unit_test(a_model_without_tokens_has_only_products),
        cmocka_unit_test(the_explanation_has_this_runs_numbers),
    };
    return cmocka_run_group_tests_name("mfu", tests, NULL, NULL);
}
