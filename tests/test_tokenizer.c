/* tokenizer: ids are tiktoken's and Hugging Face's, text comes back, and files say what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sodium.h>
#include <zlib.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "data/tokenizer.h"
#include "golden/tokens.h"
#include "lockstep/rng.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define GOLDEN   LOCKSTEP_SOURCE "/tests/golden/"

typedef struct blob { char *p; size_t n; } blob;

/* A gzipped file of tests/golden. */
static blob unpack(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    gzFile f = gzopen(path, "rb");
    assert_non_null(f);
    blob b = { malloc((size_t)2 << 20), 0 };
    int k;
    while ((k = gzread(f, b.p + b.n, 1 << 20)) > 0) b.n += (size_t)k;
    assert_int_equal(k, 0);
    gzclose(f);
    return b;
}

/* GPT-2's encoder.json follows from the merges: the bytes in the alphabet's order, then what the merges make. */
static ls_text encoder_json(const blob *merges)
{
    ls_text out = { 0 };
    uint32_t id = 0;
    ls_text_add(&out, "{");
    for (unsigned c = '!'; c < 0x100 + 68; c++) {
        char token[3] = { (char)c, 0, 0 };
        if (c >= 0x80) token[0] = (char)(0xc0 | c >> 6), token[1] = (char)(0x80 | (c & 0x3f));
        char byte[4];
        if (ls_chars_to_bytes(token, strlen(token), byte) != 1) continue;
        ls_json_string(&out, token);
        ls_text_add(&out, ":%u,", id++);
    }
    assert_int_equal(id, 256);
    for (char *line = strchr(merges->p, '\n') + 1, *end; *line; line = end + 1) {
        char token[512];
        end = strchr(line, '\n');
        char *blank = memchr(line, ' ', (size_t)(end - line));
        snprintf(token, sizeof token, "%.*s%.*s", (int)(blank - line), line, (int)(end - blank - 1), blank + 1);
        ls_json_string(&out, token);
        ls_text_add(&out, ":%u,", id++);
    }
    ls_text_add(&out, "\"<|endoftext|>\":%u}", id);
    return out;
}

static int open_golden_gpt2(void **state)
{
    blob merges = unpack("gpt2-vocab.bpe.gz");
    merges.p[merges.n] = 0;
    ls_text vocab = encoder_json(&merges);
    ls_status st = ls_tokenizer_parse_gpt2("vocab.bpe", merges.p, merges.n, "encoder.json", vocab.p, vocab.n,
                                           (ls_tokenizer **)state);
    if (st < 0) print_error("%s\n", ls_last_error());
    ls_text_free(&vocab);
    free(merges.p);
    return st;
}

static int close_golden_gpt2(void **state)
{
    ls_tokenizer_close(*state);
    return 0;
}

static void assert_says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

/* SHA-256 of ids as little-endian uint16. */
static void assert_digest(const ls_ids *ids, int n, const char *sha256)
{
    uint16_t *id = malloc(ids->n * sizeof *id);
    uint8_t digest[32];
    char hex[65];
    for (size_t i = 0; i < ids->n; i++) id[i] = (uint16_t)ids->p[i];
    crypto_hash_sha256(digest, (uint8_t *)id, ids->n * sizeof *id);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned)digest[i]);
    free(id);
    assert_int_equal(ids->n, n);
    assert_string_equal(hex, sha256);
}

static void assert_ids(const ls_ids *ids, const uint32_t *want, size_t n)
{
    assert_int_equal(ids->n, n);
    for (size_t i = 0; i < n; i++)
        if (ids->p[i] != want[i]) fail_msg("id %zu is %u, expected %u", i, ids->p[i], want[i]);
}

static void gives_tiktokens_ids(void **state)
{
    for (size_t row = 0; row < COUNT(golden_strings); row++) {
        ls_ids ids = { 0 };
        size_t n = (size_t)golden_strings[row].bytes;
        assert_int_equal(ls_tokenizer_encode(*state, golden_strings[row].text, n, 0, &ids), LS_OK);
        bool same = ids.n == (size_t)golden_strings[row].n;
        for (size_t i = 0; same && i < ids.n; i++) same = ids.p[i] == golden_strings[row].id[i];
        if (!same) fail_msg("string %zu: %zu ids, expected %d: '%s'", row, ids.n, golden_strings[row].n, golden_strings[row].text);
        ls_ids_free(&ids);
    }
}

static void gives_tiktokens_ids_of_two_hundred_kilobytes(void **state)
{
    blob b = unpack("moby-dick-excerpt.txt.gz");
    ls_ids ids = { 0 };
    assert_int_equal(ls_ids_reserve(&ids, 1), LS_OK);
    ids.p[ids.n++] = 50256;
    assert_int_equal(ls_tokenizer_encode(*state, b.p, b.n, 0, &ids), LS_OK);
    assert_digest(&ids, golden_excerpt.n, golden_excerpt.sha256);
    ls_ids_free(&ids);
    free(b.p);
}

