/* hf_config.c -- config.json: one table a model, for reading and for writing. */
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "ckpt/json.h"
#include "lockstep/hf.h"

typedef enum kind {
    SIZE,  /* int64_t; null counts as absent */
    TOKEN, /* int64_t, -1 for null or absent; of a list the first */
    REAL,  /* double */
    FLAG,  /* bool */
    ONLY   /* only the value of `absent` (or `alias`) is supported, and nothing is kept: any other is another formula */
} kind;

/* A key of config.json. */
typedef struct field {
    const char *key;
    kind kind;
    size_t at;          /* in ls_hf_config */
    const char *absent; /* transformers' value where the key is absent, as JSON; NULL: must be there */
    const char *alias;  /* ONLY: a second name of the same value; NULL: none */
} field;

#define AT(member) offsetof(ls_hf_config, member)

static const field gpt2_fields[] = {
    { "vocab_size", SIZE, AT(lm.vocab_size), NULL, NULL },
    { "n_positions", SIZE, AT(lm.seq_len), NULL, NULL },
    { "n_embd", SIZE, AT(lm.d_model), NULL, NULL },
    { "n_layer", SIZE, AT(lm.n_layer), NULL, NULL },
    { "n_head", SIZE, AT(lm.n_head), NULL, NULL },
    { "n_inner", SIZE, AT(lm.d_ff), "0", NULL }, /* 0, null: 4 n_embd */
    { "layer_norm_epsilon", REAL, AT(lm.norm_eps), "1e-5", NULL },
    { "embd_pdrop", REAL, AT(lm.embd_dropout), "0.1", NULL },
    { "attn_pdrop", REAL, AT(lm.attn_dropout), "0.1", NULL },
    { "resid_pdrop", REAL, AT(lm.resid_dropout), "0.1", NULL },
    { "tie_word_embeddings", FLAG, AT(lm.tied), "true", NULL },
    { "activation_function", ONLY, 0, "\"gelu_new\"", "\"gelu_pytorch_tanh\"" },
    { "scale_attn_weights", ONLY, 0, "true", NULL },
    { "scale_attn_by_inverse_layer_idx", ONLY, 0, "false", NULL },
    { "reorder_and_upcast_attn", ONLY, 0, "false", NULL },
    { "add_cross_attention", ONLY, 0, "false", NULL },
    { "bos_token_id", TOKEN, AT(bos), "null", NULL },
    { "eos_token_id", TOKEN, AT(eos), "null", NULL },
    { 0 },
};

static const field llama_fields[] = {
    { "vocab_size", SIZE, AT(lm.vocab_size), NULL, NULL },
    { "max_position_embeddings", SIZE, AT(lm.seq_len), "2048", NULL },
    { "hidden_size", SIZE, AT(lm.d_model), NULL, NULL },
    { "intermediate_size", SIZE, AT(lm.d_ff), NULL, NULL },
    { "num_hidden_layers", SIZE, AT(lm.n_layer), NULL, NULL },
    { "num_attention_heads", SIZE, AT(lm.n_head), NULL, NULL },
    { "num_key_value_heads", SIZE, AT(lm.n_kv_head), "0", NULL }, /* 0, null: as many as the others */
    { "rms_norm_eps", REAL, AT(lm.norm_eps), "1e-6", NULL },
    { "rope_theta", REAL, AT(lm.rope_theta), "10000.0", NULL },
    { "attention_dropout", REAL, AT(lm.attn_dropout), "0.0", NULL },
    { "tie_word_embeddings", FLAG, AT(lm.tied), "false", NULL },
    { "hidden_act", ONLY, 0, "\"silu\"", "\"swish\"" },
    { "attention_bias", ONLY, 0, "false", NULL },
    { "mlp_bias", ONLY, 0, "false", NULL },
    { "bos_token_id", TOKEN, AT(bos), "null", NULL },
    { "eos_token_id", TOKEN, AT(eos), "null", NULL },
    { 0 },
};

/* Of every model, where it is there; not written. */
static const field refused[] = {
    { "quantization_config", ONLY, 0, "null", NULL },
    { "is_encoder_decoder", ONLY, 0, "false", NULL },
    { "pruned_heads", ONLY, 0, "{}", "null" },
    { "sliding_window", ONLY, 0, "null", NULL },
    { "use_sliding_window", ONLY, 0, "false", "null" },
    { "partial_rotary_factor", ONLY, 0, "1.0", "1" },
    { 0 },
};

