/* snapshot.c -- saving a snapshot: a save (saving.h) into a folder of each node. */
#include "ckpt/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"

/* --- opening -------------------------------------------------------------------------------------- */

static void find_place(ls_snapshots *n)
{
    const int rank = ls_group_rank(n->g), size = ls_group_size(n->g);
    n->nodes = ls_group_nodes(n->g);
    n->node = ls_group_node(n->g, rank);
    n->first = -1;
    for (int r = 0; r < size; r++) {
        if (ls_group_node(n->g, r) != n->node) continue;
        if (n->first < 0) n->first = r;
        n->local += r < rank;
        n->here++;
    }
    n->leads = n->first == rank;
}

/* A leader adopts folders of other nodes only after every node has locked its own: those that are unlocked then have
 * lost their node. */
static ls_status open_folders(ls_snapshots *n)
{
    LS_TRY(ls_snapshot_folder_path(&n->run, n->node, n->path));
    const ls_status st = n->leads ? ls_snapshot_folder_open(n->path, &n->run, &n->own) : LS_OK;
    LS_TRY(ls_state_agree(n->g, st, NULL));
    if (!n->leads) return LS_OK;
    (void)ls_snapshot_sweep();
    n->nadopted = ls_snapshot_folder_adopt(&n->run, n->adopted, LS_SNAPSHOT_ADOPTED);
    return LS_OK;
}

static ls_status open_run(ls_snapshots *n, const char *dir, bool make)
{
    const ls_status st = ls_group_rank(n->g) == 0 ? ls_snapshot_run_read(dir, make, &n->run) : LS_OK;
    LS_TRY(ls_state_agree(n->g, st, NULL));
    LS_TRY(ls_broadcast(n->g, &n->run, sizeof n->run, LS_U8, 0));
    return *n->run.number ? open_folders(n) : LS_OK;
}

ls_status ls_snapshots_open(ls_group *g, const char *dir, bool make, ls_snapshots **out)
{
    *out = NULL;
    ls_snapshots *n = calloc(1, sizeof *n);
    const ls_status made = ls_state_agree(g, n ? LS_OK : ls_fail(LS_NO_MEMORY, "the snapshots of a run"), NULL);
    if (made < 0) {
        free(n);
        return made;
    }
    n->g = g;
    n->own.lock = -1;
    n->newest = -1;
    find_place(n);
    const ls_status st = open_run(n, dir, make);
    if (st == LS_OK && *n->run.number) *out = n;
    else ls_snapshots_close(n);
    return st;
}

void ls_snapshots_close(ls_snapshots *n)
{
    if (!n) return;
    ls_snapshot_folder_close(&n->own);
    for (int i = 0; i < n->nadopted; i++) ls_snapshot_folder_close(&n->adopted[i]);
    free(n->config);
    free(n);
}

static void remove_adopted(ls_snapshots *n)
{
    for (int i = 0; i < n->nadopted; i++) ls_snapshot_folder_remove(&n->adopted[i]);
    n->nadopted = 0;
}

void ls_snapshots_remove(ls_snapshots *n)
{
    if (!n) return;
    remove_adopted(n);
    ls_snapshot_folder_remove(&n->own);
    n->newest = -1;
}

/* --- what there is -------------------------------------------------------------------------------- */

/* What a sender has is taken to be as much as what this rank has. */
size_t ls_snapshots_bytes(const ls_state *s)
{
    ls_snapshots n = { .g = s->g };
    find_place(&n);
    return 2 * ls_state_copy_bytes(s) * (size_t)(1 + ls_snapshot_senders(&n));
}

int64_t ls_snapshots_step(const ls_snapshots *n) { return n->newest; }
uint64_t ls_snapshots_size(const ls_snapshots *n) { return n->nbytes; }

void ls_snapshots_folder(const ls_snapshots *n, char out[LS_SNAPSHOT_STEP_BYTES])
{
    snprintf(out, LS_SNAPSHOT_STEP_BYTES, "%s/step-%08" PRId64, n->path, n->newest);
}

/* --- saving -------------------------------------------------------------------------------------------- */

