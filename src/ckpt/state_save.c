/* state_save.c -- a checkpoint of all ranks: each writes its files, and rank 0 makes them a checkpoint.
 *
 *   1. rank 0   a temporary folder beside the final one, and its name to all ranks
 *   2. each     its boxes of all tensors into its own files, flushed to the disk
 *   3. all      has every rank written? Checksums to rank 0
 *   4. rank 0   other files, the manifest, flush, rename to the final name, flush of the parent
 *   5. all      is it durable?
 *
 * A crash before the rename leaves a temporary folder, which ls_commit_sweep removes, and the older checkpoints.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "ckpt/manifest.h"
#include "ckpt/state.h"
#include "lockstep/group.h"

#define PATH_BYTES 1024
#define NAME_BYTES (LS_NAME_BYTES + 64)

/* --- what all ranks know of a save ---------------------------------------------------------- */

typedef struct beginning {
    char path[PATH_BYTES]; /* of the temporary folder */
    char save[40];         /* 32 hex digits */
    int64_t step;          /* of rank 0, to compare */
} beginning;

static ls_status begin(const char *folder, int64_t step, ls_commit_folder **out, beginning *b)
{
    unsigned char id[16];
    char sharded[PATH_BYTES + 16];
    LS_TRY(ls_commit_folder_create(folder, out));
    const char *path = ls_commit_folder_path(*out);
    if (strlen(path) >= sizeof b->path) return ls_fail(LS_INVALID, "%s: a name of more than %d bytes", folder, PATH_BYTES - 1);
    snprintf(b->path, sizeof b->path, "%s", path);
    snprintf(sharded, sizeof sharded, "%s/" LS_SHARDED_NAME, path);
    const int err = ls_env_get()->mkdir(sharded);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be made: %s", sharded, strerror(-err));
    ls_env_get()->random(id, sizeof id);
    for (size_t i = 0; i < sizeof id; i++) snprintf(b->save + 2 * i, 3, "%02x", id[i]);
    b->step = step;
    return LS_OK;
}

/* --- a rank's files ------------------------------------------------------------------------------ */

/* The tensors of one file. */
typedef struct shard {
    ls_ckpt_item *item; /* owned, as all here: [n] */
    ls_tensor *shape;   /* [n] */
    char (*name)[NAME_BYTES];
    int n, cap;
    ls_text info;       /* DCP_SHARDING_INFO */
    int64_t *number;    /* [cap] numbers that items point at */
} shard;

static ls_status shard_create(shard *f, int cap)
{
    *f = (shard){ .cap = cap };
    f->item = calloc((size_t)cap, sizeof *f->item);
    f->shape = calloc((size_t)cap, sizeof *f->shape);
    f->name = calloc((size_t)cap, sizeof *f->name);
    f->number = calloc((size_t)cap, sizeof *f->number);
    return f->item && f->shape && f->name && f->number ? LS_OK : ls_fail(LS_NO_MEMORY, "a list of %d tensors", cap);
}

static void shard_free(shard *f)
{
    free(f->item);
    free(f->shape);
    free(f->name);
    free(f->number);
    ls_text_free(&f->info);
}

/* A tensor's box that begins at first[], of these sizes here; `transposed`: files have its first two exchanged. */
static void put(shard *f, const char *name, ls_dtype dtype, int ndim, const int64_t *first, const int64_t *count,
                bool transposed, const void *data)
{
    const int i = f->n++;
    ls_tensor *t = &f->shape[i];
    *t = (ls_tensor){ .dtype = dtype, .ndim = ndim, .data = (void *)data };
    for (int d = 0; d < ndim; d++) t->dim[d] = count[transposed && d < 2 ? 1 - d : d];
    snprintf(f->name[i], sizeof f->name[i], "%s", name);
    f->item[i] = (ls_ckpt_item){ .name = f->name[i], .from = t, .dtype = dtype, .transposed = transposed };
    ls_text_add(&f->info, "%s", i ? "," : "{");
    ls_json_string(&f->info, name);
    ls_text_add(&f->info, ":{\"saved_offsets\":[");
    for (int d = 0; d < ndim; d++) ls_text_add(&f->info, "%s%" PRId64, d ? "," : "", first[d]);
    ls_text_add(&f->info, "]}");
}

static void put_number(shard *f, const char *name, int64_t v)
{
    static const int64_t zero[] = { 0 }, one[] = { 1 };
    int64_t *at = &f->number[f->n];
    *at = v;
    put(f, name, LS_I64, 1, zero, one, false, at);
}

