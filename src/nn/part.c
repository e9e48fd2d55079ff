/* part.c -- which elements of a global tensor a rank has. */
#include "lockstep/nn.h"

ls_part ls_part_all(const ls_tensor *t)
{
    return (ls_part){ .dim = 0, .runs = 1, .of = t->dim[0], .first = 0, .count = t->dim[0] };
}

/* Runs of the global tensor. */
static int of_runs(const ls_part *p) { return p->of_runs > 0 ? p->of_runs : p->runs; }

bool ls_part_is_all(const ls_part *p)
{
    return p->first == 0 && p->count == p->of && of_runs(p) == p->runs;
}

ls_status ls_part_check(const char *name, const ls_part *p, const ls_tensor *here)
{
    char shape[96];
    if (p->runs == 0 && ls_part_is_all(p)) return LS_OK;
    if (p->dim < 0 || p->dim >= here->ndim)
        return ls_fail(LS_SHAPE, "parameter '%s' %s: a part along dimension %d, expected 0 to %d", name,
                       ls_tensor_shape(here, shape, sizeof shape), p->dim, here->ndim - 1);
    if (p->runs < 1 || p->first < 0 || p->count < 1 || p->count > p->of - p->first)
        return ls_fail(LS_SHAPE, "parameter '%s' %s: elements %lld to %lld of each of %d runs of %lld: they are not in it",
                       name, ls_tensor_shape(here, shape, sizeof shape), (long long)p->first,
                       (long long)p->first + (long long)p->count - 1, p->runs, (long long)p->of);
    if (p->first_run < 0 || p->runs > of_runs(p) - p->first_run)
        return ls_fail(LS_SHAPE, "parameter '%s' %s: runs %d to %d of %d: they are not in it", name,
                       ls_tensor_shape(here, shape, sizeof shape), p->first_run, p->first_run + p->runs - 1,
                       of_runs(p));
    if (here->dim[p->dim] != p->runs * p->count)
        return ls_fail(LS_SHAPE, "parameter '%s' %s: dimension %d is %lld here, and %lld of each of %d runs are %lld", name,
                       ls_tensor_shape(here, shape, sizeof shape), p->dim, (long long)here->dim[p->dim],
                       (long long)p->count, p->runs, (long long)(p->runs * p->count));
    return LS_OK;
}

void ls_part_shape(const ls_part *p, const ls_tensor *here, int64_t dim[LS_MAX_DIMS])
{
    for (int d = 0; d < here->ndim; d++) dim[d] = d == p->dim && !ls_part_is_all(p) ? of_runs(p) * p->of : here->dim[d];
}

int64_t ls_part_index(const ls_part *p, const ls_tensor *here, int64_t i, int64_t *next)
{
    if (next) *next = ls_tensor_count(here);
    if (ls_part_is_all(p)) return i;
    int64_t inner = 1; /* elements of one step along dim */
    for (int d = p->dim + 1; d < here->ndim; d++) inner *= here->dim[d];
    const int64_t step = i / inner, along = here->dim[p->dim]; /* outer by outer, run by run */
    const int64_t run = step % along / p->count, at = step % along % p->count;
    if (next) *next = (step - at + p->count) * inner;
    return ((step / along * of_runs(p) + p->first_run + run) * p->of + p->first + at) * inner + i % inner;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

int ls_part_boxes(const ls_part *p, const ls_tensor *here, ls_range rows, ls_box *out)
{
    int n = 0;
    const int64_t begin = (int64_t)rows.first, end = begin + (int64_t)rows.count;
    for (int run = 0; run < p->runs; run++) {
        ls_box b = { { 0 }, { 0 } };
        for (int d = 0; d < here->ndim; d++) b.count[d] = here->dim[d];
        const int64_t at = run * p->count; /* where the run begins here */
        const int64_t from = p->dim == 0 ? most(begin, at) - at : 0;
        const int64_t until = p->dim == 0 ? least(end, at + p->count) - at : p->count;
        b.first[0] = begin;
        b.count[0] = end - begin;
        b.first[p->dim] = (p->first_run + run) * p->of + p->first + from;
        b.count[p->dim] = until - from;
        if (until > from && end > begin) out[n++] = b;
    }
    return n;
}
