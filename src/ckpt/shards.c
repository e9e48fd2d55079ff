/* shards.c -- the files of one rank in a checkpoint. */
#include "ckpt/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/team.h"
#include "lockstep/group.h"

#define NAME_BYTES LS_SHARD_NAME

/* The tensors of one file. */
typedef struct ls_shard {
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

/* --- what is in them ------------------------------------------------------------------------------ */

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
    for (int i = 0; i < s->nown; i++)
        put(f, s->own[i].name, s->own[i].dtype, 1, zero, &s->own[i].count, false, s->own[i].p);
    return LS_OK;
}

static int most_boxes(const ls_state *s)
{
    int most = 1;
    for (int i = 0; s->ps && i < ls_params_total(s->ps); i++) /* the same number on all ranks */
        if (ls_piece_most(ls_params_at(s->ps, i)) > most) most = ls_piece_most(ls_params_at(s->ps, i));
    return most;
}

static int most_tensors(const ls_state *s)
{
    const int each = 2 + (s->optim ? ls_optim_nstates(s->optim) : 0);
    return (s->ps ? s->ps->n * each : 0) + s->nown + 1;
}

enum { OF_FILE = 1, OF_SAVE = 4, MOST_PAIRS = OF_FILE + OF_SAVE + LS_SHARD_META }; /* pairs; the program's come last */

static ls_status list_meta(ls_shards *out, const char *const *meta)
{
    const char *own[2 * OF_SAVE] = { "DCP_VERSION",   "1.0",     "lockstep.step", out->step,
                                     "lockstep.rank", out->rank, "lockstep.save", out->save };
    int n = 0;
    while (meta && meta[2 * n]) n++;
    if (n > LS_SHARD_META) return ls_fail(LS_INVALID, "ls_state_set_meta: more than %d pairs", LS_SHARD_META);
    out->meta = calloc(2 * MOST_PAIRS + 1, sizeof *out->meta);
    if (!out->meta) return ls_fail(LS_NO_MEMORY, "the metadata of a checkpoint");
    memcpy(out->meta, own, sizeof own);
    if (n > 0) memcpy(out->meta + 2 * OF_SAVE, meta, 2 * (size_t)n * sizeof *out->meta);
    return LS_OK;
}

ls_status ls_shards_begin(ls_shards *out, const char *save, int64_t step, int number, int files, int most)
{
    *out = (ls_shards){ .number = number };
    snprintf(out->save, sizeof out->save, "%s", save);
    snprintf(out->step, sizeof out->step, "%" PRId64, step);
    snprintf(out->rank, sizeof out->rank, "%d", number);
    out->file = calloc((size_t)files, sizeof *out->file);
    out->sums = calloc((size_t)files, sizeof *out->sums);
    if (!out->file || !out->sums) return ls_fail(LS_NO_MEMORY, "checksums of %d files", files);
    out->n = files;
    for (int k = 0; k < files; k++) LS_TRY(shard_create(&out->file[k], most));
    return LS_OK;
}

void ls_shards_put(ls_shards *f, int k, const char *name, ls_dtype dtype, int ndim, const int64_t *first,
                   const int64_t *count, bool transposed, const void *data)
{
    put(&f->file[k], name, dtype, ndim, first, count, transposed, data);
}

ls_status ls_shards_end(ls_shards *f, const char *const *meta)
{
    for (int k = 0; k < f->n; k++) {
        if (f->file[k].n == 0) continue;
        ls_text_add(&f->file[k].info, "}");
        LS_TRY(ls_text_status(&f->file[k].info));
    }
    return list_meta(f, meta);
}

ls_status ls_shards_list(const ls_state *s, const char *save, int64_t step, ls_shards *out)
{
    LS_TRY(ls_shards_begin(out, save, step, ls_group_rank(s->g), most_boxes(s), most_tensors(s)));
    for (int k = 0; k < out->n; k++) LS_TRY(put_all(s, &out->file[k], k));
    return ls_shards_end(out, s->meta);
}

void ls_shards_free(ls_shards *f)
{
    for (int k = 0; k < f->n; k++) {
        shard_free(&f->file[k]);
        ls_ckpt_sums_free(&f->sums[k]);
    }
    free(f->file);
    free(f->sums);
    free(f->meta);
    *f = (ls_shards){ 0 };
}

/* --- a copy ------------------------------------------------------------------------------------------ */