static void special_tokens_count_when_asked_for(void **state)
{
    static const char text[] = "x<|endoftext|>y<|endoftext|>";
    ls_ids ids = { 0 };
    assert_int_equal(ls_tokenizer_encode(*state, text, sizeof text - 1, LS_ENCODE_SPECIAL, &ids), LS_OK);
    assert_ids(&ids, golden_special, COUNT(golden_special));
    ids.n = 0;
    assert_int_equal(ls_tokenizer_encode(*state, text, sizeof text - 1, 0, &ids), LS_OK);
    for (size_t i = 0; i < ids.n; i++) assert_int_not_equal(ids.p[i], 50256);
    assert_int_equal(ls_tokenizer_special(*state, "<|endoftext|>"), 50256);
    assert_int_equal(ls_tokenizer_special(*state, " the"), -1);
    assert_int_equal(ls_tokenizer_end_of_text(*state), 50256);
    assert_int_equal(ls_tokenizer_vocab_size(*state), 50257);
    ls_ids_free(&ids);
}

/* A text of `n` random characters from ranges that matter to the pattern, up to 4 bytes each. */
static size_t random_text(ls_mt19937 *g, size_t n, char *p)
{
    static const struct { uint32_t first, count; } range[] = {
        { 0, 128 }, { 'a', 26 }, { ' ', 1 }, { '\'', 1 }, { '0', 10 }, { 9, 5 }, { 0x80, 0x180 }, { 0x300, 0x70 }, { 0x2000, 0x70 },
        { 0x3040, 0x60 }, { 0x1f600, 0x40 }, { 0x10fff0, 16 }, { 0x660, 10 }, { 'l', 2 }, { 0x180e, 1 },
    };
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t r = ls_mt19937_next(g) % COUNT(range);
        uint32_t c = range[r].first + ls_mt19937_next(g) % range[r].count;
        if (c < 0x80) p[at++] = (char)c;
        else if (c < 0x800) p[at++] = (char)(0xc0 | c >> 6), p[at++] = (char)(0x80 | (c & 63));
        else if (c < 0x10000)
            p[at++] = (char)(0xe0 | c >> 12), p[at++] = (char)(0x80 | (c >> 6 & 63)), p[at++] = (char)(0x80 | (c & 63));
        else
            p[at++] = (char)(0xf0 | c >> 18), p[at++] = (char)(0x80 | (c >> 12 & 63)),
            p[at++] = (char)(0x80 | (c >> 6 & 63)), p[at++] = (char)(0x80 | (c & 63));
    }
    return at;
}

static void the_quick_way_cuts_like_the_pattern(void **state)
{
    (void)state;
    ls_split *quick, *plain;
    ls_mt19937 g;
    char text[4 * 64];
    size_t words = 0;
    assert_int_equal(ls_split_create(ls_split_gpt2, true, &quick), LS_OK);
    assert_int_equal(ls_split_create(ls_split_gpt2, false, &plain), LS_OK);
    ls_mt19937_seed(&g, 1);
    for (int round = 0; round < 20000; round++) {
        size_t n = random_text(&g, 1 + ls_mt19937_next(&g) % 64, text);
        if (round % 2)
            for (size_t i = 0; i < n; i++) text[i] = "ab \n'st!0l\t"[(uint8_t)text[i] % 11];
        for (size_t at = 0, a, b; at < n; at = a, words++) {
            assert_int_equal(ls_split_next(quick, text, n, at, &a), LS_OK);
            assert_int_equal(ls_split_next(plain, text, n, at, &b), LS_OK);
            if (a != b) fail_msg("round %d: at byte %zu: %zu and %zu", round, at, a, b);
        }
    }
    assert_true(words > 100000);
    ls_split_destroy(quick);
    ls_split_destroy(plain);
}

/* The definition, pair by pair. */
static size_t reference_merge(const ls_bpe *b, const char *word, size_t n, uint32_t *id)
{
    for (size_t i = 0; i < n; i++) id[i] = b->of_byte[(uint8_t)word[i]];
    for (;;) {
        uint32_t best = LS_NO_TOKEN;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t m = 0; m < b->nmerges && m < best; m++)
                if (b->merge[m].left == id[i] && b->merge[m].right == id[i + 1]) best = m, where = i;
        if (best == LS_NO_TOKEN) return n;
        id[where] = b->merge[best].made;
        memmove(id + where + 1, id + where + 2, (n - where - 2) * sizeof *id);
        n--;
    }
}

/* Merges in any order, also ones that training would never give: a later token may merge earlier. */
static void words_of_any_length_merge_like_the_definition(void **state)
{
    (void)state;
    ls_mt19937 g;
    ls_mt19937_seed(&g, 2);
    for (int round = 0; round < 60; round++) {
        ls_bpe b = { 0 };
        uint32_t letters = 2 + ls_mt19937_next(&g) % 3, n = 1 + ls_mt19937_next(&g) % 60;
        bool pair[64][64] = { { false } };
        for (int i = 0; i < 256; i++) b.of_byte[i] = (uint32_t)i % letters;
        for (uint32_t m = 0; m < n; m++) {
            uint32_t l = ls_mt19937_next(&g) % (letters + m / 2), r = ls_mt19937_next(&g) % (letters + m);
            if (l > 63 || r > 63 || pair[l][r]) continue;
            pair[l][r] = true;
            assert_int_equal(ls_bpe_add(&b, l, r, letters + ls_mt19937_next(&g) % (m + 1)), LS_OK);
        }
        assert_int_equal(ls_bpe_finish(&b), LS_OK);
        for (int k = 0; k < 60; k++) {
            char word[400];
            uint32_t want[400];
            size_t len = 1 + ls_mt19937_next(&g) % (k % 2 ? 64 : 400);
            for (size_t i = 0; i < len; i++) word[i] = (char)(ls_mt19937_next(&g) % letters);
            size_t count = reference_merge(&b, word, len, want);
            for (int again = 0; again < 3; again++) { /* the second comes out of the memory */
                ls_ids ids = { 0 };
                ls_status (*way)(ls_bpe *, const char *, size_t, ls_ids *) = again == 2 ? ls_bpe_merge : ls_bpe_word;
                assert_int_equal(way(&b, word, len, &ids), LS_OK);
                assert_ids(&ids, want, count);
                ls_ids_free(&ids);
            }
        }
        ls_bpe_free(&b);
    }
}

