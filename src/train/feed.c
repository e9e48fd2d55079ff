/* feed.c -- this rank's samples of each step. */
#include "train/feed.h"

#include <string.h>

#include "base/hash.h"
#include "lockstep/tensor.h"

#define SYNTHETIC_TRAIN 1000
#define SYNTHETIC_TEST 200

/* --- features ----------------------------------------------------------------------------------- */

static ls_status features_step(ls_feed *f, int64_t step)
{
    const uint64_t epoch = (uint64_t)(step / f->steps_per_epoch);
    const size_t at = (size_t)(step % f->steps_per_epoch);
    if (epoch != f->sampler->epoch) LS_TRY(ls_sampler_set_epoch(f->sampler, epoch));
    f->loader->next = at * f->local;
    LS_TRY(ls_loader_next(f->loader));
    const size_t n = f->loader->n; /* fewer at the end of an epoch, and on every rank as many */
    if (n == 0) return ls_fail(LS_INTERNAL, "step %lld of an epoch has no sample", (long long)at);
    f->step = (ls_rows){ f->loader->x, f->loader->label, n, 0, (size_t)f->rank * n, n };
    const size_t whole = n * (size_t)f->size, left = f->samples - at * whole;
    f->all = f->inner && left < whole ? left : whole;
    return LS_OK;
}

static ls_status features_test(ls_feed *f, size_t first, ls_rows *out)
{
    f->test_loader->next = first;
    LS_TRY(ls_loader_next(f->test_loader));
    *out = (ls_rows){ f->test_loader->x, f->test_loader->label, f->test_loader->n, 0, first, f->test_loader->n };
    return LS_OK;
}

/* The loader's list is this rank's: every size-th entry of the epoch's order, from `rank` on. */
static ls_feed_place features_place(const ls_feed *f, size_t i)
{
    const size_t mine = (size_t)(f->number % f->steps_per_epoch) * f->local + i;
    return (ls_feed_place){ (int64_t)f->sampler->epoch, (int64_t)(mine * (size_t)f->size) + f->rank,
                            f->sampler->index[mine] };
}

static const ls_feed_kind features = { features_step, features_test, features_place };

static ls_status open_images(ls_feed *f, const ls_train_config *c)
{
    char path[LS_SET_PATH];
    LS_TRY(ls_source_images(c, path));
    ls_status st = ls_dataset_open_idx(path, "train", &f->train);
    if (st == LS_OK) st = ls_dataset_open_idx(path, "test", &f->test);
    return st == LS_OK ? st : ls_while(st, "opening the images of data.path");
}

static ls_status open_features(ls_feed *f, const ls_train_config *c, const ls_model_config *model)
{
    const int64_t inputs = model->dims[0], classes = model->dims[model->ndims - 1];
    f->kind = &features;
    if (strcmp(ls_train_data_name(c), "synthetic") == 0) {
        LS_TRY(ls_dataset_synthetic(0, SYNTHETIC_TRAIN, (size_t)inputs, classes, &f->train));
        LS_TRY(ls_dataset_synthetic(1, SYNTHETIC_TEST, (size_t)inputs, classes, &f->test));
    } else {
        LS_TRY(open_images(f, c));
    }
    if ((int64_t)f->train.features != inputs || f->train.classes > classes)
        return ls_fail(LS_BAD_CONFIG, "the data has %zu features and %lld classes, model.dims begins with %lld and ends with %lld",
                       f->train.features, (long long)f->train.classes, (long long)inputs, (long long)classes);
    f->features = f->train.features;
    f->samples = f->train.n;
    f->test_samples = f->test.n;
    f->test_rows = LS_FEED_TEST_ROWS;
    const ls_deal deal = { f->inner ? f->local : 0, f->micro, f->inner };
    LS_TRY(ls_sampler_create_dealt(f->train.n, f->size, f->rank, c->data.shuffle, (uint64_t)c->train.seed,
                                   c->data.drop_last, &deal, &f->sampler));
    const size_t n = f->sampler->num_samples;
    f->steps_per_epoch = (int64_t)(c->data.drop_last ? n / f->local : (n + f->local - 1) / f->local);
    if (f->steps_per_epoch == 0)
        return ls_fail(LS_BAD_CONFIG, "train.global_batch %lld leaves no whole batch of each rank's %zu samples: lower it or "
                       "set data.drop_last false", (long long)c->train.global_batch, n);
    const ls_loader_opts o = { .batch = f->local, .workers = (int)c->data.workers };
    LS_TRY(ls_loader_create_with(&f->train, f->sampler, &o, &f->loader));
    return ls_loader_create(&f->test, NULL, LS_FEED_TEST_ROWS, false, &f->test_loader);
}

