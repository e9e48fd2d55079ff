/* load.c -- opening, checking and reading safetensors files. */
#include "ckpt/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "ckpt/bytes.h"

#define PIECE_BYTES ((size_t)1 << 20) /* read at a time; a multiple of every element's size */

static ls_status read_header(ls_ckpt *c)
{
    unsigned char first[LS_CKPT_PREFIX + 1];
    int64_t file_size = ls_env_get()->fd_size(c->fd);
    if (file_size < 0) return ls_fail(LS_IO, "%s: its size cannot be read: %s", c->path, strerror((int)-file_size));

    size_t n = (uint64_t)file_size < sizeof first ? (size_t)file_size : sizeof first, size;
    LS_TRY(ls_ckpt_read_at(c->path, c->fd, first, n, 0));
    LS_TRY(ls_ckpt_header_size(c->path, first, n, (uint64_t)file_size, &size));
    char *text = malloc(size);
    if (!text) return ls_fail(LS_NO_MEMORY, "%s: its header of %zu bytes does not fit in memory", c->path, size);
    ls_status st = ls_ckpt_read_at(c->path, c->fd, text, size, 0);
    if (st == LS_OK) st = ls_ckpt_header_parse(c->path, text, size, (uint64_t)file_size, &c->header);
    free(text);
    return st;
}

ls_status ls_ckpt_open(const char *path, ls_ckpt **out)
{
    size_t n = strlen(path) + 1;
    *out = NULL;
    ls_ckpt *c = malloc(sizeof *c + n);
    if (!c) return ls_fail(LS_NO_MEMORY, "%s: cannot be opened: out of memory", path);
    *c = (ls_ckpt){ .path = (char *)(c + 1), .fd = -1 };
    memcpy(c->path, path, n);

    ls_status st = ls_ckpt_open_read(path, &c->fd);
    if (st == LS_OK) st = read_header(c);
    if (st == LS_OK) *out = c;
    else ls_ckpt_close(c);
    return st;
}

void ls_ckpt_close(ls_ckpt *c)
{
    if (!c) return;
    if (c->fd >= 0) ls_env_get()->close_fd(c->fd);
    ls_ckpt_header_free(&c->header);
    free(c);
}

int ls_ckpt_count(const ls_ckpt *c) { return (int)c->header.ntensors; }
const ls_ckpt_tensor *ls_ckpt_at(const ls_ckpt *c, int i) { return &c->header.tensor[i]; }
const ls_ckpt_tensor *ls_ckpt_find(const ls_ckpt *c, const char *name) { return ls_ckpt_header_find(&c->header, name); }
const char *ls_ckpt_meta(const ls_ckpt *c, const char *key) { return ls_ckpt_header_meta(&c->header, key); }

int ls_ckpt_nmeta(const ls_ckpt *c) { return (int)c->header.nmeta; }
const char *ls_ckpt_meta_key(const ls_ckpt *c, int i) { return c->header.meta[i].key; }
bool ls_ckpt_has_digests(const ls_ckpt *c) { return c->header.ours; }

static ls_status check_digest(const ls_ckpt *c, const ls_ckpt_tensor *t, uint64_t found)
{
    if (!t->has_checksum || found == t->checksum) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: tensor '%s' has the digest %016" PRIx64 ", expected %016" PRIx64
                   ": its bytes were changed after they were saved", c->path, t->name, found, t->checksum);
}

ls_status ls_ckpt_read(ls_ckpt *c, const ls_ckpt_tensor *t, void *dst)
{
    size_t n = (size_t)(t->end - t->begin);
    LS_TRY(ls_ckpt_read_at(c->path, c->fd, dst, n, c->header.data_at + t->begin));
    return check_digest(c, t, ls_hash64(dst, n, 0));
}

/* What of a tensor is wanted, and where it goes. */
typedef struct wanted {
    const ls_part *part;
    const ls_tensor *here;
    char *dst;
    int64_t taken; /* elements that are there */
} wanted;

