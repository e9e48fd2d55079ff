/* checkpoint_read.c -- reading boxes of tensors out of a checkpoint's files, with a check of every MiB that is read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "ckpt/bytes.h"
#include "ckpt/checkpoint.h"
#include "lockstep/shard.h"

/* --- bytes of a file ----------------------------------------------------------------- */

static ls_status use_path(ls_checkpoint *s, int file, const char *path)
{
    if (s->fd >= 0 && s->open_file == file) return LS_OK;
    if (s->fd >= 0) ls_env_get()->close_fd(s->fd);
    s->open_file = file;
    return ls_ckpt_open_read(path, &s->fd);
}

ls_status ls_checkpoint_use(ls_checkpoint *s, int file) { return use_path(s, file, s->file[file].path); }

static size_t block_bytes(const ls_ckpt_sums *sums, size_t block)
{
    const uint64_t left = sums->bytes - sums->header_bytes - (uint64_t)block * LS_CKPT_BLOCK;
    return left < LS_CKPT_BLOCK ? (size_t)left : LS_CKPT_BLOCK;
}

/* One block of the open file, checked. */
static ls_status read_block(const ls_checkpoint *s, const char *path, const ls_ckpt_sums *sums, size_t block, void *dst)
{
    const size_t n = block_bytes(sums, block);
    const uint64_t offset = sums->header_bytes + (uint64_t)block * LS_CKPT_BLOCK;
    LS_TRY(ls_ckpt_read_at(path, s->fd, dst, n, offset));
    const uint64_t found = ls_hash64(dst, n, 0);
    if (found == sums->block[block]) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: bytes %" PRIu64 " to %" PRIu64 " have the checksum %016" PRIx64 ", expected "
                   "%016" PRIx64
                   ": they were changed after they were saved", path, offset, offset + n - 1, found,
                       sums->block[block]);
}

/* A block of a rank's file that is wanted in part: one that is there, or in place of the one not wanted for longest. */
static ls_status keep_block(ls_checkpoint *s, int file, size_t block, const char **out)
{
    int slot = 0;
    if (!s->blocks && !(s->blocks = malloc(LS_CHECKPOINT_KEPT * LS_CKPT_BLOCK)))
        return ls_fail(LS_NO_MEMORY, "%s: blocks of %zu bytes", s->folder, LS_CKPT_BLOCK);
    for (int i = 0; i < LS_CHECKPOINT_KEPT; i++) {
        const ls_checkpoint_block *k = &s->kept[i];
        if (k->used && k->file == file && k->block == block) {
            slot = i;
            break;
        }
        if (k->used < s->kept[slot].used) slot = i;
    }
    ls_checkpoint_block *k = &s->kept[slot];
    char *at = s->blocks + (size_t)slot * LS_CKPT_BLOCK;
    if (!k->used || k->file != file || k->block != block) {
        k->used = 0;
        LS_TRY(ls_checkpoint_use(s, file));
        LS_TRY(read_block(s, s->file[file].path, s->file[file].sums, block, at));
    }
    *k = (ls_checkpoint_block){ file, block, ++s->reads };
    *out = at;
    return LS_OK;
}

/* n bytes of the data section of a rank's file, from byte `at` on. */
static ls_status read_data(ls_checkpoint *s, int file, uint64_t at, size_t n, char *dst)
{
    const ls_checkpoint_file *f = &s->file[file];
    if (!f->sums) {
        LS_TRY(ls_checkpoint_use(s, file));
        return ls_ckpt_read_at(f->path, s->fd, dst, n, f->header.data_at + at);
    }
    while (n > 0) {
        const size_t block = (size_t)(at / LS_CKPT_BLOCK), skip = (size_t)(at % LS_CKPT_BLOCK),
            all = block_bytes(f->sums, block);
        const size_t k = n < all - skip ? n : all - skip;
        if (k == all) {
            LS_TRY(ls_checkpoint_use(s, file));
            LS_TRY(read_block(s, f->path, f->sums, block, dst));
        } else {
            const char *kept = NULL;
            LS_TRY(keep_block(s, file, block, &kept));
            memcpy(dst, kept + skip, k);
        }
        at += k;
        dst += k;
        n -= k;
    }
    return LS_OK;
}

