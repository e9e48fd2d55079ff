/* wasm.c -- what figures need besides the other sources, where there is no system: the one function that a page
 * calls, and system calls that are refused. So the module has no import, and can do nothing but compute.
 */
#include "base/env.h"
#include "fig/fig.h"

/* A call through this table ends the program: figures make none. */
extern const ls_env ls_env_real;
const ls_env ls_env_real = { 0 };

/* The three that the C library's vsnprintf is linked with, though it writes into memory alone. */
#define NOT_OPEN 8 /* WASI's EBADF */
int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t fd);
int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t fd, int64_t offset, int32_t whence, int32_t to);
int32_t __imported_wasi_snapshot_preview1_fd_write(int32_t fd, int32_t from, int32_t n, int32_t to);

int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t fd)
{
    (void)fd;
    return NOT_OPEN;
}

int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t fd, int64_t offset, int32_t whence, int32_t to)
{
    (void)fd, (void)offset, (void)whence, (void)to;
    return NOT_OPEN;
}

int32_t __imported_wasi_snapshot_preview1_fd_write(int32_t fd, int32_t from, int32_t n, int32_t to)
{
    (void)fd, (void)from, (void)n, (void)to;
    return NOT_OPEN;
}

/* The bytes of an answer, as ls_fig_request says: "ok" and the answer, or "error[...]". To be freed by the caller. */
char *fig_request(const char *text);

char *fig_request(const char *text) { return ls_fig_request(text); }
