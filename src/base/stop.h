/* stop.h -- signals that ask this process to stop, seen without asking the system.
 *
 * A thread sleeps on them and leaves the newest in a word, so that who looks at every
 * step makes no system call.
 */
#ifndef LS_BASE_STOP_H
#define LS_BASE_STOP_H
#include "lockstep/status.h"

typedef struct ls_stop ls_stop;

/* Blocks the n signals and watches for them. LS_SYSTEM, LS_NO_MEMORY. */
ls_status ls_stop_watch(const int *sigs, int n, ls_stop **out);
/* The newest of them; 0: none has come. */
int ls_stop_seen(const ls_stop *s); /* NULL: 0 */
/* They stay blocked. */
void ls_stop_end(ls_stop *s); /* NULL is fine */

#endif
