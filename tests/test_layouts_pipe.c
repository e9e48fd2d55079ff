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
static const char **const all[] = { gpt2, gpt2_untied, llama };

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
    for (size_t i = 0; i < COUNT(all); i++) check(all[i], order, COUNT(order));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_train_the_model),
        cmocka_unit_test(in_every_order),
    };
    return cmocka_run_group_tests_name("layouts of pipelines", tests, open_text, remove_text);
}
