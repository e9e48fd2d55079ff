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
static ls_status add_turned(ls_digest *d, const ls_tensor *t)
{
    const int64_t O = t->dim[0], I = t->dim[1];
    const float *w = t->data;
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

ls_status ls_params_digest(const ls_params *ps, char hex[33])
{
    ls_status st = LS_OK;
    const ls_param **order = NULL;
    ls_digest *d = NULL;

    hex[0] = '\0';
    order = malloc((size_t)(ps->n ? ps->n : 1) * sizeof *order);
    d = ls_digest_create();
    if (!order || !d) {
        st = ls_fail(LS_NO_MEMORY, "digest of %d parameters", ps->n);
        goto done;
    }
    for (int i = 0; i < ps->n; i++) order[i] = &ps->item[i];
    qsort(order, (size_t)ps->n, sizeof *order, by_name);
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = order[i];
        if (!p->t.data) {
            st = ls_fail(LS_INVALID, "digest: parameter '%s' has no memory yet; call ls_params_bind first", p->name);
            goto done;
        }
        ls_digest_add(d, p->name, strlen(p->name) + 1);
        if (!p->turned) add_values(d, p->t.data, (size_t)ls_tensor_count(&p->t));
        else if ((st = add_turned(d, &p->t)) < 0) goto done;
    }
    ls_digest_hex(d, hex);
done:
    ls_digest_destroy(d);
    free(order);
    return st;
}
