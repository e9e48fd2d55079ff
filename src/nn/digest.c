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
        add_values(d, p->t.data, (size_t)ls_tensor_count(&p->t));
    }
    ls_digest_hex(d, hex);
done:
    ls_digest_destroy(d);
    free(order);
    return st;
}
