/* ledger.h -- how arenas and units keep the ledger. */
#ifndef LS_MEM_LEDGER_H
#define LS_MEM_LEDGER_H
#include "lockstep/mem.h"

#define LS_LEDGER_NO_ROW    (-1)
#define LS_LEDGER_UNCOUNTED (-2) /* bytes that the arena's ledger does not know of */

void ls_ledger_add(ls_ledger *l, ls_mem_kind k, size_t nbytes); /* NULL is fine */
void ls_ledger_sub(ls_ledger *l, ls_mem_kind k, size_t nbytes);

/* Gives the ledger n rows of zeros, without names, in place of those that it has. *first: the number of row 0. */
ls_status ls_ledger_open(ls_ledger *l, int n, int *first);
/* Takes the rows back that begin at number `first`, unless others came in their place. */
void ls_ledger_close(ls_ledger *l, int first);
/* nbytes of a kind are a row's from here on, and are not any more. Nothing happens if the ledger has no such row. */
void ls_ledger_assign(ls_ledger *l, ls_mem_kind k, int row, size_t nbytes); /* NULL is fine */
void ls_ledger_release(ls_ledger *l, ls_mem_kind k, int row, size_t nbytes);

#endif
