/* A plan applied to a model: what is refused, and that it gives what the calls one by one give. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "lockstep/parallel.h"
#include "train/config.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define assert_done(expr)                                                \
    do {                                                                 \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error()); \
    } while (0)

enum { B = 2, T = 8, V = 32, MICRO = 3 };
#define ARENA ((size_t)1 << 20)

static const ls_model_config gpt2 = {
    .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 5,
    .lm = { .vocab_size = V, .seq_len = T, .n_layer = 2, .n_head = 2, .d_model = 16, .tied = true },
};
static const ls_model_config untied = {
    .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 5,
    .lm = { .vocab_size = V, .seq_len = T, .n_layer = 2, .n_head = 2, .d_model = 16 },
};
static const ls_model_config llama = {
    .name = "llama", .init = LS_INIT_PHILOX,
    .lm = { .vocab_size = V, .seq_len = T, .n_layer = 2, .n_head = 16, .n_kv_head = 4, .d_model = 64, .d_ff = 32 },
};
static const ls_model_config two_keys = {
    .name = "llama", .init = LS_INIT_PHILOX,
    .lm = { .vocab_size = V, .seq_len = T, .n_layer = 2, .n_head = 8, .n_kv_head = 2, .d_model = 16, .d_ff = 32 },
};
static const ls_model_config six_keys = {
    .name = "llama", .init = LS_INIT_PHILOX,
    .lm = { .vocab_size = V, .seq_len = T, .n_layer = 2, .n_head = 24, .n_kv_head = 6, .d_model = 48, .d_ff = 32 },
};
static const int64_t dims[] = { 6, 5, 3 };
static const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = COUNT(dims), .init = LS_INIT_PHILOX };
static const ls_model_config unknown = { .name = "perceptron" };

static ls_plan plan_for(int ranks)
{
    return (ls_plan){ .size = { 1, ranks, 1, 1, 1 }, .micro_batch = B, .micro_batches = MICRO };
}

/* --- plans ----------------------------------------------------------------------------------------------------- */

#define CHANGE(name, what) static void name(ls_plan *p) { what; }
CHANGE(nothing, (void)p)
CHANGE(defaults, p->dp = "ddp"; p->hsdp = 1; p->schedule = "1f1b"; p->chunks = 1)
CHANGE(shards, p->dp = "fsdp"; p->ddp.zero_stage = 1)
CHANGE(bf16, p->dtype = LS_BF16; p->recompute = LS_RECOMPUTE_FULL)
CHANGE(two_stages, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = 2)
CHANGE(chunks_of_stages, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = p->chunks = 2; p->schedule = "interleaved")
CHANGE(six_stages, p->size[LS_AXIS_PP] = 2; p->size[LS_AXIS_DP] = 2; p->chunks = 3; p->schedule = "interleaved")
CHANGE(eight_stages, p->size[LS_AXIS_PP] = 2; p->size[LS_AXIS_DP] = 2; p->chunks = 4; p->schedule = "interleaved")
CHANGE(unused_of_stages, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = 2; p->ddp.find_unused = true)
CHANGE(tree_of_stages, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = 2; p->ddp.tree = true)
CHANGE(tree_of_halves, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = 2; p->ddp.tree = true; p->schedule = "zb-h1")
CHANGE(halves_of_2, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = p->ddp.zero_stage = 2; p->schedule = "zb-h1")
CHANGE(tied_in_a_v, p->size[LS_AXIS_PP] = p->size[LS_AXIS_DP] = 2; p->ddp.zero_stage = 3;
       p->ddp.copy = LS_ZERO_COPY_RANK; p->ddp.reduce_last = true; p->schedule = "zb-v")
CHANGE(split_of_one, static const double split[] = { 2 }; p->split = split; p->nsplit = 1)
CHANGE(two_experts, p->size[LS_AXIS_EP] = 2)
CHANGE(three_stages, p->size[LS_AXIS_PP] = 3)
CHANGE(three_tensors, p->size[LS_AXIS_TP] = 3)
CHANGE(six_tensors, p->size[LS_AXIS_TP] = 6)
CHANGE(eight_tensors, p->size[LS_AXIS_TP] = 8)
CHANGE(four_tensors, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_TP] = 4)
CHANGE(three_contexts, p->size[LS_AXIS_DP] = 2; p->size[LS_AXIS_CP] = 3)
CHANGE(nine_contexts, p->size[LS_AXIS_CP] = 9)
CHANGE(two_contexts, p->size[LS_AXIS_DP] = 2; p->size[LS_AXIS_CP] = 2)
CHANGE(two_tensors, p->size[LS_AXIS_DP] = 2; p->size[LS_AXIS_TP] = 2; p->sequence_parallel = true)
CHANGE(two_of_both, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_CP] = p->size[LS_AXIS_TP] = 2; p->context = "ulysses")
CHANGE(square, p->size[LS_AXIS_DP] = 2; p->size[LS_AXIS_CP] = 2; p->context = "square")
CHANGE(three_replicas, p->size[LS_AXIS_DP] = 3)
CHANGE(no_replica, p->size[LS_AXIS_DP] = 0)
CHANGE(no_tensor, p->size[LS_AXIS_TP] = 0)
CHANGE(fsdp_of_nothing, p->dp = "fsdp")
CHANGE(ddp_of_shards, p->dp = "ddp"; p->ddp.zero_stage = 1)
CHANGE(horovod, p->dp = "horovod")
CHANGE(stage_3, p->ddp.zero_stage = 3)
CHANGE(stage_4, p->ddp.zero_stage = 4)
CHANGE(gathers, p->ddp.zero_stage = 3; p->ddp.copy = LS_ZERO_COPY_RANK; p->ddp.prefetch = 2;
       p->ddp.reshard = LS_RESHARD_NEVER)
