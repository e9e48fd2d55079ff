/* watch.c -- the launcher's event loop: who ended first, and the end of the rest.
 *
 *   RUN    every rank works. Left at the first failure (a rank ends badly, one
 *          aborts through the world page, one is stopped too long) or when the
 *          user asks us to stop.
 *   GRACE  the others learn of it through the page and end by themselves.
 *   TERM   SIGTERM to those that have not.
 *   KILL   SIGKILL, which a stopped process obeys too.
 *
 * Each phase has a deadline, so the loop ends.
 */
#include <errno.h>
#include <signal.h> /* names of signals only */
#include <stdio.h>
#include <string.h>

#include "base/commit.h"
#include "base/log.h"
#include "launch/impl.h"

#define TICK_NS 100000000ull        /* how late an abort through the page is seen when no rank ends */
#define ANSWER_NS 1000000000ull     /* until we speak for ranks that should */
#define GRACE_NS 500000000ull       /* after a failure: to end by themselves */
#define TERM_NS 300000000ull        /* between SIGTERM and SIGKILL */
#define GIVE_UP_NS 5000000000ull    /* after SIGKILL */
#define INTERRUPT_NS 5000000000ull  /* after Ctrl-C: for ranks of which nothing is seen to move */
#define ECHO_NS 10000000ull         /* timeout(1) and shells signal a process and its group at once */
#define PREEMPT_NS 25000000000ull   /* after SIGTERM: the same */
#define STOP_NS 3600000000000ull    /* after either: for ranks that move, at most */
#define STOP_STEPS 2u               /* that they may still begin: all of them agree to stop */
#define PART_NS 1000000000ull       /* to tell the other hosts why we end */
#define WORD_NS 10000000000ull      /* for node 0 to say why the ranks stopped */
#define MORE_NODES "the next generation begins with more nodes"
#define REJECT_LOG_NS 1000000000ull /* one line about strangers in this time */

/* Its process group gets it; a rank behind a debugger shares ours. */
static void signal_rank(ls_job *j, int r, int sig)
{
    ls_job_rank *k = &j->rank[r];
    if (!k->alive) return;
    ls_env_get()->kill(k->own_group ? -k->pid : k->pid, sig);
    k->told = true;
}

void ls_job_signal(ls_job *j, int sig)
{
    for (int r = 0; r < j->o->nproc; r++) signal_rank(j, r, sig);
}

/* --- what a rank was doing ----------------------------------------------------------------- */

/* " in step 12, in all_reduce #118 (bucket 3)", or "" for a program that never joined a world. */
static const char *where(const ls_job *j, int r, char *buf, size_t n)
{
    char text[LS_TASK_FILE_BYTES + 160];
    buf[0] = 0;
    if (ls_job_joined(j, r))
        snprintf(buf, n, " %s", ls_page_where(j->page, j->first + r, text, sizeof text));
    return buf;
}

/* `rank` of the world; -1: nobody's. */
static void detected(ls_job *j, int rank, ls_status s, const char *text)
{
    const ls_env *env = ls_env_get();
    ls_text more = { 0 };
    j->first_rank = rank;
    j->culprit = rank >= j->first && rank < j->first + j->o->nproc ? rank - j->first : -1;
    j->status = s;
    snprintf(j->message, sizeof j->message, "%s", text);
    if (!j->failed_ns) {
        j->failed_ns = env->mono_ns();
        j->failed_wall_ns = env->wall_ns();
    }
    ls_text_add(&more, ",\"code_word\":\"%s\",\"message\":", ls_status_word(s));
    ls_json_string(&more, text);
    ls_event_line(j->events_fd, j->page->generation, "detect", rank, ls_text_str(&more));
    ls_text_free(&more);
    for (int r = 0; r < j->o->nproc; r++) /* consequences come after the cause, which a broken connection seldom is */
        if (r != j->culprit || s == LS_PEER_RESET)
            ls_stream_hold(&j->rank[r].err, j->o->quiet ? LS_HOLD_NOT : LS_HOLD_CUT);
        else ls_stream_release(&j->rank[r].err);
}

