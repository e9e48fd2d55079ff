/* loader.c -- batches in the sampler's order. */
#include <stdlib.h>
#include <string.h>

#include "lockstep/data.h"

static size_t samples(const ls_loader *l) { return l->sampler ? l->sampler->num_samples : l->data->n; }

ls_status ls_loader_create(const ls_dataset *d, const ls_sampler *s, size_t batch, bool drop_last, ls_loader **out)
{
    *out = NULL;
    if (batch == 0) return ls_fail(LS_INVALID, "batches of 0 samples: expected at least 1");
    if (s && s->n != d->n)
        return ls_fail(LS_INVALID, "a sampler over %zu samples for a data set of %zu", s->n, d->n);
    ls_loader *l = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "a loader");
    l->data = d;
    l->sampler = s;
    l->batch = batch;
    l->drop_last = drop_last;
    for (int b = 0; b < 256; b++) l->of_byte[b] = ((float)b / 255.0f - d->mean) / d->std;

    size_t room = batch < samples(l) ? batch : samples(l); /* a batch is never larger than an epoch */
    if (room == 0) room = 1;
    if (d->features <= SIZE_MAX / sizeof *l->x / room) l->x = calloc(room * d->features + 1, sizeof *l->x);
    l->label = calloc(room, sizeof *l->label);
    if (!l->x || !l->label) {
        ls_loader_destroy(l);
        return ls_fail(LS_NO_MEMORY, "a batch of %zu samples of %zu features", room, d->features);
    }
    *out = l;
    return LS_OK;
}

size_t ls_loader_batches(const ls_loader *l)
{
    size_t n = samples(l);
    return l->drop_last ? n / l->batch : n / l->batch + (n % l->batch != 0);
}

void ls_loader_rewind(ls_loader *l) { l->next = 0; }

size_t ls_loader_next(ls_loader *l)
{
    size_t left = samples(l) - l->next, count = left < l->batch ? left : l->batch, features = l->data->features;
    if (l->drop_last && count < l->batch) count = 0;
    for (size_t b = 0; b < count; b++) {
        size_t i = l->sampler ? (size_t)l->sampler->index[l->next + b] : l->next + b;
        float *x = l->x + b * features;
        if (l->data->bytes) {
            const uint8_t *bytes = l->data->bytes + i * features;
            for (size_t f = 0; f < features; f++) x[f] = l->of_byte[bytes[f]];
        } else {
            memcpy(x, l->data->x + i * features, features * sizeof *x);
        }
        l->label[b] = l->data->label[i];
    }
    l->next += count;
    return count;
}

void ls_loader_destroy(ls_loader *l)
{
    if (!l) return;
    free(l->x);
    free(l->label);
    free(l);
}
