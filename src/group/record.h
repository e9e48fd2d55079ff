/* record.h -- what is called in a world whose other ranks are not there: noted, or in a mirror answered, in place of
 * being carried out. */
#ifndef LS_GROUP_RECORD_H
#define LS_GROUP_RECORD_H
#include "group/work.h"

typedef struct ls_record ls_record;

/* NULL: it notes. */
ls_status ls_record_create(const ls_mirror_opts *mirror, ls_record **out);
void ls_record_free(ls_record *r); /* NULL is fine */
/* Notes a work whose form was chosen, and gives it one that does nothing. */
LS_COLD ls_status ls_record_add(ls_record *r, ls_work *k);
/* Notes a message that this rank would send, or receive, in g. */
LS_COLD ls_status ls_record_message(ls_record *r, ls_group *g, const ls_p2p *op, const char *label);

/* Around a call, which makes no other one, and which writes so many bytes: in a mirror the time inside is not this
 * rank's (ls_mirrored). */
LS_COLD void ls_record_enter(ls_record *r, uint64_t nbytes);
LS_COLD void ls_record_leave(ls_record *r, uint64_t nbytes);
/* Where a call waits, before these two or after them: a mirror whose core others share yields once if its calls so far
 * owe a whole wait. */
LS_COLD void ls_record_wait(ls_record *r);

#endif