static void a_full_memory_of_words_changes_nothing(void **state)
{
    ls_tokenizer *t = *state;
    ls_mt19937 g;
    ls_mt19937_seed(&g, 3);
    for (int k = 0; k < 150000; k++) {
        char word[16];
        ls_ids a = { 0 }, b = { 0 };
        size_t n = 4 + ls_mt19937_next(&g) % 12;
        for (size_t i = 0; i < n; i++) word[i] = (char)('a' + ls_mt19937_next(&g) % 26);
        assert_int_equal(ls_bpe_word(&t->bpe, word, n, &a), LS_OK);
        assert_int_equal(ls_bpe_merge(&t->bpe, word, n, &b), LS_OK);
        assert_ids(&a, b.p, b.n);
        ls_ids_free(&a);
        ls_ids_free(&b);
    }
    assert_true(t->bpe.cache.words < 100000); /* it did start again */
}

static void assert_comes_back(ls_tokenizer *t, const char *text, size_t n, unsigned flags)
{
    ls_ids ids = { 0 };
    char *back;
    size_t bytes;
    if (ls_tokenizer_encode(t, text, n, flags, &ids) != LS_OK) fail_msg("%s", ls_last_error());
    for (size_t i = 0; i < ids.n; i++) assert_true(ids.p[i] < ls_tokenizer_vocab_size(t));
    assert_int_equal(ls_tokenizer_decode(t, ids.p, ids.n, &back, &bytes), LS_OK);
    assert_int_equal(bytes, n);
    assert_memory_equal(back, text, n);
    free(back);
    ls_ids_free(&ids);
}

static void text_comes_back(void **state)
{
    ls_tokenizer *byte;
    ls_mt19937 g;
    char text[4 * 200];
    assert_int_equal(ls_tokenizer_open("byte", &byte), LS_OK);
    ls_mt19937_seed(&g, 4);
    for (int round = 0; round < 3000; round++) {
        size_t n = random_text(&g, ls_mt19937_next(&g) % 200, text);
        assert_comes_back(*state, text, n, 0);
        assert_comes_back(*state, text, n, LS_ENCODE_SPECIAL);
        for (size_t i = 0; i < n; i++) text[i] = (char)ls_mt19937_next(&g);
        assert_comes_back(byte, text, n, 0); /* any bytes */
    }
    ls_tokenizer_close(byte);
}

