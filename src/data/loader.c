/* loader.c -- batches in the sampler's order. */
#include "data/loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/log.h"

#define DEFAULT_PREFETCH 2
#define MAX_PREFETCH 64

static size_t samples(const ls_loader *l) { return l->sampler ? l->sampler->num_samples : l->data->n; }

size_t ls_loader_room(const ls_loader *l)
{
    const size_t room = l->batch < samples(l) ? l->batch : samples(l); /* a batch is never larger than an epoch */
    return room ? room : 1;
}

size_t ls_loader_count(const ls_loader *l, size_t at)
{
    const size_t left = at < samples(l) ? samples(l) - at : 0, count = left < l->batch ? left : l->batch;
    return l->drop_last && count < l->batch ? 0 : count;
}

size_t ls_loader_index(const ls_loader *l, size_t at) { return l->sampler ? (size_t)l->sampler->index[at] : at; }

/* --- the memory of a batch ---------------------------------------------------------------- */

ls_status ls_batch_create(const ls_loader *l, ls_batch *out)
{
    const ls_dataset *d = l->data;
    const size_t room = ls_loader_room(l), width = d->tokens ? d->tokens : d->features;
    *out = (ls_batch){ 0 };
    if (width < SIZE_MAX / sizeof(int64_t) / room) {
        if (d->tokens) out->ids = calloc(room * width, sizeof *out->ids);
        else out->x = calloc(room * width + 1, sizeof *out->x);
        out->label = calloc(d->tokens ? room * width : room, sizeof *out->label);
    }
    if ((out->x || out->ids) && out->label) return LS_OK;
    ls_batch_free(out);
    return ls_fail(LS_NO_MEMORY, "a batch of %zu samples of %zu %s", room, width, d->tokens ? "tokens" : "features");
}

void ls_batch_free(ls_batch *b)
{
    free(b->x);
    free(b->ids);
    free(b->label);
    *b = (ls_batch){ 0 };
}

/* --- filling it --------------------------------------------------------------------------- */

/* The user's function. A failure has a message even where the function left none; a success leaves ls_last_error(). */
static ls_status get(const ls_dataset *d, size_t index, void *x, int64_t *label)
{
    char *error = ls_context_get()->error, before = *error;
    *error = 0;
    const ls_status st = d->get(d->arg, index, x, label);
    if (st < 0 && !*error) (void)ls_fail(st, "get of the data set failed: %s", ls_status_text(st));
    if (st < 0) return ls_while(st, "getting sample %zu of the data set", index);
    if (!*error) *error = before;
    return LS_OK;
}

ls_status ls_loader_fill(const ls_loader *l, const ls_batch *to, size_t b, size_t index)
{
    const ls_dataset *d = l->data;
    const size_t features = d->features;
    if (d->get && d->tokens) return get(d, index, to->ids + b * d->tokens, to->label + b * d->tokens);
    float *x = to->x + b * features;
    if (d->get) return get(d, index, x, to->label + b);
    if (d->bytes) {
        const uint8_t *bytes = d->bytes + index * features;
        for (size_t f = 0; f < features; f++) x[f] = l->of_byte[bytes[f]];
    } else {
        memcpy(x, d->x + index * features, features * sizeof *x);
    }
    to->label[b] = d->label[index];
    return LS_OK;
}

/* --- the loader --------------------------------------------------------------------------- */

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
    *out = l;
    return LS_OK;
}

ls_status ls_loader_create(const ls_dataset *d, const ls_sampler *s, size_t batch, bool drop_last, ls_loader **out)
{
    return ls_loader_create_with(d, s, &(ls_loader_opts){ .batch = batch, .drop_last = drop_last }, out);
}

size_t ls_loader_batches(const ls_loader *l)
{
    size_t n = samples(l);
    return l->drop_last ? n / l->batch : n / l->batch + (n % l->batch != 0);
}

void ls_loader_rewind(ls_loader *l) { l->next = 0; }

ls_status ls_loader_next(ls_loader *l)
{
    const size_t count = ls_loader_count(l, l->next);
    ls_batch b = { l->x, l->ids, l->label };
    l->n = 0;
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
