/* Every layout trains the model that one rank trains: models by ranks by ways to divide them. */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* With 12 samples, 1, 2, 3, 4 and 6 ranks have as many each. Momentum lets a wrong gradient of one step be seen in all
 * that follow; no adaptive rate blows up rounding where a gradient is next to nothing. */
#define RECIPE "train.global_batch", "12", "optim.name", "sgd", "optim.momentum", "0.9", "optim.lr", "0.05", \
               "optim.clip", "1"
#define LM(model) "model.name", model, "model.n_layer", "2", "model.n_head", "4", "model.d_model", "32", \
                  "model.seq_len", "16", "data.tokenizer", "char"

static const char *mlp[] = { RECIPE, "model.name", "mlp", "model.dims", "20,31,7", "data.name", "synthetic", NULL };
static const char *gpt2[] = { RECIPE, LM("gpt2"), "data.name", NULL, "data.path", NULL, NULL };
static const char *llama[] = { RECIPE, LM("llama"), "model.n_kv_head", "2", "data.name", NULL, "data.path", NULL, NULL };
static const char *gpt2_untied[] = { RECIPE, LM("gpt2"), "model.tied", "false", "data.name", NULL, "data.path", NULL, NULL };
static const char *llama_untied[] = { RECIPE, LM("llama"), "model.tied", "false", "data.name", NULL, "data.path", NULL, NULL };
static const char *const *const models[] = { mlp, gpt2, llama };

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
    fill(gpt2);
    fill(llama);
    fill(gpt2_untied);
    fill(llama_untied);
    return 0;
}

/* Sums of 1 to 6 parts, in float, in another order each. */
#define F32 2e-5

/* --- what a step calls ------------------------------------------------------------------------------------- */

#define LINE          64u                 /* bytes: where gradients begin in a bucket */
#define BUCKET        ((uint64_t)1 << 20) /* a bucket is full from here on */
#define SUMS_AT_ONCE  128                 /* parameters whose squares travel together */
#define TOLD          48u                 /* bytes that a rank tells in a step: six words */

static const char *value_of(const ls_layout *l, const char *key)
{
    for (const char *const *f = l->layout; f && *f; f += 2)
        if (strcmp(f[0], key) == 0) return f[1];
    return NULL;
}

static uint64_t up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

/* Of a collective per bucket over gradients of `bytes`, each bucket padded to a multiple of `unit`. With small buckets
 * there is at least one, and at most one per gradient. */
static ls_layout_calls buckets(ls_coll coll, int gradients, uint64_t bytes, uint64_t unit, bool small)
{
    ls_layout_calls c = { .group = "world", .coll = coll, .count = 1, .bytes = small ? bytes : up(bytes, unit) };
    if (!small) assert_true(bytes < BUCKET); /* one bucket */
    if (small) c.most = gradients;
    if (small && unit > 1) c.most_bytes = bytes + (uint64_t)gradients * unit;
    return c;
}

static int number_of(const ls_layout *l, const char *key, int def)
{
    const char *v = value_of(l, key);
    return v ? atoi(v) : def;
}

/* Samples of a rank. */
static int local_of(const ls_layout *l) { return number_of(l, "train.global_batch", 12) / l->ranks; }

/* Bytes of a name up to a block's number, which parameters of the block have in common: "model.layers.3.", "0."; 0: it has
 * no number. */
static size_t numbered(const char *name)
{
    const char *digit = strpbrk(name, "0123456789");
    return digit && (digit == name || digit[-1] == '.') ? (size_t)(strchr(digit, '.') - name) + 1 : 0;
}

static bool untied_head(const ls_params *ps) { return ls_params_find(ps, "lm_head.weight") != NULL; }

/* Whether parameter i belongs to the unit of the one before it. Tables of tokens and positions are one unit, but a
 * table of tokens that the head reads, too, belongs to the root. A head of its own is one unit with the last norm. */