static void enter(ls_job *j, ls_phase phase, uint64_t now_ns, uint64_t lasts_ns)
{
    j->phase = phase;
    j->phase_ns = now_ns + lasts_ns;
    for (int r = 0; phase == LS_PHASE_GRACE && r < j->o->nproc; r++) /* a stopped one cannot end by itself */
        if (j->rank[r].stopped_ns) signal_rank(j, r, SIGKILL);
    if (phase == LS_PHASE_TERM) ls_job_signal(j, SIGTERM);
    if (phase == LS_PHASE_KILL) ls_job_signal(j, SIGKILL);
}

/* --- ends ------------------------------------------------------------------------------------ */

/* Only if it is `from` now: the rank itself writes this word, too. */
static void set_state(ls_job *j, int r, uint32_t from, uint32_t to)
{
    _Atomic uint32_t *state = &j->page->rank[j->first + r].state;
    atomic_compare_exchange_strong_explicit(state, &from, to, memory_order_relaxed, memory_order_relaxed);
}

static bool ended_badly(const ls_job_rank *k) { return k->started && !k->alive && (k->code != 0 || k->signal != 0); }

/* An end that no other rank's end explains: not by our own signal, and not the
 * exit code of one that lost its peers. Larger is more likely the cause. */
static int weight(const ls_job_rank *k)
{
    if (!ended_badly(k) || (k->told && k->signal)) return 0;
    if (k->signal) return 3;
    return k->code == ls_status_exit_code(LS_RANK_DIED) ? 1 : 2;
}

/* The job has failed through our rank r, unless a rank recorded an earlier cause. */
static void fail_by(ls_job *j, int r, ls_status s, const char *text)
{
    char cause[LS_ERROR_BYTES];
    ls_status cs = s;
    int by = r < 0 ? -1 : j->first + r;
    ls_page_abort(j->page, r < 0 ? LS_ABORT_BY_LAUNCHER : 1 + (uint32_t)by, s, text);
    if (!ls_page_cause(j->page, &by, &cs, cause, sizeof cause)) snprintf(cause, sizeof cause, "%s", text);
    if (by >= j->world) by = -1; /* the page is shared memory: anything may stand there */
    if (cs >= 0) cs = LS_ABORTED;
    bool other = r >= 0 && by != j->first + r;
    if (cs == LS_PEER_RESET && other && weight(&j->rank[r]) > 1) { /* its death broke the connection */
        by = j->first + r;
        cs = s;
        snprintf(cause, sizeof cause, "%s", text);
    }
    for (int k = 0; k < j->o->nproc && cs == LS_RANK_HUNG; k++) /* a peer gave up on it before us */
        if (j->rank[k].stopped_ns) by = j->first + k;
    detected(j, by, cs, cause);
    enter(j, LS_PHASE_GRACE, ls_env_get()->mono_ns(), GRACE_NS);
}

static void describe_end(const ls_job *j, int r, char *text, size_t n)
{
    const ls_job_rank *k = &j->rank[r];
    char at[300];
    if (k->signal)
        snprintf(text, n, "rank %d (pid %d) was killed by signal %d (%s)%s", j->first + r, k->pid, k->signal,
                 ls_signal_name(k->signal), where(j, r, at, sizeof at));
    else
        snprintf(text, n, "rank %d (pid %d) ended with exit code %d%s", j->first + r, k->pid, k->code,
                 where(j, r, at, sizeof at));
}

static void sweep_of(const ls_task_slot *slot, int pid)
{
    ls_task task;
    char folder[LS_TASK_FILE_BYTES + 2];
    if (!ls_task_read(slot, &task)) return;
    if (task.kind != LS_TASK_SAVING && task.kind != LS_TASK_WRITING) return;
    ls_commit_parent(task.file, folder);
    (void)ls_commit_sweep(folder, pid);
    (void)ls_commit_sweep(task.file, pid); /* it may be a folder */
}

