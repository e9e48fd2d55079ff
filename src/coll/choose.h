/* choose.h -- which algorithm is fastest, by timing them all. */
#ifndef LS_COLL_CHOOSE_H
#define LS_COLL_CHOOSE_H
#include "coll/sim.h"

/* One way to carry out a collective. */
typedef struct ls_choice {
    const ls_algo *algo;
    int segments, nlanes;
    double ns; /* by the cost model */
} ls_choice;

#define LS_MAX_CHOICES 128

typedef struct ls_question {
    ls_coll coll;
    int size;
    const int *node;     /* as in ls_shape */
    const ls_algo *only; /* NULL: every algorithm that does not have to be asked for by name */
    bool ascending;      /* reductions: only what adds in ascending rank order at once (one_sum) */
    int nlanes;          /* at most */
} ls_question;

/* All algorithms that serve, whole and cut in segments, fastest first (equal ones in the registry's order):
 * out[LS_MAX_CHOICES]. The same question gives the same answer on every rank. LS_UNSUPPORTED: none serves. */
ls_status ls_choose(const ls_machine *m, const ls_question *q, size_t nbytes, ls_choice *out, int *n);

/* The same answers for 1 to LS_CHOOSE_SIZES sizes at once: out[i] and n[i] for nbytes[i]. A schedule does not depend on
 * the size, so each is emitted once, which takes most of the time of a single answer. */
#define LS_CHOOSE_SIZES 16
ls_status ls_choose_sizes(const ls_machine *m, const ls_question *q, const size_t *nbytes, int nsizes,
                          ls_choice (*out)[LS_MAX_CHOICES], int *n);

#endif
