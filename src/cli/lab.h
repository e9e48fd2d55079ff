/* lab.h -- lockstep lab: what its files share. */
#ifndef LS_CLI_LAB_H
#define LS_CLI_LAB_H
#include "lab/exercise.h"
#include "lab/progress.h"
#include "lab/runner.h"
#include "lab/shelf.h"

/* How the claims of a lab are tested and shown. */
typedef struct ls_lab_way {
    const char *claims;  /* "": all; "5" or "5,6": these */
    bool ask;            /* predictions, from stdin */
    bool json, commands, control;
    bool rows;           /* the requirements that each claim tests, behind its numbers */
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
    bool json;    /* what a check found, as one JSON object */
    const ls_stop *stop;
} ls_lab_task;

/* The seed itself, or a random one from 1 to 999,999 for 0. */
uint64_t ls_cli_lab_seed(int64_t given);
/* Copies the tasks of all labs. */
ls_status ls_cli_lab_start(const ls_lab_shelf *s, const char *folder);
/* `verb` is check, hint, solution or reset. *green: false if a check was red. LS_USAGE: another verb. */
ls_status ls_cli_lab_exercise(const ls_lab_task *t, const char *verb, bool *green);
/* Its file in the folder of tasks. LS_USAGE: there is no such folder. */
ls_status ls_cli_lab_task_path(const ls_lab_task *t, ls_text *out);

/* --- lab_progress.c: the file of progress; nothing happens where there is no folder of tasks ----------- */

typedef enum ls_lab_event {
    LS_LAB_WAS_GREEN, LS_LAB_WAS_RED, LS_LAB_WAS_BEGUN, LS_LAB_WAS_TOLD, LS_LAB_WAS_HINTED, /* exercises */
    LS_LAB_WAS_RIGHT, LS_LAB_WAS_MISSED,                                                    /* questions */
    LS_LAB_WAS_SEEN,                                                                        /* all claims */
} ls_lab_event;

/* "01.ex2" of a lab "01_buckets"; "01.claims" for n 0. */
void ls_cli_lab_item(const ls_lab_entry *e, int n, char *out, size_t bytes);
/* LS_USAGE: there is no folder of tasks. */
ls_status ls_cli_lab_progress_path(ls_text *out);
/* An event of an item. A file that cannot be written is a warning. */
void ls_cli_lab_note(const char *item, ls_lab_event event);
/* ", 2 of 3 exercises green" of a lab, into `out`. */
void ls_cli_lab_progress(const ls_lab_entry *e, ls_text *out);

typedef struct ls_lab_seen {
    const char *id;
    bool holds, asserted;
    ls_text values; /* the comparison with its numbers */
} ls_lab_seen;
/* n claims have been tested; all: these are all of the lab's, and hold. */
void ls_cli_lab_seen(const ls_lab_entry *e, const ls_lab_seen *s, size_t n, bool all);

/* A question of a quiz was answered. */
void ls_cli_lab_answered(const char *id, bool right);
/* Whether its newest answer was wrong. */
bool ls_cli_lab_was_missed(const char *id);

/* --- lab_results.c: what was done */
ls_status ls_cli_lab_results(const ls_lab_shelf *s, bool json);
/* Lines of the file `from` are added to those of the folder of tasks. */
ls_status ls_cli_lab_import(const char *from);

/* --- lab_watch.c: a task is checked each time that its file changes, until a signal comes. LS_OK then. */
ls_status ls_cli_lab_watch(const ls_lab_task *t);

/* --- lab_page.c: lab.md for a terminal, with the numbers of this reader's claims */
ls_status ls_cli_lab_page(const ls_lab_entry *e);

/* --- lab_sheet.c: what a lab asks, to be printed: without answers; seed: see ls_lab_quiz_way */
ls_status ls_cli_lab_sheet(const ls_lab_entry *e, int64_t seed);

/* --- lab_quiz.c: the quiz of a lab, whose answers come from stdin */
typedef struct ls_lab_quiz_way {
    int64_t seed; /* of the order of options; 0: a random one */
    bool json;    /* one JSON object after the last question */
    const ls_stop *stop;
} ls_lab_quiz_way;
ls_status ls_cli_lab_quiz(const ls_lab_entry *e, const ls_lab_quiz_way *way);

#endif
