/* launch.h -- starting the ranks of a job on this machine and watching them; with the
 * launchers of other machines, where the job has several.
 *
 * The launcher owns the world page, the rendezvous store and the job's secret;
 * it is the parent of every rank, sees each end, names the first failure, and
 * leaves no process and no file, however it ends.
 */
#ifndef LS_LAUNCH_H
#define LS_LAUNCH_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/status.h"
#include "lockstep/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_launch_opts {
    const char *const *argv;    /* NULL-ended command of every rank */
    const char *python;         /* interpreter that runs argv, as `PYTHON -u ARGV...`; NULL: argv[0] is a program */
    int nproc;                  /* ranks on this machine, 1..LS_HOST_MOST_RANKS */
    int least_nproc;            /* after a failure the job may go on with so few; 0: with nproc only */
    int max_restarts;           /* so often a failed job is started again, as a new generation: see ls_launch */
    int nnodes, node_rank;      /* machines of the job and which this is; 0 or 1: only this one */
    int least_nnodes;           /* the job begins, and goes on, with so few, node 0 among them; 0: nnodes */
    uint64_t last_call_ns;      /* for more of them to come once least_nnodes are there; 0: 30 s, 3 s after a failure */
    const char *master_addr;    /* of several: node 0's address or name, and its store's port is `port` */
    const char *secret_file;    /* of several, the same on each: `lockstep secret new` makes one. NULL: none */
    const char *listen;         /* address of this machine to listen on; NULL: the one the others reach it by */
    const char *local_addr;     /* of several: address or name by which the others reach this one; NULL: found out */
    uint64_t join_timeout_ns;   /* for all machines to come; 0: 60 s */
    uint64_t node_timeout_ns;   /* silence after which another machine is gone; 0: 5 s */
    int port;                   /* MASTER_PORT of the ranks: 0: a free one; else this one, which must be
                                   free. Not held: a rank's own rendezvous (PyTorch's) binds it. Ours is
                                   a Unix socket */
    const char *log_dir;        /* NULL: none */
    const char *run_id;         /* torchrun's --rdzv-id; NULL: "none" */
    const char *role;           /* "default" */
    const char *redirects, *tee;/* "0".."3" or "0:1,1:2"; NULL: 0 */
    const char *local_ranks_filter; /* "0,2"; NULL: all */
    const char *line_prefix;    /* of teed lines, with ${role_name}, ${local_rank}, ${rank} and ${hostname} filled in;
                                   NULL: "[role0]:" */
    const char *copy_stdout;    /* "word,word" (",," is a comma): teed lines of stdout with one of them also go to
                                   filtered_stdout.log in log_dir; NULL: none */
    const char *copy_stderr;    /* the same of stderr */
    const char *events;         /* JSON lines file; NULL: none */
    const char *lint;           /* file in which ranks note calls for `lockstep run --lint`; NULL: none */
    int prefix_rank;            /* with prefix_cmd != NULL: put a command before this rank */
    const char *prefix_cmd;
    uint64_t timeout_ns;        /* silence after which a stopped rank is reported; 0: 30 s */
    const char *signals;        /* "SIGTERM,SIGUSR1": those that stop the job; NULL: SIGTERM, SIGINT, SIGHUP, SIGQUIT */
    uint64_t shutdown_ns;       /* for ranks to end in, after such a signal or a failure, before SIGKILL; 0: 0.3 s after
                                   a failure; after a signal as long as something moves */
    bool virtual_local_rank;    /* LOCAL_RANK 0 for all; each sees one GPU, by CUDA_VISIBLE_DEVICES */
    bool no_bind;               /* leave ranks to the kernel. Else each rank is bound to cores of its own; if there are
                                   more ranks than cores, rank r is bound to core r modulo cores, provided that each
                                   core then has equally many ranks */
    bool aslr;                  /* keep address randomisation for ranks that share cores. By default those of a job on
                                 * one machine start without it, since a core predicts branches by address */
    bool ranks_answer;           /* to Ctrl-C, with a line of their own: ours comes only if that takes long */
    bool quiet;                 /* no failure report on stderr (the caller prints) */
} ls_launch_opts;

typedef struct ls_launch_result {
    ls_status status;     /* LS_OK when every rank ended 0 */
    int exit_code;        /* for our own exit: the rank's own nonzero code, 82, 83, 130 ... */
    int first_rank;       /* that failed first; -1 */
    int signal;           /* that killed it; 0 */
    bool unanswered;      /* the user stopped it, and rank 0 ended without a word: by a signal, or told by another */
    bool killed;          /* ... some rank only by SIGKILL, after a second signal or when the time to save was over */
    int restarts;         /* how often the job was started again after a failure */
    char message[496];    /* the first cause, one line */
    char saved[496];      /* of a training: "the newest checkpoint of this run is FILE (step 10)" or "no checkpoint was saved";
                             "": none has told */
} ls_launch_result;

/* Starts, watches, reports on stderr, stops the rest, returns when all are gone. Fails itself only when nothing could
 * be started.
 *
 * With max_restarts a job that failed is started again as a new generation, when all its ranks are gone: a training
 * goes on in its run folder from its newest checkpoint. It is not started again
 *   - if the same would happen again: exit codes 64, 65, 74, 76, 77, 78 and 80, of faults in usage, data, disk,
 *     program, permission, configuration and numerics;
 *   - after a stop on request;
 *   - after three failures in a row between which a training has saved nothing new.
 *
 * With least_nproc the next generation has one rank fewer than the one that lost a rank, but no less than that. If the
 * program refuses the number (78), the next smaller one is tried. When such a generation has saved a checkpoint, it is
 * stopped in order (SIGTERM) and goes on with nproc ranks again.
 *
 * Of several nodes each launcher does this by itself, and they meet again at node 0. With least_nnodes the job goes on
 * without a node that does not come; when that one comes, it is stopped in order after its next checkpoint, and goes on
 * with it. */
ls_status ls_launch(const ls_launch_opts *o, ls_launch_result *out);

#ifdef __cplusplus
}
#endif
#endif
