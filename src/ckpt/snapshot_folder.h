/* snapshot_folder.h -- where a node has its snapshots of a run: a folder in memory.
 *
 *   /dev/shm/lockstep-<user>-<16 hex digits>-<node>/      digits: a hash of the run folder's path
 *     lock               held by one process of the run as long as that lives
 *     run                the number of the run, and its folder
 *     step-00000011/     the newest snapshot, and the one before
 *
 * Files in /dev/shm are memory, and stay when the processes that wrote them are gone. So the folder has a name, which
 * others can take first: one that is a link, belongs to another user or is open to others is refused. The environment's
 * LOCKSTEP_SNAPSHOT_DIR names another folder than /dev/shm.
 */
#ifndef LS_CKPT_SNAPSHOT_FOLDER_H
#define LS_CKPT_SNAPSHOT_FOLDER_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/status.h"

#define LS_SNAPSHOT_PATH_BYTES 256
#define LS_SNAPSHOT_STEP_BYTES (LS_SNAPSHOT_PATH_BYTES + 32) /* of the folder of a step in it */
#define LS_SNAPSHOT_RUN "run.id" /* a run's number, in its folder */

/* A run, as its folder and its snapshots name it: who deletes the folder and begins again has another number. */
typedef struct ls_snapshot_run {
    char number[24]; /* 16 hex digits; "": the run has none, so it has no snapshots */
    char key[24];    /* 16 hex digits: a hash of `folder` */
    char folder[512]; /* the run's, absolute */
} ls_snapshot_run;

typedef struct ls_snapshot_folder {
    char path[LS_SNAPSHOT_PATH_BYTES];
    int lock; /* its open file; -1: the folder is not held */
} ls_snapshot_folder;

/* Reads the number of the run in `dir`, or, with `make`, gives it one if it has none. LS_IO: also if the folder is not
 * there, with `make`. LS_BAD_FILE: another file of that name. */
ls_status ls_snapshot_run_read(const char *dir, bool make, ls_snapshot_run *out);

/* The path of a node's folder of a run. LS_BAD_CONFIG: it is too long. */
ls_status ls_snapshot_folder_path(const ls_snapshot_run *run, int node, char out[LS_SNAPSHOT_PATH_BYTES]);
/* Makes the folder if it is missing and takes hold of it; snapshots of another run in it are removed. If another
 * process has it, waits for up to LS_SNAPSHOT_LOCK_NS: ranks whose launcher was killed take a moment to end.
 * LS_UNSAFE_PATH. LS_IO: no such folder can be made, or another process has it. */
#define LS_SNAPSHOT_LOCK_NS 5000000000ull
ls_status ls_snapshot_folder_open(const char *path, const ls_snapshot_run *run, ls_snapshot_folder *out);
/* Takes hold of folders of the run that other nodes have left here, at most `most`; the number of them. */
int ls_snapshot_folder_adopt(const ls_snapshot_run *run, ls_snapshot_folder *out, int most);
/* Removes all in it but the snapshot of step `but` (-1: all). */
void ls_snapshot_folder_clear(const ls_snapshot_folder *f, int64_t but);
/* Removes the folder, and lets go of it. */
void ls_snapshot_folder_remove(ls_snapshot_folder *f);
/* Lets go of it; the folder stays. */
void ls_snapshot_folder_close(ls_snapshot_folder *f);

/* Removes folders of this user, of any run, that no process has and in which nothing has changed for a day. The number
 * of them. */
int ls_snapshot_sweep(void);

#endif
