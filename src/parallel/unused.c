/* unused.c -- parameters that a backward does not reach. */
#include "parallel/unused.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

struct ls_unused {
    bool *reached;  /* owned: [nparams] since the last reduced backward, that one included */
    bool *expected; /* owned: [nparams] static_graph: what the first reduced backward has reached */
    bool known;     /* `expected` is there */
    int32_t *users; /* owned: [nparams] how many ranks have reached each */
    float **saved;  /* owned, as its elements: [nparams] gradients to be restored if no rank has reached a parameter */
    int n;
};

ls_status ls_unused_create(ls_ddp *d)
{
    const size_t n = (size_t)d->ps->n;
    if (!d->c.find_unused && !d->c.static_graph) return LS_OK;
    if (d->strategy->shards)
        return ls_fail(LS_UNSUPPORTED, "%s with zero_stage %d: sharded gradients need every parameter in every backward",
                       d->c.find_unused ? "find_unused" : "static_graph", d->c.zero_stage);
    ls_unused *u = d->unused = calloc(1, sizeof *u);
    if (!u) return ls_fail(LS_NO_MEMORY, "a list of %zu parameters", n);
    *u = (ls_unused){ .reached = calloc(n, sizeof *u->reached), .expected = calloc(n, sizeof *u->expected),
                      .users = calloc(n, sizeof *u->users), .saved = calloc(n, sizeof *u->saved), .n = d->ps->n };
    if (u->reached && u->expected && u->users && u->saved) return LS_OK;
    return ls_fail(LS_NO_MEMORY, "a list of %zu parameters", n);
}

static void forget_saved(ls_unused *u)
{
    for (int i = 0; u->saved && i < u->n; i++) {
        free(u->saved[i]);
        u->saved[i] = NULL;
    }
}

void ls_unused_destroy(ls_unused *u)
{
    if (!u) return;
    forget_saved(u);
    free(u->saved);
    free(u->users);
    free(u->expected);
    free(u->reached);
    free(u);
}

static LS_COLD ls_status changed(const ls_ddp *d, int i)
{
    const bool before = d->unused->expected[i];
    return ls_fail(LS_INVALID, "static_graph: on rank %d parameter %d (%s) got %s gradient in the first backward, and gets %s in this one: "
                   "set find_unused instead", ls_group_rank(d->g), i, d->ps->item[i].name, before ? "a" : "no", before ? "none" : "one");
}

ls_status ls_unused_reached(ls_ddp *d, int i)
{
    ls_unused *u = d->unused;
    u->reached[i] = true;
    return u->known && !u->expected[i] ? changed(d, i) : LS_OK;
}

/* The gradient that parameter i has from earlier steps, in case that nobody has reached it. */
static ls_status save(ls_ddp *d, int i)
{
    const ls_param *p = &d->ps->item[i];
    const size_t nbytes = ls_tensor_nbytes(&p->t);
    float *copy = d->unused->saved[i] = malloc(nbytes);
    if (!copy) return ls_fail(LS_NO_MEMORY, "%zu bytes for the gradient of %s, which this backward does not reach", nbytes, p->name);
    memcpy(copy, p->grad.data, nbytes);
    return LS_OK;
}

ls_status ls_unused_mark(ls_ddp *d)
{
    ls_unused *u = d->unused;
    for (int i = 0; i < u->n; i++) {
        const ls_param *p = &d->ps->item[i];
        if (d->ready[i] || p->t.uses > 0) continue;
        if (u->known && u->expected[i]) return changed(d, i);
        if (!p->t.grad_ready && !d->dry) memset(p->grad.data, 0, ls_tensor_nbytes(&p->t));
        else if (!u->reached[i] && !d->dry) LS_TRY(save(d, i));
        ls_buckets_count_ready(d, i);
    }
    return LS_OK;
}

void ls_unused_forget(ls_ddp *d) { memset(d->unused->reached, 0, (size_t)d->unused->n * sizeof *d->unused->reached); }

/* --- who has used what --------------------------------------------------------------------------------- */

static ls_status compare(ls_ddp *d)
{
    const ls_unused *u = d->unused;
    const size_t n = (size_t)u->n, size = (size_t)ls_group_size(d->g), rank = (size_t)ls_group_rank(d->g);
    uint8_t *all = calloc(size * n, 1);
    if (!all) return ls_fail(LS_NO_MEMORY, "which of %zu parameters %zu ranks use", n, size);
    for (size_t r = 0; r < size; r++) /* in a dry world all are like this one */
        for (size_t i = 0; i < n && (r == rank || d->dry); i++) all[r * n + i] = u->reached[i];
    ls_status st = ls_all_gather(d->g, NULL, all, size * n, LS_U8);
    for (size_t r = 1; st == LS_OK && r < size; r++)
        for (size_t i = 0; st == LS_OK && i < n; i++) {
            if (all[i] == all[r * n + i]) continue;
            const size_t with = all[i] ? 0 : r, without = all[i] ? r : 0;
            st = ls_fail(LS_CONFIG_MISMATCH, "static_graph: parameter %zu (%s) takes part in the loss of rank %zu, but not in that of "
                         "rank %zu: set find_unused instead", i, d->ps->item[i].name, with, without);
        }
    free(all);
    return st;
}

/* *users of each parameter. */
static ls_status count_users(ls_ddp *d)
{
    ls_unused *u = d->unused;
    if (!d->c.static_graph) {
        for (int i = 0; i < u->n; i++) u->users[i] = u->reached[i];
        return ls_all_reduce(d->g, NULL, u->users, (size_t)u->n, LS_I32, LS_SUM);
    }
    if (!u->known) LS_TRY(compare(d));
    for (int i = 0; i < u->n && !u->known; i++) u->expected[i] = u->reached[i];
    u->known = true;
    for (int i = 0; i < u->n; i++) u->users[i] = u->expected[i];
    return LS_OK;
}

ls_status ls_unused_settle(ls_ddp *d)
{
    ls_unused *u = d->unused;
    LS_TRY(count_users(d));
    for (int i = 0; i < u->n; i++) {
        ls_param *p = &d->ps->item[i];
        if (u->users[i] > 0) p->t.grad_ready = true;
        else if (u->saved[i]) memcpy(p->grad.data, u->saved[i], ls_tensor_nbytes(&p->t));
    }
    forget_saved(u);
    memset(u->reached, 0, (size_t)u->n * sizeof *u->reached);
    return LS_OK;
}
