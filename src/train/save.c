/* save.c -- checkpoints of a run, and its lines in the job's event file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/file.h"
#include "launch/events.h"
#include "net/world.h"
#include "report/rundir.h"
#include "train/trainer.h"

void ls_train_event(ls_trainer *t, const char *what)
{
    char more[48];
    if (t->events_fd < 0) return;
    snprintf(more, sizeof more, ",\"step\":%lld", (long long)t->step);
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

/* Remembers the step, and deletes the oldest this run has written beyond checkpoint.keep: what others
 * left in the same folder is theirs. */
static ls_status keep_newest(ls_trainer *t)
{
    if (t->nsaved > 0 && t->saved[t->nsaved - 1] == t->step) return LS_OK; /* written again */
    int64_t *p = realloc(t->saved, (size_t)(t->nsaved + 1) * sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "the list of checkpoints");
    t->saved = p;
    p[t->nsaved++] = t->step;
    while ((int64_t)t->nsaved > t->c->checkpoint.keep) {
        char folder[320];
        LS_TRY(folder_of(t, p[0], folder, sizeof folder));
        ls_commit_folder_remove(folder);
        memmove(p, p + 1, (size_t)--t->nsaved * sizeof *p);
    }
    return LS_OK;
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

static ls_status write_files(const ls_trainer *t, const char *folder)
{
    const ls_train_config *c = t->c;
    char path[400], step[32], seed[32], *config = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(step, sizeof step, "%lld", (long long)t->step);
    snprintf(seed, sizeof seed, "%lld", (long long)c->train.seed);
    ls_hf_config hf;
    ls_text dims = { 0 };
    if (ls_train_is_lm(c)) {
        LS_TRY(config_of(t, &hf));
        LS_TRY(ls_hf_config_text(&hf, &config));
    }
    dims_text(t, &dims);
    const char *meta[] = { "lockstep.step", step, "lockstep.seed", seed, "lockstep.model", c->model.name,
                           config ? "lockstep.config" : "lockstep.dims", config ? config : ls_text_str(&dims),
                           config ? NULL : "lockstep.activation", c->model.activation, NULL };
    ls_status st = ls_text_status(&dims);
    if (st == LS_OK && config) st = write_companions(t, folder, &hf, config);
    const ls_values values = ls_ddp_values(t->par.ddp);
    if (st == LS_OK) st = ls_ckpt_save_of(path, &t->par.model->params, &values, meta);
    free(config);
    ls_text_free(&dims);
    return st;
}

/* The folder gets its name when everything in it is on the disk, and older ones go after that. */
static ls_status write_checkpoint(ls_trainer *t)
{
    char folder[320];
    ls_commit_folder *c = NULL;
    LS_TRY(folder_of(t, t->step, folder, sizeof folder));
    ls_train_event(t, "ckpt_begin");
    ls_train_task(t, LS_TASK_SAVING, folder);
    ls_status st = ls_commit_folder_create(folder, &c);
    if (st == LS_OK) st = write_files(t, ls_commit_folder_path(c));
    if (st == LS_OK) st = ls_commit_folder_finish(c, true);
    ls_commit_folder_destroy(c);
    if (st == LS_IO) st = ls_fail(LS_CKPT_FAILED, "%s", ls_last_error());
    if (st < 0) return ls_while(st, "saving step %lld", (long long)t->step);
    snprintf(t->checkpoint, sizeof t->checkpoint, "%s/model.safetensors", folder);
    ls_saved_write(&t->w->page->saved, t->checkpoint, t->step);
    ls_train_event(t, "ckpt_durable");
    st = keep_newest(t);
    ls_train_task(t, LS_TASK_NONE, NULL);
    return st;
}

ls_status ls_train_save(ls_trainer *t)
{
    const ls_values values = ls_ddp_values(t->par.ddp);
    if (t->par.mesh.speaks) LS_TRY(write_checkpoint(t));
    else LS_TRY(ls_ckpt_save_of(NULL, &t->par.model->params, &values, NULL)); /* which may need what this rank has */
    return ls_barrier(ls_world_group(t->w)); /* every rank sees the finished file */
}
