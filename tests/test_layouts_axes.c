/* Ranks that divide layers and sequences train the model that one rank trains: tensor, sequence and context
 * parallelism, alone, together, and with data parallelism (R110-R119, R131-R138). */
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
#define KV_HEADS 2 /* of `grouped` */
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

static const char *text_of(const ls_layout *l, const char *key, const char *def)
{
    for (const char *const *f = l->layout; f && *f; f += 2)
        if (strcmp(f[0], key) == 0) return f[1];
    return def;
}

enum { DP, CP, TP, AXES };
#define ALONG(axis) (1u << (axis))

/* What the group of the ranks along some axes is called. */
static const char *group_of(const int size[AXES], unsigned along)
{
    static const char *const name[1 << AXES] = { "self", "dp", "cp", "dp-cp", "tp", "dp-tp", "cp-tp", "world" };
    unsigned wide = 0;
    for (int a = 0; a < AXES; a++) wide |= size[a] > 1 ? ALONG(a) : 0;
    along &= wide;
    return along == wide ? "world" : name[along];
}

static bool is_of_keys(const char *name) { return strstr(name, "k_proj") || strstr(name, "v_proj"); }

/* Bytes of the gradients of a rank with place `at` along tp, each padded to a line; of those that no rank divides; and
 * of those that `copies` ranks have alike, if there are several. */
static uint64_t gradients(const ls_params *ps, int tp, int at, int copies, uint64_t *whole, uint64_t *twins)
{
    uint64_t padded = 0;
    *whole = *twins = 0;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        uint64_t elements = (uint64_t)ls_tensor_count(&p->t);
        if (!is_divided(p->name)) *whole += 4 * elements;
        else if (strstr(p->name, "wte") || strstr(p->name, "embed_tokens") || strstr(p->name, "lm_head"))
            elements = ls_shard_of((size_t)p->t.dim[0], at, tp).count * (uint64_t)p->t.dim[1];
        else if (copies > 1 && is_of_keys(p->name)) elements /= KV_HEADS, *twins += 4 * elements;
        else elements /= (uint64_t)tp;
        padded += (4 * elements + 63) / 64 * 64;
    }
    return padded;
}

/* Of tensor parallelism per step: all micro-batches together have `rows` tokens here, with C channels of 4 bytes.
 *
 *   enter    before both products of a layer's halves, and before the head
 *   leave    after them, and after the embedding
 *
 *                 forward                                     backward
 *   tp            all_reduce at 2 L + 1 leaves                all_reduce at 2 L + 1 enters
 *   and sp        all_gather at 2 L + 1 enters,               reduce_scatter at 2 L + 1 enters,
 *                 reduce_scatter at 2 L + 1 leaves            all_gather at 2 L + 1 leaves, and again at 2 L enters
 *   both          all_reduce of the largest logits, 8 bytes a token, and of two sums, 16 bytes, in backward
 *
 * and once a step with sp the gradients of what no rank divides. */
static int of_tp(const char *group, bool sp, int times, uint64_t rows, uint64_t whole, ls_layout_calls *out)
{
    const int ends = 2 * (2 * LAYERS + 1), gathers = ends + 2 * LAYERS;
    const uint64_t each = rows * WIDTH * 4, bytes = (uint64_t)ends * each;
    int n = 0;
    out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_REDUCE, .count = 2 * times, .bytes = 24 * rows };
    if (!sp) {
        out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_REDUCE, .count = ends * times, .bytes = bytes };
        return n;
    }
    out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_GATHER, .count = gathers * times,
                                  .bytes = (uint64_t)gathers * each };
    out[n++] = (ls_layout_calls){ .group = group, .coll = LS_REDUCE_SCATTER, .count = ends * times, .bytes = bytes };
    out[n++] = (ls_layout_calls){ .group = group, .coll = LS_ALL_REDUCE, .count = 1, .bytes = whole };
    return n;
}

/* Of context parallelism per step, in each layer and micro-batch, where a rank has `rows` tokens, K channels of keys
 * and C of queries (those of its heads, with tp):
 *
 *   ring       P - 1 times keys and values to the next rank, and from the one before; twice (forward, backward), and in
 *              backward P times their gradients: messages of 2 K rows 4 bytes
 *   gather     two all_gathers and a reduce_scatter of 2 K P rows 4 bytes
 *   ulysses    four all_to_alls: forward (C + 2 K) rows 4 bytes and C rows 4 bytes, backward the same
 *
 * and ulysses-ring those of ulysses among U ranks, and of a ring of P / U: U times the tokens, and of them 1 / U of the
 * channels. */