/* Box k of the elements that this rank keeps of a parameter, and of its optimizer state. */
static ls_status put_param(const ls_state *s, shard *f, const ls_param *p, int k)
{
    char name[NAME_BYTES];
    int n = 0;
    const float *values = ls_param_values(p);
    if (p->keeps.count == 0) return LS_OK;
    if (!values) return ls_fail(LS_INVALID, "parameter '%s' has no values: bind the parameters before saving them", p->name);
    ls_piece *piece = malloc((size_t)ls_piece_most(p) * sizeof *piece);
    if (!piece) return ls_fail(LS_NO_MEMORY, "parameter '%s': its boxes", p->name);
    ls_status st = ls_piece_boxes(p, p->keeps, piece, &n);
    if (st == LS_OK && k < n) {
        const ls_box *b = &piece[k].box;
        const size_t at = p->keeps.first - p->own.first + piece[k].first;
        put(f, p->name, LS_F32, p->t.ndim, b->first, b->count, p->transposed, values + at);
        bool origin = true;
        for (int d = 0; d < p->t.ndim; d++) origin &= b->first[d] == 0;
        for (int i = 0; s->optim && i < ls_optim_nstates(s->optim); i++) {
            const char *state = ls_optim_state_name(s->optim, i);
            snprintf(name, sizeof name, LS_STATE_OPTIM "%.40s.%s", state, p->name);
            put(f, name, LS_F32, p->t.ndim, b->first, b->count, p->transposed,
                ls_optim_state(s->optim, p->name, state) + at);
        }
        snprintf(name, sizeof name, LS_STATE_OPTIM "step.%s", p->name);
        if (s->optim && origin) put_number(f, name, ls_optim_steps_of(s->optim, p->name));
    }
    free(piece);
    return st;
}

static ls_status put_all(const ls_state *s, shard *f, int k)
{
    static const int64_t zero[] = { 0 };
    for (int i = 0; s->ps && i < s->ps->n; i++) LS_TRY(put_param(s, f, &s->ps->item[i], k));
    if (k > 0 || ls_group_rank(s->g) != 0) return LS_OK;
    if (s->optim) put_number(f, LS_STATE_OPTIM "steps", ls_optim_steps(s->optim));
    for (int i = 0; i < s->nown; i++) put(f, s->own[i].name, s->own[i].dtype, 1, zero, &s->own[i].count, false,
                                          s->own[i].p);
    return LS_OK;
}

enum { OWN_PAIRS = 5, MOST_PAIRS = 32 };

static ls_status write_shard(const ls_state *s, const beginning *b, shard *f, const char *path, ls_ckpt_sums *sums)
{
    char step[32], rank[16];
    int n = OWN_PAIRS;
    snprintf(step, sizeof step, "%" PRId64, b->step);
    snprintf(rank, sizeof rank, "%d", ls_group_rank(s->g));
    ls_text_add(&f->info, "}");
    LS_TRY(ls_text_status(&f->info));
    const char *meta[2 * MOST_PAIRS + 1] = { "DCP_SHARDING_INFO", f->info.p, "DCP_VERSION", "1.0", "lockstep.step", step,
                                             "lockstep.rank", rank, "lockstep.save", b->save };
    for (const char *const *m = s->meta; m && *m; m += 2, n++) {
        if (n == MOST_PAIRS) return ls_fail(LS_INVALID, "ls_state_set_meta: more than %d pairs", MOST_PAIRS - OWN_PAIRS);
        meta[2 * n] = m[0];
        meta[2 * n + 1] = m[1];
    }
    return ls_ckpt_write_summed(path, f->item, f->n, meta, sums);
}

static int most_boxes(const ls_state *s)
{
    int most = 1;
    for (int i = 0; s->ps && i < s->ps->n; i++)
        if (ls_piece_most(&s->ps->item[i]) > most) most = ls_piece_most(&s->ps->item[i]);
    return most;
}

static int most_tensors(const ls_state *s)
{
    const int each = 2 + (s->optim ? ls_optim_nstates(s->optim) : 0);
    return (s->ps ? s->ps->n * each : 0) + s->nown + 1;
}

static void file_name(char *out, size_t n, int rank, int k, int files)
{
    snprintf(out, n, LS_SHARDED_NAME "/shard-%05d-model-%05d-of-%05d.safetensors", rank + 1, k + 1, files);
}

/* sums[files]; one of a file that was not written, since it would be empty, has no bytes. */
static ls_status write_mine(const ls_state *s, const beginning *b, int files, ls_ckpt_sums *sums)
{
    char name[128], path[PATH_BYTES + 128];
    for (int k = 0; k < files; k++) {
        shard f;
        ls_status st = shard_create(&f, most_tensors(s));
        file_name(name, sizeof name, ls_group_rank(s->g), k, files);
        snprintf(path, sizeof path, "%s/%s", b->path, name);
        if (st == LS_OK) st = put_all(s, &f, k);
        if (st == LS_OK && f.n > 0) st = write_shard(s, b, &f, path, &sums[k]);
        shard_free(&f);
        LS_TRY(st);
    }
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
            file_name(name, sizeof name, rank, k, files);
            LS_TRY(ls_manifest_add(m, name, &sums));
        }
        *from += words[BLOCKS];
    }
    return LS_OK;
}

