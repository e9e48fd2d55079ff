/* hf_config.c -- config.json, read and written by the table that a model's class has (model/lm.h). */
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/json.h"
#include "model/lm.h"

/* Of every model, at the end. */
static const struct token_key {
    const char *key;
    size_t at; /* in ls_hf_config */
} tokens[] = {
    { "bos_token_id", offsetof(ls_hf_config, bos) },
    { "eos_token_id", offsetof(ls_hf_config, eos) },
};
#define TOKENS (sizeof tokens / sizeof *tokens)

static int64_t *token_at(ls_hf_config *c, size_t i) { return (int64_t *)((char *)c + tokens[i].at); }

/* Of every model, where it is there; not written. */
static const ls_hf_key refused[] = {
    { "quantization_config", LS_HF_CHECK, 0, "null", NULL },
    { "is_encoder_decoder", LS_HF_CHECK, 0, "false", NULL },
    { "pruned_heads", LS_HF_CHECK, 0, "{}", "null" },
    { "sliding_window", LS_HF_CHECK, 0, "null", NULL },
    { "use_sliding_window", LS_HF_CHECK, 0, "false", "null" },
    { 0 },
};

static const struct { const char *name; ls_dtype dtype; } dtypes[] = {
    { "float32", LS_F32 }, { "bfloat16", LS_BF16 }, { "float16", LS_F16 },
};

const ls_model_class *ls_hf_class(const char *model)
{
    const ls_model_class *cls = ls_model_class_find(model);
    return cls && cls->lm ? cls : NULL;
}

ls_status ls_hf_config_of(const ls_model_config *c, ls_hf_config *out)
{
    char names[128];
    ls_model_config resolved;
    const ls_model_class *cls = ls_hf_class(c->name);
    *out = (ls_hf_config){ .bos = -1, .eos = -1, .dtype = LS_F32 };
    if (!cls)
        return ls_fail(LS_UNSUPPORTED, "model '%s' has no form in Hugging Face's files; %s have", c->name ? c->name : "",
                       ls_model_names(LS_LM_KEY, names, sizeof names));
    LS_TRY(cls->resolve(c, &resolved));
    out->model = cls->name;
    out->lm = resolved.lm;
    return LS_OK;
}

/* --- reading ----------------------------------------------------------------------- */

static ls_status wrong(const char *what, const char *key, const json_t *v, const char *expected)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    const ls_status st = ls_fail(LS_BAD_FILE, "%s: \"%s\" is %.60s; expected %s", what, key, text ? text : "absent", expected);
    free(text);
    return st;
}

static ls_status read_size(const char *what, const ls_hf_key *f, const json_t *v, int64_t *out)
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

static ls_status read_token(const char *what, const char *key, const json_t *v, int64_t *out)
{
    *out = -1;
    if (json_is_array(v)) v = json_array_get(v, 0);
    if (!v || json_is_null(v)) return LS_OK;
    if (!json_is_integer(v) || json_integer_value(v) < -1) return wrong(what, key, v, "a token's id");
    *out = json_integer_value(v);
    return LS_OK;
}

static ls_status read_only(const char *what, const ls_hf_key *f, const json_t *v)
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

static ls_status read_key(const char *what, const ls_hf_key *f, const json_t *j, ls_lm_config *out)
{
    const json_t *v = json_object_get(j, f->key);
    void *at = (char *)out + f->at;
    switch (f->kind) {
    case LS_HF_SIZE:
        return read_size(what, f, v, at);
    case LS_HF_COUNT:
        return json_is_integer(v) && json_integer_value(v) == 0 ? LS_OK : read_size(what, f, v, at);
    case LS_HF_REAL:
        if (v && !json_is_number(v)) return wrong(what, f->key, v, "a number");
        *(double *)at = v ? json_number_value(v) : strtod(f->absent, NULL);
        return LS_OK;
    case LS_HF_FLAG:
        if (v && !json_is_boolean(v)) return wrong(what, f->key, v, "true or false");
        *(bool *)at = v ? json_is_true(v) : strcmp(f->absent, "true") == 0;
        return LS_OK;
    default:
        return read_only(what, f, v);
    }
}

/* Rotary positions are plain: transformers 4 says so by rope_theta and rope_scaling, 5 by rope_parameters. */
static ls_status read_rope(const char *what, const json_t *j, const ls_hf_key *own, ls_hf_config *out)
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
        for (const ls_hf_key *f = own; f->key; f++)
            if (f->kind == LS_HF_CHECK) LS_TRY(read_only(what, f, json_object_get(rope, f->key)));
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

static const char *type_of(const ls_model_class *cls, const ls_lm_class *form)
{
    return form->model_type ? form->model_type : cls->name;
}

