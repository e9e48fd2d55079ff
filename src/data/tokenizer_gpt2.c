/* tokenizer_gpt2.c -- the two files that GPT-2's tokenizer was published as.
 *
 *   vocab.bpe     a version line, then one merge a line, two tokens and a blank between them
 *   encoder.json  an object: each token and its id
 *
 * Both write bytes in the alphabet of vocab.h. Hugging Face calls them merges.txt and vocab.json.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"

static ls_status read_merges(const char *name, const char *text, size_t n, ls_tokenizer *t)
{
    size_t line = 0;
    for (size_t at = 0, end; at < n; at = end + 1) {
        const char *stop = memchr(text + at, '\n', n - at);
        end = stop ? (size_t)(stop - text) : n;
        size_t len = end - at;
        line++;
        if (len > 0 && text[at + len - 1] == '\r') len--;
        if (len == 0 || (line == 1 && text[at] == '#')) continue;
        ls_status st = ls_tokenizer_json_merge(t, text + at, len);
        if (st < 0) return st == LS_INVALID ? ls_fail(LS_BAD_FILE, "%s: line %zu: a merge: %s", name, line, ls_last_error()) : st;
    }
    return LS_OK;
}

static ls_status fill(const char *merges_name, const char *merges, size_t nmerges, const char *vocab_name,
                      const char *vocab, size_t nvocab, ls_tokenizer *t)
{
    json_t *root;
    LS_TRY(ls_tokenizer_json_load(vocab_name, vocab, nvocab, &root));
    ls_status st = ls_tokenizer_json_vocab(vocab_name, root, t);
    json_decref(root);
    if (st == LS_OK) st = read_merges(merges_name, merges, nmerges, t);
    if (st == LS_OK) st = ls_split_create(ls_split_gpt2, true, &t->split);
    if (st < 0) return st;
    uint32_t end = ls_vocab_find(&t->vocab, LS_END_OF_TEXT, strlen(LS_END_OF_TEXT));
    if (end != LS_NO_TOKEN) LS_TRY(ls_tokenizer_add_special(t, LS_END_OF_TEXT, strlen(LS_END_OF_TEXT), end, true));
    st = ls_tokenizer_finish(t);
    return st == LS_INVALID ? ls_fail(LS_BAD_FILE, "%s: %s", vocab_name, ls_last_error()) : st;
}

ls_status ls_tokenizer_parse_gpt2(const char *merges_name, const char *merges, size_t nmerges, const char *vocab_name,
                                  const char *vocab, size_t nvocab, ls_tokenizer **out)
{
    ls_tokenizer *t;
    *out = NULL;
    LS_TRY(ls_tokenizer_new(&t));
    ls_status st = fill(merges_name, merges, nmerges, vocab_name, vocab, nvocab, t);
    if (st == LS_OK) *out = t;
    else ls_tokenizer_close(t);
    return st;
}

/* dir/first, else dir/second. */
static ls_status find_file(const char *dir, const char *first, const char *second, char path[LS_TOKENIZER_PATH])
{
    const char *const names[] = { first, second };
    for (int i = 0; i < 2; i++) {
        ls_file_info info;
        int n = snprintf(path, LS_TOKENIZER_PATH, "%s/%s", dir, names[i]);
        if (n < 0 || n >= LS_TOKENIZER_PATH) return ls_fail(LS_IO, "%.200s...: the path is too long", dir);
        if (ls_env_get()->info(path, &info) == 0 && info.type != LS_FILE_NONE) return LS_OK;
    }
    return ls_fail(LS_IO, "%s: neither %s nor %s is there; `lockstep data fetch gpt2` fetches those of GPT-2", dir, first, second);
}

ls_status ls_tokenizer_open_gpt2(const char *dir, ls_tokenizer **out)
{
    char merges_path[LS_TOKENIZER_PATH], vocab_path[LS_TOKENIZER_PATH];
    char *merges = NULL, *vocab = NULL;
    size_t nmerges, nvocab;
    *out = NULL;
    LS_TRY(find_file(dir, "vocab.bpe", "merges.txt", merges_path));
    LS_TRY(find_file(dir, "encoder.json", "vocab.json", vocab_path));
    ls_status st = ls_file_read(merges_path, LS_TOKENIZER_MAX_BYTES, &merges, &nmerges);
    if (st == LS_OK) st = ls_file_read(vocab_path, LS_TOKENIZER_MAX_BYTES, &vocab, &nvocab);
    if (st == LS_OK) st = ls_tokenizer_parse_gpt2(merges_path, merges, nmerges, vocab_path, vocab, nvocab, out);
    free(merges);
    free(vocab);
    return st;
}
