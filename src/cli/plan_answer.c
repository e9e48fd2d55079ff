/* plan_answer.c -- the cluster, the search and the report of `lockstep plan MODEL --topology ...`. */
#include "cli/plan_answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/team.h"
#include "cli/planned.h"
#include "lockstep/opts.h"
#include "plan/plan_recipe.h"
#include "plan/plan_report.h"
#include "sim/quantity.h"

/* A question whose answer is a cluster, in place of a plan on one. */
static bool asks_for_a_cluster(const ls_plan_request *a)
{
    return a->want_mfu > 0 || a->want_s > 0 || strcmp(a->objective, "cost") == 0;
}

/* A preset has as many nodes as the world needs; a file has what it says. */
static ls_status cluster(const ls_plan_request *a, ls_topo *t, int64_t *world)
{
    const bool preset = !strchr(a->topology, '/') && !strchr(a->topology, '.');
    if (ls_cli_is_local(a->topology))
        return ls_fail(LS_UNSUPPORTED, "--topology local: there are no constants of this machine's devices: expected a "
                       "preset or a file; `lockstep sim` and `lockstep train --predict` predict steps on this machine");
    LS_TRY(ls_topo_load(a->topology, t));
    int64_t units = a->units;
    const int64_t each = ls_topo_devices(t) / t->level[t->nlevels - 1].count;
    *world = a->world;
    if (!units && preset && asks_for_a_cluster(a) && !a->world) *world = 16384 / each * each;
    if (!units && preset && *world > 0) units = (*world + each - 1) / each;
    if (units > 0) LS_TRY(ls_topo_resize(t, units));
    if (*world == 0) *world = ls_topo_devices(t);
    return LS_OK;
}

static ls_status schedules(const char *text, unsigned *out)
{
    enum { N = LS_PIPE_DUALPIPE + 1 };
    const char *names[N];
    for (int i = 0; i < N; i++) names[i] = ls_pipe_form_name((ls_pipe_form)i);
    for (const char *p = text; p && *p;) {
        const size_t n = strcspn(p, ",");
        int i = 0;
        while (i < N && !(strlen(names[i]) == n && strncmp(names[i], p, n) == 0)) i++;
        if (i == N)
            return ls_fail(LS_USAGE, "--schedules %s: there is no '%.*s': expected some of gpipe, 1f1b, interleaved, "
                        "zb-h1, zb-h2, zb-v and dualpipe, with commas between them", text, (int)(n < 40 ? n : 40), p);
        *out |= 1u << i;
        p += n + (p[n] == ',' && p[n + 1]); /* a comma at the end is followed by nothing: refused */
    }
    return LS_OK;
}

/* 1024 tokens per rank, 4 Mi tokens at least, as a power of two of sequences. */
static int64_t usual_batch(int64_t world, int64_t seq)
{
    const double tokens = fmax(4096.0 * 1024, 1024.0 * (double)world);
    int64_t b = 1;
    while ((double)(2 * b) * (double)seq <= tokens) b *= 2;
    return b;
}

static ls_status nothing_fits(const ls_layout_query *q, ls_layouts *room)
{
    ls_layout_query least = *q;
    char plan[200];
    const long long looked = (long long)room->legal;
    const double memory = q->memory > 0 ? q->memory : q->topo->device.memory_bytes;
    least.objective = LS_LEAST_MEMORY, least.memory = (double)INFINITY, least.top = 1, least.exhaustive = false;
    LS_TRY(ls_layout_search(&least, room));
    const ls_layout_cost *c = &room->best[0];
    return ls_fail(LS_BAD_CONFIG, "%s does not fit: none of %lld layouts of %lld ranks needs less than %.2f GB of "
                        "memory per device, and there are %.2f GB; the nearest miss, by %.2f GB, is %s; take more "
                        "ranks, a smaller batch or sequence, or more memory", q->model.name, looked,
                        (long long)q->world, 1e-9 * c->bytes, 1e-9 *
                   memory,
                   1e-9 * (c->bytes - memory), ls_layout_text(&c->layout, plan, sizeof plan));
}

