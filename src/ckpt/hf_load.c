/* hf_load.c -- from a Hugging Face folder into a model's parameters.
 *
 * First everything that headers and names can tell (open_folder, match, check), then the
 * values, tensor by tensor: read, widened to f32, transposed where the file has [in, out]. Of a
 * parameter that is a part of a tensor (ls_param.part) that part alone is kept (ls_ckpt_read_param).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "ckpt/format.h"
#include "ckpt/hf.h"
#include "ckpt/hf_experts.h"
#include "ckpt/hf_names.h"
#include "coll/reduce.h"
#include "model/lm.h"

/* An open folder. */
typedef struct folder {
    const char *dir;
    ls_hf_index index; /* empty when the model is one file */
    ls_ckpt **shard;   /* owned */
    int nshards;
    bool bare;         /* the names lack their prefix */
    const ls_lm_class *lm; /* of the model that config.json describes */
} folder;

/* --- opening ------------------------------------------------------------------------------ */

static ls_file_type type_of(const char *dir, const char *name)
{
    char path[1024];
    ls_file_info info;
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path || ls_env_get()->info(path, &info) < 0) return LS_FILE_NONE;
    return info.type;
}

static ls_status open_shard(folder *f, const char *name)
{
    ls_text path = { 0 };
    ls_text_add(&path, "%s/%s", f->dir, name);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_ckpt_open(path.p, &f->shard[f->nshards]);
    if (st == LS_OK) f->nshards++;
    if (st == LS_UNSAFE_PATH)
        st = ls_fail(st, "%s. A cache of Hugging Face is made of links: download into a folder of its own (hf download MODEL "
                     "--local-dir DIR)", ls_last_error());
    ls_text_free(&path);
    return st;
}

static ls_status open_index(folder *f)
{
    ls_text path = { 0 };
    char *text = NULL;
    size_t n = 0;
    ls_text_add(&path, "%s/" HF_INDEX, f->dir);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_file_read(path.p, LS_HF_MAX_INDEX, &text, &n);
    if (st == LS_OK) st = ls_hf_index_parse(path.p, text, n, &f->index);
    if (st == LS_OK && !(f->shard = calloc((size_t)f->index.nshards, sizeof *f->shard)))
        st = ls_fail(LS_NO_MEMORY, "%s: %d shards", path.p, f->index.nshards);
    for (int i = 0; st == LS_OK && i < f->index.nshards; i++) {
        if (type_of(f->dir, f->index.shard[i]) == LS_FILE_NONE)
            st = ls_fail(LS_BAD_FILE, "%s: names the shard %s, which is not in the folder: fetch the whole of it", path.p,
                         f->index.shard[i]);
        else st = open_shard(f, f->index.shard[i]);
    }
    free(text);
    ls_text_free(&path);
    return st;
}

/* No safetensors here; say what is. */
static ls_status nothing_to_open(const char *dir)
{
    char names[8192], path[1280];
    ls_file_info info;
    const ls_env *env = ls_env_get();
    const int missing = env->info(dir, &info);
    if (missing < 0) return ls_fail(LS_IO, "%s: cannot be opened: %s", dir, strerror(-missing));
    if (info.type == LS_FILE_REGULAR) {
        LS_TRY(ls_hf_refuse_pickle(dir, dir));
        return ls_fail(LS_BAD_FILE, "%s: is a file; name the folder with config.json and model.safetensors", dir);
    }
    int n = env->list(dir, names, sizeof names);
    for (const char *name = names; n-- > 0; name += strlen(name) + 1) {
        snprintf(path, sizeof path, "%.800s/%.300s", dir, name);
        if (strcmp(name, "training_args.bin") != 0) LS_TRY(ls_hf_refuse_pickle(path, name));
    }
    return ls_fail(LS_BAD_FILE, "%s: has neither model.safetensors nor " HF_INDEX, dir);
}

