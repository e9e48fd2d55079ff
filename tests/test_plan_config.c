/* config.json of known models as sizes: their exact parameters; files that are refused, with their line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "plan/llm_config.h"

/* Keys of the published files, and parameters as their authors state them (Hugging Face's safetensors index, exact). */
static const struct { const char *name, *text; int64_t params, seq; } known[] = {
    { "gpt2", "{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_embd\": 768, \"n_head\": 12, \"vocab_size\": 50257, "
      "\"n_positions\": 1024, \"n_inner\": null}", 124439808, 1024 },
    { "Llama-3-8B", "{\"model_type\": \"llama\", \"num_hidden_layers\": 32, \"hidden_size\": 4096, "
        "\"num_attention_heads\": 32, "
      "\"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": 128256, \"max_position_embeddings\": "
      "8192, "
      "\"tie_word_embeddings\": false}", 8030261248, 8192 },
    { "Mixtral-8x7B", "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 32, \"hidden_size\": 4096, "
      "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": 32000, "
      "\"max_position_embeddings\": 32768, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"sliding_window\": "
      "null}",
      46702792704, 32768 },
};

static void known_models_have_their_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ls_llm m;
        if (ls_llm_config_parse(known[i].name, known[i].text, strlen(known[i].text), &m) != LS_OK) fail_msg("%s",
            ls_last_error());
        assert_int_equal(ls_llm_params(&m), known[i].params);
        assert_int_equal(m.seq, known[i].seq);
        assert_string_equal(m.name, known[i].name);
    }
}

/* What a file says is what the preset of that model has. */
static void a_file_is_its_preset(void **state)
{
    static const struct { const char *preset, *text; } of[] = {
        { "qwen3-235b", "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 94, \"hidden_size\": 4096, "
          "\"num_attention_heads\": 64, \"num_key_value_heads\": 4, \"head_dim\": 128, \"intermediate_size\": 12288, "
          "\"vocab_size\": 151936, \"max_position_embeddings\": 4096, \"num_experts\": 128, \"num_experts_per_tok\": "
          "8, "
          "\"moe_intermediate_size\": 1536, \"use_sliding_window\": false, \"sliding_window\": 4096}" },
        { "deepseek-v3", "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 61, \"hidden_size\": 7168, "
          "\"num_attention_heads\": 128, \"num_key_value_heads\": 128, \"intermediate_size\": 18432, \"vocab_size\": "
          "129280, "
          "\"max_position_embeddings\": 4096, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, "
          "\"n_shared_experts\": 1, "
          "\"moe_intermediate_size\": 2048, \"first_k_dense_replace\": 3, \"q_lora_rank\": 1536, \"kv_lora_rank\": "
          "512, "
          "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128}" },
        { "mistral-7b", "{\"model_type\": \"mistral\", \"num_hidden_layers\": 32, \"hidden_size\": 4096, "
          "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": "
          "32000, "
          "\"max_position_embeddings\": 8192, \"sliding_window\": 4096}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_llm file, preset;
        if (ls_llm_config_parse("x", of[i].text, strlen(of[i].text), &file) != LS_OK) fail_msg("%s", ls_last_error());
        assert_int_equal(ls_llm_preset(of[i].preset, &preset), LS_OK);
        assert_int_equal(ls_llm_params(&file), ls_llm_params(&preset));
        assert_int_equal(ls_llm_active_params(&file), ls_llm_active_params(&preset));
        for (int f = LS_FLOPS_FULL; f <= LS_FLOPS_SELECTIVE; f++)
            assert_true(ls_llm_flops(&file, (ls_flops)f) == ls_llm_flops(&preset, (ls_flops)f));
    }
}

static void bad_files_are_refused_with_their_line(void **state)
{
    static const struct { const char *text, *message; ls_status st; } bad[] = {
        { "", "c.json:1: not JSON", LS_BAD_FILE },
        { "[]", "c.json:1: not a JSON object", LS_BAD_FILE },
        { "{\n\"model_type\":\n\"llama\",,}", "c.json:3: not JSON", LS_BAD_FILE },
        { "{\n\n\"model_type\": \"qwen9\"}", "c.json:3: architecture 'qwen9' is not known, the nearest is qwen2",
            LS_UNSUPPORTED },
        { "{\"model_type\": 7}", "c.json:1: no text 'model_type'", LS_BAD_FILE },
        { "{\"model_type\": \"gpt2\",\n\"n_layer\": 2}", "no key 'n_embd'", LS_BAD_FILE },
        { "{\"model_type\": \"gpt2\",\n\"n_layer\": 2.5}", "c.json:2: 'n_layer' is not a whole number", LS_BAD_FILE },
        { "{\"model_type\": \"gpt2\",\n\"n_layer\": -2}", "c.json:2: 'n_layer' is not a whole number", LS_BAD_FILE },
        { "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 10, \"n_head\": 3, \"vocab_size\": 5, "
            "\"n_positions\": 8}",
          "hidden 10 is not a multiple of 3 heads", LS_BAD_CONFIG },
        { "{\"model_type\": \"gpt2\", \"n_layer\": 99999, \"n_embd\": 16777216, \"n_head\": 1, \"vocab_size\": 5, "
          "\"n_positions\": 8}", "expected at most 1e17", LS_BAD_CONFIG },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_llm m;
        const ls_status st = ls_llm_config_parse("c.json", bad[i].text, strlen(bad[i].text), &m);
        if (st != bad[i].st || !strstr(ls_last_error(), bad[i].message))
            fail_msg("text %zu: status %d, expected %d; '%s' is not in '%s'", i, st, bad[i].st, bad[i].message,
                ls_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_models_have_their_parameters),
        cmocka_unit_test(a_file_is_its_preset),
        cmocka_unit_test(bad_files_are_refused_with_their_line),
    };
    return cmocka_run_group_tests_name("plan_config", tests, NULL, NULL);
}
