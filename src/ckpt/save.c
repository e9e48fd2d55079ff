/* save.c -- writing tensors as one safetensors file, whole or not at all. */
#include "ckpt/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lint.h"
#include "base/commit.h"
#include "base/context.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/text.h"
#include "ckpt/format.h"
#include "coll/reduce.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors is little-endian; a big-endian machine would have to swap bytes here and in load.c"
#endif

#define DATA_ALIGN 64 /* the data section begins at a multiple: it can be mapped and used in place */

static ls_status check_meta(const char *const *meta)
{
    for (; meta && *meta; meta += 2) {
        const char *key = *meta;
        if (strcmp(key, "format") == 0 || strcmp(key, "lockstep.version") == 0 || strcmp(key, "lockstep.header") == 0 ||
            strncmp(key, "lockstep.xxh3.", 14) == 0)
            return ls_fail(LS_INVALID, "checkpoint metadata '%s': the key is reserved", key);
        if (!meta[1]) return ls_fail(LS_INVALID, "checkpoint metadata '%s' has no value", key);
    }
    return LS_OK;
}

/* --- an item's bytes, piece by piece ------------------------------------------ */

#define PIECE ((size_t)1 << 18) /* elements converted at a time, and at least a row of a transposed matrix */

/* Where a piece is converted. */
typedef struct workspace {
    float *f32;    /* owned, both: `room` elements */
    uint16_t *f16;
    size_t room;
    const ls_param *param; /* whose values were asked for last, */
    const float *whole;    /* and these */
} workspace;

/* Takes the next bytes. */
typedef ls_status (*sink)(void *arg, const void *p, size_t n);

static bool converts(const ls_ckpt_item *it) { return it->transposed || it->dtype != it->from->dtype; }

size_t ls_ckpt_item_nbytes(const ls_ckpt_item *it)
{
    return (size_t)ls_tensor_count(it->from) * ls_dtype_size(it->dtype);
}

static ls_status workspace_create(const ls_ckpt_item *item, int n, workspace *w)
{
    *w = (workspace){ 0 };
    for (int i = 0; i < n; i++) {
        if (!converts(&item[i])) continue;
        const size_t row = (size_t)item[i].from->dim[0];
        if (w->room < PIECE) w->room = PIECE;
        if (item[i].transposed && row > w->room) w->room = row;
    }
    if (w->room == 0) return LS_OK;
    w->f32 = malloc(w->room * sizeof *w->f32);
    w->f16 = malloc(w->room * sizeof *w->f16);
    return w->f32 && w->f16 ? LS_OK : ls_fail(LS_NO_MEMORY, "%zu elements to convert tensors in", w->room);
}

static void workspace_free(workspace *w)
{
    free(w->f32);
    free(w->f16);
}

/* Rows [first, first + rows) of the transpose of w [O, I]: out[i][o] = w[o][i]. */
static void transpose(const float *w, int64_t O, int64_t I, int64_t first, int64_t rows, float *out)
{
    ls_ckpt_turn(w + first, (size_t)I, O, rows, out, (size_t)O);
}

static ls_status convert(const ls_ckpt_item *it, workspace *w, const float *v, size_t n, sink fn, void *arg)
{
    if (it->dtype == LS_F32) return fn(arg, v, n * sizeof *v);
    for (size_t k = 0; k < n; k++) w->f16[k] = it->dtype == LS_BF16 ? ls_f32_to_bf16(v[k]) : ls_f32_to_f16(v[k]);
    return fn(arg, w->f16, n * sizeof *w->f16);
}

