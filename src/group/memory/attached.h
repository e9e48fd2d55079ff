/* attached.h -- long vectors in private memory, read where they lie. */
#ifndef LS_GROUP_MEMORY_ATTACHED_H
#define LS_GROUP_MEMORY_ATTACHED_H
#include "group/form.h"

/* Whether vectors of so many bytes are read in private memory, if that is where one is; what the line says of ours;
 * once everyone is here, whether these are. */
bool ls_attached_long(const ls_work *k, size_t nbytes);
uint64_t ls_attached_address(const ls_work *k, const void *p);
bool ls_attached_all(const ls_work *k);
/* The work becomes attached, and makes its first turn. */
ls_status ls_attached_start(ls_work *k);

#endif
