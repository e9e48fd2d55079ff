/* row.h -- a published measurement: what was trained, on which devices, how it was divided, and what was measured. */
#ifndef LS_PLAN_ROW_H
#define LS_PLAN_ROW_H
#include "lockstep/plan.h"
#include "base/text.h"

typedef struct ls_row {
    char id[64], family[48]; /* the id without its last number */
    char *cells;             /* owned: the text that the following point into */
    const char *source, *name, *dtype, *gpu, *recompute, *schedule, *metric, *unit, *note;
    double params;           /* as stated, "175B"; 0: not stated */
    ls_llm m;                /* zeros: not stated */
    int64_t per_node, n;     /* devices */
    int64_t t, p, v, c, e, d, zero, micro, batch; /* 0: not stated; zero: -1 */
    double value;            /* measured */
    int line;                /* of the file */
} ls_row;

typedef struct ls_rows {
    ls_row *row; /* owned */
    int n;
} ls_rows;

/* Rows of a CSV text whose first line names columns of /published/visible.csv's form, in any order; id, measured_metric
 * and measured_value have to be there. LS_BAD_FILE names the file, line and column of a row that is wrong. */
ls_status ls_rows_read(const char *name, char *text, ls_rows *out);
void ls_rows_free(ls_rows *r); /* zeros are fine */

/* The number after "key=" in a note; `absent` where it is not there. */
double ls_row_noted(const ls_row *r, const char *key, double absent);
bool ls_row_notes(const ls_row *r, const char *words);
/* Rows of one configuration have one number, whatever was measured of it. */
uint64_t ls_row_configuration(const ls_row *r);

#endif
