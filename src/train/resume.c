/* resume.c -- which checkpoint a run goes on from, and whether it may. */
#include "train/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/opts_text.h"
#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"
#include "ckpt/steps.h"

#define PATH_BYTES 1024

ls_status ls_train_kept_add(ls_state *s, ls_train_kept *k)
{
    const struct { const char *name; int64_t *p; } whole[] = {
        { "step", &k->step }, { "seed", &k->seed }, { "position", &k->position }, { "samples", &k->samples },
        { "data", &k->data }, { "clean", &k->clean }, { "skipped", &k->skipped },
        { "best_of", &k->best.of }, { "best_step", &k->best.step },
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) LS_TRY(ls_state_add_i64(s, whole[i].name, whole[i].p));
    LS_TRY(ls_state_add_f64(s, "scale", &k->scale));
    LS_TRY(ls_state_add_f64(s, "best", &k->best.value));
    return ls_state_add_f64(s, "loss", &k->loss);
}

/* --- which checkpoint ----------------------------------------------------------------------------------- */

bool ls_resume_asked(const ls_train_config *c) { return strcmp(c->checkpoint.resume, "never") != 0; }
bool ls_resume_in_place(const ls_train_config *c) { return strcmp(c->checkpoint.resume, "auto") == 0; }

ls_status ls_resume_again(ls_group *g, ls_train_again *out)
{
    const ls_env *env = ls_env_get();
    const char *dir = env->getenv("LOCKSTEP_RUN_DIR"), *saved = env->getenv("LOCKSTEP_CHECKPOINT");
    *out = (ls_train_again){ 0 };
    snprintf(out->run_dir, sizeof out->run_dir, "%s", dir ? dir : "");
    snprintf(out->checkpoint, sizeof out->checkpoint, "%s", saved ? saved : "");
    return ls_broadcast(g, out, sizeof *out, LS_U8, 0);
}

void ls_resume_folder(const ls_train_config *c, const ls_train_again *a, char *out, size_t n)
{
    if (*a->run_dir) snprintf(out, n, "%s", a->run_dir);
    else if (*c->run.dir) snprintf(out, n, "%s", c->run.dir);
    else snprintf(out, n, "runs/%s", c->run.name);
}

static bool exists(const char *format, const char *path, char out[PATH_BYTES])
{
    ls_file_info info;
    snprintf(out, PATH_BYTES, format, path);
    return ls_env_get()->info(out, &info) == 0 && info.type != LS_FILE_NONE;
}

/* A checkpoint's own folder; else the newest in a run's folder, or in a folder of checkpoints. Rank 0 looks, and the
 * others hear from it. */
static ls_status open_named(const char *path, ls_group *g, ls_checkpoint **out)
{
    char dir[PATH_BYTES], named[PATH_BYTES / 2];
    LS_TRY(ls_steps_resolve(path, named, sizeof named));
    path = named;
    int64_t is_one = ls_checkpoint_is_folder(path);
    LS_TRY(ls_hf_refuse_pickle(path, path));
    LS_TRY(ls_broadcast(g, &is_one, 1, LS_I64, 0));
    if (is_one) return ls_checkpoint_open_all(g, path, out);
    if (!exists("%s/checkpoints", path, dir)) snprintf(dir, sizeof dir, "%s", path);
    LS_TRY(ls_checkpoint_newest(g, dir, out));
    if (*out) return LS_OK;
    return ls_fail(LS_BAD_FILE, "checkpoint.resume %s: there is no checkpoint: name a run's folder, a folder step-XXXXXXXX in its "
                   "checkpoints, or auto", path);
}

/* The newest of this job. In checkpoint.dir there may be newer ones of other runs. */
static ls_status open_again(const ls_train_config *c, const ls_train_again *a, ls_group *g, ls_checkpoint **out)
{
    char dir[PATH_BYTES];
    if (!*a->checkpoint) return LS_OK;
    if (*c->checkpoint.dir) return ls_checkpoint_open_all(g, a->checkpoint, out);
    snprintf(dir, sizeof dir, "%s/checkpoints", a->run_dir);
    return ls_checkpoint_newest(g, dir, out);
}

/* Where a run that goes on in its folder has its checkpoints. */
static void own_dir(const ls_train_config *c, const ls_train_again *a, char dir[PATH_BYTES])
{
    char folder[PATH_BYTES / 2];
    ls_resume_folder(c, a, folder, sizeof folder);
    if (*c->checkpoint.dir) snprintf(dir, PATH_BYTES, "%s", c->checkpoint.dir);
    else snprintf(dir, PATH_BYTES, "%s/checkpoints", folder);
}

static ls_status open_durable(const ls_train_config *c, const ls_train_again *a, ls_group *g, ls_checkpoint **out)
{
    char dir[PATH_BYTES];
    LS_TRY(open_again(c, a, g, out));
    if (*out || !ls_resume_asked(c)) return LS_OK;
    if (!ls_resume_in_place(c)) return open_named(c->checkpoint.resume, g, out);
    own_dir(c, a, dir);
    return ls_checkpoint_newest(g, dir, out);
}

/* The step of the newest checkpoint of this run by its name, which need not be whole; -1: none. All ranks hear from
 * rank 0. */
static ls_status newest_named(const ls_train_config *c, const ls_train_again *a, ls_group *g, int64_t *step)
{
    const char *name = NULL, *slash = strrchr(a->checkpoint, '/');
    char dir[PATH_BYTES], *names = NULL;
    *step = -1;
    if (*a->run_dir && *c->checkpoint.dir) name = slash ? slash + 1 : NULL; /* others may have newer ones there */
    else if (ls_group_rank(g) == 0 && (names = malloc(LS_STEPS_NAMES_BYTES))) {
        own_dir(c, a, dir);
        name = ls_steps_newest(names, ls_env_get()->list(dir, names, LS_STEPS_NAMES_BYTES), NULL);
    }
    if (name) *step = ls_steps_number(name);
    free(names);
    return ls_broadcast(g, step, 1, LS_I64, 0);
}

