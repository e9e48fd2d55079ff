/* program.h -- the schedules of all ranks of a collective as a model of the event engine (sim/des.h).
 *
 * Every message of every rank is there. A lane is a process; a rank's lanes are at one place. What is added takes gamma
 * seconds per byte, as many vectors at once (n + 1) / 3 of that (sim.h); copies take no time. A SEND does not wait
 * until its bytes may be overwritten, as if they were copied first.
 *
 * Schedules are emitted one by one and not kept, nor sealed: 2^20 of them take 8 bytes per step. Where steps of many
 * ranks differ only in whom they name, as in an exchange along the axes of a cube, these ranks share one program.
 * Whether schedules are right is ls_sched_verify's to say.
 */
#ifndef LS_COLL_PROGRAM_H
#define LS_COLL_PROGRAM_H
#include "lockstep/sched.h"
#include "sim/des.h"

typedef struct ls_coll_program {
    uint32_t n;                /* processes */
    ls_des_op **program;       /* owned, [n], as all here: pieces of `memory` */
    uint32_t *place;           /* [n]; NULL: one lane per rank */
    double *cost;              /* [ncosts]: bytes of messages, seconds of additions */
    uint32_t ncosts;
    uint64_t messages;
    int log2_stride;           /* of the programs: those of many ranks are woven, */
    bool flips;                /* or shared (sim/des.h) */
    ls_des_op **memory;        /* [pieces], */
    size_t *room;              /* of so many operations each */
    int pieces;
} ls_coll_program;

/* The algorithm's schedules for `any` (its rank is ignored) over a vector of nbytes. The failures of ls_sched_emit;
 * LS_UNSUPPORTED: steps on memory that all ranks map; LS_NO_MEMORY. */
ls_status ls_coll_program_create(const ls_algo *a, const ls_shape *any, size_t nbytes, double gamma_s,
                                 ls_coll_program *out);
void ls_coll_program_free(ls_coll_program *p);
/* The rest of the model is the caller's to fill in. */
void ls_coll_program_model(const ls_coll_program *p, ls_des_model *out);

#endif