static void close_folder(folder *f)
{
    for (int i = 0; i < f->nshards; i++) ls_ckpt_close(f->shard[i]);
    free(f->shard);
    ls_hf_index_free(&f->index);
}

static ls_status open_folder(const char *dir, const ls_hf_config *c, folder *f)
{
    const ls_model_class *cls = ls_hf_class(c->model);
    if (!cls) return ls_fail(LS_UNSUPPORTED, "%s: a model '%s' has no form in Hugging Face's files", dir, c->model ? c->model : "");
    *f = (folder){ .dir = dir, .bare = true, .lm = cls->lm };
    ls_status st;
    if (type_of(dir, HF_WHOLE) != LS_FILE_NONE) {
        f->shard = calloc(1, sizeof *f->shard);
        st = f->shard ? open_shard(f, HF_WHOLE) : ls_fail(LS_NO_MEMORY, "%s", dir);
    } else if (type_of(dir, HF_INDEX) != LS_FILE_NONE) {
        st = open_index(f);
    } else {
        st = nothing_to_open(dir);
    }
    const char *prefix = f->lm->prefix;
    for (int s = 0; st == LS_OK && s < f->nshards; s++)
        for (int i = 0; i < ls_ckpt_count(f->shard[s]); i++)
            if (strncmp(ls_ckpt_at(f->shard[s], i)->name, prefix, strlen(prefix)) == 0) f->bare = false;
    if (st < 0) close_folder(f);
    return st;
}

/* --- names --------------------------------------------------------------------------------- */

/* The parameter's name as the files have it. */
static const char *file_name(const folder *f, const char *name)
{
    const size_t n = strlen(f->lm->prefix);
    return f->bare && strncmp(name, f->lm->prefix, n) == 0 ? name + n : name;
}

/* The head's matrix, which a file may have though it is tied. */
static const char *head_name(const folder *f) { return ls_lm_tied(&f->lm->head)->name; }

/* The tensor of this name in the files and, in *shard, where; NULL if absent. */
static const ls_ckpt_tensor *find(const folder *f, const char *name, int *shard)
{
    for (*shard = 0; *shard < f->nshards; ++*shard) {
        const ls_ckpt_tensor *t = ls_ckpt_find(f->shard[*shard], name);
        if (t) return t;
    }
    return NULL;
}

/* A list of names that is said in one sentence, as far as it fits, and else in the log. */
typedef struct name_list {
    ls_text text;
    int n, shown;
} name_list;

static void list_name(name_list *l, const char *dir, const char *kind, const char *name)
{
    if (l->text.n + strlen(name) < 240) {
        ls_text_add(&l->text, "%s%s", l->n ? ", " : "", name);
        l->shown++;
    } else {
        ls_log(LS_LOG_ERROR, "%s: %s: %s", dir, kind, name);
    }
    l->n++;
}

static ls_status say_names(name_list *l, const folder *f, const char *verb, const char *advice)
{
    ls_status st = l->n == 0 ? LS_OK : ls_text_status(&l->text);
    char more[32] = "";
    if (l->n > l->shown) snprintf(more, sizeof more, " and %d more", l->n - l->shown);
    if (l->n > 0 && st == LS_OK)
        st = ls_fail(LS_SHAPE, "%.100s: %s %d tensor%s: %s%s: %s", f->dir, verb, l->n, l->n == 1 ? "" : "s",
                     ls_text_str(&l->text), more, advice);
    ls_text_free(&l->text);
    return st;
}

/* Written by older versions of transformers, and no parameters. */
static bool is_buffer(const folder *f, const char *name)
{
    const size_t n = strlen(name);
    for (const char *const *buffer = f->lm->buffers; *buffer; buffer++) {
        const size_t k = strlen(*buffer);
        if (n >= k && strcmp(name + n - k, *buffer) == 0) return true;
    }
    return false;
}

