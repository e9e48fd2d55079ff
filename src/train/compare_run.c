/* compare_run.c -- where a run parts from a recorded one. */
#include "train/compare_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "ckpt/apart.h"
#include "ckpt/state.h"
#include "net/world.h"
#include "train/metrics_file.h"
#include "train/trainer.h"

#define PATH_BYTES   600
#define NAME_BYTES   (LS_NAME_BYTES + 64)

/* A line of metrics.jsonl; NAN: not finite. */
typedef struct recorded {
    int64_t step;
    double loss, norm;
} recorded;

struct ls_compare_run {
    const char *run;    /* borrowed */
    recorded *line;     /* owned: [n], of rank 0 */
    size_t n, at;       /* at: the line of the step at hand, or after it */
    int64_t steps, checkpoints; /* compared so far */
};

/* --- what was recorded --------------------------------------------------------------------------------- */

static ls_status read_line(void *arg, int64_t step, const json_t *j)
{
    ls_compare_run *r = arg;
    recorded *list = realloc(r->line, (r->n + 1) * sizeof *list);
    if (!list) return ls_fail(LS_NO_MEMORY, "%zu steps of --compare %s", r->n + 1, r->run);
    r->line = list;
    list[r->n++] = (recorded){ step, ls_metrics_number(j, "loss_metrics/global_avg_loss"), ls_metrics_number(j, "grad_norm") };
    return LS_OK;
}

static ls_status read_metrics(ls_compare_run *r)
{
    const ls_status st = ls_metrics_read(r->run, read_line, r);
    return st < 0 ? ls_while(st, "reading --compare %s", r->run) : LS_OK;
}

/* Steps are asked for in ascending order, as they stand there. */
static const recorded *find(ls_compare_run *r, int64_t step)
{
    while (r->at < r->n && r->line[r->at].step < step) r->at++;
    return r->at < r->n && r->line[r->at].step == step ? &r->line[r->at] : NULL;
}

static ls_status open_record(const ls_trainer *t, ls_compare_run *r)
{
    LS_TRY(read_metrics(r));
    for (size_t i = 0; i < r->n; i++)
        if (r->line[i].step > t->begun && r->line[i].step <= t->steps) return LS_OK;
    return ls_fail(LS_BAD_FILE, "--compare %s: has no step from %lld to %lld, which this run takes", r->run,
                   (long long)t->begun + 1, (long long)t->steps);
}

ls_status ls_compare_open(ls_trainer *t, ls_compare_run **out)
{
    *out = NULL;
    if (!*t->c->compare) return LS_OK;
    ls_compare_run *r = *out = calloc(1, sizeof *r);
    if (!r) return ls_fail(LS_NO_MEMORY, "a run to compare with");
    r->run = t->c->compare;
    ls_train_task(t, LS_TASK_READING, r->run);
    const ls_status st = ls_world_rank(t->w) == 0 ? open_record(t, r) : LS_OK;
    ls_train_task(t, LS_TASK_NONE, NULL);
    return ls_state_agree(ls_world_group(t->w), st, NULL);
}

void ls_compare_close(ls_compare_run *r)
{
    if (!r) return;
    free(r->line);
    free(r);
}

/* --- tensors --------------------------------------------------------------------------------------------- */

/* A difference: sent to all ranks as it is. */
typedef struct difference {
    char name[NAME_BYTES]; /* "": none */
    int64_t ndim, at[LS_MAX_DIMS]; /* the first element that differs, as files have the tensor */
    double here, there;
    ls_apart apart; /* of what the rank keeps */
} difference;

static bool before(const int64_t *a, const int64_t *b, int64_t ndim)
{
    for (int64_t d = 0; d < ndim; d++)
        if (a[d] != b[d]) return a[d] < b[d];
    return false;
}

/* Where element k of a piece is in the tensor: it is row-major here, with the first two dimensions as in memory. */
static void place(const ls_param *p, const ls_piece *piece, size_t k, int64_t at[LS_MAX_DIMS])
{
    for (int d = p->t.ndim - 1; d >= 0; d--) {
        const int of = p->transposed && d < 2 ? 1 - d : d; /* its number in files */
        at[of] = piece->box.first[of] + (int64_t)(k % (size_t)piece->box.count[of]);
        k /= (size_t)piece->box.count[of];
    }
}

static void compare_values(const ls_param *p, const ls_piece *piece, int n, const float *here, const float *there,
                           difference *out)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < piece[i].count; k++) {
            const float x = here[piece[i].first + k], y = there[piece[i].first + k];
            int64_t at[LS_MAX_DIMS] = { 0 };
            if (memcmp(&x, &y, sizeof x) == 0) continue;
            place(p, &piece[i], k, at);
            if (out->apart.differ == 0 || before(at, out->at, p->t.ndim)) {
                memcpy(out->at, at, sizeof at);
                out->here = (double)x;
                out->there = (double)y;
            }
            ls_apart_add_f32(&out->apart, x, y);
        }
}

