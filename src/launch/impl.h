/* impl.h -- what the files of the launcher share. */
#ifndef LS_LAUNCH_IMPL_H
#define LS_LAUNCH_IMPL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/env.h"
#include "base/text.h"
#include "launch/events.h"
#include "lockstep/launch.h"
#include "meet/address.h"
#include "meet/agent.h"
#include "meet/page.h"
#include "meet/store.h"

#define LS_LAUNCH_SIGNALS "SIGTERM,SIGINT,SIGHUP,SIGQUIT" /* torchrun's */
#define LS_LAUNCH_STOPS 16     /* signals that stop a job, and two more, at most */
#define LS_TAIL_LINES 20       /* of a rank's stderr, kept for the report */
#define LS_TAIL_BYTES 512      /* of each */
#define LS_LINE_BYTES 4096     /* a longer line is passed on in pieces */
#define LS_LINE_NS 20000000ull /* how long an unfinished line that needs no prefix is kept back */
#define LS_CONSOLE_BYTES (1u << 20) /* waiting for a slow terminal; then the ranks wait */
#define LS_HELD_BYTES (64u << 10)   /* of one rank, said after the first failure */
#define LS_LAUNCH_PATH 4096    /* of the current folder */
#define LS_REPLY_BYTES (1u << 20) /* of what @record leaves in an error file */
#define LS_TRACEBACK_BYTES 16384  /* of it, in the report: the last ones */

/* --- logs.c: where the ranks' output goes ------------------------------------------- */

/* Our own stdout or stderr, written without ever blocking on it. */
typedef struct ls_console {
    int fd;
    ls_text pending;
    size_t at;              /* bytes of pending already written */
    bool gone;              /* nobody reads it any more */
    bool terminal;
    const void *live;       /* on a terminal: the stream whose live line (after a carriage return, without an end)
                             * stands there; NULL: none */
} ls_console;

/* The last lines of a rank's stderr. */
typedef struct ls_tail {
    char line[LS_TAIL_LINES][LS_TAIL_BYTES];
    unsigned count;         /* lines ever begun; the newest is (count - 1) % LS_TAIL_LINES */
    size_t n;               /* bytes of the newest */
    bool open;              /* the newest has not ended yet */
} ls_tail;

/* What becomes of a rank's stderr for the time being. */
typedef enum ls_hold {
    LS_HOLD_NOT,   /* passed on */
    LS_HOLD_WHOLE, /* kept back until we have looked whether the job has failed */
    LS_HOLD_CUT    /* kept back until the report is out, LS_HELD_BYTES of it */
} ls_hold;

/* Teed lines of all ranks that have one of some words go to one more file. */
typedef struct ls_copy {
    char *words;            /* owned: each ends with a NUL, an empty one comes last; NULL: none */
    int file;               /* -1: none */
} ls_copy;

/* One output stream of one rank. */
typedef struct ls_stream {
    int from;               /* reading end of its pipe; -1: inherited, or at its end */
    int to;                 /* writing end, for the child; closed once it runs; -1: none */
    int file;               /* its log file; -1: none */
    ls_console *console;    /* borrowed: where it is passed on; NULL: nowhere */
    bool prefixed;          /* in whole lines behind the rank's prefix */
    ls_hold hold;
    ls_text held;
    ls_tail *tail;          /* borrowed; NULL: not kept */
    ls_copy *copy;          /* borrowed; NULL: none */
    const char *prefix;     /* borrowed */
    char line[LS_LINE_BYTES]; /* the beginning of one that has not ended */
    size_t nline;
    uint64_t line_ns;       /* since when it waits for its end */
    bool returned;          /* there was a carriage return in the line at hand, on the console */
} ls_stream;

/* What -r and -t ask for one rank: 0 none, 1 stdout, 2 stderr, 3 both, as torchrun spells it:
 * "3", or "0:1,1:2" for single ranks. LS_USAGE names the flag. */
ls_status ls_logs_parse(const char *flag, const char *text, int nproc, uint8_t *which);
/* "0,2" into a mask; NULL or "": every rank. */
ls_status ls_logs_filter(const char *text, int nproc, ls_rank_set *shown);
/* The prefix of a rank's teed lines: `form` with ${role_name}, ${local_rank}, ${rank} and ${hostname} filled in, and "$$"
 * for a dollar; NULL: "[${role_name}${local_rank}]:". *out is malloc'd. */
