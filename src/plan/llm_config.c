/* llm_config.c -- config.json of language models as sizes. */
#include "plan/llm_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "lockstep/opts.h"

typedef struct source {
    const char *name, *text;
    size_t n;
    json_t *root;
} source;

/* The line of a key, the first of the text that has it in quotes; 1 where it is not there. */
static int line_of(const source *s, const char *key)
{
    char quoted[80];
    const int k = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    int line = 1;
    for (size_t i = 0; i + (size_t)k <= s->n; i++) {
        if (s->text[i] == '\n') line++;
        else if (memcmp(s->text + i, quoted, (size_t)k) == 0) return line;
    }
    return 1;
}

/* A size; NULL for a key means none. Where the value is null or absent, *out stays as it is if `optional`. */
static ls_status size_of(const source *s, const char *key, bool optional, int64_t *out)
{
    const json_t *v = key ? json_object_get(s->root, key) : NULL;
    if (!key) return LS_OK;
    if (!v || json_is_null(v)) {
        if (optional) return LS_OK;
        return ls_fail(LS_BAD_FILE, "%s:%d: no key '%s', which this architecture needs: expected a whole number",
            s->name,
                       line_of(s, key), key);
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ls_fail(LS_BAD_FILE, "%s:%d: '%s' is not a whole number of 0 or more", s->name, line_of(s, key), key);
    *out = (int64_t)json_integer_value(v);
    return LS_OK;
}

typedef enum family { GPT2, LLAMA, EXPERTS, DEEPSEEK } family;
static const struct { const char *type; family is; } families[] = {
    { "gpt2", GPT2 },         { "llama", LLAMA },         { "mistral", LLAMA },        { "qwen2", LLAMA },
    { "qwen3", LLAMA },       { "mixtral", EXPERTS },     { "qwen2_moe", EXPERTS },    { "qwen3_moe", EXPERTS },
    { "deepseek_v2", DEEPSEEK }, { "deepseek_v3", DEEPSEEK },
};
enum { FAMILIES = sizeof families / sizeof *families };

static ls_status family_of(const source *s, family *out)
{
    const json_t *v = json_object_get(s->root, "model_type");
    const char *type = json_string_value(v), *names[FAMILIES];
    if (!type)
        return ls_fail(LS_BAD_FILE, "%s:%d: no text 'model_type': is this the config.json of a language model?",
            s->name,
                       line_of(s, "model_type"));
    for (int i = 0; i < FAMILIES; i++) {
        names[i] = families[i].type;
        if (strcmp(type, families[i].type) != 0) continue;
        *out = families[i].is;
        return LS_OK;
    }
    const char *near = ls_nearest(type, names, FAMILIES);
    return ls_fail(LS_UNSUPPORTED, "%s:%d: architecture '%.60s' is not known%s%s; known are gpt2, llama, mistral, "
                        "qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2 and deepseek_v3; give its sizes by "
                        "--layers, --hidden, ... instead", s->name, line_of(s, "model_type"), type,
                        near ? ", the nearest is " : "",
                   near ? near : "");
}

typedef struct size_row { const char *key; bool optional; size_t at; } size_row;
#define AT(f) offsetof(ls_llm, f)

static const size_row gpt2_sizes[] = {
    { "n_layer", false, AT(layers) }, { "n_embd", false, AT(hidden) }, { "n_head", false, AT(heads) },
    { "vocab_size", false, AT(vocab) }, { "n_positions", false, AT(seq) }, { "n_inner", true, AT(ffn) }, { 0 },
};
static const size_row common_sizes[] = {
    { "num_hidden_layers", false, AT(layers) }, { "hidden_size", false, AT(hidden) },
    { "num_attention_heads", false, AT(heads) }, { "num_key_value_heads", true, AT(kv_heads) },
    { "head_dim", true, AT(head_dim) }, { "intermediate_size", false, AT(ffn) }, { "vocab_size", false, AT(vocab) },
    { "max_position_embeddings", false, AT(seq) }, { 0 },
};
static const size_row mixtral_sizes[] = {
    { "num_local_experts", false, AT(experts) }, { "num_experts_per_tok", false, AT(topk) },
    { "intermediate_size", false, AT(expert_ffn) }, { 0 },
};
static const size_row qwen_sizes[] = {
    { "num_experts", false, AT(experts) }, { "num_experts_per_tok", false, AT(topk) },
    { "moe_intermediate_size", false, AT(expert_ffn) }, { 0 },
};
static const size_row deepseek_sizes[] = {
    { "n_routed_experts", false, AT(experts) }, { "num_experts_per_tok", false, AT(topk) },
    { "moe_intermediate_size", false, AT(expert_ffn) }, { "n_shared_experts", true, AT(shared) },
    { "first_k_dense_replace", true, AT(dense_layers) }, { "q_lora_rank", true, AT(q_rank) },
    { "kv_lora_rank", false, AT(kv_rank) }, { "qk_nope_head_dim", false, AT(nope_dim) },
    { "qk_rope_head_dim", false, AT(rope_dim) }, { "v_head_dim", false, AT(v_dim) },
    { "num_nextn_predict_layers", true, AT(mtp) }, { 0 },
};

static ls_status sizes(const source *s, const size_row *rows, ls_llm *out)
{
    for (const size_row *r = rows; r->key; r++) LS_TRY(size_of(s, r->key, r->optional, (int64_t *)((char *)out +
        r->at)));
    return LS_OK;
}

static bool is_true(const source *s, const char *key, bool absent)
{
    const json_t *v = json_object_get(s->root, key);
    return json_is_boolean(v) ? json_is_true(v) : absent;
}

static ls_status fill(const source *s, ls_llm *o)
{
    family f = LLAMA;
    LS_TRY(family_of(s, &f));
    const char *type = json_string_value(json_object_get(s->root, "model_type"));
    if (f == GPT2) {
        o->biases = o->positions = true;
        o->tied = is_true(s, "tie_word_embeddings", true);
        return sizes(s, gpt2_sizes, o);
    }
    LS_TRY(sizes(s, common_sizes, o));
    o->gated = true;
    o->tied = is_true(s, "tie_word_embeddings", false);
    const bool windowed = strcmp(type, "mistral") == 0 || strcmp(type, "mixtral") == 0 || is_true(s,
        "use_sliding_window", false);
    if (windowed) LS_TRY(size_of(s, "sliding_window", true, &o->window));
    if (f == EXPERTS) LS_TRY(sizes(s, strcmp(type, "mixtral") == 0 ? mixtral_sizes : qwen_sizes, o));
    if (strcmp(type, "qwen2_moe") == 0) {
        int64_t wide = 0;
        LS_TRY(size_of(s, "shared_expert_intermediate_size", true, &wide));
        if (o->expert_ffn > 0) o->shared = wide / o->expert_ffn;
    }
    if (f == DEEPSEEK) {
        LS_TRY(sizes(s, deepseek_sizes, o));
        o->kv_heads = o->head_dim = 0; /* all heads have keys of their own, from the compressed ones */
    }
    return LS_OK;
}

ls_status ls_llm_config_parse(const char *name, const char *text, size_t n, ls_llm *out)
{
    json_error_t e;
    source s = { .name = name, .text = text, .n = n };
    *out = (ls_llm){ .name = name };
    if (n > LS_HF_MAX_CONFIG)
        return ls_fail(LS_BAD_FILE, "%s:1: %zu bytes; expected at most %u", name, n, LS_HF_MAX_CONFIG);
    s.root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!s.root) return ls_fail(LS_BAD_FILE, "%s:%d: not JSON: %s", name, e.line > 0 ? e.line : 1, e.text);
    ls_status st = json_is_object(s.root) ? fill(&s, out)
                                          : ls_fail(LS_BAD_FILE, "%s:1: not a JSON object; expected a config.json",
                                              name);
    if (st == LS_OK && (st = ls_llm_check(out)) < 0) st = ls_while(st, "reading %s", name);
    json_decref(s.root);
    return st;
}

ls_status ls_llm_config_read(const char *path, ls_llm *out)
{
    char file[4096], *text = NULL;
    size_t n = 0;
    const size_t len = strlen(path);
    const bool is_file = len > 5 && strcmp(path + len - 5, ".json") == 0;
    if (snprintf(file, sizeof file, "%s%s", path, is_file ? "" : "/config.json") >= (int)sizeof file)
        return ls_fail(LS_IO, "%.80s...: the path is too long", path);
    ls_status st = ls_file_read(file, LS_HF_MAX_CONFIG, &text, &n);
    if (st < 0) st = ls_while(st, "reading a model from %s (expected a config.json, or a folder that has one)", path);
    if (st == LS_OK) st = ls_llm_config_parse(file, text, n, out);
    out->name = path;
    free(text);
    return st;
}
