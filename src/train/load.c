/* load.c -- the model that model.load names: its configuration into the run's keys, its values into parameters. */
#include "train/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/weights.h"
#include "report/rundir.h"

/* What a model says of itself. */
typedef struct described {
    ls_text folder; /* its config.json lies there; or empty */
    ls_text file;   /* else the safetensors file */
    ls_text origin; /* of the two, the one that has the configuration: for messages and --print-config */
    const char *model;            /* static; NULL: it does not say */
    ls_hf_config hf;              /* of a language model */
    char dims[256], activation[16]; /* of an mlp; "": it does not say */
} described;

static void forget(described *d)
{
    ls_text_free(&d->folder);
    ls_text_free(&d->file);
    ls_text_free(&d->origin);
}

/* --- finding it ------------------------------------------------------------------------------- */

static ls_status describe_file(const char *path, described *d)
{
    ls_weights w;
    LS_TRY(ls_hf_refuse_pickle(path, path));
    LS_TRY(ls_weights_open(path, &w));
    const char *config = ls_weights_meta(&w, "lockstep.config"), *model = ls_weights_meta(&w, "lockstep.model");
    const char *dims = ls_weights_meta(&w, "lockstep.dims"), *activation = ls_weights_meta(&w, "lockstep.activation");
    const ls_model_class *cls = ls_model_class_find(model);
    ls_status st = LS_OK;
    if (config) {
        st = ls_hf_config_parse(path, config, strlen(config), &d->hf);
        d->model = d->hf.model;
    } else if (cls && !cls->lm) {
        d->model = cls->name;
        snprintf(d->dims, sizeof d->dims, "%s", dims ? dims : "");
        snprintf(d->activation, sizeof d->activation, "%s", activation ? activation : "");
    }
    ls_weights_close(&w);
    return st;
}

/* Forget it also after a failure. */
static ls_status describe(const char *load, described *d)
{
    ls_file_info info;
    *d = (described){ .hf = { .bos = -1, .eos = -1 } };
    ls_text_add(&d->origin, "%s/config.json", load);
    LS_TRY(ls_text_status(&d->origin));
    const bool config = ls_env_get()->info(d->origin.p, &info) == 0 && info.type == LS_FILE_REGULAR;
    if (config && !ls_weights_are_sharded(load)) {
        ls_text_add(&d->folder, "%s", load);
        LS_TRY(ls_text_status(&d->folder));
        LS_TRY(ls_hf_config_read(load, &d->hf));
        d->model = d->hf.model;
        return LS_OK;
    }
    LS_TRY(ls_rundir_checkpoint(load, &d->file));
    d->origin.n = 0;
    ls_text_add(&d->origin, "%s", d->file.p);
    LS_TRY(ls_text_status(&d->origin));
    return describe_file(d->file.p, d);
}

/* --- its configuration ------------------------------------------------------------------------- */

static ls_status contradicts(ls_opts *o, const char *key, const char *given, const char *found, const described *d)
{
    const char *more = strcmp(key, "model.seq_len") == 0 ? " (train.seq_len sets the length of samples)" : "";
    return ls_fail(LS_BAD_CONFIG, "%s is %s (%s), but %s says %s: leave the key out%s, or name another model.load", key,
                   given, ls_opts_origin(o, key), d->origin.p, found, more);
}

static ls_status take_word(ls_opts *o, const char *key, const char *const *now, const char *found, const described *d)
{
    if (!ls_opts_is_set(o, key)) return ls_opts_set(o, key, found, d->origin.p);
    return strcmp(*now, found) == 0 ? LS_OK : contradicts(o, key, *now, found, d);
}

/* `open`: 0 stands for whatever the model has. */
static ls_status take_size(ls_opts *o, const char *key, const int64_t *now, int64_t found, bool open,
                           const described *d)
{
    char text[32], given[32];
    snprintf(text, sizeof text, "%lld", (long long)found);
    if (!ls_opts_is_set(o, key) || (open && *now == 0)) LS_TRY(ls_opts_set(o, key, text, d->origin.p));
    snprintf(given, sizeof given, "%lld", (long long)*now); /* a flag's 0 is not replaced */
    return *now == found ? LS_OK : contradicts(o, key, given, text, d);
}

/* As many digits as it takes to read the same number back. */
static const char *real(double v, char text[40])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 40, "%.*g", digits, v);
        if (!(strtod(text, NULL) < v) && !(strtod(text, NULL) > v)) break;
    }
    return text;
}

static ls_status take_real(ls_opts *o, const char *key, const double *now, double found, const described *d)
{
    char text[40], given[40];
    if (!ls_opts_is_set(o, key)) return ls_opts_set(o, key, real(found, text), d->origin.p);
    if (!(*now < found) && !(*now > found)) return LS_OK;
    return contradicts(o, key, real(*now, given), real(found, text), d);
}

static ls_status take_dropout(ls_opts *o, const char *key, double found, const described *d)
{
    char text[40];
    return ls_opts_is_set(o, key) ? LS_OK : ls_opts_set(o, key, real(found, text), d->origin.p);
}

