"""Names and shapes of test_models.c, as transformers' state_dict has them.

    python3 tests/golden/hf_names.py > tests/golden/hf_names.h

needs torch and transformers (any version from 4.30 on).
"""
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4))
llama = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16))

print("/* Made by tests/golden/hf_names.py with transformers %s; do not edit. */" % transformers.__version__)
print("typedef struct golden_param {\n    const char *name;\n    int ndim;\n    int64_t dim[2];\n} golden_param;")
for name, model in (("gpt2", gpt2), ("llama", llama)):
    print("static const golden_param golden_%s[] = {" % name)
    for key, p in model.named_parameters():  # a tied head is not in it
        print('    { "%s", %d, { %s } },' % (key, p.ndim, ", ".join(map(str, p.shape))))
    print("};")
