/* record.c -- what is called in a world whose other ranks are not there.
 *
 * A collective is begun as in any world, up to the choice of its form; then it is noted, or in a mirror answered, and
 * has a form that is done at once.
 */
#include "group/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "group/choice.h"
#include "group/engine.h"
#include "group/form.h"
#include "group/run.h"
#include "group/spans.h"
#include "net/open.h"
#include "net/transports.h"

#define SHORT 8192 /* bytes: a call that writes no more takes less time than a look at the processor's clock */
#define TIMED 13   /* one in so many short calls is timed; a step's calls are seldom a multiple of it */
/* Other processes had the core during a short call, or a look at clocks, that took at least LONG_NS and LONG_TIMES as
 * long as another one. */
#define LONG_NS    5000
#define LONG_TIMES 20

struct ls_record {
    bool mirrors, yields; /* a mirror's, which notes nothing */
    double waits;         /* fraction of a yield that is still owed */
    double message_waits; /* ls_mirror_opts */
    uint64_t wall_ns, cpu_ns; /* of a mirror: when a long call or a wait began, */
    uint64_t read_ns;         /* and how long it took to read both clocks */
    uint64_t short_ns;        /* when the short call at hand began; 0: it is not timed */
    uint64_t shorts, timed, timed_ns; /* how many short calls there were, were timed, and what those took; */
    uint64_t least_ns, usual_ns; /* the shortest; the newest look during which no other process had the core */
    ls_mirrored did;
    char *numbers;     /* owned: a mirror's: [SHORT]: what fill writes */
    ls_recorded *item; /* owned */
    int n, cap;
};

static ls_status recorded_turn(ls_work *k)
{
    (void)k;
    return LS_OK;
}

static const ls_form form_recorded = { .name = "recorded", .about = "noted, in a dry world", .turn = recorded_turn };

static void forget(ls_record *r)
{
    for (int i = 0; i < r->n; i++) free((void *)(uintptr_t)r->item[i].counts);
    r->n = 0;
}

void ls_record_free(ls_record *r)
{
    if (r) free(r->numbers);
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

/* --- a mirror ---------------------------------------------------------------------------------------------- */

static bool is_disturbed(uint64_t took_ns, uint64_t least_ns)
{
    return took_ns >= LONG_NS && (least_ns == 0 || took_ns >= LONG_TIMES * least_ns);
}

/* The processor's clock is read about halfway through the call that reads it, so half of each look is in no difference
 * of two of them. It is measured each time: between other work a look takes longer than one after another. */
static uint64_t half_of(ls_record *r, uint64_t read_ns)
{
    if (!is_disturbed(read_ns, r->usual_ns)) r->usual_ns = read_ns;
    return r->usual_ns / 2;
}

static void look_before(ls_record *r)
{
    const ls_env *env = ls_env_get();
    r->wall_ns = env->mono_ns();
    r->cpu_ns = env->thread_cpu_ns();
    r->read_ns = env->mono_ns() - r->wall_ns;
}

static void look_after(ls_record *r)
{
    const ls_env *env = ls_env_get();
    const uint64_t ended = env->mono_ns(), cpu = env->thread_cpu_ns(), read = env->mono_ns();
    r->did.looks++;
    r->did.wall_ns += read - r->wall_ns;
    r->did.cpu_ns += cpu - r->cpu_ns + half_of(r, r->read_ns) + half_of(r, read - ended);
}

void ls_record_enter(ls_record *r, uint64_t nbytes)
{
    if (!r->mirrors) return;
    if (nbytes > SHORT) look_before(r);
    else r->short_ns = r->shorts++ % TIMED == 0 ? ls_env_get()->mono_ns() : 0;
}

void ls_record_leave(ls_record *r, uint64_t nbytes)
{
    if (!r->mirrors) return;
    if (nbytes > SHORT) {
        look_after(r);
        return;
    }
    const uint64_t took = r->short_ns > 0 ? ls_env_get()->mono_ns() - r->short_ns : 0;
    if (took > 0 && !is_disturbed(took, r->least_ns)) r->timed++, r->timed_ns += took;
    if (took > 0 && (r->least_ns == 0 || took < r->least_ns)) r->least_ns = took;
    if (r->timed == 0) return;
    r->did.wall_ns += r->timed_ns / r->timed;
    r->did.cpu_ns += r->timed_ns / r->timed;
}

static size_t sum_of(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    return sum;
}

/* Other ranks would send values; these are numbers of about 1/4 to 1/2 of either sign, as bf16, and so in pairs as f32.
 * Memory as it was might have NaNs, or numbers that take a processor longer. */
static void fill(void *to, size_t nbytes)
{
    uint16_t word = 0;
    uint32_t draw = 1;
    char *p = to;
    for (size_t i = 0; i + 1 < nbytes; i += 2, p += 2) {
        draw = draw * 1664525u + 1013904223u;
        word = (uint16_t)((draw >> 16 & 0x8000u) | 0x3e80u | (draw >> 24 & 0x7fu));
        memcpy(p, &word, sizeof word);
    }
}

ls_status ls_record_create(const ls_mirror_opts *mirror, ls_record **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "the record of %s", ls_world_alone_name(!mirror));
    (*out)->mirrors = mirror != NULL;
    (*out)->yields = mirror && mirror->yields;
    (*out)->message_waits = mirror && mirror->message_waits > 0 ? mirror->message_waits : .5;
    if (!mirror) return LS_OK;
    (*out)->usual_ns = LONG_NS;
    (*out)->numbers = malloc(SHORT);
    if (!(*out)->numbers) {
        free(*out);
        *out = NULL;
        return ls_fail(LS_NO_MEMORY, "%d bytes of a mirror's messages", SHORT);
    }
    fill((*out)->numbers, SHORT);
    return LS_OK;
}