/* What Unicode recommends (table 3-8 of the standard, version 15) and Python's "replace" does. */
static void what_is_not_utf8_is_named_or_replaced(void **state)
{
    static const struct { const char *in; size_t n, bad; const char *out; } row[] = {
        { "\xff", 1, 0, "?" }, { "a\x80z", 3, 1, "a?z" }, { "\xc0\x80", 2, 0, "??" }, { "\xe2\x82" "a", 3, 0, "?a" },
        { "\xf0\x9f\x98", 3, 0, "?" }, { "\xed\xa0\x80", 3, 0, "???" }, { "\xf4\x90\x80\x80", 4, 0, "????" },
        { "\xe0\x80\x80", 3, 0, "???" }, { "\xf0\x80\x80\x80", 4, 0, "????" }, { "\xf5\x80", 2, 0, "??" }, { "\xc2", 1, 0, "?" },
        { "12345678\xc2\xa0\xc2" "b", 12, 10, "12345678\xc2\xa0?b" }, { "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82" "A", 9, 0, "????????A" },
        { "\xf4\x91\x92\x93\xff" "A\x80\xbf" "B", 9, 0, "?????A??B" }, { "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf" "A", 9, 0, "????A" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_text want = { 0 };
        ls_ids ids = { 0 };
        char *back, says[64];
        size_t n;
        for (const char *p = row[i].out; *p; p++)
            if (*p == '?') ls_text_add(&want, "\xef\xbf\xbd");
            else ls_text_addn(&want, p, 1);
        assert_int_equal(ls_tokenizer_encode(*state, row[i].in, row[i].n, 0, &ids), LS_INVALID);
        assert_int_equal(ids.n, 0);
        snprintf(says, sizeof says, "byte %zu of the text: 0x%02x is not UTF-8", row[i].bad, (unsigned)(uint8_t)row[i].in[row[i].bad]);
        assert_says(says);
        assert_int_equal(ls_tokenizer_encode(*state, row[i].in, row[i].n, LS_ENCODE_LOSSY, &ids), LS_OK);
        assert_int_equal(ls_tokenizer_decode(*state, ids.p, ids.n, &back, &n), LS_OK);
        if (n != want.n || memcmp(back, want.p, n) != 0) fail_msg("row %zu", i);
        free(back);
        ls_text_free(&want);
        ls_ids_free(&ids);
    }
}

static void characters_are_tokens_in_their_order(void **state)
{
    (void)state;
    static const char text[] = "b\xc3\xa9" "a\xf0\x9f\x98\x80" "b\n"; /* \n a b e-acute emoji */
    static const uint32_t want[] = { 2, 3, 1, 4, 2, 0 };
    ls_tokenizer *t;
    ls_ids ids = { 0 };
    assert_int_equal(ls_tokenizer_open_chars(text, sizeof text - 1, &t), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(t), 6);
    assert_int_equal(ls_tokenizer_end_of_text(t), 5);
    assert_int_equal(ls_tokenizer_encode(t, text, sizeof text - 1, 0, &ids), LS_OK);
    assert_ids(&ids, want, COUNT(want));
    assert_comes_back(t, text, sizeof text - 1, 0);
    assert_int_equal(ls_tokenizer_encode(t, "ab\xe2\x82\xac", 5, 0, &ids), LS_INVALID);
    assert_says("byte 2 of the text: the character U+20AC is not one of the tokenizer's");
    assert_ids(&ids, want, COUNT(want)); /* as before */
    ls_tokenizer_close(t);
    ls_ids_free(&ids);

    assert_int_equal(ls_tokenizer_open("char", &t), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(t), 98);
    assert_comes_back(t, "To be, or not to be:\n\t~", 23, 0);
    ls_tokenizer_close(t);
    assert_int_equal(ls_tokenizer_open_chars("a\xff", 2, &t), LS_INVALID);
    assert_null(t);
    assert_int_equal(ls_tokenizer_open_chars("a\0b", 3, &t), LS_INVALID);
    assert_says("byte 1 of the text: NUL");
}

static void ids_that_are_no_tokens_are_named(void **state)
{
    char *text;
    size_t n;
    uint32_t id[] = { 5, 50256, 50257 };
    assert_int_equal(ls_tokenizer_decode(*state, id, 3, &text, &n), LS_INVALID);
    assert_null(text);
    assert_says("id 50257 at place 2 is no token; the vocabulary has 50257");
    assert_int_equal(ls_tokenizer_decode(*state, id, 2, &text, &n), LS_OK);
    assert_string_equal(text, "&<|endoftext|>");
    free(text);
}

/* --- tokenizer.json ------------------------------------------------------------------- */

static void reads_what_hugging_face_wrote(void **state)
{
    (void)state;
    static const char text[] = "<|user|>Call me Ishmael.<|endoftext|>";
    ls_tokenizer *t;
    blob json = unpack("hf-tokenizer.json.gz"), b = unpack("moby-dick-excerpt.txt.gz");
    ls_ids ids = { 0 };
    if (ls_tokenizer_parse_json("t.json", json.p, json.n, &t) != LS_OK) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_tokenizer_encode(t, b.p, b.n, LS_ENCODE_SPECIAL, &ids), LS_OK);
    assert_digest(&ids, golden_hf.n, golden_hf.sha256);
    ids.n = 0;
    assert_int_equal(ls_tokenizer_encode(t, text, sizeof text - 1, LS_ENCODE_SPECIAL, &ids), LS_OK);
    assert_ids(&ids, golden_hf_special, COUNT(golden_hf_special));
    ls_ids_free(&ids);
    ls_tokenizer_close(t);
    free(json.p);
    free(b.p);
}

/* All strings one behind the other. U+180E is left out: PCRE2's \s has it, Unicode's white space has not. */
static ls_text all_strings(void)
{
    ls_text all = { 0 };
    for (size_t row = 0; row < COUNT(golden_strings); row++)
        for (int i = 0; i < golden_strings[row].bytes; i++) {
            const char *p = golden_strings[row].text + i;
            if (strncmp(p, "\xe1\xa0\x8e", 3) == 0) i += 2;
            else ls_text_addn(&all, p, 1);
        }
    return all;
}

static void reads_llamas_pattern_and_whole_words(void **state)
{
    (void)state;
    ls_tokenizer *t;
    blob json = unpack("hf-split.json.gz"), b = unpack("moby-dick-excerpt.txt.gz");
    ls_text strings = all_strings();
    ls_ids ids = { 0 };
    if (ls_tokenizer_parse_json("t.json", json.p, json.n, &t) != LS_OK) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_tokenizer_encode(t, b.p, b.n, 0, &ids), LS_OK);
    assert_digest(&ids, golden_split.n, golden_split.sha256);
    ids.n = 0;
    assert_int_equal(ls_tokenizer_encode(t, strings.p, strings.n, LS_ENCODE_SPECIAL, &ids), LS_OK);
    assert_digest(&ids, golden_split_strings.n, golden_split_strings.sha256);
    ls_text_free(&strings);
    ls_ids_free(&ids);
    ls_tokenizer_close(t);
    free(json.p);
    free(b.p);
}