/* Removes the temporary files of saves, or other work, in which our rank r was killed, once no rank writes there. */
static void sweep(const ls_job *j, int r)
{
    sweep_of(&j->page->rank[j->first + r].task, j->rank[r].pid);
    sweep_of(&j->page->rank[j->first + r].meanwhile, j->rank[r].pid);
}

/* Takes note of a rank's end; true if it has ended. */
static bool collect(ls_job *j, int r)
{
    const ls_env *env = ls_env_get();
    ls_job_rank *k = &j->rank[r];
    int code;
    ls_child_state state = env->child_poll(k->pid, &code);

    if (state == LS_CHILD_STOPPED && !k->stopped_ns) {
        k->stopped_ns = env->mono_ns();
        k->stopped_by = code;
        set_state(j, r, LS_RANK_RUNNING, LS_RANK_STOPPED);
    } else if (state == LS_CHILD_RUNNING && k->stopped_ns) {
        k->stopped_ns = 0;
        set_state(j, r, LS_RANK_STOPPED, LS_RANK_RUNNING);
    }
    if (state == LS_CHILD_RUNNING || state == LS_CHILD_STOPPED) return false;

    k->joined = ls_job_joined(j, r);
    k->alive = false;
    k->stopped_ns = 0;
    j->nalive--;
    k->code = state == LS_CHILD_EXITED ? code : 0;
    k->signal = state == LS_CHILD_SIGNALED ? code : 0;
    if (k->own_group) env->kill(-k->pid, SIGKILL); /* what it started and did not wait for */
    if (k->pidfd >= 0) env->close_fd(k->pidfd);
    k->pidfd = -1;
    if (ended_badly(k)) atomic_store_explicit(&j->page->rank[j->first + r].state, LS_RANK_DEAD, memory_order_relaxed);

    char more[128];
    if (k->signal) snprintf(more, sizeof more, ",\"pid\":%d,\"signal\":\"%s\"", k->pid, ls_signal_name(k->signal));
    else snprintf(more, sizeof more, ",\"pid\":%d,\"exitcode\":%d", k->pid, k->code);
    ls_event_line(j->events_fd, j->page->generation, "rank_exit", j->first + r, more);
    return true;
}

/* --- a stop on request ------------------------------------------------------------------------- */

/* Time after a signal of the user's for ranks of which nothing is seen to move: ranks in a world end by themselves when
 * one of them hangs. */
static uint64_t patience_ns(const ls_job *j)
{
    const uint64_t least = j->user_signal == SIGINT ? INTERRUPT_NS : PREEMPT_NS;
    if (j->o->shutdown_ns) return j->o->shutdown_ns;
    for (int r = 0; r < j->o->nproc; r++)
        if (ls_job_joined(j, r)) return j->timeout_ns + INTERRUPT_NS > least ? j->timeout_ns + INTERRUPT_NS : least;
    return least;
}

/* Where every rank of the world is, as one number that changes when any of them goes on. */
static uint64_t where_all_are(const ls_job *j)
{
    uint64_t all = 0;
    for (int r = 0; r < j->world; r++) {
        const ls_rank_slot *slot = &j->page->rank[r];
        const uint32_t newest = atomic_load_explicit(&slot->newest, memory_order_relaxed);
        const struct ls_desc_slot *desc = &slot->desc[newest % (LS_PAGE_GROUPS * LS_PAGE_HISTORY)];
        const bool ours = r >= j->first && r < j->first + j->o->nproc; /* mirrored times vary by themselves */
        const uint64_t word[] = {
            atomic_load_explicit(&slot->step, memory_order_relaxed),
            atomic_load_explicit(&slot->micro_batch, memory_order_relaxed),
            atomic_load_explicit(&slot->in_coll, memory_order_relaxed),
            atomic_load_explicit(&slot->waits_for, memory_order_relaxed),
            newest,
            atomic_load_explicit(&desc->version, memory_order_relaxed),
            ours ? atomic_load_explicit(&slot->beat_ns, memory_order_relaxed) : 0,
        };
        for (size_t i = 0; i < sizeof word / sizeof *word; i++)
            all = (all ^ word[i]) * 0x9e3779b97f4a7c15ull + (all >> 29);
    }
    return all;
}

