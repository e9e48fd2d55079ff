/* compare.c -- whether replicas have the same values, by the hashes of what their optimizers wrote. */
#include <stdlib.h>

#include "base/text.h"
#include "lockstep/group.h"
#include "optim/optim.h"

#define NAMED 4 /* parameters that a message names */

/* Hashes of all ranks. Ranks first, first + shards, ... own the same elements. */
typedef struct table {
    const uint32_t *hash; /* [size][n] */
    int n, size, shards;
    const ls_group *g; /* the ranks; messages have their numbers in the world */
} table;

/* How many of the ranks with rank r's elements have its hash of parameter i. */
static int like(const table *t, int r, int i)
{
    int same = 0;
    for (int k = r % t->shards; k < t->size; k += t->shards) same += t->hash[k * t->n + i] == t->hash[r * t->n + i];
    return same;
}

/* Of ranks first, first + shards, ... the one whose hash of parameter i most have; of several, the smallest. */
static int most_common(const table *t, int first, int i)
{
    int best = first;
    for (int r = first; r < t->size; r += t->shards)
        if (like(t, r, i) > like(t, best, i)) best = r;
    return best;
}

static void name_ranks(const table *t, int best, int i, ls_text *text, int *culprit)
{
    const char *comma = "";
    for (int r = best % t->shards; r < t->size; r += t->shards) {
        if (t->hash[r * t->n + i] == t->hash[best * t->n + i]) continue;
        ls_text_add(text, "%s%d", comma, ls_group_world_rank(t->g, r));
        comma = ", ";
        if (culprit && *culprit < 0) *culprit = r;
    }
    if (2 * like(t, best, i) <= t->size / t->shards) ls_text_add(text, ", unlike rank %d", ls_group_world_rank(t->g, best));
}

static ls_status verdict(const ls_params *ps, const table *t, const char *since, int *culprit)
{
    ls_text text = { 0 };
    int differ = 0;
    for (int i = 0; i < ps->n; i++)
        for (int first = 0; first < t->shards; first++) {
            const int best = most_common(t, first, i);
            if (like(t, best, i) == t->size / t->shards) continue;
            if (differ++ >= NAMED) continue;
            ls_text_add(&text, "%s%s on rank ", differ > 1 ? "; " : "", ps->item[i].name);
            name_ranks(t, best, i, &text, culprit);
        }
    if (differ == 0) return LS_OK;
    if (differ > NAMED) ls_text_add(&text, "; and %d more", differ - NAMED);
    const ls_status st = ls_fail(LS_DIVERGED, "replicas have other parameters%s%s: %.300s. Every rank must make the same update: was a "
                                 "gradient, a parameter or the learning rate changed on some ranks only?",
                                 since ? " " : "", since ? since : "", ls_text_str(&text));
    ls_text_free(&text);
    return st;
}

ls_status ls_optim_compare(const ls_optim *o, ls_group *g, int shards, const char *since, int *culprit)
{
    return ls_optim_compare_some(o, ls_optim_params(o), g, shards, since, culprit);
}

ls_status ls_optim_compare_some(const ls_optim *o, const ls_params *ps, ls_group *g, int shards, const char *since,
                                int *culprit)
{
    const int size = ls_group_size(g), rank = ls_group_rank(g);
    const size_t n = (size_t)ps->n;
    if (culprit) *culprit = -1;
    if (shards < 1 || size % shards != 0)
        return ls_fail(LS_INVALID, "comparing replicas: %d shards on %d ranks: expected a number that divides %d",
                       shards, size, size);
    uint32_t *all = calloc((size_t)size * n, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "comparing %d parameters of %d ranks", ps->n, size);
    for (int i = 0; i < ps->n; i++) all[(size_t)rank * n + (size_t)i] = ls_optim_hash_of(o, ps->before + i);
    ls_status st = ls_all_gather(g, NULL, all, (size_t)size * n, LS_I32);
    const table t = { all, ps->n, size, shards, g };
    if (st == LS_OK && !ls_world_is_dry(ls_group_world(g))) st = verdict(ps, &t, since, culprit);
    free(all);
    return st;
}