/* --- boxes ----------------------------------------------------------------------------- */

/* The elements that a chunk and what is wanted have in common. */
typedef struct overlap {
    int64_t from[LS_CKPT_MAX_DIMS];  /* in the chunk */
    int64_t to[LS_CKPT_MAX_DIMS];    /* in what is wanted */
    int64_t count[LS_CKPT_MAX_DIMS];
} overlap;

static bool overlap_of(const ls_checkpoint_chunk *c, const int64_t *first, const int64_t *count, overlap *o)
{
    for (int d = 0; d < c->in->ndim; d++) {
        const int64_t end = first[d] + count[d], chunk_end = c->first[d] + c->in->dim[d];
        const int64_t a = first[d] > c->first[d] ? first[d] : c->first[d], b = end < chunk_end ? end : chunk_end;
        if (b <= a) return false;
        o->from[d] = a - c->first[d];
        o->to[d] = a - first[d];
        o->count[d] = b - a;
    }
    return true;
}

/* The place of an element in a row-major box of these sizes. */
static int64_t place(const int64_t *at, const int64_t *dim, int ndim)
{
    int64_t k = 0;
    for (int d = 0; d < ndim; d++) k = k * dim[d] + at[d];
    return k;
}

/* Copies what they have in common, in the order of the file: in runs that are contiguous on both sides. */
static ls_status read_overlap(ls_checkpoint *s, const ls_checkpoint_chunk *c, const int64_t *count, const overlap *o,
                              size_t element,
                              char *dst)
{
    const int n = c->in->ndim;
    int64_t at[LS_CKPT_MAX_DIMS] = { 0 }, from[LS_CKPT_MAX_DIMS], to[LS_CKPT_MAX_DIMS], run = 1;
    int outer = n; /* dimensions that are walked over; the others are a run */
    while (outer > 0) {
        run *= o->count[--outer];
        if (o->count[outer] != c->in->dim[outer] || o->count[outer] != count[outer]) break;
    }
    for (;;) {
        for (int d = 0; d < n; d++) {
            from[d] = o->from[d] + (d < outer ? at[d] : 0);
            to[d] = o->to[d] + (d < outer ? at[d] : 0);
        }
        LS_TRY(read_data(s, c->file, c->in->begin + (uint64_t)place(from, c->in->dim, n) * element,
                         (size_t)run * element,
                         dst + (size_t)place(to, count, n) * element));
        int d = outer - 1;
        while (d >= 0 && ++at[d] == o->count[d]) at[d--] = 0;
        if (d < 0) return LS_OK;
    }
}

ls_status ls_checkpoint_read(ls_checkpoint *s, const ls_checkpoint_tensor *t, const int64_t *first,
                             const int64_t *count, void *dst)
{
    static const int64_t zero[LS_CKPT_MAX_DIMS];
    const ls_checkpoint_chunk *c = s->chunk + t->first_chunk;
    if (!first) first = zero, count = t->dim;
    for (int d = 0; d < t->ndim; d++)
        if (first[d] < 0 || count[d] < 0 || first[d] > t->dim[d] - count[d])
            return ls_fail(LS_INVALID, "%s: tensor '%s': elements %" PRId64 " to %" PRId64 " of dimension %d, which "
                           "has %" PRId64,
                           s->folder, t->name, first[d], first[d] + count[d] - 1, d, t->dim[d]);
    for (int i = 0; i < t->nchunks; i++) {
        const ls_ckpt_tensor *in = c[i].in;
        int64_t elements = 1;
        overlap o = { 0 };
        for (int d = 0; d < t->ndim; d++) elements *= in->dim[d];
        if (elements == 0 || !overlap_of(&c[i], first, count, &o)) continue;
        LS_TRY(read_overlap(s, &c[i], count, &o, (size_t)(in->end - in->begin) / (size_t)elements, dst));
    }
    return LS_OK;
}

