/* mail.h -- a rank's mailbox: a ring of lines, and of bytes, that it alone writes. */
#ifndef LS_GROUP_MEMORY_MAIL_H
#define LS_GROUP_MEMORY_MAIL_H
#include "group/group.h"

/* Writes this rank's line of rooted collective `rooted`, with up to LS_MAIL_MOST bytes; false while its place
 * in the ring is in use. */
bool ls_mail_post(ls_group *g, uint32_t rooted, uint32_t sig, const char *bytes, size_t nbytes, uint64_t offset);
/* Member r's line of this collective, checked: LS_OK once it is here. */
ls_status ls_mail_from(ls_work *k, int r, const ls_line **out);
/* We read and write nothing more of collective `rooted`: said now and then, or at once, where somebody waits. */
void ls_mail_through(ls_group *g, uint32_t rooted);
void ls_mail_tell(ls_group *g, uint32_t rooted);
/* Where the nbytes of member r's line lie; NULL when it does not say. */
const char *ls_mail_bytes(const ls_group *g, int r, const ls_line *line, size_t nbytes);

#endif