ls_status ls_logs_prefix(const char *form, const char *role, int local_rank, int rank, char **out);
/* "word,word", ",," for a comma in one, into ls_copy's words; NULL when there is none. */
ls_status ls_logs_words(const char *text, char **out);
/* Makes each missing folder of path. */
ls_status ls_logs_mkdir(const char *path);

/* Moves what is there, at most 64 KiB; closes the stream at its end. Lines are passed on
 * whole, so that those of several ranks do not mix; an unfinished one (a prompt, a progress
 * bar) follows within LS_LINE_NS. True while one waits. */
bool ls_stream_pump(ls_stream *s, uint64_t now_ns);
/* After the rank is gone: the rest, and its end. */
void ls_stream_finish(ls_stream *s);
void ls_stream_hold(ls_stream *s, ls_hold how);
void ls_stream_release(ls_stream *s); /* passes on what was held */
void ls_stream_close(ls_stream *s);

void ls_console_add(ls_console *c, const char *p, size_t n);
/* Whole lines of the launcher's: they take the place of a live one. */
void ls_console_say(ls_console *c, const char *p, size_t n);
void ls_console_flush(ls_console *c);                    /* what goes without waiting */
void ls_console_drain(ls_console *c, uint64_t deadline_ns);
size_t ls_console_waiting(const ls_console *c);
/* The i-th oldest kept line, control characters made harmless; NULL past the end. */
const char *ls_tail_line(const ls_tail *t, unsigned i, char out[LS_TAIL_BYTES]);

/* --- the job ---------------------------------------------------------------------------- */

typedef struct ls_job_rank {
    int pid, pidfd;         /* pidfd -1: none, ended or not supported */
    bool alive, started;
    bool was_alive;         /* when we last looked */
    bool own_group;
    bool joined;            /* its slot in the world page was in use when it ended */
    bool told;              /* we sent it a signal to end */
    int code, signal;       /* how it ended: exit code, or the signal that killed it */
    uint64_t stopped_ns;    /* since when it is stopped; 0: it is not */
    int stopped_by;         /* signal */
    ls_stream out, err;
    ls_tail tail;
    char *prefix;           /* owned: "[default0]:" */
    char *error_file;       /* owned, absolute: TORCHELASTIC_ERROR_FILE, in the log folder or one that is ours alone */
    int error_fd;           /* the latter, in memory; -1: it is in the log folder */
} ls_job_rank;

/* One host of the job, as its launcher introduces itself to the others. */
typedef struct ls_job_node {
    uint32_t nproc;
    int32_t pid;
    uint32_t master_port;   /* node 0's: for the ranks' own rendezvous */
    uint32_t generation, restarts; /* node 0's: those of the job */
    char host[LS_STORE_HOST_BYTES];
} ls_job_node;

/* What the generations of a job have in common. */
typedef struct ls_generations {
    ls_launch_opts o;        /* of the present one: as the caller gave them, but nproc may be smaller */
    int nproc;               /* the caller's */
    int next_nproc;          /* of the generation that is to begin */
    uint32_t number;         /* of the present one, from 1 */
    int restarts;            /* after failures, so far */
    int idle;                /* failures in a row without a new checkpoint between them */
    bool trains;             /* a rank has told what it saves */
    int64_t durable, snapshot; /* step of the newest checkpoint, and of the newest snapshot in memory; -1: none */
    char checkpoint[LS_SAVED_PATH_BYTES], run_dir[LS_RUN_DIR_BYTES]; /* of the training; "": none */
    char *dir;               /* owned: <log_dir>/<run-id>_<random>; NULL: none */
    bool again;              /* the present one is followed by another */
    char note[160];          /* what the report says of that; "": nothing */
} ls_generations;

typedef enum ls_phase { LS_PHASE_RUN, LS_PHASE_GRACE, LS_PHASE_TERM, LS_PHASE_KILL } ls_phase;