/* The configuration does not change while a run goes on, so it is told once. */
static ls_status tell_config(ls_snapshots *n, const char *config)
{
    const bool first = ls_group_rank(n->g) == 0;
    int64_t nbytes = first ? (int64_t)strlen(config) + 1 : 0;
    if (n->config) return LS_OK;
    LS_TRY(ls_broadcast(n->g, &nbytes, 1, LS_I64, 0));
    char *text = malloc((size_t)nbytes);
    ls_status st = text ? LS_OK : ls_fail(LS_NO_MEMORY, "a configuration of %lld bytes", (long long)nbytes);
    if (text && first) memcpy(text, config, (size_t)nbytes);
    st = ls_state_agree(n->g, st, NULL);
    if (st == LS_OK) st = ls_broadcast(n->g, text, (size_t)nbytes, LS_U8, 0);
    if (st == LS_OK) n->config = text;
    else free(text);
    return st;
}

/* What each rank tells of a save that begins: leaders their temporary folder, rank 0 the save's name. */
static ls_status begin(ls_snapshots *n, ls_saving *v, const ls_state *s, const char *folder, int64_t step)
{
    const int rank = ls_group_rank(n->g), size = ls_group_size(n->g);
    *v = (ls_saving){ .step = step, .generation = s->generation, .world_size = size, .everywhere = true };
    ls_status st = LS_OK;
    if (n->leads) {
        ls_snapshot_folder_clear(&n->own, n->newest);
        if (n->newest >= 0) remove_adopted(n);
        st = ls_save_folder_make(folder, step, &v->commit, &v->b);
    }
    ls_save_beginning *all = calloc((size_t)size, sizeof *all);
    if (st == LS_OK && !all) st = ls_fail(LS_NO_MEMORY, "what %d ranks say of a snapshot", size);
    st = ls_state_agree(n->g, st, NULL);
    if (st == LS_OK) {
        all[rank] = v->b;
        st = ls_all_gather(n->g, NULL, all, (size_t)size * sizeof *all, LS_U8);
    }
    if (st == LS_OK) {
        v->b = all[n->first];
        memcpy(v->b.save, all[0].save, sizeof v->b.save);
        v->b.step = all[0].step;
    }
    free(all);
    return st;
}

static ls_status write_config(const ls_snapshots *n, const ls_saving *v)
{
    char path[LS_SAVE_PATH_BYTES + 16];
    if (!n->leads) return LS_OK;
    snprintf(path, sizeof path, "%s/config.yaml", v->b.path);
    return ls_file_write(path, n->config, strlen(n->config));
}

uint64_t ls_snapshot_bytes(const ls_manifest *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->nfiles; i++) sum += m->file[i].sums.bytes;
    return sum;
}

/* This rank's part is done: who is told of the snapshot hears of it now, because a rank that ends before the others
 * have agreed leaves a snapshot that is whole. */
static void note(ls_snapshots *n, int64_t step, uint64_t nbytes, const ls_snapshot_told *told)
{
    n->newest = step;
    n->nbytes = nbytes;
    if (told) told->fn(told->arg);
}

static ls_status save(ls_snapshots *n, ls_saving *v, const ls_state *s, const char *folder, int64_t step,
                      const ls_snapshot_told *told)
{
    LS_TRY(begin(n, v, s, folder, step));
    ls_status st = ls_save_list(v, s);
    if (st == LS_OK) st = write_config(n, v);
    if (st == LS_OK) st = ls_save_write(v);
    LS_TRY(ls_state_agree(n->g, st, NULL));
    LS_TRY(ls_save_gather(v, n->g));
    if (n->nodes > 1) LS_TRY(ls_state_agree(n->g, ls_snapshot_copy(n, v), NULL));
    st = n->leads ? ls_save_commit(v) : LS_OK;
    if (st == LS_OK) note(n, step, ls_snapshot_bytes(&v->manifest), told);
    return ls_state_agree(n->g, st, NULL);
}

ls_status ls_snapshots_save(ls_snapshots *n, ls_state *s, const char *config, int64_t step,
                            const ls_snapshot_told *told)
{
    char folder[LS_SNAPSHOT_STEP_BYTES];
    ls_saving v = { 0 };
    const int64_t before = n->newest;
    const uint64_t bytes_before = n->nbytes;
    snprintf(folder, sizeof folder, "%s/step-%08" PRId64, n->path, step);
    ls_status st = tell_config(n, config);
    if (st == LS_OK) st = save(n, &v, s, folder, step, told);
    st = ls_save_end(&v, st, folder);
    if (st < 0 && n->newest != before) note(n, before, bytes_before, NULL); /* another rank's part is missing */
    return st;
}