/* Takes what is wanted of n bytes, which begin at byte `at` of the tensor. Pieces come in order. */
static void take(wanted *w, size_t elem, const char *piece, uint64_t at, size_t n)
{
    const int64_t first = (int64_t)(at / elem), end = first + (int64_t)(n / elem);
    for (int64_t next; w->taken < ls_tensor_count(w->here); w->taken = next) {
        const int64_t from = ls_part_index(w->part, w->here, w->taken, &next);
        if (from >= end) return;
        if (next - w->taken > end - from) next = w->taken + end - from;
        const size_t n_taken = (size_t)(next - w->taken) * elem;
        memcpy(w->dst + (size_t)w->taken * elem, piece + (size_t)(from - first) * elem, n_taken);
    }
}

/* Reads a tensor whole, through a buffer of PIECE_BYTES, and checks it; w (NULL: nothing) says what to take of it. */
static ls_status read_pieces(ls_ckpt *c, const ls_ckpt_tensor *t, char *buffer, wanted *w)
{
    ls_digest *d = ls_digest_create();
    if (!d) return ls_fail(LS_NO_MEMORY, "%s: no memory to check '%s'", c->path, t->name);
    ls_status st = LS_OK;
    for (uint64_t at = t->begin; st == LS_OK && at < t->end;) {
        const size_t n = t->end - at < PIECE_BYTES ? (size_t)(t->end - at) : PIECE_BYTES;
        st = ls_ckpt_read_at(c->path, c->fd, buffer, n, c->header.data_at + at);
        if (st == LS_OK) ls_digest_add(d, buffer, n);
        if (st == LS_OK && w) take(w, ls_dtype_size(t->dtype), buffer, at - t->begin, n);
        at += n;
    }
    if (st == LS_OK) st = check_digest(c, t, ls_digest_u64(d));
    ls_digest_destroy(d);
    return st;
}

/* Without a digest there is nothing to check: what is wanted alone is read, run by run. */
static ls_status read_runs(ls_ckpt *c, const ls_ckpt_tensor *t, const wanted *w)
{
    const size_t elem = ls_dtype_size(t->dtype);
    for (int64_t i = 0, next; i < ls_tensor_count(w->here); i = next) {
        const uint64_t at = (uint64_t)ls_part_index(w->part, w->here, i, &next) * elem;
        LS_TRY(ls_ckpt_read_at(c->path, c->fd, w->dst + (size_t)i * elem, (size_t)(next - i) * elem,
                       c->header.data_at + t->begin + at));
    }
    return LS_OK;
}

ls_status ls_ckpt_read_param(ls_ckpt *c, const ls_ckpt_tensor *t, const ls_param *p, void *dst)
{
    ls_tensor here = p->t; /* as the file has it */
    ls_part part = p->part;
    wanted w = { &part, &here, dst, 0 };
    if (ls_part_is_all(&part)) return ls_ckpt_read(c, t, dst);
    if (p->transposed) {
        here.dim[0] = p->t.dim[1];
        here.dim[1] = p->t.dim[0];
        part.dim = 1 - part.dim;
    }
    if (!t->has_checksum) return read_runs(c, t, &w);
    char *buffer = malloc(PIECE_BYTES);
    if (!buffer) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes to read a part of '%s'", c->path, PIECE_BYTES, t->name);
    const ls_status st = read_pieces(c, t, buffer, &w);
    free(buffer);
    return st;
}

ls_status ls_ckpt_verify(ls_ckpt *c)
{
    char *buffer = malloc(PIECE_BYTES);
    if (!buffer) return ls_fail(LS_NO_MEMORY, "%s: no memory to verify it", c->path);
    ls_status st = LS_OK;
    for (size_t i = 0; st == LS_OK && i < c->header.ntensors; i++)
        st = read_pieces(c, &c->header.tensor[i], buffer, NULL);
    free(buffer);
    return st;
}
