/* print.h -- schedules as text, graph and JSON, and back from JSON. */
#ifndef LS_COLL_PRINT_H
#define LS_COLL_PRINT_H
#include <stddef.h>
#include "base/text.h"
#include "lockstep/sched.h"

typedef enum ls_print_format { LS_PRINT_TEXT, LS_PRINT_DOT, LS_PRINT_JSON } ls_print_format;

/* Adds one rank's schedule to `out`:
 *   TEXT  a table, one step a line
 *   DOT   a Graphviz digraph: steps of a lane in a column, hazards dashed
 *   JSON  one object; `lockstep coll --json` puts all ranks' into an array
 * LS_NO_MEMORY is the only failure. */
ls_status ls_sched_print(const ls_sched *s, ls_print_format format, ls_text *out);

/* "recv_reduce out[2..3] <- 1", cut to n bytes. */
#define LS_STEP_TEXT 96
void ls_step_text(const ls_step *s, char *buf, size_t n);

/* Reads schedules from JSON: an array of what is printed, one object per rank
 * in rank order. Every number is checked, and each schedule is sealed anew:
 * `after_send` and `last_reduce` in the text are for readers and not believed.
 * *out is malloc'd: free with ls_sched_free_all. `name` is the file's, for
 * messages. LS_BAD_FILE names line and column, or rank, lane and step. */
ls_status ls_sched_read_json(const char *name, const char *text, size_t n, ls_sched **out, int *count);
void ls_sched_free_all(ls_sched *s, int count);

/* The reverse of the names printed; false if unknown. */
bool ls_step_kind_find(const char *name, ls_step_kind *out);
bool ls_bufid_find(const char *name, ls_bufid *out);

#endif
