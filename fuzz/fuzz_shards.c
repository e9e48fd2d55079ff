/* fuzz_shards.c -- checkpoints of several files without a manifest, as DCP of PyTorch writes them, of any headers:
 * offsets (DCP_SHARDING_INFO), names and boxes. An error with a sentence, or tensors whose every element can be read.
 * Of the input each file takes two bytes for the size of its header and one for that of its data, then the header. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "ckpt/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define CHECK(claim) \
    if (!(claim)) abort()

enum { FILES = 4, FD = 1000 };

static struct { char *p; size_t n; } file[FILES];
static int nfiles;

static int list(const char *path, char *names, size_t n)
{
    static const char all[] = "a.safetensors\0b.safetensors\0c.safetensors\0d.safetensors";
    CHECK(strcmp(path, "folder/sharded") == 0 && n >= sizeof all);
    memcpy(names, all, sizeof all);
    return nfiles;
}

static int number(const char *path)
{
    static const char before[] = "folder/sharded/";
    CHECK(strncmp(path, before, sizeof before - 1) == 0);
    return path[sizeof before - 1] - 'a';
}

static int info(const char *path, ls_file_info *out)
{
    const bool there = strcmp(path, "folder/sharded") == 0;
    *out = (ls_file_info){ .type = there ? LS_FILE_DIR : LS_FILE_NONE, .owned = true };
    return 0;
}

static int open_read(const char *path) { return FD + number(path); }
static int64_t fd_size(int fd) { return (int64_t)file[fd - FD].n; }
static void close_fd(int fd) { CHECK(fd >= FD && fd < FD + nfiles); }

static ssize_t read_at(int fd, void *p, size_t n, uint64_t offset)
{
    CHECK(offset <= file[fd - FD].n);
    const size_t left = file[fd - FD].n - (size_t)offset, k = n < left ? n : left;
    memcpy(p, file[fd - FD].p + offset, k);
    return (ssize_t)k;
}

static void read_all(ls_checkpoint *s)
{
    for (int i = 0; i < ls_checkpoint_count(s); i++) {
        const ls_checkpoint_tensor *t = ls_checkpoint_at(s, i);
        const uint64_t bytes = ls_checkpoint_nbytes(s, t);
        CHECK(i == 0 || strcmp(ls_checkpoint_at(s, i - 1)->name, t->name) < 0);
        CHECK(ls_checkpoint_find(s, t->name) == t && bytes <= FILES * 256);
        unsigned char *p = malloc((size_t)bytes + 1); /* no slack: a write behind the end is seen */
        CHECK(p != NULL);
        memset(p, 0x5a, (size_t)bytes + 1);
        CHECK(ls_checkpoint_read(s, t, NULL, NULL, p) == LS_OK);
        for (uint64_t k = 0; k < bytes; k++) CHECK(p[k] == 0xc3); /* so each byte was written */
        free(p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_env env = ls_env_real;
    env.list = list;
    env.info = info;
    env.open_read = open_read;
    env.fd_size = fd_size;
    env.close_fd = close_fd;
    env.pread = read_at;
    ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
    for (nfiles = 0; nfiles < FILES && n >= 3; nfiles++) {
        const size_t wanted = p[0] + 256u * p[1], data = p[2], header = wanted < n - 3 ? wanted : n - 3;
        const uint64_t size = header;
        file[nfiles].n = sizeof size + header + data;
        if (!(file[nfiles].p = malloc(file[nfiles].n))) abort();
        memcpy(file[nfiles].p, &size, sizeof size);
        memcpy(file[nfiles].p + sizeof size, p + 3, header);
        memset(file[nfiles].p + sizeof size + header, 0xc3, data);
        p += 3 + header;
        n -= 3 + header;
    }
    ls_checkpoint *s = NULL;
    const ls_status st = ls_checkpoint_open("folder", &s);
    CHECK(st == LS_OK || (*ls_last_error() && !s));
    CHECK(st == LS_OK || st == LS_BAD_FILE || st == LS_CKPT_CORRUPT || st == LS_UNSUPPORTED || st == LS_INVALID);
    if (st == LS_OK) read_all(s);
    ls_checkpoint_close(s);
    while (nfiles > 0) free(file[--nfiles].p);
    ls_context_swap(was);
    return 0;
}
