/* fuzz_manifest.c -- manifests of checkpoints on arbitrary bytes, as they are and with a digest that fits: refused, or
 * written again to the same meaning. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void again(const ls_manifest *m)
{
    ls_manifest back;
    ls_text text = { 0 };
    if (ls_manifest_text(m, &text) < 0 || ls_manifest_parse("again", text.p, text.n, &back) < 0) abort();
    if (back.step != m->step || back.world_size != m->world_size || back.nfiles != m->nfiles) abort();
    for (size_t i = 0; i < m->nfiles; i++)
        if (strcmp(back.file[i].name, m->file[i].name) != 0 ||
            back.file[i].sums.bytes != m->file[i].sums.bytes) abort();
    ls_manifest_free(&back);
    ls_text_free(&text);
}

static void parse(const void *p, size_t n)
{
    ls_manifest m;
    if (ls_manifest_parse("fuzz", p, n, &m) == LS_OK) again(&m);
    ls_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_digest *d = ls_digest_create();
    ls_text text = { 0 };
    char hex[33];
    if (!d) abort();
    parse(p, n);
    ls_digest_add(d, p, n);
    ls_digest_hex(d, hex);
    ls_text_addn(&text, (const char *)p, n);
    ls_text_add(&text, "\"digest\":\"%s\"}\n", hex);
    if (ls_text_status(&text) < 0) abort();
    parse(text.p, text.n);
    ls_text_free(&text);
    ls_digest_destroy(d);
    return 0;
}
