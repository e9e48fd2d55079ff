/* reshard.c -- writes the files of N ranks, one after another, out of a checkpoint of any number of ranks. */
#include "ckpt/reshard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "ckpt/bytes.h"
#include "ckpt/checkpoint.h"
#include "ckpt/saving.h"
#include "ckpt/state.h"
#include "lockstep/group.h"

typedef struct work {
    ls_checkpoint *from; /* borrowed */
    int ranks;
    ls_saving saving;
    const char *meta[2 * LS_SHARD_META + 1]; /* borrowed from a file's header */
} work;

/* What the ranks' files say of the model. Each file's own keys are written anew. */
static void take_meta(work *w)
{
    static const char *const own[] = { "lockstep.version", "lockstep.header", "lockstep.step", "lockstep.rank", "lockstep.save" };
    const ls_ckpt_header *h = &w->from->file[0].header;
    size_t n = 0;
    for (size_t i = 0; i < h->nmeta && n < LS_SHARD_META; i++) {
        const char *key = h->meta[i].key;
        bool skip = strncmp(key, "lockstep.", 9) != 0 || strncmp(key, "lockstep.xxh3.", 14) == 0;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) skip |= strcmp(key, own[k]) == 0;
        if (skip) continue;
        w->meta[2 * n] = key;
        w->meta[2 * n++ + 1] = h->meta[i].value;
    }
    w->meta[2 * n] = NULL;
}

/* The box of rank r: rows, elements of a vector; of a number, and of what a program has added, all or nothing. */
static bool box_of(const work *w, const ls_checkpoint_tensor *t, int r, int64_t *first, int64_t *count)
{
    const bool whole = t->ndim == 0 || strncmp(t->name, LS_STATE_OWN, sizeof LS_STATE_OWN - 1) == 0;
    for (int d = 0; d < t->ndim; d++) first[d] = 0, count[d] = t->dim[d];
    if (whole) return r == 0;
    const ls_range rows = ls_shard_of((size_t)t->dim[0], r, w->ranks);
    first[0] = (int64_t)rows.first;
    count[0] = (int64_t)rows.count;
    return rows.count > 0;
}

static ls_status put_box(work *w, ls_shards *f, const ls_checkpoint_tensor *t, int r, void **data)
{
    int64_t first[LS_CKPT_MAX_DIMS] = { 0 }, count[LS_CKPT_MAX_DIMS] = { 0 };
    size_t elements = 1;
    if (t->ndim > LS_MAX_DIMS || ls_dtype_size(t->dtype) == 0 || strlen(t->name) >= LS_SHARD_NAME)
        return ls_fail(LS_UNSUPPORTED, "tensor '%s' is none that Lockstep saves: at most %d dimensions, a type that it computes with, "
                       "a name of less than %d bytes", t->name, LS_MAX_DIMS, LS_SHARD_NAME);
    if (!box_of(w, t, r, first, count)) return LS_OK;
    for (int d = 0; d < t->ndim; d++) elements *= (size_t)count[d];
    if (!(*data = malloc(elements * ls_dtype_size(t->dtype) + 1)))
        return ls_fail(LS_NO_MEMORY, "tensor '%s': %zu elements", t->name, elements);
    LS_TRY(ls_checkpoint_read(w->from, t, first, count, *data));
    ls_shards_put(f, 0, t->name, t->dtype, t->ndim, first, count, false, *data);
    return LS_OK;
}

static ls_status write_rank(work *w, int r)
{
    const int n = ls_checkpoint_count(w->from);
    char name[128];
    ls_shards f = { 0 };
    void **data = calloc((size_t)n + 1, sizeof *data);
    ls_status st = data ? LS_OK : ls_fail(LS_NO_MEMORY, "a list of %d tensors", n);
    if (st == LS_OK) st = ls_shards_begin(&f, w->saving.b.save, w->saving.step, r, 1, n + 1);
    for (int i = 0; st == LS_OK && i < n; i++) st = put_box(w, &f, ls_checkpoint_at(w->from, i), r, &data[i]);
    if (st == LS_OK) st = ls_shards_end(&f, w->meta);
    if (st == LS_OK) st = ls_shards_write(&f, w->saving.b.path);
    ls_shards_name(name, sizeof name, r, 0, 1);
    if (st == LS_OK && f.sums[0].bytes > 0) st = ls_manifest_add(&w->saving.manifest, name, &f.sums[0]);
    ls_shards_free(&f);
    for (int i = 0; data && i < n; i++) free(data[i]);
    free(data);
    return st;
}

/* A file beside sharded/, such as config.yaml or the whole model: its bytes were checked. */
static ls_status copy_beside(work *w, const char *name)
{
    ls_text from = { 0 }, to = { 0 };
    ls_commit *c = NULL;
    int fd = -1;
    ls_text_add(&from, "%s/%s", ls_checkpoint_folder(w->from), name);
    ls_text_add(&to, "%s/%s", w->saving.b.path, name);
    ls_status st = ls_text_status(&from);
    if (st == LS_OK) st = ls_text_status(&to);
    if (st == LS_OK) st = ls_ckpt_open_read(from.p, &fd);
    if (st == LS_OK) st = ls_commit_create(to.p, &c);
    const uint64_t bytes = ls_manifest_find(&w->from->manifest, name)->sums.bytes;
    for (uint64_t at = 0; st == LS_OK && at < bytes;) {
        const size_t n = bytes - at < LS_CKPT_BLOCK ? (size_t)(bytes - at) : LS_CKPT_BLOCK;
        st = ls_ckpt_read_at(from.p, fd, w->from->buffer, n, at);
        if (st == LS_OK) st = ls_commit_write(c, w->from->buffer, n);
        at += n;
    }
    if (st == LS_OK) st = ls_commit_finish(c);
    ls_commit_destroy(c);
    if (fd >= 0) ls_env_get()->close_fd(fd);
    ls_text_free(&from);
    ls_text_free(&to);
    return st;
}

static ls_status write_all(work *w)
{
    take_meta(w);
    w->saving.generation = ls_checkpoint_generation(w->from);
    w->saving.world_size = w->ranks;
    w->saving.anew = true;
    for (int r = 0; r < w->ranks; r++) LS_TRY(write_rank(w, r));
    for (int i = 0; i < ls_checkpoint_nbeside(w->from); i++) LS_TRY(copy_beside(w, ls_checkpoint_beside(w->from, i)));
    return LS_OK;
}

/* Before anything is read: the folder's own rename would find it after everything was written. */
static ls_status check_free(const char *out)
{
    ls_file_info info = { 0 };
    if (ls_env_get()->info(out, &info) < 0 || info.type == LS_FILE_NONE) return LS_OK;
    return ls_fail(LS_IO, "%s: is there already: name a new folder", out);
}

ls_status ls_checkpoint_reshard(ls_checkpoint *c, int ranks, const char *out)
{
    work w = { .from = c, .ranks = ranks };
    if (ranks < 1) return ls_fail(LS_INVALID, "a checkpoint for %d ranks", ranks);
    if (!ls_checkpoint_has_manifest(c))
        return ls_fail(LS_UNSUPPORTED, "%s: has no manifest.json: only whole checkpoints of Lockstep's are resharded; a run that "
                       "resumes from it saves one", ls_checkpoint_folder(c));
    LS_TRY(check_free(out));
    LS_TRY(ls_checkpoint_verify(c, 0, 1));
    ls_status st = ls_save_folder(&w.saving, out, ls_checkpoint_step(c));
    if (st == LS_OK) st = write_all(&w);
    if (st == LS_OK) st = ls_save_commit(&w.saving);
    return ls_save_end(&w.saving, st, out);
}