/* --- all bytes ----------------------------------------------------------------------------- */

static ls_status verify_header(const ls_checkpoint *s, const char *path, const ls_ckpt_sums *sums)
{
    ls_digest *d = ls_digest_create();
    if (!d) return ls_fail(LS_NO_MEMORY, "%s: a digest", path);
    ls_status st = LS_OK;
    for (uint64_t at = 0; st == LS_OK && at < sums->header_bytes;) {
        const uint64_t left = sums->header_bytes - at;
        const size_t n = left < LS_CKPT_BLOCK ? (size_t)left : LS_CKPT_BLOCK;
        st = ls_ckpt_read_at(path, s->fd, s->buffer, n, at);
        if (st == LS_OK) ls_digest_add(d, s->buffer, n);
        at += n;
    }
    if (st == LS_OK && ls_digest_u64(d) != sums->header)
        st = ls_fail(LS_CKPT_CORRUPT, "%s: its header has the checksum %016" PRIx64 ", expected %016" PRIx64 ": it "
                     "was changed after it was saved", path, ls_digest_u64(d), sums->header);
    ls_digest_destroy(d);
    return st;
}

/* A file that is not one of the ranks' has a number of its own, too, so that it is not taken for one that is open. */
static ls_status verify_file(ls_checkpoint *s, size_t i, uint64_t *number, const ls_range *mine)
{
    const ls_manifest_file *f = &s->manifest.file[i];
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", s->folder, f->name);
    if (n < 0 || (size_t)n >= sizeof path) return ls_fail(LS_BAD_FILE, "%s: its name is too long", s->folder);
    for (size_t b = 0; b <= f->sums.nblocks; b++) { /* the header, then the blocks */
        const uint64_t at = (*number)++;
        if (at < mine->first || at >= mine->first + mine->count) continue;
        LS_TRY(use_path(s, -2 - (int)i, path));
        LS_TRY(b == 0 ? verify_header(s, path, &f->sums) : read_block(s, path, &f->sums, b - 1, s->buffer));
    }
    return LS_OK;
}

ls_status ls_checkpoint_verify(ls_checkpoint *s, int part, int parts)
{
    uint64_t number = 0;
    size_t all = 0;
    ls_range mine;
    if (parts < 1 || part < 0 || part >= parts) return ls_fail(LS_INVALID, "part %d of %d of a checkpoint", part,
                                                               parts);
    for (size_t i = 0; i < s->manifest.nfiles; i++) all += s->manifest.file[i].sums.nblocks + 1;
    LS_TRY(ls_shard_range(all, part, parts, &mine)); /* one after another, as disks are fast */
    for (size_t i = 0; i < s->manifest.nfiles; i++) LS_TRY(verify_file(s, i, &number, &mine));
    return LS_OK;
}

ls_status ls_checkpoint_check_file(const char *folder, const ls_manifest *m, size_t i)
{
    const ls_range all = { 0, m->file[i].sums.nblocks + 1 };
    uint64_t number = 0;
    ls_file_info info;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, m->file[i].name);
    if (n < 0 || (size_t)n >= sizeof path) return ls_fail(LS_BAD_FILE, "%s: its name is too long", folder);
    if (ls_env_get()->info(path, &info) < 0 || info.type != LS_FILE_REGULAR || info.size != m->file[i].sums.bytes)
        return ls_fail(LS_CKPT_CORRUPT, "%s: is missing, or has another size than the manifest says", path);
    ls_checkpoint s = { .folder = (char *)folder, .manifest = *m, .open_file = -1, .fd = -1 };
    s.buffer = malloc(LS_CKPT_BLOCK);
    const ls_status st = s.buffer ? verify_file(&s, i, &number, &all) : ls_fail(LS_NO_MEMORY, "%s: a block", path);
    if (s.fd >= 0) ls_env_get()->close_fd(s.fd);
    free(s.buffer);
    return st;
}