static bool continues(const ls_params *ps, int i)
{
    if (i == 0) return false;
    const char *name = ps->item[i].name, *before = ps->item[i - 1].name;
    const size_t n = numbered(name), m = numbered(before);
    if (n > 0 || m > 0) return n == m && strncmp(name, before, n) == 0;
    return i > 1 || untied_head(ps);
}

static bool has_copy(const ls_param *p, bool bf16) { return bf16 && p->t.ndim >= 2 && !p->f32; }

/* Units that have parameters, the root among them; with `copies` those that have a copy in bf16. */
static int units_of(const ls_params *ps, bool copies)
{
    int units = 0;
    bool counted = false;
    for (int i = 0; i < ps->n; i++) {
        if (!continues(ps, i)) counted = false;
        if (counted || (copies && !has_copy(&ps->item[i], true))) continue;
        counted = true;
        units++;
    }
    return units;
}

static bool is(const ls_layout *l, const char *key, const char *value)
{
    const char *v = value_of(l, key);
    return v && strcmp(v, value) == 0;
}

/* Whether ranks exchange messages, so that buckets, or values, have a second group. */
static bool is_connected(const ls_layout *l) { return value_of(l, "comm.transport") != NULL; }

/* Values of parameters [first, first + n), as ops read them. */
static uint64_t read_bytes(const ls_params *ps, int first, int n, bool bf16)
{
    uint64_t bytes = 0;
    for (int i = first; i < first + n; i++)
        bytes += (uint64_t)ls_tensor_count(&ps->item[i].t) * (has_copy(&ps->item[i], bf16) ? 2 : 4);
    return bytes;
}

/* zero.copy rank: of each micro-batch every unit's values before its forward, and before its backward, but the last
 * one's, which are still there; with zero.reshard never once a step. The root's once a step. */
static ls_layout_calls gathered(const ls_layout *l, const ls_params *ps, bool bf16)
{
    const bool root = ps->n > 4 && !untied_head(ps), never = is(l, "zero.reshard", "never");
    const int units = units_of(ps, false) - root, local = local_of(l), times = local / number_of(l, "train.micro_batch", local);
    const int at_most = never ? 1 : 2 * times, last = never ? 0 : is(l, "zero.reshard", "always") ? 0 : times;
    int of_last = 1; /* parameters of the last unit */
    while (continues(ps, ps->n - of_last)) of_last++;
    const uint64_t all = read_bytes(ps, root, ps->n - root, bf16);
    const uint64_t least = read_bytes(ps, ps->n - of_last, of_last, bf16), once = root ? read_bytes(ps, 0, 1, bf16) : 0;
    return (ls_layout_calls){ .group = is_connected(l) ? "values" : "world", .coll = LS_ALL_GATHER,
                              .count = at_most * units - last + root,
                              .bytes = (uint64_t)at_most * all - (uint64_t)last * least + once };
}

/* Backwards of a step that are reduced. */
static int reductions(const ls_layout *l, int stage)
{
    const char *which = value_of(l, "zero.reduce");
    const int local = local_of(l), micro = number_of(l, "train.micro_batch", local);
    return stage < 2 || (which && strcmp(which, "last") == 0) ? 1 : local / micro;
}

/* zero.copy host on several nodes: after the step the ranks with the same place on their nodes bring each their rows of
 * every bucket, and in bf16 of what is read in f32 once more. */
static int between_nodes(const ls_layout *l, const ls_params *ps, int rank, bool at_units, bool bf16,
                         ls_layout_calls *out)
{
    int place[LS_LAYOUT_RANKS];
    uint64_t copies = 0, floats = 0;
    for (int r = 0; r < l->ranks; r++) {
        place[r] = 0;
        for (int q = 0; q < r; q++) place[r] += l->node[q] == l->node[r];
    }
    for (int r = 0; r < l->ranks; r++)
        for (int i = 0; i < ps->n && place[r] == place[rank]; i++) {
            const ls_param *p = &ps->item[i];
            const uint64_t rows = ls_shard_of((size_t)p->t.dim[0], r, l->ranks).count;
            const uint64_t elements = rows * (uint64_t)(ls_tensor_count(&p->t) / p->t.dim[0]);
            if (has_copy(p, bf16)) copies += 2 * elements;
            else floats += 4 * elements;
        }
    out[0] = (ls_layout_calls){ .group = "column", .coll = LS_ALL_GATHER, .count = at_units ? units_of(ps, bf16) : 1,
                                .bytes = bf16 ? copies : floats };
    if (value_of(l, "ddp.bucket_cap")) out[0].most = ps->n; /* buckets are small */
    out[1] = (ls_layout_calls){ .group = "column", .coll = LS_ALL_GATHER, .count = 1, .bytes = floats };
    return bf16 ? 2 : 1;
}

