/* process.h -- one program from its start to its end, with limits. */
#ifndef LS_LAB_PROCESS_H
#define LS_LAB_PROCESS_H
#include "base/env.h"
#include "base/limits.h"
#include "base/stop.h"
#include "base/text.h"

typedef enum ls_lab_how {
    LS_LAB_ENDED_EXIT,   /* `code` is its exit status */
    LS_LAB_ENDED_SIGNAL, /* `code` is the signal's number */
    LS_LAB_ENDED_LATE,   /* at the limit of time: all processes of its group were killed */
    LS_LAB_ENDED_LOUD,   /* at LS_LAB_MAX_OUTPUT bytes: likewise */
} ls_lab_how;

typedef struct ls_lab_ended {
    ls_lab_how how;
    int code;
} ls_lab_ended;

/* Starts `c` (argv, and what else is set of env_set and limits) in a process group of its own and waits until it has
 * ended. What it prints is added to `out`
 * and `err`, at most LS_LAB_MAX_OUTPUT bytes together. When it has ended, the rest of its group is killed.
 * LS_SYSTEM: it cannot be started. LS_INTERRUPTED: a signal was seen in `stop` (NULL: none is watched for), and it was
 * killed. */
ls_status ls_lab_process(const ls_child *c, uint64_t timeout_ns, const ls_stop *stop, ls_text *out, ls_text *err,
                         ls_lab_ended *ended);

#endif
