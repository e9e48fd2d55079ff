/* What a layer of experts costs: numbers by hand, what ranks count when every expert gets equally many tokens, and
 * which bound follows (R145). */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <string.h>

#include "train/experts_cost.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Every token goes to both experts, so the load is balanced whatever the router says. */
static const char *both[] = {
    "train.global_batch", "8",  "optim.name",  "sgd", "optim.lr",       "0.05", "model.name",      "moe", "model.n_layer", "2",
    "model.n_head",       "4",  "model.d_model", "32", "model.d_ff",    "40",   "model.seq_len",   "16",  "data.tokenizer", "char",
    "model.n_experts",    "2",  "model.top_k", "2",   "data.name",      NULL,   "data.path",       NULL,  NULL
};

static int open_text(void **state)
{
    if (make_text(state) != 0) return 1;
    for (const char **run = both; run[0]; run += 2) {
        if (strcmp(run[0], "data.name") == 0) run[1] = text;
        if (strcmp(run[0], "data.path") == 0) run[1] = tokens;
    }
    return 0;
}

/* 8 tokens, top 2, 4 experts of 5 x 3, two of them here, one micro-batch:
 * 16 rows x 5 x 3 x 2 operations x 3 products x 3 times = 4320;
 * a product touches 16 x (5 + 3) + 2 x 15 = 158 numbers of 4 bytes, 9 times;
 * half of 4 x 16 rows x 5 numbers of 4 bytes leave, and half of 4 counts of 8 bytes. */
static void numbers_by_hand(void **state)
{
    (void)state;
    const ls_lm_config c = { .n_experts = 4, .top_k = 2, .d_model = 5, .d_expert = 3 };
    const ls_experts_layout one = { .tokens = 8, .micros = 1, .ep = 2, .tp = 1, .dtype = LS_F32 };
    ls_experts_layout two = one, alone = one, half = one;
    ls_experts_cost k;
    two.micros = 2;
    alone.ep = 1;
    half.dtype = LS_BF16;
    ls_experts_cost_of(&c, &one, &k);
    assert_int_equal(k.rows, 16);
    assert_float_equal((float)k.flops, 4320, 0);
    assert_float_equal((float)k.memory, (float)(9 * 4 * 158), 0);
    assert_float_equal((float)k.sent, (float)(0.5 * (4 * 16 * 5 * 4 + 32)), 0);
    ls_experts_cost_of(&c, &two, &k); /* weights are read in each micro-batch */
    assert_float_equal((float)k.flops, 4320, 0);
    assert_float_equal((float)k.memory, (float)(9 * 4 * (158 + 30)), 0);
    ls_experts_cost_of(&c, &alone, &k);
    assert_float_equal((float)k.sent, 0, 0);
    assert_float_equal((float)k.memory, (float)(9 * 4 * (158 + 30)), 0); /* four experts are here */
    ls_experts_cost_of(&c, &half, &k);
    assert_float_equal((float)k.sent, (float)(0.5 * (4 * 16 * 5 * 2 + 32)), 0);
    ls_experts_cost_of(&(ls_lm_config){ .d_model = 5 }, &one, &k);
    assert_float_equal((float)(k.flops + k.memory + k.sent), 0, 0);
}

static uint64_t moved_in_ep(const ls_layout_rank *r)
{
    uint64_t sum = 0;
    for (int g = 0; g < r->ngroups; g++) sum += r->group[g].real[LS_ALL_TO_ALL].moved;
    return sum;
}

/* Half of what a rank has stays, and the other half leaves. */
static void ranks_send_what_the_formula_says(void **state)
{
    (void)state;
    static const struct {
        const char *layout[7];
        ls_experts_layout l;
    } row[] = {
        { { "parallel.ep", "2" }, { 64, 1, 2, 1, LS_F32 } },
        { { "parallel.ep", "2", "train.micro_batch", "1" }, { 64, 4, 2, 1, LS_F32 } },
        { { "parallel.ep", "2", "train.dtype", "bf16" }, { 64, 1, 2, 1, LS_BF16 } },
    };
    const ls_lm_config c = { .n_experts = 2, .top_k = 2, .d_model = 32, .d_expert = 40 };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_layout l = { .ranks = 2, .run = both, .layout = row[i].layout };
        ls_layout_outcome o;
        ls_experts_cost k;
        if (ls_layout_train(&l, false, &o) < 0) fail_msg("%s", ls_last_error());
        ls_experts_cost_of(&c, &row[i].l, &k);
        for (int r = 0; r < 2; r++) assert_int_equal(moved_in_ep(&o.rank[r]), (uint64_t)(2 * k.sent)); /* two layers */
        ls_layout_outcome_free(&o);
    }
}

/* At 100 GFLOP/s, 50 FLOP per byte are as long as 2 GB/s. */
static void a_slow_link_bounds_a_layer_and_a_fast_one_does_not(void **state)
{
    (void)state;
    const ls_experts_cost k = { .rows = 1, .flops = 5e6, .memory = 1e6, .sent = 1e5 };
    ls_cost here = ls_cost_preset;
    ls_text out = { 0 };
    assert_float_equal((float)ls_experts_balance(&k, 100), 2, 0);
    here.link[LS_LEVEL_MEMORY].beta_ns = 0.25;
    ls_experts_cost_words(&k, 100, &here, LS_LEVEL_MEMORY, &out);
    assert_non_null(strstr(ls_text_str(&out), "5 MFLOP"));
    assert_non_null(strstr(ls_text_str(&out), "(50 FLOP per byte)"));
    assert_non_null(strstr(ls_text_str(&out), "below 2 GB/s"));
    assert_non_null(strstr(ls_text_str(&out), "here (memory, 4 GB/s) computing bounds them"));
    assert_non_null(strstr(ls_text_str(&out), "on a network of 1.25 GB/s the network"));
    out.n = 0;
    ls_experts_cost_words(&(ls_experts_cost){ .flops = 5e6, .memory = 1e6 }, 100, &here, LS_LEVEL_MEMORY, &out);
    assert_non_null(strstr(ls_text_str(&out), "nothing sent (ep 1)"));
    assert_null(strchr(ls_text_str(&out), '\n'));
    ls_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_by_hand),
        cmocka_unit_test(ranks_send_what_the_formula_says),
        cmocka_unit_test(a_slow_link_bounds_a_layer_and_a_fast_one_does_not),
    };
    return cmocka_run_group_tests_name("cost of experts", tests, open_text, remove_text);
}
