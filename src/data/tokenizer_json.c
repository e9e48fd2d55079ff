/* tokenizer_json.c -- Hugging Face's tokenizer.json, read and written.
 *
 * What is served: model BPE on bytes (ByteLevel, alone or behind one Split by a
 * pattern) with added tokens; and, with no merges and no pre-tokenizer, one token
 * a character. Everything else that would change ids is refused by its name. A
 * post-processor only adds tokens around a text, which encoding here never does:
 * it is read over, and not written back.
 */
#include "data/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"

static ls_status unsupported(const char *name, const char *where, const char *what)
{
    return ls_fail(LS_UNSUPPORTED, "%s: %s: %.100s is not built in", name, where, what);
}

static ls_status bad(const char *name, const char *where, const char *rule)
{
    return ls_fail(LS_BAD_FILE, "%s: %s: %s", name, where, rule);
}

/* What a reader of other parts found wrong becomes a fault of the file. */
static ls_status of_file(ls_status st, const char *name, const char *where)
{
    return st == LS_INVALID ? ls_fail(LS_BAD_FILE, "%s: %s: %s", name, where, ls_last_error()) : st;
}

/* The byte behind the string whose opening quote is at `at`. */
static size_t behind_string(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at + 1;
}

ls_status ls_tokenizer_json_load(const char *name, const char *text, size_t n, json_t **out)
{
    json_error_t e;
    int depth = 0;
    *out = NULL;
    if (n > LS_TOKENIZER_MAX_BYTES)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, at most %zu are accepted", name, n, LS_TOKENIZER_MAX_BYTES);
    for (size_t at = 0; at < n;) {
        char c = text[at];
        if ((c == '{' || c == '[') && ++depth > LS_JSON_MAX_DEPTH)
            return ls_fail(LS_BAD_FILE, "%s: byte %zu: more than %d levels of nesting", name, at, LS_JSON_MAX_DEPTH);
        depth -= c == '}' || c == ']';
        at = c == '"' ? behind_string(text, n, at) : at + 1;
    }
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (*out) return LS_OK;
    if (json_error_code(&e) == json_error_out_of_memory) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes of JSON", name, n);
    return ls_fail(LS_BAD_FILE, "%s: line %d, column %d: %s", name, e.line, e.column, e.text);
}

static bool is_text(const json_t *j, const char *want)
{
    return json_is_string(j) && strcmp(json_string_value(j), want) == 0;
}

/* false and absent are the same. */
static bool is_set(const json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

static bool is_null(const json_t *object, const char *key)
{
    const json_t *j = json_object_get(object, key);
    return !j || json_is_null(j);
}

static const char *type_of(const json_t *j)
{
    const json_t *type = json_object_get(j, "type");
    return json_is_string(type) ? json_string_value(type) : "without a type";
}

static ls_status only_keys(const char *name, const char *where, const json_t *object, const char *const *known)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return bad(name, where, "expected an object");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) k++;
        if (!*k) return unsupported(name, where, key);
    }
    return LS_OK;
}

/* --- the model ------------------------------------------------------------------- */

static ls_status add_token(const char *name, const char *key, const json_t *value, ls_tokenizer *t)
{
    char token[LS_TOKENIZER_MAX_TOKEN];
    size_t n = strlen(key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || number >= LS_TOKENIZER_MAX_TOKENS)
        return ls_fail(LS_BAD_FILE, "%s: vocab: the id of '%.60s' is not a whole number below %u", name, key,
                       LS_TOKENIZER_MAX_TOKENS);
    uint32_t id = (uint32_t)number;
    if (t->chars) {
        bool valid;
        if (n == 0 || ls_utf8_next(key, n, &valid) != n)
            return ls_fail(LS_UNSUPPORTED, "%s: vocab: '%.60s' has more than one character, and pre_tokenizer is not "
                           "ByteLevel: that is not built in", name, key);
        return of_file(ls_vocab_add(&t->vocab, id, key, n), name, "vocab");
    }
    if (n > 2 * LS_TOKENIZER_MAX_TOKEN) return of_file(ls_fail(LS_INVALID, "token %u is too long", id), name, "vocab");
    char *wide = n > sizeof token ? malloc(n) : NULL;
    if (n > sizeof token && !wide) return ls_fail(LS_NO_MEMORY, "%s: a token", name);
    size_t bytes = ls_chars_to_bytes(key, n, wide ? wide : token);
    ls_status st = bytes == SIZE_MAX
                       ? ls_fail(LS_BAD_FILE, "%s: vocab: '%.60s' is not in the alphabet that stands for bytes", name, key)
                       : of_file(ls_vocab_add(&t->vocab, id, wide ? wide : token, bytes), name, "vocab");
    free(wide);
    return st;
}

