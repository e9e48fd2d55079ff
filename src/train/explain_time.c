/* explain_time.c -- where the time of a run's steps went, the cause of the largest loss, and what to do about it. */
#include "train/explain_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/explain_topic.h"

#define LEAST_LOSS 0.1 /* a smaller part of a step is no cause */
#define SLOW_LINK 4.0  /* collectives take so many times what the cost model expects: the link is slow */

static const char *const cause_name[LS_CAUSES] = { "none", "slow-rank", "slow-loader", "slow-link",
                                                   "oversubscribed", "exposed-communication" };

const char *ls_cause_name(ls_cause c) { return cause_name[c]; }

/* --- the slowest rank --------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* As straggler.c takes it: of an even number of ranks the lower one of both in the middle. */
static ls_status median_of(const double *busy, int n, double *out)
{
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return ls_fail(LS_NO_MEMORY, "the busy times of %d ranks", n);
    memcpy(sorted, busy, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    *out = sorted[(n - 1) / 2];
    free(sorted);
    return LS_OK;
}

/* The rank and the phase with the largest distance from the median rank. */
static ls_status find_slowest(const double *busy, int n, ls_step_split *s)
{
    for (int p = 0; p < LS_BUSY_PHASES; p++) {
        const double *of = busy + p * n;
        double median = 0;
        LS_TRY(median_of(of, n, &median));
        for (int r = 0; r < n; r++) {
            if (s->slowest >= 0 && of[r] - median <= s->slowest_s - s->median_s) continue;
            s->slowest = r;
            s->phase = (ls_busy)p;
            s->slowest_s = of[r];
            s->median_s = median;
        }
    }
    return LS_OK;
}

/* Rank 0 waits for the rank that is busy longest, and for no longer than it waits at all. */
static double wait_of(const double *busy, int n, double exposed)
{
    double most = 0;
    for (int r = 0; r < n; r++) {
        double all = 0;
        for (int p = 0; p < LS_BUSY_PHASES; p++) all += busy[p * n + r] - busy[p * n];
        if (all > most) most = all;
    }
    return most < exposed ? most : exposed;
}

static ls_status compare_ranks(const ls_explained *e, ls_step_split *s)
{
    double *busy = NULL;
    LS_TRY(ls_run_busy_read(e->folder, e->size, &busy));
    s->waits_known = busy != NULL;
    ls_status st = LS_OK;
    if (busy) {
        s->wait = wait_of(busy, e->size, s->exposed);
        s->exposed -= s->wait;
        st = find_slowest(busy, e->size, s);
    }
    free(busy);
    return st;
}

/* --- the link ----------------------------------------------------------------------------------------------- */

static ls_level level_of(const ls_explained *e, const ls_explain_layout *l)
{
    return l->nnodes > 1 ? LS_LEVEL_NETWORK : ls_level_within(e->c->comm.transport);
}

static ls_status compare_link(const ls_explained *e, const ls_explain_layout *l, ls_step_split *s)
{
    ls_topic_of t = { .c = e->c, .mc = e->mc, .l = l };
    LS_TRY(ls_cost_load(&t.cost, t.cost_from, sizeof t.cost_from));
    snprintf(s->cost_from, sizeof s->cost_from, "%s", t.cost_from);
    s->level = level_of(e, l);
    for (int a = 0; a <= LS_AXES; a++) s->expected += 1e-9 * ls_axis_cost_of(&t, l, (ls_axis)a).ns[s->level];
    s->under_way = s->exposed + e->k->hidden_s;
    s->peak = 1e9 / t.cost.link[s->level].beta_ns;
    /* Without exposed time the wait for a rank hides how long they took. */
    s->bus = s->exposed > 0 ? (double)e->k->bytes / s->under_way : 0;
    return LS_OK;
}

/* --- the cause ---------------------------------------------------------------------------------------------- */

static void consider(ls_step_split *s, ls_cause cause, int rank, double lost)
{
    if (!(lost >= LEAST_LOSS * s->step) || lost <= s->lost) return;
    s->cause = cause;
    s->rank = rank;
    s->lost = lost;
}

static void find_cause(const ls_explained *e, ls_step_split *s)
{
    const double ratio = e->c->log.straggler > 1 ? e->c->log.straggler : 1.5;
    const bool slow = s->slowest >= 0 && ls_straggler_is_slow(ratio, s->slowest_s, s->median_s, s->step);
    /* What ranks of one memory take longer, they wait for a core: nothing is sent that could be slow. */
    const bool slower = s->under_way >= SLOW_LINK * s->expected;
    const bool sent = s->level != LS_LEVEL_MEMORY;
    const ls_cause link = !slower ? LS_CAUSE_EXPOSED : sent ? LS_CAUSE_SLOW_LINK : LS_CAUSE_OVERSUBSCRIBED;
    if (slow)
        consider(s, s->phase == LS_BUSY_INPUT ? LS_CAUSE_SLOW_LOADER : LS_CAUSE_SLOW_RANK, s->slowest,
                 s->slowest_s - s->median_s);
    if (!slow || s->phase != LS_BUSY_INPUT) consider(s, LS_CAUSE_SLOW_LOADER, -1, s->data);
    consider(s, link, -1, s->exposed);
}

ls_status ls_step_split_of(const ls_explained *e, const ls_explain_layout *l, ls_step_split *out)
{
    const ls_run_counters *k = e->k;
    *out = (ls_step_split){ .step = k->seconds, .exposed = k->exposed_s, .data = k->data_s, .slowest = -1, .rank = -1 };
    out->compute = fmax(0, k->seconds - k->exposed_s - k->data_s);
    if (e->size > 1) LS_TRY(compare_ranks(e, out));
    LS_TRY(compare_link(e, l, out));
    find_cause(e, out);
    return LS_OK;
}

/* --- in words ----------------------------------------------------------------------------------------------- */

static const char *doing(const ls_step_split *s)
{
    return s->phase == LS_BUSY_INPUT ? "loads its samples for" : "computes for";
}

void ls_step_split_cause(const ls_step_split *s, ls_text *out)
{
    const double part = 100.0 * s->lost / s->step;
    if (s->cause == LS_CAUSE_NONE)
        ls_text_add(out, "cause: none: no loss takes %.0f %% of a step; ranks compute for %.1f %% of it\n",
                    100 * LEAST_LOSS, 100.0 * s->compute / s->step);
    else if (s->cause == LS_CAUSE_SLOW_LINK)
        ls_text_add(out, "cause: slow-link: rank 0 waits for messages for %.1f %% of a step, and collectives take %.3g ms "
                         "where the cost model expects %.3g ms\n", part, 1e3 * s->under_way, 1e3 * s->expected);
    else if (s->cause == LS_CAUSE_OVERSUBSCRIBED)
        ls_text_add(out, "cause: oversubscribed: rank 0 waits for %.1f %% of a step, and collectives in memory take %.3g ms where the "
                         "cost model expects %.3g ms: ranks wait for a core\n", part, 1e3 * s->under_way, 1e3 * s->expected);
    else if (s->cause == LS_CAUSE_EXPOSED)
        ls_text_add(out, "cause: exposed-communication: rank 0 waits for messages for %.1f %% of a step, on a link that is as "
                         "fast as expected\n", part);
    else if (s->rank >= 0)
        ls_text_add(out, "cause: %s: rank %d %s %.3g ms per step, the median rank for %.3g ms: %.1f %% of a step\n",
                    cause_name[s->cause], s->rank, doing(s), 1e3 * s->slowest_s, 1e3 * s->median_s, part);
    else
        ls_text_add(out, "cause: slow-loader: all ranks wait for samples, rank 0 for %.1f %% of a step\n", part);
}

static const char *advice(const ls_step_split *s)
{
    static const char *const of[LS_CAUSES] = {
        [LS_CAUSE_NONE] = "a faster step needs less computing per rank: more ranks, or faster products",
        [LS_CAUSE_SLOW_RANK] = "look at what else runs where this rank runs, and at its clock and its part of the model",
        [LS_CAUSE_SLOW_LOADER] = "raise data.workers, or put the data on a faster disk",
        [LS_CAUSE_SLOW_LINK] = "measure each pair of ranks by `lockstep topo links` with the same transport, and the "
                               "cost model's numbers by `lockstep calibrate`; until it is mended, comm.wire bf16 halves the bytes of gradients",
        [LS_CAUSE_OVERSUBSCRIBED] = "have at most as many ranks and threads as cores, and look at what else runs here",
        [LS_CAUSE_EXPOSED] = "overlap more: ddp.overlap true, the bucket cap of `lockstep tune buckets`; or send less: more "
                             "samples per rank and step, comm.wire bf16",
    };
    return of[s->cause];
}

static void add_part(const ls_step_split *s, const char *name, double seconds, ls_text *out)
{
    ls_text_add(out, "  %-24s %10.3f ms %6.1f %%\n", name, 1e3 * seconds, 100.0 * seconds / s->step);
}

void ls_step_split_text(const ls_step_split *s, ls_text *out)
{
    char bus[32], peak[32];
    ls_text_add(out, "\nwhere the time of a step goes, rank 0\n");
    add_part(s, "compute", s->compute, out);
    add_part(s, "exposed communication", s->exposed, out);
    if (s->waits_known) add_part(s, "wait for a slower rank", s->wait, out);
    add_part(s, "data", s->data, out);
    if (s->slowest >= 0)
        ls_text_add(out, "  slowest: rank %d %s %.3f ms per step, the median rank for %.3f ms\n", s->slowest, doing(s),
                    1e3 * s->slowest_s, 1e3 * s->median_s);
    if (s->bus > 0)
        ls_text_add(out, "  bus bandwidth: %s/s, %.2g %% of the link's %s/s (%s, by %s)\n",
                    ls_bytes_text(s->bus, bus, sizeof bus), 100.0 * s->bus / s->peak,
                    ls_bytes_text(s->peak, peak, sizeof peak), ls_level_name(s->level), s->cost_from);
    ls_text_add(out, "  recommendation: %s\n", advice(s));
}

/* --- as JSON ------------------------------------------------------------------------------------------------ */

static void add_number(const char *key, double v, ls_text *out)
{
    ls_json_field(out, key, v);
    ls_text_add(out, ", ");
}

void ls_step_split_json(const ls_step_split *s, ls_text *out)
{
    const bool known = s->slowest >= 0;
    ls_text_add(out, "{");
    add_number("compute_s", s->compute, out);
    add_number("exposed_s", s->exposed, out);
    add_number("wait_s", s->waits_known ? s->wait : (double)NAN, out);
    add_number("data_s", s->data, out);
    add_number("step_s", s->step, out);
    ls_text_add(out, "\"slowest_rank\": ");
    ls_json_number(out, known ? s->slowest : (double)NAN);
    ls_text_add(out, ", \"slowest_in\": %s, ", !known ? "null" : s->phase == LS_BUSY_INPUT ? "\"data\"" : "\"compute\"");
    add_number("slowest_s", known ? s->slowest_s : (double)NAN, out);
    add_number("median_s", known ? s->median_s : (double)NAN, out);
    ls_text_add(out, "\"link\": \"%s\", ", ls_level_name(s->level));
    add_number("bus_bytes_per_s", s->bus > 0 ? s->bus : (double)NAN, out);
    add_number("link_bytes_per_s", s->peak, out);
    add_number("collectives_s", s->under_way, out);
    add_number("expected_s", s->expected, out);
    ls_text_add(out, "\"cause\": \"%s\", \"cause_rank\": ", cause_name[s->cause]);
    ls_json_number(out, s->rank >= 0 ? s->rank : (double)NAN);
    ls_text_add(out, ", \"recommendation\": ");
    ls_json_string(out, advice(s));
    ls_text_add(out, "}");
}