static uint32_t furthest_step(const ls_job *j)
{
    uint32_t most = 0;
    for (int r = 0; r < j->world; r++) {
        const uint32_t step = atomic_load_explicit(&j->page->rank[r].step, memory_order_relaxed);
        most = step > most ? step : most;
    }
    return most;
}

/* Whether a rank, here or on another host, does long work that may go on. */
static bool is_saving(const ls_job *j, uint64_t now_ns)
{
    ls_task task;
    for (int r = 0; r < j->world; r++) {
        const int k = r - j->first;
        if (k >= 0 && k < j->o->nproc && (!j->rank[k].alive || j->rank[k].stopped_ns)) continue;
        if (ls_task_read(&j->page->rank[r].task, &task) && ls_task_left_ns(&task, now_ns) > 0) return true;
    }
    return false;
}

static void begin_stop(ls_job *j, int sig)
{
    j->user_signal = sig;
    j->user_signal_ns = ls_env_get()->mono_ns();
    j->stop_moved = where_all_are(j);
    j->stop_step = furthest_step(j);
    j->phase = LS_PHASE_TERM; /* a rank's end is no failure now; SIGKILL is the next phase */
    j->phase_ns = j->user_signal_ns + patience_ns(j);
}

/* A save has its own time; ranks that go on with their step have ours from the moment they last did. */
static void go_on_stopping(ls_job *j, uint64_t now_ns)
{
    if (j->phase != LS_PHASE_TERM || !j->user_signal || j->o->shutdown_ns) return;
    const uint64_t all = where_all_are(j);
    const bool moved = all != j->stop_moved && now_ns < j->user_signal_ns + STOP_NS &&
                       furthest_step(j) <= j->stop_step + STOP_STEPS;
    j->stop_moved = all;
    if (moved || is_saving(j, now_ns)) j->phase_ns = now_ns + patience_ns(j);
}

/* The user has stopped another host's launcher: as on_signal has it, but our ranks know, and end by themselves. */
static void stop_with_others(ls_job *j, int sig)
{
    begin_stop(j, sig);
    j->answered = true;
}

/* The user stopped another host's launcher, and the ranks told one another. */
static bool stopped_elsewhere(const ls_job *j, int r)
{
    const ls_job_rank *k = &j->rank[r];
    bool in_order = k->code == ls_status_exit_code(LS_PREEMPTED) || k->code == ls_status_exit_code(LS_INTERRUPTED);
    return j->nnodes > 1 && !j->user_signal && !k->signal && in_order;
}

/* Why a job that did not fail is stopped, for its ranks and the other launchers. */
static const char *why_stopped(const ls_job *j, char *buf, size_t n)
{
    if (j->growing) snprintf(buf, n, "%s", MORE_NODES);
    else snprintf(buf, n, "stopped by the user (%s)", ls_signal_name(j->user_signal));
    return buf;
}

/* Notes every end; in RUN, the one that explains the others starts the failure. */
static void look_at_ranks(ls_job *j)
{
    char text[LS_ERROR_BYTES];
    bool broken = false;
    int first = -1;
    for (int r = 0; r < j->o->nproc; r++) {
        ls_job_rank *k = &j->rank[r];
        k->was_alive = k->alive;
        if (!k->alive || !collect(j, r)) continue;
        broken = broken || ended_badly(k);
        if (weight(k) == 0) continue;
        if (first < 0 || weight(k) > weight(&j->rank[first])) first = r; /* several at once: their order is unknown */
    }
    if (first >= 0 && j->phase == LS_PHASE_RUN && stopped_elsewhere(j, first)) {
        stop_with_others(j, j->rank[first].code == ls_status_exit_code(LS_PREEMPTED) ? SIGTERM : SIGINT);
    } else if (broken && j->user_signal) { /* the others must not wait for it */
        ls_page_abort(j->page, LS_ABORT_BY_LAUNCHER, LS_INTERRUPTED, why_stopped(j, text, sizeof text));
    } else if (first >= 0 && j->phase == LS_PHASE_RUN) {
        describe_end(j, first, text, sizeof text);
        fail_by(j, first, LS_RANK_DIED, text);
    }
    for (int r = 0; j->phase == LS_PHASE_RUN && r < j->o->nproc; r++) ls_stream_release(&j->rank[r].err);
    for (int r = 0; r < j->o->nproc; r++) /* after it is known whose output is held back */
        if (j->rank[r].was_alive && !j->rank[r].alive) {
            ls_stream_finish(&j->rank[r].out);
            ls_stream_finish(&j->rank[r].err);
        }
}

