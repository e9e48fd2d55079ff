/* bench_tokenizer.c -- how fast one core turns text into token ids.
 *
 * The whole text at once, as `lockstep data prepare` does it: `first` with a tokenizer
 * that has seen no word yet, `again` as the median of more passes, `words` only cutting
 * the text (and `pcre2`, cutting without the quick way for ASCII). What bounds all of
 * them is reading the text: the check for UTF-8 alone stands beside.
 *
 *   build/bench/bench_tokenizer TOKENIZER FILE
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"
#include "data/split.h"
#include "lockstep/data.h"

#define REPS 9

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cut(const char *text, size_t n, bool quick)
{
    ls_split *s;
    double v[REPS];
    if (ls_split_create(ls_split_gpt2, quick, &s) < 0) return 0.0;
    for (int r = 0; r < REPS; r++) {
        double t0 = now();
        for (size_t at = 0; at < n;)
            if (ls_split_next(s, text, n, at, &at) < 0) return 0.0;
        v[r] = now() - t0;
    }
    ls_split_destroy(s);
    qsort(v, REPS, sizeof *v, by_value);
    return v[REPS / 2];
}

int main(int argc, char **argv)
{
    char *text;
    size_t n;
    ls_tokenizer *t;
    ls_ids ids = { 0 };
    double first = 0.0, v[REPS], check[REPS], t0 = now();
    if (argc != 3 || ls_file_read(argv[2], (size_t)1 << 30, &text, &n) < 0 || ls_tokenizer_open(argv[1], &t) < 0) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER FILE\n%s\n", ls_last_error());
        return 1;
    }
    double opened = now() - t0;
    for (int r = -1; r < REPS; r++) {
        ids.n = 0;
        t0 = now();
        if (ls_tokenizer_encode(t, text, n, 0, &ids) < 0) {
            fprintf(stderr, "%s\n", ls_last_error());
            return 1;
        }
        if (r < 0) first = now() - t0;
        else v[r] = now() - t0;
        t0 = now();
        if (ls_utf8_check(text, n) != n) return 1;
        if (r >= 0) check[r] = now() - t0;
    }
    qsort(v, REPS, sizeof *v, by_value);
    qsort(check, REPS, sizeof *check, by_value);
    double mb = 1e-6 * (double)n;
    printf("# MB/s of text; median of %d but for `first`; opened in %.3f s\n", REPS, opened);
    printf("%10s %10s %9s %9s %9s %9s %9s\n", "bytes", "tokens", "first", "again", "words", "pcre2", "utf8");
    printf("%10zu %10zu %9.1f %9.1f %9.1f %9.1f %9.1f\n", n, ids.n, mb / first, mb / v[REPS / 2], mb / cut(text, n, true),
           mb / cut(text, n, false), mb / check[REPS / 2]);
    ls_ids_free(&ids);
    ls_tokenizer_close(t);
    free(text);
    return 0;
}
