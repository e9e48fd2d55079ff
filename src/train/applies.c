/* applies.c -- keys that belong to one kind of model, data, optimizer or transport, and that nothing else reads. Which
 * keys a model, an optimizer or a transport reads its class says (keys); the others are here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/optim.h"
#include "lockstep/transport.h"
#include "train/config.h"

static bool is(const char *word, const char *a) { return strcmp(word, a) == 0; }

static bool never(const ls_train_config *c) { return !c; }
static bool files(const ls_train_config *c) { return !is(ls_train_data_name(c), "synthetic"); }
static bool samples(const ls_train_config *c) { return c->train.sample_every > 0; }
static bool falls(const ls_train_config *c) { return !is(c->optim.schedule, "constant"); }
static bool wsd(const ls_train_config *c) { return is(c->optim.schedule, "wsd"); }
static bool mpi(const ls_train_config *c) { return is(c->comm.backend, "mpi"); }
static bool shards_gradients(const ls_train_config *c) { return c->zero.stage >= 2; }
static bool shards_values(const ls_train_config *c) { return c->zero.stage == 3; }
static bool gathers(const ls_train_config *c) { return shards_values(c) && is(c->zero.copy, "rank"); }
static bool replicates(const ls_train_config *c) { return c->zero.stage == 0 && !is(c->parallel.dp_strategy, "fsdp"); }
static bool shards(const ls_train_config *c) { return !replicates(c); }
static bool compares(const ls_train_config *c) { return replicates(c) || c->zero.hsdp > 1; }
static bool unhooked(const ls_train_config *c) { return is(c->ddp.hook, "none"); }
static bool powersgd(const ls_train_config *c) { return is(c->ddp.hook, "powersgd"); }
static bool rescales(const ls_train_config *c) { return is(c->optim.loss_scale, "dynamic"); }
static bool invariant(const ls_train_config *c) { return ls_train_is_invariant(c); }
static bool trains(const ls_train_config *c) { return !c->eval_only; }
static bool divides_layers(const ls_train_config *c) { return c->parallel.tp > 1; }
static bool sums_layers(const ls_train_config *c) { return !c->parallel.sp; }
static bool divides_sequences(const ls_train_config *c) { return c->parallel.cp > 1; }
static bool drops(const ls_train_config *c) { return c->moe.capacity_factor > 0; }
static bool staged(const ls_train_config *c) { return c->parallel.pp > 1; }

/* Whether a layer has an mlp of width model.d_ff. A folder that model.load names says what its own width is. */
static bool has_dense_width(const ls_train_config *c)
{
    return !is(c->model.name, "moe") || c->model.first_dense > 0 || c->model.d_expert == 0 ||
           c->model.d_expert == c->model.d_ff || *c->model.load;
}

static bool exchanges(const ls_train_config *c) { return ls_train_exchanges(c); }
static bool runs(const ls_train_config *c) { return !c->dry_run; }
static bool unexplained(const ls_train_config *c) { return is(c->explain, "none"); }

/* Token files that are there, or the images' own: those that are made of a text have a format of their own. */
static bool formatted(const ls_train_config *c)
{
    return is(ls_train_data_name(c), ls_train_is_lm(c) ? "tokens" : "idx") || is(ls_train_data_name(c), "fashion-mnist");
}

typedef struct rule {
    const char *key;
    bool (*applies)(const ls_train_config *);
    const char *owner; /* "belongs to ..." */
    const char *by;    /* the key that decides, whose value is shown; NULL: none */
} rule;

