/* generation.c -- whether a job that failed is started again, and with how many ranks.
 *
 * Each generation is a job of its own, with its own page, store and secret, so that nothing of an older one can reach
 * it; and it begins when the ranks of the older one are gone.
 */
#include <signal.h> /* names of signals only */
#include <stdio.h>
#include <string.h>

#include "launch/impl.h"

#define MOST_IDLE 3 /* failures in a row without a new checkpoint between them */

/* What ends a rank alike each time. */
static bool is_hopeless(int code)
{
    static const ls_status kind[] = { LS_USAGE,       LS_BAD_FILE,   LS_IO, LS_COLL_MISMATCH,
                                      LS_AUTH_FAILED, LS_BAD_CONFIG, LS_NAN };
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        if (code == ls_status_exit_code(kind[i])) return true;
    return false;
}

static int smallest(const ls_generations *g) { return g->o.least_nproc > 0 ? g->o.least_nproc : g->nproc; }
static bool is_reduced(const ls_generations *g) { return g->o.nproc < g->nproc; }

bool ls_generation_may_grow(const ls_job *j)
{
    ls_saved now;
    const bool wanted = j->nnodes > 1 ? j->o->node_rank == 0 && ls_store_waiting(j->store) > 0 : is_reduced(j->gens);
    if (!wanted || j->phase != LS_PHASE_RUN) return false;
    ls_saved_read(&j->page->saved, &now);
    return now.state == LS_SAVED_ONE && now.step > j->gens->durable;
}

/* With so many ranks the next generation is begun. */
static void begin_next(ls_generations *g, int nproc)
{
    g->next_nproc = nproc;
    g->again = true;
}

void ls_generation_begin(ls_generations *g)
{
    g->o.nproc = g->next_nproc;
    g->number++;
    g->again = false;
}

/* The step that a training goes on from; -1: none. */
static int64_t newest(const ls_generations *g) { return g->snapshot > g->durable ? g->snapshot : g->durable; }

int64_t ls_generation_from(const ls_generations *g) { return newest(g) < 0 ? 0 : newest(g); }

/* Takes note of what this one has saved; true if that is newer than what earlier ones had. */
static bool note_progress(const ls_job *j, ls_generations *g)
{
    ls_saved now, snapshot;
    char dir[LS_RUN_DIR_BYTES];
    ls_run_dir_read(&j->page->run_dir, dir);
    if (*dir) memcpy(g->run_dir, dir, sizeof dir);
    ls_saved_read(&j->page->saved, &now);
    ls_saved_read(&j->page->snapshot, &snapshot);
    if (now.state != LS_SAVED_UNKNOWN) g->trains = true;
    const int64_t before = newest(g);
    if (snapshot.state == LS_SAVED_ONE) g->snapshot = snapshot.step;
    if (now.state == LS_SAVED_ONE && now.step > g->durable) {
        g->durable = now.step;
        memcpy(g->checkpoint, now.path, sizeof now.path);
    }
    return newest(g) > before;
}

/* A number of ranks that the program has refused before its first step. */
static bool try_fewer(const ls_job *j, ls_generations *g, int code)
{
    const bool refused = is_reduced(g) && code == ls_status_exit_code(LS_BAD_CONFIG);
    if (!refused) return false;
    begin_next(g, g->o.nproc > smallest(g) ? g->o.nproc - 1 : g->nproc);
    snprintf(g->note, sizeof g->note, "generation %u with %d rank%s: the program refuses %d", g->number + 1, g->next_nproc,
             g->next_nproc == 1 ? "" : "s", j->world);
    return true;
}

static int next_nproc(const ls_job *j, const ls_generations *g)
{
    const bool ours = j->culprit >= 0 && (j->status == LS_RANK_DIED || j->status == LS_RANK_HUNG);
    return ours && g->o.nproc > smallest(g) ? g->o.nproc - 1 : g->o.nproc;
}

void ls_generation_decide(ls_job *j, int code)
{
    ls_generations *g = j->gens;
    const bool planned = j->growing && j->status == LS_OK && j->user_signal == SIGTERM;
    const bool progress = note_progress(j, g);
    g->again = false;
    *g->note = 0;
    if (planned) {
        begin_next(g, g->nproc);
        return;
    }
    if (j->status >= 0 || j->user_signal || g->o.max_restarts == 0) return;
    if (try_fewer(j, g, code)) return;
    const bool other = j->nnodes > 1 && j->o->node_rank > 0; /* what was saved node 0 knows best */
    g->idle = progress || !g->trains || other ? 0 : g->idle + 1;
    if (j->nnodes > 1) code = ls_status_exit_code(j->status); /* all launchers decide alike */
    const bool may_fit = j->nhere < j->nnodes && code == ls_status_exit_code(LS_BAD_CONFIG);
    if (j->stop_asked) snprintf(g->note, sizeof g->note, "none: a signal came that stops the job");
    else if (is_hopeless(code) && !may_fit)
        snprintf(g->note, sizeof g->note, "none: exit code %d means that the same would happen again", code);
    else if (j->unended)
        snprintf(g->note, sizeof g->note, "none: a rank of this generation does not end");
    else if (g->idle == MOST_IDLE)
        snprintf(g->note, sizeof g->note, "none: no new checkpoint was saved between %d failures", MOST_IDLE);
    else if (g->restarts == g->o.max_restarts)
        snprintf(g->note, sizeof g->note, "none: all %d of --max-restarts are used", g->restarts);
    else {
        begin_next(g, next_nproc(j, g));
        g->restarts++;
        char from[64] = "";
        if (g->trains && newest(g) < 0) snprintf(from, sizeof from, " from the beginning");
        if (g->trains && newest(g) >= 0)
            snprintf(from, sizeof from, " from step %lld%s", (long long)newest(g), newest(g) > g->durable ? " in memory" : "");
        snprintf(g->note, sizeof g->note, "as generation %u%s with %d rank%s here, restart %d of %d", g->number + 1, from, g->next_nproc,
                 g->next_nproc == 1 ? "" : "s", g->restarts, g->o.max_restarts);
    }
}