/* Data parallelism of W ranks, all of which call the same, per step:
 *
 *   zero.stage 0: gradients              all_reduce      each padded to a line, their bucket to W lines; over
 *                                                        connections every other bucket in the group "buckets"
 *   zero.stage 1: gradients              reduce_scatter  4 bytes per element
 *                 and new values         all_gather      4 bytes per element
 *        in bf16: copies of matrices     all_gather      2 bytes per element, per bucket
 *                 all else               all_gather      4 bytes per element, together
 *   zero.stage 2: as 1, with buckets for each unit alone, and gradients of every micro-batch
 *   zero.stage 3: as 2, and in place of new values two barriers of each node, before and after they are written, and on
 *                 several nodes the values in between, see between_nodes(); with zero.copy rank values of units, see
 *                 gathered()
 *   losses, labels, signals              all_gather      24 W bytes
 *   squares for the norm (W above 1)     all_reduce      8 bytes per parameter */
static int data_parallel(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const uint64_t w = (uint64_t)l->ranks;
    const int stage = number_of(l, "zero.stage", 0), times = reductions(l, stage);
    const bool small = value_of(l, "ddp.bucket_cap") != NULL, at_units = (stage >= 2 && !is(l, "zero.reduce", "last")) || is(l, "zero.copy", "rank");
    const char *dtype = value_of(l, "train.dtype");
    const bool bf16 = dtype && strcmp(dtype, "bf16") == 0, gathers = stage == 1 || stage == 2;
    uint64_t all = 0, padded = 0, copies = 0, floats = 0;
    int ncopies = 0, n = 0;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        const uint64_t nbytes = (uint64_t)ls_tensor_count(&p->t) * sizeof(float);
        all += nbytes;
        padded += up(nbytes, LINE);
        if (has_copy(p, bf16)) copies += nbytes / 2, ncopies++;
        else floats += nbytes;
    }
    if (stage == 0) out[n++] = buckets(LS_ALL_REDUCE, ps->n, padded, w * LINE, small);
    if (stage == 0 && small && is_connected(l)) { /* by turns, so one more of them in the first group at most */
        out[n] = out[n - 1];
        out[n - 1].most = (ps->n + 1) / 2;
        out[n].most = ps->n / 2;
        out[n - 1].bytes = out[n].bytes = w * LINE;
        out[n++].group = "buckets";
    }
    if (stage > 0) out[n++] = buckets(LS_REDUCE_SCATTER, ps->n * times, all * (uint64_t)times, 1, small);
    if (stage > 0) out[n - 1].count = times * (at_units ? units_of(ps, false) : 1);
    if (gathers && !bf16) out[n++] = buckets(LS_ALL_GATHER, ps->n, all, 1, small);
    if (gathers && bf16) out[n++] = buckets(LS_ALL_GATHER, ncopies, copies, 1, small);
    if (gathers) out[n - 1].count = at_units ? units_of(ps, bf16) : 1;
    if (gathers && bf16)
        out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_GATHER, .count = 1, .bytes = floats };
    if (stage == 3 && !is(l, "zero.copy", "rank"))
        out[n++] = (ls_layout_calls){ .group = l->node ? "node-ranks" : "world", .coll = LS_BARRIER, .count = 2 };
    if (stage == 3 && !is(l, "zero.copy", "rank") && l->node) n += between_nodes(l, ps, rank, at_units, bf16, out + n);
    if (is(l, "zero.copy", "rank")) out[n++] = gathered(l, ps, bf16);
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_GATHER, .count = 1, .bytes = TOLD * w };
    if (w > 1)
        out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_REDUCE,
                                      .count = (ps->n + SUMS_AT_ONCE - 1) / SUMS_AT_ONCE,
                                      .bytes = (uint64_t)ps->n * sizeof(double) };
    return n;
}

