/* fuzz_recipe.c -- recipes of `lockstep train` on arbitrary bytes: an error, or a configuration that is checked for
 * some ranks (the first byte), and whose print reads back the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_text.h"
#include "train/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define CHECK(claim) \
    if (!(claim)) abort()

static void reads_back(const ls_opts *o)
{
    ls_train_config c;
    ls_opts *again;
    char *text = ls_opts_print_config(o);
    CHECK(text && ls_opts_create(ls_train_opts, ls_train_nopts, &c, &again) == LS_OK);
    CHECK(ls_opts_read_yaml(again, "printed", text, strlen(text)) == LS_OK);
    char *back = ls_opts_yaml(again), *bare = ls_opts_yaml(o);
    CHECK(back && bare && strcmp(back, bare) == 0);
    free(back);
    free(bare);
    free(text);
    ls_opts_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_train_config c;
    ls_opts *o;
    if (n < 1) return 0;
    const int ranks = 1 + p[0] % 16;
    CHECK(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o) == LS_OK);
    ls_status st = ls_opts_read_yaml(o, "fuzz", (const char *)p + 1, n - 1);
    CHECK(st == LS_OK || st == LS_BAD_FILE || st == LS_BAD_CONFIG);
    if (st == LS_OK) {
        reads_back(o);
        st = ls_train_config_resolve(o, &c);
        if (st == LS_OK) st = ls_train_check_given(o, &c);
        if (st == LS_OK) st = ls_train_config_check(&c, ranks);
        CHECK(st == LS_OK || st == LS_BAD_CONFIG || st == LS_UNSUPPORTED || st == LS_USAGE || st == LS_INVALID ||
              st == LS_IO);
    }
    ls_opts_destroy(o);
    return 0;
}
