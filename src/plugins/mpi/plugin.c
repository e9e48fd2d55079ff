/* plugin.c -- the table of the mpi plugin; starting and leaving MPI; groups as communicators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/mpi/impl.h"

#if defined(OPEN_MPI)
#define MADE_FOR "Open MPI"
#else
#define MADE_FOR "MPICH"
#endif

ls_status mpi_check(int code, const char *doing, char *why)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0, class = MPI_ERR_OTHER;
    if (code == MPI_SUCCESS) return LS_OK;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &n);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    snprintf(why, LS_ERROR_BYTES, "MPI failed while %s: %.350s", doing, text);
    switch (class) {
    case MPI_ERR_TRUNCATE: return LS_COLL_MISMATCH; /* somebody sent more than another expects */
    case MPI_ERR_NO_MEM: return LS_NO_MEMORY;
#ifdef MPIX_ERR_PROC_FAILED
    case MPIX_ERR_PROC_FAILED: return LS_RANK_DIED;
#endif
    default: return LS_PEER_RESET;
    }
}

/* "Open MPI v4.1.4", "MPICH Version: 4.0.2": the beginning of what the library says of itself. */
static void describe(char *buf, size_t n)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;
    MPI_Get_library_version(text, &len);
    text[strcspn(text, ",\n")] = 0;
    for (char *p = text; *p; p++)
        if (*p == '\t') *p = ' ';
    snprintf(buf, n, "%s", text);
}

static void free_group(ls_backend_group *g)
{
    free(g->part);
    free(g);
}

static ls_status new_group(ls_backend_lib *lib, MPI_Comm comm, ls_backend_group **out, char *why)
{
    ls_backend_group *g = calloc(1, sizeof *g);
    if (!g) {
        snprintf(why, LS_ERROR_BYTES, "no memory for a group");
        return LS_NO_MEMORY;
    }
    *g = (ls_backend_group){ .lib = lib, .comm = comm };
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &g->rank);
    MPI_Comm_size(comm, &g->size);
    g->part = calloc((size_t)g->size, sizeof *g->part);
    if (!g->part) {
        free(g);
        snprintf(why, LS_ERROR_BYTES, "no memory for a group");
        return LS_NO_MEMORY;
    }
    *out = g;
    return LS_OK;
}

/* A program may have started MPI itself: then it also ends it. */
static ls_status start_mpi(ls_backend_lib *lib, bool threaded, char *why)
{
    int initialized = 0, finalized = 0, provided = 0, wanted = threaded ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized) {
        snprintf(why, LS_ERROR_BYTES, "MPI has been left in this process and cannot be started a second time: join one "
                                      "world a process with backend mpi");
        return LS_UNSUPPORTED;
    }
    if (initialized) LS_TRY(mpi_check(MPI_Query_thread(&provided), "asking for its thread level", why));
    else LS_TRY(mpi_check(MPI_Init_thread(NULL, NULL, wanted, &provided), "starting", why));
    lib->owns_mpi = !initialized;
    if (provided >= wanted) return LS_OK;
    snprintf(why, LS_ERROR_BYTES, "this MPI gives thread level %d, but %d is needed%s", provided, wanted,
             threaded ? ": use comm.progress inline" : "");
    return LS_UNSUPPORTED;
}

static ls_status open(int rank, int size, bool threaded, ls_backend_lib **out, ls_backend_group **world, char *why)
{
    int mpi_rank = -1, mpi_size = 0;
    char what[200];
    MPI_Comm comm;
    *out = NULL;
    *world = NULL;
    ls_backend_lib *lib = calloc(1, sizeof *lib);
    if (!lib) {
        snprintf(why, LS_ERROR_BYTES, "no memory for MPI");
        return LS_NO_MEMORY;
    }
    ls_status st = start_mpi(lib, threaded, why);
    if (st == LS_OK) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
        MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
        describe(what, sizeof what);
        if (mpi_rank != rank || mpi_size != size) {
            snprintf(why, LS_ERROR_BYTES, "the launcher says rank %d of %d, but %s says %d of %d: this mpirun belongs to "
                                          "another MPI, or the ranks were given other numbers", rank, size, what,
                     mpi_rank, mpi_size);
            st = LS_UNSUPPORTED;
        }
    }
    if (st == LS_OK) st = mpi_types_create(lib, why);
    if (st == LS_OK) st = mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "copying its world", why);
    if (st == LS_OK) st = new_group(lib, comm, world, why);
    if (st < 0) free(lib);
    else *out = lib;
    return st;
}

/* After a failure MPI is not ended: that waits for every rank. A process that ends without it is one that
 * failed, and mpirun ends the others. */
static void close(ls_backend_lib *lib, ls_backend_group *world, bool failed)
{
    if (!failed) {
        MPI_Comm_free(&world->comm);
        mpi_types_free(lib);
        if (lib->owns_mpi) MPI_Finalize();
    }
    free_group(world);
    free(lib);
}

static ls_status split(ls_backend_group *parent, int color, ls_backend_group **out, char *why)
{
    MPI_Comm comm = MPI_COMM_NULL;
    *out = NULL;
    LS_TRY(mpi_check(MPI_Comm_split(parent->comm, color < 0 ? MPI_UNDEFINED : color, parent->rank, &comm),
                     "splitting a communicator", why));
    return comm == MPI_COMM_NULL ? LS_OK : new_group(parent->lib, comm, out, why);
}

static void destroy(ls_backend_group *g)
{
    MPI_Comm_free(&g->comm);
    free_group(g);
}

extern const ls_backend_ops ls_backend_plugin;
__attribute__((visibility("default"))) const ls_backend_ops ls_backend_plugin = {
    .abi = LS_BACKEND_ABI,
    .nbytes = sizeof(ls_backend_ops),
    .version = LOCKSTEP_VERSION,
    .made_for = MADE_FOR,
    .describe = describe,
    .open = open,
    .close = close,
    .split = split,
    .destroy = destroy,
    .start = mpi_start,
    .test = mpi_test,
};