CHANGE(last_of_2, p->ddp.zero_stage = 2; p->ddp.reduce_last = true)
CHANGE(last_of_1, p->ddp.zero_stage = 1; p->ddp.reduce_last = true)
CHANGE(copies_of_2, p->ddp.zero_stage = 2; p->ddp.copy = LS_ZERO_COPY_RANK)
CHANGE(no_unit, p->ddp.zero_stage = 3; p->ddp.copy = LS_ZERO_COPY_RANK; p->ddp.prefetch = -1)
CHANGE(two_wholes, p->hsdp = 2)
CHANGE(three_sets, p->ddp.zero_stage = 1; p->hsdp = 3)
CHANGE(eight_sets, p->ddp.zero_stage = 1; p->hsdp = 8)
CHANGE(minus_sets, p->ddp.zero_stage = 1; p->hsdp = -1)
CHANGE(own_groups, p->ddp.zero_stage = 1; p->ddp.shards = (ls_group *)(uintptr_t)p)
CHANGE(own_nodes, p->ddp.zero_stage = 3; p->ddp.node = (ls_group *)(uintptr_t)p)
CHANGE(prefetch, p->ddp.zero_stage = 3; p->ddp.prefetch = 1)
CHANGE(reshard, p->ddp.reshard = LS_RESHARD_ALWAYS)
CHANGE(unknown_schedule, p->schedule = "2f2b")
CHANGE(two_chunks, p->chunks = 2)
CHANGE(no_sample, p->micro_batch = 0)
CHANGE(no_micro_batch, p->micro_batches = 0)
CHANGE(ring, p->context = "ring")
#define RINGS(cp, u) p->size[LS_AXIS_DP] = 4 / (cp); p->size[LS_AXIS_CP] = (cp); p->context = "ulysses-ring"; p->exchange = (u)
CHANGE(rings_of_two, RINGS(2, 2))
CHANGE(rings_of_three, RINGS(4, 3))
CHANGE(rings_of_all, RINGS(4, 4))
CHANGE(rings_without_exchange, RINGS(4, 0))
CHANGE(four_in_rings, RINGS(4, 2))
CHANGE(ulysses_of_eight, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_CP] = 8; p->context = "ulysses")
CHANGE(ulysses_of_six, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_CP] = 6; p->context = "ulysses")
CHANGE(ulysses_and_tensors, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_CP] = 4; p->size[LS_AXIS_TP] = 2; p->context = "ulysses")
CHANGE(rings_of_eight, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_CP] = 16; p->context = "ulysses-ring"; p->exchange = 8)
CHANGE(exchange_alone, p->size[LS_AXIS_DP] = 1; p->size[LS_AXIS_CP] = 4; p->context = "ring"; p->exchange = 2)
CHANGE(sequence, p->sequence_parallel = true)
CHANGE(four_pieces, p->size[LS_AXIS_DP] = p->size[LS_AXIS_TP] = 2; p->tp_pieces = 4)
CHANGE(many_pieces, p->size[LS_AXIS_DP] = p->size[LS_AXIS_TP] = 2; p->tp_pieces = 17)
CHANGE(minus_pieces, p->size[LS_AXIS_DP] = p->size[LS_AXIS_TP] = 2; p->tp_pieces = -1)
CHANGE(pieces_of_one, p->tp_pieces = 4)
CHANGE(pieces_of_sequences, p->size[LS_AXIS_DP] = p->size[LS_AXIS_TP] = 2; p->sequence_parallel = true;
       p->tp_pieces = 4)
CHANGE(recompute_7, p->recompute = (ls_recompute)7)
CHANGE(doubles, p->dtype = LS_F64)

