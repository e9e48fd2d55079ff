/* digest.c -- one number for all parameters: equal digests mean equal models. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "lockstep/nn.h"

static int by_name(const void *a, const void *b)
{
    const ls_param *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* float32 little-endian, whatever the machine: in pieces, so that nothing big is copied. */
static void add_values(ls_digest *d, const float *v, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    ls_digest_add(d, v, n * sizeof *v);
#else
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &v[i], sizeof u);
        u = __builtin_bswap32(u);
        ls_digest_add(d, &u, sizeof u);
    }
#endif
}

#define COLUMNS 16 /* a cache line of floats */

/* [O, I] as a file has it: [I, O]. */
static ls_status add_transposed(ls_digest *d, const float *w, int64_t O, int64_t I)
{
    float *rows = malloc(COLUMNS * (size_t)O * sizeof *rows);
    if (!rows) return ls_fail(LS_NO_MEMORY, "digest: %lld elements", (long long)O * COLUMNS);
    for (int64_t i0 = 0; i0 < I; i0 += COLUMNS) {
        const int64_t n = I - i0 < COLUMNS ? I - i0 : COLUMNS;
        for (int64_t o = 0; o < O; o++)
            for (int64_t i = 0; i < n; i++) rows[i * O + o] = w[o * I + i0 + i];
        add_values(d, rows, (size_t)(n * O));
    }
    free(rows);
    return LS_OK;
}

static ls_status here(void *arg, const ls_param *p, const float **out)
{
    (void)arg;
    *out = p->t.data;
    if (*out && ls_part_is_all(&p->part)) return LS_OK;
    return ls_fail(LS_INVALID, "digest: parameter '%s' %s", p->name,
                   *out ? "is a part of a tensor here: name a source of values that has all of it (ls_params_digest_of)"
                        : "has no memory yet; call ls_params_bind first");
}

static ls_status add_param(ls_digest *d, const ls_param *p, const ls_values *values)
{
    const float *v;
    int64_t dim[LS_MAX_DIMS], n = 1;
    LS_TRY(values->whole(values->arg, p, &v));
    ls_part_shape(&p->part, &p->t, dim);
    for (int i = 0; i < p->t.ndim; i++) n *= dim[i];
    ls_digest_add(d, p->name, strlen(p->name) + 1);
    if (p->transposed) return add_transposed(d, v, dim[0], dim[1]);
    add_values(d, v, (size_t)n);
    return LS_OK;
}

ls_status ls_params_digest_of(const ls_params *ps, const ls_values *values, char hex[33])
{
    ls_status st = LS_OK;
    const ls_param **order = NULL;
    ls_digest *d = NULL;

    hex[0] = '\0';
    const int n = ls_params_total(ps);
    order = malloc((size_t)(n ? n : 1) * sizeof *order);
    d = ls_digest_create();
    if (!order || !d) {
        st = ls_fail(LS_NO_MEMORY, "digest of %d parameters", n);
        goto done;
    }
    for (int i = 0; i < n; i++) order[i] = ls_params_at(ps, i);
    qsort(order, (size_t)n, sizeof *order, by_name);
    for (int i = 0; st == LS_OK && i < n; i++)
        st = add_param(d, order[i], values ? values : &(ls_values){ here, NULL });
    if (st == LS_OK) ls_digest_hex(d, hex);
done:
    ls_digest_destroy(d);
    free(order);
    return st;
}

ls_status ls_params_digest(const ls_params *ps, char hex[33]) { return ls_params_digest_of(ps, NULL, hex); }
