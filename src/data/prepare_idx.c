/* prepare_idx.c -- images in MNIST's layout: looked through, and unpacked into a folder of one's own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
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

/* Under a name of its own first, and then in the place of what it may replace. */
static ls_status put(const char *path, bool force, int ndim, const size_t dims[4], const uint8_t *data)
{
    const ls_env *env = ls_env_get();
    ls_commit_folder *c;
    ls_text aside = { 0 };
    ls_file_info info = { 0 };
    bool same = false;
    if (force || env->info(path, &info) < 0 || info.type == LS_FILE_NONE) return write_idx(path, ndim, dims, data);
    LS_TRY(ls_commit_folder_create(path, &c)); /* for the comparison alone: it never takes the name */
    ls_text_add(&aside, "%s/file", ls_commit_folder_path(c));
    ls_status st = ls_text_status(&aside);
    if (st == LS_OK) st = write_idx(aside.p, ndim, dims, data);
    if (st == LS_OK) st = ls_file_same(aside.p, path, &same);
    ls_commit_folder_destroy(c);
    ls_text_free(&aside);
    if (st < 0 || same) return st;
    return ls_fail(LS_INVALID, "%s: is there and differs: name another folder, or give --force to replace it", path);
}

static ls_status unpack(const char *from, const char *out, bool force, const char *name)
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
    if (st == LS_OK) st = put(path.p, force, ndim, dims, data);
    free(data);
    ls_text_free(&path);
    return st;
}

ls_status ls_prepare_idx(const char *from, const char *out, bool force, size_t images[2])
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
    for (int i = 0; i < 4; i++) LS_TRY(unpack(from, out, force, files[i]));
    return LS_OK;
}