static void a_plan_that_cannot_be_applied_is_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(ls_plan *p);
        const ls_model_config *model;
        ls_status st;
        const char *says; /* NULL: it can be */
    } row[] = {
        { nothing, &gpt2, LS_OK, NULL },
        { nothing, &mlp, LS_OK, NULL },
        { defaults, &gpt2, LS_OK, NULL },
        { shards, &gpt2, LS_OK, NULL },
        { bf16, &gpt2, LS_OK, NULL },
        { stage_3, &gpt2, LS_OK, NULL },
        { gathers, &gpt2, LS_OK, NULL },
        { last_of_2, &gpt2, LS_OK, NULL },
        { two_stages, &gpt2, LS_OK, NULL },
        { two_stages, &mlp, LS_OK, NULL },
        { chunks_of_stages, &gpt2, LS_OK, NULL },
        { three_stages, &gpt2, LS_BAD_CONFIG, "mesh: pp 3 x dp 4 = 12, but the world has 4 ranks" },
        { six_stages, &gpt2, LS_OK, NULL }, /* embedding, halves of 2 layers, head */
        { eight_stages, &gpt2, LS_BAD_CONFIG, "plan: 8 stages of a model that has 6 units (embedding, halves of layers and head): expected at "
          "most" },
        { unused_of_stages, &gpt2, LS_UNSUPPORTED, "plan: find_unused is true, and pp is 2: expected false, or pp 1" },
        { tree_of_stages, &gpt2, LS_UNSUPPORTED, "plan: sums of gradients as a tree, and the first and the last of 2 stages each add up a part of a "
          "tied embedding's gradient: expected model.tied false, or pp 1" },
        { tree_of_stages, &untied, LS_OK, NULL },
        { tree_of_halves, &untied, LS_UNSUPPORTED, "plan: sums of gradients as a tree, and schedule zb-h1 has backwards in two halves: expected "
          "another schedule, as 1f1b" },
        { halves_of_2, &gpt2, LS_UNSUPPORTED, "plan: zero_stage 2 reduces a gradient in each backward, and schedule zb-h1 has backwards in two "
                                              "halves: expected reduce_last, a zero_stage up to 1, or another schedule" },
        { tied_in_a_v, &gpt2, LS_UNSUPPORTED, "schedule zb-v has a tied embedding in two chunks of a rank: expected LS_ZERO_COPY_HOST" },
        { tied_in_a_v, &untied, LS_OK, NULL },
        { split_of_one, &gpt2, LS_BAD_CONFIG, "plan: split belongs to pp above 1, and pp is 1: expected NULL" },
        { two_experts, &gpt2, LS_UNSUPPORTED, "plan: ep is 2, but gpt2 has no experts: expected ep 1, or model moe" },
        { two_contexts, &gpt2, LS_OK, NULL },
        { two_tensors, &gpt2, LS_OK, NULL },
        { two_of_both, &llama, LS_OK, NULL },
        { three_tensors, &gpt2, LS_BAD_CONFIG, "plan: tp 3 does not divide model.n_head, which is 2: nearest valid: 2" },
        { three_tensors, &llama, LS_BAD_CONFIG, "plan: tp 3 does not divide model.n_head, which is 16: nearest valid: 2 or 4" },
        { six_tensors, &llama, LS_BAD_CONFIG, "plan: tp 6 does not divide model.n_head, which is 16: nearest valid: 4 or 8" },
        { four_tensors, &two_keys, LS_OK, NULL }, /* each head of keys is on two ranks */
        { eight_tensors, &six_keys, LS_BAD_CONFIG, "plan: tp 8 neither divides model.n_kv_head, which is 6, nor is a multiple of it: nearest "
                                                   "valid: 6 or 12" },
        { three_contexts, &gpt2, LS_BAD_CONFIG, "mesh: dp 2 x cp 3 = 6, but the world has 4 ranks" },
        { nine_contexts, &gpt2, LS_BAD_CONFIG, "mesh: cp is 9; expected 1 to 4" },
        { three_tensors, &mlp, LS_UNSUPPORTED, "plan: tp is 3, but mlp has no layers that ranks divide; gpt2, llama and moe have: expected tp 1" },
        { three_replicas, &gpt2, LS_BAD_CONFIG, "mesh: dp 3 = 3, but the world has 4 ranks: dp 4 fits" },
        { no_replica, &gpt2, LS_BAD_CONFIG, "mesh: dp is 0; expected 1 to 4" },
        { no_tensor, &gpt2, LS_BAD_CONFIG, "mesh: tp is 0; expected 1 to 4" },
        { fsdp_of_nothing, &gpt2, LS_BAD_CONFIG, "plan: dp is 'fsdp', but zero_stage is 0: expected zero_stage 1 to 3, or another dp" },
        { ddp_of_shards, &gpt2, LS_BAD_CONFIG, "plan: dp is 'ddp', but zero_stage is 1: expected zero_stage 0, or another dp" },
        { horovod, &gpt2, LS_BAD_CONFIG, "checking dp of the plan: no data parallel strategy 'horovod': expected one of ddp, fsdp" },
        { stage_4, &gpt2, LS_UNSUPPORTED, "ZeRO stage 4 is not implemented, only 0 to 3" },
        { last_of_1, &gpt2, LS_BAD_CONFIG, "plan: reduce_last belongs to zero_stage 2 and 3, and zero_stage is 1: expected false" },
        { copies_of_2, &gpt2, LS_BAD_CONFIG, "plan: copy belongs to zero_stage 3, and zero_stage is 2: expected LS_ZERO_COPY_HOST" },
        { no_unit, &gpt2, LS_BAD_CONFIG, "plan: prefetch is -1: expected 0 or more units" },
        { two_wholes, &gpt2, LS_BAD_CONFIG, "plan: hsdp belongs to zero_stage 1 to 3, and zero_stage is 0: expected 1" },
        { three_sets, &gpt2, LS_BAD_CONFIG, "plan: hsdp 3 does not divide the number of ranks, which is 4: nearest valid: 2 or 4" },
        { eight_sets, &gpt2, LS_BAD_CONFIG, "plan: hsdp is 8: expected 1 to 4, the number of ranks" },
        { minus_sets, &gpt2, LS_BAD_CONFIG, "plan: hsdp is -1: expected 1 to 4, the number of ranks" },
        { own_groups, &gpt2, LS_BAD_CONFIG, "plan: ddp has groups for hybrid sharding, which ls_parallelize makes" },
        { own_nodes, &gpt2, LS_BAD_CONFIG, "plan: ddp has groups of nodes, which ls_parallelize makes: expected NULL" },
        { prefetch, &gpt2, LS_BAD_CONFIG, "plan: prefetch belongs to zero_stage 3 with LS_ZERO_COPY_RANK: expected 0" },
        { reshard, &gpt2, LS_BAD_CONFIG, "plan: reshard belongs to zero_stage 3 with LS_ZERO_COPY_RANK: expected LS_RESHARD_DEFAULT" },
        { unknown_schedule, &gpt2, LS_BAD_CONFIG, "no pipeline schedule '2f2b': expected one of gpipe, 1f1b" },
        { two_chunks, &gpt2, LS_BAD_CONFIG, "plan: chunks above 1 belongs to pp above 1, and pp is 1: expected 1" },
        { no_sample, &gpt2, LS_BAD_CONFIG, "plan: micro_batch is 0: expected at least 1 sample per forward" },
        { no_micro_batch, &gpt2, LS_BAD_CONFIG, "a step of 0 micro-batches: expected 1 to" },
        { ring, &gpt2, LS_BAD_CONFIG, "plan: context belongs to cp above 1, and cp is 1: expected NULL" },
        { square, &gpt2, LS_BAD_CONFIG, "context 'square': expected ring, gather, ulysses or ulysses-ring" },
        { rings_of_two, &gpt2, LS_BAD_CONFIG, "plan: ulysses-ring divides cp again, and cp is 2: expected a product of two numbers above 1" },
        { rings_of_three, &gpt2, LS_BAD_CONFIG, "plan: 3 neighbours of cp 4 exchange heads in ulysses-ring: expected 2 (ring: 1, ulysses: all)" },
        { rings_of_all, &gpt2, LS_BAD_CONFIG, "plan: 4 neighbours of cp 4 exchange heads" },
        { rings_without_exchange, &gpt2, LS_BAD_CONFIG, "plan: 0 neighbours of cp 4 exchange heads" },
        { exchange_alone, &gpt2, LS_BAD_CONFIG, "plan: exchange belongs to context ulysses-ring: expected 0, and it is 2" },
        { four_in_rings, &gpt2, LS_OK, NULL },
        { ulysses_of_eight, &llama, LS_BAD_CONFIG, "plan: ulysses exchanges heads: cp 8 does not divide model.n_kv_head, which is 4: nearest "
                                                   "valid: 4; ring and gather take any number of heads" },
        { ulysses_of_six, &llama, LS_BAD_CONFIG, "cp 6 does not divide model.n_head, which is 16: nearest valid: 4 or 8" },
        { ulysses_and_tensors, &llama, LS_BAD_CONFIG, "cp 4 x tp 2 does not divide model.n_kv_head, which is 4: nearest valid: 2" },
        { rings_of_eight, &llama, LS_BAD_CONFIG, "plan: ulysses-ring exchanges heads: exchange 8 does not divide model.n_kv_head, which is 4: "
                                                 "nearest valid: 4" },
        { sequence, &gpt2, LS_BAD_CONFIG, "plan: sequence_parallel belongs to tp above 1, and tp is 1: expected false" },
        { four_pieces, &gpt2, LS_OK, NULL },
        { many_pieces, &gpt2, LS_BAD_CONFIG, "plan: tp_pieces is 17: expected 1 to 16, or 0, as many as are worth it" },
        { minus_pieces, &gpt2, LS_BAD_CONFIG, "plan: tp_pieces is -1: expected 1 to 16" },
        { pieces_of_one, &gpt2, LS_BAD_CONFIG, "plan: tp_pieces belongs to tp above 1, and tp is 1: expected 0" },
        { pieces_of_sequences, &gpt2, LS_UNSUPPORTED, "plan: tp_pieces is 4, and with sequence_parallel collectives inside a layer are not "
          "divided: expected 0, or sequence_parallel false" },
        { recompute_7, &gpt2, LS_BAD_CONFIG, "plan: recompute is 7: expected none, selective or full" },
        { doubles, &gpt2, LS_UNSUPPORTED, "plan: dtype is double: expected f32 or bf16" },
        { bf16, &mlp, LS_UNSUPPORTED, "plan: dtype is bf16, but mlp computes in f32 only: expected f32; gpt2, llama and moe compute" },
        { nothing, &unknown, LS_BAD_CONFIG, "no model 'perceptron'" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_plan p = plan_for(4);
        row[i].change(&p);
        const ls_status st = ls_plan_check(&p, row[i].model, 4);
        if (st != row[i].st) fail_msg("row %zu: %s: %s", i, ls_status_word(st), st < 0 ? ls_last_error() : "");
        if (row[i].says && !strstr(ls_last_error(), row[i].says)) fail_msg("'%s' is not in '%s'", row[i].says, ls_last_error());
    }
}

