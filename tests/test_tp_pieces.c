/* Ranks that divide layers and exchange products in pieces: the losses and weights of one rank and of one piece, with
 * as many collectives as pieces and the bytes of one piece, and how many pieces are worth it. */
#include "harness.h"
#include "harness_layout.h"
#include "harness_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/link.h"
#include "lockstep/place.h"
#include "lockstep/world.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define RECIPE "train.global_batch", "8", "optim.name", "sgd", "optim.momentum", "0.9", "optim.lr", "0.05", "optim.clip", "1"
#define LAYERS 2
#define WIDTH  32
#define TOKENS 16
#define LM(model) "model.name", model, "model.n_layer", "2", "model.n_head", "4", "model.d_model", "32", \
                  "model.seq_len", "16", "data.tokenizer", "char"
#define MOE LM("moe"), "model.d_ff", "40", "model.n_experts", "4", "model.top_k", "2"
#define TEXT "data.name", NULL, "data.path", NULL, NULL

static const char *gpt2[] = { RECIPE, LM("gpt2"), TEXT };
static const char *dropped[] = { RECIPE, LM("gpt2"), "model.embd_dropout", "0.1", "model.attn_dropout", "0.2", "model.resid_dropout",
                                 "0.1", TEXT };
static const char *llama[] = { RECIPE, LM("llama"), "model.n_kv_head", "4", TEXT };
static const char *grouped[] = { RECIPE, LM("llama"), "model.n_kv_head", "2", TEXT };
static const char *moe[] = { RECIPE, MOE, TEXT };
static const char *moe_shared[] = { RECIPE, MOE, "model.shared_expert", "24", TEXT };
static const char **const all[] = { gpt2, dropped, llama, grouped, moe, moe_shared };

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

