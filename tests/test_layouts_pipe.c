/* Ranks that divide the layers of a model into pipeline stages train the model that one rank trains, in every schedule,
 * and send what the closed form says (R120-R129). */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"
#include "lockstep/pipe.h"
#include "parallel/pipe_list.h"

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

#define F32  2e-5
#define BF16 5e-2 /* every operation rounds to 8 bits */

#define BATCH  8
#define LAYERS 4
#define WIDTH  32
#define TOKENS 16

/* --- what a step sends ------------------------------------------------------------------------------------------- */

static const char *value_of(const ls_layout *l, const char *key, const char *def)
{
    const char *found = def;
    for (const char *const *f = l->run; f && *f; f += 2)
        if (strcmp(f[0], key) == 0) found = f[1];
    for (const char *const *f = l->layout; f && *f; f += 2)
        if (strcmp(f[0], key) == 0) found = f[1];
    return found;
}

static int number_of(const ls_layout *l, const char *key, int def)
{
    const char *text_of_it = value_of(l, key, NULL);
    return text_of_it ? atoi(text_of_it) : def;
}

/* The stage of a half of a layer, where pipeline.split says how many layers each has: embedding and head are in the
 * first and the last. */
static int stage_of(const char *split, int stages, const char *name)
{
    const char *h = strstr(name, "h.");
    int s = 0;
    if (!h) return strstr(name, "ln_f") || strstr(name, "lm_head") ? stages - 1 : 0;
    double at = atoi(h + 2) + (strstr(name, "ln_2") || strstr(name, "mlp") ? 0.5 : 0.0);
    for (; at >= atof(split); split = strchr(split, ',') + 1, s++) at -= atof(split);
    return s;
}

/* Bytes of the gradients of a stage, each padded to a line. */
static uint64_t gradients(const ls_params *ps, const char *split, int stages, int stage, bool tied)
{
    uint64_t padded = 0;
    for (int i = 0; i < ps->n; i++) {
        const bool shared = tied && strstr(ps->item[i].name, "wte") && stage == stages - 1;
        if (stage_of(split, stages, ps->item[i].name) == stage || shared)
            padded += (4 * (uint64_t)ls_tensor_count(&ps->item[i].t) + 63) / 64 * 64;
    }
    return padded;
}

/* Of gpt2, with a loop of stages and plain DDP. Between two neighbouring stages travel, per step of m micro-batches of
 * b sequences of s tokens with h channels, m activations and as many gradients: 2 m b s h elements (R127), which one
 * rank sends and another one receives. Gradients of each chunk are one bucket; first and last stage add up those of a
 * tied embedding. */
static int staged(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int pp = number_of(l, "parallel.pp", 1), v = number_of(l, "pipeline.chunks", 1), dp = l->ranks / pp, stages = pp * v;
    const int m = BATCH / dp / number_of(l, "train.micro_batch", 1), at = rank / dp;
    const bool tied = strcmp(value_of(l, "model.tied", "true"), "true") == 0;
    const char *split = value_of(l, "pipeline.split", NULL), *const replicas = dp > 1 ? "dp" : "self";
    const uint64_t each = (uint64_t)(BATCH / dp) * TOKENS * WIDTH * 4, lines = 64 * (uint64_t)dp;
    int n = 0, edges = 0;
    for (int c = 0; c < v; c++) {
        const int s = c * pp + at;
        edges += (s > 0) + (s < stages - 1);
        out[n++] = (ls_layout_calls){ .group = replicas, .coll = LS_ALL_REDUCE, .count = 1,
                                      .bytes = (gradients(ps, split, stages, s, tied) + lines - 1) / lines * lines };
    }
    out[n++] = (ls_layout_calls){ .group = dp > 1 ? "pp" : "world", .coll = LS_SENDRECV, .count = 2 * m * edges,
                                  .bytes = 2 * each * (uint64_t)edges };
    if (tied && (at == 0 || at == pp - 1))
        out[n++] = (ls_layout_calls){ .group = "embedding", .coll = LS_ALL_REDUCE, .count = 1,
                                      .bytes = ls_tensor_nbytes(&ls_params_find(ps, "transformer.wte.weight")->t) };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_GATHER, .count = 1, .bytes = 48 * (uint64_t)l->ranks };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_REDUCE, .count = 1, .bytes = 8 * (uint64_t)ps->n };
    return n;
}

