/* task.h -- work of one rank outside collectives that may take longer than comm.timeout, such as a save.
 *
 * A rank that begins such work says so in its slot of the world page: what it does, with which file, and for how long
 * it may at most. Ranks that wait for it then wait for as long as its process is alive and the time is not over, and
 * whoever says where it is can name the file.
 */
#ifndef LS_MEET_TASK_H
#define LS_MEET_TASK_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_TASK_FILE_BYTES 488
#define LS_TASK_WORDS 64

typedef enum ls_task_kind {
    LS_TASK_NONE, LS_TASK_SAVING, LS_TASK_WRITING, LS_TASK_READING, LS_TASK_KINDS
} ls_task_kind;

typedef struct ls_task {
    uint32_t kind;                 /* ls_task_kind */
    uint32_t reserved;
    uint64_t since_ns, limit_ns;   /* it ends before since_ns + limit_ns. NONE: since when; 0: there never was one */
    char file[LS_TASK_FILE_BYTES]; /* that it reads or writes */
} ls_task;
_Static_assert(sizeof(ls_task) == LS_TASK_WORDS * 8, "fills its words");

/* A task in shared memory: written by its rank (or by who mirrors a rank of another host), read by anybody. */
typedef struct ls_task_slot {
    _Atomic uint32_t version; /* meet/words.h */
    _Atomic uint64_t word[LS_TASK_WORDS];
} ls_task_slot;

/* The limit's name, for messages. */
#define LS_TASK_KEY "checkpoint.timeout"

void ls_task_begin(ls_task_slot *slot, ls_task_kind kind, uint64_t limit_ns, const char *file);
void ls_task_end(ls_task_slot *slot);
/* Stores a task as it is told. */
void ls_task_write(ls_task_slot *slot, const ls_task *t);
/* A consistent copy; false, with kind NONE, when there is no task, or its rank ended while it wrote. */
bool ls_task_read(const ls_task_slot *slot, ls_task *out);
/* For how long it may still go on; 0: its time is over. */
uint64_t ls_task_left_ns(const ls_task *t, uint64_t now_ns);
/* "saving runs/x/checkpoints/step-00000010 for 2.1 s", and once its time is over "; checkpoint.timeout allows 1.0 s". */
const char *ls_task_text(const ls_task *t, uint64_t now_ns, char *buf, size_t n);

#endif