/* What this rank keeps of one tensor: `here` has the elements that it owns of p. */
static ls_status compare_tensor(ls_checkpoint *c, const char *name, const ls_param *p, const float *here,
                                difference *out)
{
    int64_t dim[LS_MAX_DIMS];
    int n = 0;
    *out = (difference){ .ndim = p->t.ndim };
    ls_piece_shape(p, dim);
    LS_TRY(ls_checkpoint_check(c, name, LS_F32, p->t.ndim, dim));
    if (p->keeps.count == 0) return LS_OK;
    float *there = malloc(p->keeps.count * sizeof *there);
    ls_piece *piece = malloc((size_t)ls_piece_most(p) * sizeof *piece);
    ls_status st = there && piece ? LS_OK : ls_fail(LS_NO_MEMORY, "tensor '%s': %zu elements", name, p->keeps.count);
    if (st == LS_OK) st = ls_piece_boxes(p, p->keeps, piece, &n);
    if (st == LS_OK) st = ls_piece_read(c, name, p, p->keeps, there);
    if (st == LS_OK) compare_values(p, piece, n, here + (p->keeps.first - p->own.first), there, out);
    if (st == LS_OK && out->apart.differ > 0) snprintf(out->name, sizeof out->name, "%s", name);
    free(piece);
    free(there);
    return st;
}

/* The number of a parameter's updates, which all ranks have alike. */
static ls_status compare_updates(const ls_trainer *t, ls_checkpoint *c, const char *name, const ls_param *p,
                                 difference *out)
{
    int64_t there;
    const int64_t here = ls_optim_steps_of(t->optim, p->name);
    *out = (difference){ .ndim = 1 };
    LS_TRY(ls_checkpoint_updates(c, name, &there));
    if (here == there) return LS_OK;
    out->here = (double)here;
    out->there = (double)there;
    if (ls_world_rank(t->w) == 0) ls_apart_add(&out->apart, out->here, out->there);
    snprintf(out->name, sizeof out->name, "%s", name);
    return LS_OK;
}

/* Of all tensors the first one by name that differs; `only`: that one alone, whether it does or not. */
static ls_status look(const ls_trainer *t, ls_checkpoint *c, const char *only, difference *first)
{
    const ls_params *ps = &t->par.model->params;
    const int nstates = ls_optim_nstates(t->optim);
    *first = (difference){ 0 };
    for (int i = 0; i < ps->n; i++)
        for (int k = -2; k < nstates; k++) { /* updates, values, states */
            const ls_param *p = &ps->item[i];
            const char *state = k == -2 ? "step" : k >= 0 ? ls_optim_state_name(t->optim, k) : NULL;
            char name[NAME_BYTES];
            difference d;
            snprintf(name, sizeof name, "%s%.40s%s%s", state ? LS_STATE_OPTIM : "", state ? state : "", state ? "." : "",
                     p->name);
            if (only && strcmp(name, only) != 0) continue;
            const float *here = k == -1 ? ls_param_values(p) : k >= 0 ? ls_optim_state(t->optim, p->name, state) : NULL;
            LS_TRY(k == -2 ? compare_updates(t, c, name, p, &d) : compare_tensor(c, name, p, here, &d));
            if (*d.name && (!*first->name || strcmp(d.name, first->name) < 0)) *first = d;
        }
    return LS_OK;
}

/* One difference of each rank into the one of all: the first name, in it the first element, and the sums. */
static ls_status join(ls_group *g, const difference *mine, difference *out)
{
    const int rank = ls_group_rank(g), size = ls_group_size(g);
    difference *all = calloc((size_t)size, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "what %d ranks found", size);
    all[rank] = *mine;
    const ls_status st = ls_all_gather(g, NULL, all, (size_t)size * sizeof *all, LS_U8);
    *out = (difference){ 0 };
    for (int r = 0; st == LS_OK && r < size; r++) {
        const difference *d = &all[r];
        const int order = !*d->name ? 1 : !*out->name ? -1 : strcmp(d->name, out->name);
        const ls_apart sum = out->apart;
        if (order > 0) continue;
        if (order < 0 || before(d->at, out->at, d->ndim)) *out = *d;
        if (order < 0) continue;
        out->apart.differ = sum.differ + d->apart.differ;
        out->apart.most = sum.most > d->apart.most ? sum.most : d->apart.most;
        out->apart.ulps = sum.ulps > d->apart.ulps ? sum.ulps : d->apart.ulps;
    }
    free(all);
    return st;
}