#define COPY_PIECE ((size_t)1 << 20)

/* What a program has added is at multiples of 8 bytes in the copy. */
static size_t aligned(size_t n) { return (n + 7) / 8 * 8; }

size_t ls_shards_copy_bytes(const ls_state *s)
{
    const size_t each = sizeof(float) * (size_t)(1 + (s->optim ? ls_optim_nstates(s->optim) : 0));
    size_t n = 0;
    for (int i = 0; s->ps && i < s->ps->n; i++) n += s->ps->item[i].keeps.count * each;
    for (int i = 0; ls_group_rank(s->g) == 0 && i < s->nown; i++)
        n += (i == 0 ? 8 : 0) + aligned((size_t)s->own[i].count * ls_dtype_size(s->own[i].dtype));
    return aligned(n);
}

/* A tensor that is copied: to [at, at + nbytes) of the copy. */
typedef struct move {
    const char *from;
    size_t at, nbytes;
} move;

typedef struct copying {
    const move *move; /* owned: [n], `at` ascending */
    int n;
    char *to;
} copying;

/* The first that ends behind `at`. */
static int first_at(const copying *c, size_t at)
{
    int low = 0, high = c->n;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (c->move[mid].at + c->move[mid].nbytes <= at) low = mid + 1;
        else high = mid;
    }
    return low;
}

static void copy_piece(void *arg, int64_t i)
{
    const copying *c = arg;
    const size_t begin = (size_t)i * COPY_PIECE, end = begin + COPY_PIECE;
    for (int k = first_at(c, begin); k < c->n && c->move[k].at < end; k++) {
        const move *m = &c->move[k];
        const size_t a = m->at > begin ? m->at : begin, b = m->at + m->nbytes < end ? m->at + m->nbytes : end;
        ls_copy_past_cache(c->to + a, m->from + (a - m->at), b - a);
    }
}

ls_status ls_shards_copy(ls_shards *f, void *to, size_t nbytes)
{
    size_t at = 0;
    int most = 0, n = 0;
    for (int k = 0; k < f->n; k++) most += f->file[k].n;
    move *list = calloc((size_t)most + 1, sizeof *list);
    if (!list) return ls_fail(LS_NO_MEMORY, "a list of %d tensors to copy", most);
    for (int k = 0; k < f->n; k++)
        for (int i = 0; i < f->file[k].n; i++) {
            ls_tensor *t = &f->file[k].shape[i];
            if (t->data == &f->file[k].number[i]) continue; /* the list has it already */
            if (t->dtype != LS_F32) at = aligned(at);
            list[n++] = (move){ t->data, at, ls_tensor_nbytes(t) };
            t->data = (char *)to + at;
            at += ls_tensor_nbytes(t);
        }
    const copying c = { list, n, to };
    if (at <= nbytes) ls_team_run(copy_piece, (void *)&c, (int64_t)((at + COPY_PIECE - 1) / COPY_PIECE));
    free(list);
    return at <= nbytes ? LS_OK : ls_fail(LS_INTERNAL, "a copy of %zu bytes for a checkpoint: %zu were planned", at, nbytes);
}

/* --- writing them --------------------------------------------------------------------------------------- */

void ls_shards_name(char *out, size_t n, int rank, int k, int files)
{
    snprintf(out, n, LS_SHARDED_NAME "/shard-%05d-model-%05d-of-%05d.safetensors", rank + 1, k + 1, files);
}

ls_status ls_shards_write(ls_shards *f, const char *folder)
{
    char name[128];
    for (int k = 0; k < f->n; k++) {
        const shard *file = &f->file[k];
        const char *meta[2 * MOST_PAIRS + 1] = { "DCP_SHARDING_INFO", file->info.p };
        ls_text path = { 0 };
        if (file->n == 0) continue;
        memcpy(meta + 2 * OF_FILE, f->meta, 2 * (MOST_PAIRS - OF_FILE) * sizeof *meta);
        ls_shards_name(name, sizeof name, f->number, k, f->n);
        ls_text_add(&path, "%s/%s", folder, name);
        ls_status st = ls_text_status(&path);
        if (st == LS_OK) st = ls_ckpt_write_summed(path.p, file->item, file->n, meta, &f->sums[k]);
        ls_text_free(&path);
        LS_TRY(st);
    }
    return LS_OK;
}
