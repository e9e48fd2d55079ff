/* env.h -- the only door to the system: clock, sleep, sockets, files, shared
 * memory, threads and processes.
 *
 * One table of functions with one real implementation (env_real.c). No other
 * file of the library includes the headers behind these calls; tools/check-env
 * proves it on the object files. Another implementation (a simulator) replaces
 * the table of a thread's context and needs no other change.
 *
 * Calls return a value >= 0, or -errno, unless said. Descriptors are closed by
 * close_fd. Paths are NUL-terminated. Nothing blocks except wait, child_wait
 * with a deadline, and file I/O.
 */
#ifndef LS_BASE_ENV_H
#define LS_BASE_ENV_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ls_child ls_child; /* how to start a process; below */

enum { LS_POLL_IN = 1, LS_POLL_OUT = 4 }; /* as poll(2) */
typedef struct ls_pollfd {
    int fd;
    short events, revents;
} ls_pollfd;

/* Bytes in memory, one of several that a call reads or fills in order. Laid out as struct iovec. */
typedef struct ls_span {
    void *p;
    size_t n;
} ls_span;

typedef enum ls_file_type { LS_FILE_NONE, LS_FILE_REGULAR, LS_FILE_DIR, LS_FILE_OTHER } ls_file_type;
typedef struct ls_file_info {
    ls_file_type type; /* of the path itself: a symbolic link is OTHER */
    uint64_t size;
    bool owned;        /* by the effective user */
    unsigned mode;     /* permission bits */
    int64_t changed_ns; /* when its content changed last; as wall_ns */
} ls_file_info;

typedef enum ls_child_state { LS_CHILD_RUNNING, LS_CHILD_EXITED, LS_CHILD_SIGNALED, LS_CHILD_STOPPED } ls_child_state;

/* The most that a process, and each one that it starts, may have; 0: as we may. It leaves no core file. */
typedef struct ls_child_limits {
    uint64_t memory, file;        /* bytes of its addresses, and of a file that it writes */
    uint64_t cpu_s, processes;    /* seconds of processor time; processes and threads of its user */
} ls_child_limits;

/* A process to start: exec'd, with descriptors and environment as given. */
struct ls_child {
    const char *const *argv;      /* NULL-ended; argv[0] is searched in PATH */
    const char *const *env_set;   /* NULL-ended "NAME=value"; what it does not name is inherited. May be NULL */
    const int *keep_fds;          /* stay open at the same number */
    int nkeep;
    int stdout_fd, stderr_fd;     /* -1: the parent's */
    bool die_with_parent;         /* SIGKILL when the starting thread ends, by any means */
    bool own_group;               /* its own process group */
    bool same_addresses;          /* start without address randomisation; ignored if the kernel refuses */
    const ls_child_limits *limits; /* NULL: as we may */
    int cpu_first, cpu_count;     /* bind to this range of usable CPUs (-EINVAL beyond them); count 0: all */
};

#define LS_CPU_WORDS 128 /* of a mask of CPUs: 8,192 of them */

