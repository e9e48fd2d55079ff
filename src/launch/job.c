/* job.c -- what is known of a job: its ranks' places, what they have saved, by which signal one ended. */
#include <signal.h> /* names of signals only */
#include <stdio.h>

#include "launch/impl.h"

bool ls_job_joined(const ls_job *j, int r)
{
    const ls_job_rank *k = &j->rank[r];
    uint32_t state = atomic_load_explicit(&j->page->rank[j->first + r].state, memory_order_relaxed);
    return k->joined || (k->alive && state != LS_RANK_STARTING);
}

/* Other hosts know by rank 0's heartbeat, which may be behind. */
const char *ls_job_saved(const ls_job *j, char *buf, size_t n)
{
    char text[LS_SAVED_PATH_BYTES + 64];
    ls_saved s;
    ls_saved_read(&j->page->saved, &s);
    ls_saved_text(&s, text, sizeof text);
    snprintf(buf, n, "%s%s", text, *text && j->first > 0 ? ", by the last heartbeat of rank 0's node" : "");
    return buf;
}

const char *ls_signal_name(int sig)
{
    static const struct { int sig; const char *name;
    } row[] = {
        { SIGHUP, "SIGHUP" },   { SIGINT, "SIGINT" },   { SIGQUIT, "SIGQUIT" }, { SIGILL, "SIGILL" },
        { SIGTRAP, "SIGTRAP" }, { SIGABRT, "SIGABRT" }, { SIGBUS, "SIGBUS" },   { SIGFPE, "SIGFPE" },
        { SIGKILL, "SIGKILL" }, { SIGUSR1, "SIGUSR1" }, { SIGSEGV, "SIGSEGV" }, { SIGUSR2, "SIGUSR2" },
        { SIGPIPE, "SIGPIPE" }, { SIGALRM, "SIGALRM" }, { SIGTERM, "SIGTERM" }, { SIGSTOP, "SIGSTOP" },
        { SIGTSTP, "SIGTSTP" }, { SIGTTIN, "SIGTTIN" }, { SIGTTOU, "SIGTTOU" }, { SIGXCPU, "SIGXCPU" },
        { SIGXFSZ, "SIGXFSZ" }, { SIGSYS, "SIGSYS" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].sig == sig) return row[i].name;
    return "signal";
}
