/* snapshot.c -- snapshots of a run between its checkpoints (ckpt/snapshot.h): when, what is said of them, their end. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "ckpt/state.h"
#include "net/world.h"
#include "train/trainer.h"

/* Only what has happened to the job itself ends it: a rank that is gone, or another call of it. */
static bool may_go_on(ls_status st)
{
    return st == LS_IO || st == LS_CKPT_FAILED || st == LS_NO_MEMORY || st == LS_UNSAFE_PATH || st == LS_BAD_CONFIG ||
           st == LS_BAD_FILE || st == LS_UNSUPPORTED;
}

static void warn(ls_trainer *t, const char *what)
{
    if (t->snapshots_warned || ls_world_rank(t->w) != 0) return;
    t->snapshots_warned = true;
    ls_bar_clear(&t->bar);
    ls_log(LS_LOG_WARN, "snapshot-failed: %s; %s", ls_last_error(), what);
}

void ls_snapshot_find(ls_trainer *t)
{
    char folder[400];
    if (!ls_resume_in_place(t->c) && !*t->again.run_dir) return;
    ls_resume_folder(t->c, &t->again, folder, sizeof folder);
    if (ls_snapshots_open(ls_world_group(t->w), folder, false, &t->snapshots) < 0)
        warn(t, "the run goes on from a checkpoint on the disk");
}

ls_status ls_snapshot_open(ls_trainer *t)
{
    if (!ls_train_snapshots(t->c) || t->snapshots) return LS_OK;
    const ls_status st = ls_snapshots_open(ls_world_group(t->w), t->run_dir, true, &t->snapshots);
    if (st == LS_OK || !may_go_on(st)) return st;
    warn(t, "training goes on without snapshots");
    return LS_OK;
}

bool ls_snapshot_due(const ls_trainer *t, bool saved)
{
    const bool wanted = t->snapshots && ls_train_snapshots(t->c) && !t->snapshots_off;
    return wanted && !saved && t->step % t->c->checkpoint.snapshot == 0;
}

/* The place and the size, for who reports the end of the job. */
static void tell(void *arg)
{
    ls_trainer *t = arg;
    char folder[LS_SNAPSHOT_STEP_BYTES], size[32], text[LS_SAVED_PATH_BYTES];
    ls_snapshots_folder(t->snapshots, folder);
    ls_bytes_text((double)ls_snapshots_size(t->snapshots), size, sizeof size);
    snprintf(text, sizeof text, "%s, %s", folder, size);
    ls_saved_write(&t->w->page->snapshot, text, ls_snapshots_step(t->snapshots));
}

ls_status ls_snapshot_save(ls_trainer *t)
{
    const uint64_t begin = ls_env_get()->mono_ns();
    LS_TRY(ls_train_compare(t)); /* what has parted is not saved */
    ls_train_fill_kept(t);
    /* a save in flight may never be whole */
    if (ls_state_saving(t->state) && t->best.step == t->saving) t->kept.best = t->best_before;
    ls_train_task(t, LS_TASK_SAVING, "a snapshot");
    const ls_snapshot_told told = { tell, t };
    const ls_status st =
        ls_snapshots_save(t->snapshots, t->state, t->config, t->step, t->par.mesh.speaks ? &told : NULL);
    ls_train_task(t, LS_TASK_NONE, NULL);
    if (st < 0 && !may_go_on(st)) return st;
    if (st < 0) {
        if (t->par.mesh.speaks && ls_snapshots_step(t->snapshots) >= 0) tell(t); /* of the one before */
        t->snapshots_off = true;
        warn(t, "training goes on; no snapshot is tried until the next checkpoint is on the disk");
        return LS_OK;
    }
    t->snapshots_warned = false;
    const uint64_t pause = ls_env_get()->mono_ns() - begin;
    t->pauses.n++;
    t->pauses.sum_ns += pause;
    if (pause > t->pauses.most_ns) t->pauses.most_ns = pause;
    return LS_OK;
}

void ls_snapshot_durable(ls_trainer *t) { t->snapshots_off = false; }

void ls_snapshot_end(ls_trainer *t)
{
    ls_snapshots_remove(t->snapshots);
    if (t->par.mesh.speaks && t->w) ls_saved_write(&t->w->page->snapshot, NULL, 0);
}

void ls_snapshot_say(const ls_trainer *t, uint64_t all_ns)
{
    char size[32];
    const double ms = (double)t->pauses.sum_ns * 1e-6;
    if (t->pauses.n == 0 || all_ns == 0) return;
    ls_bytes_text((double)ls_snapshots_size(t->snapshots), size, sizeof size);
    ls_say("snapshots: %lld of %s in memory, %.2f ms each (longest %.2f ms): %.1f%% of the time of the steps",
           (long long)t->pauses.n, size, ms / (double)t->pauses.n, (double)t->pauses.most_ns * 1e-6,
           1e8 * ms / (double)all_ns);
}
