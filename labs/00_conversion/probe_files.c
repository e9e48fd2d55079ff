/* probe_files.c -- files that several ranks write, and files of a wrapped model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "../net.h"
#include "probe.h"

ls_status read_file(const char *path, char **text, size_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    const size_t most = (size_t)1 << 20;
    *text = calloc(1, most);
    if (f && *text) *nbytes = fread(*text, 1, most - 1, f);
    const bool ok = f && *text;
    if (f) fclose(f);
    return ok ? LS_OK : ls_fail(LS_IO, "%s cannot be read", path);
}

static ls_status save_one(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w), writer = atoi(j->more);
    char path[PATH + 32];
    net n, other = { 0 };
    snprintf(path, sizeof path, "%s/model.safetensors", j->folder);
    ls_status st = net_open(&n, w, NULL, "sgd", 42 + (uint64_t)rank); /* other weights on each rank, to know the writer */
    if (st == LS_OK) st = ls_params_digest(&n.model->params, j->digest[rank]);
    if (st == LS_OK && rank == writer) st = ls_ckpt_save(path, &n.model->params, NULL);
    if (st == LS_OK) st = ls_barrier(ls_world_group(w));
    if (st == LS_OK && rank == RANKS - 1) {
        st = net_open(&other, w, NULL, "sgd", 7);
        if (st == LS_OK) st = ls_ckpt_load(path, &other.model->params, false);
        if (st == LS_OK) st = ls_params_digest(&other.model->params, j->loaded);
        net_close(&other);
    }
    net_close(&n);
    return st;
}

ls_status save(job *j)
{
    LS_TRY(ls_world_threads(RANKS, NULL, save_one, j));
    printf("{\"rank0\": \"%s\", \"read_by_rank3\": \"%s\"}\n", j->digest[0], j->loaded);
    return LS_OK;
}

/* Writes the file of `from` over that of `path` in two halves, and lets the other rank write in between, as programs do
 * that open one path for writing at the same time. */
static ls_status write_halves(ls_group *g, int rank, const char *from, const char *path)
{
    char *text = NULL;
    size_t n = 0;
    ls_status st = read_file(from, &text, &n);
    FILE *f = fopen(path, "wb");
    if (st == LS_OK && !f) st = ls_fail(LS_IO, "%s: %s", path, strerror(errno));
    for (int half = 0; st == LS_OK && half < 2; half++)
        for (int turn = 0; st == LS_OK && turn < 2; turn++) {
            const size_t at = half ? n / 2 : 0, count = half ? n - n / 2 : n / 2;
            /* The first half of rank 1 stays, and the second of rank 0. */
            const bool mine = rank == (half ? 1 - turn : turn);
            if (mine && (fseek(f, (long)at, SEEK_SET) || fwrite(text + at, 1, count, f) != count || fflush(f)))
                st = ls_fail(LS_IO, "%s: %s", path, strerror(errno));
            if (st == LS_OK) st = ls_barrier(g);
        }
    if (f) fclose(f);
    free(text);
    return st;
}

static ls_status write_both(ls_world *w, void *arg)
{
    job *j = arg;
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w);
    char own[PATH + 32], path[PATH + 32];
    net n;
    snprintf(own, sizeof own, "%s/own-%d.safetensors", j->folder, rank);
    snprintf(path, sizeof path, "%s/model.safetensors", j->folder);
    ls_status st = net_open(&n, w, NULL, "sgd", 42 + (uint64_t)rank);
    if (st == LS_OK) st = ls_ckpt_save(own, &n.model->params, NULL);
    for (int round = 0; st == LS_OK && round < 10; round++) {
        st = more_is(j, "atomic") ? ls_ckpt_save(path, &n.model->params, NULL) : write_halves(g, rank, own, path);
        if (st == LS_OK) st = ls_barrier(g);
        if (st == LS_OK && rank == 0) {
            ls_ckpt *c = NULL;
            ls_status whole = ls_ckpt_open(path, &c);
            if (whole == LS_OK) whole = ls_ckpt_verify(c);
            ls_ckpt_close(c);
            if (whole < 0) j->code = ls_status_exit_code(whole);
        }
        if (st == LS_OK) st = ls_barrier(g);
    }
    net_close(&n);
    return st;
}

ls_status writers(job *j)
{
    LS_TRY(ls_world_threads(2, NULL, write_both, j));
    printf("{\"verify\": %d}\n", j->code);
    return LS_OK;
}

static ls_status load_module(ls_world *w, void *arg)
{
    job *j = arg;
    char path[PATH + 32];
    net wrapped = { 0 }, plain = { 0 };
    snprintf(path, sizeof path, "%s/module.safetensors", j->folder);
    ls_status st = net_open(&wrapped, w, NULL, "sgd", 42);
    if (st == LS_OK) st = net_open(&plain, w, NULL, "sgd", 7);
    if (st == LS_OK) st = ls_params_digest(&wrapped.model->params, j->digest[0]);
    for (int i = 0; st == LS_OK && !more_is(j, "inner") && i < wrapped.model->params.n; i++) {
        char *name = wrapped.model->params.item[i].name, inner[LS_NAME_BYTES];
        memcpy(inner, name, sizeof inner);
        snprintf(name, LS_NAME_BYTES, "module.%.*s", (int)(LS_NAME_BYTES - sizeof "module."), inner);
    }
    if (st == LS_OK) st = ls_ckpt_save(path, &wrapped.model->params, NULL);
    if (st == LS_OK) {
        const ls_status as_it_is = ls_ckpt_load(path, &plain.model->params, false);
        j->code = ls_status_exit_code(as_it_is);
        j->says = as_it_is < 0 && strstr(ls_last_error(), "prefix stripped");
        if (!more_is(j, "unread")) st = ls_ckpt_load(path, &plain.model->params, true);
    }
    if (st == LS_OK) st = ls_params_digest(&plain.model->params, j->loaded);
    net_close(&plain);
    net_close(&wrapped);
    return st;
}

ls_status module(job *j)
{
    LS_TRY(ls_world_threads(1, NULL, load_module, j));
    printf("{\"refused_with\": %d, \"says_how\": %d, \"saved\": \"%s\", \"loaded\": \"%s\"}\n", j->code, j->says, j->digest[0],
           j->loaded);
    return LS_OK;
}
