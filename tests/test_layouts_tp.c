/* Ranks that divide layers train the model that one rank trains: tensor and sequence parallelism, alone and with data
 * parallelism (R110-R119, R132). */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define RECIPE "train.global_batch", "8", "optim.name", "sgd", "optim.momentum", "0.9", "optim.lr", "0.05", "optim.clip", "1"
#define LAYERS 2
#define WIDTH  32
#define TOKENS 16
#define LM(model) "model.name", model, "model.n_layer", "2", "model.n_head", "4", "model.d_model", "32", \
                  "model.seq_len", "16", "data.tokenizer", "char"

static const char *gpt2[] = { RECIPE, LM("gpt2"), "data.name", NULL, "data.path", NULL, NULL };
static const char *dropped[] = { RECIPE, LM("gpt2"), "model.embd_dropout", "0.1", "model.attn_dropout", "0.2", "model.resid_dropout",
                                 "0.1", "data.name", NULL, "data.path", NULL, NULL };
static const char *llama[] = { RECIPE, LM("llama"), "model.n_kv_head", "4", "data.name", NULL, "data.path", NULL, NULL };
static const char *grouped[] = { RECIPE, LM("llama"), "model.n_kv_head", "2", "data.name", NULL, "data.path", NULL, NULL };
static const char *gpt2_untied[] = { RECIPE, LM("gpt2"), "model.tied", "false", "data.name", NULL, "data.path", NULL, NULL };
static const char *odd[] = { RECIPE, LM("gpt2"), "model.d_ff", "97", "data.name", NULL, "data.path", NULL, NULL };
static const char **const all[] = { gpt2, dropped, llama, grouped, gpt2_untied, odd };

static void fill(const char **run)
{
    for (; run[0]; run += 2) {
        if (strcmp(run[0], "data.name") == 0 && !run[1]) run[1] = text;
        if (strcmp(run[0], "data.path") == 0 && !run[1]) run[1] = tokens;
    }
}

static int open_text(void **state)
{
    if (make_text(state) != 0) return 1;
    for (size_t i = 0; i < COUNT(all); i++) fill(all[i]);
    return 0;
}

#define F32 2e-5

/* --- what a step calls ------------------------------------------------------------------------------------- */

static int number_of(const ls_layout *l, const char *key, int def)
{
    for (const char *const *f = l->layout; f && *f; f += 2)
        if (strcmp(f[0], key) == 0) return strcmp(f[1], "true") == 0 ? 1 : atoi(f[1]);
    return def;
}

/* Whether ranks divide it: all but norms, positions, and biases that are added after a sum. */
static bool is_divided(const char *name)
{
    static const char *const whole[] = { "norm", "ln_", "wpe", "c_proj.bias" };
    for (size_t i = 0; i < COUNT(whole); i++)
        if (strstr(name, whole[i])) return false;
    return true;
}

/* A micro-batch of B sequences of T tokens, with C channels of 4 bytes:
 *
 *   enter    before both products of a layer's halves, and before the head
 *   leave    after them, and after the embedding
 *
 *                 forward                                     backward
 *   tp            all_reduce at 2 L + 1 leaves                all_reduce at 2 L + 1 enters
 *   and sp        all_gather at 2 L + 1 enters,               reduce_scatter at 2 L + 1 enters,
 *                 reduce_scatter at 2 L + 1 leaves            all_gather at 2 L + 1 leaves
 *   both          all_reduce of the largest logits, 8 B T bytes, and of two sums, 16 B T bytes, in backward
 *
 * and once a step with sp the gradients of what no rank divides. */
static int tensor_parallel(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int tp = number_of(l, "parallel.tp", 1), dp = l->ranks / tp, local = 8 / dp;
    const int micro = number_of(l, "train.micro_batch", local), times = local / micro, ends = 2 * LAYERS + 1;
    const bool sp = number_of(l, "parallel.sp", 0);
    const uint64_t rows = (uint64_t)(local * TOKENS), bytes = rows * WIDTH * 4;
    const char *group = dp > 1 ? "tp" : "world";
    uint64_t whole = 0, padded = 0;
    int n = 0;
    (void)rank;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        uint64_t elements = (uint64_t)ls_tensor_count(&p->t);
        if (!is_divided(p->name)) whole += 4 * elements;
        else if (strstr(p->name, "wte") || strstr(p->name, "embed_tokens") || strstr(p->name, "lm_head"))
            elements = ls_shard_of((size_t)p->t.dim[0], rank % tp, tp).count * (uint64_t)p->t.dim[1];
        else elements /= (uint64_t)tp;
        padded += (4 * elements + 63) / 64 * 64;
    }
    out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_REDUCE, .count = 2 * times, .bytes = 24 * rows };
    if (!sp)
        out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_REDUCE, .count = 2 * ends * times, .bytes = 2 * (uint64_t)ends * bytes };
    if (sp) {
        out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_GATHER, .count = 2 * ends * times, .bytes = 2 * (uint64_t)ends * bytes };
        out[n++] = (ls_layout_calls){ .group = group, .coll = LS_REDUCE_SCATTER, .count = 2 * ends * times, .bytes = 2 * (uint64_t)ends * bytes };
        out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_REDUCE, .count = 1, .bytes = whole };
    }
    out[n++] = (ls_layout_calls){ .group = dp > 1 ? "dp" : "self", .coll = LS_ALL_REDUCE, .count = 1,
                                  .bytes = (padded + 64 * (uint64_t)dp - 1) / (64 * (uint64_t)dp) * 64 * (uint64_t)dp };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_GATHER, .count = 1, .bytes = 48 * (uint64_t)l->ranks };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_REDUCE, .count = 1, .bytes = 8 * (uint64_t)ps->n };
    return n;
}

/* --- layouts ------------------------------------------------------------------------------------------------- */

static const struct { int ranks; const char *layout[9]; } plain[] = {
    { 2, { "parallel.tp", "2" } },
    { 4, { "parallel.tp", "4" } },
    { 2, { "parallel.tp", "2", "parallel.sp", "true" } },
    { 4, { "parallel.tp", "4", "parallel.sp", "true" } },
    { 4, { "parallel.tp", "2" } },
    { 8, { "parallel.tp", "2", "parallel.sp", "true", "train.micro_batch", "1" } },
};

static void ranks_divide_the_layers(void **state)
{
    (void)state;
    static const char **const run[] = { gpt2, llama, gpt2_untied, dropped };
    for (size_t m = 0; m < COUNT(run); m++)
        for (size_t i = 0; i < COUNT(plain); i++)
            assert_layout(&(ls_layout){ .ranks = plain[i].ranks, .run = run[m], .layout = plain[i].layout, .calls = tensor_parallel }, F32);
}

/* Heads that share keys and values, and a width that ranks divide into 49 and 48. */
static void parts_need_not_be_equal(void **state)
{
    (void)state;
    static const char *const two[] = { "parallel.tp", "2", NULL }, *const sp[] = { "parallel.tp", "2", "parallel.sp", "true", NULL };
    assert_layout(&(ls_layout){ .ranks = 2, .run = grouped, .layout = two, .calls = tensor_parallel }, F32);
    assert_layout(&(ls_layout){ .ranks = 2, .run = odd, .layout = two }, F32);
    assert_layout(&(ls_layout){ .ranks = 4, .run = odd, .layout = sp }, F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_divide_the_layers),
        cmocka_unit_test(parts_need_not_be_equal),
    };
    return cmocka_run_group_tests(tests, open_text, remove_text);
}
