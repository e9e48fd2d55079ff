/* save.c -- checkpoints of a run, and its lines in the job's event file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "ckpt/hf.h"
#include "ckpt/state.h"
#include "ckpt/steps.h"
#include "launch/events.h"
#include "net/world.h"
#include "report/rundir.h"
#include "train/trainer.h"

void ls_train_event(ls_trainer *t, const char *what, int64_t step)
{
    char more[48];
    if (t->events_fd < 0) return;
    snprintf(more, sizeof more, ",\"step\":%lld", (long long)step);
    ls_event_line(t->events_fd, t->w->generation, what, ls_world_rank(t->w), more);
}

void ls_train_task(ls_trainer *t, ls_task_kind kind, const char *file)
{
    ls_task_slot *slot = &t->w->page->rank[ls_world_rank(t->w)].task;
    if (kind == LS_TASK_NONE) ls_task_end(slot);
    else ls_task_begin(slot, kind, t->c->checkpoint.timeout, file);
}

/* <dir>/step-XXXXXXXX of this run */
static ls_status folder_of(const ls_trainer *t, int64_t step, char *out, size_t n)
{
    const char *dir = t->c->checkpoint.dir;
    int k = *dir ? snprintf(out, n, "%s/step-%08lld", dir, (long long)step)
                 : snprintf(out, n, "%s/checkpoints/step-%08lld", t->run_dir, (long long)step);
    return k > 0 && (size_t)k < n ? LS_OK : ls_fail(LS_BAD_CONFIG, "checkpoint.dir is longer than %zu bytes", n - 16);
}

static ls_status remember(ls_trainer *t, int64_t step)
{
    if (t->nsaved > 0 && t->saved[t->nsaved - 1] == step) return LS_OK; /* written again */
    int64_t *p = realloc(t->saved, (size_t)(t->nsaved + 1) * sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "the list of checkpoints");
    t->saved = p;
    p[t->nsaved++] = step;
    return LS_OK;
}

/* Remembers the step, and deletes what this run has written before the newest checkpoint.keep, except the best one:
 * what others left in the same folder is theirs. */
static ls_status keep_newest(ls_trainer *t, int64_t step)
{
    LS_TRY(remember(t, step));
    for (int i = 0; (int64_t)(t->nsaved - i) > t->c->checkpoint.keep;) {
        char folder[320];
        if (t->saved[i] == t->best.step) {
            i++;
            continue;
        }
        LS_TRY(folder_of(t, t->saved[i], folder, sizeof folder));
        ls_commit_folder_remove(folder);
        memmove(t->saved + i, t->saved + i + 1, (size_t)(--t->nsaved - i) * sizeof *t->saved);
    }
    return LS_OK;
}

/* Names come newest first; t->saved has the oldest first. */
ls_status ls_train_adopt(ls_trainer *t)
{
    char folder[320], *slash, *names = malloc(LS_STEPS_NAMES_BYTES);
    if (!names) return ls_fail(LS_NO_MEMORY, "the names of checkpoints");
    ls_status st = folder_of(t, 0, folder, sizeof folder);
    if (st == LS_OK && (slash = strrchr(folder, '/'))) *slash = 0;
    const int count = st == LS_OK ? ls_env_get()->list(folder, names, LS_STEPS_NAMES_BYTES) : 0;
    for (const char *name = NULL; st == LS_OK && (name = ls_steps_newest(names, count, name));)
        if (ls_steps_number(name) <= t->begun) st = remember(t, ls_steps_number(name));
    for (int i = 0, k = t->nsaved - 1; i < k; i++, k--) {
        const int64_t step = t->saved[i];
        t->saved[i] = t->saved[k];
        t->saved[k] = step;
    }
    if (st == LS_OK && t->nsaved > 0) st = folder_of(t, t->saved[t->nsaved - 1], t->checkpoint, sizeof t->checkpoint);
    if (st == LS_OK) st = ls_best_adopt(t);
    free(names);
    return st;
}

/* A language model's sizes and special tokens: the tokenizer's end of text begins and ends a text, unless the loaded
 * model ended with the same token, and began with its own. */
static ls_status config_of(const ls_trainer *t, ls_hf_config *out)
{
    LS_TRY(ls_hf_config_of(&t->mc, out));
    const int64_t end = t->source.opened ? ls_tokenizer_end_of_text(t->source.opened) : -1;
    const bool loaded = end < 0 || t->special.eos == end;
    out->bos = loaded ? t->special.bos : end;
    out->eos = loaded ? t->special.eos : end;
    return LS_OK;
}