/* A broken connection is what a peer's death looks like from the other end: once that
 * death is known, it is the cause. */
static void correct_blame(ls_job *j)
{
    if (j->status != LS_PEER_RESET) return;
    int first = -1;
    for (int r = 0; r < j->o->nproc; r++)
        if (r != j->culprit && weight(&j->rank[r]) > (first < 0 ? 1 : weight(&j->rank[first]))) first = r;
    if (first < 0) return;
    char text[LS_ERROR_BYTES];
    describe_end(j, first, text, sizeof text);
    detected(j, j->first + first, LS_RANK_DIED, text);
}

static void look_for_abort(ls_job *j)
{
    if (j->phase != LS_PHASE_RUN || !atomic_load_explicit(&j->page->abort_by, memory_order_acquire)) return;
    if (j->user_signal) return;
    char text[LS_ERROR_BYTES];
    ls_status s;
    int by;
    if (j->nnodes > 1 && ls_page_cause(j->page, &by, &s, text, sizeof text) && s == LS_INTERRUPTED) {
        stop_with_others(j, strstr(text, ls_signal_name(SIGINT)) ? SIGINT : SIGTERM);
        return;
    }
    fail_by(j, -1, LS_ABORTED, "the job was aborted");
}

/* A stopped rank says nothing for ever. A debugger may hold it as long as it likes. */
static void look_for_stopped(ls_job *j)
{
    const ls_env *env = ls_env_get();
    uint64_t now_ns = env->mono_ns();
    char at[300], text[LS_ERROR_BYTES];
    if (j->phase != LS_PHASE_RUN) return;
    for (int r = 0; r < j->o->nproc; r++) {
        ls_job_rank *k = &j->rank[r];
        if (!k->alive || !k->stopped_ns) continue;
        if (env->traced(k->pid)) k->stopped_ns = now_ns;
        if (now_ns - k->stopped_ns < j->timeout_ns) continue;
        char state = env->proc_state(k->pid);
        double silent_s = (double)(now_ns - k->stopped_ns) * 1e-9;
        const char *why = k->stopped_by == SIGTTIN ? "; it reads the terminal, which only a --prefix-rank may" : "";
        snprintf(text, sizeof text,
                 "rank %d (pid %d) is stopped (state %c, by signal %d, %s) and silent for %.1f s%s%s", j->first + r, k->pid,
                 state ? state : 'T', k->stopped_by, ls_signal_name(k->stopped_by), silent_s,
                 where(j, r, at, sizeof at), why);
        fail_by(j, r, LS_RANK_HUNG, text);
        return;
    }
}

/* A rank whose save, or other long work, takes longer than it may: those that wait for it say so, too, but there may be
 * none. */
static void look_for_overdue(ls_job *j)
{
    const ls_env *env = ls_env_get();
    uint64_t now_ns = env->mono_ns();
    char at[LS_TASK_FILE_BYTES + 160], text[LS_ERROR_BYTES];
    ls_task task;
    for (int r = 0; j->phase == LS_PHASE_RUN && r < j->o->nproc; r++) {
        ls_job_rank *k = &j->rank[r];
        if (!k->alive || !ls_task_read(&j->page->rank[j->first + r].task, &task)) continue;
        if (ls_task_left_ns(&task, now_ns) > 0 || env->traced(k->pid)) continue;
        char state = env->proc_state(k->pid);
        snprintf(text, sizeof text, "rank %d (pid %d, state %c) is%s", j->first + r, k->pid, state ? state : '-',
                 where(j, r, at, sizeof at));
        fail_by(j, r, LS_RANK_HUNG, text);
    }
}