static ls_status worlds(const ls_plan_request *a, const ls_layout_query *q, bool batch_given, ls_text *out)
{
    ls_world_plan *all = malloc(LS_WORLDS * sizeof *all);
    int n = 0;
    ls_status st = all ? ls_worlds_of(q, all, &n) : ls_fail(LS_NO_MEMORY, "plans of worlds");
    const ls_plan_report r = { .q = q, .batch_given = batch_given, .worlds = all, .nworlds = n, .want_mfu = a->want_mfu,
                               .want_s = a->want_s, .cheapest = strcmp(a->objective, "cost") == 0 };
    if (st == LS_OK && a->json) ls_plan_json(&r, out);
    else if (st == LS_OK) ls_plan_print(&r, out);
    free(all);
    return st == LS_OK ? ls_text_status(out) : st;
}

/* The best plan as a recipe, into a file. */
static ls_status write_recipe(const ls_plan_request *a, const ls_layout_query *q, const ls_layout *l)
{
    ls_text t = { 0 }, cluster = { 0 };
    ls_text_add(&cluster, "--topology %s", a->topology);
    if (a->units) ls_text_add(&cluster, " --units %lld", (long long)a->units);
    ls_status st = ls_layout_recipe(q, l, ls_text_str(&cluster), &t);
    if (st == LS_OK) st = ls_file_write(a->write, t.p, t.n);
    ls_text_free(&cluster);
    ls_text_free(&t);
    return st;
}

static ls_status best(const ls_plan_request *a, const ls_layout_query *q, bool batch_given, ls_layouts *found,
    ls_text *out)
{
    ls_neighbour neighbour[LS_NEIGHBOURS];
    ls_sensitivity sensitivity[LS_SENSITIVITIES];
    ls_by_flops by_flops;
    ls_plan_report r = { .q = q, .found = found, .batch_given = batch_given, .neighbour = neighbour };
    LS_TRY(ls_layout_search(q, found));
    if (found->n == 0) return nothing_fits(q, found);
    LS_TRY(ls_neighbours_of(q, &found->best[0], neighbour, &r.nneighbours));
    if (a->sensitivity) {
        LS_TRY(ls_sensitivity_of(q, &found->best[0], sensitivity));
        r.sensitivity = sensitivity;
    }
    if (a->rank_by && strcmp(a->rank_by, "flops") == 0) {
        LS_TRY(ls_by_flops_of(q, &by_flops));
        r.by_flops = &by_flops;
    }
    if (a->write && *a->write) LS_TRY(write_recipe(a, q, &found->best[0].layout));
    if (a->json) ls_plan_json(&r, out);
    else ls_plan_print(&r, out);
    if (!a->json && a->write && *a->write) ls_text_add(out, "recipe: %s\n", a->write);
    return ls_text_status(out);
}

ls_status ls_plan_answer(const ls_plan_request *a, const ls_llm *m, ls_text *out)
{
    ls_topo t;
    ls_layout_query q = { .model = *m, .topo = &t, .top = a->top, .exhaustive = a->exhaustive, .fixed = a->fixed };
    char why[200];
    const bool by_flops = a->rank_by && strcmp(a->rank_by, "flops") == 0;
    if (asks_for_a_cluster(a) && ((a->write && *a->write) || a->sensitivity || by_flops))
        return ls_fail(LS_USAGE,
            "--write, --sensitivity and --rank-by are of one plan: expected them without --want-mfu, --want-step and "
                       "--objective cost, which compare clusters");
    LS_TRY(cluster(a, &t, &q.world));
    LS_TRY(schedules(a->schedules, &q.schedules));
    if (a->write && *a->write && !q.schedules) q.schedules = ls_recipe_schedules() & ~(1u << LS_PIPE_ZB_V);
    if (a->memory && *a->memory && !ls_quantity_read(LS_Q_MEMORY, a->memory, &q.memory, why, sizeof why))
        return ls_fail(LS_USAGE, "--memory %s: %s", a->memory, why);
    q.batch = a->batch > 0 ? a->batch : usual_batch(q.world, m->seq);
    q.bits = strcmp(a->dtype, "fp8") == 0 ? 8 : strcmp(a->dtype, "fp4") == 0 ? 4 : 16;
    q.objective = strcmp(a->objective, "memory") == 0 ? LS_LEAST_MEMORY : LS_LEAST_TIME;
    q.zeros = a->zero >= 0 ? 1u << a->zero : 0;
    if (a->threads > 0) ls_team_resize(a->threads);
    if (asks_for_a_cluster(a)) return worlds(a, &q, a->batch > 0, out);
    ls_layouts *found = malloc(sizeof *found);
    if (!found) return ls_fail(LS_NO_MEMORY, "plans");
    const ls_status st = best(a, &q, a->batch > 0, found, out);
    free(found);
    return st;
}