ls_status ls_tokenizer_json_vocab(const char *name, const json_t *vocab, ls_tokenizer *t)
{
    const char *key;
    json_t *value;
    if (!json_is_object(vocab)) return bad(name, "vocab", "expected an object of tokens and ids");
    if (json_object_size(vocab) > LS_TOKENIZER_MAX_TOKENS)
        return ls_fail(LS_BAD_FILE, "%s: vocab: %zu tokens, at most %u are accepted", name, json_object_size(vocab),
                       LS_TOKENIZER_MAX_TOKENS);
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) LS_TRY(add_token(name, key, value, t));
    return LS_OK;
}

static ls_status add_pair(ls_tokenizer *t, const char *left, size_t nleft, const char *right, size_t nright)
{
    char l[2 * LS_TOKENIZER_MAX_TOKEN], r[2 * LS_TOKENIZER_MAX_TOKEN];
    if (nleft > sizeof l || nright > sizeof r) return ls_fail(LS_INVALID, "a token of it is too long");
    nleft = ls_chars_to_bytes(left, nleft, l);
    nright = ls_chars_to_bytes(right, nright, r);
    if (nleft == SIZE_MAX || nright == SIZE_MAX) return ls_fail(LS_INVALID, "it is not in the alphabet that stands for bytes");
    return ls_tokenizer_add_merge(t, l, nleft, r, nright);
}

ls_status ls_tokenizer_json_merge(ls_tokenizer *t, const char *p, size_t n)
{
    const char *blank = memchr(p, ' ', n);
    if (!blank || memchr(blank + 1, ' ', n - (size_t)(blank + 1 - p)))
        return ls_fail(LS_INVALID, "expected two tokens with one blank between them");
    return add_pair(t, p, (size_t)(blank - p), blank + 1, n - (size_t)(blank + 1 - p));
}

static ls_status read_merges(const char *name, const json_t *merges, ls_tokenizer *t)
{
    size_t i;
    json_t *m;
    if (!json_is_array(merges)) return bad(name, "model.merges", "expected a list");
    if (json_array_size(merges) > 0 && t->chars) return unsupported(name, "model.merges", "merging without ByteLevel");
    json_array_foreach(merges, i, m) {
        const json_t *l = json_array_get(m, 0), *r = json_array_get(m, 1);
        ls_status st;
        if (json_is_string(m)) st = ls_tokenizer_json_merge(t, json_string_value(m), json_string_length(m));
        else if (json_array_size(m) == 2 && json_is_string(l) && json_is_string(r))
            st = add_pair(t, json_string_value(l), json_string_length(l), json_string_value(r), json_string_length(r));
        else st = ls_fail(LS_INVALID, "expected \"left right\" or [\"left\", \"right\"]");
        if (st == LS_INVALID) return ls_fail(LS_BAD_FILE, "%s: model.merges: number %zu: %s", name, i, ls_last_error());
        if (st < 0) return st;
    }
    return LS_OK;
}