static const struct model_row {
    const char *model, *architecture; /* model_type and architectures */
    const field *fields;
} models[] = {
    { "gpt2", "GPT2LMHeadModel", gpt2_fields },
    { "llama", "LlamaForCausalLM", llama_fields },
};

static const struct { const char *name; ls_dtype dtype; } dtypes[] = {
    { "float32", LS_F32 }, { "bfloat16", LS_BF16 }, { "float16", LS_F16 },
};

ls_status ls_hf_config_of(const ls_model_config *c, ls_hf_config *out)
{
    *out = (ls_hf_config){ .bos = -1, .eos = -1, .dtype = LS_F32 };
    for (size_t i = 0; c->name && i < sizeof models / sizeof *models; i++)
        if (strcmp(c->name, models[i].model) == 0) out->model = models[i].model;
    if (!out->model)
        return ls_fail(LS_UNSUPPORTED, "model '%s' has no form in Hugging Face's files; gpt2 and llama have",
                       c->name ? c->name : "");
    return ls_lm_resolve(out->model, &c->lm, &out->lm);
}

/* --- reading ----------------------------------------------------------------------- */

static ls_status wrong(const char *what, const char *key, const json_t *v, const char *expected)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    const ls_status st = ls_fail(LS_BAD_FILE, "%s: \"%s\" is %.60s; expected %s", what, key, text ? text : "absent", expected);
    free(text);
    return st;
}

static ls_status read_size(const char *what, const field *f, const json_t *v, int64_t *out)
{
    if (json_is_null(v)) v = NULL;
    if (!v && f->absent) {
        *out = strtoll(f->absent, NULL, 10);
        return LS_OK;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1) return wrong(what, f->key, v, "a whole number above 0");
    *out = json_integer_value(v);
    return LS_OK;
}

static ls_status read_token(const char *what, const field *f, const json_t *v, int64_t *out)
{
    *out = -1;
    if (json_is_array(v)) v = json_array_get(v, 0);
    if (!v || json_is_null(v)) return LS_OK;
    if (!json_is_integer(v) || json_integer_value(v) < -1) return wrong(what, f->key, v, "a token's id");
    *out = json_integer_value(v);
    return LS_OK;
}

static ls_status read_only(const char *what, const field *f, const json_t *v)
{
    if (!v) return LS_OK;
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text) return ls_fail(LS_NO_MEMORY, "%s: \"%s\"", what, f->key);
    ls_status st = LS_OK;
    if (strcmp(text, f->absent) != 0 && !(f->alias && strcmp(text, f->alias) == 0))
        st = ls_fail(LS_UNSUPPORTED, "%s: \"%s\" is %.60s, which is another model than Lockstep's; supported is %s", what, f->key,
                     text, f->absent);
    free(text);
    return st;
}

static ls_status read_field(const char *what, const field *f, const json_t *j, ls_hf_config *out)
{
    const json_t *v = json_object_get(j, f->key);
    void *at = (char *)out + f->at;
    switch (f->kind) {
    case SIZE:
        return read_size(what, f, v, at);
    case TOKEN:
        return read_token(what, f, v, at);
    case REAL:
        if (v && !json_is_number(v)) return wrong(what, f->key, v, "a number");
        *(double *)at = v ? json_number_value(v) : strtod(f->absent, NULL);
        return LS_OK;
    case FLAG:
        if (v && !json_is_boolean(v)) return wrong(what, f->key, v, "true or false");
        *(bool *)at = v ? json_is_true(v) : strcmp(f->absent, "true") == 0;
        return LS_OK;
    default:
        return read_only(what, f, v);
    }
}

