/* fuzz_pipe_csv.c -- pipeline schedules as CSV from arbitrary bytes: an error, or a proved program whose file says the
 * same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/pipe_csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_pipe_program g, again;
    int others;
    const ls_status st = ls_pipe_csv_read("fuzz", (const char *)p, n, 0, &g, &others);
    if (st != LS_OK && st != LS_BAD_FILE) abort();
    if (st != LS_OK) return 0;
    for (int messages = 0; messages < 2; messages++) {
        ls_text one = { 0 }, two = { 0 };
        ls_pipe_csv_write(&g, messages, &one);
        if (ls_pipe_csv_read("again", ls_text_str(&one), one.n, 0, &again, &others) != LS_OK || others != 0) abort();
        ls_pipe_csv_write(&again, messages, &two);
        if (strcmp(ls_text_str(&one), ls_text_str(&two)) != 0 || again.buffers != g.buffers) abort();
        ls_pipe_program_free(&again);
        ls_text_free(&one);
        ls_text_free(&two);
    }
    ls_pipe_program_free(&g);
    return 0;
}
