/* calls.c -- a collective or message as one non-blocking MPI call.
 *
 * Averages are scaled before they are summed, as everywhere in Lockstep: where the vector is the caller's result
 * it is scaled there, else in a copy. Counts and displacements must live as long as the request.
 *
 * Where ascending rank order is asked for, a sum takes two calls: every rank gets everybody's part of its own share,
 * adds them, and the shares are gathered; what Lockstep's algorithm `direct` does, to the bit.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/reduce.h"
#include "plugins/mpi/impl.h"

struct ls_backend_request {
    MPI_Request request;
    char *scratch;        /* owned: a copy that MPI sends from or receives into; may be NULL */
    void *to;             /* where `from` belongs in the end */
    const void *from;     /* inside scratch; NULL: nothing to move */
    size_t nbytes;
    int expects, tag;     /* of a message to receive: elements (-1: it is none), and what it must be */
    MPI_Datatype type;
    bool adds;            /* once this call is over the parts in scratch are added and gathered */
    ls_backend_call c;    /* for that; its shares are gone */
    ls_backend_group *g;
    ls_range own;
    int ints[];           /* [4][size]: counts and displacements, sent and received */
};

/* What a start needs at hand. */
typedef struct call {
    const ls_backend_call *c;
    ls_backend_group *g;
    ls_backend_request *r;
    MPI_Datatype type;
    MPI_Op op;
    size_t elem;
    int count;
    bool averages, root;
    int *counts, *displs, *recv_counts, *recv_displs;
    char *why;
} call;

static ls_status too_large(char *why, size_t n)
{
    snprintf(why, LS_ERROR_BYTES, "%zu elements are more than MPI counts in one call (%d): use smaller pieces, or "
                                  "backend sched", n, INT_MAX);
    return LS_UNSUPPORTED;
}

static ls_status fill(const ls_range *share, int n, int *counts, int *displs, char *why)
{
    for (int i = 0; i < n; i++) {
        size_t first = share[i].first, count = share[i].count;
        if (count > INT_MAX || first > INT_MAX) return too_large(why, first + count);
        counts[i] = (int)count;
        displs[i] = (int)first;
    }
    return LS_OK;
}

static ls_status scratch(call *x, size_t nbytes, char **out)
{
    *out = x->r->scratch = malloc(nbytes ? nbytes : 1);
    if (*out) return LS_OK;
    snprintf(x->why, LS_ERROR_BYTES, "no memory for a copy of %zu bytes", nbytes);
    return LS_NO_MEMORY;
}

/* This rank's contribution to a reduction, in place where `out` is ours to change: *send is then MPI_IN_PLACE. */
static ls_status contribution(call *x, bool in_place, const void **send)
{
    const ls_backend_call *c = x->c;
    size_t nbytes = c->count * x->elem;
    char *copy;
    *send = c->in ? c->in : in_place ? MPI_IN_PLACE : c->out;
    if (!x->averages) return LS_OK;
    if (in_place) {
        if (c->in && nbytes > 0) memcpy(c->out, c->in, nbytes);
        copy = c->out;
    } else {
        LS_TRY(scratch(x, nbytes, &copy));
        if (nbytes > 0) memcpy(copy, *send, nbytes);
    }
    ls_scale_values(copy, c->count, c->dtype, 1.0 / x->g->size);
    *send = in_place ? MPI_IN_PLACE : copy;
    return LS_OK;
}

static ls_status all_reduce(call *x)
{
    const void *send;
    LS_TRY(contribution(x, true, &send));
    return mpi_check(MPI_Iallreduce(send, x->c->out, x->count, x->type, x->op, x->g->comm, &x->r->request),
                     "starting all_reduce", x->why);
}

/* In place the share stays where it stands in the vector, and MPI would put it at the beginning. */
static ls_status reduce_scatter(call *x)
{
    const ls_backend_call *c = x->c;
    const ls_range *own = &c->share[x->g->rank];
    size_t whole = c->count * x->elem, part = own->count * x->elem;
    const char *send = c->in ? c->in : c->out;
    char *copy = NULL, *to = c->out;
    if (x->averages || !c->in) LS_TRY(scratch(x, whole + part, &copy));
    if (x->averages) {
        if (whole > 0) memcpy(copy, send, whole);
        ls_scale_values(copy, c->count, c->dtype, 1.0 / x->g->size);
        send = copy;
    }
    if (!c->in) {
        to = copy + whole;
        x->r->from = to;
        x->r->to = (char *)c->out + own->first * x->elem;
        x->r->nbytes = part;
    }
    return mpi_check(MPI_Ireduce_scatter(send, to, x->counts, x->type, x->op, x->g->comm, &x->r->request),
                     "starting reduce_scatter", x->why);
}

