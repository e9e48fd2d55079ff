/* status.h -- one error convention for every floor.
 *
 * A function that can fail returns ls_status. 0 is success, a positive value
 * is "not yet" (nothing went wrong, ask again), a negative value is a failure.
 * Every failure has a status name (for people and logs) and an exit code (for
 * schedulers); the calling thread's message says what happened to what:
 *
 *     if (ls_group_split(world, color, &tp) < 0)
 *         fprintf(stderr, "%s\n", ls_last_error());
 */
#ifndef LS_STATUS_H
#define LS_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* constant, value, status name, exit code, one-line documentation */
#define LS_STATUS_MAP(X)                                                                           \
    X(OK, 0, "ok", 0, "success")                                                                   \
    X(AGAIN, 1, "again", 0, "not finished yet; ask again")                                         \
    X(INVALID, -1, "invalid", 64, "an argument or a call is out of its documented range")          \
    X(USAGE, -2, "usage", 64, "the command line is wrong")                                         \
    X(SHAPE, -3, "shape", 65, "tensor shapes do not fit together")                                 \
    X(BAD_FILE, -4, "bad-file", 65, "an input file breaks its format")                             \
    X(CKPT_CORRUPT, -5, "ckpt-corrupt", 65, "a checkpoint fails its checks")                       \
    X(PORT_BUSY, -6, "port-busy", 69, "the rendezvous port is taken")                              \
    X(JOIN_TIMEOUT, -7, "join-timeout", 69, "not every rank joined before the deadline")           \
    X(INTERNAL, -8, "internal", 70, "a bug in Lockstep")                                           \
    X(NO_MEMORY, -9, "no-memory", 71, "out of memory or arena space")                              \
    X(SYSTEM, -10, "system", 71, "a system call failed")                                           \
    X(IO, -11, "io", 74, "reading or writing a file failed")                                       \
    X(CKPT_FAILED, -12, "ckpt-failed", 74, "a checkpoint could not be written")                    \
    X(PREEMPTED, -27, "preempted", 75, "stopped on request after a durable checkpoint")            \
    X(COLL_MISMATCH, -13, "coll-mismatch", 76, "ranks called different collectives")               \
    X(AUTH_FAILED, -14, "auth-failed", 77, "a peer could not prove that it belongs to the job")    \
    X(UNSAFE_PATH, -15, "unsafe-path", 77, "a path names something we must not follow")            \
    X(BAD_CONFIG, -16, "bad-config", 78, "a configuration value or key is wrong")                  \
    X(CONFIG_MISMATCH, -17, "config-mismatch", 78, "ranks disagree about model or configuration")  \
    X(UNSUPPORTED, -18, "unsupported", 78, "not built in, or not on this device")                  \
    X(NAN, -19, "nan", 80, "a loss or gradient is not finite")                                     \
    X(DIVERGED, -31, "diverged", 81, "ranks that should have the same parameters have others")      \
    X(RANK_DIED, -20, "rank-died", 82, "a rank's process ended unexpectedly")                      \
    X(PEER_RESET, -21, "peer-reset", 82, "a connection to a peer broke")                           \
    X(FRAME_CRC, -22, "frame-crc", 82, "bytes changed between two ranks")                          \
    X(PROTOCOL, -23, "protocol", 82, "a peer sent what the protocol does not allow")               \
    X(ABORTED, -24, "aborted", 82, "the job was aborted by another rank")                          \
    X(RANK_HUNG, -25, "rank-hung", 83, "a rank did not answer before the deadline")                \
    X(PEER_SILENT, -28, "peer-silent", 82, "a node of the job is gone or silent")        \
    X(UNSAFE_MODE, -30, "unsafe-mode", 77, "others can read a file that must be ours alone")      \
    X(VERSION_MISMATCH, -29, "version-mismatch", 78, "the ends of a connection are different builds")  \
    X(INTERRUPTED, -26, "interrupted", 130, "stopped by the user")

typedef enum ls_status {
#define X(name, value, word, exit, text) LS_##name = (value),
    LS_STATUS_MAP(X)
#undef X
} ls_status;

/* Short fixed text, status name and process exit code of a status; an unknown
 * value is treated as LS_INTERNAL. Never NULL. */
const char *ls_status_text(ls_status s);
const char *ls_status_word(ls_status s);
int ls_status_exit_code(ls_status s);

/* What failed on this thread, e.g.
 *   "rank 2: all_reduce #118 (bucket 3): no data from rank 1 for 30.0 s"
 * Valid until the next failing call on the same thread; "" before the first. */
const char *ls_last_error(void);

/* Records the message and returns s, so that a failing path is one line.
 * At most 495 bytes are kept. */
ls_status ls_fail(ls_status s, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/* Puts "while <text>: " before the recorded message and returns s. */
ls_status ls_while(ls_status s, const char *fmt, ...) __attribute__((cold, format(printf, 2, 3)));

/* Hands a failure to the caller. For functions that own nothing yet. */
#define LS_TRY(expr)                                                                               \
    do {                                                                                           \
        ls_status ls_try_ = (expr);                                                                \
        if (ls_try_ < 0) return ls_try_;                                                           \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