/* Saved, read, and saved again: the same ids and the same file. */
static void assert_survives_a_file(ls_tokenizer *t, const char *text, size_t n)
{
    char path[64], *first, *second;
    size_t nfirst, nsecond;
    ls_tokenizer *back;
    ls_ids a = { 0 }, b = { 0 };
    snprintf(path, sizeof path, "/tmp/test_tokenizer.%d", ls_env_get()->pid());
    assert_int_equal(ls_tokenizer_save(t, path), LS_OK);
    if (ls_tokenizer_open(path, &back) != LS_OK) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_file_read(path, (size_t)8 << 20, &first, &nfirst), LS_OK);
    assert_int_equal(ls_tokenizer_save(back, path), LS_OK);
    assert_int_equal(ls_file_read(path, (size_t)8 << 20, &second, &nsecond), LS_OK);
    ls_env_get()->unlink(path);
    assert_int_equal(nfirst, nsecond);
    assert_memory_equal(first, second, nfirst);
    assert_int_equal(ls_tokenizer_vocab_size(back), ls_tokenizer_vocab_size(t));
    assert_int_equal(ls_tokenizer_end_of_text(back), ls_tokenizer_end_of_text(t));
    assert_int_equal(ls_tokenizer_encode(t, text, n, LS_ENCODE_SPECIAL, &a), LS_OK);
    assert_int_equal(ls_tokenizer_encode(back, text, n, LS_ENCODE_SPECIAL, &b), LS_OK);
    assert_ids(&b, a.p, a.n);
    ls_ids_free(&a);
    ls_ids_free(&b);
    free(first);
    free(second);
    ls_tokenizer_close(back);
}

static void every_kind_survives_a_file(void **state)
{
    blob b = unpack("moby-dick-excerpt.txt.gz"), json = unpack("hf-tokenizer.json.gz");
    ls_tokenizer *t;
    assert_survives_a_file(*state, b.p, b.n);
    assert_int_equal(ls_tokenizer_open("byte", &t), LS_OK);
    assert_survives_a_file(t, b.p, b.n);
    ls_tokenizer_close(t);
    assert_int_equal(ls_tokenizer_open_chars(b.p, b.n, &t), LS_OK);
    assert_survives_a_file(t, b.p, b.n);
    ls_tokenizer_close(t);
    assert_int_equal(ls_tokenizer_parse_json("t.json", json.p, json.n, &t), LS_OK);
    assert_survives_a_file(t, b.p, b.n);
    ls_tokenizer_close(t);
    free(json.p);
    json = unpack("hf-split.json.gz");
    assert_int_equal(ls_tokenizer_parse_json("t.json", json.p, json.n, &t), LS_OK);
    assert_survives_a_file(t, b.p, b.n);
    ls_tokenizer_close(t);
    free(b.p);
    free(json.p);
}

/* A tokenizer.json of the 256 bytes, with parts that a case replaces. */
static ls_text small_json(const char *root, const char *pre, const char *added, const char *model, const char *vocab,
                          const char *merges)
{
    ls_text out = { 0 };
    ls_text_add(&out, "{\"version\":\"1.0\",%s\"added_tokens\":[%s],\"pre_tokenizer\":%s,\"model\":{\"type\":\"BPE\",%s\"vocab\":{", root,
                added, pre, model);
    for (unsigned b = 0; b < 256; b++) {
        unsigned c = ls_byte_to_char((uint8_t)b);
        char token[3] = { (char)c, 0, 0 };
        if (c >= 0x80) token[0] = (char)(0xc0 | c >> 6), token[1] = (char)(0x80 | (c & 0x3f));
        ls_text_add(&out, "%s", b ? "," : "");
        ls_json_string(&out, token);
        ls_text_add(&out, ":%u", b);
    }
    ls_text_add(&out, "%s},\"merges\":[%s]}}", vocab, merges);
    return out;
}

#define LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define SPLIT(more) "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"," more "}," \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"

/* Of special tokens that begin at the same place the longest counts, in whatever order they are listed. */
static void the_longest_special_token_counts(void **state)
{
    (void)state;
    static const char *const added[] = {
        "{\"id\":256,\"content\":\"<s>\",\"special\":true},{\"id\":257,\"content\":\"<s>more\",\"special\":true}",
        "{\"id\":257,\"content\":\"<s>more\",\"special\":true},{\"id\":256,\"content\":\"<s>\",\"special\":true}",
    };
    static const uint32_t want[] = { 257, 256, 'm', 'o' };
    for (size_t i = 0; i < COUNT(added); i++) {
        ls_text json = small_json("", LEVEL, added[i], "", "", "");
        ls_tokenizer *t;
        ls_ids ids = { 0 };
        if (ls_tokenizer_parse_json("t.json", json.p, json.n, &t) != LS_OK) fail_msg("%s", ls_last_error());
        assert_int_equal(ls_tokenizer_encode(t, "<s>more<s>mo", 12, LS_ENCODE_SPECIAL, &ids), LS_OK);
        assert_ids(&ids, want, COUNT(want));
        ls_ids_free(&ids);
        ls_tokenizer_close(t);
        ls_text_free(&json);
    }
}

