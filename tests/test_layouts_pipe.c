/* Ranks that divide the layers of a model into pipeline stages train the model that one rank trains. */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define RECIPE "train.global_batch", "8", "train.micro_batch", "1", "optim.name", "sgd", "optim.momentum", "0.9", "optim.lr", "0.05", \
               "optim.clip", "1"
#define LM(model) "model.name", model, "model.n_layer", "4", "model.n_head", "4", "model.d_model", "32", \
                  "model.seq_len", "16", "data.tokenizer", "char"

static const char *gpt2[] = { RECIPE, LM("gpt2"), "data.name", NULL, "data.path", NULL, NULL };
static const char *gpt2_untied[] = { RECIPE, LM("gpt2"), "model.tied", "false", "data.name", NULL, "data.path", NULL, NULL };
static const char *llama[] = { RECIPE, LM("llama"), "model.n_kv_head", "2", "data.name", NULL, "data.path", NULL, NULL };
static const char *dropped[] = { RECIPE, LM("gpt2"), "model.embd_dropout", "0.1", "model.attn_dropout", "0.2", "model.resid_dropout",
                                 "0.1", "data.name", NULL, "data.path", NULL, NULL };
static const char *moe[] = { RECIPE, LM("moe"), "model.n_experts", "4", "model.top_k", "2", "model.d_expert", "16", "moe.aux_loss",
                             "0.01", "model.first_dense", "1", "data.name", NULL, "data.path", NULL, NULL };
static const char *mlp[] = { RECIPE, "model.name", "mlp", "model.dims", "16,24,20,12,10", "data.name", "synthetic", NULL };
static const char **const all[] = { gpt2, gpt2_untied, llama, dropped, moe, mlp };

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

typedef struct division {
    int ranks;
    const char *layout[11];
} division;

static void check(const char **run, const division *d, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_layout(&(ls_layout){ .ranks = d[i].ranks, .run = run, .layout = d[i].layout }, F32);
}

static void stages_train_the_model(void **state)
{
    (void)state;
    static const division pp[] = {
        { 2, { "parallel.pp", "2" } },
        { 4, { "parallel.pp", "4" } },
        { 4, { "parallel.pp", "2" } },
        { 3, { "parallel.pp", "3" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "1,3" } },
        { 2, { "parallel.pp", "2", "train.micro_batch", "8" } },
        { 4, { "parallel.pp", "4", "train.micro_batch", "4" } },
    };
    for (size_t i = 0; i < COUNT(all); i++) check(all[i], pp, COUNT(pp));
}

static void in_every_order(void **state)
{
    (void)state;
    static const division order[] = {
        { 2, { "parallel.pp", "2", "pipeline.schedule", "gpipe" } },
        { 4, { "parallel.pp", "4", "pipeline.schedule", "gpipe" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "interleaved", "pipeline.chunks", "2" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "interleaved", "pipeline.chunks", "3" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "zb-h1" } },
        { 4, { "parallel.pp", "4", "pipeline.schedule", "zb-h1" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "zb-v" } },
        { 3, { "parallel.pp", "3", "pipeline.schedule", "zb-v" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "dualpipe-v" } },
        { 3, { "parallel.pp", "3", "pipeline.schedule", "dualpipe-v" } },
    };
    for (size_t i = 0; i < COUNT(all) - 1; i++) check(all[i], order, COUNT(order));
    check(mlp, order, 3);
}

/* Every other axis, what shards, repeats or drops a part of a step, and how ranks are connected. */
static void with_all_that_a_step_can_do(void **state)
{
    (void)state;
    static const char *const orders[][6] = {
        { "parallel.pp", "2" },
        { "parallel.pp", "2", "pipeline.schedule", "interleaved", "pipeline.chunks", "2" },
        { "parallel.pp", "2", "pipeline.schedule", "zb-v" },
        { "parallel.pp", "2", "pipeline.schedule", "zb-h1" },
    };
    static const struct { int more; bool whole; const char *layout[8]; } ways[] = {
        { 2, false, { "parallel.tp", "2" } },
        { 2, false, { "parallel.tp", "2", "parallel.sp", "true" } },
        { 2, false, { "parallel.cp", "2" } },
        { 4, false, { "parallel.cp", "2", "parallel.tp", "2", "parallel.context", "ulysses" } },
        { 2, false, { "zero.stage", "0" } },
        { 2, false, { "zero.stage", "1" } },
        { 2, true, { "zero.stage", "2" } },
        { 2, false, { "zero.stage", "2", "zero.reduce", "last" } },
        { 2, true, { "zero.stage", "3" } },
        { 2, false, { "zero.stage", "3", "zero.reduce", "last" } },
        { 2, true, { "zero.stage", "3", "zero.copy", "rank" } },
        { 4, false, { "zero.stage", "1", "zero.hsdp", "2" } },
        { 1, false, { "train.recompute", "selective" } },
        { 2, false, { "train.recompute", "full", "zero.stage", "1" } },
        { 2, false, { "train.micro_batch", "2" } },
        { 1, false, { "comm.transport", "tcp" } },
        { 2, false, { "comm.progress", "thread" } },
        { 4, false, { "train.recompute", "full", "zero.stage", "1", "parallel.tp", "2", "comm.transport", "tcp" } },
    };
    for (size_t o = 0; o < COUNT(orders); o++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            const char *layout[17] = { NULL };
            int n = 0;
            if (ways[w].whole && o >= 2) continue; /* refused: gradients are reduced in each backward */
            for (int k = 0; k < 6 && orders[o][k]; k++) layout[n++] = orders[o][k];
            for (int k = 0; k < 8 && ways[w].layout[k]; k++) layout[n++] = ways[w].layout[k];
            assert_layout(&(ls_layout){ .ranks = 2 * ways[w].more, .run = w % 2 ? dropped : llama, .layout = layout }, F32);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_train_the_model),
        cmocka_unit_test(in_every_order),
        cmocka_unit_test(with_all_that_a_step_can_do),
    };
    return cmocka_run_group_tests_name("layouts of pipelines", tests, open_text, remove_text);
}
