/* fuzz_yaml.c -- the configuration reader on arbitrary bytes: an error, or values whose print reads back the same. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_text.h"

typedef struct settings {
    int64_t i;
    double d;
    size_t bytes;
    uint64_t ns;
    const char *text, *word;
    ls_opt_ints ints;
    ls_opt_doubles doubles;
    bool b;
} settings;

static const ls_opt table[] = {
    { "a.i", LS_OPT_INT, offsetof(settings, i), "1", "-5..1000000", "", 0, "a.int" },
    { "a.d", LS_OPT_DOUBLE, offsetof(settings, d), "0.5", NULL, "", 0, NULL },
    { "b.bytes", LS_OPT_BYTES, offsetof(settings, bytes), "25MiB", NULL, "", 0, NULL },
    { "b.ns", LS_OPT_TIME, offsetof(settings, ns), "30s", NULL, "", 0, NULL },
    { "b.c.text", LS_OPT_STRING, offsetof(settings, text), NULL, NULL, "", 0, NULL },
    { "b.c.word", LS_OPT_CHOICE, offsetof(settings, word), "x", "x|yy|zzz", "", 0, NULL },

    { "l.ints", LS_OPT_INTS, offsetof(settings, ints), "1,2", NULL, "", 0, NULL },
    { "l.doubles", LS_OPT_DOUBLES, offsetof(settings, doubles), "[]", NULL, "", 0, NULL },
    { "l.b", LS_OPT_BOOL, offsetof(settings, b), NULL, NULL, "", 0, NULL },
};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    settings s, again;
    ls_opts *o, *second;
    if (ls_opts_create(table, sizeof table / sizeof *table, &s, &o) < 0) abort();
    if (ls_opts_create(table, sizeof table / sizeof *table, &again, &second) < 0) abort();

    ls_status st = ls_opts_read_yaml(o, "fuzz", (const char *)p, n);
    if (st != LS_OK && st != LS_BAD_FILE && st != LS_BAD_CONFIG) abort();
    if (st == LS_OK) {
        char *text = ls_opts_print_config(o);
        if (!text || ls_opts_read_yaml(second, "printed", text, strlen(text)) != LS_OK) abort();
        char *back = ls_opts_yaml(second), *bare = ls_opts_yaml(o);
        if (!back || !bare || strcmp(back, bare) != 0) abort();
        free(text);
        free(back);
        free(bare);
    }
    ls_opts_destroy(o);
    ls_opts_destroy(second);
    return 0;
}
