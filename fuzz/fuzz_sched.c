/* fuzz_sched.c -- schedules from JSON on arbitrary bytes: an error, or schedules that print, and whose proof ends. */
#include <stddef.h>
#include <stdlib.h>

#include "coll/print.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_sched *s;
    int size;
    ls_status st = ls_sched_read_json("fuzz", (const char *)p, n, &s, &size);
    if (st != LS_OK && st != LS_BAD_FILE) abort();
    if (st != LS_OK) return 0;

    const ls_sched *all[256];
    uint32_t chunks = 0;
    for (int r = 0; r < size; r++) {
        ls_text t = { 0 };
        all[r] = &s[r];
        for (int b = 0; b < 3; b++) chunks += s[r].nchunks[b];
        for (int f = LS_PRINT_TEXT; f <= LS_PRINT_JSON; f++)
            if (ls_sched_print(&s[r], (ls_print_format)f, &t) != LS_OK) abort();
        ls_text_free(&t);
    }
    if (chunks < 10000) { /* a proof's memory grows with ranks times chunks */
        st = ls_sched_verify_all(all, size);
        if (st > 0) abort();
    }
    ls_sched_free_all(s, size);
    return 0;
}