/* --- the user -------------------------------------------------------------------------------- */

static bool behind_debugger(const ls_job *j)
{
    for (int r = 0; r < j->o->nproc; r++)
        if (j->rank[r].alive && !j->rank[r].own_group) return true;
    return false;
}

/* One line about a signal of the user's. Ranks that speak for themselves have a second to do so. */
static void answer(ls_job *j, uint64_t now, bool kill)
{
    if (!j->user_signal || j->answered || j->o->quiet) return;
    if (!kill && j->o->ranks_answer && now < j->user_signal_ns + ANSWER_NS) return;
    j->answered = true;
    char line[200];
    const char *what = j->user_signal == SIGINT ? "interrupted" : ls_signal_name(j->user_signal);
    const char *they = j->nalive == 1 ? "it" : "them", *s = j->nalive == 1 ? "" : "s";
    const char *within = j->o->shutdown_ns ? "within" : "as long as something moves every";
    int n = kill ? snprintf(line, sizeof line, "lockstep: %s twice: killing %d rank%s\n", what, j->nalive, s)
                 : snprintf(line, sizeof line, "lockstep: %s: %d rank%s may end in order, %s %.0f s; once more kills %s at once\n",
                            what, j->nalive, s, within, (double)patience_ns(j) * 1e-9, they);
    ls_console_say(&j->err, line, (size_t)n);
}

/* Lockstep's ranks save on SIGTERM. Other programs get SIGUSR1 and SIGUSR2 as they are, as from torchrun: a batch
 * system sends these to programs that know them. Whatever else ends a terminal's jobs is SIGTERM for the ranks. */
static void pass_signal_on(ls_job *j, int sig)
{
    for (int r = 0; r < j->o->nproc; r++) {
        const bool theirs = (sig == SIGUSR1 || sig == SIGUSR2) && !ls_job_joined(j, r);
        signal_rank(j, r, theirs || (sig == SIGINT && !j->sigint_ignored) ? sig : SIGTERM);
    }
}

/* A generation with fewer ranks ends in order, and the next one has all of them. */
static void look_for_growth(ls_job *j)
{
    if (!ls_generation_may_grow(j)) return;
    char line[120];
    int n = j->nnodes > 1 ? snprintf(line, sizeof line, "lockstep: generation %u begins with %d more node%s: stopping this one\n",
                                     j->gens->number + 1, ls_store_waiting(j->store), ls_store_waiting(j->store) == 1 ? "" : "s")
                          : snprintf(line, sizeof line, "lockstep: generation %u begins with %d ranks again: stopping this one\n",
                                     j->gens->number + 1, j->gens->nproc);
    if (!j->o->quiet) ls_console_say(&j->err, line, (size_t)n);
    j->growing = j->answered = true;
    begin_stop(j, SIGTERM);
    pass_signal_on(j, SIGTERM);
}

static void on_signal(ls_job *j, int sig)
{
    const ls_env *env = ls_env_get();
    if (sig == SIGCHLD || sig == SIGPIPE) return;                /* the pidfds and writes say more */
    if (sig == SIGINT && behind_debugger(j)) return;             /* the terminal sent it to the debugger, too */
    uint64_t now = env->mono_ns();
    if (sig == j->user_signal && now - j->user_signal_ns < ECHO_NS) return; /* one wish, sent to us and to our group */
    if (j->growing) { /* the user's own wish comes first */
        j->growing = j->answered = false;
        begin_stop(j, sig);
        answer(j, now, false);
        pass_signal_on(j, sig);
        return;
    }
    if (j->phase != LS_PHASE_RUN) {                              /* the second time, or when all is lost anyway */
        j->stop_asked = true;
        answer(j, now, true);
        enter(j, LS_PHASE_KILL, now, TERM_NS);
        return;
    }
    begin_stop(j, sig);
    answer(j, now, false);
    pass_signal_on(j, sig);
}

