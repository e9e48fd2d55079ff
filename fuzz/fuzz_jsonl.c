/* fuzz_jsonl.c -- JSON Lines of arbitrary bytes: an error that names a line, or documents of valid UTF-8. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/jsonl.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static ls_status look(void *arg, size_t line, const char *text, size_t n)
{
    size_t *before = arg;
    if (line <= *before || ls_utf8_check(text, n) != n || memchr(text, 0, n)) abort();
    *before = line;
    return LS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    size_t line = 0;
    const ls_status st = ls_jsonl_read("fuzz", (const char *)p, n, look, &line);
    if (st != LS_OK && st != LS_BAD_FILE) abort();
    return 0;
}
