/* impl.h -- the mpi plugin from the inside.
 *
 *   plugin.c   the table; starting and leaving MPI, communicators
 *   types.c    what Lockstep's dtypes and reductions are in MPI
 *   calls.c    one collective as one non-blocking MPI call
 */
#ifndef LS_PLUGINS_MPI_IMPL_H
#define LS_PLUGINS_MPI_IMPL_H
#include <mpi.h>

#include "group/backend.h"

struct ls_backend_group {
    ls_backend_lib *lib; /* borrowed */
    MPI_Comm comm;       /* owned */
    int rank, size;
    const void **part;   /* owned, [size]: scratch of calls.c */
};

struct ls_backend_lib {
    bool owns_mpi;                          /* we started it, we end it */
    MPI_Datatype type[LS_DTYPES];           /* 16-bit ones owned */
    MPI_Op op[LS_DTYPES][LS_REDOPS];        /* of 16-bit types owned */
};

/* types.c */
ls_status mpi_types_create(ls_backend_lib *lib, char *why);
void mpi_types_free(ls_backend_lib *lib);

/* calls.c */
ls_status mpi_start(ls_backend_group *g, const ls_backend_call *c, ls_backend_request **out, char *why);
ls_status mpi_test(ls_backend_request *r, char *why);

/* plugin.c: MPI_SUCCESS is LS_OK; else `why` says what MPI says. */
ls_status mpi_check(int code, const char *doing, char *why);

#endif
