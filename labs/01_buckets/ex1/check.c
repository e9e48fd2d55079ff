/* check.c -- exercise 1 of lab 01, beside the library's own ls_bucket_assign. */
#include "check.h"

#include "lockstep/lockstep.h"

enum { MOST = 12 };

int assign(const size_t *nbytes, int n, size_t first, size_t cap, int *bucket); /* task.c */

/* What a typical mistake would give: 0: closed before a gradient that does not fit; 1: the first cap is not read. */
static int mistaken(int kind, const size_t *nbytes, int n, size_t first, size_t cap, int *bucket)
{
    int open = 0;
    size_t held = 0;
    for (int i = 0; i < n; i++) {
        const size_t limit = kind == 0 && open == 0 ? first : cap;
        if (kind == 0 && held > 0 && held + nbytes[i] > limit) open++, held = 0;
        bucket[i] = open;
        held += nbytes[i];
        if (kind == 1 && held >= limit) open++, held = 0;
    }
    return kind == 0 || held > 0 ? open + 1 : open;
}

static const char *idea(const size_t *nbytes, int n, size_t first, size_t cap, const int *right, int count,
                        const int *found, int result)
{
    static const char *const of[2] = {
        "a gradient that passes the cap still joins the open bucket, and closes it",
        "the first bucket is closed at `first` bytes, so that the first all_reduce starts early",
    };
    int bucket[MOST];
    const size_t bytes = (size_t)n * sizeof *bucket;
    if (memcmp(found, right, bytes) == 0 && result == count + 1) return "a bucket that nothing has joined does not count";
    for (int kind = 0; kind < 2; kind++)
        if (mistaken(kind, nbytes, n, first, cap, bucket) == result && memcmp(bucket, found, bytes) == 0)
            return of[kind];
    return "walk the list once, with the number of the open bucket and the bytes that it holds";
}

int main(int argc, char **argv)
{
    check c = check_begin(argc, argv);
    for (int shape = 0; shape < CHECK_SHAPES; shape++) {
        size_t nbytes[MOST];
        int bytes[MOST], right[MOST], room[2 * CHECK_GUARD / sizeof(int) + MOST];
        const int n = check_between(&c, 1, MOST);
        for (int i = 0; i < n; i++) nbytes[i] = (size_t)(bytes[i] = 4 * check_between(&c, 1, 64));
        const size_t limits[2] = { 4 * (size_t)check_between(&c, 1, 64), 4 * (size_t)check_between(&c, 32, 128) };
        const int count = ls_bucket_assign(nbytes, NULL, n, limits, 2, false, right);
        const size_t size = (size_t)n * sizeof *right;
        int *found = check_room(room, sizeof room, size);
        const int result = assign(nbytes, n, limits[0], limits[1], found);
        const bool outside = check_outside(room, sizeof room, size);
        if (!outside && result == count && memcmp(right, found, size) == 0) continue;
        printf("shape %d of %d: first = %zu, cap = %zu\n", shape + 1, CHECK_SHAPES, limits[0], limits[1]);
        check_print("nbytes", bytes, n);
        check_print("expected", right, n);
        check_print("found", found, n);
        printf("  result    expected %d, found %d\n  idea      %s\n", count, result,
               outside ? "something is written outside of bucket[0] to bucket[n - 1]"
                       : idea(nbytes, n, limits[0], limits[1], right, count, found, result));
        return 1;
    }
    return check_green(CHECK_SHAPES);
}
