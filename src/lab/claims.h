/* claims.h -- the claims of a lab, read from its claims.yaml: a sentence, the commands that test it, a comparison.
 *
 *     lab: "01"
 *     title: "Gradient buckets: when does a gradient leave its rank, and what travels?"
 *     minutes: 45
 *     claims:
 *       - id: "01.5"
 *         says: A DDP step moves gradients, never inputs.
 *         rows: [R21, R213]
 *         run: {small: lockstep train mlp.yaml -n 4 --train.micro_batch 8 --json, large: ...}
 *         take: {a: small/comm/bytes_per_step, b: large/comm/bytes_per_step}
 *         expect: a == b
 *         kind: exact
 *         unit: bytes
 *         why: Only the data parallel strategy starts a collective, and it is given buckets.
 *         ask: {text: "A step moves", options: [8x the bytes, the same], right: 2}
 *         control: {large: lockstep train wider.yaml -n 4 --json}
 *
 * `control` names runs that take the place of runs of the same name; with them the comparison must fail. Every claim
 * that is asserted has one. A message says the file and line. All failures of the text are LS_USAGE, so that a lab ends
 * with 64.
 */
#ifndef LS_LAB_CLAIMS_H
#define LS_LAB_CLAIMS_H
#include <stddef.h>

#include "base/limits.h"
#include "lockstep/status.h"

typedef enum ls_lab_kind {
    LS_LAB_EXACT,   /* integers and texts: equal or not */
    LS_LAB_NUMERIC, /* "numeric 1e-6": with this relative tolerance */
    LS_LAB_VIRTUAL, /* computed by a simulator or a replay of a schedule: the same on every machine, tolerance 1e-9 */
    LS_LAB_TIMED,   /* an order of times, with its margin in the comparison */
    LS_LAB_SHOWN,   /* printed and not asserted */
} ls_lab_kind;

typedef struct ls_lab_pair {
    const char *name, *value;
    size_t line;
} ls_lab_pair;

typedef struct ls_lab_pairs {
    ls_lab_pair v[LS_LAB_MAX_PAIRS];
    size_t n;
} ls_lab_pairs;

typedef struct ls_lab_claim {
    const char *id, *says, *why;
    const char *expect;    /* NULL only with LS_LAB_SHOWN */
    size_t line, expect_line;
    ls_lab_kind kind;
    const char *unit;      /* of the numbers of the comparison; NULL: they have none, or several */
    double tolerance;      /* 0, unless LS_LAB_NUMERIC or LS_LAB_VIRTUAL */
    ls_lab_pairs rows;     /* values only: requirements that the claim shows */
    ls_lab_pairs run;      /* name and command, whose first word is lockstep, probe or starter; there is no shell */
    ls_lab_pairs take;     /* name and path into what a run prints: RUN/KEY/KEY.., RUN/exit_status, or
                              RUN/stderr/TEXT: how many lines of its messages have this text */
    ls_lab_pairs control;  /* like run */
    const char *ask;       /* NULL: nothing is asked */
    ls_lab_pairs options;  /* values only */
    size_t right;          /* from 1: the option that the claim shows to hold */
} ls_lab_claim;


typedef struct ls_lab {
    const char *file;          /* borrowed: stands in messages */
    const char *number, *title;
    size_t minutes;
    ls_lab_claim *claims;      /* owned, in the order of the file */
    size_t n;
    struct ls_yaml_tree *document; /* owned: what all texts point into */
} ls_lab;

/* Reads the n bytes of `text`; `name` (borrowed) stands in messages. Free *out with ls_lab_free, after a failure as
 * well. */
ls_status ls_lab_read(const char *name, const char *text, size_t n, ls_lab *out);
/* The same of a file. LS_IO: it cannot be read. */
ls_status ls_lab_load(const char *path, ls_lab *out);
void ls_lab_free(ls_lab *lab);

/* The claim of this id, "01.5", or of its last part, "5". Fails with LS_USAGE; the message lists the ids. */
ls_status ls_lab_find(const ls_lab *lab, const char *id, const ls_lab_claim **out);

#endif
