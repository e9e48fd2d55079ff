/* runner.h -- runs the commands of a lab's claims and tests the claims on what they print.
 *
 * A command is started without a shell. Its first word is lockstep, which is this program, or starter or probe, the
 * lab's own programs; so is the word after --, which is what `lockstep run` starts, and which may be single, the
 * program that a starter was made of, as well. A later word that is the name of a file in the lab's folder becomes the
 * path of that file. A training gets a run folder that is removed at the end (unless the command has --run.dir). Equal
 * commands run once. The last JSON object that a command prints is its result. Its exit status and its messages can be
 * what is claimed, too (claims.h), also of a command that fails.
 */
#ifndef LS_LAB_RUNNER_H
#define LS_LAB_RUNNER_H
#include <stdbool.h>

#include "base/stop.h"
#include "base/text.h"
#include "lab/claims.h"

/* Where a lab's files are. */
typedef struct ls_lab_place {
    const char *folder;   /* claims.yaml, recipes: only read */
    const char *programs; /* a path to which "_probe" or "_single" is added, and nothing for starter; NULL: this machine has
                             none */
    const ls_stop *stop;  /* a signal that is seen ends the command that runs; NULL: none is watched for */
    uint64_t timeout_ns;  /* of one command; 0: LS_LAB_COMMAND_S */
} ls_lab_place;

typedef struct ls_lab_runner ls_lab_runner;

/* The result of a claim's test. */
typedef struct ls_lab_outcome {
    bool holds;    /* with LS_LAB_SHOWN: it could be shown */
    ls_text shown; /* owned: the comparison with its values; of a claim that is shown without one, NAME = VALUE, .. */
    ls_text why;   /* owned: a command that failed, and how; "": all printed their results */
    double number[LS_LAB_MAX_PAIRS]; /* of each value that the claim takes; NAN: a text, or none */
} ls_lab_outcome;

/* Borrows `place` and what it points to. LS_IO: there is no folder for what commands write. */
ls_status ls_lab_runner_open(const ls_lab_place *place, ls_lab_runner **out);
/* Removes what commands have written. NULL is fine. */
void ls_lab_runner_close(ls_lab_runner *r);

/* Tests a claim of `lab`; control: with its control runs in place of runs of the same name, so *out should not hold.
 * LS_USAGE, with file and line: a result has no such path or no such kind of value, or the comparison cannot be
 * evaluated. LS_INTERRUPTED: stopped. Free *out with ls_lab_outcome_free, after a failure as well. */
ls_status ls_lab_test(ls_lab_runner *r, const ls_lab *lab, const ls_lab_claim *c, bool control, ls_lab_outcome *out);
void ls_lab_outcome_free(ls_lab_outcome *out);

/* The command as a person can repeat it, with paths and without the folder for a run; words that have other characters
 * than a shell leaves alone do not come up. */
void ls_lab_repeat(const ls_lab_place *place, const char *command, ls_text *out);

/* Commands that have been started. */
int ls_lab_runs(const ls_lab_runner *r);

#endif