typedef struct ls_env {
    /* time */
    uint64_t (*mono_ns)(void);               /* all deadlines */
    int64_t (*wall_ns)(void);                /* labels in logs only */
    uint64_t (*cpu_ns)(void);                /* processor time of this process, all threads */
    uint64_t (*thread_cpu_ns)(void);         /* of the calling thread alone */
    void (*random)(void *p, size_t n);       /* keys and names, never numerics */

    /* waiting: the only blocking call. Returns when *word != value (word may be NULL), a
     * descriptor is ready, a wake, the deadline, or a signal. Spurious returns are allowed. */
    void (*wait)(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns);
    void (*wake)(const uint32_t *word);      /* everyone who waits on word, in any process */
    void (*yield)(void);
    unsigned spin_turns;                     /* turns to spin before yielding; 0 in a simulation */

    /* the machine */
    int (*cpus)(void);                       /* usable now: affinity and cgroup */
    int (*cpu_mask)(uint64_t *mask, int n);  /* by affinity alone, a bit each in n words; their number */
    int (*bind_cpus)(const uint64_t *mask, int n); /* the calling thread runs on these only; 0 or -errno */
    uint64_t (*mem_available)(void);         /* bytes: MemAvailable and cgroup, whichever is less */
    int (*hostname)(char *buf, size_t n);
    int (*folder)(char *buf, size_t n);      /* the current one, absolute; -ENOENT: it was removed */
    const char *(*getenv)(const char *name); /* borrowed; NULL if unset */
    int (*pid)(void);
    int (*parent_pid)(void);
    unsigned (*uid)(void);                   /* the effective user */
    bool (*traced)(int pid);                 /* a debugger is attached */
    char (*proc_state)(int pid);             /* 'R' 'S' 'D' 'T' 'Z', or 0 when gone */
    int (*self_path)(char *buf, size_t n);   /* of the running program */

    int (*use_tiles)(void);                  /* asks the kernel to let every thread of this process use AMX's tiles;
                                                -errno: not this CPU, or not this kernel */

    /* memory */
    void *(*map_private)(size_t n);          /* zeroed, prefaulted; NULL when refused */
    void *(*map_nothing)(size_t n);          /* addresses alone, which must not be touched; NULL when refused */
    void *(*map_secret)(size_t n);           /* zeroed; in no core dump, and not swapped where that is allowed */
    int (*memfd)(const char *name, size_t n);/* sealed against resizing, blocks reserved; long
                                                ones in huge pages where the kernel makes them */
    int (*memfd_sparse)(const char *name, size_t n, size_t reserved); /* likewise, blocks for its first bytes: the rest
                                                is `reserve`d before its first use */
    int (*reserve)(void *p, size_t n);       /* memory behind n bytes of a map_shared of memfd_sparse: without it,
                                                touching them kills when memory is short. -ENOMEM */
    int (*scratch)(const char *name);        /* a nameless file in memory, empty; while it is open here, other
                                                processes of this user can open it as /proc/<our pid>/fd/<its number> */
    void *(*map_shared)(int fd, size_t n, bool prefault);
    const void *(*map_read)(int fd, size_t n); /* n > 0 bytes of a file, to read; NULL when refused. The file must
                                                not get shorter: touching what is gone kills the process */
    int (*read_ahead)(const void *p, size_t n, bool now); /* these bytes of map_read will be touched: start reading
                                                them, or, now, read and map them so that no touch faults. -EFAULT:
                                                they cannot be read */
    void (*unmap)(void *p, size_t n);
    int64_t (*fd_size)(int fd);

    /* files */
    int (*open_read)(const char *path);      /* regular files only: -ELOOP, -EISDIR, else -EINVAL; links refused */
    int (*create)(const char *path);         /* new file, 0666 & ~umask; -EEXIST */
    int (*create_secret)(const char *path);  /* the same, but 0600 & ~umask */
    int (*append)(const char *path);         /* creates when missing; else as open_read */
    int (*discard)(int fd);                  /* from here on this number is /dev/null, whatever it was */
    ssize_t (*read)(int fd, void *p, size_t n);
    ssize_t (*pread)(int fd, void *p, size_t n, uint64_t offset);
    ssize_t (*write)(int fd, const void *p, size_t n);
    ssize_t (*pwrite)(int fd, const void *p, size_t n, uint64_t offset);
    int (*write_behind)(int fd, uint64_t offset, size_t n); /* these bytes that were written begin to go to the disk;
                                                the call does not wait: an fsync that follows takes less. A hint */
    int (*uncached)(int fd, bool on);        /* from here on writes go to the disk past the system's cache: address,
                                                offset and length must be multiples of 4096 then. -EINVAL: this file
                                                system has no such writes */
    int (*fsync)(int fd);
    int (*fsync_dir)(const char *path);
    int (*rename)(const char *from, const char *to);
    int (*exchange)(const char *a, const char *b); /* two names change places at once; -EINVAL, -ENOSYS: not there */
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path);          /* 0777 & ~umask; -EEXIST */
    int (*mkdir_secret)(const char *path);   /* the same, but 0700 & ~umask */
    int (*rmdir)(const char *path);
    int (*real_path)(const char *path, char *buf, size_t n); /* absolute, without links; -ENOENT, -ERANGE: too long */
    int (*lock)(int fd);                     /* this file is ours until fd is closed or we end, however; -EAGAIN: it is
                                                another's, who opened it by another call */
    int (*info)(const char *path, ls_file_info *out);      /* missing: type NONE and 0 */
    int (*fd_info)(int fd, ls_file_info *out);
    int (*list)(const char *path, char *names, size_t n);  /* NUL-separated names, sorted; their number; -ENOBUFS */
    bool (*isatty)(int fd);
    int (*columns)(int fd);                  /* of a terminal; 80 if unknown */
    void (*close_fd)(int fd);

    /* sockets, non-blocking. Unix names are abstract: nothing in the file system. */
    int (*listen_unix)(const char *name);
    int (*connect_unix)(const char *name);   /* -EAGAIN: the listener is busy, ask again */
    /* Numeric addresses or "localhost". Listening: loopback only (-EACCES), port 0 is any. */
    int (*listen_tcp)(const char *addr, int port, int *bound_port);
    int (*listen_open)(const char *addr, int port, int *bound_port); /* any address: only behind meet/door.h */
    int (*connect_tcp)(const char *addr, int port);
    int (*connect_done)(int fd);             /* 0, -EINPROGRESS, or the failure */
    int (*resolve)(const char *host, char *addr, size_t n); /* a name's first address, numeric; may block for as long
                                                as the system's resolver does. -ENOENT: there is none */
    int (*local_addr)(int fd, char *addr, size_t n); /* numeric, of our end of a tcp connection; "" of others */
    int (*peer_addr)(int fd, char *addr, size_t n);
    int (*accept)(int fd);
    ssize_t (*send)(int fd, const void *p, size_t n);      /* -EAGAIN when full */
    ssize_t (*recv)(int fd, void *p, size_t n);            /* 0: the peer has closed; -EAGAIN */
    ssize_t (*sendv)(int fd, const ls_span *from, int n);  /* the same with n pieces of memory, at most 64 */
    ssize_t (*recvv)(int fd, const ls_span *to, int n);
    ssize_t (*received)(int fd);             /* bytes that recv would give now; 0 also when the peer has closed */
    int (*send_fd)(int sock, int fd);        /* one byte that carries a descriptor; unix only */
    int (*recv_fd)(int sock);                /* the descriptor, -EAGAIN, -ECONNRESET when closed, -EPROTO */
    int (*peer_uid_is_ours)(int sock);       /* unix: 1 or 0 */
    int (*peer_pid)(int sock);               /* unix: who connected or made the pair */
    int (*free_port)(void);                  /* a loopback port nobody holds now */
    int (*port_holder)(int port, char *buf, size_t n); /* "pid 41 (nginx)"; 0 when not visible */

    /* threads and processes */
    int (*thread_start)(void (*fn)(void *), void *arg, void **handle);
    void (*thread_join)(void *handle);
    void (*at_thread_end)(void (*fn)(void)); /* the calling thread calls fn when it ends; one fn per process */
    /* Copies this process, with the calling thread only (locks that others hold stay held, except libc's): the copy
     * calls fn and ends, without flushing streams. It is killed when the thread that called this ends. The pid. */
    int (*fork)(void (*fn)(void *), void *arg);
    int (*spawn)(const ls_child *c, int *pidfd); /* the pid, once its program runs; *pidfd -1: no such thing here */
    /* State without waiting; `code` gets the exit code or signal. Reaps an ended
     * child; after that, and for no child of ours, LS_CHILD_EXITED with code -1. */
    ls_child_state (*child_poll)(int pid, int *code);
    /* Reads n bytes at an address of another process (cross memory attach). 0, or -ENOSYS: no such thing here; -EPERM:
     * refused (Yama, seccomp); -ESRCH: it has ended; -EFAULT: those bytes are not mapped there, or not here. */
    int (*read_process)(int pid, uint64_t address, void *to, size_t n);
    int (*let_read)(int pid);                /* under Yama that process and its descendants may read this one */
    int (*kill)(int pid, int sig);           /* negative pid: the process group; 0 and -1 refused */
    int (*pipe)(int fds[2]);                 /* close-on-exec, reading end non-blocking */
    int (*signal_fd)(const int *sigs, int n);/* blocks the signals; read them with signal_read */
    int (*signal_read)(int fd);              /* the next pending signal, or 0 */
    void (*signal_release)(const int *sigs, int n); /* unblocks them: those that are pending act now */
    int (*set_cloexec)(int fd, bool on);

    /* libraries */
    /* loads it, for good; `shared`: what is loaded later sees its symbols. NULL: `why` says why not */
    void *(*library)(const char *path, bool shared, char *why, size_t n);
    void *(*symbol)(void *library, const char *name); /* NULL when there is none; library NULL: any loaded one */
} ls_env;

/* What is left of n spans once `done` bytes of them have moved: returns how many are over, and shortens the
 * next one from its front. */
static inline int ls_spans_skip(ls_span *s, int n, size_t done)
{
    int over = 0;
    for (; over < n && done >= s[over].n; over++) done -= s[over].n;
    if (over < n) s[over] = (ls_span){ (char *)s[over].p + done, s[over].n - done };
    return over;
}

extern const ls_env ls_env_real;

/* The env of the calling thread's context. */
const ls_env *ls_env_get(void);

#endif