static ls_status all_gather(call *x)
{
    const void *send = x->c->in ? x->c->in : MPI_IN_PLACE;
    return mpi_check(MPI_Iallgatherv(send, x->counts[x->g->rank], x->type, x->c->out, x->counts, x->displs, x->type,
                                     x->g->comm, &x->r->request), "starting all_gather", x->why);
}

static ls_status broadcast(call *x)
{
    const ls_backend_call *c = x->c;
    if (x->root && c->in && c->count > 0) memcpy(c->out, c->in, c->count * x->elem);
    return mpi_check(MPI_Ibcast(c->out, x->count, x->type, c->root, x->g->comm, &x->r->request), "starting broadcast",
                     x->why);
}

static ls_status reduce(call *x)
{
    const void *send;
    LS_TRY(contribution(x, x->root, &send));
    return mpi_check(MPI_Ireduce(send, x->root ? x->c->out : NULL, x->count, x->type, x->op, x->c->root, x->g->comm,
                                 &x->r->request), "starting reduce", x->why);
}

static ls_status gather(call *x)
{
    const ls_backend_call *c = x->c;
    const void *send = c->in ? c->in : x->root ? MPI_IN_PLACE : c->out;
    return mpi_check(MPI_Igatherv(send, x->counts[x->g->rank], x->type, c->out, x->counts, x->displs, x->type, c->root,
                                  x->g->comm, &x->r->request), "starting gather", x->why);
}

static ls_status scatter(call *x)
{
    const ls_backend_call *c = x->c;
    bool stays = x->root && (!c->out || !c->in);
    const void *send = c->in ? c->in : c->out;
    return mpi_check(MPI_Iscatterv(send, x->counts, x->displs, x->type, stays ? MPI_IN_PLACE : c->out,
                                   x->counts[x->g->rank], x->type, c->root, x->g->comm, &x->r->request),
                     "starting scatter", x->why);
}

static ls_status all_to_all(call *x)
{
    const ls_backend_call *c = x->c;
    const void *send = c->in;
    char *copy;
    if (!send) {
        LS_TRY(scratch(x, c->count * x->elem, &copy));
        if (c->count > 0) memcpy(copy, c->out, c->count * x->elem);
        send = copy;
    }
    return mpi_check(MPI_Ialltoallv(send, x->counts, x->displs, x->type, c->out, x->recv_counts, x->recv_displs,
                                    x->type, x->g->comm, &x->r->request), "starting all_to_all", x->why);
}

static ls_status message(call *x)
{
    const ls_backend_call *c = x->c;
    MPI_Request *r = &x->r->request;
    MPI_Comm comm = x->g->comm;
    int n = x->count, peer = c->peer;
    if (c->in) return mpi_check(MPI_Isend(c->in, n, x->type, peer, c->tag, comm, r), "sending", x->why);
    x->r->expects = n;
    x->r->tag = c->tag;
    return mpi_check(MPI_Irecv(c->out, n, x->type, peer, MPI_ANY_TAG, comm, r), "receiving", x->why);
}

/* --- in ascending rank order --------------------------------------------------------------------- */

static ls_status exchange_parts(call *x)
{
    const ls_backend_call *c = x->c;
    ls_backend_request *r = x->r;
    size_t n = (size_t)x->g->size, part = c->share[x->g->rank].count;
    char *parts;
    if (part > INT_MAX / n) return too_large(x->why, part * n);
    for (size_t i = 0; i < n; i++) {
        x->recv_counts[i] = (int)part;
        x->recv_displs[i] = (int)(i * part);
    }
    LS_TRY(scratch(x, (n + 1) * part * x->elem, &parts)); /* and one for the result, where it is not the caller's */
    r->adds = true;
    r->c = *c;
    r->g = x->g;
    r->own = c->share[x->g->rank];
    return mpi_check(MPI_Ialltoallv(c->in ? c->in : c->out, x->counts, x->displs, x->type, parts, x->recv_counts,
                                    x->recv_displs, x->type, x->g->comm, &r->request), "exchanging parts", x->why);
}