/* --- tokens --------------------------------------------------------------------------------------- */

/* Takes out of the labels what does not count; how many are left. */
static int64_t count_labels(int64_t *label, size_t n, int64_t ignore)
{
    int64_t counted = (int64_t)n;
    for (size_t i = 0; ignore >= 0 && i < n; i++) {
        if (label[i] != ignore) continue;
        label[i] = LS_IGNORE_INDEX;
        counted--;
    }
    return counted;
}

/* The loader's batch is the whole step of this rank: windows of the step in their order. */
static ls_status tokens_step(ls_feed *f, int64_t step)
{
    ls_token_loader *l = f->token_loader;
    l->position = (uint64_t)step * f->local * (uint64_t)f->size;
    LS_TRY(ls_token_loader_next(l));
    f->step = (ls_rows){ l->x, l->y, f->local, f->tokens, (size_t)f->rank * f->local, f->local };
    f->all = f->local * (size_t)f->size;
    f->counted = count_labels(l->y, f->local * f->tokens, f->ignore);
    return LS_OK;
}

static ls_status tokens_test(ls_feed *f, size_t first, ls_rows *out)
{
    ls_token_loader *l = f->test_token_loader;
    l->position = first;
    LS_TRY(ls_token_loader_next(l));
    *out = (ls_rows){ l->x, l->y, l->batch, l->T, first, l->batch };
    return LS_OK;
}

static ls_feed_place tokens_place(const ls_feed *f, size_t i)
{
    const uint64_t g = (uint64_t)f->number * f->local * (uint64_t)f->size + (uint64_t)f->rank * f->local + i;
    return (ls_feed_place){ (int64_t)(g / f->samples), (int64_t)(g % f->samples),
                            (int64_t)(f->token_loader->first[i] / f->tokens) };
}

static const ls_feed_kind tokens = { tokens_step, tokens_test, tokens_place };

static ls_status open_token_file(const ls_train_config *c, const char *path, ls_tokens *out)
{
    ls_token_format format;
    LS_TRY(ls_source_format(c, path, &format));
    return ls_tokens_open(path, format, out);
}

static ls_status open_tokens(ls_feed *f, const ls_train_config *c, const ls_model_config *model,
                             const ls_source *source)
{
    const uint32_t vocab = (uint32_t)model->lm.vocab_size;
    f->kind = &tokens;
    f->tokens = (size_t)ls_train_seq_len(c);
    f->ignore = c->data.ignore_token;
    LS_TRY(open_token_file(c, source->train, &f->train_tokens));
    if (f->train_tokens.n < f->tokens + 1)
        return ls_fail(LS_BAD_CONFIG, "%s: has %zu tokens, but a sequence of train.seq_len needs %zu and the one after it: lower "
                       "train.seq_len, or train on more text", source->train, f->train_tokens.n, f->tokens);
    const ls_token_loader_opts train = { .batch = f->local, .T = f->tokens, .dp_rank = f->rank, .dp_size = f->size,
                                         .seed = (uint64_t)c->train.seed, .shuffle = c->data.shuffle, .vocab = vocab,
                                         .grain = f->inner ? f->micro : 0, .inner = f->inner };
    LS_TRY(ls_token_loader_create(&f->train_tokens, &train, &f->token_loader));
    f->samples = f->token_loader->windows;
    const size_t global = f->local * (size_t)f->size;
    f->steps_per_epoch = (int64_t)((f->samples + global - 1) / global);

    if (!*source->val) return LS_OK;
    LS_TRY(open_token_file(c, source->val, &f->test_tokens));
    const size_t left = f->test_tokens.n;
    if (left < 2) return LS_OK;
    const size_t T = left - 1 < f->tokens ? left - 1 : f->tokens;
    const ls_token_loader_opts test = { .batch = f->micro, .T = T, .dp_size = 1, .vocab = vocab };
    LS_TRY(ls_token_loader_create(&f->test_tokens, &test, &f->test_token_loader));
    f->test_samples = f->test_token_loader->windows;
    f->test_rows = f->micro;
    return LS_OK;
}