static void parts_that_are_not_served_are_refused_by_name(void **state)
{
    (void)state;
    static const struct { ls_status st; const char *root, *pre, *added, *model, *vocab, *merges, *says; } row[] = {
        { LS_OK, "", LEVEL, "", "", "", "", "" },
        { LS_OK, "\"normalizer\":null,\"truncation\":null,", LEVEL, "", "\"dropout\":null,", ",\"ab\":256", "\"a b\"", "" },
        { LS_OK, "", LEVEL, "", "", ",\"ab\":256", "[\"a\",\"b\"]", "" },
        { LS_OK, "", SPLIT("\"pattern\":{\"Regex\":\"\\\\p{L}+\"},\"behavior\":\"Isolated\",\"invert\":false"), "", "", "", "", "" },
        { LS_UNSUPPORTED, "\"normalizer\":{\"type\":\"NFC\"},", LEVEL, "", "", "", "", "t.json: normalizer: NFC is not built in" },
        { LS_UNSUPPORTED, "\"truncation\":{\"max_length\":5},", LEVEL, "", "", "", "", "truncation" },
        { LS_UNSUPPORTED, "\"padding\":{},", LEVEL, "", "", "", "", "padding" },
        { LS_UNSUPPORTED, "\"colour\":1,", LEVEL, "", "", "", "", "colour is not built in" },
        { LS_UNSUPPORTED, "\"decoder\":{\"type\":\"WordPiece\"},", LEVEL, "", "", "", "", "decoder: WordPiece" },
        { LS_UNSUPPORTED, "", "{\"type\":\"Metaspace\"}", "", "", "", "", "pre_tokenizer: Metaspace" },
        { LS_UNSUPPORTED, "", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "", "", "", "", "add_prefix_space" },
        { LS_UNSUPPORTED, "", SPLIT("\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\""), "", "", "", "", "Regex" },
        { LS_UNSUPPORTED, "", SPLIT("\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\""), "", "", "", "", "not Isolated" },
        { LS_UNSUPPORTED, "", SPLIT("\"pattern\":{\"Regex\":\"a(\"},\"behavior\":\"Isolated\""), "", "", "", "", "byte 2 of the pattern" },
        { LS_UNSUPPORTED, "", SPLIT("\"pattern\":{\"Regex\":\"a\\\\Kb\"},\"behavior\":\"Isolated\""), "", "", "", "", "\\K is not built in" },
        { LS_UNSUPPORTED, "", LEVEL, "{\"id\":256,\"content\":\"<s>\",\"lstrip\":true}", "", "", "", "lstrip" },
        { LS_UNSUPPORTED, "", LEVEL, "", "\"dropout\":0.1,", "", "", "model.dropout" },
        { LS_UNSUPPORTED, "", LEVEL, "", "\"byte_fallback\":true,", "", "", "byte_fallback" },
        { LS_UNSUPPORTED, "", LEVEL, "", "\"end_of_word_suffix\":\"</w>\",", "", "", "end_of_word_suffix" },
        { LS_BAD_FILE, "", LEVEL, "{\"id\":-1,\"content\":\"<s>\"}", "", "", "", "added_tokens: number 0" },
        { LS_BAD_FILE, "", LEVEL, "{\"id\":5,\"content\":\"<s>\"}", "", "", "", "two tokens have the id 5" },
        { LS_BAD_FILE, "", LEVEL, "{\"id\":300,\"content\":\"\"}", "", "", "", "is empty" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":255", "", "vocab: two tokens have the id 255" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":1048576", "", "the id of 'ab' is not a whole number below 1048576" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":1.5", "", "the id of 'ab'" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"a b\":256", "", "'a b' is not in the alphabet" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":256,\"ab\":257", "", "duplicate" },
        { LS_BAD_FILE, "", LEVEL, "", "", "", "\"a b\"", "model.merges: number 0: what it makes is not in the vocabulary" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":256", "\"a b\",\"abb\"", "number 1: expected two tokens with one blank" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":256", "\"a b\",\"a b\"", "merges 0 and 1 are the same" },
        { LS_BAD_FILE, "", LEVEL, "", "", ",\"ab\":256", "\"a bb\"", "its right half is not in the vocabulary" },
        { LS_BAD_FILE, "", LEVEL, "", "", "", "7", "expected \"left right\"" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_tokenizer *t;
        ls_text json = small_json(row[i].root, row[i].pre, row[i].added, row[i].model, row[i].vocab, row[i].merges);
        ls_status st = ls_tokenizer_parse_json("t.json", json.p, json.n, &t);
        if (st != row[i].st) fail_msg("row %zu: %s: %s", i, ls_status_word(st), ls_last_error());
        if (st < 0) assert_says(row[i].says);
        assert_true((st == LS_OK) == (t != NULL));
        ls_tokenizer_close(t);
        ls_text_free(&json);
    }
}

static ls_status parse(const char *json)
{
    ls_tokenizer *t;
    ls_status st = ls_tokenizer_parse_json("t.json", json, strlen(json), &t);
    ls_tokenizer_close(t);
    return st;
}

static void broken_files_are_refused_with_the_place(void **state)
{
    (void)state;
    assert_int_equal(parse(""), LS_BAD_FILE);
    assert_int_equal(parse("{\n\"version\": }"), LS_BAD_FILE);
    assert_says("t.json: line 2, column 1");
    assert_int_equal(parse("[]"), LS_BAD_FILE);
    assert_int_equal(parse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}"), LS_UNSUPPORTED);
    assert_says("model.type: Unigram is not built in");
    assert_int_equal(parse("{\"pre_tokenizer\":" LEVEL ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}"), LS_BAD_FILE);
    assert_says("the byte 0x00 is not in the vocabulary; all 256 must be");
    assert_int_equal(parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"ab\":0},\"merges\":[]}}"), LS_UNSUPPORTED);
    assert_says("'ab' has more than one character");
    blob json = unpack("hf-tokenizer.json.gz");
    for (size_t n = 0; n + 1 < json.n; n += 97) { /* every cut file is an error */
        ls_tokenizer *t;
        assert_int_equal(ls_tokenizer_parse_json("t.json", json.p, n, &t), LS_BAD_FILE);
        assert_null(t);
    }
    free(json.p);
}

static void accepts_as_much_as_the_limits(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        ls_text nested = { 0 }, vocab = { 0 }, added = { 0 }, pre = { 0 };
        ls_text_add(&nested, "\"post_processor\":");
        for (int i = 0; i < LS_JSON_MAX_DEPTH - 1 + over; i++) ls_text_add(&nested, "[");
        for (int i = 0; i < LS_JSON_MAX_DEPTH - 1 + over; i++) ls_text_add(&nested, "]");
        ls_text_add(&nested, ",");
        ls_text_add(&vocab, ",\"");
        for (unsigned i = 0; i < LS_TOKENIZER_MAX_TOKEN + (unsigned)over; i++) ls_text_add(&vocab, "x");
        ls_text_add(&vocab, "\":1048575");
        for (unsigned i = 0; i < LS_TOKENIZER_MAX_SPECIAL + (unsigned)over; i++)
            ls_text_add(&added, "%s{\"id\":%u,\"content\":\"<%u>\"}", i ? "," : "", 256 + i, i);
        ls_text_add(&pre, "%s", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"");
        for (unsigned i = 0; i < LS_TOKENIZER_MAX_PATTERN + (unsigned)over; i++) ls_text_add(&pre, "x");
        ls_text_add(&pre, "%s", "\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}");
        const struct { const char *root, *pre, *added, *vocab, *says; } row[] = {
            { nested.p, LEVEL, "", "", "more than 64 levels of nesting" },
            { "", LEVEL, "", vocab.p, "1025 bytes; at most 1024" },
            { "", LEVEL, added.p, "", "4097 of them, at most 4096" },
            { "", pre.p, "", "", "4097 bytes; at most 4096" },
        };
        for (size_t i = 0; i < COUNT(row); i++) {
            ls_tokenizer *t;
            ls_text json = small_json(row[i].root, row[i].pre, row[i].added, "", row[i].vocab, "");
            ls_status st = ls_tokenizer_parse_json("t.json", json.p, json.n, &t);
            if (st != (over ? LS_BAD_FILE : LS_OK)) fail_msg("row %zu, over %d: %s", i, over, st < 0 ? ls_last_error() : "accepted");
            if (over) assert_says(row[i].says);
            ls_tokenizer_close(t);
            ls_text_free(&json);
        }
        ls_text_free(&nested);
        ls_text_free(&vocab);
        ls_text_free(&added);
        ls_text_free(&pre);
    }
}

