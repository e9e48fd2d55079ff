/* Five steps of AdamW on a GPT-2 have the losses of PyTorch's FSDP2 (tests/golden/fsdp2.h), with each stage of ZeRO,
 * and those of its tensor, sequence and context parallelism and of its pipelines. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/tokens.h"
#include "golden/fsdp2.h"
#include "train/trainer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TOLERANCE 1e-5 /* of each loss: both sides round to float in every operation */

static char folder[64];

/* --- the samples ------------------------------------------------------------------------------------------- */

static int64_t token_of(int64_t i) { return (int64_t)(((uint64_t)i * 2654435761u & UINT32_MAX) >> 7) % FSDP2_VOCAB; }

/* A file of tokens has windows that share a token, the golden sequences share none: they take the place of what the
 * file has. */
static ls_status step_of_golden(ls_feed *f, int64_t step)
{
    ls_token_loader *l = f->token_loader;
    f->step = (ls_rows){ l->x, l->y, f->local, f->tokens, (size_t)f->rank * f->local, f->local };
    f->all = f->local * (size_t)f->size;
    f->counted = (int64_t)f->local * FSDP2_LENGTH;
    for (size_t b = 0; b < f->local; b++) {
        const int64_t at = (step * FSDP2_SEQUENCES + (int64_t)(f->step.first + b)) * (FSDP2_LENGTH + 1);
        int64_t *x = l->x + b * FSDP2_LENGTH, *y = l->y + b * FSDP2_LENGTH;
        for (int t = 0; t < FSDP2_LENGTH; t++) {
            x[t] = token_of(at + t);
            y[t] = token_of(at + t + 1);
        }
    }
    return LS_OK;
}

/* --- a run ----------------------------------------------------------------------------------------------------- */

typedef struct run {
    ls_train_config c;
    ls_opts *o;
    double loss[FSDP2_STEPS];
} run;

