/* Ranks that divide experts train the model that one rank trains: expert parallelism alone, with data and tensor
 * parallelism, and with ZeRO (R139, R140, R143, R146). */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a)  (sizeof(a) / sizeof *(a))
#define LAYERS    2
#define WIDTH     32
#define TOKENS    16
#define EXPERTS   4
#define TOP_K     2
#define SEQUENCES 8 /* of a step */
#define MOE                                                                                                         \
    "train.global_batch", "8", "optim.name", "sgd", "optim.momentum", "0.9", "optim.lr", "0.05", "optim.clip", "1", \
        "model.name", "moe", "model.n_layer", "2", "model.n_head", "4", "model.d_model", "32", "model.d_ff", "40",  \
        "model.seq_len", "16", "data.tokenizer", "char", "model.n_experts", "4", "model.top_k", "2"
#define TEXT "data.name", NULL, "data.path", NULL, NULL

static const char *plain[] = { MOE, TEXT };
static const char *balanced[] = { MOE, "moe.aux_loss", "0.02", "moe.z_loss", "0.01", "moe.bias_rate", "0.02", TEXT };
static const char *dropping[] = { MOE, "moe.capacity_factor", "0.75", TEXT };
static const char *full[] = { MOE, "model.d_model", "16", "model.d_ff", "16", "moe.capacity_factor", "1", TEXT };
static const char *least[] = { MOE, "moe.capacity_factor", "0.5", "moe.drop", "probability", TEXT };
static const char *shared[] = { MOE, "model.shared_expert", "24", "model.norm_topk", "false", TEXT };
static const char *dense_first[] = { MOE, "model.first_dense", "1", "model.tied", "false", TEXT };
static const char *one_chosen[] = { MOE, "model.top_k", "1", TEXT };
static const char *few[] = { MOE, "model.n_experts",    "16", "model.top_k", "1", "train.seq_len",
                             "2", "train.global_batch", "4",  TEXT };
static const char **const all[] = { plain, balanced, dropping, full, least, shared, dense_first, one_chosen, few };

static int open_text(void **state)
{
    if (make_text(state) != 0) return 1;
    for (size_t i = 0; i < COUNT(all); i++)
        for (const char **run = all[i]; run[0]; run += 2) {
            if (strcmp(run[0], "data.name") == 0) run[1] = text;
            if (strcmp(run[0], "data.path") == 0) run[1] = tokens;
        }
    return 0;
}

#define F32 2e-5

/* --- what a step calls ------------------------------------------------------------------------------------- */

static int number_of(const ls_layout *l, const char *key, int def)
{
    for (const char *const *f = l->layout; f && *f; f += 2)
        if (strcmp(f[0], key) == 0) return atoi(f[1]);
    return def;
}

static uint64_t lines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* A bucket of `ranks` ends at a multiple of so many lines. */
static uint64_t bucket(uint64_t bytes, int ranks)
{
    const uint64_t unit = 64 * (uint64_t)ranks;
    return (bytes + unit - 1) / unit * unit;
}

/* Per micro-batch of B sequences and per layer, in ep:
 *
 *   forward    all_to_all of E counts; all_to_all_v of the rows to their experts; all_to_all_v back
 *   backward   the same two, each in the other direction
 *
 * Rows are as many as are routed: at most B T k leave a rank, and ep B T min(k, E / ep) arrive, which a dry world
 * counts with. Per step the gradients of what all have are all_reduced over dp x ep, those of experts over dp. */
static int expert_parallel(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int ep = number_of(l, "parallel.ep", 1), dp = l->ranks / ep, local = SEQUENCES / l->ranks;
    const int micro = number_of(l, "train.micro_batch", local), times = local / micro, here = EXPERTS / ep;
    const uint64_t B = (uint64_t)micro, leave = B * TOKENS * TOP_K,
                   arrive = (uint64_t)ep * B * TOKENS * (uint64_t)(here < TOP_K ? here : TOP_K);
    const uint64_t each = 8 * EXPERTS + 2 * (leave + arrive) * WIDTH * 4;
    uint64_t dense = 0, experts = 0;
    int n = 0;
    (void)rank;
    for (int i = 0; i < ps->n; i++) {
        const uint64_t bytes = 4 * (uint64_t)ls_tensor_count(&ps->item[i].t);
        if (strstr(ps->item[i].name, ".experts."))
            experts += lines(bytes / (uint64_t)ep);
        else
            dense += lines(bytes);
    }
    const char *in_ep = dp > 1 ? "ep" : "world", *in_dp = dp > 1 ? "dp" : "self";
    out[n++] = (ls_layout_calls){
        .group = in_ep, .coll = LS_ALL_TO_ALL, .count = 5 * LAYERS * times, .bytes = (uint64_t)(LAYERS * times) * each
    };
    out[n++] =
        (ls_layout_calls){ .group = "world", .coll = LS_ALL_REDUCE, .count = 1, .bytes = bucket(dense, l->ranks) };
    out[n++] = (ls_layout_calls){ .group = in_dp, .coll = LS_ALL_REDUCE, .count = 1, .bytes = bucket(experts, dp) };
    out[n++] =
        (ls_layout_calls){ .group = "world", .coll = LS_ALL_GATHER, .count = 1, .bytes = 48 * (uint64_t)l->ranks };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_REDUCE, .count = 1, .bytes = 8 * (uint64_t)ps->n };
    out[n++] = (ls_layout_calls){
        .group = "world", .coll = LS_ALL_REDUCE, .count = 1, .bytes = 8 * LAYERS * (2 * EXPERTS + 3)
    };
    return n;
}