static ls_status stream_values(const ls_ckpt_item *it, const float *v, workspace *w, sink fn, void *arg)
{
    const size_t count = (size_t)ls_tensor_count(it->from);
    if (!converts(it)) return fn(arg, v, ls_tensor_nbytes(it->from));
    if (!it->transposed) {
        for (size_t at = 0; at < count; at += PIECE)
            LS_TRY(convert(it, w, v + at, count - at < PIECE ? count - at : PIECE, fn, arg));
        return LS_OK;
    }
    const int64_t O = it->from->dim[0], I = it->from->dim[1], most = (int64_t)w->room / O;
    for (int64_t i = 0; i < I; i += most) {
        const int64_t rows = I - i < most ? I - i : most;
        transpose(v, O, I, i, rows, w->f32);
        LS_TRY(convert(it, w, w->f32, (size_t)(rows * O), fn, arg));
    }
    return LS_OK;
}

static ls_status stream(const ls_ckpt_item *it, workspace *w, sink fn, void *arg)
{
    if (!it->values) return stream_values(it, (const float *)it->from->data + it->skip, w, fn, arg);
    if (it->param != w->param) LS_TRY(it->values->whole(it->values->arg, it->param, &w->whole));
    w->param = it->param;
    return stream_values(it, w->whole + it->skip, w, fn, arg);
}

/* --- where the bytes go ---------------------------------------------------------- */

/* A file that is being written, and the digests of what was written of it so far. */
typedef struct output {
    ls_commit *file;     /* owned */
    ls_digest *tensor;   /* owned: of the item at hand */
    ls_digest *block;    /* owned: of the block at hand */
    size_t in_block;     /* bytes of it so far */
    ls_ckpt_sums *sums;  /* borrowed; NULL: none are wanted */
    int asked;           /* items whose values were asked for */
} output;

void ls_ckpt_sums_free(ls_ckpt_sums *s)
{
    free(s->block);
    *s = (ls_ckpt_sums){ 0 };
}

static ls_status output_open(output *o, const char *path, ls_ckpt_sums *sums, uint64_t nbytes)
{
    *o = (output){ .tensor = ls_digest_create(), .block = ls_digest_create(), .sums = sums };
    if (sums) sums->block = malloc((size_t)((nbytes + LS_CKPT_BLOCK - 1) / LS_CKPT_BLOCK + 1) * sizeof *sums->block);
    if (!o->tensor || !o->block || (sums && !sums->block))
        return ls_fail(LS_NO_MEMORY, "%s: digests of %" PRIu64 " bytes", path, nbytes);
    LS_TRY(ls_commit_create(path, &o->file));
    ls_commit_expect(o->file, nbytes);
    return LS_OK;
}

static void output_close(output *o)
{
    ls_commit_destroy(o->file);
    ls_digest_destroy(o->tensor);
    ls_digest_destroy(o->block);
}

static void end_block(output *o)
{
    if (o->in_block > 0 && o->sums) o->sums->block[o->sums->nblocks++] = ls_digest_u64(o->block);
    ls_digest_reset(o->block);
    o->in_block = 0;
}

/* A sink: a block at a time, so that its digests are computed while it is in the cache. */
static ls_status to_file(void *arg, const void *p, size_t n)
{
    output *o = arg;
    const char *at = p;
    while (n > 0) {
        const size_t left = LS_CKPT_BLOCK - o->in_block, k = n < left ? n : left;
        LS_TRY(ls_commit_write(o->file, at, k));
        ls_digest_add(o->tensor, at, k);
        if (o->sums) ls_digest_add(o->block, at, k);
        o->in_block += k;
        if (o->in_block == LS_CKPT_BLOCK) end_block(o);
        at += k;
        n -= k;
    }
    return LS_OK;
}

/* --- the header ------------------------------------------------------------------ */

