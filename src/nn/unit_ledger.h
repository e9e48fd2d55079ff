/* unit_ledger.h -- rows of a rank's ledger (mem.h) for the units of its model.
 *
 * Who allocates parameters, gradients and optimizer state assigns them (ls_arena_assign). Activations are what a tape
 * has more of when a unit's forward ends than when it began, until the backward of that forward is over.
 */
#ifndef LS_NN_UNIT_LEDGER_H
#define LS_NN_UNIT_LEDGER_H
#include "lockstep/unit.h"

typedef struct ls_unit_ledger ls_unit_ledger;

/* Opens a row for the root, and one per unit. Both are borrowed, and outlive it. */
ls_status ls_unit_ledger_open(const ls_units *us, ls_ledger *l, ls_unit_ledger **out);
/* Counts the activations of a tape, by listening to it until the tape ends, which it does before the close. */
ls_status ls_unit_ledger_listen(ls_unit_ledger *u, ls_tape *t);
/* Takes the rows back. NULL is fine. */
void ls_unit_ledger_close(ls_unit_ledger *u);

#endif
