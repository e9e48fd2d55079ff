/* events.h -- the job's event file: one JSON line for each thing that happens. */
#ifndef LS_LAUNCH_EVENTS_H
#define LS_LAUNCH_EVENTS_H
#include <stdint.h>

/* fd < 0 is fine: nothing is written. rank < 0 is left out. `more` is further members
 * (",\"pid\":41"), or "". */
void ls_event_line(int fd, uint32_t generation, const char *event, int rank, const char *more);

#endif