typedef struct division {
    int ranks;
    const char *layout[11];
} division;

static void check(const char **run, const division *d, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_layout(&(ls_layout){ .ranks = d[i].ranks, .run = run, .layout = d[i].layout }, F32);
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

static void a_step_sends_what_the_closed_form_says(void **state)
{
    (void)state;
    static const division pp[] = {
        { 2, { "parallel.pp", "2", "pipeline.split", "2,2" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "3,1", "pipeline.schedule", "gpipe" } },
        { 4, { "parallel.pp", "4", "pipeline.split", "1,1,1,1" } },
        { 4, { "parallel.pp", "4", "pipeline.split", "1,1,1,1", "train.micro_batch", "4" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "2,2", "train.micro_batch", "2" } },
        { 3, { "parallel.pp", "3", "pipeline.split", "1,2,1", "pipeline.schedule", "zb-h1" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "1,1,1,1", "pipeline.schedule", "interleaved", "pipeline.chunks", "2" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "0,2,2,0", "pipeline.schedule", "interleaved", "pipeline.chunks", "2" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "2.5,1.5" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "0.5,3.5", "pipeline.schedule", "gpipe" } },
        { 3, { "parallel.pp", "3", "pipeline.split", "1.5,0.5,2", "pipeline.schedule", "zb-h1" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "0.5,1,2,0.5", "pipeline.schedule", "interleaved", "pipeline.chunks", "2" } },
    };
    for (size_t i = 0; i < COUNT(pp); i++) {
        assert_layout(&(ls_layout){ .ranks = pp[i].ranks, .run = gpt2, .layout = pp[i].layout, .calls = staged }, F32);
        assert_layout(&(ls_layout){ .ranks = pp[i].ranks, .run = gpt2_untied, .layout = pp[i].layout, .calls = staged },
                      F32);
    }
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
        { 4, { "parallel.pp", "4", "pipeline.schedule", "zb-h2" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "zb-v" } },
        { 3, { "parallel.pp", "3", "pipeline.schedule", "zb-v" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "dualpipe-v" } },
        { 3, { "parallel.pp", "3", "pipeline.schedule", "dualpipe-v" } },
    };
    for (size_t i = 0; i < COUNT(all) - 1; i++) check(all[i], order, COUNT(order));
    check(mlp, order, 3);
}

static void train_for(const char **run, const division *d, ls_layout_outcome *out)
{
    if (ls_layout_train(&(ls_layout){ .ranks = d->ranks, .run = run, .layout = d->layout }, false, out) < 0) fail_msg("%s", ls_last_error());
}

/* Schedules differ in when they compute, and not in what: micro-batches are added up in one order. (In a V a tied
 * matrix is on one rank, and not summed over two.) */
static void all_orders_have_the_same_bits(void **state)
{
    (void)state;
    static const division order[] = {
        { 2, { "parallel.pp", "2" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "gpipe" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "zb-h1" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "interleaved" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "3,1" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "1.5,2.5" } },
        { 4, { "parallel.pp", "4" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "zb-v" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "dualpipe-v" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "zb-v", "pipeline.split", "0.5,2,1.5,0" } },
    };
    static const char **const run[] = { gpt2, llama, dropped, gpt2_untied };
    const size_t in_a_v = 3;
    ls_layout_outcome *o = calloc(2, sizeof *o);
    for (size_t r = 0; r < COUNT(run); r++) {
        train_for(run[r], &order[0], &o[0]);
        for (size_t i = 1; i < COUNT(order) - (run[r] == gpt2_untied ? 0 : in_a_v); i++) {
            train_for(run[r], &order[i], &o[1]);
            if (strcmp(o[0].rank[0].digest, o[1].rank[0].digest) != 0)
                fail_msg("model %zu, order %zu: digest %s, expected %s", r, i, o[1].rank[0].digest, o[0].rank[0].digest);
            assert_memory_equal(o[0].rank[0].loss, o[1].rank[0].loss, sizeof o[0].rank[0].loss);
            assert_memory_equal(o[0].rank[0].norm, o[1].rank[0].norm, sizeof o[0].rank[0].norm);
            ls_layout_outcome_free(&o[1]);
        }
        ls_layout_outcome_free(&o[0]);
    }
    free(o);
}

