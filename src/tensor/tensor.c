/* tensor.c -- what can be said of any tensor. */
#include "lockstep/tensor.h"

#include <math.h>
#include <stdio.h>

int64_t ls_tensor_count(const ls_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
    return n;
}

size_t ls_tensor_nbytes(const ls_tensor *t) { return (size_t)ls_tensor_count(t) * ls_dtype_size(t->dtype); }

bool ls_tensor_same_shape(const ls_tensor *a, const ls_tensor *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++) same = a->dim[i] == b->dim[i];
    return same;
}

bool ls_tensor_finite(const ls_tensor *t)
{
    const int64_t n = ls_tensor_count(t);
    int64_t bad = 0;
    if (t->dtype == LS_F32)
        for (int64_t i = 0; i < n; i++) bad += !isfinite(((const float *)t->data)[i]);
    else if (t->dtype == LS_F64)
        for (int64_t i = 0; i < n; i++) bad += !isfinite(((const double *)t->data)[i]);
    else if (t->dtype == LS_BF16) /* all bits of the exponent */
        for (int64_t i = 0; i < n; i++) bad += (((const uint16_t *)t->data)[i] & 0x7f80) == 0x7f80;
    return bad == 0;
}

const char *ls_tensor_shape(const ls_tensor *t, char *buf, size_t n)
{
    size_t used = 0;
    for (int i = 0; i < t->ndim && used < n; i++) {
        const int w = snprintf(buf + used, n - used, "%s%lld", i ? ", " : "[", (long long)t->dim[i]);
        used += w > 0 ? (size_t)w : 0;
    }
    if (used < n) snprintf(buf + used, n - used, t->ndim ? "]" : "[]");
    return buf;
}