/* The model's name of a tensor of the files. */
static bool is_known(const folder *f, const ls_hf_config *c, const ls_params *ps, const char *name)
{
    char whole[LS_NAME_BYTES], param[LS_HF_NAME_BYTES];
    const int n = snprintf(whole, sizeof whole, "%s%s", f->bare ? f->lm->prefix : "", ls_hf_param_name(name, param));
    if (n > 0 && (size_t)n < sizeof whole && ls_params_find_any(ps, whole)) return true;
    return strcmp(name, head_name(f)) == 0 && (c->lm.tied || ls_params_find_any(ps, name));
}

/* Whether the files have a tensor for each expert of this parameter: Lockstep's own have one of all. */
static bool is_apart(const folder *f, const ls_hf_config *c, const ls_param *p)
{
    int shard;
    return ls_hf_tensors(&c->lm, p->name) > 1 && !find(f, file_name(f, p->name), &shard);
}

/* The name of tensor e of a parameter, as the files have it. */
static const char *tensor_name(const folder *f, const ls_param *p, bool apart, int64_t e, char out[LS_HF_NAME_BYTES])
{
    return apart ? ls_hf_tensor_name(file_name(f, p->name), e, out) : file_name(f, p->name);
}

static void list_missing(const folder *f, const ls_hf_config *c, const ls_param *p, name_list *missing)
{
    char name[LS_HF_NAME_BYTES];
    int shard;
    const bool apart = is_apart(f, c, p);
    for (int64_t e = 0; e < (apart ? c->lm.n_experts : 1); e++)
        if (!find(f, tensor_name(f, p, apart, e, name), &shard))
            list_name(missing, f->dir, "missing", tensor_name(f, p, apart, e, name));
}

static ls_status check_names(const folder *f, const ls_hf_config *c, const ls_params *ps)
{
    name_list missing = { 0 }, unknown = { 0 };
    for (int i = 0; i < ps->n; i++) list_missing(f, c, &ps->item[i], &missing);
    for (int s = 0; s < f->nshards; s++)
        for (int i = 0; i < ls_ckpt_count(f->shard[s]); i++) {
            const char *name = ls_ckpt_at(f->shard[s], i)->name;
            if (!is_buffer(f, name) && !is_known(f, c, ps, name)) list_name(&unknown, f->dir, "unknown", name);
        }
    const ls_status st = say_names(&missing, f, "lacks", "the files are of another model than config.json, or not all there");
    const ls_status also = say_names(&unknown, f, "has", "the model does not know them, they are of another one");
    return st < 0 && also < 0 ? ls_fail(LS_SHAPE, "%.100s: lacks %d tensors that config.json's model has (the log names "
                                        "them), and has %d that it does not know: the files are of another model",
                                        f->dir, missing.n, unknown.n)
           : st < 0           ? st
                              : also;
}

/* Index and shards say the same. */
static ls_status check_index(const folder *f)
{
    const ls_hf_index *ix = &f->index;
    for (size_t i = 0; i < ix->nplaces; i++)
        if (!ls_ckpt_find(f->shard[ix->place[i].shard], ix->place[i].name))
            return ls_fail(LS_BAD_FILE, "%s/" HF_INDEX ": tensor '%s' should be in %s, and is not", f->dir, ix->place[i].name,
                           ix->shard[ix->place[i].shard]);
    for (int s = 0; s < ix->nshards; s++)
        for (int i = 0; i < ls_ckpt_count(f->shard[s]); i++) {
            const char *name = ls_ckpt_at(f->shard[s], i)->name;
            const struct ls_hf_place *p = ls_hf_index_find(ix, name);
            if (!p || p->shard != s)
                return ls_fail(LS_BAD_FILE, "%s/%s: has a tensor '%s', which the index has %s%s", f->dir, ix->shard[s], name,
                               p ? "in " : "not", p ? ix->shard[p->shard] : "");
        }
    return LS_OK;
}

/* --- shapes ---------------------------------------------------------------------------------- */