static void in_bf16(void **state)
{
    (void)state;
    static const division way[] = {
        { 2, { "parallel.pp", "2", "train.dtype", "bf16" } },
        { 2, { "parallel.pp", "2", "train.dtype", "bf16", "pipeline.schedule", "gpipe" } },
        { 4, { "parallel.pp", "2", "train.dtype", "bf16", "zero.stage", "1", "pipeline.schedule", "zb-v" } },
        { 4, { "parallel.pp", "2", "train.dtype", "bf16", "zero.stage", "2" } },
        { 4, { "parallel.pp", "2", "train.dtype", "bf16", "parallel.tp", "2", "parallel.sp", "true", "train.recompute", "full" } },
    };
    for (size_t i = 0; i < COUNT(way); i++)
        assert_layout(&(ls_layout){ .ranks = way[i].ranks, .run = i % 2 ? llama : gpt2, .layout = way[i].layout },
                      BF16);
}

/* Experts have a wrapper per chunk, too; the first layer here has none. */
static void with_experts(void **state)
{
    (void)state;
    static const division way[] = {
        { 4, { "parallel.pp", "2", "parallel.ep", "2" } },
        { 4, { "parallel.pp", "2", "parallel.ep", "2", "pipeline.schedule", "interleaved" } },
        { 4, { "parallel.pp", "2", "parallel.ep", "2", "pipeline.schedule", "zb-v", "zero.stage", "1" } },
        { 8, { "parallel.pp", "2", "parallel.ep", "2", "parallel.tp", "2", "zero.stage", "2" } },
        { 8, { "parallel.pp", "4", "parallel.ep", "2", "zero.stage", "3", "zero.copy", "rank" } },
    };
    check(moe, way, COUNT(way));
}

/* Each axis divides something among two, and each layout shards, orders and moves it in another way. */
static void sixteen_ranks_of_all_axes(void **state)
{
    (void)state;
    static const char **const run[] = { llama, gpt2, dropped, moe, moe };
    static const char *const axes[] = { "parallel.pp", "2", "parallel.tp", "2", "parallel.cp", "2" };
    static const char *const ways[][12] = {
        { "parallel.dp", "2", "zero.stage", "2", "train.micro_batch", "1" },
        { "parallel.dp", "2", "zero.stage", "1", "pipeline.schedule", "zb-v", "parallel.sp", "true", "comm.transport", "tcp" },
        { "parallel.dp", "2", "zero.stage", "3", "pipeline.schedule", "interleaved", "parallel.context", "ulysses" },
        { "parallel.ep", "2", "zero.stage", "3", "zero.copy", "rank", "parallel.sp", "true", "parallel.context", "gather" },
        { "parallel.ep", "2", "pipeline.schedule", "zb-h1", "train.recompute", "full", "comm.progress", "thread" },
    };
    for (size_t w = 0; w < COUNT(ways); w++) {
        const char *layout[COUNT(axes) + 13] = { NULL };
        memcpy(layout, axes, sizeof axes);
        memcpy(layout + COUNT(axes), ways[w], sizeof ways[w]);
        assert_layout(&(ls_layout){ .ranks = 16, .run = run[w], .layout = layout }, F32);
    }
}

/* As if ranks were on two machines: stages on each, or both stages of each pipeline on both. */
static void on_two_nodes(void **state)
{
    (void)state;
    static const int halves[] = { 0, 0, 1, 1 }, turns[] = { 0, 1, 0, 1 };
    static const char *const way[][11] = {
        { "comm.transport", "mixed", "parallel.pp", "2" },
        { "comm.transport", "mixed", "parallel.pp", "2", "parallel.tp", "2", "pipeline.schedule", "zb-h1" },
        { "comm.transport", "mixed", "parallel.pp", "4", "pipeline.schedule", "gpipe" },
        { "comm.transport", "mixed", "parallel.pp", "2", "zero.stage", "1", "pipeline.schedule", "interleaved" },
    };
    for (size_t i = 0; i < COUNT(way); i++) {
        assert_layout(&(ls_layout){ .ranks = 4, .run = llama, .layout = way[i], .node = halves }, F32);
        if (i < 3) assert_layout(&(ls_layout){ .ranks = 4, .run = gpt2, .layout = way[i], .node = turns }, F32);
    }
}

