/* lab.h -- lockstep lab: what its files share. */
#ifndef LS_CLI_LAB_H
#define LS_CLI_LAB_H
#include "lab/exercise.h"
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
    int asked, right;         /* predictions that were made, of claims that hold */
} ls_lab_sums;

/* Tests the claims of one lab and prints them; with `json` an element of a list is added to `json_out` instead. A claim
 * that does not hold is no failure: *sums says so. */
ls_status ls_cli_lab_claims(const ls_lab_entry *e, const ls_lab_way *way, ls_lab_sums *sums, ls_text *json_out);
/* A line of stdin, with its newline unless it is longer than n - 1 bytes; "" at the end. LS_INTERRUPTED: a signal was
 * seen in `stop`. */
ls_status ls_cli_lab_line(const ls_stop *stop, char *line, size_t n);
/* The index of one of n options from a line such as "b", asked for again until it is one. -1: the line is empty; *over:
 * the input has ended. Messages begin at column `left`. */
ls_status ls_cli_lab_letter(const ls_stop *stop, size_t n, int left, int *chosen, bool *over);
/* The commands of its claims, which do not run. */
ls_status ls_cli_lab_commands(const ls_lab_entry *e, const ls_lab_way *way);

/* --- lab_exercise.c: exercises of a lab, in the folder of tasks -------------------------------------- */

typedef struct ls_lab_task {
    const ls_lab_entry *lab;
    int n;        /* exercise */
    int64_t seed; /* 0: a random one */
    bool yes;     /* ask nothing */
    const ls_stop *stop;
} ls_lab_task;

/* Copies the tasks of all labs. */
ls_status ls_cli_lab_start(const ls_lab_shelf *s, const char *folder);
/* `verb` is check, hint, solution or reset. *green: false if a check was red. LS_USAGE: another verb. */
ls_status ls_cli_lab_exercise(const ls_lab_task *t, const char *verb, bool *green);
/* ", 2 of 3 exercises green" of a lab, into `out`; nothing where there is no folder of tasks. */
void ls_cli_lab_progress(const ls_lab_entry *e, ls_text *out);
/* All claims of the lab have been tested, and hold. Nothing happens where there is no folder of tasks. */
void ls_cli_lab_seen(const ls_lab_entry *e);

/* A question of a quiz was answered. Nothing happens where there is no folder of tasks. */
void ls_cli_lab_answered(const char *id, bool right);
/* Whether its newest answer was wrong. */
bool ls_cli_lab_was_missed(const char *id);

/* --- lab_quiz.c: the quiz of a lab, whose answers come from stdin */
ls_status ls_cli_lab_quiz(const ls_lab_entry *e, const ls_stop *stop);

#endif