static ls_status check_items(const ls_ckpt_item *item, int n)
{
    for (int i = 0; i < n; i++) {
        const ls_tensor *t = item[i].from;
        if ((!t->data && !item[i].values) || !ls_ckpt_dtype_name(t->dtype))
            return ls_fail(LS_INVALID, "parameter '%s' has no %s: bind the parameters before saving them", item[i].name,
                           t->data ? "element type" : "values");
        const bool narrows = item[i].dtype == LS_BF16 || item[i].dtype == LS_F16;
        if (item[i].dtype != t->dtype && !(t->dtype == LS_F32 && narrows))
            return ls_fail(LS_INVALID, "parameter '%s' is %s: it cannot be written as %s", item[i].name,
                           ls_dtype_name(t->dtype), ls_dtype_name(item[i].dtype));
        if (item[i].transposed && (t->ndim != 2 || t->dtype != LS_F32))
            return ls_fail(LS_INVALID, "parameter '%s' cannot be transposed: it is not a matrix of float", item[i].name);
    }
    return LS_OK;
}

static void add_pair(ls_text *out, const char *key, const char *value)
{
    ls_text_add(out, "%s", out->p[out->n - 1] == '{' ? "" : ",");
    ls_json_string(out, key);
    ls_text_add(out, ":");
    ls_json_string(out, value);
}

#define DIGITS "0000000000000000" /* of a digest that is not known yet */

/* The text up to the data section, and where in it digests are to be filled in. */
typedef struct header {
    ls_text text;
    size_t own;     /* of the 16 digits of the header's digest, */
    size_t *tensor; /* owned: and of each item's */
} header;

static void header_free(header *h)
{
    ls_text_free(&h->text);
    free(h->tensor);
}

static void fill_in(header *h, size_t at, uint64_t digest)
{
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, digest);
    memcpy(h->text.p + at, hex, 16);
}

/* The header's own digest is that of the header with zeros in its place. */
static void fill_in_own(header *h)
{
    memcpy(h->text.p + h->own, DIGITS, 16);
    fill_in(h, h->own, ls_hash64(h->text.p, h->text.n, 0));
}

static ls_status add_metadata(header *h, const ls_ckpt_item *item, int n, const char *const *meta)
{
    ls_text *out = &h->text;
    ls_text_add(out, "{");
    LS_TRY(ls_text_status(out));
    add_pair(out, "format", "pt");
    add_pair(out, "lockstep.version", "1");
    add_pair(out, "lockstep.header", DIGITS);
    h->own = out->n - 17;
    for (; meta && *meta; meta += 2) add_pair(out, meta[0], meta[1]);
    for (int i = 0; i < n; i++) {
        char key[14 + LS_CKPT_MAX_NAME + 1];
        snprintf(key, sizeof key, "lockstep.xxh3.%s", item[i].name);
        add_pair(out, key, DIGITS);
        h->tensor[i] = out->n - 17;
    }
    ls_text_add(out, "}");
    return ls_text_status(out);
}

/* The size prefix and the header, up to the first byte of data, with zeros for the items' digests. */
static ls_status make_header(const ls_ckpt_item *item, int n, const char *const *meta, header *h)
{
    ls_text *out = &h->text;
    uint64_t at = 0, size = 0;
    if (!(h->tensor = calloc((size_t)n + 1, sizeof *h->tensor))) return ls_fail(LS_NO_MEMORY, "a list of %d tensors", n);
    ls_text_addn(out, (const char *)&size, sizeof size);
    ls_text_add(out, "{\"__metadata__\":");
    LS_TRY(ls_text_status(out));
    LS_TRY(add_metadata(h, item, n, meta));
    for (int i = 0; i < n; i++) {
        const ls_tensor *t = item[i].from;
        ls_text_add(out, ",");
        ls_json_string(out, item[i].name);
        ls_text_add(out, ":{\"dtype\":\"%s\",\"shape\":[", ls_ckpt_dtype_name(item[i].dtype));
        for (int d = 0; d < t->ndim; d++)
            ls_text_add(out, "%s%" PRId64, d ? "," : "", t->dim[item[i].transposed ? 1 - d : d]);
        ls_text_add(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + ls_ckpt_item_nbytes(&item[i]));
        at += ls_ckpt_item_nbytes(&item[i]);
    }
    ls_text_add(out, "}");
    while (!out->failed && out->n % DATA_ALIGN != 0) ls_text_addn(out, " ", 1);
    LS_TRY(ls_text_status(out));
    size = out->n - sizeof size;
    memcpy(out->p, &size, sizeof size);
    fill_in_own(h);
    return LS_OK;
}