/* Rotary positions are plain: transformers 4 says so by rope_theta and rope_scaling, 5 by rope_parameters. */
static ls_status read_rope(const char *what, const json_t *j, ls_hf_config *out)
{
    static const char *const keys[] = { "rope_scaling", "rope_parameters" };
    for (int i = 0; i < 2; i++) {
        const json_t *rope = json_object_get(j, keys[i]);
        if (!rope || json_is_null(rope)) continue;
        if (!json_is_object(rope)) return wrong(what, keys[i], rope, "an object");
        const json_t *type = json_object_get(rope, "rope_type"), *theta = json_object_get(rope, "rope_theta");
        if (!type) type = json_object_get(rope, "type");
        if (type && (!json_is_string(type) || strcmp(json_string_value(type), "default") != 0))
            return ls_fail(LS_UNSUPPORTED, "%s: \"%s\" scales the rotary positions (\"%.40s\"); only plain ones are supported",
                           what, keys[i], json_is_string(type) ? json_string_value(type) : "?");
        for (const field *f = refused; f->key; f++) LS_TRY(read_only(what, f, json_object_get(rope, f->key)));
        if (theta && !json_is_number(theta)) return wrong(what, "rope_theta", theta, "a number");
        if (theta) out->lm.rope_theta = json_number_value(theta);
    }
    const json_t *head = json_object_get(j, "head_dim");
    if (!head || json_is_null(head)) return LS_OK;
    if (!json_is_integer(head)) return wrong(what, "head_dim", head, "a whole number");
    if (json_integer_value(head) != out->lm.d_model / out->lm.n_head)
        return ls_fail(LS_UNSUPPORTED, "%s: \"head_dim\" is %lld; supported is hidden_size / num_attention_heads, %lld", what,
                       (long long)json_integer_value(head), (long long)(out->lm.d_model / out->lm.n_head));
    return LS_OK;
}

static ls_status read_dtype(const char *what, const json_t *j, ls_hf_config *out)
{
    const json_t *v = json_object_get(j, "torch_dtype");
    if (!v) v = json_object_get(j, "dtype");
    out->dtype = LS_F32;
    if (!v || json_is_null(v)) return LS_OK;
    for (size_t i = 0; json_is_string(v) && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(json_string_value(v), dtypes[i].name) == 0) {
            out->dtype = dtypes[i].dtype;
            return LS_OK;
        }
    return wrong(what, "torch_dtype", v, "\"float32\", \"bfloat16\" or \"float16\"");
}

static ls_status read_object(const char *what, const json_t *j, ls_hf_config *out)
{
    const json_t *type = json_object_get(j, "model_type");
    const struct model_row *row = NULL;
    for (size_t i = 0; json_is_string(type) && i < sizeof models / sizeof *models; i++)
        if (strcmp(json_string_value(type), models[i].model) == 0) row = &models[i];
    if (!row && json_is_string(type))
        return ls_fail(LS_UNSUPPORTED, "%s: \"model_type\" is \"%.40s\"; supported are gpt2 and llama", what,
                       json_string_value(type));
    if (!row) return wrong(what, "model_type", type, "\"gpt2\" or \"llama\"");
    out->model = row->model;
    for (const field *f = row->fields; f->key; f++) LS_TRY(read_field(what, f, j, out));
    for (const field *f = refused; f->key; f++) LS_TRY(read_only(what, f, json_object_get(j, f->key)));
    LS_TRY(read_dtype(what, j, out));
    if (row->fields == llama_fields) LS_TRY(read_rope(what, j, out));
    if (row->fields == llama_fields && out->lm.attn_dropout > 0)
        return ls_fail(LS_UNSUPPORTED, "%s: \"attention_dropout\" is %g; supported is 0.0", what, out->lm.attn_dropout);
    if (row->fields != llama_fields) out->lm.rope_theta = 10000; /* not used */
    if (!(out->lm.norm_eps > 0) || !(out->lm.rope_theta > 0)) /* to ls_lm_resolve 0 would be the default */
        return ls_fail(LS_BAD_CONFIG, "%s: the norms' epsilon is %g, the rotary base %g; expected more than 0", what,
                       out->lm.norm_eps, out->lm.rope_theta);

    const ls_lm_config lm = out->lm;
    const ls_status st = ls_lm_resolve(out->model, &lm, &out->lm);
    return st < 0 ? ls_while(st, "reading %s", what) : LS_OK;
}

