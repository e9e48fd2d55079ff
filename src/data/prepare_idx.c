/* prepare_idx.c -- images in MNIST's layout: looked through, and unpacked into a folder of one's own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/limits.h"
#include "base/text.h"
#include "data/idx.h"
#include "data/prepare.h"

static void put_big(uint8_t *to, size_t v)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(v >> 8 * (3 - i));
}

/* An IDX file of unsigned bytes, whole or not at all. */
static ls_status write_idx(const char *path, int ndim, const size_t dims[4], const uint8_t *data)
{
    uint8_t header[4 + 4 * LS_IDX_MAX_DIMS] = { 0, 0, 0x08, (uint8_t)ndim };
    size_t count = 1;
    ls_commit *c;
    for (int i = 0; i < ndim; i++) {
        put_big(header + 4 + 4 * i, dims[i]);
        count *= dims[i];
    }
    LS_TRY(ls_commit_create(path, &c));
    ls_status st = ls_commit_write(c, header, 4 + 4 * (size_t)ndim);
    if (st == LS_OK) st = ls_commit_write(c, data, count);
    if (st == LS_OK) st = ls_commit_finish(c);
    ls_commit_destroy(c);
    return st;
}

static ls_status unpack(const char *from, const char *out, const char *name)
{
    char found[LS_IDX_PATH];
    ls_text path = { 0 };
    uint8_t *data = NULL;
    size_t dims[4];
    int ndim;
    LS_TRY(ls_idx_find(from, name, found));
    ls_text_add(&path, "%s/%s", out, name);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_idx_read(found, LS_IDX_MAX_BYTES, &ndim, dims, &data);
    if (st == LS_OK) st = write_idx(path.p, ndim, dims, data);
    free(data);
    ls_text_free(&path);
    return st;
}

ls_status ls_prepare_idx(const char *from, const char *out, size_t images[2])
{
    static const char *const files[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                         "t10k-labels-idx1-ubyte" };
    static const char *const splits[] = { "train", "test" };
    for (int i = 0; i < 2; i++) {
        ls_dataset d;
        LS_TRY(ls_dataset_open_idx(from, splits[i], &d)); /* before anything is written */
        images[i] = d.n;
        ls_dataset_free(&d);
    }
    int err = ls_env_get()->mkdir(out);
    if (err < 0 && err != -EEXIST) return ls_fail(LS_IO, "%s: cannot be made: %s", out, strerror(-err));
    for (int i = 0; i < 4; i++) LS_TRY(unpack(from, out, files[i]));
    return LS_OK;
}