/* Over and over, until there is as much. */
static void repeat(char *to, size_t nbytes, const char *from, size_t n)
{
    if (n == 0) fill(to, nbytes);
    for (size_t at = 0; n > 0 && at < nbytes; at += n) memcpy(to + at, from, n < nbytes - at ? n : nbytes - at);
}

/* The same of a vector with spans: rows of others become this rank's, and its part of a sum is what it has. */
static void answer_spans(const ls_work *k)
{
    const size_t elem = ls_dtype_size(k->a.dtype);
    const int size = k->g->size, me = k->g->rank;
    char *part = k->a.out;
    for (int i = 0; i < k->nspans; i++) {
        const ls_matrix_span *s = &k->span[i];
        const ls_range own = ls_spans_rows(s, me, size);
        const size_t first = (s->first + own.first * s->row) * elem, n = own.count * s->row * elem;
        if (k->a.coll == LS_REDUCE_SCATTER && k->a.in) {
            memcpy(part, (const char *)k->a.in + first, n);
            part += n;
        }
        for (int r = 0; r < size && k->a.coll == LS_ALL_GATHER && !k->a.in && n > 0; r++) {
            const ls_range to = ls_spans_rows(s, r, size);
            if (r != me) repeat((char *)k->a.out + (s->first + to.first * s->row) * elem, to.count * s->row * elem,
                                (const char *)k->a.out + first, n);
        }
    }
}

/* As if every other rank had given what this one gives. */
static void answer(const ls_work *k)
{
    const ls_coll_args *a = &k->a;
    const size_t elem = ls_dtype_size(a->dtype);
    const ls_range own = ls_work_share(k, k->g->rank);
    const char *in = a->in;
    char *out = a->out;
    if (!out) return;
    if (k->span) {
        answer_spans(k);
        return;
    }
    if (a->coll == LS_ALL_GATHER) {
        const char *mine = in ? in : out + own.first * elem;
        for (int r = 0; r < k->g->size; r++) {
            const ls_range to = ls_work_share(k, r);
            if (out + to.first * elem != mine) repeat(out + to.first * elem, to.count * elem, mine, own.count * elem);
        }
        return;
    }
    if (!in || in == out) return;
    if (a->coll == LS_REDUCE_SCATTER) {
        memcpy(out, in + own.first * elem, own.count * elem);
        return;
    }
    if (k->counts && k->recv_counts) {
        repeat(out, sum_of(k->recv_counts, k->g->size) * elem, in, sum_of(k->counts, k->g->size) * elem);
        return;
    }
    if (a->coll == LS_ALL_REDUCE || a->coll == LS_ALL_TO_ALL || a->coll == LS_REDUCE) memcpy(out, in, k->nbytes);
}