/* What a recipe plans. */
static void a_configuration_gives_a_plan(void **state)
{
    (void)state;
    static const struct {
        const char *batch, *micro;
        int ranks, micro_batch, micro_batches;
    } row[] = { { "12", "0", 1, 12, 1 }, { "12", "0", 3, 4, 1 }, { "12", "2", 3, 2, 2 }, { "12", "1", 1, 1, 12 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        const char *const flag[][2] = { { "train.global_batch", row[i].batch }, { "train.micro_batch", row[i].micro },
                                        { "zero.stage", "1" },                  { "ddp.bucket_cap", "7KiB" },
                                        { "train.recompute", "selective" },     { "train.dtype", "bf16" } };
        ls_train_config c;
        ls_opts *o;
        ls_plan p;
        assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
        for (size_t k = 0; k < COUNT(flag); k++) assert_done(ls_opts_set(o, flag[k][0], flag[k][1], "flag"));
        assert_done(ls_train_plan(&c, row[i].ranks, &p));
        assert_done(ls_plan_check(&p, &gpt2, row[i].ranks));
        assert_int_equal(p.size[LS_AXIS_DP], row[i].ranks);
        assert_int_equal(p.micro_batch, row[i].micro_batch);
        assert_int_equal(p.micro_batches, row[i].micro_batches);
        assert_true(p.ddp.zero_stage == 1 && p.ddp.bucket_cap == 7168);
        assert_true(p.recompute == LS_RECOMPUTE_SELECTIVE && p.dtype == LS_BF16);
        ls_opts_destroy(o);
    }
}

/* --- beside the calls one by one ----------------------------------------------------------------------------- */

typedef struct how {
    int zero_stage;
    ls_dtype dtype;
    ls_recompute recompute;
} how;

static ls_plan plan_of(const how *h, int ranks)
{
    ls_plan p = plan_for(ranks);
    p.ddp = (ls_ddp_config){ .zero_stage = h->zero_stage, .first_bucket = 1024, .bucket_cap = 4096 };
    p.dtype = h->dtype;
    p.recompute = h->recompute;
    return p;
}

/* The same as ls_parallelize makes. */
static ls_status one_by_one(ls_world *w, const ls_plan *p, ls_arena *own, size_t *tape_bytes, ls_parallel *out)
{
    const ls_tape_mode mode = { .dtype = p->dtype, .recompute = p->recompute };
    *out = (ls_parallel){ 0 };
    LS_TRY(ls_mesh_create(w, p->size, NULL, &out->mesh));
    LS_TRY(ls_model_create(&gpt2, &out->model));
    *tape_bytes = ls_model_tape_bytes_in(out->model, B, T, &mode);
    LS_TRY(ls_ddp_bind(ls_world_group(w), &out->model->params, &p->ddp, p->dtype, own));
    LS_TRY(ls_model_init(out->model, &gpt2));
    LS_TRY(ls_ddp_create(ls_world_group(w), &out->model->params, &p->ddp, &out->ddp));
    out->tape = calloc(1, sizeof *out->tape);
    if (!out->tape) return ls_fail(LS_NO_MEMORY, "a list of one tape");
    out->ntapes = 1;
    LS_TRY(ls_tape_create(*tape_bytes, NULL, NULL, &out->tape[0]));
    ls_tape_set_recompute(out->tape[0], p->recompute);
    return ls_tape_set_dtype(out->tape[0], p->dtype);
}

static ls_status same_group(const char *what, const ls_group *a, const ls_group *b)
{
    LS_EXPECT(ls_group_size(a) == ls_group_size(b) && ls_group_rank(a) == ls_group_rank(b), "%s: rank %d of %d, expected %d of %d",
              what, ls_group_rank(a), ls_group_size(a), ls_group_rank(b), ls_group_size(b));
    for (int r = 0; r < ls_group_size(a); r++)
        LS_EXPECT(ls_group_world_rank(a, r) == ls_group_world_rank(b, r), "%s: member %d differs", what, r);
    return LS_OK;
}

static ls_status same_mesh(const ls_mesh *a, const ls_mesh *b)
{
    LS_EXPECT(memcmp(a->size, b->size, sizeof a->size) == 0 && memcmp(a->coord, b->coord, sizeof a->coord) == 0, "coordinates");
    for (int i = 0; i < LS_AXES; i++) LS_TRY(same_group(ls_axis_name((ls_axis)i), a->axis[i], b->axis[i]));
    LS_TRY(same_group("batch", a->batch, b->batch));
    LS_TRY(same_group("replicas", a->replicas, b->replicas));
    LS_EXPECT(a->speaks == b->speaks && a->has_loss == b->has_loss, "speaks %d, has the loss %d", a->speaks, a->has_loss);
    return LS_OK;
}

static bool same_range(ls_range a, ls_range b) { return a.first == b.first && a.count == b.count; }

/* Owners, and the values of all ranks together. */
static ls_status same_params(const ls_parallel *a, const ls_parallel *b)
{
    const ls_values va = ls_ddp_values(a->ddp), vb = ls_ddp_values(b->ddp);
    LS_EXPECT(a->model->params.n == b->model->params.n, "%d parameters", a->model->params.n);
    for (int i = 0; i < a->model->params.n; i++) {
        const ls_param *p = &a->model->params.item[i], *q = &b->model->params.item[i];
        const float *x, *y;
        LS_EXPECT(strcmp(p->name, q->name) == 0 && p->id == q->id && ls_tensor_same_shape(&p->t, &q->t), "%s is %s", p->name, q->name);
        LS_EXPECT(same_range(p->own, q->own) && same_range(p->keeps, q->keeps), "%s has another owner", p->name);
        LS_EXPECT(p->replicas == a->mesh.replicas && !p->bf16 == !q->bf16 && !p->master == !q->master, "%s lies elsewhere", p->name);
        LS_TRY(va.whole(va.arg, p, &x));
        LS_TRY(vb.whole(vb.arg, q, &y));
        LS_EXPECT(memcmp(x, y, ls_tensor_nbytes(&p->t)) == 0, "%s has other first values", p->name);
    }
    LS_EXPECT(ls_ddp_buckets(a->ddp) == ls_ddp_buckets(b->ddp), "%d buckets", ls_ddp_buckets(a->ddp));
    return LS_OK;
}

typedef struct step {
    ls_parallel *par;
    int64_t id[MICRO][B * T], label[MICRO][B * T];
    ls_tensor *loss;
    ls_loss_sums sums;
    double sum;
} step;

static void fill(step *s, ls_parallel *par, int rank)
{
    *s = (step){ .par = par };
    for (int m = 0; m < MICRO; m++)
        for (int i = 0; i < B * T; i++) {
            s->id[m][i] = (rank * 7 + m * 11 + i * 5) % V;
            s->label[m][i] = (rank * 3 + m * 13 + i * 9 + 1) % V;
        }
}

static ls_status feed(void *arg, const ls_pipe_action *a)
{
    (void)arg;
    (void)a;
    return LS_OK;
}

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    static const int64_t dim[2] = { B, T };
    step *s = arg;
    (void)data;
    ls_tape *t = s->par->tape[a->slot];
    ls_tape_reset(t);
    LS_TRY(ls_ddp_begin_forward(s->par->ddp, t, a->last));
    ls_tensor *x = ls_tape_input(t, LS_I64, 2, dim, s->id[a->micro_batch]);
    ls_tensor *y = ls_tape_input(t, LS_I64, 2, dim, s->label[a->micro_batch]);
    s->loss = ls_model_loss(s->par->model, t, x, y, &s->sums);
    return ls_tape_status(t);
}

