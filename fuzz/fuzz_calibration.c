/* fuzz_calibration.c -- calibration files of arbitrary bytes: refused, or numbers within the bounds that are
 * written and read again unchanged. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "coll/cost.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_cost c, back;
    ls_text text = { 0 };
    if (ls_cost_read_json("input", (const char *)p, n, &c) != LS_OK) return 0;
    for (int l = 0; l < LS_LEVELS; l++)
        if (!(c.link[l].alpha_ns >= 0.0 && c.link[l].beta_ns >= 0.0 && c.link[l].gap_ns <= LS_COST_MAX_NS)) abort();
    if (!(c.gamma_ns >= 0.0 && c.poke_ns <= LS_COST_MAX_NS)) abort();
    ls_cost_print_json(&c, "host", &text);
    if (ls_cost_read_json("text", ls_text_str(&text), text.n, &back) != LS_OK) abort();
    if (memcmp(&c, &back, sizeof c) != 0) abort();
    ls_text_free(&text);
    return 0;
}
