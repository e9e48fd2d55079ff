/* ledger.c -- bytes by kind, and by unit. */
#include "mem/ledger.h"

#include <stdlib.h>

static const char *const names[LS_MEM_KINDS] = {
    [LS_MEM_PARAM] = "param", [LS_MEM_GRAD] = "grad", [LS_MEM_OPTIM] = "optim",
    [LS_MEM_ACT] = "act",     [LS_MEM_COMM] = "comm", [LS_MEM_DATA] = "data",
    [LS_MEM_CKPT] = "ckpt",
};

const char *ls_mem_kind_name(ls_mem_kind k) { return (unsigned)k < LS_MEM_KINDS ? names[k] : "?"; }

void ls_ledger_add(ls_ledger *l, ls_mem_kind k, size_t nbytes)
{
    if (!l) return;
    l->now[k] += nbytes;
    if (l->now[k] > l->peak[k]) l->peak[k] = l->now[k];
}

void ls_ledger_sub(ls_ledger *l, ls_mem_kind k, size_t nbytes)
{
    if (l) l->now[k] -= nbytes;
}

/* --- rows --------------------------------------------------------------------------------- */

ls_status ls_ledger_open(ls_ledger *l, int n, int *first)
{
    ls_ledger_row *row = calloc((size_t)n, sizeof *row);
    if (!row) return ls_fail(LS_NO_MEMORY, "a ledger of %d units", n);
    ls_ledger_close(l, l->first);
    l->row = row;
    l->nrows = n;
    *first = l->first;
    return LS_OK;
}

void ls_ledger_close(ls_ledger *l, int first)
{
    if (!l->row || l->first != first) return;
    free(l->row);
    l->row = NULL;
    l->first += l->nrows;
    l->nrows = 0;
    for (int k = 0; k < LS_MEM_KINDS; k++) l->held[k] = l->most[k] = 0;
}

static ls_ledger_row *find(const ls_ledger *l, int row)
{
    return l && row >= l->first && row - l->first < l->nrows ? &l->row[row - l->first] : NULL;
}

void ls_ledger_assign(ls_ledger *l, ls_mem_kind k, int row, size_t nbytes)
{
    ls_ledger_row *r = find(l, row);
    if (!r) return;
    r->now[k] += nbytes;
    l->held[k] += nbytes;
    if (l->held[k] <= l->most[k]) return;
    l->most[k] = l->held[k];
    for (int i = 0; i < l->nrows; i++) l->row[i].peak[k] = l->row[i].now[k];
}

void ls_ledger_release(ls_ledger *l, ls_mem_kind k, int row, size_t nbytes)
{
    ls_ledger_row *r = find(l, row);
    if (!r) return;
    r->now[k] -= nbytes;
    l->held[k] -= nbytes;
}