/* --- the file ---------------------------------------------------------------------- */

/* The header is written twice: its digests are known after the data. */
static ls_status write_all(output *o, header *h, const ls_ckpt_item *item, int n, workspace *w)
{
    LS_TRY(ls_commit_write(o->file, h->text.p, h->text.n));
    for (int i = 0; i < n; i++) {
        ls_digest_reset(o->tensor);
        o->asked = i + 1;
        LS_TRY(stream(&item[i], w, to_file, o));
        fill_in(h, h->tensor[i], ls_digest_u64(o->tensor));
    }
    fill_in_own(h);
    LS_TRY(ls_commit_rewrite(o->file, 0, h->text.p, h->text.n));
    end_block(o);
    return ls_commit_finish(o->file);
}

static ls_status write_file(const char *path, header *h, const ls_ckpt_item *item, int n, workspace *w, uint64_t total,
                            ls_ckpt_sums *sums, int *asked)
{
    output o;
    ls_status st = output_open(&o, path, sums, total - h->text.n);
    if (st == LS_OK) st = write_all(&o, h, item, n, w);
    *asked = o.asked;
    output_close(&o);
    if (st < 0 || !sums) return st;
    sums->bytes = total;
    sums->header_bytes = h->text.n;
    sums->header = ls_hash64(h->text.p, h->text.n, 0);
    return LS_OK;
}

ls_status ls_ckpt_attend_items(const ls_ckpt_item *item, int n, const ls_values *values)
{
    const float *unused;
    for (int i = 0; i < n; i++)
        if (i == 0 || item[i].param != item[i - 1].param) LS_TRY(values->whole(values->arg, item[i].param, &unused));
    return LS_OK;
}