/* The nesting is bounded before jansson sees the text: its parser is recursive. */
static ls_status check_nesting(const char *what, const char *text, size_t n)
{
    ls_json_walk w = { .text = text, .n = n };
    ls_span key, value;
    int more;
    while (w.at < n && memchr(" \t\r\n", text[w.at], 4)) w.at++;
    while ((more = ls_json_next(&w, &key, &value)) > 0) continue;
    return more == 0 ? LS_OK : ls_fail(LS_BAD_FILE, "%s: byte %zu: %s", what, w.at, w.rule);
}

ls_status ls_hf_config_parse(const char *what, const void *text, size_t n, ls_hf_config *out)
{
    *out = (ls_hf_config){ .bos = -1, .eos = -1 };
    if (n > LS_HF_MAX_CONFIG)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, at most %u are accepted", what, n, LS_HF_MAX_CONFIG);
    LS_TRY(check_nesting(what, text, n));
    json_error_t e;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!j && json_error_code(&e) == json_error_out_of_memory) return ls_fail(LS_NO_MEMORY, "%s: %zu bytes", what, n);
    if (!j) return ls_fail(LS_BAD_FILE, "%s: byte %d: %.150s", what, e.position, e.text);
    ls_hf_config c = *out;
    const ls_status st = read_object(what, j, &c);
    json_decref(j);
    if (st == LS_OK) *out = c;
    return st;
}

ls_status ls_hf_config_read(const char *dir, ls_hf_config *out)
{
    ls_text path = { 0 };
    char *text = NULL;
    size_t n = 0;
    *out = (ls_hf_config){ 0 };
    ls_text_add(&path, "%s/config.json", dir);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK) st = ls_file_read(path.p, LS_HF_MAX_CONFIG, &text, &n);
    if (st == LS_OK) st = ls_hf_config_parse(path.p, text, n, out);
    free(text);
    ls_text_free(&path);
    return st;
}

/* --- writing ------------------------------------------------------------------------- */

/* The fewest digits that are read back as the same number, and a point or an exponent. */
static void add_real(ls_text *out, double v)
{
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, v);
        if (!(strtod(digits, NULL) < v) && !(strtod(digits, NULL) > v)) break;
    }
    ls_text_add(out, "%s%s", digits, strpbrk(digits, ".e") ? "" : ".0");
}

static void add_field(ls_text *out, const field *f, const ls_hf_config *c)
{
    const void *at = (const char *)c + f->at;
    ls_text_add(out, ",\n  \"%s\": ", f->key);
    switch (f->kind) {
    case SIZE:
        ls_text_add(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case TOKEN:
        if (*(const int64_t *)at < 0) ls_text_add(out, "null");
        else ls_text_add(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case REAL:
        add_real(out, *(const double *)at);
        break;
    case FLAG:
        ls_text_add(out, "%s", *(const bool *)at ? "true" : "false");
        break;
    default:
        ls_text_add(out, "%s", f->absent);
    }
}

ls_status ls_hf_config_text(const ls_hf_config *c, char **out)
{
    ls_text text = { 0 };
    *out = NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcmp(c->model, models[i].model) != 0) continue;
        ls_text_add(&text, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"", models[i].architecture,
                    models[i].model);
        for (const field *f = models[i].fields; f->key; f++) add_field(&text, f, c);
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == c->dtype) ls_text_add(&text, ",\n  \"torch_dtype\": \"%s\"", dtypes[i].name);
    ls_text_add(&text, "\n}\n");
    const ls_status st = ls_text_status(&text);
    if (st == LS_OK) *out = text.p;
    else ls_text_free(&text);
    return st;
}

ls_status ls_hf_generation_text(const ls_hf_config *c, char **out)
{
    ls_text text = { 0 };
    const struct { const char *key; int64_t id; } token[] = {
        { "bos_token_id", c->bos }, { "eos_token_id", c->eos }, { "pad_token_id", c->eos },
    };
    int n = 0;
    *out = NULL;
    ls_text_add(&text, "{");
    for (size_t i = 0; i < sizeof token / sizeof *token; i++)
        if (token[i].id >= 0) ls_text_add(&text, "%s\n  \"%s\": %lld", n++ ? "," : "", token[i].key, (long long)token[i].id);
    ls_text_add(&text, "\n}\n");
    const ls_status st = ls_text_status(&text);
    if (st == LS_OK) *out = text.p;
    else ls_text_free(&text);
    return st;
}
