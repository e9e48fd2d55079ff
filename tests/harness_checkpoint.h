/* harness_checkpoint.h -- checkpoints compared with each other. */
#ifndef LS_TEST_HARNESS_CHECKPOINT_H
#define LS_TEST_HARNESS_CHECKPOINT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/dtype.h"
#include "lockstep/state.h"

/* Both checkpoints have the same tensors, of the same bytes. */
static inline void expect_same_checkpoint(const char *a, const char *b)
{
    ls_checkpoint *x, *y;
    assert_int_equal(ls_checkpoint_open(a, &x), LS_OK);
    assert_int_equal(ls_checkpoint_open(b, &y), LS_OK);
    assert_int_equal(ls_checkpoint_count(x), ls_checkpoint_count(y));
    for (int i = 0; i < ls_checkpoint_count(x); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(x, i), *u = ls_checkpoint_find(y, t->name);
        size_t n = ls_dtype_size(t->dtype);
        assert_non_null(u);
        assert_memory_equal(t->dim, u->dim, sizeof t->dim);
        for (int d = 0; d < t->ndim; d++) n *= (size_t)t->dim[d];
        char *p = malloc(n), *q = malloc(n);
        assert_int_equal(ls_checkpoint_read(x, t, NULL, NULL, p), LS_OK);
        assert_int_equal(ls_checkpoint_read(y, u, NULL, NULL, q), LS_OK);
        if (memcmp(p, q, n) != 0) fail_msg("%s differs between %s and %s", t->name, a, b);
        free(p);
        free(q);
    }
    ls_checkpoint_close(x);
    ls_checkpoint_close(y);
}

#endif
