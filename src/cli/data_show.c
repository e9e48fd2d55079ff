/* data_show.c -- lockstep data show: a token file's size, and its first tokens with their text. */
#include "cli/data_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/cli.h"
#include "data/tokenizer.h"

/* What is printed of a file. */
typedef struct content {
    const ls_tokens *file;
    const ls_tokenizer *tokenizer; /* NULL: there is none */
    uint32_t most;                 /* the largest id */
    int64_t end;                   /* the id of end of text; -1: none */
    size_t documents;              /* how often it is there */
    size_t n;                      /* of the first tokens, */
    const int64_t *id;             /* these */
} content;

/* Text from a file must not steer a terminal: what is not printable ASCII is shown as an escape. */
static void put(ls_text *out, const char *p, size_t n)
{
    ls_text_add(out, "\"");
    for (size_t i = 0; i < n; i++)
        if (p[i] == '\n') ls_text_add(out, "\\n");
        else if (p[i] == '"' || p[i] == '\\') ls_text_add(out, "\\%c", p[i]);
        else if (p[i] >= 0x20 && p[i] < 0x7f) ls_text_add(out, "%c", p[i]);
        else ls_text_add(out, "\\x%02x", (unsigned)(uint8_t)p[i]);
    ls_text_add(out, "\"");
}

/* The tokenizer that was asked for, else the one that lies beside the file; *t NULL: there is none. */
static ls_status find_tokenizer(const ls_data_show *how, const char *path, ls_tokenizer **t)
{
    const char *slash = strrchr(path, '/');
    ls_text beside = { 0 };
    ls_file_info info = { 0 };
    *t = NULL;
    if (how->tokenizer) return ls_tokenizer_open(how->tokenizer, t);
    ls_text_add(&beside, "%.*stokenizer.json", slash ? (int)(slash + 1 - path) : 0, path);
    ls_status st = ls_text_status(&beside);
    if (st == LS_OK && ls_env_get()->info(beside.p, &info) == 0 && info.type != LS_FILE_NONE)
        st = ls_tokenizer_open(beside.p, t);
    ls_text_free(&beside);
    return st;
}

static void add_text(const content *c, const char *path, bool llmc, ls_text *out)
{
    put(out, path, strlen(path));
    ls_text_add(out, ": %s, %zu tokens of %d bits, ids up to %u\n", llmc ? "llm.c's format" : "nanoGPT's format", c->file->n,
                c->file->u16 ? 16 : 32, c->most);
    if (c->end >= 0) ls_text_add(out, "  end of text (%" PRId64 ") stands there %zu times\n", c->end, c->documents);
    for (size_t i = 0; i < c->n; i++) {
        size_t bytes = 0;
        const char *token = c->tokenizer ? ls_tokenizer_token(c->tokenizer, (uint32_t)c->id[i], &bytes) : NULL;
        ls_text_add(out, "%8zu %8" PRId64 "  ", i, c->id[i]);
        if (token) put(out, token, bytes);
        else if (c->tokenizer) ls_text_add(out, "not a token");
        ls_text_add(out, "\n");
    }
}

static void add_json(const content *c, const char *path, bool llmc, ls_text *out)
{
    ls_text_add(out, "{\"path\": ");
    ls_json_string(out, path);
    ls_text_add(out, ", \"format\": \"%s\", \"tokens\": %zu, \"bits\": %d, \"max_id\": %u", llmc ? "llmc" : "nanogpt", c->file->n,
                c->file->u16 ? 16 : 32, c->most);
    if (c->end >= 0) ls_text_add(out, ", \"end_of_text\": {\"id\": %" PRId64 ", \"times\": %zu}", c->end, c->documents);
    else ls_text_add(out, ", \"end_of_text\": null");
    ls_text_add(out, ", \"first\": [");
    for (size_t i = 0; i < c->n; i++) {
        size_t bytes = 0;
        const char *token = c->tokenizer ? ls_tokenizer_token(c->tokenizer, (uint32_t)c->id[i], &bytes) : NULL;
        ls_text_add(out, "%s{\"id\": %" PRId64 ", \"text\": ", i ? ", " : "", c->id[i]);
        if (token) ls_json_bytes(out, token, bytes);
        else ls_text_add(out, "null");
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}\n");
}

static ls_status print(content *c, const char *path, const ls_data_show *how)
{
    const bool llmc = how->format == LS_TOKENS_LLMC;
    ls_text out = { 0 };
    c->end = c->tokenizer ? ls_tokenizer_end_of_text(c->tokenizer) : -1;
    if (c->end >= 0) c->documents = ls_tokens_find(c->file, (uint32_t)c->end, 0, c->file->n, NULL, 0);
    if (how->json) add_json(c, path, llmc, &out);
    else add_text(c, path, llmc, &out);
    return ls_cli_print(&out);
}

ls_status ls_cli_data_show(const char *path, const ls_data_show *how)
{
    ls_tokens f;
    ls_tokenizer *t = NULL;
    LS_TRY(ls_tokens_open(path, how->format, &f));
    const size_t n = f.n < how->tokens ? f.n : how->tokens;
    int64_t *id = malloc((n + 1) * sizeof *id);
    content c = { .file = &f, .n = n, .id = id };
    for (size_t i = 0; i < f.n; i++) {
        const uint32_t one = f.u16 ? f.u16[i] : f.u32[i];
        c.most = one > c.most ? one : c.most;
    }
    ls_status st = id ? ls_tokens_read(&f, 0, n, UINT32_MAX, id) : ls_fail(LS_NO_MEMORY, "%zu tokens", n);
    if (st == LS_OK) st = find_tokenizer(how, path, &t);
    c.tokenizer = t;
    if (st == LS_OK) st = print(&c, path, how);
    free(id);
    ls_tokenizer_close(t);
    ls_tokens_close(&f);
    return st;
}
