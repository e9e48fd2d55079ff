/* applies.c -- keys that belong to one kind of model, data, optimizer or transport, and that nothing else reads. */
#include <stdlib.h>
#include <string.h>

#include "train/config.h"

static bool is(const char *word, const char *a) { return strcmp(word, a) == 0; }

static bool never(const ls_train_config *c) { return !c; }
static bool mlp(const ls_train_config *c) { return !ls_train_is_lm(c); }
static bool lm(const ls_train_config *c) { return ls_train_is_lm(c); }
static bool gpt2(const ls_train_config *c) { return is(c->model.name, "gpt2"); }
static bool llama(const ls_train_config *c) { return is(c->model.name, "llama"); }
/* gpt2 has as many as heads: saying so, as presets and folders of Hugging Face do, is right. */
static bool key_heads(const ls_train_config *c)
{
    return llama(c) || (gpt2(c) && c->model.n_kv_head == c->model.n_head);
}
static bool files(const ls_train_config *c) { return !is(ls_train_data_name(c), "synthetic"); }
static bool samples(const ls_train_config *c) { return c->train.sample_every > 0; }
static bool sgd(const ls_train_config *c) { return is(c->optim.name, "sgd"); }
static bool adam(const ls_train_config *c) { return !sgd(c); }
static bool falls(const ls_train_config *c) { return !is(c->optim.schedule, "constant"); }
static bool wsd(const ls_train_config *c) { return is(c->optim.schedule, "wsd"); }
static bool mpi(const ls_train_config *c) { return is(c->comm.backend, "mpi"); }
static bool trains(const ls_train_config *c) { return !c->eval_only; }

/* Token files that are there, or the images' own: those that are made of a text have a format of their own. */
static bool formatted(const ls_train_config *c)
{
    return is(ls_train_data_name(c), ls_train_is_lm(c) ? "tokens" : "idx") || is(ls_train_data_name(c), "fashion-mnist");
}

/* Empty: nobody knows before the ranks meet. */
static bool wires(const ls_train_config *c) { return !is(c->comm.transport, "shm") && !is(c->comm.transport, "self"); }

typedef struct rule {
    const char *key;
    bool (*applies)(const ls_train_config *);
    const char *owner; /* "belongs to ..." */
    const char *by;    /* the key that decides, whose value is shown; NULL: none */
} rule;

#define WORDS "model.name gpt2 and llama"

static const rule rules[] = {
    { "model.dims", mlp, "model.name mlp", "model.name" },
    { "model.activation", mlp, "model.name mlp", "model.name" },
    { "model.n_layer", lm, WORDS, "model.name" },
    { "model.n_head", lm, WORDS, "model.name" },
    { "model.norm_eps", lm, WORDS, "model.name" },
    { "model.n_kv_head", key_heads, "model.name llama", "model.name" },
    { "model.d_model", lm, WORDS, "model.name" },
    { "model.d_ff", lm, WORDS, "model.name" },
    { "model.vocab_size", lm, WORDS, "model.name" },
    { "model.seq_len", lm, WORDS, "model.name" },
    { "model.tied", lm, WORDS, "model.name" },
    { "model.rope_theta", llama, "model.name llama", "model.name" },
    { "model.embd_dropout", gpt2, "model.name gpt2", "model.name" },
    { "model.attn_dropout", gpt2, "model.name gpt2", "model.name" },
    { "model.resid_dropout", gpt2, "model.name gpt2", "model.name" },
    { "data.path", files, "data in files", "data.name" },
    { "data.format", formatted, "data.name tokens, fashion-mnist and idx", "data.name" },
    { "data.tokenizer", lm, WORDS, "model.name" },
    { "data.ignore_token", lm, WORDS, "model.name" },
    { "data.drop_last", mlp, "model.name mlp (a batch of tokens goes on into the next epoch)", "model.name" },
    { "data.workers", mlp, "model.name mlp (tokens are read ahead by the system)", "model.name" },
    { "train.seq_len", lm, WORDS, "model.name" },
    { "train.recompute", lm, WORDS, "model.name" },
    { "train.pack_weights", lm, WORDS, "model.name" },
    { "train.sample_every", lm, WORDS, "model.name" },
    { "train.sample_tokens", samples, "train.sample_every above 0", "train.sample_every" },
    { "train.sample_prompt", samples, "train.sample_every above 0", "train.sample_every" },
    { "optim.momentum", sgd, "optim.name sgd", "optim.name" },
    { "optim.betas", adam, "optim.name adam and adamw", "optim.name" },
    { "optim.eps", adam, "optim.name adam and adamw", "optim.name" },
    { "optim.min_lr", falls, "optim.schedule linear, cosine and wsd", "optim.schedule" },
    { "optim.min_lr_ratio", falls, "optim.schedule linear, cosine and wsd", "optim.schedule" },
    { "optim.decay_steps", wsd, "optim.schedule wsd", "optim.schedule" },
    { "zero.units", never, "zero.stage 3, which is not implemented", NULL },
    { "zero.prefetch", never, "zero.stage 3, which is not implemented", NULL },
    { "zero.reshard", never, "zero.stage 3, which is not implemented", NULL },
    { "pipeline.schedule", never, "parallel.pp above 1, which is not implemented", NULL },
    { "comm.order", mpi, "comm.backend mpi", "comm.backend" },
    { "comm.security", wires, "comm.transport tcp and mixed", "comm.transport" },
    { "comm.check", wires, "comm.transport tcp and mixed", "comm.transport" },
    { "dump-buckets", trains, "training", "eval-only" },
    { "inject", trains, "training", "eval-only" },
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

ls_status ls_train_check_given(const ls_opts *o, const ls_train_config *c)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        if (ls_opts_is_set(o, r->key) && !ls_opts_is_default(o, r->key) && !r->applies(c)) return refuse(o, c, r);
    }
    return LS_OK;
}