/* The first tensor that differs over all ranks, then what each of them has of that one. */
static ls_status compare_checkpoint(ls_trainer *t, const char *folder, difference *out)
{
    ls_group *g = ls_world_group(t->w);
    ls_checkpoint *c = NULL;
    difference mine;
    char name[NAME_BYTES];
    LS_TRY(ls_checkpoint_open_all(g, folder, &c));
    ls_status st = ls_state_agree(g, look(t, c, NULL, &mine), NULL);
    if (st == LS_OK) st = join(g, &mine, out);
    if (st == LS_OK && *out->name) {
        memcpy(name, out->name, sizeof name);
        st = ls_state_agree(g, look(t, c, name, &mine), NULL);
        if (st == LS_OK) st = join(g, &mine, out);
    }
    ls_checkpoint_close(c);
    return st;
}

/* --- a step ------------------------------------------------------------------------------------------------ */

/* Numbers of 17 digits are the doubles that were written; both may be no number. */
static bool same(double a, double b) { return isfinite(a) ? !(a < b) && !(a > b) && !isnan(b) : !isfinite(b); }

static void add_number(ls_text *out, const char *what, double here, double there)
{
    if (!same(here, there)) ls_text_add(out, "%s%s %.17g, there %.17g", out->n ? "; " : "", what, here, there);
}

static void add_tensor(ls_text *out, const difference *d)
{
    if (!*d->name) return;
    ls_text_add(out, "%stensor '%s' at [", out->n ? "; " : "", d->name);
    for (int64_t i = 0; i < d->ndim; i++) ls_text_add(out, "%s%" PRId64, i ? ", " : "", d->at[i]);
    ls_text_add(out, "]: %.9g, there %.9g; %" PRIu64 " elements of it differ, at most %.3g apart", d->here, d->there,
                d->apart.differ, d->apart.most);
    if (d->apart.ulps) ls_text_add(out, " (%" PRIu64 " ulp)", d->apart.ulps);
}

/* What rank 0 knows, on all ranks. */
enum { COMPARED, DIFFERS, SAVED, WORDS };

ls_status ls_compare_step(ls_trainer *t, const ls_step_stats *s)
{
    ls_compare_run *r = t->compare;
    ls_group *g;
    char folder[PATH_BYTES];
    int64_t word[WORDS] = { 0 };
    difference d = { 0 };
    ls_file_info info = { 0 };
    ls_text why = { 0 };
    if (!r) return LS_OK;
    g = ls_world_group(t->w);
    const bool leads = ls_world_rank(t->w) == 0;
    const recorded *then = leads ? find(r, t->step) : NULL;
    snprintf(folder, sizeof folder, "%.500s/checkpoints/step-%08" PRId64, r->run, t->step);
    if (then) {
        add_number(&why, "loss", s->loss, then->loss);
        add_number(&why, "grad_norm", s->grad_norm, then->norm);
    }
    word[COMPARED] = then != NULL;
    word[DIFFERS] = why.n > 0;
    word[SAVED] = leads && ls_env_get()->info(folder, &info) == 0 && info.type == LS_FILE_DIR;
    LS_TRY(ls_broadcast(g, word, WORDS, LS_I64, 0));
    ls_train_task(t, LS_TASK_READING, folder);
    ls_status st = word[SAVED] ? compare_checkpoint(t, folder, &d) : LS_OK;
    ls_train_task(t, LS_TASK_NONE, NULL);
    if (word[DIFFERS] && st == LS_SHAPE) { /* the numbers differ all the same */
        ls_text_add(&why, "; %s", ls_last_error());
        st = LS_OK;
    }
    r->steps += word[COMPARED];
    r->checkpoints += word[SAVED];
    if (st == LS_OK && (word[DIFFERS] || *d.name)) {
        add_tensor(&why, &d);
        if (!word[SAVED]) ls_text_add(&why, "; no checkpoint of this step is there to compare tensors with");
        st = ls_text_status(&why);
        if (st == LS_OK)
            st = ls_fail(LS_DIVERGED, "step %" PRId64 " is the first that differs from %s: %s", t->step, r->run, why.p);
    }
    ls_text_free(&why);
    if (st == LS_OK || leads) return st;
    (void)ls_barrier(g); /* rank 0 ends the job */
    return ls_world_aborted(t->w);
}

void ls_compare_say(const ls_trainer *t)
{
    const ls_compare_run *r = t->compare;
    if (!r || !t->par.mesh.speaks) return;
    ls_say("compared with %s: %lld steps and %lld checkpoints are equal to the bit", r->run, (long long)r->steps,
           (long long)r->checkpoints);
}