#define assert_done(expr)                                                \
    do {                                                                 \
        if ((expr) < 0) fail_msg("%s: %s", #expr, ls_last_error());      \
    } while (0)
#define F32  2e-5
#define BF16 2e-2

/* --- beside one rank, and beside one piece ------------------------------------------------------------------- */

static void check(const char **run, int ranks, const char *const *layout, double tolerance)
{
    assert_layout(&(ls_layout){ .ranks = ranks, .run = run, .layout = layout }, tolerance);
}

/* All_reduces of a step of rank 0, in all groups, and the bytes of their vectors. */
static int sums_of(const ls_layout_outcome *o, uint64_t *bytes)
{
    int n = 0;
    *bytes = 0;
    for (int i = 0; i < o->rank[0].ngroups; i++) {
        n += o->rank[0].group[i].dry[LS_ALL_REDUCE].count;
        *bytes += o->rank[0].group[i].dry[LS_ALL_REDUCE].bytes;
    }
    return n;
}

static void assert_close(const char *what, double got, double want, double tolerance)
{
    const double off = got > want ? got - want : want - got, least = want < 0 ? -want : want;
    if (off > tolerance * least) fail_msg("%s: %.17g, and with one piece %.17g", what, got, want);
}

typedef struct pieces_row {
    int ranks;
    const char *tp, *pieces, *micro;
    int each; /* pieces that are called */
} pieces_row;

static ls_layout_outcome train(const char **run, const pieces_row *r, const char *pieces)
{
    const char *const layout[] = { "parallel.tp", r->tp, "train.micro_batch", r->micro, "parallel.tp_pieces", pieces, NULL };
    const ls_layout l = { .ranks = r->ranks, .run = run, .layout = layout };
    ls_layout_outcome o;
    check(run, r->ranks, layout, F32);
    assert_done(ls_layout_train(&l, false, &o));
    return o;
}

/* `products` per layer are divided, forward and backward. */
static void beside_one_piece(const char **run, const pieces_row *r, int products)
{
    ls_layout_outcome one = train(run, r, "1"), some = train(run, r, r->pieces);
    const int times = 8 / (r->ranks / atoi(r->tp)) / atoi(r->micro);
    uint64_t bytes, bytes_of_one;
    const int found = sums_of(&some, &bytes), before = sums_of(&one, &bytes_of_one);
    const int more = products * LAYERS * times * (r->each - 1);
    if (found != before + more) fail_msg("%s pieces: %d all_reduces, expected %d + %d", r->pieces, found, before, more);
    assert_int_equal(bytes, bytes_of_one);
    for (int s = 0; s < one.steps; s++) {
        assert_close("loss", some.rank[0].loss[s], one.rank[0].loss[s], 1e-6);
        assert_close("norm", some.rank[0].norm[s], one.rank[0].norm[s], 1e-5);
    }
    ls_layout_outcome_free(&one);
    ls_layout_outcome_free(&some);
}

static void pieces_change_neither_losses_nor_bytes(void **state)
{
    (void)state;
    static const pieces_row row[] = {
        { 2, "2", "2", "8", 2 },
        { 2, "2", "3", "8", 3 },
        { 2, "2", "16", "2", 16 },
        { 4, "4", "4", "4", 4 },
        { 4, "2", "5", "1", 5 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        beside_one_piece(gpt2, &row[i], 4);
        beside_one_piece(llama, &row[i], 4);
    }
    beside_one_piece(dropped, &row[1], 4);
    beside_one_piece(grouped, &row[3], 4);
}

/* Of a layer with experts the attention is divided in pieces. A shared expert is the first that reads the norm: its
 * gradient is the last. */
static void experts_are_summed_whole(void **state)
{
    (void)state;
    static const pieces_row row[] = { { 2, "2", "3", "8", 3 }, { 4, "2", "4", "2", 4 } };
    for (size_t i = 0; i < COUNT(row); i++) {
        beside_one_piece(moe, &row[i], 2);
        beside_one_piece(moe_shared, &row[i], 3);
    }
}

/* What shards, drops, repeats or delays a part of a step. */
static void with_all_that_a_step_can_do(void **state)
{
    (void)state;
    static const char *const ways[][10] = {
        { "zero.stage", "1" },
        { "zero.stage", "2", "train.micro_batch", "1" },
        { "zero.stage", "3" },
        { "zero.stage", "3", "zero.copy", "rank", "train.micro_batch", "2" },
        { "train.recompute", "selective", "zero.stage", "1" },
        { "train.recompute", "full" },
        { "train.pack_weights", "always", "train.micro_batch", "1" },
        { "comm.transport", "tcp" },
        { "comm.progress", "thread" },
        { "comm.transport", "tcp", "comm.progress", "thread", "train.recompute", "full", "zero.stage", "3", "zero.copy", "rank" },
        { "parallel.cp", "2" },
    };
    for (size_t w = 0; w < COUNT(ways); w++) {
        const char *layout[15] = { "parallel.tp", "2", "parallel.tp_pieces", w % 2 ? "3" : "8", NULL };
        for (int k = 0; k < 10 && ways[w][k]; k++) layout[4 + k] = ways[w][k];
        check(dropped, 4, layout, F32);
        check(w % 2 ? llama : grouped, 4, layout, F32);
    }
}

static void in_pipelines_and_in_bf16(void **state)
{
    (void)state;
    static const char *const ways[][8] = {
        { "parallel.pp", "2", "train.micro_batch", "2" },
        { "parallel.pp", "2", "train.micro_batch", "2", "pipeline.schedule", "zb-h1" },
        { "parallel.pp", "2", "train.micro_batch", "2", "pipeline.schedule", "zb-h1", "train.recompute", "full" },
        { "parallel.pp", "2", "train.micro_batch", "2", "pipeline.schedule", "gpipe", "train.recompute", "selective" },
    };
    for (size_t w = 0; w < COUNT(ways); w++) {
        const char *layout[13] = { "parallel.tp", "2", "parallel.tp_pieces", "4", NULL };
        for (int k = 0; k < 8 && ways[w][k]; k++) layout[4 + k] = ways[w][k];
        check(gpt2, 4, layout, F32);
        check(llama, 4, layout, F32);
    }
    static const char *const bf16[] = { "parallel.tp", "2", "parallel.tp_pieces", "4", "train.dtype", "bf16", NULL };
    check(gpt2, 2, bf16, BF16);
    check(moe_shared, 4, bf16, BF16);
}

/* --- how many are worth it ------------------------------------------------------------------------------------- */

static void pieces_follow_from_the_link(void **state)
{
    (void)state;
    static const struct {
        int tp, asked;
        bool sp;
        double message_ns, byte_ns;
        int64_t rows;
        size_t nbytes;
        int want;
    } row[] = {
        { 1, 0, false, 1e3, 1, 1024, 1 << 22, 1 },  /* nobody to exchange with */
        { 2, 0, false, 0, 0, 1024, 1 << 22, 1 },    /* no link that ranks wait for */
        { 2, 0, false, 1e5, 5, 1024, 1 << 22, 4 },  /* 21 ms beside 0.1 ms: as many as there are at most */
        { 2, 0, false, 1e5, 5, 300, 1 << 22, 4 },   /* 75 rows each */
        { 2, 0, false, 1e5, 5, 100, 1 << 22, 1 },   /* half of them would be 50 rows */
        { 2, 0, false, 1e5, 1, 1024, 1 << 22, 4 },  /* sqrt(4.2e6 / 2e5) = 4.6 */
        { 8, 0, false, 1e5, 1, 1024, 1 << 22, 2 },  /* sqrt(4.2e6 / 8e5) = 2.3 */
        { 2, 0, false, 1e5, 1, 1024, 1 << 16, 1 },  /* 66 us beside 0.1 ms */
        { 2, 0, true, 1e5, 5, 1024, 1 << 22, 1 },   /* nothing is divided */
        { 2, 16, false, 0, 0, 1024, 1 << 22, 16 },
        { 2, 16, false, 0, 0, 5, 1 << 22, 5 },      /* one row each */
        { 2, 1, false, 1e5, 5, 1024, 1 << 22, 1 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_place p = { .tp = { .size = row[i].tp }, .sequence_parallel = row[i].sp, .pieces = row[i].asked,
                             .link = { row[i].message_ns, row[i].byte_ns } };
        const int found = ls_tp_pieces(&p, row[i].rows, row[i].nbytes);
        if (found != row[i].want) fail_msg("row %zu: %d pieces, expected %d", i, found, row[i].want);
    }
}

static void ranks_wait_for_some_links_only(void **state)
{
    (void)state;
    static const int one[4] = { 0 }, two[4] = { 0, 0, 1, 1 };
    static const struct {
        const int *node;
        const char *transport;
        bool waits;
        double byte_ns; /* 0: any */
    } row[] = {
        { one, NULL, false, 0 },                            /* memory that they map */
        { one, "tcp", false, 0 },                           /* ranks copy the bytes */
        { one, "fault:tcp,delay=1ms@0", false, 0 },
        { one, "fault:tcp,rate=200MB/s@0-1", true, 5 },
        { one, "fault:tcp,rate=2MB/s", true, 500 },
        { one, "fault:tcp,rate=20MB/s@3,rate=1MB/s@0-3", true, 50 }, /* of two rates the first one */
        { two, NULL, true, 0 },
        { two, "tcp", true, 0 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const ls_world_opts o = { .transport = row[i].transport };
        ls_link_cost link;
        ls_world *w;
        assert_done(ls_world_dry(1, 4, row[i].node, &o, &w));
        const bool waits = ls_group_link(ls_world_group(w), &link);
        if (waits != row[i].waits) fail_msg("row %zu: %s", i, waits ? "a link" : "no link");
        const double off = waits && row[i].byte_ns > 0 ? link.beta_ns / row[i].byte_ns - 1 : 0;
        if (off < -0.001 || off > 0.001)
            fail_msg("row %zu: %g ns per byte, expected %g", i, link.beta_ns, row[i].byte_ns);
        ls_world_leave(w);
    }
}

/* 128 rows of 128 bytes take 16 ms at 1 MB/s: two pieces of 64 rows. In shared memory one. */
static void slow_links_get_pieces_by_themselves(void **state)
{
    (void)state;
    static const char *const slow[] = { "parallel.tp", "2", "comm.transport", "fault:tcp,rate=1MB/s", NULL };
    static const char *const memory[] = { "parallel.tp", "2", NULL };
    ls_layout_outcome o[2];
    uint64_t bytes[2];
    check(gpt2, 2, slow, F32);
    assert_done(ls_layout_train(&(ls_layout){ .ranks = 2, .run = gpt2, .layout = slow }, false, &o[0]));
    assert_done(ls_layout_train(&(ls_layout){ .ranks = 2, .run = gpt2, .layout = memory }, false, &o[1]));
    assert_int_equal(sums_of(&o[0], &bytes[0]), sums_of(&o[1], &bytes[1]) + 4 * LAYERS);
    assert_int_equal(bytes[0], bytes[1]);
    ls_layout_outcome_free(&o[0]);
    ls_layout_outcome_free(&o[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_change_neither_losses_nor_bytes),
        cmocka_unit_test(experts_are_summed_whole),
        cmocka_unit_test(with_all_that_a_step_can_do),
        cmocka_unit_test(in_pipelines_and_in_bf16),
        cmocka_unit_test(pieces_follow_from_the_link),
        cmocka_unit_test(ranks_wait_for_some_links_only),
        cmocka_unit_test(slow_links_get_pieces_by_themselves),
    };
    return cmocka_run_group_tests_name("products in pieces", tests, open_text, remove_text);
}