static int of_cp(const char *group, const char *how, int P, int times, uint64_t rows, uint64_t C, uint64_t K,
                 ls_layout_calls *out)
{
    if (strcmp(how, "ulysses-ring") == 0) {
        const int n = of_cp("exchange", "ulysses", 2, times, rows, C, K, out);
        return n + of_cp("ring", "ring", P / 2, times, 2 * rows, C / 2, K / 2, out + n);
    }
    const int each = LAYERS * times;
    const uint64_t kv = 2 * K * rows * 4 * LAYERS; /* of all layers and micro-batches */
    if (strcmp(how, "ring") == 0) {
        out[0] = (ls_layout_calls){ .group = group, .coll = LS_SENDRECV, .count = 2 * (3 * P - 2) * each,
                                    .bytes = 2 * (3 * (uint64_t)P - 2) * kv };
        return 1;
    }
    if (strcmp(how, "gather") == 0) {
        out[0] = (ls_layout_calls){
            .group = group, .coll = LS_ALL_GATHER, .count = 2 * each, .bytes = 2 * (uint64_t)P * kv
        };
        out[1] =
            (ls_layout_calls){ .group = group, .coll = LS_REDUCE_SCATTER, .count = each, .bytes = (uint64_t)P * kv };
        return 2;
    }
    out[0] = (ls_layout_calls){ .group = group, .coll = LS_ALL_TO_ALL, .count = 4 * each,
                                .bytes = 2 * (2 * C + 2 * K) * rows * 4 * LAYERS };
    return 1;
}

static bool has_shared_keys(const ls_layout *l) { return l->run == grouped; }

/* DDP over dp x cp, tp and cp; without recompute. */
static int divided(const ls_layout *l, const ls_params *ps, int rank, ls_layout_calls *out)
{
    const int tp = number_of(l, "parallel.tp", 1), cp = number_of(l, "parallel.cp", 1), dp = l->ranks / tp / cp;
    const int local = 8 / dp, micro = number_of(l, "train.micro_batch", local), times = local / micro;
    const int size[AXES] = { dp, cp, tp };
    const uint64_t rows = (uint64_t)(local * TOKENS / cp), lines = 64 * (uint64_t)(dp * cp);
    const uint64_t C = (uint64_t)(WIDTH / tp), K = has_shared_keys(l) && tp <= KV_HEADS ? C / 2 : C;
    const int copies = has_shared_keys(l) && tp > KV_HEADS ? tp / KV_HEADS : 1;
    uint64_t whole, twins;
    const uint64_t padded = gradients(ps, tp, rank % tp, copies, &whole, &twins);
    int n = 0;
    if (tp > 1) n += of_tp(group_of(size, ALONG(TP)), number_of(l, "parallel.sp", 0), times, rows, whole, out + n);
    if (copies > 1) out[n++] = (ls_layout_calls){ .group = "twins", .coll = LS_ALL_REDUCE, .count = 1, .bytes = twins };
    if (cp > 1) n += of_cp(group_of(size, ALONG(CP)), text_of(l, "parallel.context", "ring"), cp, times, rows, C, K, out + n);
    out[n++] = (ls_layout_calls){ .group = group_of(size, ALONG(DP) | ALONG(CP)), .coll = LS_ALL_REDUCE, .count = 1,
                                  .bytes = (padded + lines - 1) / lines * lines };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_GATHER, .count = 1, .bytes = 48 * (uint64_t)l->ranks };
    out[n++] = (ls_layout_calls){ .group = "world", .coll = LS_ALL_REDUCE, .count = 1, .bytes = 8 * (uint64_t)ps->n };
    return n;
}

/* --- layouts ------------------------------------------------------------------------------------------------- */

typedef struct division {
    int ranks;
    const char *layout[11];
} division;

static void check(const char **run, const division *d, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_layout(&(ls_layout){ .ranks = d[i].ranks, .run = run, .layout = d[i].layout, .calls = divided }, F32);
}

static void ranks_divide_the_layers(void **state)
{
    (void)state;
    static const division tp[] = {
        { 2, { "parallel.tp", "2" } },
        { 4, { "parallel.tp", "4" } },
        { 2, { "parallel.tp", "2", "parallel.sp", "true" } },
        { 4, { "parallel.tp", "4", "parallel.sp", "true" } },
        { 4, { "parallel.tp", "2" } },
        { 8, { "parallel.tp", "2", "parallel.sp", "true", "train.micro_batch", "1" } },
    };
    static const char **const run[] = { gpt2, llama, gpt2_untied, dropped };
    for (size_t m = 0; m < COUNT(run); m++) check(run[m], tp, COUNT(tp));
}

static void ranks_divide_the_sequences(void **state)
{
    (void)state;
    static const division cp[] = {
        { 2, { "parallel.cp", "2" } },
        { 4, { "parallel.cp", "4" } },
        { 4, { "parallel.cp", "4", "parallel.cp_split", "contiguous" } },
        { 4, { "parallel.cp", "2", "train.micro_batch", "1" } },
        { 2, { "parallel.cp", "2", "parallel.context", "gather" } },
        { 4, { "parallel.cp", "4", "parallel.context", "gather", "parallel.cp_split", "contiguous" } },
        { 8, { "parallel.cp", "4", "parallel.context", "gather", "train.micro_batch", "2" } },
        { 2, { "parallel.cp", "2", "parallel.context", "ulysses" } },
        { 4, { "parallel.cp", "4", "parallel.context", "ulysses" } },
        { 2, { "parallel.cp", "2", "parallel.context", "ulysses", "parallel.cp_split", "contiguous" } },
        { 4, { "parallel.cp", "4", "parallel.context", "ulysses-ring" } },
        { 8, { "parallel.cp", "4", "parallel.context", "ulysses-ring", "parallel.cp_split", "contiguous", "train.micro_batch", "2" } },
    };
    static const char **const run[] = { gpt2, llama, dropped };
    for (size_t m = 0; m < COUNT(run); m++) check(run[m], cp, COUNT(cp));
    check(grouped, cp, 4);
    check(grouped, cp + COUNT(cp) - 2, 2);
}