static const char *shape_text(int ndim, const int64_t *dim, bool transposed, char *buf, size_t n)
{
    size_t at = (size_t)snprintf(buf, n, "[");
    for (int d = 0; d < ndim && at < n; d++)
        at += (size_t)snprintf(buf + at, n - at, "%s%" PRId64, d ? ", " : "", dim[transposed ? ndim - 1 - d : d]);
    if (at < n) snprintf(buf + at, n - at, "]");
    return buf;
}

/* experts: t is the matrix of one of so many; 1: it is all of the parameter. */
static ls_status check_shape(const folder *f, const ls_ckpt_tensor *t, const ls_param *p, int64_t experts)
{
    char found[256], want[128];
    int64_t dim[LS_MAX_DIMS]; /* of the global tensor, of which p may be a part */
    const bool transposed = experts > 1 ? ls_hf_expert_transposed(p->name) : p->transposed;
    LS_TRY(ls_part_check(p->name, &p->part, &p->t));
    ls_part_shape(&p->part, &p->t, dim);
    dim[0] /= experts;
    bool same = t->ndim == p->t.ndim;
    for (int d = 0; same && d < t->ndim; d++) same = t->dim[d] == dim[transposed ? t->ndim - 1 - d : d];
    if (!same)
        return ls_fail(LS_SHAPE, "%s: tensor '%s' has shape %s, config.json makes it %s", f->dir, t->name,
                       shape_text(t->ndim, t->dim, false, found, sizeof found),
                       shape_text(p->t.ndim, dim, transposed, want, sizeof want));
    if (t->dtype != LS_F32 && t->dtype != LS_BF16 && t->dtype != LS_F16)
        return ls_fail(LS_UNSUPPORTED, "%s: tensor '%s' has elements of type %s; F32, BF16 and F16 are read", f->dir, t->name,
                       t->dtype_name);
    return ls_param_takes_values(p) ? LS_OK : ls_fail(LS_INVALID, "parameter '%s' has no memory: bind the parameters first", p->name);
}

/* --- values ------------------------------------------------------------------------------------ */

static ls_status read_tensor(const folder *f, int shard, const ls_ckpt_tensor *t, const ls_param *p, void *raw,
                             float *out)
{
    if (t->dtype == LS_F32 && !p->transposed) return ls_ckpt_read_param(f->shard[shard], t, p, out);
    LS_TRY(ls_ckpt_read_param(f->shard[shard], t, p, raw));
    if (p->transposed) {
        ls_ckpt_transpose(raw, t->dtype, p->t.dim[0], p->t.dim[1], out);
        return LS_OK;
    }
    const size_t n = (size_t)ls_tensor_count(&p->t);
    for (size_t k = 0; k < n; k++) out[k] = ls_ckpt_value(raw, t->dtype, k);
    return LS_OK;
}

static const ls_param *embedding_of(const folder *f, const ls_params *ps)
{
    return ls_params_find_any(ps, ls_lm_tied(&f->lm->embedding)->name);
}

/* A head that config.json ties, and the files have nevertheless. */
static ls_status check_head(const folder *f, const ls_hf_config *c, const ls_params *ps, void *raw)
{
    int shard;
    const ls_ckpt_tensor *t = find(f, head_name(f), &shard);
    const ls_param *embedding = embedding_of(f, ps);
    if (!c->lm.tied || !t) return LS_OK;
    const size_t nbytes = ls_tensor_nbytes(&embedding->t);
    float *head = malloc(nbytes), *rows = malloc(nbytes);
    ls_status st = head && rows ? read_tensor(f, shard, t, embedding, raw, head) /* the same part of it */
                                : ls_fail(LS_NO_MEMORY, "%s: %zu bytes for '%s'", f->dir, 2 * nbytes, t->name);
    const ls_ckpt_tensor *of_rows = find(f, file_name(f, embedding->name), &shard);
    if (st == LS_OK) st = read_tensor(f, shard, of_rows, embedding, raw, rows);
    if (st == LS_OK && memcmp(head, rows, nbytes) != 0)
        st = ls_fail(LS_BAD_FILE, "%s: '%s' differs from '%s', though config.json ties them: set "
                     "\"tie_word_embeddings\" to false if both are meant", f->dir, t->name, embedding->name);
    free(head);
    free(rows);
    return st;
}

