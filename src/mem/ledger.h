/* ledger.h -- how arenas keep the ledger. */
#ifndef LS_MEM_LEDGER_H
#define LS_MEM_LEDGER_H
#include "lockstep/mem.h"

void ls_ledger_add(ls_ledger *l, ls_mem_kind k, size_t nbytes); /* NULL is fine */
void ls_ledger_sub(ls_ledger *l, ls_mem_kind k, size_t nbytes);

#endif
