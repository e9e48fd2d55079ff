/* saving.c -- the parts of a save. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/context.h"
#include "base/env.h"
#include "base/file.h"
#include "ckpt/saving.h"
#include "lockstep/group.h"


/* --- the temporary folder ------------------------------------------------------------------------ */

ls_status ls_save_folder_make(const char *folder, int64_t step, ls_commit_folder **out, ls_save_beginning *b)
{
    unsigned char id[16];
    char sharded[LS_SAVE_PATH_BYTES + 16];
    LS_TRY(ls_commit_folder_create(folder, out));
    const char *path = ls_commit_folder_path(*out);
    if (strlen(path) >= sizeof b->path) return ls_fail(LS_INVALID, "%s: a name of more than %d bytes", folder, LS_SAVE_PATH_BYTES - 1);
    snprintf(b->path, sizeof b->path, "%s", path);
    snprintf(sharded, sizeof sharded, "%s/" LS_SHARDED_NAME, path);
    const int err = ls_env_get()->mkdir(sharded);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be made: %s", sharded, strerror(-err));
    ls_env_get()->random(id, sizeof id);
    for (size_t i = 0; i < sizeof id; i++) snprintf(b->save + 2 * i, 3, "%02x", id[i]);
    b->step = step;
    return LS_OK;
}

/* --- checksums to rank 0 --------------------------------------------------------------------------- */

enum { BYTES, HEADER_BYTES, HEADER, BLOCKS, WORDS };

static size_t words_of(const ls_ckpt_sums *sums, int files)
{
    size_t n = 0;
    for (int k = 0; k < files; k++) n += WORDS + sums[k].nblocks;
    return n;
}

static void pack(const ls_ckpt_sums *sums, int files, int64_t *to)
{
    for (int k = 0; k < files; k++) {
        const ls_ckpt_sums *s = &sums[k];
        const uint64_t words[WORDS] = { s->bytes, s->header_bytes, s->header, s->nblocks };
        memcpy(to, words, sizeof words);
        if (s->nblocks) memcpy(to + WORDS, s->block, s->nblocks * sizeof *s->block);
        to += WORDS + s->nblocks;
    }
}

static ls_status unpack(ls_manifest *m, int rank, int files, const int64_t **from)
{
    char name[128];
    for (int k = 0; k < files; k++) {
        uint64_t words[WORDS];
        memcpy(words, *from, sizeof words);
        ls_ckpt_sums sums = { .bytes = words[BYTES], .header_bytes = words[HEADER_BYTES], .header = words[HEADER],
                              .nblocks = (size_t)words[BLOCKS] };
        *from += WORDS;
        if (sums.bytes > 0) {
            if (!(sums.block = malloc(sums.nblocks * sizeof *sums.block + 1)))
                return ls_fail(LS_NO_MEMORY, "checksums of %zu MiB", sums.nblocks);
            memcpy(sums.block, *from, sums.nblocks * sizeof *sums.block);
            ls_shards_name(name, sizeof name, rank, k, files);
            LS_TRY(ls_manifest_add(m, name, &sums));
        }
        *from += words[BLOCKS];
    }
    return LS_OK;
}

static ls_status gather_sums(ls_group *g, const ls_shards *mine, bool everywhere, ls_manifest *m)
{
    const int rank = ls_group_rank(g), size = ls_group_size(g);
    size_t all = 0, before = 0;
    int64_t *words = NULL, *n = calloc((size_t)size, sizeof *n);
    size_t *counts = calloc((size_t)size, sizeof *counts);
    ls_status st = n && counts ? LS_OK : ls_fail(LS_NO_MEMORY, "checksums of %d ranks", size);
    if (st == LS_OK) {
        n[rank] = (int64_t)words_of(mine->sums, mine->n);
        st = ls_all_gather(g, NULL, n, (size_t)size, LS_I64);
    }
    for (int r = 0; st == LS_OK && r < size; r++) {
        if (r < rank) before += (size_t)n[r];
        all += counts[r] = (size_t)n[r];
    }
    if (st == LS_OK && !(words = malloc(all * sizeof *words))) st = ls_fail(LS_NO_MEMORY, "checksums of %d ranks", size);
    if (st == LS_OK) {
        pack(mine->sums, mine->n, words + before);
        st = ls_all_gather_v(g, NULL, words, counts, LS_I64);
    }
    const int64_t *at = words;
    for (int r = 0; st == LS_OK && (rank == 0 || everywhere) && r < size; r++) st = unpack(m, r, mine->n, &at);
    free(words);
    free(counts);
    free(n);
    return st;
}