static ls_status write_text(const char *folder, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return ls_file_write(path, text, strlen(text));
}

/* The files that make the folder one of Hugging Face's, before the file that makes it a checkpoint. */
static ls_status write_companions(const ls_trainer *t, const char *folder, const ls_hf_config *c, const char *config)
{
    const ls_tokenizer *tokenizer = t->source.opened;
    char path[400], *text = NULL;
    LS_TRY(write_text(folder, "config.json", config));
    LS_TRY(ls_hf_generation_text(c, &text));
    ls_status st = write_text(folder, "generation_config.json", text);
    free(text);
    text = NULL;
    if (st < 0 || !tokenizer) return st;
    LS_TRY(ls_tokenizer_config_text(tokenizer, c->bos, c->eos, c->lm.seq_len, &text));
    st = write_text(folder, "tokenizer_config.json", text);
    free(text);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return st == LS_OK ? ls_tokenizer_save(tokenizer, path) : st;
}

/* An mlp's sizes, as model.dims has them. */
static void dims_text(const ls_trainer *t, ls_text *out)
{
    for (int i = 0; i < t->mc.ndims; i++) ls_text_add(out, "%s%lld", i ? "," : "", (long long)t->mc.dims[i]);
}

/* model.safetensors, whole, beside what each rank has written: every rank brings its part of the values. */
static ls_status write_model(const ls_trainer *t, const char *folder, ls_manifest *m)
{
    const ls_values values = ls_parallel_values(&t->par);
    const ls_params *ps = &t->par.model->params;
    char path[400], step[32];
    const char *meta[2 * LS_TRAIN_META + 3] = { "lockstep.step", step };
    ls_ckpt_sums sums;
    ls_hf_config hf = { 0 };
    if (ls_train_is_lm(t->c)) LS_TRY(config_of(t, &hf));
    if (!folder) return ls_hf_write_model(NULL, &hf.lm, ps, &values, NULL, NULL);
    memcpy(meta + 2, t->meta, sizeof t->meta);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(step, sizeof step, "%lld", (long long)t->step);
    LS_TRY(ls_hf_write_model(path, &hf.lm, ps, &values, meta, &sums));
    return ls_manifest_add(m, "model.safetensors", &sums);
}

/* What files say of the model, for who reads them without the run's configuration. */
ls_status ls_train_describe(ls_trainer *t)
{
    ls_hf_config hf;
    ls_text dims = { 0 };
    char *config = NULL;
    const bool lm = ls_train_is_lm(t->c);
    if (lm) {
        LS_TRY(config_of(t, &hf));
        LS_TRY(ls_hf_config_text(&hf, &config));
    } else {
        dims_text(t, &dims);
        LS_TRY(ls_text_status(&dims));
        config = dims.p; /* the trainer owns it now */
    }
    t->described = config;
    snprintf(t->seed, sizeof t->seed, "%lld", (long long)t->c->train.seed);
    const char *const meta[] = { "lockstep.seed", t->seed, "lockstep.model", t->c->model.name,
                                 lm ? "lockstep.config" : "lockstep.dims", config ? config : "",
                                 lm ? NULL : "lockstep.activation", t->c->model.activation, NULL };
    memcpy(t->meta, meta, sizeof meta);
    ls_state_set_meta(t->state, t->meta);
    return LS_OK;
}

static bool is_last(const ls_trainer *t) { return t->step == t->steps || t->stop_signal; }

static bool wants_model(const ls_trainer *t)
{
    const char *when = t->c->checkpoint.consolidate;
    return strcmp(when, "always") == 0 || (strcmp(when, "last") == 0 && is_last(t));
}

/* What is beside the ranks' files: the configuration, a language model's config.json and tokenizer. None of it changes
 * while a run goes on, so a thread may read it. */
static ls_status write_beside(void *arg, const char *folder)
{
    const ls_trainer *t = arg;
    ls_hf_config hf;
    LS_TRY(write_text(folder, "config.yaml", t->config));
    if (!ls_train_is_lm(t->c)) return LS_OK;
    LS_TRY(config_of(t, &hf));
    return write_companions(t, folder, &hf, t->described);
}