/* --- layouts ------------------------------------------------------------------------------------------------- */

static void ranks_divide_the_batch(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 4, 6 };
    for (size_t m = 0; m < COUNT(models); m++)
        for (size_t r = 0; r < COUNT(ranks); r++)
            assert_layout(&(ls_layout){ .ranks = ranks[r], .run = models[m], .calls = data_parallel }, F32);
}

static void ranks_have_shares_of_the_state(void **state)
{
    (void)state;
    static const char *const zero[][3] = { { "zero.stage", "1" }, { "zero.stage", "2" }, { "zero.stage", "3" } };
    static const int ranks[] = { 1, 2, 3, 4 };
    for (size_t i = 0; i < COUNT(models) * COUNT(zero); i++)
        for (size_t r = 0; r < COUNT(ranks); r++) {
            const ls_layout l = { .ranks = ranks[r], .run = models[i % COUNT(models)],
                                  .layout = zero[i / COUNT(models)], .calls = data_parallel };
            assert_layout(&l, F32);
        }
}

/* In bf16 another order of sums can change a copy by much more than a sum: the reference is the same number of ranks
 * without shards, whose sums are the same to the bit. Only the norm, in double, is added up from other pieces. */
static void in_bf16_shares_give_the_same_model(void **state)
{
    (void)state;
    static const char *const shares[][9] = {
        { "train.dtype", "bf16", "zero.stage", "1" },
        { "train.dtype", "bf16", "zero.stage", "1", "ddp.bucket_cap", "4KiB", "ddp.first_bucket", "1KiB" },
        { "train.dtype", "bf16", "zero.stage", "2" },
        { "train.dtype", "bf16", "zero.stage", "2", "ddp.bucket_cap", "4KiB", "ddp.first_bucket", "1KiB" },
        { "train.dtype", "bf16", "zero.stage", "3" },
        { "train.dtype", "bf16", "zero.stage", "3", "zero.reduce", "last" },
        { "train.dtype", "bf16", "zero.stage", "3", "zero.copy", "rank" },
    };
    static const char *const bf16[] = { "train.dtype", "bf16", NULL };
    static const int ranks[] = { 1, 2, 3, 4 };
    char why[1024];
    ls_layout_outcome *o = calloc(2, sizeof *o);
    assert_non_null(o);
    for (size_t m = 1; m < COUNT(models); m++) /* an mlp trains in f32 */
        for (size_t r = 0; r < COUNT(ranks); r++) {
            const ls_layout whole = { .ranks = ranks[r], .run = models[m], .layout = bf16 };
            if (ls_layout_train(&whole, false, &o[0]) < 0) fail_msg("%s", ls_last_error());
            for (size_t i = 0; i < COUNT(shares); i++) {
                ls_layout l = whole;
                l.layout = shares[i];
                l.calls = data_parallel;
                if (ls_layout_train(&l, false, &o[1]) < 0) fail_msg("%s", ls_last_error());
                if (!ls_layout_verdict(&l, 1e-12, &o[1], &o[0], why, sizeof why)) fail_msg("%s", why);
                assert_string_equal(o[1].rank[0].digest, o[0].rank[0].digest);
                ls_layout_outcome_free(&o[1]);
            }
            ls_layout_outcome_free(&o[0]);
        }
    free(o);
}

