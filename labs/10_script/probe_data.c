/* probe_data.c -- the samples of ranks. */
#include <stdio.h>
#include <string.h>

#include "probe.h"

void print_list(const char *key, const double *v, int n)
{
    printf("\"%s\": [", key);
    for (int i = 0; i < n; i++) printf("%s%.9g", i ? ", " : "", v[i]);
    printf("]");
}

ls_status sampler(long long n, int ranks, const char *word)
{
    ls_dataset data = { 0 };
    ls_sampler *s = NULL;
    ls_loader *l = NULL;
    size_t batches = 0, last = 0;
    printf("{\"ranks\": [");
    for (int r = 0; r < ranks; r++) {
        LS_TRY(ls_sampler_create((size_t)n, ranks, r, strcmp(word, "shuffle") == 0, 0, strcmp(word, "drop") == 0, &s));
        for (size_t i = 0; i < s->num_samples; i++)
            printf("%s%lld", i ? ", " : r ? "], [" : "[", (long long)s->index[i]);
        ls_sampler_destroy(s);
    }
    printf("]], \"by_hand\": ["); /* rank, rank + ranks, ..; where n is not a multiple of it, from the start again */
    for (int r = 0; r < ranks; r++)
        for (long long i = 0; i < (n + ranks - 1) / ranks; i++)
            printf("%s%lld", i ? ", " : r ? "], [" : "[", (r + i * ranks) % n);
    ls_status st = ls_sampler_create((size_t)n, ranks, 0, true, 0, strcmp(word, "drop") == 0, &s);
    const size_t each = st == LS_OK ? s->num_samples : 0;
    if (st == LS_OK) st = ls_dataset_synthetic(0, (size_t)n, 64, 10, &data);
    if (st == LS_OK) st = ls_loader_create(&data, s, 32, false, &l);
    while (st == LS_OK && (st = ls_loader_next(l)) == LS_OK && l->n > 0) last = l->n, batches++;
    printf("]], \"each\": %zu, \"batches\": %zu, \"last\": %zu}\n", each, batches, last);
    ls_loader_destroy(l);
    ls_sampler_destroy(s);
    ls_dataset_free(&data);
    return st;
}
