/* ls_bucket_assign: PyTorch's own plans first, then what every plan has in common. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/dp.h"
#include "lockstep/rng.h"

#define MIB ((size_t)1 << 20)
#define MOST 64 /* tensors */

/* All plans below come from torch._C._distributed_c10d._compute_bucket_assignment_by_size (1.13). */
typedef struct plan {
    const char *what;
    int n;
    size_t nbytes[10];
    int key[10];
    int nlimits;
    size_t limits[2];
    bool sorted;
    int nbuckets, bucket[10];
} plan;

static const plan golden[] = {
    { "eight of 4 MiB and a small one", 9,
      { 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 40 }, { 0 },
      2, { MIB, 25 * MIB }, true, 3, { 0, 1, 1, 1, 1, 1, 1, 1, 2 } },
    { "100, 200, 300, 400 floats", 4, { 400, 800, 1200, 1600 }, { 0 }, 2, { 400, 1000 }, true, 3, { 0, 1, 1, 2 } },
    { "50, 100, 150, 400 floats: each bucket passes its limit", 4, { 200, 400, 600, 1600 }, { 0 },
      2, { 400, 1000 }, true, 2, { 0, 0, 1, 1 } },
    { "float and double in turn, one limit", 6, { 200, 400, 100, 200, 300, 600 }, { 0, 1, 0, 1, 0, 1 },
      1, { 200 }, true, 5, { 0, 1, 2, 3, 2, 4 } },
    { "float and double in turn, two limits", 6, { 200, 400, 100, 200, 300, 600 }, { 0, 1, 0, 1, 0, 1 },
      2, { 200, 400 }, true, 4, { 0, 1, 2, 3, 2, 3 } },
    { "Linear(512,512), Linear(512,1024), Linear(1024,10), no limit yet", 6,
      { 1048576, 2048, 2097152, 4096, 40960, 40 }, { 0 }, 1, { SIZE_MAX }, true, 1, { 0, 0, 0, 0, 0, 0 } },
    { "the same in the order gradients arrive: 5 4 3 2 | 1 0", 6,
      { 40, 40960, 4096, 2097152, 2048, 1048576 }, { 0 }, 2, { MIB, MIB }, false, 2, { 0, 0, 0, 0, 1, 1 } },
    { "a bucket is full when it meets its limit exactly", 3, { 600, 400, 10 }, { 0 }, 1, { 1000 }, true, 2, { 0, 0, 1 } },
    { "a bucket is numbered when it is full, if the order was given", 4, { 100, 500, 100, 500 }, { 0, 1, 0, 1 },
      1, { 1000 }, false, 2, { 1, 0, 1, 0 } },
    { "nothing", 0, { 0 }, { 0 }, 1, { 1000 }, true, 0, { 0 } },
};

static void gives_the_plans_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        const plan *p = &golden[i];
        int got[10] = { 0 };
        int n = ls_bucket_assign(p->nbytes, p->key, p->n, p->limits, p->nlimits, p->sorted, got);
        if (n != p->nbuckets) fail_msg("%s: %d buckets, expected %d", p->what, n, p->nbuckets);
        for (int k = 0; k < p->n; k++)
            if (got[k] != p->bucket[k]) fail_msg("%s: tensor %d in bucket %d, expected %d", p->what, k, got[k], p->bucket[k]);
    }
}

static void sums_the_bytes_that_pytorch_reports(void **state)
{
    (void)state;
    const plan *first = &golden[5], *rebuilt = &golden[6];
    size_t all = 0, part[2] = { 0 };
    for (int i = 0; i < 6; i++) all += first->nbytes[i];
    for (int i = 0; i < 6; i++) part[rebuilt->bucket[i]] += rebuilt->nbytes[i];
    assert_int_equal(all, 3192872);
    assert_int_equal(part[0], 2142248);
    assert_int_equal(part[1], 1050624);
}

/* --- properties ------------------------------------------------------------------------------------ */

typedef struct random_case {
    int n, nlimits, bucket[MOST];
    size_t nbytes[MOST], limits[2];
    int key[MOST];
    bool sorted;
} random_case;

static random_case make_case(uint64_t seed)
{
    random_case c = { 0 };
    ls_mt19937 g;
    ls_mt19937_seed(&g, (uint32_t)seed);
    c.n = (int)(ls_mt19937_next(&g) % MOST) + 1;
    c.nlimits = 1 + (int)(ls_mt19937_next(&g) % 2);
    c.sorted = ls_mt19937_next(&g) % 2;
    for (int i = 0; i < 2; i++) c.limits[i] = ls_mt19937_next(&g) % 5000;
    for (int i = 0; i < c.n; i++) {
        c.nbytes[i] = ls_mt19937_next(&g) % 3000;
        c.key[i] = (int)(ls_mt19937_next(&g) % 3);
    }
    return c;
}

static void puts_every_tensor_into_one_bucket_of_its_key(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_case c = make_case(seed);
        int n = ls_bucket_assign(c.nbytes, c.key, c.n, c.limits, c.nlimits, c.sorted, c.bucket);
        int key[MOST], members[MOST] = { 0 };
        assert_in_range(n, 1, c.n);
        for (int i = 0; i < c.n; i++) {
            assert_in_range(c.bucket[i], 0, n - 1);
            if (members[c.bucket[i]]++ == 0) key[c.bucket[i]] = c.key[i];
            assert_int_equal(c.key[i], key[c.bucket[i]]);
        }
        for (int k = 0; k < n; k++) assert_true(members[k] > 0);
    }
}

/* Without its last tensor a bucket is below its limit; with it, it has reached it, or it is its key's last one. */
static void closes_a_bucket_with_the_tensor_that_reaches_the_limit(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_case c = make_case(seed);
        int n = ls_bucket_assign(c.nbytes, c.key, c.n, c.limits, c.nlimits, c.sorted, c.bucket);
        for (int k = 0; k < n; k++) {
            size_t sum = 0, last = 0;
            int first = -1, key = 0, earlier = 0;
            bool later = false;
            for (int i = 0; i < c.n; i++) {
                if (c.bucket[i] != k) continue;
                if (first < 0) first = i;
                key = c.key[i];
                last = c.nbytes[i];
                sum += last;
            }
            for (int j = 0; j < n; j++) { /* buckets of the same key before and after this one */
                int start = 0;
                while (c.bucket[start] != j) start++;
                if (j == k || c.key[start] != key) continue;
                if (start < first) earlier++;
                else later = true;
            }
            size_t limit = c.limits[earlier < c.nlimits ? earlier : c.nlimits - 1];
            assert_true(sum == last || sum - last < limit);
            if (later) assert_true(sum >= limit);
        }
    }
}

static void numbers_buckets_by_their_smallest_tensor_when_sorted(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_case c = make_case(seed);
        int n = ls_bucket_assign(c.nbytes, c.key, c.n, c.limits, c.nlimits, true, c.bucket), seen = 0;
        for (int i = 0; i < c.n; i++) {
            assert_in_range(c.bucket[i], 0, seen); /* a new bucket has the next number */
            if (c.bucket[i] == seen) seen++;
        }
        assert_int_equal(seen, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_plans_of_pytorch),
        cmocka_unit_test(sums_the_bytes_that_pytorch_reports),
        cmocka_unit_test(puts_every_tensor_into_one_bucket_of_its_key),
        cmocka_unit_test(closes_a_bucket_with_the_tensor_that_reaches_the_limit),
        cmocka_unit_test(numbers_buckets_by_their_smallest_tensor_when_sorted),
    };
    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