typedef struct ls_job {
    const ls_launch_opts *o; /* borrowed from gens */
    ls_generations *gens;    /* borrowed */
    const char *role, *run_id;
    uint64_t timeout_ns;
    int cpus;               /* usable by all ranks together */
    int master_port;

    int nnodes, world;      /* hosts; ranks on all of them */
    int first;              /* rank of the world of our rank 0: those of a host follow one another */
    ls_job_node *node;      /* owned, [nnodes]; nproc 0: it has not come */
    int nhere, group_rank;  /* nodes that have come, and which of them this is */
    char node0[LS_ADDRESS_BYTES + 8]; /* "addr:port" of node 0's store; "": one host */
    char address[LS_ADDRESS_BYTES], listen[LS_ADDRESS_BYTES]; /* our own, and where our ranks listen */
    ls_agent *agent;        /* owned: our link to node 0; NULL: that is us */
    uint8_t job[LS_DOOR_JOB_BYTES];

    ls_world_page *page;
    int page_fd, secret_fd, signal_fd, events_fd;
    char store_name[64];
    uint8_t secret[LS_SECRET_BYTES];
    ls_store *store;
    uint64_t rejected, rejected_ns; /* strangers reported so far, and when */

    ls_console out, err;
    uint8_t *redirect, *tee; /* owned, [o->nproc] */
    ls_copy copy[2];        /* of stdout and stderr */
    ls_rank_set shown;      /* owned: our ranks whose output reaches the console */
    char *dir;              /* borrowed from gens; NULL: none */

    ls_job_rank *rank;      /* owned, o->nproc of them */
    int nalive;
    ls_phase phase;
    uint64_t phase_ns;      /* when the next phase begins */

    int user_signal;        /* that asked us to stop; 0 */
    uint64_t user_signal_ns; /* when it came */
    uint64_t stop_moved;     /* since then: where all ranks are, as one number */
    uint32_t stop_step;      /* the furthest step of any rank when it came */
    bool answered;           /* our line about it was printed */
    bool growing;            /* the launcher itself stops this generation: the next one has more ranks */
    bool unended;            /* a rank of ours does not even end on SIGKILL */
    bool stop_asked;        /* by a signal that came when the ranks were ending anyway */
    int stops[LS_LAUNCH_STOPS], nstops; /* the signals that we wait for, of those that stop the job */
    bool sigint_ignored;    /* when we were started, and so in the ranks */
    int first_rank;         /* of the first failure, in the world; -1: none yet, or a launcher's own */
    int culprit;            /* the same among our ranks; -1: none of them */
    ls_status status;       /* its kind; LS_OK: no failure */
    uint64_t failed_ns;     /* CLOCK_MONOTONIC when it was seen */
    int64_t failed_wall_ns;
    char message[LS_ERROR_BYTES];
} ls_job;

/* job.c: whether rank r has a place in the world: programs that are not ours never do. */
bool ls_job_joined(const ls_job *j, int r);
/* job.c: what rank 0 has saved, as ls_saved_text has it. */
const char *ls_job_saved(const ls_job *j, char *buf, size_t n);
const char *ls_signal_name(int sig); /* job.c: "SIGKILL"; "signal" when unknown */
/* nodes.c: meets the launchers of the other hosts; fills in everything about them, and the page and the store, which
 * a job on one host has by itself. LS_JOIN_TIMEOUT names the nodes that did not come. */
ls_status ls_job_meet(ls_job *j);
const char *ls_job_host(const ls_job *j, int rank); /* name of the host that a rank of the world is on */
/* watch.c: stays until the other hosts are through, or know why not; then leaves them. */
void ls_job_part(ls_job *j);
/* spawn.c: starts rank r with its environment, streams and CPUs. */
ls_status ls_job_spawn(ls_job *j, int r);
/* watch.c: the event loop, until no rank is left. */
void ls_job_watch(ls_job *j);
/* generation.c: the next one is the present one. */
void ls_generation_begin(ls_generations *g);
/* generation.c: the step that a training goes on from, on the disk or in memory; 0: none. */
int64_t ls_generation_from(const ls_generations *g);
/* generation.c: once the ranks are gone, whether another generation follows, given the exit code that this one alone
 * would end with. */
void ls_generation_decide(ls_job *j, int code);
/* generation.c: whether a job that goes on with fewer ranks has saved what the next one, with all, goes on from. */
bool ls_generation_may_grow(const ls_job *j);
/* watch.c: sends sig to every rank that is alive, with all its descendants in its process group. */
void ls_job_signal(ls_job *j, int sig);
/* report.c: the exit code, and the report where there is something to report; it asks ls_generation_decide. */
void ls_job_report(ls_job *j, ls_launch_result *out);

#endif