static void ranks_divide_both(void **state)
{
    (void)state;
    static const division both[] = {
        { 4, { "parallel.tp", "2", "parallel.cp", "2" } },
        { 4, { "parallel.tp", "2", "parallel.cp", "2", "parallel.sp", "true", "parallel.context", "gather" } },
        { 4, { "parallel.tp", "2", "parallel.cp", "2", "parallel.sp", "true", "parallel.context", "ulysses" } },
        { 8, { "parallel.tp", "2", "parallel.cp", "2", "parallel.sp", "true", "parallel.cp_split", "contiguous" } },
        { 8, { "parallel.tp", "2", "parallel.cp", "4", "parallel.sp", "true", "parallel.context", "ulysses-ring" } },
    };
    static const char **const run[] = { gpt2, grouped, dropped };
    for (size_t m = 0; m < COUNT(run); m++) check(run[m], both, m == 1 ? 2 : COUNT(both));
}

/* More ranks than heads of keys: two have each of them, and gradients of what both have are added up. */
static void ranks_share_heads_of_keys(void **state)
{
    (void)state;
    static const division tp[] = {
        { 4, { "parallel.tp", "4" } },
        { 4, { "parallel.tp", "4", "parallel.sp", "true" } },
        { 8, { "parallel.tp", "4", "parallel.sp", "true", "train.micro_batch", "1" } },
        { 8, { "parallel.tp", "4", "parallel.cp", "2" } },
    };
    check(grouped, tp, COUNT(tp));
    static const char *const ways[][10] = {
        { "parallel.tp", "4", "zero.stage", "1" },
        { "parallel.tp", "4", "zero.stage", "2", "train.micro_batch", "1" },
        { "parallel.tp", "4", "parallel.sp", "true", "zero.stage", "3", "zero.copy", "rank" },
        { "parallel.tp", "4", "comm.transport", "tcp", "train.recompute", "full" },
    };
    for (size_t w = 0; w < COUNT(ways); w++)
        assert_layout(&(ls_layout){ .ranks = 8, .run = grouped, .layout = ways[w] }, F32);
}

/* A width that ranks divide into 49 and 48. */
static void parts_need_not_be_equal(void **state)
{
    (void)state;
    static const char *const two[] = { "parallel.tp", "2", NULL }, *const sp[] = { "parallel.tp", "2", "parallel.sp", "true", NULL };
    assert_layout(&(ls_layout){ .ranks = 2, .run = odd, .layout = two }, F32);
    assert_layout(&(ls_layout){ .ranks = 4, .run = odd, .layout = sp }, F32);
}

/* What shards, drops or repeats a part of a step, in products of the axes. */
static void with_all_that_a_step_can_do(void **state)
{
    (void)state;
    static const char *const axes[][8] = {
        { "parallel.tp", "2", "parallel.sp", "true" },
        { "parallel.cp", "2" },
        { "parallel.tp", "2", "parallel.cp", "2", "parallel.context", "gather" },
        { "parallel.cp", "2", "parallel.context", "ulysses" },
        { "parallel.cp", "4", "parallel.context", "ulysses-ring" },
    };
    static const char *const ways[][8] = {
        { "zero.stage", "1" },
        { "zero.stage", "2", "train.micro_batch", "1" },
        { "zero.stage", "3" },
        { "zero.stage", "3", "zero.copy", "rank", "train.micro_batch", "2" },
        { "train.recompute", "selective", "zero.stage", "1" },
        { "train.recompute", "full" },
        { "comm.transport", "tcp" },
        { "comm.progress", "thread" },
        { "train.recompute", "full", "zero.stage", "3", "zero.copy", "rank", "comm.transport", "tcp" },
    };
    for (size_t a = 0; a < COUNT(axes); a++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            const char *layout[17] = { NULL };
            int n = 0;
            for (int k = 0; k < 8 && axes[a][k]; k++) layout[n++] = axes[a][k];
            for (int k = 0; k < 8 && ways[w][k]; k++) layout[n++] = ways[w][k];
            assert_layout(&(ls_layout){ .ranks = a == 2 ? 8 : 4, .run = a % 2 ? llama : dropped, .layout = layout },
                          F32);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_divide_the_layers),
        cmocka_unit_test(ranks_divide_the_sequences),
        cmocka_unit_test(ranks_divide_both),
        cmocka_unit_test(ranks_share_heads_of_keys),
        cmocka_unit_test(parts_need_not_be_equal),
        cmocka_unit_test(with_all_that_a_step_can_do),
    };
    return cmocka_run_group_tests_name("layouts of axes", tests, open_text, remove_text);
}