static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    step *s = arg;
    (void)data;
    const float weight = 1.0f / MICRO;
    LS_TRY(ls_backward_from(s->par->tape[a->slot], s->loss, &weight));
    s->sum += s->sums.sum;
    return LS_OK;
}

/* By the pipe, and without. */
static ls_status same_step(const ls_world *w, ls_parallel *a, ls_parallel *b)
{
    static const ls_pipe_work work = { feed, forward, backward, NULL };
    step sa, sb;
    fill(&sa, a, ls_world_rank(w));
    fill(&sb, b, ls_world_rank(w));
    LS_TRY(ls_pipe_run(a->pipe, MICRO, &work, &sa));
    for (int m = 0; m < MICRO; m++) {
        const ls_pipe_action at = { .micro_batch = m, .last = m == MICRO - 1 };
        LS_TRY(forward(&sb, &at, NULL));
        LS_TRY(backward(&sb, &at, NULL));
    }
    LS_EXPECT(sa.sum == sb.sum, "the losses are %.17g, expected %.17g", sa.sum, sb.sum);
    for (int i = 0; i < a->model->params.n; i++) {
        const ls_param *p = &a->model->params.item[i], *q = &b->model->params.item[i];
        const size_t nbytes = p->own.count * sizeof(float); /* of a shard */
        LS_EXPECT(p->t.grad_reduced, "%s is not reduced", p->name);
        LS_EXPECT(memcmp(ls_param_gradients(p), ls_param_gradients(q), nbytes) == 0, "%s has another gradient", p->name);
    }
    return LS_OK;
}