/* LS_AGAIN: the shares are being gathered. */
static ls_status add_parts(ls_backend_request *r, char *why)
{
    const ls_backend_call *c = &r->c;
    ls_backend_group *g = r->g;
    size_t elem = ls_dtype_size(c->dtype), nbytes = r->own.count * elem;
    bool root = c->coll == LS_REDUCE && g->rank == c->root;
    const int *counts = r->ints, *displs = r->ints + g->size;
    const void **part = g->part;
    void *sum = (char *)c->out + r->own.first * elem;
    if (c->coll == LS_REDUCE_SCATTER && c->in) sum = c->out;
    if (c->coll == LS_REDUCE && !root) sum = r->scratch + (size_t)g->size * nbytes;
    for (int i = 0; i < g->size; i++) part[i] = r->scratch + (size_t)i * nbytes;
    if (nbytes > 0) ls_reduce_n(&sum, 1, part, g->size, r->own.count, c->dtype, c->op, 1.0 / g->size);
    r->adds = false;
    if (c->coll == LS_REDUCE_SCATTER) return LS_OK;
    int st = c->coll == LS_ALL_REDUCE ? MPI_Iallgatherv(MPI_IN_PLACE, 0, r->type, c->out, counts, displs, r->type,
                                                        g->comm, &r->request)
                                      : MPI_Igatherv(root ? MPI_IN_PLACE : sum, (int)r->own.count, r->type, c->out,
                                                     counts, displs, r->type, c->root, g->comm, &r->request);
    LS_TRY(mpi_check(st, "gathering sums", why));
    return LS_AGAIN;
}

static bool is_sum(ls_coll coll) { return coll == LS_ALL_REDUCE || coll == LS_REDUCE_SCATTER || coll == LS_REDUCE; }

static ls_status begin(call *x)
{
    if (x->c->rank_order && is_sum(x->c->coll)) return exchange_parts(x);
    switch (x->c->coll) {
    case LS_ALL_REDUCE: return all_reduce(x);
    case LS_REDUCE_SCATTER: return reduce_scatter(x);
    case LS_ALL_GATHER: return all_gather(x);
    case LS_BROADCAST: return broadcast(x);
    case LS_REDUCE: return reduce(x);
    case LS_GATHER: return gather(x);
    case LS_SCATTER: return scatter(x);
    case LS_ALL_TO_ALL: return all_to_all(x);
    case LS_SENDRECV: return message(x);
    case LS_BARRIER:
        return mpi_check(MPI_Ibarrier(x->g->comm, &x->r->request), "starting barrier", x->why);
    case LS_COLLS: break;
    }
    snprintf(x->why, LS_ERROR_BYTES, "collective number %d is not supported by the MPI engine", (int)x->c->coll);
    return LS_UNSUPPORTED;
}

ls_status mpi_start(ls_backend_group *g, const ls_backend_call *c, ls_backend_request **out, char *why)
{
    size_t n = (size_t)g->size;
    *out = NULL;
    if (c->count > INT_MAX) return too_large(why, c->count);
    ls_backend_request *r = calloc(1, sizeof *r + 4 * n * sizeof *r->ints);
    if (!r) {
        snprintf(why, LS_ERROR_BYTES, "no memory for a collective");
        return LS_NO_MEMORY;
    }
    r->request = MPI_REQUEST_NULL;
    r->expects = -1;
    r->type = g->lib->type[c->dtype];
    call x = { .c = c, .g = g, .r = r, .type = r->type, .op = g->lib->op[c->dtype][c->op],
               .elem = ls_dtype_size(c->dtype), .count = (int)c->count, .averages = c->op == LS_AVG,
               .root = c->root == g->rank, .counts = r->ints, .displs = r->ints + n, .recv_counts = r->ints + 2 * n,
               .recv_displs = r->ints + 3 * n, .why = why };
    ls_status st = fill(c->share, g->size, x.counts, x.displs, why);
    if (st == LS_OK && c->recv_share) st = fill(c->recv_share, g->size, x.recv_counts, x.recv_displs, why);
    if (st == LS_OK) st = begin(&x);
    if (st < 0) {
        free(r->scratch);
        free(r);
        return st;
    }
    *out = r;
    return LS_OK;
}

ls_status mpi_test(ls_backend_request *r, char *why)
{
    MPI_Status status;
    int done = 0, got = -1;
    ls_status st = mpi_check(MPI_Test(&r->request, &done, &status), "carrying out a collective", why);
    if (st == LS_OK && !done) return LS_AGAIN;
    if (st == LS_OK && r->adds && (st = add_parts(r, why)) == LS_AGAIN) return st;
    if (st == LS_OK && r->from && r->nbytes > 0) memcpy(r->to, r->from, r->nbytes);
    if (st == LS_OK && r->expects >= 0) {
        MPI_Get_count(&status, r->type, &got);
        if (got != r->expects || status.MPI_TAG != r->tag) {
            snprintf(why, LS_ERROR_BYTES, "a message of %d elements%s came where %d were expected: sends and receives of a "
                                          "pair must match in order, count and dtype", got,
                     status.MPI_TAG == r->tag ? "" : " of another dtype or number", r->expects);
            st = LS_COLL_MISMATCH;
        }
    }
    free(r->scratch);
    free(r);
    return st;
}