/* With ThreadSanitizer a layout takes ten times as long, and all of them 7 minutes: each way in one order is enough to
 * see races, since orders differ in what they compute and not in who synchronises with whom. */
#ifdef __SANITIZE_THREAD__
enum { ALL_ORDERS = 0 };
#else
enum { ALL_ORDERS = 1 };
#endif

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
            const size_t only = ways[w].whole ? w / 2 % 2 : w % COUNT(orders);
            if (ways[w].whole && o >= 2) continue; /* refused: gradients are reduced in each backward */
            if (!ALL_ORDERS && o != only) continue;
            for (int k = 0; k < 6 && orders[o][k]; k++) layout[n++] = orders[o][k];
            for (int k = 0; k < 8 && ways[w].layout[k]; k++) layout[n++] = ways[w].layout[k];
            assert_layout(&(ls_layout){ .ranks = 2 * ways[w].more, .run = w % 2 ? dropped : llama, .layout = layout },
                          F32);
        }
}

/* Stages that begin or end between the attention and the mlp of a layer: of each model, in each order, with every other
 * axis and what shards or repeats a step. In a V the first two cuts are inside layers and the chunks of one rank have
 * both halves of one. */
static void stages_begin_inside_layers(void **state)
{
    (void)state;
    static const division ways[] = {
        { 2, { "parallel.pp", "2", "pipeline.split", "1.5,2.5" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "3.5,0.5", "pipeline.schedule", "zb-h1" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "0.5,2,1.5,0", "pipeline.schedule", "zb-v" } },
        { 4, { "parallel.pp", "4", "pipeline.split", "0.5,0.5,1.5,1.5", "train.recompute", "selective" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "2.5,1.5", "parallel.tp", "2", "parallel.sp", "true" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "0.5,1,0.5,2", "parallel.cp", "2", "pipeline.schedule", "interleaved" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "1.5,2.5", "zero.stage", "2", "train.recompute", "full" } },
        { 4, { "parallel.pp", "2", "pipeline.split", "1.5,2.5", "zero.stage", "3", "zero.copy", "rank" } },
        { 8, { "parallel.pp", "2", "pipeline.split", "2.5,1.5", "zero.stage", "1", "zero.hsdp", "2" } },
        { 2, { "parallel.pp", "2", "pipeline.split", "0.5,0.5,0.5,0.5,0.5,1.5", "pipeline.schedule", "interleaved", "pipeline.chunks", "3" } },
        { 2, { "parallel.pp", "2", "pipeline.schedule", "interleaved", "pipeline.chunks", "4" } }, /* more stages than whole units */
    };
    static const division experts[] = {
        { 4, { "parallel.pp", "2", "parallel.ep", "2", "pipeline.split", "0.5,3.5" } },
        { 4, { "parallel.pp", "2", "parallel.ep", "2", "pipeline.split", "1.5,1,1.5,0", "pipeline.schedule", "zb-v", "zero.stage", "1" } },
        { 8, { "parallel.pp", "4", "parallel.ep", "2", "pipeline.split", "0.5,1,1,1.5", "zero.stage", "3", "zero.copy", "rank" } },
    };
    static const char **const run[] = { gpt2, llama, dropped, moe };
    for (size_t r = 0; r < COUNT(run); r++) check(run[r], ways, COUNT(ways));
    check(moe, experts, COUNT(experts));
    for (size_t i = 0; i < 4; i++) {
        const char *layout[13] = { "train.dtype", "bf16" };
        memcpy(layout + 2, ways[i].layout, sizeof ways[i].layout);
        assert_layout(&(ls_layout){ .ranks = ways[i].ranks, .run = i % 2 ? llama : gpt2, .layout = layout }, BF16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_train_the_model),
        cmocka_unit_test(stages_begin_inside_layers),
        cmocka_unit_test(in_every_order),
        cmocka_unit_test(a_step_sends_what_the_closed_form_says),
        cmocka_unit_test(all_orders_have_the_same_bits),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(with_experts),
        cmocka_unit_test(sixteen_ranks_of_all_axes),
        cmocka_unit_test(on_two_nodes),
        cmocka_unit_test(with_all_that_a_step_can_do),
    };
    return cmocka_run_group_tests_name("layouts of pipelines", tests, open_text, remove_text);
}