static const rule rules[] = {
    { "data.path", files, "data in files", "data.name" },
    { "data.format", formatted, "data.name tokens, fashion-mnist and idx", "data.name" },
    { "train.sample_tokens", samples, "train.sample_every above 0", "train.sample_every" },
    { "train.sample_prompt", samples, "train.sample_every above 0", "train.sample_every" },
    { "train.grain", invariant, "train.numerics invariant", "train.numerics" },
    { "optim.min_lr", falls, "optim.schedule linear, cosine and wsd", "optim.schedule" },
    { "optim.min_lr_ratio", falls, "optim.schedule linear, cosine and wsd", "optim.schedule" },
    { "optim.decay_steps", wsd, "optim.schedule wsd", "optim.schedule" },
    { "optim.scale_init", rescales, "optim.loss_scale dynamic", "optim.loss_scale" },
    { "optim.scale_growth", rescales, "optim.loss_scale dynamic", "optim.loss_scale" },
    { "optim.scale_backoff", rescales, "optim.loss_scale dynamic", "optim.loss_scale" },
    { "optim.scale_interval", rescales, "optim.loss_scale dynamic", "optim.loss_scale" },
    { "ddp.guard", compares, "zero.stage 0, or zero.stage 1 to 3 with zero.hsdp above 1", "zero.stage" },
    { "ddp.bucket_view", unhooked, "ddp.hook none", "ddp.hook" },
    { "ddp.powersgd_rank", powersgd, "ddp.hook powersgd", "ddp.hook" },
    { "ddp.powersgd_start", powersgd, "ddp.hook powersgd", "ddp.hook" },
    { "ddp.powersgd_feedback", powersgd, "ddp.hook powersgd", "ddp.hook" },
    { "ddp.powersgd_warm_start", powersgd, "ddp.hook powersgd", "ddp.hook" },
    { "zero.reduce", shards_gradients, "zero.stage 2 and 3", "zero.stage" },
    { "zero.copy", shards_values, "zero.stage 3", "zero.stage" },
    { "zero.units", never, "versions to come: units are layers", NULL },
    { "zero.prefetch", gathers, "zero.stage 3 with zero.copy rank", "zero.copy" },
    { "zero.reshard", gathers, "zero.stage 3 with zero.copy rank", "zero.copy" },
    { "zero.hsdp", shards, "zero.stage 1 to 3", "zero.stage" },
    { "model.d_ff", has_dense_width, "layers without experts (model.first_dense above 0) and experts of model.d_expert 0",
      "model.d_expert" },
    { "moe.drop", drops, "moe.capacity_factor above 0, without which no token is dropped", "moe.capacity_factor" },
    { "parallel.sp", divides_layers, "parallel.tp above 1", "parallel.tp" },
    { "parallel.tp_pieces", divides_layers, "parallel.tp above 1", "parallel.tp" },
    { "parallel.tp_pieces", sums_layers, "all_reduces inside a layer, with parallel.sp false", "parallel.sp" },
    { "parallel.context", divides_sequences, "parallel.cp above 1", "parallel.cp" },
    { "parallel.cp_ulysses", exchanges, "parallel.context ulysses-ring", "parallel.context" },
    { "parallel.cp_split", divides_sequences, "parallel.cp above 1", "parallel.cp" },
    { "pipeline.schedule", staged, "parallel.pp above 1", "parallel.pp" },
    { "pipeline.chunks", staged, "parallel.pp above 1", "parallel.pp" },
    { "pipeline.split", staged, "parallel.pp above 1", "parallel.pp" },
    { "comm.order", mpi, "comm.backend mpi", "comm.backend" },
    { "dump-buckets", trains, "training", "eval-only" },
    { "json", trains, "training", "eval-only" },
    { "json", runs, "training", "dry-run" },
    { "json", unexplained, "training", "explain" },
    { "predict", trains, "training", "eval-only" },
    { "predict", runs, "training", "dry-run" },
    { "predict", unexplained, "training", "explain" },
    { "inject", trains, "training", "eval-only" },
    { "compare", trains, "training", "eval-only" },
};

/* The value of the key that decides: of data.name, what stands for "". */
static char *decided_by(const ls_opts *o, const ls_train_config *c, const char *key)
{
    return is(key, "data.name") ? strdup(ls_train_data_name(c)) : ls_opts_value(o, key);
}

static ls_status refuse(const ls_opts *o, const ls_train_config *c, const rule *r)
{
    char *value = r->by ? decided_by(o, c, r->by) : NULL;
    const ls_status st =
        r->by && !value ? ls_fail(LS_NO_MEMORY, "the value of %s", r->by)
        : r->by ? ls_fail(LS_BAD_CONFIG, "%s belongs to %s, and %s is %s: leave it out (it is set by %s)", r->key, r->owner, r->by, value,
                          ls_opts_origin(o, r->key))
                : ls_fail(LS_UNSUPPORTED, "%s belongs to %s: leave it out (it is set by %s)", r->key, r->owner, ls_opts_origin(o, r->key));
    free(value);
    return st;
}

/* --- keys of models -------------------------------------------------------------------------- */

