/* batch.c -- one batch of a loader: which samples it has, its memory, and filling it on whichever thread. */
#include "data/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/context.h"

/* --- its samples -------------------------------------------------------------------------- */

size_t ls_loader_samples(const ls_loader *l) { return l->sampler ? l->sampler->num_samples : l->data->n; }

size_t ls_loader_room(const ls_loader *l)
{
    const size_t n = ls_loader_samples(l);
    const size_t room = l->batch < n ? l->batch : n; /* a batch is never larger than an epoch */
    return room ? room : 1;
}

size_t ls_loader_count(const ls_loader *l, size_t at)
{
    const size_t n = ls_loader_samples(l), left = at < n ? n - at : 0, count = left < l->batch ? left : l->batch;
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
