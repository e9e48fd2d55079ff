/* select.c -- which form carries out a work.
 *
 * Like the choice of a schedule (choice.c) it depends only on what every rank knows alike.
 */
#include "group/select.h"

#include <string.h>

#include "group/backend.h"
#include "group/choice.h"
#include "group/engine.h"

/* A group of one: the result is the input. */
static ls_status local_turn(ls_work *k)
{
    if (k->a.in && k->a.out && k->nbytes > 0) memcpy(k->a.out, k->a.in, k->nbytes);
    return LS_OK;
}

static ls_status local_traffic(const ls_work *k, ls_traffic *out)
{
    (void)k;
    *out = (ls_traffic){ 0 };
    return LS_OK;
}

const ls_form ls_form_local = {
    .name = "local", .about = "nothing to do for one rank", .turn = local_turn, .traffic = local_traffic };

/* Short vectors before long ones, and what training calls most before the rest. */
static const ls_form *const in_memory[] = { &ls_form_oneshot, &ls_form_mail, &ls_form_in_place, &ls_form_rooted };

/* What these become where a vector is private. */
static const ls_form *const in_private_memory[] = { &ls_form_attached, &ls_form_staged };

static bool serves(const ls_form *f, const ls_work *k) { return f->colls & 1u << k->a.coll; }
static bool able(const ls_form *f, const ls_work *k) { return serves(f, k) && (!f->can || f->can(k)); }

int ls_select_able(const ls_work *k, const ls_form *out[LS_SELECT_MOST], int *registered)
{
    int n = *registered = 0;
    if (!k->g->mapped || k->g->size == 1) return 0;
    for (size_t i = 0; i < sizeof in_memory / sizeof *in_memory; i++)
        if (able(in_memory[i], k)) out[n++] = in_memory[i];
    *registered = n;
    for (size_t i = 0; i < sizeof in_private_memory / sizeof *in_private_memory; i++)
        if (able(in_private_memory[i], k)) out[n++] = in_private_memory[i];
    return n;
}

const ls_form *ls_select(const ls_work *k)
{
    const ls_group *g = k->g;
    if (g->size == 1) return &ls_form_local;
    if (g->backend) return &ls_form_backend;
    const ls_algo *asked = g->forced || g->asks ? ls_choice_asked(g, k->a.coll) : NULL;
    if (!g->mapped && ls_backend_is_planned(g->w)) return &ls_form_backend;
    if (!g->mapped || (asked && !asked->mapped)) return &ls_form_schedule;
    for (size_t i = 0; i < sizeof in_memory / sizeof *in_memory; i++) {
        const ls_form *f = in_memory[i];
        if (serves(f, k) && (!f->fits || f->fits(k, asked))) return f;
    }
    return &ls_form_schedule;
}

const char *ls_select_ran(const ls_group *g)
{
    if (!g->ran) return "none";
    if (g->ran == &ls_form_schedule) return g->ran_algo ? g->ran_algo->name : "none";
    return g->ran == &ls_form_backend ? g->w->opts.backend : g->ran->name;
}