static void ways_to_carry_out_a_step_change_nothing(void **state)
{
    (void)state;
    static const char *const ways[][9] = {
        { "train.micro_batch", "1" },
        { "train.micro_batch", "2", "zero.stage", "1" },
        { "train.recompute", "full" },
        { "train.recompute", "selective", "zero.stage", "1" },
        { "train.pack_weights", "always", "train.micro_batch", "3" },
        { "ddp.overlap", "false" },
        { "ddp.bucket_cap", "4KiB", "ddp.first_bucket", "1KiB" },
        { "ddp.bucket_cap", "4KiB", "zero.stage", "1" },
        { "comm.transport", "tcp" },
        { "comm.transport", "tcp", "ddp.bucket_cap", "4KiB", "ddp.first_bucket", "1KiB" },
        { "comm.transport", "tcp", "zero.stage", "1" },
        { "comm.transport", "fault:shm", "zero.stage", "1" },
        { "comm.transport", "tcp", "zero.stage", "1", "comm.progress", "thread" },
        { "comm.progress", "thread", "zero.stage", "1" },
        { "comm.algo", "ring", "comm.transport", "tcp" },
        { "train.micro_batch", "2", "zero.stage", "2" },
        { "train.micro_batch", "2", "zero.stage", "2", "zero.reduce", "last" },
        { "train.recompute", "selective", "zero.stage", "2" },
        { "train.recompute", "full", "zero.stage", "3" },
        { "ddp.overlap", "false", "zero.stage", "2" },
        { "ddp.bucket_cap", "4KiB", "zero.stage", "2" },
        { "comm.transport", "tcp", "zero.stage", "2" },
        { "comm.progress", "thread", "zero.stage", "2" },
        { "train.micro_batch", "1", "zero.stage", "3" },
        { "ddp.overlap", "false", "zero.stage", "3" },
        { "ddp.bucket_cap", "4KiB", "zero.stage", "3" },
        { "comm.progress", "thread", "zero.stage", "3" },
        { "zero.stage", "3", "zero.copy", "rank" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.prefetch", "0" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.prefetch", "9", "train.micro_batch", "2" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.reshard", "always" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.reshard", "never", "train.micro_batch", "2" },
        { "zero.stage", "3", "zero.copy", "rank", "train.recompute", "full", "comm.transport", "tcp" },
        { "zero.stage", "3", "zero.copy", "rank", "comm.progress", "thread", "zero.reduce", "last" },
    };
    for (size_t i = 0; i < COUNT(ways); i++)
        assert_layout(&(ls_layout){ .ranks = 2, .run = gpt2, .layout = ways[i], .calls = data_parallel }, F32);
}

/* A head with a matrix of its own is the last unit, the embedding the first; nothing belongs to the root. */
static void an_untied_head_is_gathered_like_a_unit(void **state)
{
    (void)state;
    static const char *const ways[][9] = {
        { "zero.stage", "1" },
        { "zero.stage", "2" },
        { "zero.stage", "3" },
        { "zero.stage", "3", "zero.copy", "rank" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.reshard", "always" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.reshard", "never", "train.micro_batch", "2" },
        { "zero.stage", "3", "zero.copy", "rank", "train.micro_batch", "2", "train.recompute", "full" },
    };
    static const char *const *const untied[] = { gpt2_untied, llama_untied };
    for (size_t m = 0; m < COUNT(untied); m++)
        for (size_t i = 0; i < 2 * COUNT(ways); i++) {
            const ls_layout l = { .ranks = 2 + (int)(i % 2), .run = untied[m], .layout = ways[i / 2],
                                  .calls = data_parallel };
            assert_layout(&l, F32);
        }
}

/* --- several nodes ------------------------------------------------------------------------------------------ */

static const int two_by_two[] = { 0, 0, 1, 1 }, turns[] = { 0, 1, 0, 1 }, two_by_three[] = { 0, 0, 0, 1, 1, 1 };
static const int four_by_two[] = { 0, 0, 1, 1, 2, 2, 3, 3 }, apart[] = { 0, 1, 2 };
static const struct nodes {
    int ranks;
    const int *node;
    const char *batch;
} nodes[] = {
    { 4, two_by_two, "12" }, { 4, turns, "12" }, { 6, two_by_three, "12" }, { 8, four_by_two, "16" }, { 3, apart, "12" },
};

/* Trains `run` on the ranks of some nodes with up to 6 keys and their values more, in two ways, and compares what comes
 * out of them: collectives and memory of the second, and its losses, norms and weights with those of the first. */
