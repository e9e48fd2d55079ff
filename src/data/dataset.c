/* dataset.c -- data sets that are whole in memory: image files and made-up numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/limits.h"
#include "data/idx.h"
#include "lockstep/data.h"
#include "lockstep/rng.h"

#define CLASSES 10 /* of MNIST and everything in its layout */

typedef struct owner {
    float *x;
    uint8_t *bytes;
    int64_t *label;
} owner;

static void free_owner(owner *o)
{
    if (!o) return;
    free(o->x);
    free(o->bytes);
    free(o->label);
    free(o);
}

void ls_dataset_free(ls_dataset *d)
{
    free_owner(d->owner);
    *d = (ls_dataset){ 0 };
}

ls_status ls_idx_find(const char *dir, const char *name, char path[LS_IDX_PATH])
{
    static const char *const ending[] = { ".gz", "" };
    for (int i = 0; i < 2; i++) {
        ls_file_info info;
        int n = snprintf(path, LS_IDX_PATH, "%s/%s%s", dir, name, ending[i]);
        if (n < 0 || n >= LS_IDX_PATH) return ls_fail(LS_IO, "%.200s...: the path is too long", dir);
        if (ls_env_get()->info(path, &info) == 0 && info.type != LS_FILE_NONE) return LS_OK;
    }
    return ls_fail(LS_IO, "%s: neither %s.gz nor %s is there; data.path names the folder of the data", dir, name, name);
}

static ls_status read_images(const char *path, owner *own, ls_dataset *d)
{
    int ndim;
    size_t dims[4];
    LS_TRY(ls_idx_read(path, LS_IDX_MAX_BYTES, &ndim, dims, &own->bytes));
    if (ndim < 2) return ls_fail(LS_BAD_FILE, "%s: byte 3: %d dimension, images have 2 or more", path, ndim);
    d->n = dims[0];
    d->features = 1;
    for (int i = 1; i < ndim; i++) d->features *= dims[i];
    return LS_OK;
}

static ls_status read_labels(const char *path, const char *images, owner *own, const ls_dataset *d)
{
    int ndim;
    size_t dims[4];
    uint8_t *raw;
    LS_TRY(ls_idx_read(path, LS_IDX_MAX_BYTES, &ndim, dims, &raw));
    ls_status st = LS_OK;
    if (ndim != 1) {
        st = ls_fail(LS_BAD_FILE, "%s: byte 3: %d dimensions, labels have 1", path, ndim);
        goto done;
    }
    if (dims[0] != d->n) {
        st = ls_fail(LS_BAD_FILE, "%s: byte 4: %zu labels, but %s has %zu images", path, dims[0], images, d->n);
        goto done;
    }
    own->label = calloc(d->n, sizeof *own->label);
    if (!own->label) {
        st = ls_fail(LS_NO_MEMORY, "%s: %zu labels", path, d->n);
        goto done;
    }
    for (size_t i = 0; i < d->n; i++) {
        own->label[i] = raw[i];
        if (raw[i] >= CLASSES) {
            st = ls_fail(LS_BAD_FILE, "%s: byte %zu: label %d of sample %zu, expected 0 to %d", path, 8 + i, raw[i], i,
                         CLASSES - 1);
            goto done;
        }
    }
done:
    free(raw);
    return st;
}

ls_status ls_dataset_open_idx(const char *dir, const char *split, ls_dataset *out)
{
    char images[LS_IDX_PATH], labels[LS_IDX_PATH], name[64];
    *out = (ls_dataset){ 0 };
    bool train = strcmp(split, "train") == 0;
    if (!train && strcmp(split, "test") != 0) return ls_fail(LS_INVALID, "split '%s': expected train or test", split);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", train ? "train" : "t10k");
    LS_TRY(ls_idx_find(dir, name, images));
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", train ? "train" : "t10k");
    LS_TRY(ls_idx_find(dir, name, labels));

    ls_dataset d = { .classes = CLASSES, .mean = 0.0f, .std = 1.0f };
    owner *own = calloc(1, sizeof *own);
    if (!own) return ls_fail(LS_NO_MEMORY, "%s: a data set", dir);
    ls_status st = read_images(images, own, &d);
    if (st == LS_OK) st = read_labels(labels, images, own, &d);
    if (st < 0) {
        free_owner(own);
        return st;
    }
    d.bytes = own->bytes;
    d.label = own->label;
    d.owner = own;
    *out = d;
    return LS_OK;
}

ls_status ls_dataset_synthetic(uint64_t seed, size_t n, size_t features, int64_t classes, ls_dataset *out)
{
    *out = (ls_dataset){ 0 };
    if (features == 0 || n > SIZE_MAX / 16 / features || classes < 1 || classes > UINT32_MAX)
        return ls_fail(LS_INVALID, "%zu samples of %zu features in %lld classes: expected at least 1 feature and class", n,
                       features, (long long)classes);
    owner *own = calloc(1, sizeof *own);
    if (own) {
        own->x = calloc(n ? n * features : 1, sizeof *own->x);
        own->label = calloc(n ? n : 1, sizeof *own->label);
    }
    if (!own || !own->x || !own->label) {
        free_owner(own);
        return ls_fail(LS_NO_MEMORY, "%zu samples of %zu features", n, features);
    }
    ls_mt19937 g;
    ls_mt19937_seed(&g, seed);
    ls_mt19937_normal(&g, n * features, own->x);
    ls_status st = ls_mt19937_randint(&g, 0, classes, n, own->label);
    if (st < 0) {
        free_owner(own);
        return st;
    }
    *out = (ls_dataset){ .n = n, .features = features, .classes = classes, .x = own->x, .mean = 0.0f, .std = 1.0f,
                         .label = own->label, .owner = own };
    return LS_OK;
}

void ls_dataset_moments(const ls_dataset *d, float *mean, float *std)
{
    uint64_t times[256] = { 0 };
    size_t count = d->bytes ? d->n * d->features : 0;
    *mean = 0.0f;
    *std = 1.0f;
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) times[d->bytes[i]]++;
    double sum = 0.0, sq = 0.0;
    for (int b = 0; b < 256; b++) sum += (double)times[b] * b;
    double m = sum / (double)count;
    for (int b = 0; b < 256; b++) sq += (double)times[b] * (b - m) * (b - m);
    if (sq == 0.0) return;
    *mean = (float)(m / 255.0);
    *std = (float)(sqrt(sq / (double)count) / 255.0);
}
