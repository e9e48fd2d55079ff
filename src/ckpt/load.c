/* load.c -- opening, checking and reading safetensors files. */
#include "ckpt/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "coll/reduce.h"

#define PIECE_BYTES ((size_t)1 << 20) /* read at a time; a multiple of every element's size */
#define MODULE "module."               /* what PyTorch's DDP wrapper puts before every name */

struct ls_ckpt {
    char *path; /* owned; behind the struct */
    int fd;     /* owned */
    ls_ckpt_header header;
};

/* Exactly n bytes from offset on. */
static ls_status read_at(const char *path, int fd, void *dst, size_t n, uint64_t offset)
{
    char *at = dst;
    while (n > 0) {
        ssize_t k = ls_env_get()->pread(fd, at, n, offset);
        if (k == -EINTR) continue;
        if (k < 0) return ls_fail(LS_IO, "%s: byte %" PRIu64 " cannot be read: %s", path, offset, strerror((int)-k));
        if (k == 0) return ls_fail(LS_CKPT_CORRUPT, "%s: ends at byte %" PRIu64 ": it was cut while it was read", path, offset);
        at += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return LS_OK;
}

static ls_status open_file(const char *path, int *fd)
{
    *fd = ls_env_get()->open_read(path);
    if (*fd >= 0) return LS_OK;
    switch (*fd) {
    case -ELOOP:
        return ls_fail(LS_UNSAFE_PATH, "%s: is a symbolic link; name the file that it leads to", path);
    case -EISDIR:
        return ls_fail(LS_INVALID, "%s: is a folder; name a .safetensors file in it", path);
    case -EINVAL:
    case -ENXIO:
        return ls_fail(LS_UNSAFE_PATH, "%s: is not a regular file", path);
    default:
        return ls_fail(LS_IO, "%s: cannot be opened: %s", path, strerror(-*fd));
    }
}

static ls_status read_header(ls_ckpt *c)
{
    unsigned char first[LS_CKPT_PREFIX + 1];
    int64_t file_size = ls_env_get()->fd_size(c->fd);
    if (file_size < 0) return ls_fail(LS_IO, "%s: its size cannot be read: %s", c->path, strerror((int)-file_size));

    size_t n = (uint64_t)file_size < sizeof first ? (size_t)file_size : sizeof first, size;
    LS_TRY(read_at(c->path, c->fd, first, n, 0));
    LS_TRY(ls_ckpt_header_size(c->path, first, n, (uint64_t)file_size, &size));
    char *text = malloc(size);
    if (!text) return ls_fail(LS_NO_MEMORY, "%s: its header of %zu bytes does not fit in memory", c->path, size);
    ls_status st = read_at(c->path, c->fd, text, size, 0);
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

    ls_status st = open_file(path, &c->fd);
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
    LS_TRY(read_at(c->path, c->fd, dst, n, c->header.data_at + t->begin));
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
        st = read_at(c->path, c->fd, buffer, n, c->header.data_at + at);
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
        LS_TRY(read_at(c->path, c->fd, w->dst + (size_t)i * elem, (size_t)(next - i) * elem,
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

/* --- values ---------------------------------------------------------------------- */

float ls_ckpt_value(const void *raw, ls_dtype dtype, size_t k)
{
    if (dtype == LS_F32) return ((const float *)raw)[k];
    const uint16_t h = ((const uint16_t *)raw)[k];
    return dtype == LS_BF16 ? ls_bf16_to_f32(h) : ls_f16_to_f32(h);
}

/* In squares that stay in the cache. */
void ls_ckpt_transpose(const void *raw, ls_dtype dtype, int64_t O, int64_t I, float *out)
{
    enum { SIDE = 32 };
    for (int64_t i0 = 0; i0 < I; i0 += SIDE)
        for (int64_t o0 = 0; o0 < O; o0 += SIDE)
            for (int64_t i = i0; i < i0 + SIDE && i < I; i++)
                for (int64_t o = o0; o < o0 + SIDE && o < O; o++)
                    out[o * I + i] = ls_ckpt_value(raw, dtype, (size_t)(i * O + o));
}

/* --- into a model -------------------------------------------------------------- */

static const char *shape_text(const ls_ckpt_tensor *t, char *buf, size_t n)
{
    size_t at = (size_t)snprintf(buf, n, "[");
    for (int d = 0; d < t->ndim && at < n; d++)
        at += (size_t)snprintf(buf + at, n - at, "%s%" PRId64, d ? ", " : "", t->dim[d]);
    if (at < n) snprintf(buf + at, n - at, "]");
    return buf;
}

/* Every name in the file begins with `front`, and no name of the model does. */
static bool is_in_front(const ls_ckpt *c, const ls_params *ps, const char *front)
{
    const size_t n = strlen(front);
    for (size_t i = 0; i < c->header.ntensors; i++)
        if (strncmp(c->header.tensor[i].name, front, n) != 0) return false;
    for (int i = 0; i < ps->n; i++)
        if (strncmp(ps->item[i].name, front, n) == 0) return false;
    return c->header.ntensors > 0;
}

static const ls_ckpt_tensor *find_param(const ls_ckpt *c, const ls_param *p, const char *front)
{
    char name[LS_CKPT_MAX_NAME + 1];
    const int n = snprintf(name, sizeof name, "%s%s", front, p->name);
    return n > 0 && (size_t)n < sizeof name ? ls_ckpt_find(c, name) : NULL;
}

/* The tensor that a parameter is, or is a part of, in a file. */
static ls_tensor file_tensor(const ls_param *p)
{
    ls_tensor t = p->t;
    ls_part_shape(&p->part, &p->t, t.dim);
    if (p->transposed) {
        const int64_t rows = t.dim[0];
        t.dim[0] = t.dim[1];
        t.dim[1] = rows;
    }
    return t;
}

static ls_status check_fit(const ls_ckpt *c, const ls_param *p, const ls_ckpt_tensor *t)
{
    char want[128], found[256];
    const ls_tensor in_file = file_tensor(p);
    if (!t)
        return ls_fail(LS_SHAPE, "%s: has no tensor '%s', which the model needs: the file is of another model "
                       "(`lockstep ckpt ls` shows what it holds)", c->path, p->name);
    LS_TRY(ls_part_check(p->name, &p->part, &p->t));
    bool same = t->ndim == p->t.ndim;
    for (int d = 0; same && d < t->ndim; d++) same = t->dim[d] == in_file.dim[d];
    if (!same)
        return ls_fail(LS_SHAPE, "%s: tensor '%s' has shape %s, the model's has %s: build the model with the file's "
                       "dimensions, or load another file", c->path, t->name, shape_text(t, found, sizeof found),
                       ls_tensor_shape(&in_file, want, sizeof want));
    if (t->dtype != p->t.dtype)
        return ls_fail(LS_SHAPE, "%s: tensor '%s' has elements of type %s, the model's are %s: convert the file first",
                       c->path, t->name, t->dtype_name, ls_ckpt_dtype_name(p->t.dtype));
    return ls_param_takes_values(p) ? LS_OK : ls_fail(LS_INVALID, "parameter '%s' has no memory: bind the parameters first", p->name);
}

/* Values as they stand in the file. */
static ls_status put(ls_param *p, const char *from)
{
    const ls_tensor *t = &p->t;
    float *to;
    LS_TRY(ls_param_open(p, &to));
    if (to && p->transposed) ls_ckpt_transpose(from, t->dtype, t->dim[0], t->dim[1], to);
    else if (to) memcpy(to, from, ls_tensor_nbytes(t));
    return ls_param_close(p);
}

/* What is here of all parameters is read into a copy first, so that a failure halfway leaves the model as it was. */
static ls_status load_all(ls_ckpt *c, ls_params *ps, const char *front)
{
    size_t all = 1;
    for (int i = 0; i < ps->n; i++) all += ls_tensor_nbytes(&ps->item[i].t);
    char *copy = malloc(all), *at = copy;
    ls_status st = copy ? LS_OK : ls_fail(LS_NO_MEMORY, "%s: %zu bytes to load it do not fit in memory", c->path, all);
    for (int i = 0; st == LS_OK && i < ps->n; at += ls_tensor_nbytes(&ps->item[i].t), i++)
        st = ls_ckpt_read_param(c, find_param(c, &ps->item[i], front), &ps->item[i], at);
    at = copy;
    for (int i = 0; st == LS_OK && i < ps->n; at += ls_tensor_nbytes(&ps->item[i].t), i++) st = put(&ps->item[i], at);
    free(copy);
    return st;
}

/* The file's tensors and the model's parameters match one to one. */
static ls_status check_all(const ls_ckpt *c, const ls_params *ps, const char *front)
{
    for (int i = 0; i < ps->n; i++) LS_TRY(check_fit(c, &ps->item[i], find_param(c, &ps->item[i], front)));
    for (size_t i = 0; i < c->header.ntensors; i++) {
        const char *name = c->header.tensor[i].name;
        if (!ls_params_find(ps, name + strlen(front)))
            return ls_fail(LS_SHAPE, "%s: has a tensor '%s', which the model does not know: the file is of another model",
                           c->path, name);
    }
    return LS_OK;
}

ls_status ls_ckpt_load(const char *path, ls_params *ps, bool strip_module)
{
    ls_ckpt *c;
    LS_TRY(ls_ckpt_open(path, &c));
    ls_status st = LS_OK;
    const char *prefix = ls_ckpt_meta(c, LS_CKPT_PREFIX_KEY), *front = "";
    if (is_in_front(c, ps, MODULE)) {
        front = MODULE;
        if (!strip_module)
            st = ls_fail(LS_SHAPE, "%s: every name begins with '" MODULE "': it was saved from inside PyTorch's DDP wrapper. "
                         "Load it with the prefix stripped", path);
    } else if (prefix && is_in_front(c, ps, prefix)) {
        front = prefix;
    }
    if (st == LS_OK) st = check_all(c, ps, front);
    if (st == LS_OK) st = load_all(c, ps, front);
    ls_ckpt_close(c);
    return st;
}
