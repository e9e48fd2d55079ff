/* record.c -- what is called in a dry world.
 *
 * A collective is begun as in any world, up to the choice of its form; then it is noted, and has a form that is done
 * at once.
 */
#include "group/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/choice.h"
#include "group/engine.h"
#include "group/form.h"
#include "group/run.h"

struct ls_record {
    ls_recorded *item; /* owned */
    int n, cap;
};

static ls_status recorded_turn(ls_work *k)
{
    (void)k;
    return LS_OK;
}

static const ls_form form_recorded = { .name = "recorded", .about = "noted, in a dry world", .turn = recorded_turn };

ls_status ls_record_create(ls_record **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? LS_OK : ls_fail(LS_NO_MEMORY, "the record of a dry world");
}

static void forget(ls_record *r)
{
    for (int i = 0; i < r->n; i++) free((void *)(uintptr_t)r->item[i].counts);
    r->n = 0;
}

void ls_record_free(ls_record *r)
{
    if (r) forget(r);
    if (r) free(r->item);
    free(r);
}

/* A schedule's bytes follow from its algorithm, which costs time to choose. */
static ls_status moved(const ls_work *k, ls_recorded *to)
{
    ls_traffic t = { 0 };
    if (k->form == &ls_form_schedule || !k->form->traffic) return LS_OK;
    LS_TRY(k->form->traffic(k, &t));
    to->moved = t.counted;
    to->rounds = t.rounds;
    return LS_OK;
}

/* Those of a work go with it. */
static ls_status copy_counts(const ls_work *k, ls_recorded *to)
{
    const size_t n = (size_t)k->g->size;
    if (!k->counts) return LS_OK;
    size_t *all = malloc((k->recv_counts ? 2 : 1) * n * sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "the counts of a recorded %s", ls_coll_name(k->a.coll));
    memcpy(all, k->counts, n * sizeof *all);
    if (k->recv_counts) memcpy(all + n, k->recv_counts, n * sizeof *all);
    to->counts = all;
    to->recv_counts = k->recv_counts ? all + n : NULL;
    return LS_OK;
}

static ls_status make_room(ls_record *r)
{
    if (r->n < r->cap) return LS_OK;
    const int cap = r->cap ? 2 * r->cap : 64;
    ls_recorded *more = realloc(r->item, (size_t)cap * sizeof *more);
    if (!more) return ls_fail(LS_NO_MEMORY, "a record of %d collectives", cap);
    r->item = more;
    r->cap = cap;
    return LS_OK;
}

/* A message is counted by who receives it, or on connections by who sends it. */
ls_status ls_record_message(ls_record *r, ls_group *g, const ls_p2p *op, const char *label)
{
    const uint64_t nbytes = op->count * ls_dtype_size(op->dtype);
    LS_TRY(make_room(r));
    ls_recorded *to = &r->item[r->n++];
    *to = (ls_recorded){ .group = g, .coll = LS_SENDRECV, .dtype = op->dtype, .bytes = nbytes, .rounds = 1, .form = "messages",
                         .moved = g->mapped == (op->recv != NULL) ? nbytes : 0 };
    if (label) snprintf(to->label, sizeof to->label, "%s", label);
    return LS_OK;
}

ls_status ls_record_add(ls_record *r, ls_work *k)
{
    LS_TRY(make_room(r));
    ls_recorded *to = &r->item[r->n];
    *to = (ls_recorded){ .group = k->g, .coll = k->a.coll, .dtype = k->a.dtype, .op = k->a.op, .root = k->a.root,
                         .bytes = k->nbytes, .rounded = k->form == &ls_form_schedule && ls_choice_narrow(k),
                         .form = k->form == &ls_form_schedule ? "schedule" : k->form->name };
    LS_TRY(moved(k, to));
    if (k->form == &ls_form_schedule) LS_TRY(ls_run_take(k));
    LS_TRY(copy_counts(k, to));
    if (k->a.label) snprintf(to->label, sizeof to->label, "%s", k->a.label);
    r->n++;
    k->form = &form_recorded;
    return LS_OK;
}

/* --- what callers see ------------------------------------------------------------------------------------ */

int ls_world_recorded(const ls_world *w, const ls_recorded **out)
{
    const ls_record *r = w->engine->record;
    *out = r ? r->item : NULL;
    return r ? r->n : 0;
}

void ls_world_record_clear(ls_world *w)
{
    if (w->engine->record) forget(w->engine->record);
}

/* The work that a schedule would carry out. */
static ls_status work_of(const ls_recorded *r, ls_work *out)
{
    if (r->group->destroyed) return ls_fail(LS_INVALID, "the schedule of a collective whose group was destroyed");
    *out = (ls_work){ .g = r->group, .nbytes = r->bytes, .form = &ls_form_schedule, .counts = r->counts,
                      .recv_counts = r->recv_counts,
                      .a = { .coll = r->coll, .dtype = r->dtype, .op = r->op, .root = r->root,
                             .count = r->bytes / ls_dtype_size(r->dtype) } };
    return LS_OK;
}

ls_status ls_recorded_algo(const ls_recorded *r, const char **out)
{
    ls_work k;
    ls_choice choice;
    *out = r->form;
    if (strcmp(r->form, "schedule") != 0) return LS_OK; /* it is no schedule's */
    LS_TRY(work_of(r, &k));
    LS_TRY(ls_choice_of(&k, &choice));
    *out = choice.algo->name;
    return LS_OK;
}

ls_status ls_recorded_traffic(const ls_recorded *r, uint64_t *bytes, int *rounds)
{
    ls_work k;
    ls_traffic t = { .counted = r->moved, .rounds = r->rounds };
    *bytes = 0;
    if (strcmp(r->form, "schedule") == 0) {
        LS_TRY(work_of(r, &k));
        LS_TRY(ls_run_traffic(&k, rounds != NULL, &t));
    }
    *bytes = t.counted;
    if (rounds) *rounds = t.rounds;
    return LS_OK;
}
