/* memory_units.h -- memory by unit: what the embedding, each block and the head of a model hold of each kind. */
#ifndef LS_TRAIN_MEMORY_UNITS_H
#define LS_TRAIN_MEMORY_UNITS_H
#include "base/text.h"
#include "train/memory.h"

/* Of LS_MEM_PARAM ..: "parameters", "gradients", ... */
const char *ls_memory_kind_name(int k);

/* The rows of a ledger, which may end after this. */
ls_status ls_memory_units_copy(const ls_ledger *l, ls_memory_units *out);
void ls_memory_units_free(ls_memory_units *u); /* zeros are fine */

/* What of `total` bytes of a kind no unit holds. */
size_t ls_memory_no_unit(const ls_memory_units *u, ls_mem_kind k, size_t total);

/* A table with a line per unit and a column per kind. Neighbours that hold the same have one line: "h.0 - h.11, each".
 * The last lines are what no unit holds, and each kind's total in the plan: the sum of its column. */
void ls_memory_units_table(const ls_memory_plan *p, const ls_memory_units *u, ls_text *out);

/* One kind as a JSON object, "NAME": [planned, peak] per unit. "" is what no unit holds of the two totals. */
void ls_memory_units_json(const ls_memory_units *planned, size_t planned_total, const ls_memory_units *peak,
                          size_t peak_total, ls_mem_kind k, ls_text *out);

#endif
