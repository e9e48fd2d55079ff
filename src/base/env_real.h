/* env_real.h -- the parts of the real env, one file each; private to env_real*.c. */
#ifndef LS_BASE_ENV_REAL_H
#define LS_BASE_ENV_REAL_H
#include <errno.h>
#include "base/env.h"

/* The value of a call that reports failure as -1 and errno. */
static inline int ls_real_result(int r) { return r < 0 ? -errno : r; }

/* env_real_files.c */
int ls_real_open_read(const char *path);
int ls_real_create(const char *path);
int ls_real_create_secret(const char *path);
int ls_real_append(const char *path);
int ls_real_discard(int fd);
ssize_t ls_real_read(int fd, void *p, size_t n);
ssize_t ls_real_pread(int fd, void *p, size_t n, uint64_t offset);
ssize_t ls_real_write(int fd, const void *p, size_t n);
ssize_t ls_real_pwrite(int fd, const void *p, size_t n, uint64_t offset);
int ls_real_write_behind(int fd, uint64_t offset, size_t n);
int ls_real_uncached(int fd, bool on);
int ls_real_fsync(int fd);
int ls_real_fsync_dir(const char *path);
int ls_real_rename(const char *from, const char *to);
int ls_real_exchange(const char *a, const char *b);
int ls_real_unlink(const char *path);
int ls_real_mkdir(const char *path);
int ls_real_mkdir_secret(const char *path);
int ls_real_real_path(const char *path, char *buf, size_t n);
int ls_real_lock(int fd);
int ls_real_rmdir(const char *path);
int ls_real_info(const char *path, ls_file_info *out);
int ls_real_fd_info(int fd, ls_file_info *out);
int ls_real_list(const char *path, char *names, size_t n);
bool ls_real_isatty(int fd);
int ls_real_columns(int fd);
void ls_real_close_fd(int fd);
int ls_real_pipe(int fds[2]);
int ls_real_set_cloexec(int fd, bool on);

/* env_real_sockets.c */
int ls_real_listen_unix(const char *name);
int ls_real_connect_unix(const char *name);
int ls_real_listen_tcp(const char *addr, int port, int *bound_port);
int ls_real_listen_open(const char *addr, int port, int *bound_port);
int ls_real_resolve(const char *host, char *addr, size_t n);
int ls_real_local_addr(int fd, char *addr, size_t n);
int ls_real_peer_addr(int fd, char *addr, size_t n);
int ls_real_connect_tcp(const char *addr, int port);
int ls_real_connect_done(int fd);
int ls_real_accept(int fd);
ssize_t ls_real_send(int fd, const void *p, size_t n);
ssize_t ls_real_recv(int fd, void *p, size_t n);
ssize_t ls_real_sendv(int fd, const ls_span *from, int n);
ssize_t ls_real_recvv(int fd, const ls_span *to, int n);
ssize_t ls_real_received(int fd);
int ls_real_send_fd(int sock, int fd);
int ls_real_recv_fd(int sock);
int ls_real_peer_uid_is_ours(int sock);
int ls_real_peer_pid(int sock);
int ls_real_free_port(void);
int ls_real_port_holder(int port, char *buf, size_t n);

/* env_real_process.c */
int ls_real_thread_start(void (*fn)(void *), void *arg, void **handle);
void ls_real_thread_join(void *handle);
void ls_real_at_thread_end(void (*fn)(void));
int ls_real_fork(void (*fn)(void *), void *arg);
int ls_real_spawn(const ls_child *c, int *pidfd);
ls_child_state ls_real_child_poll(int pid, int *code);
int ls_real_read_process(int pid, uint64_t address, void *to, size_t n);
int ls_real_let_read(int pid);
int ls_real_kill(int pid, int sig);
int ls_real_signal_fd(const int *sigs, int n);
int ls_real_signal_read(int fd);
void ls_real_signal_release(const int *sigs, int n);

/* env_real_library.c */
void *ls_real_library(const char *path, bool shared, char *why, size_t n);
void *ls_real_symbol(void *library, const char *name);

/* env_real_machine.c */
int ls_real_cpus(void);
int ls_real_cpu_mask(uint64_t *mask, int n);
int ls_real_bind_cpus(const uint64_t *mask, int n);
uint64_t ls_real_mem_available(void);
int ls_real_hostname(char *buf, size_t n);
const char *ls_real_getenv(const char *name);
int ls_real_pid(void);
int ls_real_parent_pid(void);
unsigned ls_real_uid(void);
bool ls_real_traced(int pid);
char ls_real_proc_state(int pid);
int ls_real_self_path(char *buf, size_t n);
int ls_real_folder(char *buf, size_t n);
int ls_real_use_tiles(void);

#endif