static ls_status compare(ls_world *w, const ls_plan *p, ls_arena *const own[2], ls_parallel *a, ls_parallel *b)
{
    size_t tape_bytes;
    LS_TRY(one_by_one(w, p, own[1], &tape_bytes, b));
    const ls_parallel_opts o = { .own = own[0], .tape_bytes = tape_bytes };
    LS_TRY(ls_parallelize(w, p, &gpt2, &o, a));
    LS_TRY(same_mesh(&a->mesh, &b->mesh));
    LS_TRY(same_params(a, b));
    LS_EXPECT(a->ntapes == 1 && ls_pipe_slots(a->pipe) == 1 && ls_tape_dtype(a->tape[0]) == p->dtype, "%d tapes", a->ntapes);
    LS_TRY(same_step(w, a, b));
    LS_EXPECT(ls_tape_peak(a->tape[0]) == tape_bytes, "the tape takes %zu bytes, expected %zu", ls_tape_peak(a->tape[0]), tape_bytes);
    return LS_OK;
}

static ls_status equals_the_calls(ls_world *w, void *arg)
{
    const ls_plan p = plan_of(arg, ls_world_size(w));
    ls_parallel a = { 0 }, b = { 0 };
    ls_arena *own[2] = { NULL, NULL };
    ls_status st = ls_arena_create(ARENA, false, NULL, &own[0]);
    if (st == LS_OK) st = ls_arena_create(ARENA, false, NULL, &own[1]);
    if (st == LS_OK) st = compare(w, &p, own, &a, &b);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_parallel_destroy(&a);
    ls_ddp_destroy(b.ddp); /* of no chunk, so nobody else does */
    ls_parallel_destroy(&b);
    for (int i = 0; i < 2; i++) ls_arena_destroy(own[i]);
    LS_EXPECT(st < 0 || (!a.model && !a.tape && !a.pipe && !a.mesh.w), "destroyed, it is not empty");
    return st;
}