static void a_pattern_that_explodes_is_stopped(void **state)
{
    (void)state;
    ls_split *s;
    char text[64];
    size_t end;
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "cb", 2); /* without a b PCRE2 would not even begin */
    assert_int_equal(ls_split_create("(?:(a|a)+)+b", true, &s), LS_OK);
    assert_int_equal(ls_split_next(s, text, sizeof text, 0, &end), LS_INVALID);
    assert_says("the pattern that splits text fails there: ");
    ls_split_destroy(s);
}

static void gaps_and_empty_matches_of_a_pattern_lose_nothing(void **state)
{
    (void)state;
    static const struct { const char *pattern, *text; size_t end[8]; } row[] = {
        { "b+", "aabbacc", { 2, 4, 7 } }, { "x*", "axxb", { 1, 3, 4 } }, { "(?=b)", "abab", { 4 } }, { "z", "abc", { 3 } },
        { "(?<=a)b", "abab", { 1, 2, 3, 4 } }, { "[\xc3\xa9]", "x\xc3\xa9y", { 1, 3, 4 } },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_split *s;
        size_t n = strlen(row[i].text), k = 0;
        assert_int_equal(ls_split_create(row[i].pattern, true, &s), LS_OK);
        for (size_t at = 0, end; at < n; at = end) {
            assert_int_equal(ls_split_next(s, row[i].text, n, at, &end), LS_OK);
            if (end != row[i].end[k++]) fail_msg("row %zu: word %zu ends at %zu", i, k - 1, end);
        }
        ls_split_destroy(s);
    }
}

static void a_megabyte_of_one_kind_takes_no_time_worth_mentioning(void **state)
{
    size_t n = (size_t)1 << 20;
    char *text = malloc(n);
    for (int c = 0; c < 4; c++) {
        memset(text, "a \n!"[c], n);
        assert_comes_back(*state, text, n, 0);
    }
    free(text);
}