/* Memory is tried first where it promises more, and last where the disk gave less than it promised. */
ls_status ls_resume_open(const ls_train_config *c, const ls_train_again *a, ls_snapshots *snapshots, ls_group *g,
                         ls_checkpoint **out)
{
    ls_checkpoint *newer = NULL;
    int64_t named = -1;
    *out = NULL;
    if (!snapshots) return open_durable(c, a, g, out);
    LS_TRY(newest_named(c, a, g, &named));
    LS_TRY(ls_snapshots_newest(snapshots, named, out));
    if (*out) return LS_OK;
    const ls_status st = open_durable(c, a, g, out);
    const int64_t found = *out ? ls_checkpoint_step(*out) : -1;
    if (st == LS_CKPT_CORRUPT || (st == LS_OK && found < named)) {
        char why[LS_ERROR_BYTES];
        snprintf(why, sizeof why, "%s", ls_last_error());
        LS_TRY(ls_snapshots_newest(snapshots, found, &newer));
        if (!newer) return st < 0 ? ls_fail(st, "%s", why) : st;
        ls_checkpoint_close(*out);
        *out = newer;
        return LS_OK;
    }
    return st;
}

/* --- is it the same run? ---------------------------------------------------------------------------------- */

/* How long a run is, who does what and where, what is reported, and where data and first values come from: the data are
 * compared with those of the checkpoint (ls_resume_check_data), and first values are not used. A name that ends with a
 * dot or an underscore stands for all that begin so. */
static const char *const may_change[] = {
    "train.steps", "train.epochs", "train.micro_batch", "train.recompute", "train.pack_weights", "train.eval_", "train.sample_",
    "parallel.", "ddp.", "zero.", "pipeline.", "checkpoint.", "log.", "trace.", "comm.", "run.", "memory.", "data.path",
    "data.workers", "model.load", "model.init",
};

static bool may(const char *key)
{
    for (size_t i = 0; i < sizeof may_change / sizeof *may_change; i++) {
        const char *name = may_change[i];
        const size_t n = strlen(name);
        const bool all = name[n - 1] == '.' || name[n - 1] == '_';
        if (all ? strncmp(key, name, n) == 0 : strcmp(key, name) == 0) return true;
    }
    return false;
}

/* Values that follow from others (of model.load, of the ranks) stand in the checkpoint's configuration as well. */
static ls_status compare(const ls_train_config *now, const ls_train_config *then, ls_text *refused, ls_text *changed)
{
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const ls_opt *row = &ls_train_opts[i];
        ls_text a = { 0 }, b = { 0 };
        if (!strchr(row->name, '.')) continue; /* a flag, not configuration */
        ls_opt_format(row, (const char *)then + row->offset, &a);
        ls_opt_format(row, (const char *)now + row->offset, &b);
        ls_text *to = may(row->name) ? changed : refused;
        const bool same = strcmp(ls_text_str(&a), ls_text_str(&b)) == 0;
        /* What the run prints anyway, such as its ranks and its stage, is not named among the changes. */
        const bool said = may(row->name) && strncmp(row->name, "train.", 6) != 0;
        if (!same && !said)
            ls_text_add(to, "%s%s %s -> %s", to->n ? ", " : "", row->name, *ls_text_str(&a) ? ls_text_str(&a) : "\"\"",
                        *ls_text_str(&b) ? ls_text_str(&b) : "\"\"");
        ls_text_free(&a);
        ls_text_free(&b);
    }
    LS_TRY(ls_text_status(refused));
    return ls_text_status(changed);
}

ls_status ls_resume_check(const ls_train_config *c, const ls_checkpoint *from, ls_text *changed)
{
    char path[PATH_BYTES];
    ls_train_config then;
    ls_opts *o = NULL;
    ls_text refused = { 0 };
    if (ls_checkpoint_is_foreign(from)) return LS_OK; /* it says nothing of a run */
    snprintf(path, sizeof path, "%s/config.yaml", ls_checkpoint_folder(from));
    ls_status st = ls_opts_create(ls_train_opts, ls_train_nopts, &then, &o);
    if (st == LS_OK) st = ls_opts_load_yaml(o, path);
    if (st < 0) st = ls_while(st, "reading the configuration of the run that saved");
    if (st == LS_OK) st = compare(c, &then, &refused, changed);
    if (st == LS_OK && refused.n > 0)
        st = ls_fail(LS_BAD_CONFIG, "the run that saved %s had another configuration (there -> here): %s. Give the same values; or begin "
                     "a new run with its weights: --checkpoint.resume never --model.load %s", ls_checkpoint_folder(from), refused.p,
                     ls_checkpoint_folder(from));
    ls_text_free(&refused);
    ls_opts_destroy(o);
    return st;
}

ls_status ls_resume_check_data(const ls_train_kept *k, const ls_feed *f, const ls_checkpoint *from)
{
    if (k->samples != (int64_t)f->samples)
        return ls_fail(LS_BAD_CONFIG, "the data set has %zu samples, and had %" PRId64 " when %s was saved: its samples would be in "
                       "another order; give the same data (data.path)", f->samples, k->samples, ls_checkpoint_folder(from));
    if (k->data != (int64_t)ls_feed_checksum(f))
        return ls_fail(LS_BAD_CONFIG, "the data set has as many samples as when %s was saved, but other ones: give the same data "
                       "(data.path)", ls_checkpoint_folder(from));
    return LS_OK;
}