/* A language model of the registry, and which of its forms. */
static bool find_type(const char *type, const ls_model_class **out, const ls_lm_class **form)
{
    for (int i = 0; ls_model_classes[i]; i++) {
        *out = ls_model_classes[i];
        for (*form = (*out)->lm; *form; *form = (*form)->second)
            if (strcmp(type_of(*out, *form), type) == 0) return true;
    }
    return false;
}

static ls_status read_type(const char *what, const json_t *type, const ls_model_class **out, const ls_lm_class **form)
{
    char names[128], expected[160];
    if (json_is_string(type) && find_type(json_string_value(type), out, form)) return LS_OK;
    ls_model_names(LS_LM_KEY, names, sizeof names);
    if (json_is_string(type))
        return ls_fail(LS_UNSUPPORTED, "%s: \"model_type\" is \"%.40s\"; supported are %s", what, json_string_value(type), names);
    snprintf(expected, sizeof expected, "a kind of model; supported are %s", names);
    return wrong(what, "model_type", type, expected);
}

static ls_status read_object(const char *what, const json_t *j, ls_hf_config *out)
{
    const ls_model_class *cls = NULL;
    const ls_lm_class *lm = NULL;
    LS_TRY(read_type(what, json_object_get(j, "model_type"), &cls, &lm));
    out->model = cls->name;
    for (const ls_hf_key *f = lm->keys; f->key; f++) LS_TRY(read_key(what, f, j, &out->lm));
    for (size_t i = 0; i < TOKENS; i++)
        LS_TRY(read_token(what, tokens[i].key, json_object_get(j, tokens[i].key), token_at(out, i)));
    const bool no_window = json_is_false(json_object_get(j, "use_sliding_window")); /* then its size means nothing */
    for (const ls_hf_key *f = refused; f->key; f++)
        if (!no_window || strcmp(f->key, "sliding_window") != 0) LS_TRY(read_only(what, f, json_object_get(j, f->key)));
    LS_TRY(read_dtype(what, j, out));
    if (lm->rotary) LS_TRY(read_rope(what, j, lm->keys, out));
    else out->lm.rope_theta = 10000; /* not used */
    if (!(out->lm.norm_eps > 0) || !(out->lm.rope_theta > 0)) /* to the class 0 would be the default */
        return ls_fail(LS_BAD_CONFIG, "%s: the norms' epsilon is %g, the rotary base %g; expected more than 0", what,
                       out->lm.norm_eps, out->lm.rope_theta);

    ls_model_config resolved;
    const ls_status st = cls->resolve(&(ls_model_config){ .name = cls->name, .lm = out->lm }, &resolved);
    if (st < 0) return ls_while(st, "reading %s", what);
    out->lm = resolved.lm;
    return LS_OK;
}

/* The nesting is bounded before jansson sees the text: its parser is recursive. */
static ls_status check_nesting(const char *what, const char *text, size_t n)
{
    ls_json_walk w = { .text = text, .n = n };
    ls_json_span key, value;
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

static void add_key(ls_text *out, const ls_hf_key *f, const ls_lm_config *c)
{
    const void *at = (const char *)c + f->at;
    if (f->kind == LS_HF_CHECK || (f->kind == LS_HF_COUNT && *(const int64_t *)at == 0)) return;
    if (f->kind == LS_HF_REAL && strncmp(f->key, "lockstep_", 9) == 0 && !(*(const double *)at > 0)) return; /* only Lockstep has these keys */
    ls_text_add(out, ",\n  \"%s\": ", f->key);
    switch (f->kind) {
    case LS_HF_SIZE:
    case LS_HF_COUNT:
        ls_text_add(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case LS_HF_REAL:
        add_real(out, *(const double *)at);
        break;
    case LS_HF_FLAG:
        ls_text_add(out, "%s", *(const bool *)at ? "true" : "false");
        break;
    default:
        ls_text_add(out, "%s", f->absent);
    }
}

static void add_token(ls_text *out, const char *key, int64_t id)
{
    ls_text_add(out, ",\n  \"%s\": ", key);
    if (id < 0) ls_text_add(out, "null");
    else ls_text_add(out, "%lld", (long long)id);
}

ls_status ls_hf_config_text(const ls_hf_config *c, char **out)
{
    ls_text text = { 0 };
    const ls_model_class *cls = ls_hf_class(c->model);
    *out = NULL;
    if (!cls) return ls_fail(LS_UNSUPPORTED, "model '%s' has no config.json", c->model ? c->model : "");
    const ls_lm_class *lm = cls->lm;
    if (lm->second && lm->is_second(&c->lm)) lm = lm->second;
    ls_text_add(&text, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"", lm->architecture, type_of(cls, lm));
    for (const ls_hf_key *f = lm->keys; f->key; f++) add_key(&text, f, &c->lm);
    for (size_t i = 0; i < TOKENS; i++) {
        ls_hf_config copy = *c;
        add_token(&text, tokens[i].key, *token_at(&copy, i));
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
