/* tuning.h -- what decides how a collective is carried out. */
#ifndef LS_GROUP_TUNING_H
#define LS_GROUP_TUNING_H
#include "base/limits.h"
#include "coll/cost.h"
#include "lockstep/world.h"

/* The same on every rank: rank 0's costs and wishes. */
typedef struct ls_tuning {
    ls_cost cost;
    char cost_from[256];              /* for people */
    char algo[LS_ALGO_MAX_TEXT + 1];  /* LOCKSTEP_ALGO, else comm.algo */
    int *cpus;                        /* owned, [world size]: of each rank's host */
} ls_tuning;

#endif
