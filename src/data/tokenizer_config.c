/* tokenizer_config.c -- Hugging Face's tokenizer_config.json, which says how tokenizer.json is to be used.
 *
 * Without it transformers guesses the tokenizer's class from the model's and builds that class's own splitting of
 * words and its own special tokens around the vocabulary. Without model_input_names, transformers 4.57 gives generate()
 * token types, which neither GPT-2 nor Llama takes.
 */
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "data/tokenizer.h"

/* The text of a special token; tokens of the vocabulary that are not special are none to transformers either. */
static void put_special(const ls_tokenizer *t, const char *key, int64_t id, ls_text *out)
{
    for (uint32_t i = 0; i < t->nspecial; i++) {
        char text[LS_TOKENIZER_MAX_TOKEN + 1];
        if ((int64_t)t->special[i].id != id || !t->special[i].special) continue;
        size_t n = 0;
        const char *p = ls_tokenizer_token(t, t->special[i].id, &n);
        memcpy(text, p, n);
        text[n] = 0;
        ls_text_add(out, ",\n  \"%s\": ", key);
        ls_json_string(out, text);
        return;
    }
}

ls_status ls_tokenizer_config_text(const ls_tokenizer *t, int64_t bos, int64_t eos, int64_t max_length, char **out)
{
    ls_text text = { 0 };
    *out = NULL;
    ls_text_add(&text, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"model_max_length\": %lld,\n"
                "  \"clean_up_tokenization_spaces\": false,\n  \"add_bos_token\": false,\n  \"add_eos_token\": false,\n"
                "  \"add_prefix_space\": false,\n  \"model_input_names\": [\"input_ids\", \"attention_mask\"]",
                (long long)max_length);
    put_special(t, "bos_token", bos, &text);
    put_special(t, "eos_token", eos, &text);
    put_special(t, "pad_token", eos, &text);
    ls_text_add(&text, "\n}\n");
    const ls_status st = ls_text_status(&text);
    if (st == LS_OK) *out = text.p;
    else ls_text_free(&text);
    return st;
}
