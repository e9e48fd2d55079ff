/* snapshot.h -- snapshots of a run: checkpoints in the memory of the nodes, from which a training goes on that lost a
 * rank, a node or its launcher.
 *
 * A snapshot is a checkpoint's folder (saving.h), written by all ranks into the folders that their nodes have for that
 * (snapshot_folder.h). A node's leader, its lowest rank, makes and names the step's folder there. It outlives the
 * processes, not the machine.
 *
 * With several nodes each rank also sends its files to a rank of the next node, which writes them there. So each file
 * is on two nodes, and the memory of any one node may be lost. Each node has the manifest, and of the files that it
 * names those of its own ranks and of the node before. Before a load the nodes send each other what they lack.
 *
 *   snapshot.c       opens, saves, removes      snapshot_copy.c   files to the next node
 *   snapshot_find.c  the newest one of which every file is somewhere
 */
#ifndef LS_CKPT_SNAPSHOT_H
#define LS_CKPT_SNAPSHOT_H
#include "ckpt/saving.h"
#include "ckpt/snapshot_folder.h"

typedef struct ls_snapshots ls_snapshots;

/* Every rank of g, which is borrowed, calls it; dir is rank 0's. With `make`, snapshots of the run in `dir` can be
 * saved from here on. Without, *out is NULL if the run never had any. What other runs of this user have left is swept.
 * Failures, on all ranks: those of ls_snapshot_folder_open. */
ls_status ls_snapshots_open(ls_group *g, const char *dir, bool make, ls_snapshots **out);
void ls_snapshots_close(ls_snapshots *n); /* the files stay. NULL is fine */
/* Every rank calls it: the files go, on all nodes. NULL is fine. */
void ls_snapshots_remove(ls_snapshots *n);

/* Bytes that this rank's part of two snapshots takes, and of what another node has it sent. */
size_t ls_snapshots_bytes(const ls_state *s);

/* Every rank calls it between two steps, with the text of config.yaml (rank 0's) and the same step: returns when the
 * snapshot is complete. The one before the newest is removed first. A save in flight (ls_state_save_begin) is left
 * alone. LS_CKPT_FAILED on all ranks: there is no room, for instance; the newest one is still there. `told` (NULL:
 * none) hears of the snapshot when this rank's part of it is in place, before all ranks have agreed that theirs is. */
typedef struct ls_snapshot_told {
    void (*fn)(void *arg);
    void *arg;
} ls_snapshot_told;
ls_status ls_snapshots_save(ls_snapshots *n, ls_state *s, const char *config, int64_t step,
                            const ls_snapshot_told *told);
int64_t ls_snapshots_step(const ls_snapshots *n);    /* of the newest that is complete; -1: none */
uint64_t ls_snapshots_size(const ls_snapshots *n);   /* bytes of all ranks' files in it */
/* The newest one's folder on this node. */
void ls_snapshots_folder(const ls_snapshots *n, char out[LS_SNAPSHOT_STEP_BYTES]);

/* Every rank calls it and gets the newest whole snapshot of a step above `after`, with every byte checked, or NULL. One
 * line of the log names each that is damaged or of which a file is on no node any more. */
ls_status ls_snapshots_newest(ls_snapshots *n, int64_t after, ls_checkpoint **out);

/* --- for the files above ------------------------------------------------------------------------------ */

#define LS_SNAPSHOT_ADOPTED 8 /* folders of other nodes, which this one has taken over */

struct ls_snapshots {
    ls_group *g;              /* borrowed */
    ls_snapshot_run run;
    int nodes, node;          /* of g; which one this rank is on, */
    int first, local, here;   /* the rank that leads it, this rank's number on it, and ranks on it */
    bool leads;
    char path[LS_SNAPSHOT_PATH_BYTES]; /* of the node's folder */
    ls_snapshot_folder own;   /* the leader's */
    ls_snapshot_folder adopted[LS_SNAPSHOT_ADOPTED]; /* the leader's: what a node that is gone left here, or this one
                                                      * under another number */
    int nadopted;
    char *config;             /* owned: the leaders' text of config.yaml; NULL: not told yet */
    int64_t newest;           /* -1: none */
    uint64_t nbytes;
};

/* snapshot_copy.c: ranks that send their files to this one. */
int ls_snapshot_senders(const ls_snapshots *n);
/* snapshot.c: bytes of all files that a manifest names. */
uint64_t ls_snapshot_bytes(const ls_manifest *m);
/* snapshot_copy.c: sends this rank's files of the save to the next node, and writes what comes. Every rank calls it,
 * whatever failed on some of them; the result is this rank's. */
ls_status ls_snapshot_copy(ls_snapshots *n, const ls_saving *v);

#endif