static ls_status one_rank(ls_world *w, void *arg)
{
    run *r = arg;
    ls_trainer *t;
    ls_step_stats stats;
    LS_TRY(ls_trainer_create_in(&r->c, w, NULL, &t));
    ls_feed_kind golden = *t->feed.kind;
    golden.step = step_of_golden;
    ls_status st = LS_OK;
    t->feed.kind = &golden;
    for (int s = 0; st == LS_OK && s < FSDP2_STEPS; s++) {
        st = ls_train_step(t, &stats);
        if (st == LS_OK && ls_world_rank(w) == 0) r->loss[s] = stats.loss;
    }
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

static ls_status set_all(ls_opts *o, const char *const *flags)
{
    for (; *flags; flags += 2) LS_TRY(ls_opts_set(o, flags[0], flags[1], "flag"));
    return LS_OK;
}

static ls_status configure(run *r, int ranks, const char *const *layout)
{
    static const char *const common[] = { "optim.name", "adamw", "optim.lr", "1e-2", "optim.weight_decay", "0.01", "optim.clip", "1",
                                          "train.global_batch", "4", "train.steps", "5", "comm.timeout", "20", NULL };
    char data[128];
    snprintf(data, sizeof data, "%s/train.bin", folder);
    LS_TRY(ls_opts_create(ls_train_opts, ls_train_nopts, &r->c, &r->o));
    LS_TRY(ls_opts_set(r->o, "model.load", LOCKSTEP_SOURCE "/tests/golden/fsdp2", "flag"));
    LS_TRY(ls_opts_set(r->o, "data.path", data, "flag"));
    LS_TRY(set_all(r->o, common));
    LS_TRY(set_all(r->o, layout));
    LS_TRY(ls_train_config_resolve(r->o, &r->c));
    LS_TRY(ls_train_config_check(&r->c, ranks));
    return ls_trainer_check(&r->c, ranks);
}

static void trains(int ranks, const char *const *layout, const char *by, const double *want)
{
    run r = { 0 };
    char name[256] = "";
    for (int i = 0; layout[i]; i++) snprintf(name + strlen(name), sizeof name - strlen(name), " %s", layout[i]);
    if (configure(&r, ranks, layout) < 0) fail_msg("%d ranks%s: %s", ranks, name, ls_last_error());
    if (ls_world_threads(ranks, NULL, one_rank, &r) < 0) fail_msg("%d ranks%s: %s", ranks, name, ls_last_error());
    for (int s = 0; s < FSDP2_STEPS; s++)
        if (!(fabs(r.loss[s] - want[s]) <= TOLERANCE))
            fail_msg("%d ranks%s: the loss of step %d is %.9g, %.9g by PyTorch's %s", ranks, name, s + 1, r.loss[s], want[s], by);
    ls_opts_destroy(r.o);
}

static void every_stage_has_the_losses_of_fsdp2(void **state)
{
    (void)state;
    static const char *const layout[][9] = {
        { "zero.stage", "0" },
        { "zero.stage", "1" },
        { "zero.stage", "2" },
        { "zero.stage", "2", "zero.reduce", "last", "train.micro_batch", "1" },
        { "zero.stage", "3" },
        { "zero.stage", "3", "train.micro_batch", "1", "train.recompute", "full" },
        { "zero.stage", "3", "zero.copy", "rank" },
        { "zero.stage", "3", "zero.copy", "rank", "zero.reshard", "never" },
        { "zero.stage", "3", "zero.copy", "rank", "train.micro_batch", "1", "ddp.bucket_cap", "4KiB" },
    };
    for (size_t i = 0; i < COUNT(golden_fsdp2); i++)
        for (size_t k = 0; k < COUNT(layout); k++) trains(golden_fsdp2[i].ranks, layout[k], "FSDP2", golden_fsdp2[i].loss);
}

#define PP2 "parallel.pp", "2", "train.micro_batch", "1", "pipeline.schedule"

/* Each beside the numbers of its own kind; tp and cp together beside those of tp. */
static void axes_have_the_losses_of_torch(void **state)
{
    (void)state;
    enum { TP, TP_SP, TP4_SP, CP, GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB, ZBV };
    static const struct { int ranks, golden; const char *layout[9]; } division[] = {
        { 2, TP, { "parallel.tp", "2" } },
        { 2, TP_SP, { "parallel.tp", "2", "parallel.sp", "true" } },
        { 4, TP4_SP, { "parallel.tp", "4", "parallel.sp", "true" } },
        { 2, CP, { "parallel.cp", "2" } },
        { 2, CP, { "parallel.cp", "2", "parallel.cp_split", "contiguous" } },
        { 2, CP, { "parallel.cp", "2", "parallel.context", "gather" } },
        { 2, CP, { "parallel.cp", "2", "parallel.context", "ulysses" } },
        { 4, TP_SP, { "parallel.tp", "2", "parallel.sp", "true", "parallel.cp", "2" } },
        { 8, TP, { "parallel.tp", "2", "parallel.cp", "2", "zero.stage", "3" } },
        { 2, GPIPE, { PP2, "gpipe" } },
        { 2, ONE_F_ONE_B, { PP2, "1f1b" } },
        { 2, INTERLEAVED, { PP2, "interleaved" } },
        { 2, ZB, { PP2, "zb-h1" } },
        { 2, ZBV, { PP2, "zb-v" } },
        { 2, ZBV, { PP2, "dualpipe-v" } },
        { 4, ONE_F_ONE_B, { "parallel.pp", "2", "zero.stage", "1", "train.micro_batch", "1" } },
        { 8, TP_SP, { "parallel.pp", "2", "parallel.tp", "2", "parallel.sp", "true", "train.micro_batch", "1" } },
    };
    for (size_t i = 0; i < COUNT(division); i++)
        trains(division[i].ranks, division[i].layout, golden_axes[division[i].golden].name,
               golden_axes[division[i].golden].loss);
}

/* --- a file of tokens, for the length of its windows ---------------------------------------------------------- */

static int make_tokens(void **state)
{
    (void)state;
    char path[128];
    ls_token_writer w;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-fsdp2-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/train.bin", folder);
    if (ls_token_writer_open(&w, path, LS_TOKENS_LLMC, FSDP2_VOCAB) < 0) return 1;
    for (uint32_t i = 0; i < 40 * FSDP2_LENGTH + 1; i++)
        if (ls_token_writer_add(&w, &(uint32_t){ i % FSDP2_VOCAB }, 1) < 0) return 1;
    const ls_status st = ls_token_writer_finish(&w);
    ls_token_writer_close(&w);
    return st < 0;
}

static int remove_tokens(void **state)
{
    (void)state;
    ls_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_has_the_losses_of_fsdp2),
        cmocka_unit_test(axes_have_the_losses_of_torch),
    };
    return cmocka_run_group_tests_name("train_fsdp2", tests, make_tokens, remove_tokens);
}