static ls_status refuse_model_key(const ls_opts *o, const ls_train_config *c, const char *key)
{
    static const struct { const char *key, *why; } more[] = {
        { "data.drop_last", " (a batch of tokens goes on into the next epoch)" },
        { "data.workers", " (tokens are read ahead by the system)" },
    };
    char names[128], owner[256];
    const char *why = "";
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (is(key, more[i].key)) why = more[i].why;
    snprintf(owner, sizeof owner, "model.name %s%s", ls_model_names(key, names, sizeof names), why);
    return refuse(o, c, &(rule){ .key = key, .owner = owner, .by = "model.name" });
}

/* As many heads of keys and values as of queries: saying so, as presets and folders of Hugging Face do, is right for
 * every language model. */
static bool says_what_is_so(const ls_train_config *c, const char *key)
{
    return is(key, "model.n_kv_head") && ls_train_is_lm(c) && c->model.n_kv_head == c->model.n_head;
}

static ls_status check_model_keys(const ls_opts *o, const ls_train_config *c)
{
    const ls_model_class *cls = ls_model_class_find(c->model.name);
    for (size_t i = 0; cls && i < ls_train_nopts; i++) {
        const char *key = ls_train_opts[i].name;
        if (!ls_opts_is_set(o, key) || ls_opts_is_default(o, key)) continue;
        if (!ls_model_reads(cls, key) && !says_what_is_so(c, key)) return refuse_model_key(o, c, key);
    }
    return LS_OK;
}

/* --- keys of optimizers ------------------------------------------------------------------------ */

static ls_status check_optim_keys(const ls_opts *o, const ls_train_config *c)
{
    const ls_optim_class *cls = ls_optim_class_find(c->optim.name);
    char names[128], owner[160];
    for (size_t i = 0; cls && i < ls_train_nopts; i++) {
        const char *key = ls_train_opts[i].name;
        if (!ls_opts_is_set(o, key) || ls_opts_is_default(o, key) || ls_optim_reads(cls, key)) continue;
        snprintf(owner, sizeof owner, "optim.name %s", ls_optim_names(key, names, sizeof names));
        return refuse(o, c, &(rule){ .key = key, .owner = owner, .by = "optim.name" });
    }
    return LS_OK;
}

/* --- keys of transports ------------------------------------------------------------------------ */

/* Where comm.transport is empty, it is chosen when the ranks meet: no key is refused. */
static ls_status check_transport_keys(const ls_opts *o, const ls_train_config *c)
{
    char names[128], owner[160];
    for (size_t i = 0; *c->comm.transport && i < ls_train_nopts; i++) {
        const char *key = ls_train_opts[i].name;
        if (!ls_opts_is_set(o, key) || ls_opts_is_default(o, key)) continue;
        if (!*ls_transport_names(key, names, sizeof names) || ls_transport_reads(c->comm.transport, key)) continue;
        snprintf(owner, sizeof owner, "comm.transport %s", names);
        return refuse(o, c, &(rule){ .key = key, .owner = owner, .by = "comm.transport" });
    }
    return LS_OK;
}

/* --- help ------------------------------------------------------------------------------------- */

const char *ls_train_readers(const char *key, char *buf, size_t n)
{
    char lm[256];
    if (is(ls_model_names(key, buf, n), ls_model_names(LS_LM_KEY, lm, sizeof lm))) snprintf(buf, n, "language models");
    return *buf || *ls_optim_names(key, buf, n) ? buf : ls_transport_names(key, buf, n);
}

static bool applies(const rule *r, const ls_train_config *const *variant, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++) any |= r->applies(variant[i]);
    return any;
}

ls_status ls_train_check_given_any(const ls_opts *o, const ls_train_config *const *variant, int n)
{
    const ls_train_config *c = variant[0];
    LS_TRY(check_model_keys(o, c));
    LS_TRY(check_optim_keys(o, c));
    LS_TRY(check_transport_keys(o, c));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        const bool given = ls_opts_is_set(o, r->key) && !ls_opts_is_default(o, r->key);
        if (given && !applies(r, variant, n)) return refuse(o, c, r);
    }
    return LS_OK;
}

ls_status ls_train_check_given(const ls_opts *o, const ls_train_config *c)
{
    return ls_train_check_given_any(o, &c, 1);
}
