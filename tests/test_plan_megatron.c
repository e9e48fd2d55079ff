/* Memory of Megatron-LM: layouts of pipelines are read as its documentation says, and the ledger of a small model has
 * the bytes that follow from its tensors. Allocators' measurements are in test_plan_score.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "plan/megatron.h"
#include "plan/row_run.h"

static void layout_is(const char *text, int stages, const double *layers)
{
    double got[16];
    const int n = ls_megatron_layout(text, got, 16);
    if (n != stages) fail_msg("'%s' has %d stages, expected %d", text, n, stages);
    for (int i = 0; i < n; i++)
        if (got[i] != layers[i]) fail_msg("'%s': stage %d has %g layers, expected %g", text, i, got[i], layers[i]);
}

static void layouts_name_layers_per_stage(void **state)
{
    (void)state;
    layout_is("Et*3|(tt|)*6tmL recompute-modules=[mlp]", 8, (const double[]){ 3, 2, 2, 2, 2, 2, 2, 1 });
    layout_is("E|t*2|L", 3, (const double[]){ 0, 2, 0 });
    layout_is("Ettt|tttL", 2, (const double[]){ 3, 3 });
    layout_is("E((t|)*2t)*2L", 5, (const double[]){ 1, 1, 2, 1, 1 });
    static const char *const wrong[] = { "Et*|L", "Et*0|L", "Ex|L", "E(t|L", "Et)|L", "t*9999", "(((((((t)))))))",
                                         "||||||||||||||||", "((((t*512)*512)*512)*512)*512" };
    double unused[16];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (ls_megatron_layout(wrong[i], unused, 16) != 0) fail_msg("'%s' is a layout", wrong[i]);
}

static ls_megatron_memory of(const char *line)
{
    static const char columns[] = "id,layers,hidden,heads,ffn,vocab,seq,dtype,gpu,gpus_per_node,n_gpus,tp,pp,vpp,cp,ep,dp,"
        "zero_stage,micro_batch,global_batch,recompute,schedule,measured_metric,measured_value,source,note\n";
    char text[1024];
    ls_rows rows;
    ls_run run;
    ls_megatron_memory m;
    snprintf(text, sizeof text, "%smegatron-x-0001,%s\n", columns, line);
    if (ls_rows_read("test", text, &rows) != LS_OK || ls_row_run(&rows.row[0], &run) != LS_OK)
        fail_msg("%s: %s", line, ls_last_error());
    ls_megatron_memory_of(&rows.row[0], &run, &m);
    ls_rows_free(&rows);
    return m;
}

#define IS(got, want)                                                                                          \
    do {                                                                                                       \
        const double got_ = (got), want_ = (want);                                                             \
        if (fabs(got_ - want_) > 1e-9 * fabs(want_)) fail_msg("%s is %.12g, expected %.12g", #got, got_, want_); \
    } while (0)

/* One rank, h 64, 4 heads, f 256, 2 layers, 128 tokens in the vocabulary, 2 sequences of 32. */
static void one_rank_has_its_tensors(void **state)
{
    (void)state;
    const double h = 64, f = 256, L = 2, V = 128, s = 32, b = 2, MiB = 1 << 20;
    const double layer = 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h, params = L * layer + V * h + 2 * h + s * h;
#define FLAGS "max-position-embeddings=32 transformer-impl=transformer_engine"
    ls_megatron_memory m = of("2,64,4,256,100,32,bf16,H100-80GB-SXM,8,1,1,1,,1,1,1,0,2,8,none,none,"
                              "mem_allocated_bytes,1,x," FLAGS);
    IS(m.states, 18 * params);
    IS(m.workspaces, (32 + 32 + 32) * MiB);
    IS(m.between, b * s * s);
    IS(m.kept, L * 34 * s * b * h);   /* Korthikanti et al. 2022, attention in one kernel */
    IS(m.logits, 6 * s * b * V);
    IS(m.freed + 1, 1);
    m = of("2,64,4,256,100,32,fp16,A100-80GB-SXM,8,1,1,1,,1,1,1,0,2,8,none,none,mem_allocated_bytes,1,x,"
           "max-position-embeddings=32 transformer-impl=local");
    IS(m.states, 20 * params);
    IS(m.freed, 4 * params);
    IS(m.workspaces, 2 * (2 * 4096 + 8 * 16) * 1024.0); /* CUBLAS_WORKSPACE_CONFIG's default, ":4096:2:16:8" */
    IS(m.kept, L * s * b * h * (34 + 5 * 4 * s / h));
    m = of("2,64,4,256,100,32,bf16,H100-80GB-SXM,8,1,1,1,,1,1,1,0,2,8,full,none,mem_allocated_bytes,1,x," FLAGS);
    IS(m.kept, (L * 2 + 34) * s * b * h);
}

