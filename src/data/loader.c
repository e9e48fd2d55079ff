/* loader.c -- batches in the sampler's order. */
#include <stdlib.h>

#include "base/lint.h"
#include "base/log.h"
#include "data/batch.h"
#include "data/prefetch.h"

#define DEFAULT_PREFETCH 2
#define MAX_PREFETCH 64

static ls_status check(const ls_dataset *d, const ls_sampler *s, const ls_loader_opts *o)
{
    if (o->batch == 0) return ls_fail(LS_INVALID, "batches of 0 samples: expected at least 1");
    if (s && s->n != d->n)
        return ls_fail(LS_INVALID, "a sampler over %zu samples for a data set of %zu", s->n, d->n);
    if (!d->get && ((!d->x && !d->bytes) || !d->label || d->tokens))
        return ls_fail(LS_INVALID, "a data set without get needs x or bytes, and labels; sequences of tokens need get");
    if (d->get && (d->tokens == 0) == (d->features == 0))
        return ls_fail(LS_INVALID, "a data set with get has %zu features and %zu tokens per sample: expected one of them to be 0",
                       d->features, d->tokens);
    if (o->workers < 0 || o->workers > LS_LOADER_MAX_WORKERS)
        return ls_fail(LS_INVALID, "a loader with %d workers: expected 0 to %d", o->workers, LS_LOADER_MAX_WORKERS);
    if (o->prefetch < 0 || o->prefetch > MAX_PREFETCH || (o->prefetch > 0 && o->workers == 0))
        return ls_fail(LS_INVALID, "a loader with %d workers and a prefetch of %d: expected 0 to %d batches per worker, and 0 "
                       "without workers", o->workers, o->prefetch, MAX_PREFETCH);
    return LS_OK;
}

ls_status ls_loader_create_with(const ls_dataset *d, const ls_sampler *s, const ls_loader_opts *o, ls_loader **out)
{
    *out = NULL;
    LS_TRY(check(d, s, o));
    ls_loader *l = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "a loader");
    l->data = d;
    l->sampler = s;
    l->batch = o->batch;
    l->drop_last = o->drop_last;
    for (int b = 0; d->bytes && b < 256; b++) l->of_byte[b] = ((float)b / 255.0f - d->mean) / d->std;

    ls_batch b;
    ls_status st = ls_batch_create(l, &b);
    l->x = b.x;
    l->ids = b.ids;
    l->label = b.label;
    if (st == LS_OK && o->workers > 0)
        st = ls_prefetch_create(l, o->workers, o->prefetch ? o->prefetch : DEFAULT_PREFETCH, &l->ahead);
    if (st < 0) {
        ls_loader_destroy(l);
        return st;
    }
    if (o->workers > 0) ls_log(LS_LOG_INFO, "loader: %d workers, %d batches ahead", o->workers, ls_prefetch_depth(l->ahead));
    ls_lint_notef("loader", ", \"replicas\": %d", l->sampler ? l->sampler->num_replicas : 1);
    *out = l;
    return LS_OK;
}

ls_status ls_loader_create(const ls_dataset *d, const ls_sampler *s, size_t batch, bool drop_last, ls_loader **out)
{
    return ls_loader_create_with(d, s, &(ls_loader_opts){ .batch = batch, .drop_last = drop_last }, out);
}

size_t ls_loader_batches(const ls_loader *l)
{
    size_t n = ls_loader_samples(l);
    return l->drop_last ? n / l->batch : n / l->batch + (n % l->batch != 0);
}

void ls_loader_rewind(ls_loader *l) { l->next = 0; }

static LS_COLD void note_pass(const ls_loader *l)
{
    const ls_sampler *s = l->sampler;
    ls_lint_notef("pass", ", \"loader\": %llu, \"epoch\": %llu, \"shuffle\": %s", (unsigned long long)(uintptr_t)l,
                  (unsigned long long)(s ? s->epoch : 0), s && s->shuffle ? "true" : "false");
}

ls_status ls_loader_next(ls_loader *l)
{
    const size_t count = ls_loader_count(l, l->next);
    ls_batch b = { l->x, l->ids, l->label };
    l->n = 0;
    if (l->next == 0 && count > 0 && ls_lint_on()) note_pass(l);
    if (count > 0 && l->ahead) LS_TRY(ls_prefetch_take(l->ahead, count, &b));
    for (size_t i = 0; !l->ahead && i < count; i++) LS_TRY(ls_loader_fill(l, &b, i, ls_loader_index(l, l->next + i)));
    l->x = b.x;
    l->ids = b.ids;
    l->label = b.label;
    l->next += count;
    l->n = count;
    return LS_OK;
}

void ls_loader_destroy(ls_loader *l)
{
    if (!l) return;
    ls_prefetch_destroy(l->ahead);
    ls_batch_free(&(ls_batch){ l->x, l->ids, l->label });
    free(l);
}
