/* lab.h -- lockstep lab: what its files share. */
#ifndef LS_CLI_LAB_H
#define LS_CLI_LAB_H
#include "lab/runner.h"
#include "lab/shelf.h"

/* How the claims of a lab are tested and shown. */
typedef struct ls_lab_way {
    const char *claims;  /* "": all; "5" or "5,6": these */
    bool ask;            /* predictions, from stdin */
    bool json, commands, control;
    const ls_stop *stop; /* Ctrl-C */
} ls_lab_way;

/* Sums over labs. */
typedef struct ls_lab_sums {
    int claims, hold;         /* claims that are asserted */
    int shown;                /* those that are only shown */
    int controls, red;        /* control runs, and those in which the comparison failed, as it should */
    int asked, right;
} ls_lab_sums;

/* Tests the claims of one lab and prints them; with `json` an element of a list is added to `json_out` instead. A claim
 * that does not hold is no failure: *sums says so. */
ls_status ls_cli_lab_claims(const ls_lab_entry *e, const ls_lab_way *way, ls_lab_sums *sums, ls_text *json_out);
/* The commands of its claims, which do not run. */
ls_status ls_cli_lab_commands(const ls_lab_entry *e, const ls_lab_way *way);

#endif