static void a_plan_gives_what_the_calls_one_by_one_give(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        for (int stage = 0; stage < 2; stage++)
            for (int dtype = 0; dtype < 2; dtype++) {
                how h = { stage, dtype ? LS_BF16 : LS_F32, dtype ? LS_RECOMPUTE_FULL : LS_RECOMPUTE_NONE };
                const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, NULL, equals_the_calls, &h);
                if (r.failed) fail_msg("%d ranks, zero_stage %d, %s: %s", n, stage, ls_dtype_name(h.dtype), r.text);
            }
}

/* --- first values ------------------------------------------------------------------------------------------------ */

typedef struct giver {
    float value;
    int calls;
    bool fails;
} giver;

static ls_status give(void *arg, ls_model *m)
{
    giver *g = arg;
    g->calls++;
    for (int i = 0; i < m->params.n; i++) {
        const ls_tensor *t = &m->params.item[i].t;
        LS_EXPECT(t->data, "%s has no memory yet", m->params.item[i].name);
        for (int64_t k = 0; k < ls_tensor_count(t); k++) ((float *)t->data)[k] = g->value;
    }
    return g->fails ? ls_fail(LS_IO, "no values today") : LS_OK;
}

static ls_status first_values(ls_world *w, const ls_plan *p, const ls_parallel_opts *o, ls_parallel *out)
{
    const giver *g = o->arg;
    const ls_status st = ls_parallelize(w, p, &gpt2, o, out);
    LS_EXPECT(g->calls == 1, "values were asked for %d times", g->calls);
    if (g->fails) {
        LS_EXPECT(st == LS_IO && strcmp(ls_last_error(), "no values today") == 0, "%s", st < 0 ? ls_last_error() : "no failure");
        return LS_OK;
    }
    LS_TRY(st);
    const ls_values values = ls_ddp_values(out->ddp);
    for (int i = 0; i < out->model->params.n; i++) {
        const ls_param *q = &out->model->params.item[i];
        const float *x;
        LS_TRY(values.whole(values.arg, q, &x));
        for (int64_t k = 0; k < ls_tensor_count(&q->t); k++)
            LS_EXPECT(x[k] == 1.0f, "%s: element %d is %g, expected rank 0's", q->name, (int)k, (double)x[k]);
    }
    return LS_OK;
}

static ls_status given_values(ls_world *w, void *arg)
{
    const how h = { .zero_stage = *(const int *)arg & 1 };
    const ls_plan p = plan_of(&h, ls_world_size(w));
    giver g = { .value = (float)(ls_world_rank(w) + 1), .fails = *(const int *)arg & 2 };
    ls_parallel out = { 0 };
    ls_parallel_opts o = { .tape_bytes = ARENA, .values = give, .arg = &g };
    LS_TRY(ls_arena_create(ARENA, false, NULL, &o.own));
    const ls_status st = first_values(w, &p, &o, &out);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_parallel_destroy(&out);
    ls_arena_destroy(o.own);
    return st == LS_OK ? ls_barrier(ls_world_group(w)) : st; /* the world is as it was */
}

static void first_values_come_from_the_caller(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        for (int kind = 0; kind < 4; kind++) { /* bits: sharded, failing */
            const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, NULL, given_values, &kind);
            if (r.failed) fail_msg("%d ranks, %d: %s", n, kind, r.text);
        }
}

/* --- a program's own class of models ----------------------------------------------------------------------- */