static ls_status read_model(const char *name, const json_t *model, ls_tokenizer *t)
{
    static const char *const known[] = { "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                         "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges", NULL };
    static const char *const affix[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    if (!json_is_object(model)) return bad(name, "model", "expected an object");
    /* before version 0.13 there was no type, and BPE is what has merges */
    if (json_object_get(model, "type") ? !is_text(json_object_get(model, "type"), "BPE") : !json_object_get(model, "merges"))
        return unsupported(name, "model.type", type_of(model));
    LS_TRY(only_keys(name, "model", model, known));
    if (!is_null(model, "dropout")) return unsupported(name, "model.dropout", "dropping merges");
    if (is_set(model, "byte_fallback")) return unsupported(name, "model.byte_fallback", "SentencePiece's way with bytes");
    for (int i = 0; i < 2; i++)
        if (!is_null(model, affix[i]) && !is_text(json_object_get(model, affix[i]), ""))
            return unsupported(name, "model", affix[i]);
    LS_TRY(ls_tokenizer_json_vocab(name, json_object_get(model, "vocab"), t));
    if (is_set(model, "ignore_merges")) t->bpe.whole = &t->vocab;
    return read_merges(name, json_object_get(model, "merges"), t);
}

/* --- what is around it ----------------------------------------------------------- */

/* ByteLevel; *regex: it splits by GPT-2's pattern. */
static ls_status read_byte_level(const char *name, const json_t *j, bool *regex)
{
    static const char *const known[] = { "type", "add_prefix_space", "trim_offsets", "use_regex", NULL };
    if (!is_text(json_object_get(j, "type"), "ByteLevel")) return unsupported(name, "pre_tokenizer", type_of(j));
    LS_TRY(only_keys(name, "pre_tokenizer", j, known));
    if (is_set(j, "add_prefix_space")) return unsupported(name, "pre_tokenizer", "add_prefix_space");
    *regex = !json_is_false(json_object_get(j, "use_regex"));
    return LS_OK;
}

static ls_status read_pattern(const char *name, const json_t *j, ls_tokenizer *t)
{
    static const char *const known[] = { "type", "pattern", "behavior", "invert", NULL };
    if (!is_text(json_object_get(j, "type"), "Split")) return unsupported(name, "pre_tokenizer", type_of(j));
    LS_TRY(only_keys(name, "pre_tokenizer", j, known));
    const json_t *regex = json_object_get(json_object_get(j, "pattern"), "Regex");
    if (!json_is_string(regex)) return unsupported(name, "pre_tokenizer", "a Split by anything but a Regex");
    if (!is_text(json_object_get(j, "behavior"), "Isolated")) return unsupported(name, "pre_tokenizer", "a Split that is not Isolated");
    if (is_set(j, "invert")) return unsupported(name, "pre_tokenizer", "an inverted Split");
    ls_status st = ls_split_create(json_string_value(regex), true, &t->split);
    if (st == LS_UNSUPPORTED) return ls_fail(st, "%s: pre_tokenizer: %s", name, ls_last_error());
    return of_file(st, name, "pre_tokenizer");
}

static ls_status read_pre_tokenizer(const char *name, const json_t *j, ls_tokenizer *t)
{
    const json_t *list = json_object_get(j, "pretokenizers"), *last = j;
    bool regex = true;
    if (!j || json_is_null(j)) {
        t->chars = true;
        return LS_OK;
    }
    if (is_text(json_object_get(j, "type"), "Sequence")) {
        size_t n = json_array_size(list);
        if (n < 1 || n > 2) return unsupported(name, "pre_tokenizer", "a Sequence of other than a Split and ByteLevel");
        if (n == 2) LS_TRY(read_pattern(name, json_array_get(list, 0), t));
        last = json_array_get(list, n - 1);
    }
    LS_TRY(read_byte_level(name, last, &regex));
    if (!regex) return LS_OK;
    if (t->split) return unsupported(name, "pre_tokenizer", "a Split before ByteLevel with use_regex");
    return ls_split_create(ls_split_gpt2, true, &t->split);
}

static ls_status read_added(const char *name, const json_t *list, ls_tokenizer *t)
{
    static const char *const known[] = { "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL };
    static const char *const fussy[] = { "single_word", "lstrip", "rstrip" };
    size_t i;
    json_t *j;
    if (!list || json_is_null(list)) return LS_OK;
    if (!json_is_array(list)) return bad(name, "added_tokens", "expected a list");
    if (json_array_size(list) > LS_TOKENIZER_MAX_SPECIAL)
        return ls_fail(LS_BAD_FILE, "%s: added_tokens: %zu of them, at most %u are accepted", name, json_array_size(list),
                       LS_TOKENIZER_MAX_SPECIAL);
    json_array_foreach(list, i, j) {
        LS_TRY(only_keys(name, "added_tokens", j, known));
        const json_t *id = json_object_get(j, "id"), *content = json_object_get(j, "content");
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= LS_TOKENIZER_MAX_TOKENS ||
            !json_is_string(content))
            return ls_fail(LS_BAD_FILE, "%s: added_tokens: number %zu has no content or no id below %u", name, i,
                           LS_TOKENIZER_MAX_TOKENS);
        for (int k = 0; k < 3; k++)
            if (is_set(j, fussy[k])) return unsupported(name, "added_tokens", fussy[k]);
        LS_TRY(of_file(ls_tokenizer_add_special(t, json_string_value(content), json_string_length(content),
                                                (uint32_t)json_integer_value(id), is_set(j, "special")),
                       name, "added_tokens"));
    }
    return LS_OK;
}

static ls_status read_root(const char *name, const json_t *root, ls_tokenizer *t)
{
    static const char *const known[] = { "version",       "truncation",     "padding", "added_tokens", "normalizer",
                                         "pre_tokenizer", "post_processor", "decoder", "model",        NULL };
    static const char *const refused[] = { "normalizer", "truncation", "padding" };
    LS_TRY(only_keys(name, "its keys", root, known));
    for (int i = 0; i < 3; i++) {
        const json_t *j = json_object_get(root, refused[i]);
        if (!is_null(root, refused[i])) return unsupported(name, refused[i], json_object_get(j, "type") ? type_of(j) : refused[i]);
    }
    LS_TRY(read_pre_tokenizer(name, json_object_get(root, "pre_tokenizer"), t));
    const json_t *decoder = json_object_get(root, "decoder");
    if (!is_null(root, "decoder") && !is_text(json_object_get(decoder, "type"), t->chars ? "Fuse" : "ByteLevel"))
        return unsupported(name, "decoder", type_of(decoder));
    LS_TRY(read_model(name, json_object_get(root, "model"), t));
    LS_TRY(read_added(name, json_object_get(root, "added_tokens"), t));
    return of_file(ls_tokenizer_finish(t), name, "model");
}

ls_status ls_tokenizer_parse_json(const char *name, const char *text, size_t n, ls_tokenizer **out)
{
    json_t *root;
    ls_tokenizer *t;
    *out = NULL;
    LS_TRY(ls_tokenizer_json_load(name, text, n, &root));
    ls_status st = ls_tokenizer_new(&t);
    if (st == LS_OK) st = read_root(name, root, t);
    json_decref(root);
    if (st == LS_OK) *out = t;
    else ls_tokenizer_close(t);
    return st;
}

ls_status ls_tokenizer_open_json(const char *path, ls_tokenizer **out)
{
    char *text;
    size_t n;
    *out = NULL;
    LS_TRY(ls_file_read(path, LS_TOKENIZER_MAX_BYTES, &text, &n));
    ls_status st = ls_tokenizer_parse_json(path, text, n, out);
    free(text);
    return st;
}

/* --- writing ------------------------------------------------------------------------ */

/* A token in the alphabet of vocab.h, or a character as it is. */
static void put_token(const ls_tokenizer *t, uint32_t id, char *p)
{
    const uint8_t *bytes = (const uint8_t *)t->vocab.bytes + t->vocab.at[id];
    for (uint32_t i = 0; i < t->vocab.len[id]; i++) {
        unsigned c = t->chars ? 0 : ls_byte_to_char(bytes[i]);
        if (c < 0x80) {
            *p++ = (char)(t->chars ? bytes[i] : c);
        } else {
            *p++ = (char)(0xc0 | c >> 6);
            *p++ = (char)(0x80 | (c & 0x3f));
        }
    }
    *p = 0;
}

/* The text of a special token is not written in that alphabet; as bytes they are the same. */
static void put_special(const ls_tokenizer *t, uint32_t id, char *p)
{
    memcpy(p, t->vocab.bytes + t->vocab.at[id], t->vocab.len[id]);
    p[t->vocab.len[id]] = 0;
}

static bool is_special(const ls_tokenizer *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->nspecial; i++)
        if (t->special[i].id == id) return true;
    return false;
}

static void put_pre_tokenizer(const ls_tokenizer *t, ls_text *out)
{
    static const char level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":%s}";
    const char *pattern = t->split ? ls_split_pattern(t->split) : NULL;
    ls_text_add(out, ",\n\"pre_tokenizer\":");
    if (t->chars) {
        ls_text_add(out, "null,\n\"post_processor\":null,\n\"decoder\":{\"type\":\"Fuse\"}");
        return;
    }
    if (pattern && strcmp(pattern, ls_split_gpt2) != 0 && strcmp(pattern, ls_split_gpt2_classic) != 0) {
        ls_text_add(out, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        ls_json_string(out, pattern);
        ls_text_add(out, "},\"behavior\":\"Isolated\",\"invert\":false},");
        ls_text_add(out, level, "false");
        ls_text_add(out, "]}");
    } else {
        ls_text_add(out, level, pattern ? "true" : "false");
    }
    ls_text_add(out, ",\n\"post_processor\":null,\n\"decoder\":");
    ls_text_add(out, level, "true");
}

static void put_all(const ls_tokenizer *t, ls_text *out)
{
    char token[4 * LS_TOKENIZER_MAX_TOKEN + 2]; /* or two of them */
    ls_text_add(out, "{\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n\"added_tokens\":[");
    for (uint32_t i = 0; i < t->nspecial; i++) {
        const ls_special *s = &t->special[i];
        put_special(t, s->id, token);
        ls_text_add(out, "%s{\"id\":%u,\"content\":", i ? ",\n" : "", s->id);
        ls_json_string(out, token);
        ls_text_add(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                    s->special ? "true" : "false");
    }
    ls_text_add(out, "],\n\"normalizer\":null");
    put_pre_tokenizer(t, out);
    ls_text_add(out, ",\n\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\n\"vocab\":{",
                t->bpe.whole ? "true" : "false");
    bool first = true;
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        if (t->vocab.len[id] == 0 || (t->chars && is_special(t, id))) continue;
        put_token(t, id, token);
        ls_text_add(out, first ? "\n" : ",\n");
        ls_json_string(out, token);
        ls_text_add(out, ":%u", id);
        first = false;
    }
    ls_text_add(out, "},\n\"merges\":[");
    for (uint32_t i = 0; i < t->bpe.nmerges; i++) {
        put_token(t, t->bpe.merge[i].left, token);
        size_t n = strlen(token);
        token[n] = ' ';
        put_token(t, t->bpe.merge[i].right, token + n + 1);
        ls_text_add(out, i ? ",\n" : "\n");
        ls_json_string(out, token);
    }
    ls_text_add(out, "]}}\n");
}

ls_status ls_tokenizer_save(const ls_tokenizer *t, const char *path)
{
    ls_text out = { 0 };
    put_all(t, &out);
    ls_status st = ls_text_status(&out);
    if (st == LS_OK) st = ls_file_write(path, out.p, out.n);
    ls_text_free(&out);
    return st;
}