static void compare(const char **run, const struct nodes *n, const char *const *more, const char *const first[4],
                    const char *const second[4], double tolerance)
{
    char why[1024];
    ls_layout_outcome *o = calloc(2, sizeof *o);
    assert_non_null(o);
    for (int i = 0; i < 2; i++) {
        const char *layout[24] = { "comm.transport", "mixed", "train.global_batch", n->batch };
        for (int k = 0; k < 4; k++) layout[4 + k] = i ? second[k] : first[k];
        for (int k = 0; k < 6 && more[k]; k++) layout[8 + k] = more[k];
        const ls_layout l = { .ranks = n->ranks, .run = run, .layout = layout, .node = n->node,
                              .calls = i ? data_parallel : NULL };
        if (ls_layout_train(&l, false, &o[i]) < 0) fail_msg("%s", ls_last_error());
        if (i && !ls_layout_verdict(&l, tolerance, &o[1], &o[0], why, sizeof why)) fail_msg("%s", why);
    }
    if (tolerance < 1e-10) assert_string_equal(o[1].rank[0].digest, o[0].rank[0].digest);
    for (int i = 0; i < 2; i++) ls_layout_outcome_free(&o[i]);
    free(o);
}

static const char *const plain[4] = { "zero.stage", "0", "zero.stage", "0" };
static const char *const stage_2[4] = { "zero.stage", "2", "zero.stage", "2" };
static const char *const by_rank[4] = { "zero.stage", "3", "zero.copy", "rank" };
static const char *const by_node[4] = { "zero.stage", "3", "zero.copy", "host" };

/* Where each rank gathers all values, sums are the same; only the norm is added up from other pieces, in double. */
static void nodes_have_one_copy_each(void **state)
{
    (void)state;
    static const char *const more[][6] = { { "train.dtype", "f32" },
                                           { "train.dtype", "bf16" },
                                           { "train.dtype", "f32", "train.micro_batch", "1" },
                                           { "train.dtype", "bf16", "ddp.bucket_cap", "4KiB" },
                                           { "train.dtype", "bf16", "train.micro_batch", "1", "comm.progress", "thread" } };
    for (size_t n = 0; n < COUNT(nodes); n++) {
        compare(mlp, &nodes[n], more[n % 2 * 2], by_rank, by_node, 1e-12);
        for (size_t i = 0; i < COUNT(more); i++)
            compare(n % 2 ? llama : gpt2, &nodes[n], more[i], by_rank, by_node, 1e-12);
        compare(gpt2, &nodes[n], more[0], plain, by_node, 1e-6); /* all_reduce adds in another order */
    }
}

/* Buckets are not those of zero.copy rank, but of stage 2. */
static void nodes_sum_the_last_backward(void **state)
{
    (void)state;
    static const char *const more[][6] = {
        { "zero.reduce", "last", "train.dtype", "f32", "train.micro_batch", "1" },
        { "zero.reduce", "last", "train.dtype", "bf16", "train.micro_batch", "1" },
    };
    for (size_t n = 0; n < COUNT(nodes); n++) compare(gpt2, &nodes[n], more[n % 2], stage_2, by_node, 1e-12);
}

/* --- the harness, broken ---------------------------------------------------------------------------------- */

static void another_run_is_seen(void **state)
{
    (void)state;
    static const struct {
        const char *layout[3], *says;
    } row[] = {
        { { "optim.lr", "0.0501" }, "step 2: loss" },
        { { "train.seed", "1" }, "step 1: loss" },
        { { "optim.weight_decay", "0.1" }, "step 2: norm" },
    };
    char why[1024];
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_layout l = { .ranks = 2, .run = gpt2, .layout = row[i].layout };
        assert_false(ls_layout_holds(&l, F32, why, sizeof why));
        if (!strstr(why, row[i].says)) fail_msg("'%s' is not in '%s'", row[i].says, why);
    }
    /* of a single step only the parameters tell */
    const ls_layout one_step = { .ranks = 2, .run = gpt2, .layout = row[0].layout, .steps = 1 };
    assert_false(ls_layout_holds(&one_step, F32, why, sizeof why));
    assert_non_null(strstr(why, "of the largest"));
    assert_false(ls_layout_holds(&(ls_layout){ .ranks = 5, .run = gpt2 }, F32, why, sizeof why));
    assert_non_null(strstr(why, "global_batch"));
}