static ls_status own_class(ls_world *w, void *arg)
{
    const ls_plan p = plan_for(ls_world_size(w));
    ls_model_class mine = *ls_model_class_find("mlp"); /* another name, and no formula for its size */
    mine.name = "mine";
    mine.count = NULL;
    ls_model_config mc = mlp;
    mc.cls = &mine;
    mc.name = NULL;
    ls_parallel out = { 0 };
    ls_parallel_opts o = { 0 };
    (void)arg;
    LS_TRY(ls_arena_create(ARENA, false, NULL, &o.own));
    const ls_status st = ls_parallelize(w, &p, &mc, &o, &out);
    const bool is_mine = st >= 0 && out.model->cls == &mine && out.model->params.n == 4;
    ls_plan narrow = p;
    narrow.dtype = LS_BF16;
    const bool f32_only = ls_plan_check(&narrow, &mc, ls_world_size(w)) == LS_UNSUPPORTED &&
                          strstr(ls_last_error(), "but mine computes in f32 only");
    const bool counted = ls_model_count(&mc) == 0;
    ls_parallel_destroy(&out);
    ls_arena_destroy(o.own);
    LS_TRY(st);
    LS_EXPECT(is_mine && f32_only && counted, "a class of a program's own: %d %d %d", is_mine, f32_only, counted);
    return ls_barrier(ls_world_group(w));
}

static void a_class_of_the_program_s_own_is_taken(void **state)
{
    (void)state;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, own_class, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* --- memory --------------------------------------------------------------------------------------------------- */

/* What a step takes of a tape, asked of the dry tape that is here. */
static ls_status dry_step(ls_parallel *par, size_t *bytes)
{
    static const int64_t dim[2] = { B, T };
    ls_tape *t = par->tape[0];
    ls_tensor *x = ls_tape_input(t, LS_I64, 2, dim, NULL), *y = ls_tape_input(t, LS_I64, 2, dim, NULL);
    LS_TRY(ls_backward(t, ls_model_loss(par->model, t, x, y, NULL)));
    *bytes = ls_tape_peak(t);
    return LS_OK;
}

/* *taken: of the arena. */
static ls_status asks_a_dry_tape(ls_world *w, const how *h, size_t packed, size_t *taken)
{
    const ls_plan p = plan_of(h, 1);
    const ls_tape_mode mode = { .dtype = h->dtype, .recompute = h->recompute };
    ls_parallel out = { 0 };
    ls_parallel_opts o = { .packed_bytes = packed };
    size_t bytes = 0, want = 0;
    LS_TRY(ls_arena_create(ARENA, false, NULL, &o.own));
    ls_status st = ls_parallelize(w, &p, &gpt2, &o, &out);
    if (st == LS_OK) want = ls_model_tape_bytes_in(out.model, B, T, &mode);
    if (st == LS_OK) st = dry_step(&out, &bytes);
    *taken = ls_arena_mark(o.own);
    ls_parallel_destroy(&out);
    ls_arena_destroy(o.own);
    LS_TRY(st);
    LS_EXPECT(want > 0 && bytes == want, "a dry tape takes %zu bytes, expected %zu", bytes, want);
    return LS_OK;
}

static ls_status dry_tapes(ls_world *w, void *arg)
{
    (void)arg;
    for (int dtype = 0; dtype < 2; dtype++)
        for (int r = LS_RECOMPUTE_NONE; r <= LS_RECOMPUTE_FULL; r++) {
            const how h = { .dtype = dtype ? LS_BF16 : LS_F32, .recompute = (ls_recompute)r };
            size_t without, with;
            LS_TRY(asks_a_dry_tape(w, &h, 0, &without));
            LS_TRY(asks_a_dry_tape(w, &h, 4096, &with));
            LS_EXPECT(with == without + 4096, "packed weights take %zu bytes of the arena, expected 4096", with - without);
        }
    return LS_OK;
}

static void dry_tapes_tell_what_a_step_takes(void **state)
{
    (void)state;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 1, NULL, dry_tapes, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* --- refused ------------------------------------------------------------------------------------------------------ */

static ls_status refused(ls_world *w, void *arg)
{
    ls_plan p = plan_for(ls_world_size(w) + 1);
    ls_parallel out = { .ntapes = 9 };
    ls_parallel_opts o = { .tape_bytes = ARENA };
    (void)arg;
    LS_TRY(ls_arena_create(ARENA, false, NULL, &o.own));
    const ls_status st = ls_parallelize(w, &p, &gpt2, &o, &out);
    ls_parallel_destroy(&out);
    const bool untouched = ls_arena_mark(o.own) == 0;
    ls_arena_destroy(o.own);
    LS_EXPECT(st == LS_BAD_CONFIG && untouched && !out.model, "a plan for another world: %s", ls_status_word(st));
    return ls_barrier(ls_world_group(w));
}

static void a_refused_plan_leaves_the_world_as_it_was(void **state)
{
    (void)state;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, refused, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_cannot_be_applied_is_refused),
        cmocka_unit_test(a_configuration_gives_a_plan),
        cmocka_unit_test(a_plan_gives_what_the_calls_one_by_one_give),
        cmocka_unit_test(first_values_come_from_the_caller),
        cmocka_unit_test(a_class_of_the_program_s_own_is_taken),
        cmocka_unit_test(dry_tapes_tell_what_a_step_takes),
        cmocka_unit_test(a_refused_plan_leaves_the_world_as_it_was),
    };
    return cmocka_run_group_tests_name("parallelize", tests, NULL, NULL);
}