static void ranks_divide_the_experts(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout[5];
    } row[] = {
        { 2, { "parallel.ep", "2" } },
        { 4, { "parallel.ep", "4" } },
        { 4, { "parallel.ep", "2" } },
        { 2, { "parallel.ep", "2", "train.micro_batch", "1" } },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        assert_layout(
            &(ls_layout){ .ranks = row[i].ranks, .run = plain, .layout = row[i].layout, .calls = expert_parallel },
            F32);
}

/* Losses, biases, capacities and a shared expert are of sequences and of all ranks: no layout changes them. */
static void every_kind_of_routing_is_the_same_in_every_layout(void **state)
{
    (void)state;
    static const char *const ep2[] = { "parallel.ep", "2", NULL }, *const ep4[] = { "parallel.ep", "4", NULL };
    static const char *const dp2[] = { "parallel.dp", "2", NULL };
    for (size_t i = 1; i + 1 < COUNT(all); i++) {
        assert_layout(&(ls_layout){ .ranks = 2, .run = all[i], .layout = ep2 }, F32);
        assert_layout(&(ls_layout){ .ranks = 4, .run = all[i], .layout = ep4 }, F32);
        assert_layout(&(ls_layout){ .ranks = 2, .run = all[i], .layout = dp2 }, F32);
    }
}

static void with_tensor_parallelism(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout[7];
    } row[] = {
        { 2, { "parallel.tp", "2" } },
        { 2, { "parallel.tp", "2", "parallel.sp", "true" } },
        { 4, { "parallel.ep", "2", "parallel.tp", "2" } },
        { 8, { "parallel.ep", "2", "parallel.tp", "2", "parallel.sp", "true" } },
    };
    static const char **const run[] = { plain, balanced, shared };
    for (size_t i = 0; i < COUNT(row); i++)
        for (size_t m = 0; m < COUNT(run); m++)
            assert_layout(&(ls_layout){ .ranks = row[i].ranks, .run = run[m], .layout = row[i].layout }, F32);
}

/* Capacities and losses are of whole sequences, of which each rank has some tokens. */
static void with_context_parallelism(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout[9];
    } row[] = {
        { 2, { "parallel.cp", "2" } },
        { 4, { "parallel.cp", "4", "parallel.cp_split", "contiguous", "parallel.context", "gather" } },
        { 4, { "parallel.ep", "2", "parallel.cp", "2" } },
        { 8, { "parallel.ep", "2", "parallel.cp", "2", "parallel.tp", "2", "train.recompute", "full" } },
        { 16, { "parallel.ep", "4", "parallel.cp", "2", "parallel.tp", "2", "parallel.sp", "true" } },
    };
    static const char **const run[] = { plain, balanced, dropping, least, shared };
    for (size_t i = 0; i < COUNT(row); i++)
        for (size_t m = 0; m < COUNT(run); m++)
            assert_layout(&(ls_layout){ .ranks = row[i].ranks, .run = run[m], .layout = row[i].layout }, F32);
}

static void with_zero_and_recompute(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout[11];
    } row[] = {
        { 4, { "parallel.ep", "2", "zero.stage", "1" } },
        { 4, { "parallel.ep", "2", "zero.stage", "2", "train.micro_batch", "1" } },
        { 4, { "parallel.ep", "2", "zero.stage", "3" } },
        { 4, { "parallel.ep", "2", "zero.stage", "3", "zero.copy", "rank" } },
        { 4, { "parallel.ep", "4", "zero.stage", "3", "zero.copy", "rank", "train.recompute", "full" } },
        { 8, { "parallel.ep", "2", "parallel.tp", "2", "zero.stage", "1", "train.recompute", "selective" } },
        { 8, { "parallel.ep", "2", "zero.stage", "2", "train.recompute", "full" } },
        { 2, { "parallel.ep", "2", "train.recompute", "full", "train.micro_batch", "2" } },
        { 2, { "parallel.dp", "2", "zero.stage", "3", "zero.copy", "rank" } },
        { 2, { "parallel.dp", "2", "zero.stage", "2", "train.recompute", "selective" } },
        { 4, { "parallel.ep", "2", "zero.stage", "1", "zero.hsdp", "2" } },
        { 8, { "parallel.ep", "2", "zero.stage", "2", "zero.hsdp", "2", "comm.transport", "tcp" } },
        { 8, { "parallel.ep", "2", "zero.stage", "3", "zero.hsdp", "2" } },
        { 8, { "parallel.ep", "2", "zero.stage", "3", "zero.copy", "rank", "zero.hsdp", "4" } },
        { 8, { "parallel.ep", "2", "parallel.cp", "2", "zero.stage", "1", "zero.hsdp", "2" } },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        assert_layout(&(ls_layout){ .ranks = row[i].ranks, .run = i % 2 ? balanced : plain, .layout = row[i].layout },
                      F32);
}