static ls_status take_experts(ls_opts *o, const ls_train_config *c, const described *d)
{
    static const char *const flag[] = { "false", "true" };
    const ls_lm_config *lm = &d->hf.lm;
    const struct { const char *key; const int64_t *now; int64_t found; bool open; } size[] = {
        { "model.n_experts", &c->model.n_experts, lm->n_experts, false },
        { "model.top_k", &c->model.top_k, lm->top_k, false },
        { "model.d_expert", &c->model.d_expert, lm->d_expert, true },
        { "model.shared_expert", &c->model.shared_expert, lm->shared_expert, true },
    };
    if (!ls_model_reads(ls_model_class_find(d->model), size[0].key)) return LS_OK;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        LS_TRY(take_size(o, size[i].key, size[i].now, size[i].found, size[i].open, d));
    if (!ls_opts_is_set(o, "model.norm_topk")) return ls_opts_set(o, "model.norm_topk", flag[lm->norm_topk], d->origin.p);
    if (c->model.norm_topk == lm->norm_topk) return LS_OK;
    return contradicts(o, "model.norm_topk", flag[c->model.norm_topk], flag[lm->norm_topk], d);
}

static ls_status take_lm(ls_opts *o, const ls_train_config *c, const described *d)
{
    const ls_lm_config *lm = &d->hf.lm;
    const ls_model_class *cls = ls_model_class_find(d->model);
    const struct { const char *key; const int64_t *now; int64_t found; bool open; } size[] = {
        { "model.n_layer", &c->model.n_layer, lm->n_layer, false },
        { "model.n_head", &c->model.n_head, lm->n_head, false },
        { "model.n_kv_head", &c->model.n_kv_head, lm->n_kv_head, true },
        { "model.d_model", &c->model.d_model, lm->d_model, false },
        { "model.d_ff", &c->model.d_ff, lm->d_ff, true },
        { "model.vocab_size", &c->model.vocab_size, lm->vocab_size, true },
        { "model.seq_len", &c->model.seq_len, lm->seq_len, false },
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        LS_TRY(take_size(o, size[i].key, size[i].now, size[i].found, size[i].open, d));
    LS_TRY(take_experts(o, c, d));
    const char *const tied[] = { "false", "true" };
    if (!ls_opts_is_set(o, "model.tied")) LS_TRY(ls_opts_set(o, "model.tied", tied[lm->tied], d->origin.p));
    else if (c->model.tied != lm->tied) return contradicts(o, "model.tied", tied[c->model.tied], tied[lm->tied], d);
    LS_TRY(take_real(o, "model.norm_eps", &c->model.norm_eps, lm->norm_eps, d));
    if (ls_model_reads(cls, "model.rope_theta"))
        LS_TRY(take_real(o, "model.rope_theta", &c->model.rope_theta, lm->rope_theta, d));
    const struct { const char *key; double found; } dropout[] = {
        { "model.embd_dropout", lm->embd_dropout }, { "model.attn_dropout", lm->attn_dropout },
        { "model.resid_dropout", lm->resid_dropout },
    };
    for (size_t i = 0; i < sizeof dropout / sizeof *dropout; i++)
        if (ls_model_reads(cls, dropout[i].key)) LS_TRY(take_dropout(o, dropout[i].key, dropout[i].found, d));
    return LS_OK;
}

static ls_status take_mlp(ls_opts *o, const ls_train_config *c, const described *d)
{
    char given[256] = "";
    for (int i = 0; i < c->model.dims.n; i++)
        snprintf(given + strlen(given), sizeof given - strlen(given), "%s%lld", i ? "," : "",
                 (long long)c->model.dims.v[i]);
    const bool set = ls_opts_is_set(o, "model.dims");
    if (*d->dims && !set) LS_TRY(ls_opts_set(o, "model.dims", d->dims, d->origin.p));
    else if (*d->dims && strcmp(given, d->dims) != 0) return contradicts(o, "model.dims", given, d->dims, d);
    return *d->activation ? take_word(o, "model.activation", &c->model.activation, d->activation, d) : LS_OK;
}

ls_status ls_train_load_config(ls_opts *o, const ls_train_config *c)
{
    described d;
    if (!*c->model.load) return LS_OK;
    ls_status st = describe(c->model.load, &d);
    if (st < 0) st = ls_while(st, "reading model.load %s", c->model.load);
    if (st == LS_OK && d.model) st = take_word(o, "model.name", &c->model.name, d.model, &d);
    if (st == LS_OK && d.model) st = ls_model_class_find(d.model)->lm ? take_lm(o, c, &d) : take_mlp(o, c, &d);
    forget(&d);
    return st;
}

/* --- its values --------------------------------------------------------------------------------- */

ls_status ls_train_load(const ls_train_config *c, ls_params *ps, ls_train_special *special)
{
    described d;
    ls_status st = describe(c->model.load, &d);
    if (st == LS_OK) st = d.folder.n ? ls_hf_load(c->model.load, &d.hf, ps) : ls_ckpt_load(d.file.p, ps, true);
    if (st == LS_OK) *special = (ls_train_special){ d.hf.bos, d.hf.eos };
    forget(&d);
    return st;
}
