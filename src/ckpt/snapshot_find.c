/* snapshot_find.c -- the newest snapshot of which every file is on some node, brought together on all of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "ckpt/bytes.h"
#include "ckpt/checkpoint.h"
#include "ckpt/snapshot.h"
#include "ckpt/steps.h"

#define MOST    8                  /* snapshots that one node tells of */
#define CHUNK   ((size_t)4 << 20)  /* bytes that are sent at once */
#define PATH    (LS_SNAPSHOT_PATH_BYTES + LS_MANIFEST_MAX_NAME + 64)

/* A snapshot, or what a node has of it. */
typedef struct entry {
    int64_t step, generation; /* step -1: none */
    char save[40];
} entry;

/* One that is looked at: the files that its manifest names, and who has them. */
typedef struct candidate {
    entry e;
    ls_manifest m;      /* owned, as the next two */
    char *text;         /* of manifest.json */
    uint8_t *has;       /* [ranks * m.nfiles]: of leaders, which files they have whole */
    int64_t nbytes;     /* of text */
} candidate;

/* --- what a node has ---------------------------------------------------------------------------- */

static const ls_snapshot_folder *folder_at(const ls_snapshots *n, int i)
{
    return i == 0 ? &n->own : &n->adopted[i - 1];
}

static void note(const char *path, entry *list, int *count)
{
    ls_manifest m = { 0 };
    if (*count == MOST) return;
    if (ls_manifest_read(path, &m) < 0) {
        ls_log(LS_LOG_WARN, "the snapshot %s is damaged and is skipped: %s", path, ls_last_error());
        ls_manifest_free(&m);
        return;
    }
    entry *e = &list[(*count)++];
    *e = (entry){ .step = m.step, .generation = m.generation };
    snprintf(e->save, sizeof e->save, "%s", m.save);
    ls_manifest_free(&m);
}

static void list_own(const ls_snapshots *n, entry list[MOST])
{
    char path[PATH], *names = malloc(LS_STEPS_NAMES_BYTES);
    int count = 0;
    for (int i = 0; names && i <= n->nadopted; i++) {
        const ls_snapshot_folder *f = folder_at(n, i);
        const int all = ls_env_get()->list(f->path, names, LS_STEPS_NAMES_BYTES);
        for (const char *name = NULL; all > 0 && (name = ls_steps_newest(names, all, name));) {
            snprintf(path, sizeof path, "%s/%s", f->path, name);
            note(path, list, &count);
        }
    }
    free(names);
}

/* The folder of this node that has such a snapshot; false: none. */
static bool find_folder(const ls_snapshots *n, const entry *e, char path[PATH])
{
    for (int i = 0; i <= n->nadopted; i++) {
        ls_manifest m = { 0 };
        snprintf(path, PATH, "%s/step-%08" PRId64, folder_at(n, i)->path, e->step);
        const bool same = ls_manifest_read(path, &m) == LS_OK && strcmp(m.save, e->save) == 0;
        ls_manifest_free(&m);
        if (same) return true;
    }
    return false;
}

/* --- which one ------------------------------------------------------------------------------------ */

static bool is_before(const entry *a, const entry *b)
{
    if (a->step != b->step) return a->step < b->step;
    if (a->generation != b->generation) return a->generation < b->generation;
    return strcmp(a->save, b->save) < 0;
}

/* The newest before `than` (NULL: of all) and above step `after`. */
static const entry *newest_of(const entry *all, int count, const entry *than, int64_t after)
{
    const entry *best = NULL;
    for (int i = 0; i < count; i++) {
        const entry *e = &all[i];
        if (e->step <= after || (than && !is_before(e, than))) continue;
        if (!best || is_before(best, e)) best = e;
    }
    return best;
}

/* The first rank that tells of it. */
static int first_with(const entry *all, int count, const entry *e)
{
    for (int i = 0; i < count; i++)
        if (all[i].step == e->step && strcmp(all[i].save, e->save) == 0) return i / MOST;
    return 0;
}

/* --- whether all of it is there -------------------------------------------------------------------- */