/* --- both ------------------------------------------------------------------------------------------- */

ls_status ls_feed_open(ls_feed *f, const ls_train_config *c, const ls_model_config *model, const ls_source *source)
{
    f->ignore = -1;
    LS_TRY(ls_train_is_lm(c) ? open_tokens(f, c, model, source) : open_features(f, c, model));
    const char *key = c->train.eval_every ? "train.eval_every" : c->train.eval_batches ? "train.eval_batches" : NULL;
    if (!key || f->test_samples > 0) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "%s: there is nothing to evaluate on: no val.bin of 2 tokens or more is beside %s: make one, or "
                   "leave it out", key, source->train);
}

void ls_feed_close(ls_feed *f)
{
    ls_loader_destroy(f->loader);
    ls_loader_destroy(f->test_loader);
    ls_sampler_destroy(f->sampler);
    ls_dataset_free(&f->train);
    ls_dataset_free(&f->test);
    ls_token_loader_destroy(f->token_loader);
    ls_token_loader_destroy(f->test_token_loader);
    ls_tokens_close(&f->train_tokens);
    ls_tokens_close(&f->test_tokens);
    *f = (ls_feed){ 0 };
}

#define SOME_BYTES ((size_t)1 << 18)

/* Of n bytes at p, the first, middle and last ones. */
static uint64_t some(const void *p, size_t n, uint64_t seed)
{
    const char *at = p;
    if (!p) return seed;
    if (n <= 3 * SOME_BYTES) return ls_hash64(at, n, seed);
    seed = ls_hash64(at, SOME_BYTES, seed);
    seed = ls_hash64(at + n / 2, SOME_BYTES, seed);
    return ls_hash64(at + n - SOME_BYTES, SOME_BYTES, seed);
}

uint64_t ls_feed_checksum(const ls_feed *f)
{
    const ls_tokens *t = &f->train_tokens;
    const ls_dataset *d = &f->train;
    uint64_t sum = 0;
    if (f->tokens) return t->u16 ? some(t->u16, t->n * sizeof *t->u16, 0) : some(t->u32, t->n * sizeof *t->u32, 0);
    sum = some(d->x, d->n * d->features * sizeof *d->x, sum);
    sum = some(d->bytes, d->n * d->features, sum);
    return some(d->label, d->n * sizeof *d->label, sum);
}

ls_status ls_feed_step(ls_feed *f, int64_t step)
{
    f->step = (ls_rows){ 0 };
    f->number = step;
    return f->kind->step(f, step);
}

ls_feed_place ls_feed_place_of(const ls_feed *f, size_t i) { return f->kind->place(f, i); }

size_t ls_feed_micro_batches(const ls_feed *f) { return (f->step.n + f->micro - 1) / f->micro; }

ls_rows ls_feed_micro_batch(const ls_feed *f, size_t number)
{
    const size_t at = number * f->micro, before = at < f->step.n ? at : f->step.n, left = f->step.n - before;
    const size_t row = f->tokens ? f->tokens * sizeof(int64_t) : f->features * sizeof(float);
    ls_rows r = f->step;
    r.n = left < f->micro ? left : f->micro;
    r.x = (char *)f->step.x + before * row;
    r.label = f->step.label + before * (f->tokens ? f->tokens : 1);
    r.first += before;
    r.counts = r.n;
    if (!f->inner) return r;
    r.first = ls_deal_place(&(ls_deal){ f->local, f->micro, f->inner }, f->rank, before);
    if (r.first + r.n > f->all) r.counts = f->all > r.first ? f->all - r.first : 0;
    if (r.counts > 0) r.n = r.counts; /* else there are rows all the same, as every rank has as many micro-batches */
    return r;
}

ls_status ls_feed_test(ls_feed *f, size_t first, size_t n, ls_rows *out)
{
    LS_TRY(f->kind->test(f, first, out));
    if (out->n > n) out->n = n; /* those of the next rank, or of forwards to come, may follow */
    if (out->tokens) (void)count_labels(out->label, out->n * out->tokens, f->ignore);
    return LS_OK;
}
