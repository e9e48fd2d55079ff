/* sign: two ranks have the same signature only if they mean the same collective and have called the same before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "group/sign.h"

#define CALLS 6

static ls_group *group(uint32_t generation, uint32_t id, int block)
{
    ls_group *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->generation = generation;
    g->id = id;
    g->channel = block * LS_GROUP_CHANNELS;
    ls_coll_describes(g);
    return g;
}

typedef struct call {
    ls_coll_args a;
    uint32_t counts;
} call;

/* Call i as everybody means it. */
static call usual(int i)
{
    return (call){ .a = { .coll = (ls_coll)(i % 3), .dtype = LS_F32, .op = LS_SUM, .count = (size_t)1000 << i,
                          .root = i % 2 } };
}

/* The newest signature after CALLS calls, of which call `at` is `other`. */
static uint32_t after(uint32_t generation, uint32_t id, int block, int at, const call *other)
{
    ls_group *g = group(generation, id, block);
    uint32_t sig = 0;
    for (int i = 0; i < CALLS; i++) {
        const call c = i == at ? *other : usual(i);
        const ls_coll_words d = ls_coll_describe(g, g->seq++, &c.a, c.a.count);
        sig = ls_coll_sign(g, &d, c.counts);
    }
    free(g);
    return sig;
}

static void alike_where_all_calls_are(void **state)
{
    (void)state;
    assert_int_equal(after(1, 2, 3, -1, NULL), after(1, 2, 3, -1, NULL));
    const call same = usual(2);
    assert_int_equal(after(1, 2, 3, 2, &same), after(1, 2, 3, -1, NULL));
}

static void another_group_or_generation_differs(void **state)
{
    (void)state;
    const uint32_t want = after(1, 2, 3, -1, NULL);
    assert_int_not_equal(after(2, 2, 3, -1, NULL), want);
    assert_int_not_equal(after(1, 3, 3, -1, NULL), want);
    assert_int_not_equal(after(1, 2, 4, -1, NULL), want);
    assert_int_not_equal(after(2, 1, 3, -1, NULL), want);
}

/* Of every call, in every part of it, by every small number and every bit; and from then on. */
static void one_difference_stays(void **state)
{
    (void)state;
    const uint32_t want = after(1, 2, 3, -1, NULL);
    for (int at = 0; at < CALLS; at++) {
        for (int coll = 0; coll < LS_COLLS; coll++) {
            call c = usual(at);
            c.a.coll = (ls_coll)coll;
            if (c.a.coll != usual(at).a.coll) assert_int_not_equal(after(1, 2, 3, at, &c), want);
        }
        for (int dtype = 0; dtype < LS_DTYPES; dtype++) {
            call c = usual(at);
            c.a.dtype = (ls_dtype)dtype;
            if (dtype != LS_F32) assert_int_not_equal(after(1, 2, 3, at, &c), want);
        }
        for (int op = 0; op < LS_REDOPS; op++) {
            call c = usual(at);
            c.a.op = (ls_redop)op;
            if (op != LS_SUM) assert_int_not_equal(after(1, 2, 3, at, &c), want);
        }
        for (int bit = 0; bit < 48; bit++) {
            call c = usual(at);
            c.a.count ^= (size_t)1 << bit;
            assert_int_not_equal(after(1, 2, 3, at, &c), want);
        }
        for (int root = 0; root < 1024; root++) {
            call c = usual(at);
            c.a.root = root;
            if (root != usual(at).a.root) assert_int_not_equal(after(1, 2, 3, at, &c), want);
        }
        for (uint32_t counts = 1; counts != 0; counts <<= 1) {
            call c = usual(at);
            c.counts = counts;
            assert_int_not_equal(after(1, 2, 3, at, &c), want);
        }
    }
}

/* Calls that were made in another order, and two differences that might undo one another. */
static void two_differences_stay(void **state)
{
    (void)state;
    ls_group *a = group(1, 0, 0), *b = group(1, 0, 0);
    for (int i = 0; i < 200; i++) {
        const call x = usual(i % CALLS), y = usual((i + 1) % CALLS);
        const ls_coll_words ax = ls_coll_describe(a, a->seq++, &x.a, x.a.count);
        uint32_t one = ls_coll_sign(a, &ax, 0);
        const ls_coll_words by = ls_coll_describe(b, b->seq++, &y.a, y.a.count);
        uint32_t other = ls_coll_sign(b, &by, 0);
        assert_int_not_equal(one, other);
        const ls_coll_words ay = ls_coll_describe(a, a->seq++, &y.a, y.a.count);
        one = ls_coll_sign(a, &ay, 0);
        const ls_coll_words bx = ls_coll_describe(b, b->seq++, &x.a, x.a.count);
        other = ls_coll_sign(b, &bx, 0);
        assert_int_not_equal(one, other);
    }
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_where_all_calls_are),
        cmocka_unit_test(another_group_or_generation_differs),
        cmocka_unit_test(one_difference_stays),
        cmocka_unit_test(two_differences_stay),
    };
    return cmocka_run_group_tests_name("sign", tests, NULL, NULL);
}