/* --- its verdict: what was found, broken one way at a time ------------------------------------------------------- */

#define CHANGE(name, what) static void name(ls_layout_outcome *o) { what; }
CHANGE(nothing, (void)o)
CHANGE(more_state, o->rank[1].peak[LS_MEM_OPTIM] += 64)
CHANGE(less_to_talk_with, o->rank[1].peak[LS_MEM_COMM] -= 64)
CHANGE(more_to_talk_with, o->rank[1].peak[LS_MEM_COMM] += 64)
CHANGE(one_call_less, o->rank[1].group[0].real[LS_ALL_REDUCE].ops--)
CHANGE(a_float_more, o->rank[1].group[0].real[LS_ALL_GATHER].moved += 4)
CHANGE(another_kind, o->rank[1].group[0].real[LS_ALL_GATHER].ops--; o->rank[1].group[0].real[LS_BROADCAST].ops++)
CHANGE(a_group_of_its_own, o->rank[1].ops++)
CHANGE(norm_of_rank_1, o->rank[1].norm[0] *= 1.1)
CHANGE(values_of_rank_2, o->rank[2].digest[0] = 'x')

/* A sum over this rank alone, in place of one over all replicas. */
static void gradient_over_a_wrong_group(ls_layout_outcome *o)
{
    ls_layout_group *self = &o->rank[2].group[1];
    self->dry[LS_ALL_REDUCE].count = 1;
    self->dry[LS_ALL_REDUCE].bytes = 4096;
    self->real[LS_ALL_REDUCE].ops = 1;
}

static void gradient_in_no_group(ls_layout_outcome *o)
{
    o->rank[2].group[0].dry[LS_REDUCE_SCATTER].count = 0;
    o->rank[2].group[0].dry[LS_REDUCE_SCATTER].bytes = 0;
}

/* All ranks agree on it: a tenth of the squares is in it twice. */
static void norm_counts_a_shard_twice(ls_layout_outcome *o)
{
    for (int r = 0; r < o->ranks; r++) o->rank[r].norm[0] *= sqrt(1.1);
}

/* All ranks agree on it: they have trained from other first values than one rank does. */
static void first_values_by_a_local_index(ls_layout_outcome *o)
{
    for (int r = 0; r < o->ranks; r++) o->rank[r].loss[0] *= 1.001;
}

/* The first row of rank 1's part of a matrix, and the last of rank 0's, stand in each other's place. To be made twice:
 * the values are not a copy. */
static void wrong_part(ls_layout_outcome *o)
{
    const ls_param *p = &o->params.item[0];
    const int64_t row = p->t.dim[1], at = p->t.dim[0] / o->ranks * row;
    float *v = p->t.data;
    for (int64_t i = at; i < at + row; i++) {
        const float x = v[i];
        v[i] = v[i - row];
        v[i - row] = x;
    }
}

static int one_broadcast_more(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int n = data_parallel(l, ps, rank, out);
    out[n] = (ls_layout_calls){ .group = "world", .coll = LS_BROADCAST, .count = 1, .bytes = 8 };
    return n + 1;
}

static int gradients_over_tp(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int n = data_parallel(l, ps, rank, out);
    out[0].group = "tp";
    return n;
}

static int rank_1_sums_more(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int n = data_parallel(l, ps, rank, out);
    if (rank == 1) out[n - 1].bytes += 8;
    return n;
}