/* Under both pairs of names that these files have. */
static void opens_a_folder_of_gpt2s_files(void **state)
{
    static const char *const names[2][2] = { { "vocab.bpe", "encoder.json" }, { "merges.txt", "vocab.json" } };
    const ls_env *env = ls_env_get();
    blob merges = unpack("gpt2-vocab.bpe.gz");
    merges.p[merges.n] = 0;
    ls_text vocab = encoder_json(&merges);
    for (int k = 0; k < 2; k++) {
        char dir[64], path[2][96];
        ls_tokenizer *t;
        ls_ids a = { 0 }, b = { 0 };
        snprintf(dir, sizeof dir, "/tmp/test_tokenizer.%d.%d", env->pid(), k);
        assert_int_equal(env->mkdir(dir), 0);
        for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/%s", dir, names[k][i]);
        assert_int_equal(ls_file_write(path[0], merges.p, merges.n), LS_OK);
        assert_int_equal(ls_tokenizer_open(dir, &t), LS_IO);
        assert_says("neither encoder.json nor vocab.json is there");
        assert_int_equal(ls_file_write(path[1], vocab.p, vocab.n), LS_OK);
        if (k == 0) setenv("LOCKSTEP_GPT2", dir, 1);
        assert_int_equal(ls_tokenizer_open(k == 0 ? "gpt2" : dir, &t), LS_OK);
        unsetenv("LOCKSTEP_GPT2");
        assert_int_equal(ls_tokenizer_encode(t, "Call me Ishmael.", 16, 0, &a), LS_OK);
        assert_int_equal(ls_tokenizer_encode(*state, "Call me Ishmael.", 16, 0, &b), LS_OK);
        assert_ids(&a, b.p, b.n);
        ls_tokenizer_close(t);
        ls_ids_free(&a);
        ls_ids_free(&b);
        for (int i = 0; i < 2; i++) env->unlink(path[i]);
        env->rmdir(dir);
    }
    ls_tokenizer *t;
    char *line = merges.p;
    for (int i = 0; i < 4; i++) line = strchr(line, '\n') + 1;
    line[0] = '\n'; /* the fifth line is now empty, and what is left of it a sixth */
    assert_int_equal(ls_tokenizer_parse_gpt2("vocab.bpe", merges.p, merges.n, "encoder.json", vocab.p, vocab.n, &t), LS_BAD_FILE);
    assert_says("vocab.bpe: line 6: a merge: ");
    ls_text_free(&vocab);
    free(merges.p);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    ls_tokenizer *t;
    assert_int_equal(ls_tokenizer_open("/tmp", &t), LS_IO);
    assert_says("/tmp: neither vocab.bpe nor merges.txt is there; `lockstep data fetch gpt2` fetches those of GPT-2");
    assert_int_equal(ls_tokenizer_open("/nowhere/tokenizer.json", &t), LS_IO);
    assert_says("/nowhere/tokenizer.json: cannot be opened");
    assert_null(t);
}

/* tokenizer_config.json, to the byte: transformers' class that uses tokenizer.json as it is. */
static void says_how_transformers_is_to_use_it(void **state)
{
    (void)state;
#define BEGIN "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"model_max_length\": "
#define PLAIN ",\n  \"clean_up_tokenization_spaces\": false,\n  \"add_bos_token\": false,\n" \
              "  \"add_eos_token\": false,\n  \"add_prefix_space\": false,\n" \
              "  \"model_input_names\": [\"input_ids\", \"attention_mask\"]"
#define MARK(name) ",\n  \"" name "_token\": \"\\u003c|endoftext|\\u003e\""
    static const struct { const char *name; int64_t bos, eos, most; const char *text; } row[] = {
        { "byte", 256, 256, 32, BEGIN "32" PLAIN MARK("bos") MARK("eos") MARK("pad") "\n}\n" },
        { "char", -1, 97, 1024, BEGIN "1024" PLAIN MARK("eos") MARK("pad") "\n}\n" },
        { "byte", 256, -1, 8, BEGIN "8" PLAIN MARK("bos") "\n}\n" },
        { "byte", 65, 50256, 8, BEGIN "8" PLAIN "\n}\n" }, /* a byte is not special, and the other is not there */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_tokenizer *t;
        char *text;
        assert_int_equal(ls_tokenizer_open(row[i].name, &t), LS_OK);
        assert_int_equal(ls_tokenizer_config_text(t, row[i].bos, row[i].eos, row[i].most, &text), LS_OK);
        assert_string_equal(text, row[i].text);
        free(text);
        ls_tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_tiktokens_ids),
        cmocka_unit_test(gives_tiktokens_ids_of_two_hundred_kilobytes),
        cmocka_unit_test(the_longest_special_token_counts),
        cmocka_unit_test(special_tokens_count_when_asked_for),
        cmocka_unit_test(the_quick_way_cuts_like_the_pattern),
        cmocka_unit_test(words_of_any_length_merge_like_the_definition),
        cmocka_unit_test(a_full_memory_of_words_changes_nothing),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(what_is_not_utf8_is_named_or_replaced),
        cmocka_unit_test(characters_are_tokens_in_their_order),
        cmocka_unit_test(ids_that_are_no_tokens_are_named),
        cmocka_unit_test(reads_what_hugging_face_wrote),
        cmocka_unit_test(reads_llamas_pattern_and_whole_words),
        cmocka_unit_test(every_kind_survives_a_file),
        cmocka_unit_test(parts_that_are_not_served_are_refused_by_name),
        cmocka_unit_test(broken_files_are_refused_with_the_place),
        cmocka_unit_test(accepts_as_much_as_the_limits),
        cmocka_unit_test(a_pattern_that_explodes_is_stopped),
        cmocka_unit_test(gaps_and_empty_matches_of_a_pattern_lose_nothing),
        cmocka_unit_test(a_megabyte_of_one_kind_takes_no_time_worth_mentioning),
        cmocka_unit_test(opens_a_folder_of_gpt2s_files),
        cmocka_unit_test(says_how_transformers_is_to_use_it),
        cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, open_golden_gpt2, close_golden_gpt2);
}