/* The rows that are here of the experts that are here, from a matrix of each. */
static ls_status read_experts(const folder *f, const ls_param *p, int64_t E, void *raw, float *out)
{
    const bool transposed = ls_hf_expert_transposed(p->name);
    const ls_hf_experts h = ls_hf_experts_of(p, E);
    for (int64_t e = h.begin; e < h.end; e++) {
        char name[LS_HF_NAME_BYTES];
        int shard;
        const ls_ckpt_tensor *t = find(f, ls_hf_tensor_name(file_name(f, p->name), e, name), &shard);
        LS_TRY(ls_ckpt_read(f->shard[shard], t, raw));
        for (int64_t i = h.first; i < h.first + h.rows; i++)
            for (int64_t k = 0; k < h.C; k++)
                *out++ = ls_ckpt_value(raw, t->dtype, (size_t)(transposed ? k * h.F + i : i * h.C + k));
    }
    return LS_OK;
}

static ls_status load_one(const folder *f, const ls_hf_config *c, ls_param *p, void *raw)
{
    int shard;
    float *values;
    const ls_ckpt_tensor *t = find(f, file_name(f, p->name), &shard);
    LS_TRY(ls_param_open(p, &values));
    if (values) LS_TRY(t ? read_tensor(f, shard, t, p, raw, values) : read_experts(f, p, c->lm.n_experts, raw, values));
    return ls_param_close(p);
}

/* Shapes of a parameter's tensors; *most becomes at least the bytes that reading one takes. */
static ls_status check_param(const folder *f, const ls_hf_config *c, const ls_param *p, size_t *most)
{
    const bool apart = is_apart(f, c, p);
    const int64_t E = apart ? c->lm.n_experts : 1;
    for (int64_t e = 0; e < E; e++) {
        char name[LS_HF_NAME_BYTES];
        int shard;
        const ls_ckpt_tensor *t = find(f, tensor_name(f, p, apart, e, name), &shard);
        LS_TRY(check_shape(f, t, p, E));
        const size_t file = (size_t)(t->dim[0] * (t->ndim > 1 ? t->dim[1] : 1)), here = (size_t)ls_tensor_count(&p->t);
        const size_t nbytes = (apart ? file : here) * ls_dtype_size(t->dtype);
        if (nbytes > *most) *most = nbytes;
    }
    return LS_OK;
}

static ls_status load(const folder *f, const ls_hf_config *c, ls_params *ps)
{
    int shard;
    size_t most = 1;
    LS_TRY(check_index(f));
    LS_TRY(check_names(f, c, ps));
    for (int i = 0; i < ps->n; i++) LS_TRY(check_param(f, c, &ps->item[i], &most));
    const ls_ckpt_tensor *head = c->lm.tied ? find(f, head_name(f), &shard) : NULL;
    if (head) LS_TRY(check_shape(f, head, embedding_of(f, ps), 1));
    const size_t head_bytes = head ? (size_t)ls_tensor_count(&embedding_of(f, ps)->t) * ls_dtype_size(head->dtype) : 0;
    if (head_bytes > most) most = head_bytes;

    void *raw = malloc(most);
    if (!raw) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes to read a tensor", f->dir, most);
    ls_status st = LS_OK;
    for (int i = 0; st == LS_OK && i < ps->n; i++) st = load_one(f, c, &ps->item[i], raw);
    if (st == LS_OK) st = check_head(f, c, ps, raw);
    free(raw);
    return st;
}

ls_status ls_hf_load(const char *dir, const ls_hf_config *c, ls_params *ps)
{
    folder f;
    LS_TRY(open_folder(dir, c, &f));
    const ls_status st = load(&f, c, ps);
    close_folder(&f);
    return st;
}