/* Eight ranks, two stages of two chunks, a distributed optimizer over two, sequences divided along tp. */
static void ranks_have_their_shards(void **state)
{
    (void)state;
    const double h = 64, f = 256, V = 256, s = 32, b = 2, t = 2;
    const double layer = (4 * h * h + 2 * h * f) / t + 4 * h, params = 2 * layer + V / t * h + 2 * h;
    ls_megatron_memory m = of("4,64,4,256,250,32,bf16,H100-80GB-SXM,8,8,2,2,2,1,1,2,1,2,8,none,interleaved-1f1b,"
                              "mem_allocated_bytes,1,x,disable-bias-linear sequence-parallel use-distributed-optimizer "
                              "hidden-dropout=0.0 transformer-impl=transformer_engine");
    IS(m.states, params * (6 + 12 / 2.0));
    IS(m.kept, (2 + 1) * 32 * s * b * h / t); /* two micro-batches of the first chunk, one of the second */
    IS(m.between, b * s * s + 3 * 2 * s * b * h / t);
    IS(m.logits, 6 * s * b * V / t);
    /* Four experts over two ranks, each token to two of them, gathered from both. */
    m = of("4,64,4,256,250,32,bf16,H100-80GB-SXM,8,8,2,1,,1,2,4,0,2,8,none,none,mem_allocated_bytes,1,x,"
           "disable-bias-linear sequence-parallel num-experts=4 moe-router-topk=2 transformer-impl=transformer_engine");
    const double with = 4 * h * h / t + 4 * h + 4 * h;
    IS(m.states, 18 * (4 * (with + 2 * 2 * h * f / t) + V / t * h + 2 * h));
    IS(m.between, b * s * s + 2 * s * b * h / t * t * 2);
}

/* Sizes of latent attention are the flags', else those of the test that has no flags for them: 192, 64, 16, 8, 16. */
static void latent_attention_has_its_sizes(void **state)
{
    (void)state;
    const double h = 64, a = 4, f = 256, V = 128, s = 32;
    const double ends = V * h + 2 * h + s * h, rest = 4 * h + 2 * h * f + f + 2 * h;
#define ONE "1,64,4,256,100,32,bf16,H100-80GB-SXM,8,1,1,1,,1,1,1,0,2,8,none,none,mem_allocated_bytes,1,x," \
    "multi-latent-attention max-position-embeddings=32 transformer-impl=transformer_engine"
    const double own = (h + a * 24) * 192 + h * (64 + 8) + 64 * a * 32 + a * 16 * h;
    IS(of(ONE).states, 18 * (own + rest + ends));
    const double stated = (h + a * 48) * 96 + h * (24 + 16) + 24 * a * (32 + 20) + a * 20 * h;
    IS(of(ONE " q-lora-rank=96 kv-lora-rank=24 qk-head-dim=32 qk-pos-emb-head-dim=16 v-head-dim=20").states,
       18 * (stated + rest + ends));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_name_layers_per_stage),
        cmocka_unit_test(one_rank_has_its_tensors),
        cmocka_unit_test(ranks_have_their_shards),
        cmocka_unit_test(latent_attention_has_its_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