/* As if ranks were on two machines: groups of experts are on one each, or on both. */
static void on_two_nodes(void **state)
{
    (void)state;
    static const int halves[] = { 0, 0, 0, 0, 1, 1, 1, 1 }, turns[] = { 0, 1, 0, 1, 0, 1, 0, 1 };
    static const char *const row[][13] = {
        { "comm.transport", "mixed", "parallel.ep", "2", "parallel.tp", "2" },
        { "comm.transport", "mixed", "parallel.ep", "2", "zero.stage", "3" },
        { "comm.transport", "mixed", "parallel.ep", "2", "parallel.cp", "2", "zero.stage", "3" },
        { "comm.transport", "mixed", "parallel.ep", "2", "parallel.pp", "2", "zero.stage", "3" },
        { "comm.transport", "mixed", "parallel.ep", "4", "zero.stage", "1" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_layout(&(ls_layout){ .ranks = 8, .run = plain, .layout = row[i], .node = halves }, F32);
        assert_layout(&(ls_layout){ .ranks = 8, .run = plain, .layout = row[i], .node = turns }, F32);
    }
}

/* Rows leave other holes in memory in each step, and their number has no part in where anything lies: so what is
 * planned with the most rows that there can be suffices. */
static void memory_suffices_however_many_rows_arrive(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *layout[13];
    } row[] = {
        { 8, { "parallel.ep", "4", "parallel.tp", "2", "train.recompute", "selective" } },
        { 4, { "parallel.ep", "4", "train.recompute", "selective", "train.micro_batch", "1" } },
        { 4, { "parallel.ep", "4", "moe.force_expert", "0", "train.recompute", "selective" } },
    };
    static const char **const run[] = { plain, dropping, full };
    for (size_t i = 0; i < COUNT(row); i++)
        for (size_t m = 0; m < COUNT(run); m++) {
            const ls_layout l = { .ranks = row[i].ranks, .run = run[m], .layout = row[i].layout };
            ls_layout_outcome o;
            if (ls_layout_train(&l, false, &o) < 0) fail_msg("row %zu, run %zu: %s", i, m, ls_last_error());
            ls_layout_outcome_free(&o);
        }
}

/* A hook averages over the replicas that a parameter has: as without one, up to what it rounds or leaves out. */
static void with_communication_hooks(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        double tolerance;
        const char *layout[9];
    } row[] = {
        { 4, F32, { "parallel.ep", "2", "ddp.hook", "allreduce" } },
        { 8, F32, { "parallel.ep", "2", "parallel.tp", "2", "ddp.hook", "allreduce", "train.micro_batch", "1" } },
        { 4, 1e-2, { "parallel.ep", "2", "ddp.hook", "bf16" } },
        { 2, 1e-2, { "parallel.ep", "2", "ddp.hook", "f16" } }, /* experts have one replica each: nothing travels */
        { 4, F32, { "parallel.ep", "2", "ddp.hook", "powersgd" } }, /* the first steps travel in full */
        { 4, 0.5, { "parallel.ep", "2", "ddp.hook", "powersgd", "ddp.powersgd_start", "2", "ddp.powersgd_rank", "4" } },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        assert_layout(&(ls_layout){ .ranks = row[i].ranks, .run = plain, .layout = row[i].layout }, row[i].tolerance);
}

/* Activations, and with them rows on their way, in bf16: routing is decided by logits that are rounded. */
static void in_bf16(void **state)
{
    (void)state;
    static const char *const ep2[] = { "parallel.ep", "2", "train.dtype", "bf16", NULL };
    static const char *const zero[] = { "parallel.ep", "2", "train.dtype", "bf16", "zero.stage", "2", NULL };
    assert_layout(&(ls_layout){ .ranks = 2, .run = plain, .layout = ep2 }, 2e-2);
    assert_layout(&(ls_layout){ .ranks = 4, .run = plain, .layout = zero }, 2e-2);
}

/* Fewer tokens than experts: some rank has none in most layers. */
static void a_rank_without_tokens(void **state)
{
    (void)state;
    static const char *const ep4[] = { "parallel.ep", "4", NULL };
    assert_layout(&(ls_layout){ .ranks = 4, .run = few, .layout = ep4 }, F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_divide_the_experts),
        cmocka_unit_test(every_kind_of_routing_is_the_same_in_every_layout),
        cmocka_unit_test(with_tensor_parallelism),
        cmocka_unit_test(with_context_parallelism),
        cmocka_unit_test(with_zero_and_recompute),
        cmocka_unit_test(on_two_nodes),
        cmocka_unit_test(memory_suffices_however_many_rows_arrive),
        cmocka_unit_test(with_communication_hooks),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(a_rank_without_tokens),
    };
    return cmocka_run_group_tests(tests, open_text, remove_text);
}