/* Every rank gets the manifest from the first that has it. */
static ls_status tell_manifest(const ls_snapshots *n, candidate *c, int from)
{
    char path[PATH];
    const bool mine = ls_group_rank(n->g) == from;
    size_t nbytes = 0;
    ls_status st = LS_OK;
    if (mine) {
        if (!find_folder(n, &c->e, path)) st = ls_fail(LS_CKPT_CORRUPT, "the snapshot of step %" PRId64 " is gone", c->e.step);
        snprintf(path + strlen(path), sizeof path - strlen(path), "/" LS_MANIFEST_NAME);
        if (st == LS_OK) st = ls_file_read(path, LS_MANIFEST_MAX_BYTES, &c->text, &nbytes);
        c->nbytes = (int64_t)nbytes;
    }
    LS_TRY(ls_state_agree(n->g, st, NULL));
    LS_TRY(ls_broadcast(n->g, &c->nbytes, 1, LS_I64, from));
    if (!mine && !(c->text = malloc((size_t)c->nbytes + 1))) st = ls_fail(LS_NO_MEMORY, "a manifest of %" PRId64 " bytes", c->nbytes);
    LS_TRY(ls_state_agree(n->g, st, NULL));
    LS_TRY(ls_broadcast(n->g, c->text, (size_t)c->nbytes, LS_U8, from));
    st = ls_manifest_parse("a snapshot's manifest", c->text, (size_t)c->nbytes, &c->m);
    if (st == LS_OK && !(c->has = calloc((size_t)ls_group_size(n->g) * (c->m.nfiles + 1), 1)))
        st = ls_fail(LS_NO_MEMORY, "the files of a snapshot");
    return ls_state_agree(n->g, st, NULL);
}

/* Which files each node has. A single node's are checked when they are read. */
static ls_status tell_files(const ls_snapshots *n, candidate *c)
{
    char folder[PATH];
    const size_t nfiles = c->m.nfiles;
    uint8_t *mine = c->has + (size_t)ls_group_rank(n->g) * nfiles;
    const bool looks = n->leads && find_folder(n, &c->e, folder);
    for (size_t i = 0; looks && i < nfiles; i++)
        mine[i] = n->nodes == 1 || ls_checkpoint_check_file(folder, &c->m, i) == LS_OK;
    return ls_all_gather(n->g, NULL, c->has, (size_t)ls_group_size(n->g) * nfiles, LS_U8);
}

/* The first leader that has file i; -1: none. */
static int owner_of(const ls_snapshots *n, const candidate *c, size_t i)
{
    for (int r = 0; r < ls_group_size(n->g); r++)
        if (c->has[(size_t)r * c->m.nfiles + i]) return r;
    return -1;
}

static bool is_leader(const ls_snapshots *n, int rank)
{
    for (int r = 0; r < rank; r++)
        if (ls_group_node(n->g, r) == ls_group_node(n->g, rank)) return false;
    return true;
}

static bool is_everywhere(const ls_snapshots *n, const candidate *c, size_t i)
{
    for (int r = 0; r < ls_group_size(n->g); r++)
        if (is_leader(n, r) && !c->has[(size_t)r * c->m.nfiles + i]) return false;
    return true;
}

/* --- bringing it together ---------------------------------------------------------------------------- */

/* The step's folder of this node, in its own folder: with what it has, or new. */
static ls_status make_place(const ls_snapshots *n, const candidate *c, char place[PATH])
{
    char found[PATH], sharded[PATH + 16];
    snprintf(place, PATH, "%s/step-%08" PRId64, n->path, c->e.step);
    if (find_folder(n, &c->e, found)) {
        if (strcmp(found, place) == 0) return LS_OK;
        ls_remove_folder(place); /* of another save */
        const int err = ls_env_get()->rename(found, place);
        return err < 0 ? ls_fail(LS_IO, "%s: cannot be renamed: %s", found, strerror(-err)) : LS_OK;
    }
    ls_remove_folder(place);
    snprintf(sharded, sizeof sharded, "%s/" LS_SHARDED_NAME, place);
    return ls_mkdirs(sharded);
}

/* Every rank calls it: file i from `owner` to the nodes that lack it. *failed: what this rank could not do; it goes
 * on with its part in the broadcasts, since the others wait for it. */
static ls_status bring(const ls_snapshots *n, const candidate *c, size_t i, int owner, const char *place, char *buffer,
                       ls_status *failed)
{
    char path[2 * PATH];
    const ls_manifest_file *f = &c->m.file[i];
    const int rank = ls_group_rank(n->g);
    const bool sends = rank == owner, takes = n->leads && !c->has[(size_t)rank * c->m.nfiles + i];
    ls_commit *out = NULL;
    int fd = -1;
    snprintf(path, sizeof path, "%s/%s", place, f->name);
    if (sends && *failed == LS_OK) *failed = ls_ckpt_open_read(path, &fd);
    if (takes && *failed == LS_OK) *failed = ls_commit_create(path, &out);
    ls_status st = LS_OK;
    for (uint64_t at = 0; st == LS_OK && at < f->sums.bytes; at += CHUNK) {
        const uint64_t left = f->sums.bytes - at;
        const size_t k = left < CHUNK ? (size_t)left : CHUNK;
        if (sends && *failed == LS_OK) *failed = ls_ckpt_read_at(path, fd, buffer, k, at);
        st = ls_broadcast(n->g, buffer, k, LS_U8, owner);
        if (st == LS_OK && takes && *failed == LS_OK) *failed = ls_commit_write(out, buffer, k);
    }
    if (st == LS_OK && takes && *failed == LS_OK) *failed = ls_commit_finish(out);
    ls_commit_destroy(out);
    if (fd >= 0) ls_env_get()->close_fd(fd);
    return st;
}

