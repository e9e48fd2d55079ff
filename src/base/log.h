/* log.h -- lines for people, on stderr. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H
#include "base/compiler.h"
#include "lockstep/status.h"

typedef enum ls_log_level { LS_LOG_ERROR, LS_LOG_WARN, LS_LOG_INFO, LS_LOG_DEBUG } ls_log_level;

/* To the beginning of a terminal's line, which is then empty. */
#define LS_ERASE_LINE "\r\x1b[K"

/* One write per line, "[rank 2] " in front inside a world; dropped when the
 * context's level is lower. LOCKSTEP_DEBUG=info|debug raises it (default warn). */
void ls_log(ls_log_level level, const char *fmt, ...) LS_PRINTF(2, 3);

/* The one-line form of faults.md section 4:
 *   lockstep: error[rank-died] rank=2 host=h pid=41: what happened; what to do
 * Control characters from outside are escaped. `rank` < 0 leaves rank out. */
void ls_log_error(ls_status s, int rank, const char *message);

/* For states that only a bug in the same file can produce; prints the rank and aborts the process. */
#define LS_ASSERT(cond) ((cond) ? (void)0 : ls_bug(__FILE__, __LINE__, #cond))
void ls_bug(const char *file, int line, const char *what) __attribute__((cold, noreturn));

#endif
