/* choice.h -- which schedule carries out a work, where it is carried out by one. */
#ifndef LS_GROUP_CHOICE_H
#define LS_GROUP_CHOICE_H
#include "coll/choose.h"
#include "group/group.h"

/* Fills `asked` of a new group. LS_BAD_CONFIG: comm.algo or LOCKSTEP_ALGO names no algorithm, or
 * one that does not go with comm.wire. */
ls_status ls_choice_init(ls_group *g);
/* The algorithm that is asked for, where it serves the collective; else NULL. */
const ls_algo *ls_choice_asked(const ls_group *g, ls_coll coll);
ls_status ls_choice_of(const ls_work *k, ls_choice *out);
/* All that could be chosen for it, fastest first; out[LS_MAX_CHOICES]. */
ls_status ls_choices_of(const ls_work *k, ls_choice *out, int *n);
/* Whether a work's values travel as bf16 where its group has members of other hosts. */
bool ls_choice_narrow(const ls_work *k);

#endif
