/* fuzz_hf.c -- the parsers of Hugging Face's JSON on arbitrary bytes: an error with a sentence, or what keeps its
 * promises. An even first byte: the rest is a config.json; an odd one: an index. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "ckpt/hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define CHECK(claim) \
    if (!(claim)) abort()

/* What was accepted is a model that can be counted, and is written so that it is read as the same. */
static void check_config(const ls_hf_config *c)
{
    char *text;
    ls_hf_config again;
    const ls_model_config of = { .name = c->model, .lm = c->lm };
    ls_model_config resolved;
    CHECK(strcmp(c->model, "gpt2") == 0 || strcmp(c->model, "llama") == 0);
    CHECK(ls_model_resolve(&of, &resolved) == LS_OK && memcmp(&resolved.lm, &c->lm, sizeof c->lm) == 0);
    CHECK(ls_model_count(&of) > 0);
    CHECK(ls_hf_config_text(c, &text) == LS_OK);
    CHECK(ls_hf_config_parse("again", text, strlen(text), &again) == LS_OK);
    CHECK(memcmp(&again.lm, &c->lm, sizeof again.lm) == 0 && again.bos == c->bos && again.eos == c->eos);
    free(text);
}

static void check_index(const ls_hf_index *ix)
{
    CHECK(ix->nplaces > 0 && ix->nshards > 0 && ix->nshards <= LS_HF_MAX_SHARDS);
    for (int s = 0; s < ix->nshards; s++) {
        CHECK(*ix->shard[s] != '.' && !strchr(ix->shard[s], '/') && strlen(ix->shard[s]) <= LS_HF_MAX_SHARD_NAME);
        for (int k = 0; k < s; k++) CHECK(strcmp(ix->shard[s], ix->shard[k]) != 0);
    }
    for (size_t i = 0; i < ix->nplaces; i++) {
        CHECK(ix->place[i].shard >= 0 && ix->place[i].shard < ix->nshards);
        CHECK(ls_hf_index_find(ix, ix->place[i].name) == &ix->place[i]); /* so names are unique */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n == 0) return 0;
    char *exact = malloc(n > 1 ? n - 1 : 1); /* no slack: a read behind the end is seen */
    if (!exact) return 0;
    memcpy(exact, p + 1, n - 1);
    ls_status st;
    if (p[0] & 1) {
        ls_hf_index ix;
        st = ls_hf_index_parse("fuzz", exact, n - 1, &ix);
        CHECK(st == LS_OK || st == LS_BAD_FILE);
        if (st == LS_OK) check_index(&ix);
        ls_hf_index_free(&ix);
    } else {
        ls_hf_config c;
        st = ls_hf_config_parse("fuzz", exact, n - 1, &c);
        CHECK(st == LS_OK || st == LS_BAD_FILE || st == LS_BAD_CONFIG || st == LS_UNSUPPORTED);
        if (st == LS_OK) check_config(&c);
    }
    if (st != LS_OK) CHECK(*ls_last_error());
    free(exact);
    return 0;
}