/* And on request the whole model. */
static ls_status write_companions_of(void *arg, const char *folder, ls_manifest *m)
{
    const ls_trainer *t = arg;
    const ls_status st = folder ? write_beside(arg, folder) : LS_OK;
    if (!wants_model(t)) return st;
    const ls_status written = write_model(t, folder, m); /* the others bring values, whatever happened before */
    return st < 0 ? st : written;
}

void ls_train_fill_kept(ls_trainer *t)
{
    t->kept = (ls_train_kept){
        .step = t->step, .seed = t->c->train.seed, .position = t->step * t->c->train.global_batch,
        .samples = (int64_t)t->feed.samples, .data = (int64_t)ls_feed_checksum(&t->feed), .clean = t->scaler.clean,
        .scale = (double)t->scaler.scale, .skipped = t->skipped, .loss = t->loss, .best = t->best,
    };
}

/* Before an older one is removed, the page has the new one. */
static ls_status is_durable(ls_trainer *t, const char *folder, int64_t step)
{
    if (!t->par.mesh.speaks) return LS_OK;
    snprintf(t->checkpoint, sizeof t->checkpoint, "%s", folder);
    ls_saved_write(&t->w->page->saved, t->checkpoint, step);
    ls_train_event(t, "ckpt_durable", step);
    if (ls_best_durable(t, folder, step) < 0) { /* the older ones stay, among them the one that the file names */
        ls_log(LS_LOG_WARN, "%s; training goes on, and older checkpoints stay", ls_last_error());
        return remember(t, step);
    }
    return keep_newest(t, step);
}

/* What every save of this step begins with; `folder` gets its name. */
static ls_status prepare_save(ls_trainer *t, char *folder, size_t n)
{
    LS_TRY(folder_of(t, t->step, folder, n));
    ls_train_fill_kept(t);
    ls_train_event(t, "ckpt_begin", t->step);
    ls_train_task(t, LS_TASK_SAVING, folder);
    return LS_OK;
}

/* The folder gets its name when everything in it is on the disk, and older ones go after that. */
ls_status ls_train_save(ls_trainer *t)
{
    char folder[320];
    LS_TRY(prepare_save(t, folder, sizeof folder));
    ls_status st = ls_state_save_with(t->state, folder, t->step, write_companions_of, t);
    if (st == LS_OK) st = is_durable(t, folder, t->step);
    ls_train_task(t, LS_TASK_NONE, NULL);
    return st < 0 ? st : ls_barrier(ls_world_group(t->w));
}

/* --- while training goes on ------------------------------------------------------------------------------ */

/* So that the launcher finds the temporary folder, should this rank be killed in a step. */
static ls_task_slot *meanwhile(const ls_trainer *t) { return &t->w->page->rank[ls_world_rank(t->w)].meanwhile; }

ls_status ls_train_save_begin(ls_trainer *t)
{
    char folder[320];
    LS_TRY(prepare_save(t, folder, sizeof folder));
    const ls_status st = ls_state_save_begin_with(t->state, folder, t->step, write_beside, t);
    ls_train_task(t, LS_TASK_NONE, NULL);
    t->saving = t->step;
    t->save_busy = true; /* until all ranks have told otherwise */
    if (st == LS_OK) ls_task_begin(meanwhile(t), LS_TASK_SAVING, t->c->checkpoint.timeout, folder);
    return st;
}

ls_status ls_train_save_advance(ls_trainer *t, bool wait)
{
    char folder[320];
    if (!ls_state_saving(t->state)) return LS_AGAIN;
    LS_TRY(folder_of(t, t->saving, folder, sizeof folder));
    if (wait) ls_train_task(t, LS_TASK_SAVING, folder);
    ls_status st = wait ? ls_state_save_wait(t->state) : ls_state_save_advance(t->state, t->save_busy);
    if (st != LS_AGAIN) ls_task_end(meanwhile(t));
    if (st == LS_OK) st = is_durable(t, folder, t->saving);
    if (wait) ls_train_task(t, LS_TASK_NONE, NULL);
    return st;
}

void ls_train_save_settle(ls_trainer *t)
{
    const ls_status st = ls_train_save_advance(t, true);
    if (st == LS_AGAIN || !t->par.mesh.speaks) return;
    ls_bar_clear(&t->bar);
    if (st == LS_OK) ls_say("checkpoint: %s", t->checkpoint);
    else ls_log(LS_LOG_WARN, "ckpt-failed: %s", ls_last_error());
}