static ls_status gather_sums(ls_group *g, const ls_ckpt_sums *mine, int files, ls_manifest *m)
{
    const int rank = ls_group_rank(g), size = ls_group_size(g);
    size_t all = 0, before = 0;
    int64_t *words = NULL, *n = calloc((size_t)size, sizeof *n);
    size_t *counts = calloc((size_t)size, sizeof *counts);
    ls_status st = n && counts ? LS_OK : ls_fail(LS_NO_MEMORY, "checksums of %d ranks", size);
    if (st == LS_OK) {
        n[rank] = (int64_t)words_of(mine, files);
        st = ls_all_gather(g, NULL, n, (size_t)size, LS_I64);
    }
    for (int r = 0; st == LS_OK && r < size; r++) {
        if (r < rank) before += (size_t)n[r];
        all += counts[r] = (size_t)n[r];
    }
    if (st == LS_OK && !(words = malloc(all * sizeof *words))) st = ls_fail(LS_NO_MEMORY, "checksums of %d ranks", size);
    if (st == LS_OK) {
        pack(mine, files, words + before);
        st = ls_all_gather_v(g, NULL, words, counts, LS_I64);
    }
    const int64_t *at = words;
    for (int r = 0; st == LS_OK && rank == 0 && r < size; r++) st = unpack(m, r, files, &at);
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
    char path[PATH_BYTES + 300], *names = malloc(room);
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
    char path[PATH_BYTES + 32];
    ls_text text = { 0 };
    snprintf(path, sizeof path, "%s/" LS_MANIFEST_NAME, folder);
    ls_status st = ls_manifest_text(m, &text);
    if (st == LS_OK) st = ls_file_write(path, text.p, text.n);
    ls_text_free(&text);
    return st;
}

static ls_status finish(const ls_state *s, const beginning *b, ls_commit_folder *c, ls_manifest *m)
{
    char sharded[PATH_BYTES + 16];
    snprintf(m->save, sizeof m->save, "%.32s", b->save);
    m->step = b->step;
    m->generation = s->generation;
    m->world_size = ls_group_size(s->g);
    snprintf(sharded, sizeof sharded, "%s/" LS_SHARDED_NAME, b->path);
    const int err = ls_env_get()->fsync_dir(sharded);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be flushed to the disk: %s", sharded, strerror(-err));
    LS_TRY(sum_companions(b->path, m));
    LS_TRY(write_manifest(b->path, m));
    return ls_commit_folder_finish(c, true);
}

/* A disk's failure is the save's. */
static ls_status failed(ls_status st, const char *folder, int64_t step)
{
    if (st != LS_IO && st != LS_CKPT_FAILED && st != LS_NO_MEMORY && st != LS_INVALID &&
        st != LS_UNSUPPORTED) return st;
    return ls_while(st == LS_IO ? ls_fail(LS_CKPT_FAILED, "%s", ls_last_error()) : st, "saving step %" PRId64 " as %s", step, folder);
}

typedef struct beside {
    ls_state_companions write; /* NULL: nothing */
    void *arg;
} beside;

static ls_status save(ls_state *s, const char *folder, int64_t step, const beside *more, ls_commit_folder **c,
                      ls_ckpt_sums *sums, int files, ls_manifest *m)
{
    beginning b = { 0 };
    const bool leads = ls_group_rank(s->g) == 0;
    LS_TRY(ls_state_agree(s->g, leads ? begin(folder, step, c, &b) : LS_OK, &s->culprit));
    LS_TRY(ls_broadcast(s->g, &b, sizeof b, LS_U8, 0));
    ls_status st = LS_OK;
    if (b.step != step)
        st = ls_fail(LS_INVALID, "ls_state_save of step %" PRId64 ", and rank 0 saves step %" PRId64, step, b.step);
    if (st == LS_OK) st = write_mine(s, &b, files, sums);
    LS_TRY(ls_state_agree(s->g, st, &s->culprit));
    LS_TRY(gather_sums(s->g, sums, files, m));
    if (more->write) {
        st = more->write(more->arg, leads ? b.path : NULL, leads ? m : NULL);
        LS_TRY(ls_state_agree(s->g, st, &s->culprit));
    }
    return ls_state_agree(s->g, leads ? finish(s, &b, *c, m) : LS_OK, &s->culprit);
}

ls_status ls_state_save(ls_state *s, const char *folder, int64_t step)
{
    return ls_state_save_with(s, folder, step, NULL, NULL);
}

ls_status ls_state_save_with(ls_state *s, const char *folder, int64_t step, ls_state_companions companions, void *arg)
{
    const beside more = { companions, arg };
    const int files = most_boxes(s);
    ls_commit_folder *c = NULL;
    ls_manifest m = { 0 };
    ls_ckpt_sums *sums = calloc((size_t)files, sizeof *sums);
    ls_status st = sums ? LS_OK : ls_fail(LS_NO_MEMORY, "checksums of %d files", files);
    if (st == LS_OK) st = save(s, folder, step, &more, &c, sums, files, &m);
    for (int k = 0; sums && k < files; k++) ls_ckpt_sums_free(&sums[k]);
    free(sums);
    ls_manifest_free(&m);
    ls_commit_folder_destroy(c); /* after the message was said */
    return st < 0 ? failed(st, folder, step) : st;
}