/* After a failure the other ranks still bring their parts of the remaining values, and wait for this one. */
static void attend_rest(const ls_ckpt_item *item, int n, int asked)
{
    char why[LS_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", ls_last_error());
    while (asked > 0 && asked < n && item[asked].values && item[asked].param == item[asked - 1].param) asked++;
    if (asked < n && item[asked].values) (void)ls_ckpt_attend_items(item + asked, n - asked, item[asked].values);
    (void)ls_fail(LS_IO, "%s", why);
}

ls_status ls_ckpt_write(const char *path, const ls_ckpt_item *item, int n, const char *const *meta)
{
    return ls_ckpt_write_summed(path, item, n, meta, NULL);
}

ls_status ls_ckpt_write_summed(const char *path, const ls_ckpt_item *item, int n, const char *const *meta,
                               ls_ckpt_sums *sums)
{
    header h = { 0 };
    ls_ckpt_header check = { 0 };
    workspace w = { 0 };
    int asked = 0;
    if (sums) *sums = (ls_ckpt_sums){ 0 };
    ls_status st = check_meta(meta);
    if (st == LS_OK) st = check_items(item, n);
    if (st == LS_OK) st = workspace_create(item, n, &w);
    if (st == LS_OK) st = make_header(item, n, meta, &h);
    if (st != LS_OK) goto done;

    /* What we could not read back (a name twice, a control character) is not written. */
    uint64_t total = h.text.n;
    for (int i = 0; i < n; i++) total += ls_ckpt_item_nbytes(&item[i]);
    st = ls_ckpt_header_parse(path, h.text.p, h.text.n, total, &check);
    if (st != LS_OK) {
        st = ls_while(st == LS_NO_MEMORY ? st : LS_INVALID, "checking a checkpoint before it is written");
        goto done;
    }

    st = write_file(path, &h, item, n, &w, total, sums, &asked);
    if (st == LS_IO) {
        const char *slash = strrchr(path, '/');
        st = ls_fail(LS_CKPT_FAILED, "%s (the checkpoint needs %" PRIu64 " bytes in %.*s; an older one stays as it was)",
                     ls_last_error(), total, slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    }
done:
    if (st < 0) attend_rest(item, n, asked);
    if (st < 0 && sums) ls_ckpt_sums_free(sums);
    ls_ckpt_header_free(&check);
    header_free(&h);
    workspace_free(&w);
    return st;
}

static size_t pairs(const char *const *meta)
{
    size_t n = 0;
    while (meta && meta[2 * n]) n++;
    return n;
}

static ls_status attend_all(const ls_params *ps, const ls_values *values)
{
    const float *unused;
    for (int i = 0; i < ls_params_total(ps); i++) LS_TRY(values->whole(values->arg, ls_params_at(ps, i), &unused));
    return LS_OK;
}

ls_ckpt_item ls_ckpt_item_of(const ls_param *p, const char *name, const ls_values *values, ls_tensor *shape)
{
    *shape = (ls_tensor){ .dtype = p->t.dtype, .ndim = p->t.ndim, .data = values ? NULL : p->t.data };
    ls_part_shape(&p->part, &p->t, shape->dim);
    return (ls_ckpt_item){ .name = name, .from = shape, .values = values, .param = p, .dtype = p->t.dtype,
                           .transposed = p->transposed };
}

static ls_status save(const char *path, const ls_params *ps, const char *prefix, const ls_values *values,
                      const char *const *meta)
{
    const int n = ls_params_total(ps);
    const size_t room = strlen(prefix) + LS_NAME_BYTES, npairs = pairs(meta);
    ls_ckpt_item *item = calloc((size_t)n + 1, sizeof *item);
    ls_tensor *shape = calloc((size_t)n + 1, sizeof *shape);
    char *name = calloc((size_t)n + 1, room);
    const char **all = calloc(2 * npairs + 3, sizeof *all);
    ls_status st = LS_OK;
    ls_lint_note("save", "");
    if (!item || !shape || !name || !all) {
        st = ls_fail(LS_NO_MEMORY, "%s: a list of %d tensors", path, n);
        goto done;
    }
    for (size_t i = 0; st == LS_OK && i < 2 * npairs; i++) {
        all[i] = meta[i];
        if (i % 2 == 0 && strcmp(meta[i], LS_CKPT_PREFIX_KEY) == 0)
            st = ls_fail(LS_INVALID, "checkpoint metadata '" LS_CKPT_PREFIX_KEY "': the key is reserved");
    }
    if (*prefix) {
        all[2 * npairs] = LS_CKPT_PREFIX_KEY;
        all[2 * npairs + 1] = prefix;
    }
    for (int i = 0; st == LS_OK && i < n; i++) {
        const ls_param *p = ls_params_at(ps, i);
        char *own = name + (size_t)i * room;
        snprintf(own, room, "%s%s", prefix, p->name);
        item[i] = ls_ckpt_item_of(p, own, values, &shape[i]);
        if (!values && !ls_part_is_all(&p->part))
            st = ls_fail(LS_INVALID, "parameter '%s' is a part of a tensor here: save it by ls_ckpt_save_of", p->name);
    }
    if (st == LS_OK) st = ls_ckpt_write(path, item, n, all);
done:
    free(all);
    free(name);
    free(shape);
    free(item);
    return st;
}

ls_status ls_ckpt_save_prefixed(const char *path, const ls_params *ps, const char *prefix, const char *const *meta)
{
    return save(path, ps, prefix, NULL, meta);
}

ls_status ls_ckpt_save(const char *path, const ls_params *ps, const char *const *meta)
{
    return save(path, ps, "", NULL, meta);
}

ls_status ls_ckpt_save_of(const char *path, const ls_params *ps, const ls_values *values, const char *const *meta)
{
    return path ? save(path, ps, "", values, meta) : attend_all(ps, values);
}
