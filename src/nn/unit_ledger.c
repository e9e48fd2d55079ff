/* unit_ledger.c -- what each unit of a model holds. */
#include "nn/unit_ledger.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "mem/ledger.h"

/* What a tape keeps for each unit. */
typedef struct kept {
    struct kept *next;
    ls_unit_ledger *of;
    const ls_tape *tape;
    size_t before;   /* in use when the unit at hand began */
    size_t nbytes[]; /* [units] */
} kept;

struct ls_unit_ledger {
    const ls_units *units; /* borrowed */
    ls_ledger *ledger;     /* borrowed */
    int first;             /* number of the root's row */
    kept *tapes;           /* owned */
};

ls_status ls_unit_ledger_open(const ls_units *us, ls_ledger *l, ls_unit_ledger **out)
{
    int first;
    *out = NULL;
    ls_unit_ledger *u = calloc(1, sizeof *u);
    if (!u) return ls_fail(LS_NO_MEMORY, "a ledger of %d units", us->n);
    const ls_status st = ls_ledger_open(l, 1 + us->n, &first);
    if (st < 0) {
        free(u);
        return st;
    }
    *u = (ls_unit_ledger){ .units = us, .ledger = l, .first = first };
    snprintf(l->row[0].name, sizeof l->row[0].name, LS_UNIT_ROOT);
    for (int i = 0; i < us->n; i++) snprintf(l->row[1 + i].name, sizeof l->row[0].name, "%s", us->item[i].name);
    *out = u;
    return LS_OK;
}

/* What the tape keeps for unit i is so much from here on. */
static void keep(kept *k, size_t i, size_t nbytes)
{
    const int row = k->of->first + 1 + (int)i;
    ls_ledger_release(k->of->ledger, LS_MEM_ACT, row, k->nbytes[i]);
    ls_ledger_assign(k->of->ledger, LS_MEM_ACT, row, nbytes);
    k->nbytes[i] = nbytes;
}

static ls_status on_unit(void *arg, const ls_unit *unit, ls_unit_when when)
{
    kept *k = arg;
    const ls_units *us = k->of->units;
    const uintptr_t first = (uintptr_t)us->item, at = (uintptr_t)unit;
    if (at < first || at >= (uintptr_t)(us->item + us->n)) return LS_OK; /* of another model */
    const size_t i = (at - first) / sizeof *unit, in_use = ls_tape_in_use(k->tape);
    if (when == LS_UNIT_ENTER) {
        keep(k, i, 0); /* of a forward that was given up */
        k->before = in_use;
    } else if (when == LS_UNIT_LEAVE && ls_tape_grad(k->tape)) {
        keep(k, i, in_use - k->before);
    }
    return LS_OK;
}

static ls_status on_done(void *arg)
{
    kept *k = arg;
    for (int i = 0; i < k->of->units->n; i++) keep(k, (size_t)i, 0);
    return LS_OK;
}

ls_status ls_unit_ledger_listen(ls_unit_ledger *u, ls_tape *t)
{
    kept *k = calloc(1, sizeof *k + (size_t)u->units->n * sizeof k->nbytes[0]);
    if (!k) return ls_fail(LS_NO_MEMORY, "a ledger of %d units", u->units->n);
    k->next = u->tapes;
    k->of = u;
    k->tape = t;
    u->tapes = k;
    return ls_tape_listen(t, &(ls_tape_events){ .unit = on_unit, .done = on_done }, k);
}

void ls_unit_ledger_close(ls_unit_ledger *u)
{
    if (!u) return;
    for (kept *k = u->tapes, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    ls_ledger_close(u->ledger, u->first);
    free(u);
}
