/* quiz.h -- the questions of a lab, read from its quiz.yaml. No answer is in it that a claim does not give.
 *
 *     lab: "01"
 *     questions:
 *     - id: "01.q1"                   choice: each option names the claim that shows or refutes it
 *       text: Who makes weights equal?
 *       options: [equal updates, a broadcast per step]
 *       claims: ["01.9", "01.6"]
 *       right: 1
 *     - id: "01.q2"                   a number: the value of this name that the claim takes, within 1 %
 *       text: How many buckets has step 2?
 *       number: 01.3/later
 *       unit: buckets
 *     - id: "01.q3"                   an order: names of values that the claim takes, ascending
 *       text: In which order?
 *       order: "01.4"
 *       labels: {launch: its all_reduce starts, ready: its last gradient is ready}
 *     - id: "01.q4"                   say it: nothing is graded
 *       text: Why not parameters?
 *       say: {state: .., shape: .., collective: .., number: ..}
 */
#ifndef LS_LAB_QUIZ_H
#define LS_LAB_QUIZ_H
#include <stdint.h>

#include "lab/claims.h"

typedef enum ls_lab_ask { LS_LAB_CHOICE, LS_LAB_NUMBER, LS_LAB_ORDER, LS_LAB_SAY } ls_lab_ask;

typedef struct ls_lab_question {
    const char *id, *text;
    ls_lab_ask ask;
    ls_lab_pairs options;  /* CHOICE: values only; ORDER: names and labels; SAY: names and texts */
    ls_lab_pairs claims;   /* CHOICE: values only, ids of claims, one per option */
    size_t right;          /* CHOICE: from 1 */
    size_t place[LS_LAB_MAX_PAIRS]; /* CHOICE: where each option stands in the file, from 1 */
    const char *number;    /* NUMBER: CLAIM/NAME; ORDER: CLAIM */
    const char *unit;      /* NUMBER */
    const ls_lab_claim *claim; /* NUMBER, ORDER: borrowed from the lab */
    size_t value;          /* NUMBER: index into the claim's take */
    size_t line;
} ls_lab_question;

typedef struct ls_lab_quiz {
    ls_lab_question *question; /* owned */
    size_t n;
    struct ls_yaml_tree *document; /* owned: what all texts point into */
} ls_lab_quiz;

/* Reads the n bytes of `text`; `name` (borrowed) stands in messages. Claims are those of `lab` (borrowed).
 * LS_USAGE: with file and line, also for a claim or a value that the lab does not have. Free *out with
 * ls_lab_quiz_free, after a failure as well. */
ls_status ls_lab_quiz_read(const char *name, const char *text, size_t n, const ls_lab *lab, ls_lab_quiz *out);
/* The same of quiz.yaml in the folder of a lab; without such a file a quiz without questions. LS_IO. */
ls_status ls_lab_quiz_load(const char *folder, const ls_lab *lab, ls_lab_quiz *out);
void ls_lab_quiz_free(ls_lab_quiz *quiz);

/* Puts the options of each choice, with their claims and `right`, in an order that only the seed, the question's id
 * and the number of its options decide. */
void ls_lab_quiz_shuffle(ls_lab_quiz *quiz, uint64_t seed);

/* The places of an order's options, ascending by the values number[i] of the claim's take: right[k] is the option that
 * comes k-th. LS_USAGE: two of the values are equal, or not a number. */
ls_status ls_lab_quiz_order(const ls_lab_question *q, const double *number, size_t *right);

#endif
