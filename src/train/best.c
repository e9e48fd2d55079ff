/* best.c -- the best checkpoint by evaluation: which one it is, and the file that names it.
 *
 * An evaluation that finds a better value makes its step the best one at once, and a checkpoint of that step is saved,
 * which says so itself. If that save fails, the one before is the best again. The file `best` beside the checkpoints
 * has the name of the best one's folder; it is written when that checkpoint is durable, before older ones go.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "ckpt/steps.h"
#include "train/trainer.h"

enum { NONE, LOSS, ACCURACY }; /* ls_train_best.of: the order of checkpoint.best's words */

static int wanted(const ls_train_config *c)
{
    return strcmp(c->checkpoint.best, "loss") == 0 ? LOSS : strcmp(c->checkpoint.best, "accuracy") == 0 ? ACCURACY : NONE;
}

ls_status ls_best_open(ls_trainer *t)
{
    const int of = wanted(t->c);
    if (of != NONE && t->feed.test_samples == 0)
        return ls_fail(LS_BAD_CONFIG, "checkpoint.best %s: there is nothing to evaluate on: no val.bin is beside %s; set checkpoint.best "
                       "to none", t->c->checkpoint.best, t->source.train);
    t->best = (ls_train_best){ .of = of };
    if (t->begun > 0 && t->kept.best.of == of) t->best = t->kept.best; /* of another metric: unknown */
    t->best_before = t->best;
    return LS_OK;
}

bool ls_best_look(ls_trainer *t, const ls_eval *e)
{
    const double value = t->best.of == LOSS ? e->loss : e->accuracy;
    const bool first = t->best.step == 0;
    if (t->best.of == NONE || !e->done || !isfinite(value)) return false;
    if (!first && !(t->best.of == LOSS ? value < t->best.value : value > t->best.value)) return false;
    t->best_before = t->best;
    t->best = (ls_train_best){ .of = t->best.of, .step = t->step, .value = value };
    return true;
}

void ls_best_failed(ls_trainer *t, int64_t step)
{
    if (t->best.step == step) t->best = t->best_before;
}

void ls_best_path(const ls_trainer *t, char *out, size_t n)
{
    const char *dir = t->c->checkpoint.dir;
    if (*dir) snprintf(out, n, "%s/" LS_STEPS_BEST, dir);
    else snprintf(out, n, "%s/checkpoints/" LS_STEPS_BEST, t->run_dir);
}

ls_status ls_best_durable(ls_trainer *t, const char *folder, int64_t step)
{
    char path[400];
    ls_text text = { 0 };
    const char *slash = strrchr(folder, '/');
    if (t->best.of == NONE || t->best.step != step) return LS_OK;
    ls_best_path(t, path, sizeof path);
    ls_text_add(&text, "%s\n", slash ? slash + 1 : folder);
    ls_status st = ls_text_status(&text);
    if (st == LS_OK) st = ls_file_write(path, text.p, text.n);
    ls_text_free(&text);
    return st;
}

ls_status ls_best_adopt(ls_trainer *t)
{
    char folder[420], path[400];
    ls_file_info info;
    ls_best_path(t, path, sizeof path);
    snprintf(folder, sizeof folder, "%.*s/step-%08lld", (int)(strlen(path) - strlen("/" LS_STEPS_BEST)), path, (long long)t->best.step);
    const bool there = t->best.step > 0 && ls_env_get()->info(folder, &info) == 0 && info.type == LS_FILE_DIR;
    if (there) return ls_best_durable(t, folder, t->best.step);
    (void)ls_env_get()->unlink(path); /* it named a step that is taken again */
    return LS_OK;
}
