/* compare.c -- whether replicas have the same values, by the hashes of what their optimizers wrote. */
#include <stdlib.h>

#include "base/text.h"
#include "lockstep/group.h"
#include "optim/optim.h"

#define NAMED 4 /* parameters that a message names */

/* How many ranks have rank r's hash of parameter i. */
static int like(const uint32_t *all, int n, int size, int r, int i)
{
    int same = 0;
    for (int k = 0; k < size; k++) same += all[k * n + i] == all[r * n + i];
    return same;
}

/* The rank whose hash of parameter i most ranks have; of several, the smallest. */
static int most_common(const uint32_t *all, int n, int size, int i)
{
    int best = 0;
    for (int r = 1; r < size; r++)
        if (like(all, n, size, r, i) > like(all, n, size, best, i)) best = r;
    return best;
}

static ls_status verdict(const ls_params *ps, const uint32_t *all, int size, const char *since, int *culprit)
{
    ls_text text = { 0 };
    int differ = 0;
    for (int i = 0; i < ps->n; i++) {
        const int best = most_common(all, ps->n, size, i);
        const char *comma = "";
        if (like(all, ps->n, size, best, i) == size) continue;
        if (differ++ >= NAMED) continue;
        ls_text_add(&text, "%s%s on rank ", differ > 1 ? "; " : "", ps->item[i].name);
        for (int r = 0; r < size; r++) {
            if (all[r * ps->n + i] == all[best * ps->n + i]) continue;
            ls_text_add(&text, "%s%d", comma, r);
            comma = ", ";
            if (culprit && *culprit < 0) *culprit = r;
        }
    }
    if (differ == 0) return LS_OK;
    if (differ > NAMED) ls_text_add(&text, "; and %d more", differ - NAMED);
    const ls_status st = ls_fail(LS_DIVERGED, "replicas have other parameters%s%s: %.300s. Every rank must make the same update: was a "
                                 "gradient, a parameter or the learning rate changed on some ranks only?",
                                 since ? " " : "", since ? since : "", ls_text_str(&text));
    ls_text_free(&text);
    return st;
}

ls_status ls_optim_compare(const ls_optim *o, ls_group *g, const char *since, int *culprit)
{
    const ls_params *ps = ls_optim_params(o);
    const int size = ls_group_size(g), rank = ls_group_rank(g);
    const size_t n = (size_t)ps->n;
    if (culprit) *culprit = -1;
    uint32_t *all = calloc((size_t)size * n, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "comparing %d parameters of %d ranks", ps->n, size);
    for (int i = 0; i < ps->n; i++) all[(size_t)rank * n + (size_t)i] = ls_optim_hash_of(o, i);
    ls_status st = ls_all_gather(g, NULL, all, (size_t)size * n, LS_I32);
    if (st == LS_OK && !ls_world_is_dry(ls_group_world(g))) st = verdict(ps, all, size, since, culprit);
    free(all);
    return st;
}
