/* record.h -- what is called in a dry world: noted in place of being carried out. */
#ifndef LS_GROUP_RECORD_H
#define LS_GROUP_RECORD_H
#include "group/work.h"

typedef struct ls_record ls_record;

ls_status ls_record_create(ls_record **out);
void ls_record_free(ls_record *r); /* NULL is fine */
/* Notes a work whose form was chosen, and gives it one that does nothing. */
LS_COLD ls_status ls_record_add(ls_record *r, ls_work *k);
/* Notes a message that this rank would send, or receive, in g. */
LS_COLD ls_status ls_record_message(ls_record *r, ls_group *g, const ls_p2p *op, const char *label);

#endif