static void look_at_strangers(ls_job *j, uint64_t now_ns)
{
    uint64_t all = ls_store_rejected(j->store);
    if (all == j->rejected || now_ns - j->rejected_ns < REJECT_LOG_NS) return;
    char more[64];
    ls_log(LS_LOG_WARN, "auth-reject: %llu connection%s to the rendezvous refused: no proof of belonging to this job",
           (unsigned long long)(all - j->rejected), all - j->rejected == 1 ? "" : "s");
    snprintf(more, sizeof more, ",\"count\":%llu", (unsigned long long)(all - j->rejected));
    ls_event_line(j->events_fd, j->page->generation, "auth_reject", -1, more);
    j->rejected = all;
    j->rejected_ns = now_ns;
}

/* --- the loop ---------------------------------------------------------------------------------- */

/* Only a process inside a system call that cannot be interrupted outlives
 * SIGKILL. It ends when that call does; nobody should wait for it here. */
static void give_up(ls_job *j)
{
    for (int r = 0; r < j->o->nproc; r++) {
        ls_job_rank *k = &j->rank[r];
        if (!k->alive) continue;
        ls_log(LS_LOG_WARN, "rank %d (pid %d, state %c) does not end on SIGKILL: the kernel will end it later", j->first + r,
               k->pid, ls_env_get()->proc_state(k->pid));
        k->alive = false;
        j->unended = true;
        k->signal = SIGKILL;
        j->nalive--;
        if (k->pidfd >= 0) ls_env_get()->close_fd(k->pidfd);
        k->pidfd = -1;
    }
}

static void next_phase(ls_job *j, uint64_t now_ns)
{
    go_on_stopping(j, now_ns);
    if (j->phase == LS_PHASE_RUN || now_ns < j->phase_ns) return;
    if (j->phase == LS_PHASE_GRACE) enter(j, LS_PHASE_TERM, now_ns, j->o->shutdown_ns ? j->o->shutdown_ns : TERM_NS);
    else if (j->phase == LS_PHASE_TERM) enter(j, LS_PHASE_KILL, now_ns, GIVE_UP_NS);
    else give_up(j);
}

static void sleep_until_something(ls_job *j, uint64_t until)
{
    int n;
    ls_pollfd *fds = ls_store_fds(j->store, 3 * j->o->nproc + 4, &n);
    if (!fds) { /* the next turn tries again */
        ls_env_get()->wait(NULL, 0, NULL, 0, until);
        return;
    }
    fds[n++] = (ls_pollfd){ .fd = j->signal_fd, .events = LS_POLL_IN };
    ls_console *consoles[] = { &j->out, &j->err };
    bool slow = false;
    for (int i = 0; i < 2; i++) {
        if (ls_console_waiting(consoles[i]) > 0) fds[n++] = (ls_pollfd){ .fd = consoles[i]->fd, .events = LS_POLL_OUT };
        slow = slow || ls_console_waiting(consoles[i]) > LS_CONSOLE_BYTES;
    }
    for (int r = 0; r < j->o->nproc; r++) {
        ls_job_rank *k = &j->rank[r];
        if (!k->alive) continue;
        if (k->pidfd >= 0) fds[n++] = (ls_pollfd){ .fd = k->pidfd, .events = LS_POLL_IN };
        if (k->out.from >= 0 && !slow) fds[n++] = (ls_pollfd){ .fd = k->out.from, .events = LS_POLL_IN };
        if (k->err.from >= 0 && !slow) fds[n++] = (ls_pollfd){ .fd = k->err.from, .events = LS_POLL_IN };
    }
    if (j->agent && ls_agent_fd(j->agent) >= 0)
        fds[n++] = (ls_pollfd){ .fd = ls_agent_fd(j->agent), .events = LS_POLL_IN };
    if (j->phase != LS_PHASE_RUN && j->phase_ns < until) until = j->phase_ns;
    ls_env_get()->wait(NULL, 0, fds, n, until);
}

/* The store and the link to node 0; when to look again at the latest. */
static uint64_t look_at_hosts(ls_job *j, uint64_t now_ns)
{
    (void)ls_store_step(j->store, now_ns);
    look_at_strangers(j, now_ns);
    return j->agent ? ls_agent_step(j->agent, now_ns) : UINT64_MAX;
}

