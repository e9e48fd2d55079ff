/* saved.h -- the newest durable checkpoint of a job, and the folder of its run, in the world page.
 *
 * Rank 0 of a training writes it: that there is none when it has made its run folder, then each checkpoint when it is
 * whole and on the disk, and before an older one is removed. So whoever reports the end of the job can say truthfully
 * what was saved. Heartbeats take it to the other hosts.
 */
#ifndef LS_MEET_SAVED_H
#define LS_MEET_SAVED_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LS_SAVED_PATH_BYTES 400
#define LS_SAVED_WORDS 52

/* UNKNOWN: no training has told. */
typedef enum ls_saved_state { LS_SAVED_UNKNOWN, LS_SAVED_NONE, LS_SAVED_ONE, LS_SAVED_STATES } ls_saved_state;

typedef struct ls_saved {
    uint32_t state; /* ls_saved_state */
    uint32_t reserved;
    int64_t step;
    char path[LS_SAVED_PATH_BYTES]; /* of its model, as rank 0 opened it */
} ls_saved;
_Static_assert(sizeof(ls_saved) == LS_SAVED_WORDS * 8, "fills its words");

typedef struct ls_saved_slot {
    _Atomic uint32_t version; /* meet/words.h */
    _Atomic uint64_t word[LS_SAVED_WORDS];
} ls_saved_slot;

/* The folder of a training's run, by which a job that is started again finds it: rank 0 writes it when it has made the
 * folder, and the launcher of its node reads it. */
#define LS_RUN_DIR_BYTES 256
#define LS_RUN_DIR_WORDS (LS_RUN_DIR_BYTES / 8)

typedef struct ls_run_dir_slot {
    _Atomic uint32_t version; /* meet/words.h */
    _Atomic uint64_t word[LS_RUN_DIR_WORDS];
} ls_run_dir_slot;

void ls_run_dir_write(ls_run_dir_slot *slot, const char *path);
/* "" when none was told. */
void ls_run_dir_read(const ls_run_dir_slot *slot, char out[LS_RUN_DIR_BYTES]);

/* path NULL: there is none yet. */
void ls_saved_write(ls_saved_slot *slot, const char *path, int64_t step);
/* state UNKNOWN when nothing was told, or its writer ended while it told the first. */
void ls_saved_read(const ls_saved_slot *slot, ls_saved *out);
/* "the newest checkpoint of this run is PATH (step 10)", "no checkpoint was saved", or "" when nothing is known. */
const char *ls_saved_text(const ls_saved *s, char *buf, size_t n);

#endif
