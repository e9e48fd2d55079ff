/* fuzz_lab_lint.c -- notes of `lockstep run --lint`, on which claims and exercises of labs rest, on arbitrary bytes: an
 * error, or findings that are valid JSON with as many entries as are told. */
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launch/lint.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void judge(const char *path, bool json)
{
    ls_text out = { 0 };
    int findings = 0;
    const ls_status st = ls_lint_judge(path, 3, 0, json, &out, &findings);
    if (st != LS_OK && st != LS_BAD_FILE) abort();
    json_t *j = st == LS_OK && json ? json_loads(ls_text_str(&out), 0, NULL) : NULL;
    if (st == LS_OK && json && json_array_size(json_object_get(j, "findings")) != (size_t)findings) abort();
    if (findings < 0 || findings > LS_LINT_RULES) abort();
    json_decref(j);
    ls_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/lockstep-fuzz-lint-%d", (int)getpid());
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) abort();
    const ssize_t k = write(fd, p, n);
    close(fd);
    if (k == (ssize_t)n) judge(path, true);
    if (k == (ssize_t)n) judge(path, false);
    unlink(path);
    return 0;
}