/* --- a checkpoint -------------------------------------------------------------------------------------- */

/* Files that are beside sharded/ and not in the manifest yet. */
static ls_status sum_companions(const char *folder, ls_manifest *m)
{
    const size_t room = (size_t)1 << 16;
    char path[LS_SAVE_PATH_BYTES + 300], *names = malloc(room);
    if (!names) return ls_fail(LS_NO_MEMORY, "the names in %s", folder);
    int count = ls_env_get()->list(folder, names, room);
    ls_status st = count < 0 ? ls_fail(LS_IO, "%s: cannot be listed: %s", folder, strerror(-count)) : LS_OK;
    for (const char *name = names; st == LS_OK && count-- > 0; name += strlen(name) + 1) {
        ls_file_info info = { 0 };
        ls_ckpt_sums sums = { 0 };
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (ls_env_get()->info(path, &info) < 0 || info.type != LS_FILE_REGULAR || ls_manifest_find(m, name)) continue;
        st = ls_manifest_sum_file(path, &sums);
        if (st == LS_OK) st = ls_manifest_add(m, name, &sums);
    }
    free(names);
    return st;
}

static ls_status write_manifest(const char *folder, const ls_manifest *m)
{
    char path[LS_SAVE_PATH_BYTES + 32];
    ls_text text = { 0 };
    snprintf(path, sizeof path, "%s/" LS_MANIFEST_NAME, folder);
    ls_status st = ls_manifest_text(m, &text);
    if (st == LS_OK) st = ls_file_write(path, text.p, text.n);
    ls_text_free(&text);
    return st;
}

ls_status ls_save_folder(ls_saving *v, const char *folder, int64_t step)
{
    *v = (ls_saving){ .step = step };
    return ls_save_folder_make(folder, step, &v->commit, &v->b);
}

/* --- a save, in parts ------------------------------------------------------------------------------------- */

ls_status ls_save_begin(ls_saving *v, const ls_state *s, const char *folder, int64_t step, int *culprit)
{
    const bool leads = ls_group_rank(s->g) == 0;
    *v = (ls_saving){ .step = step, .generation = s->generation, .world_size = ls_group_size(s->g) };
    LS_TRY(ls_state_agree(s->g, leads ? ls_save_folder_make(folder, step, &v->commit, &v->b) : LS_OK, culprit));
    return ls_broadcast(s->g, &v->b, sizeof v->b, LS_U8, 0);
}

ls_status ls_save_list(ls_saving *v, const ls_state *s)
{
    if (v->b.step != v->step)
        return ls_fail(LS_INVALID, "ls_state_save of step %" PRId64 ", and rank 0 saves step %" PRId64, v->step, v->b.step);
    return ls_shards_list(s, v->b.save, v->step, &v->mine);
}

ls_status ls_save_write(ls_saving *v) { return ls_shards_write(&v->mine, v->b.path); }

ls_status ls_save_gather(ls_saving *v, ls_group *g) { return gather_sums(g, &v->mine, v->everywhere, &v->manifest); }

ls_status ls_save_commit(ls_saving *v)
{
    char sharded[LS_SAVE_PATH_BYTES + 16];
    ls_manifest *m = &v->manifest;
    snprintf(m->save, sizeof m->save, "%.32s", v->b.save);
    m->step = v->b.step;
    m->generation = v->generation;
    m->world_size = v->world_size;
    snprintf(sharded, sizeof sharded, "%s/" LS_SHARDED_NAME, v->b.path);
    const int err = ls_env_get()->fsync_dir(sharded);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be flushed to the disk: %s", sharded, strerror(-err));
    LS_TRY(sum_companions(v->b.path, m));
    LS_TRY(write_manifest(v->b.path, m));
    return ls_commit_folder_finish(v->commit, !v->anew);
}

/* A disk's failure is the save's. */
ls_status ls_save_end(ls_saving *v, ls_status st, const char *folder)
{
    ls_shards_free(&v->mine);
    ls_manifest_free(&v->manifest);
    if (st == LS_IO || st == LS_CKPT_FAILED || st == LS_NO_MEMORY || st == LS_INVALID || st == LS_UNSUPPORTED)
        st = ls_while(st == LS_IO ? ls_fail(LS_CKPT_FAILED, "%s", ls_last_error()) : st, "saving step %" PRId64 " as %s", v->step, folder);
    char why[LS_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", ls_last_error());
    ls_commit_folder_destroy(v->commit); /* after the message was said */
    *v = (ls_saving){ 0 };
    return st < 0 ? ls_fail(st, "%s", why) : st;
}