void ls_job_watch(ls_job *j)
{
    const ls_env *env = ls_env_get();
    while (j->nalive > 0) {
        uint64_t now = env->mono_ns();
        for (int sig; (sig = env->signal_read(j->signal_fd)) > 0;) on_signal(j, sig);
        uint64_t until = look_at_hosts(j, now);
        bool slow = ls_console_waiting(&j->out) > LS_CONSOLE_BYTES || ls_console_waiting(&j->err) > LS_CONSOLE_BYTES;
        bool unfinished = false;
        for (int r = 0; r < j->o->nproc && !slow; r++) {
            /* A rank ends the job first and says why then: what it says waits until we have looked. */
            if (j->phase == LS_PHASE_RUN && !j->o->quiet) ls_stream_hold(&j->rank[r].err, LS_HOLD_WHOLE);
            bool out = ls_stream_pump(&j->rank[r].out, now), err = ls_stream_pump(&j->rank[r].err, now);
            unfinished = unfinished || out || err;
        }
        look_for_abort(j);
        look_at_ranks(j);
        if (j->nalive > 0) answer(j, now, false);
        look_for_stopped(j);
        look_for_overdue(j);
        look_for_growth(j);
        correct_blame(j);
        next_phase(j, now);
        ls_console_flush(&j->out);
        ls_console_flush(&j->err);
        uint64_t tick = now + (unfinished ? LS_LINE_NS : TICK_NS);
        if (j->nalive > 0) sleep_until_something(j, tick < until ? tick : until);
    }
    for (int r = 0; r < j->o->nproc; r++)
        if (j->rank[r].started && j->rank[r].signal) sweep(j, r);
}

/* Our ranks have stopped because ranks of other nodes did: node 0 says whether another generation follows. */
static bool waits_for_word(const ls_job *j)
{
    return j->agent && j->o->least_nnodes > 0 && j->status == LS_OK && j->user_signal && j->answered && !j->growing;
}

static void hear_word(ls_job *j)
{
    char text[LS_ERROR_BYTES];
    ls_status s;
    int by;
    if (ls_page_cause(j->page, &by, &s, text, sizeof text) && strcmp(text, MORE_NODES) == 0) j->growing = true;
}

void ls_job_part(ls_job *j)
{
    const ls_env *env = ls_env_get();
    bool failed = j->status < 0 || j->user_signal;
    const bool listens = waits_for_word(j);
    uint64_t end = failed ? env->mono_ns() + (listens ? WORD_NS : PART_NS) : UINT64_MAX;
    char text[80];
    if (failed && !listens && !atomic_load_explicit(&j->page->abort_by, memory_order_acquire))
        ls_page_abort(j->page, LS_ABORT_BY_LAUNCHER, j->status < 0 ? j->status : LS_INTERRUPTED,
                      j->status < 0 ? j->message : why_stopped(j, text, sizeof text));
    for (uint64_t now; (now = env->mono_ns()) < end;) {
        uint64_t until = look_at_hosts(j, now);
        bool told = atomic_load_explicit(&j->page->abort_by, memory_order_acquire) != 0;
        if (told && !failed) { /* another host has failed after our ranks had ended in order */
            failed = true;
            end = now + PART_NS;
            look_for_abort(j);
        }
        if (j->agent && (listens ? told : failed ? ls_agent_settled(j->agent) : true)) break;
        if (!j->agent && (failed ? ls_store_agents_told(j->store) : 0) == ls_store_agents(j->store)) break;
        for (int sig; (sig = env->signal_read(j->signal_fd)) > 0;)
            if (sig != SIGCHLD && sig != SIGPIPE) {
                j->user_signal = sig;
                end = now;
            }
        sleep_until_something(j, until < now + TICK_NS ? until : now + TICK_NS);
    }
    if (listens) hear_word(j);
    ls_agent_leave(j->agent, env->mono_ns() + PART_NS);
    j->agent = NULL;
}