static void expect_verdict(const ls_layout *l, const ls_layout_outcome *got, const ls_layout_outcome *alone,
                           const char *says)
{
    char why[1024];
    const bool holds = ls_layout_verdict(l, F32, got, alone, why, sizeof why);
    if (holds && says) fail_msg("'%s' was expected, and it holds", says);
    if (!holds && !says) fail_msg("%s", why);
    if (!says) return;
    if (!strstr(why, says)) fail_msg("'%s' is not in '%s'", says, why);
    if (strncmp(why, "3 ranks, zero.stage 1: ", 23) != 0) fail_msg("no layout in '%s'", why);
}

static void whatever_is_broken_is_named(void **state)
{
    (void)state;
    static const struct {
        void (*change)(ls_layout_outcome *o);
        const char *says; /* NULL: it holds */
    } row[] = {
        { nothing, NULL },
        { less_to_talk_with, "rank 1: memory of kind comm: expected " },
        { more_to_talk_with, "rank 1: memory of kind comm: expected " },
        { more_state, "rank 1: memory of kind optim: expected " },
        { gradient_over_a_wrong_group, "rank 2: group self 2: all_reduce per step: expected 0 with 0 bytes together, by "
                                       "the closed form, found 1 with 4096, in a dry world" },
        { gradient_in_no_group, "rank 2: group world: reduce_scatter per step: expected 1 with " },
        { one_call_less, "rank 1: group world: all_reduce per step: expected 1, as in a dry world, found 0" },
        { another_kind, "rank 1: group world: all_gather per step: expected 2, as in a dry world, found 1" },
        { a_float_more, "rank 1: group world: all_gather: expected " },
        { a_group_of_its_own, "rank 1: groups outside its mesh: expected 0 collectives per step, found 1, of 0 bytes" },
        { norm_of_rank_1, "step 1: rank 1 has loss " },
        { norm_counts_a_shard_twice, "step 1: norm: expected loss " },
        { first_values_by_a_local_index, "step 1: loss: expected loss " },
        { values_of_rank_2, "rank 2 ends with the model x" },
    };
    static const struct {
        ls_layout_calls_fn calls;
        const char *says;
    } wrong[] = {
        { one_broadcast_more, "rank 0: group world: broadcast per step: expected 1 with 8 bytes together, by the "
                              "closed form, found 0 with 0, in a dry world" },
        { gradients_over_tp, "rank 0: group tp: expected 1 reduce_scatter per step, by the closed form, found no such" },
        { rank_1_sums_more, "rank 1: group world: all_reduce per step: expected 1 with " },
    };
    static const char *const zero[] = { "zero.stage", "1", NULL };
    ls_layout l = { .ranks = 3, .run = gpt2, .layout = zero, .calls = data_parallel };
    ls_layout_outcome *o = calloc(3, sizeof *o), *alone = o, *got = o + 1, *broken = o + 2;
    assert_non_null(o);
    if (ls_layout_train(&l, true, alone) < 0 || ls_layout_train(&l, false, got) < 0) fail_msg("%s", ls_last_error());
    for (size_t i = 0; i < COUNT(row); i++) {
        *broken = *got;
        row[i].change(broken);
        expect_verdict(&l, broken, alone, row[i].says);
    }
    assert_int_equal(got->params.item[0].t.ndim, 2);
    wrong_part(got);
    expect_verdict(&l, got, alone, ": element ");
    wrong_part(got);
    expect_verdict(&l, got, alone, NULL);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        l.calls = wrong[i].calls;
        expect_verdict(&l, got, alone, wrong[i].says);
    }
    ls_layout_outcome_free(alone);
    ls_layout_outcome_free(got);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_divide_the_batch),
        cmocka_unit_test(ranks_have_shares_of_the_state),
        cmocka_unit_test(in_bf16_shares_give_the_same_model),
        cmocka_unit_test(ways_to_carry_out_a_step_change_nothing),
        cmocka_unit_test(an_untied_head_is_gathered_like_a_unit),
        cmocka_unit_test(nodes_have_one_copy_each),
        cmocka_unit_test(nodes_sum_the_last_backward),
        cmocka_unit_test(another_run_is_seen),
        cmocka_unit_test(whatever_is_broken_is_named),
    };
    return cmocka_run_group_tests_name("layouts", tests, open_text, remove_text);
}