/* The manifest comes last: a folder that has one is whole. */
static ls_status write_manifest(const candidate *c, const char *place)
{
    char path[PATH + 16];
    snprintf(path, sizeof path, "%s/" LS_MANIFEST_NAME, place);
    return ls_file_write(path, c->text, (size_t)c->nbytes);
}

static ls_status bring_all(const ls_snapshots *n, const candidate *c)
{
    char place[PATH];
    char *buffer = malloc(CHUNK);
    ls_status failed = n->leads ? make_place(n, c, place) : LS_OK;
    if (failed == LS_OK && !buffer) failed = ls_fail(LS_NO_MEMORY, "%zu bytes to send a snapshot", CHUNK);
    failed = ls_state_agree(n->g, failed, NULL);
    ls_status st = failed;
    for (size_t i = 0; st == LS_OK && i < c->m.nfiles; i++)
        if (!is_everywhere(n, c, i)) st = bring(n, c, i, owner_of(n, c, i), place, buffer, &failed);
    if (st == LS_OK && failed == LS_OK && n->leads) failed = write_manifest(c, place);
    free(buffer);
    return st < 0 ? st : ls_state_agree(n->g, failed, NULL);
}

static ls_status open_here(const ls_snapshots *n, const candidate *c, ls_checkpoint **out)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/step-%08" PRId64, n->path, c->e.step);
    ls_status st = ls_checkpoint_open(path, out);
    if (st == LS_OK) st = ls_checkpoint_verify(*out, n->local, n->here);
    st = ls_state_agree(n->g, st, NULL);
    if (st == LS_OK) return st;
    ls_checkpoint_close(*out);
    *out = NULL;
    return st;
}

/* LS_CKPT_CORRUPT and the like: not this one. */
static ls_status try_one(const ls_snapshots *n, candidate *c, int from, ls_checkpoint **out)
{
    LS_TRY(tell_manifest(n, c, from));
    LS_TRY(tell_files(n, c));
    for (size_t i = 0; i < c->m.nfiles; i++)
        if (owner_of(n, c, i) < 0)
            return ls_fail(LS_CKPT_CORRUPT, "%s: is whole on no node that is here", c->m.file[i].name);
    LS_TRY(bring_all(n, c));
    return open_here(n, c, out);
}

/* Damage, or no room to bring it together: an older one, or a checkpoint on the disk, may do. */
static bool may_do_without(ls_status st)
{
    return st == LS_CKPT_CORRUPT || st == LS_BAD_FILE || st == LS_UNSAFE_PATH || st == LS_UNSUPPORTED || st == LS_IO;
}

static ls_status try_all(ls_snapshots *n, const entry *all, int64_t after, ls_checkpoint **out)
{
    const int count = ls_group_size(n->g) * MOST;
    const entry *e = NULL;
    while (!*out && (e = newest_of(all, count, e, after))) {
        candidate c = { .e = *e };
        const ls_status st = try_one(n, &c, first_with(all, count, e), out);
        if (st == LS_OK) {
            n->newest = c.e.step;
            n->nbytes = ls_snapshot_bytes(&c.m);
        }
        ls_manifest_free(&c.m);
        free(c.text);
        free(c.has);
        if (st < 0 && !may_do_without(st)) return st;
        if (st < 0 && ls_group_rank(n->g) == 0)
            ls_log(LS_LOG_WARN, "the snapshot of step %" PRId64 " is skipped: %s", e->step, ls_last_error());
    }
    return LS_OK;
}

ls_status ls_snapshots_newest(ls_snapshots *n, int64_t after, ls_checkpoint **out)
{
    const size_t size = (size_t)ls_group_size(n->g), rank = (size_t)ls_group_rank(n->g);
    *out = NULL;
    entry *all = calloc(size * MOST, sizeof *all);
    ls_status st = ls_state_agree(n->g, all ? LS_OK : ls_fail(LS_NO_MEMORY, "the snapshots of %zu ranks", size), NULL);
    if (st == LS_OK) {
        for (size_t i = 0; i < MOST; i++) all[rank * MOST + i].step = -1;
        if (n->leads) list_own(n, all + rank * MOST);
        st = ls_all_gather(n->g, NULL, all, size * MOST * sizeof *all, LS_U8);
    }
    if (st == LS_OK) st = try_all(n, all, after, out);
    free(all);
    return st;
}