static const ls_form form_mirrored = { .name = "mirrored", .about = "answered at once, in a mirror", .turn = recorded_turn };

/* In each round all members but the last wait, which is (n - 1) / n of a wait on average; at most one yield for a call.
 * A schedule is taken to have two rounds, since choosing its algorithm costs time. */
static void owe(ls_record *r, int members, int rounds)
{
    r->waits += fmin(1, (double)rounds * (members - 1) / members);
}

static int rounds_of(const ls_work *k)
{
    ls_traffic t = { .rounds = 2 };
    if (k->form != &ls_form_schedule && k->form->traffic) (void)k->form->traffic(k, &t);
    return t.rounds;
}

static void mirror_work(ls_record *r, ls_work *k)
{
    owe(r, k->g->size, rounds_of(k));
    answer(k);
    k->form = &form_mirrored;
    r->did.collectives++;
    r->did.bytes += k->nbytes;
}

void ls_record_wait(ls_record *r)
{
    if (!r->yields || r->waits < 1 - 1e-9) return;
    look_before(r);
    r->waits -= 1;
    ls_env_get()->yield();
    look_after(r);
}

ls_mirrored ls_world_mirrored(const ls_world *w)
{
    const ls_record *r = w->engine->record;
    return r && r->mirrors ? r->did : (ls_mirrored){ 0 };
}

/* --- noting ------------------------------------------------------------------------------------------------- */

/* A message is counted by who receives it, or on connections by who sends it. */
ls_status ls_record_message(ls_record *r, ls_group *g, const ls_p2p *op, const char *label)
{
    const uint64_t nbytes = op->count * ls_dtype_size(op->dtype);
    if (r->mirrors) {
        r->did.messages++;
        r->did.bytes += nbytes;
        if (op->recv || (g->mapped && nbytes > LS_EAGER_BYTES)) r->waits += r->message_waits;
        if (op->recv && nbytes <= SHORT) memcpy(op->recv, r->numbers, nbytes);
        else if (op->recv) fill(op->recv, nbytes);
        return LS_OK;
    }
    LS_TRY(make_room(r));
    ls_recorded *to = &r->item[r->n++];
    *to = (ls_recorded){ .group = g, .coll = LS_SENDRECV, .dtype = op->dtype, .bytes = nbytes, .rounds = 1, .form = "messages",
                         .moved = g->mapped == (op->recv != NULL) ? nbytes : 0 };
    if (label) snprintf(to->label, sizeof to->label, "%s", label);
    return LS_OK;
}

ls_status ls_record_add(ls_record *r, ls_work *k)
{
    if (r->mirrors) {
        mirror_work(r, k);
        return LS_OK;
    }
    LS_TRY(make_room(r));
    ls_recorded *to = &r->item[r->n];
    *to = (ls_recorded){ .group = k->g, .coll = k->a.coll, .dtype = k->a.dtype, .op = k->a.op, .root = k->a.root,
                         .bytes = k->nbytes, .apart = k->a.in && k->a.in != k->a.out,
                         .rounded = k->form == &ls_form_schedule && ls_choice_narrow(k),
                         .form = k->form == &ls_form_schedule ? "schedule" : k->form->name };
    LS_TRY(moved(k, to));
    if (k->form == &ls_form_schedule) LS_TRY(ls_run_take(k));
    LS_TRY(copy_counts(k, to));
    to->spans = k->span ? k->nspans : 0;
    for (int i = 0; i < to->spans; i++) to->rows += k->span[i].rows;
    if (to->spans > 0) to->rows /= (size_t)to->spans;
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
