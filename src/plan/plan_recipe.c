/* plan_recipe.c -- keys of a recipe from a model and its layout. */
#include "plan/plan_recipe.h"

#include "lockstep/pipe.h"
#include "plan/plan_report.h"

unsigned ls_recipe_schedules(void)
{
    static const ls_pipe_form all[] = { LS_PIPE_GPIPE, LS_PIPE_1F1B, LS_PIPE_INTERLEAVED, LS_PIPE_ZB_H1, LS_PIPE_ZB_H2,
                                           LS_PIPE_ZB_V };
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) bits |= 1u << all[i];
    return bits;
}

static ls_status runnable(const ls_llm *m, const char **name)
{
    const char *what = NULL;
    if (m->kv_rank) what = "latent attention";
    else if (m->window) what = "attention in a window";
    else if (m->mtp) what = "multi-token prediction";
    else if (m->head_dim && m->head_dim * m->heads != m->hidden) what =
        "heads whose sizes are not the hidden size in sum";
    else if (m->experts && (m->shared || m->dense_layers || !m->gated)) what = "dense layers or experts of this kind";
    else if (m->gated && m->hidden / m->heads % 2 != 0) what = "rotary positions in heads of an odd size";
    else if (!m->experts && m->gated == m->biases) what = "such a block, neither GPT-2's nor Llama's";
    if (what)
        return ls_fail(LS_UNSUPPORTED, "%s: the runtime has no model with %s, so there is no recipe: leave out "
                        "--write, or plan gpt2, llama or a mixture of experts like Mixtral's", m->name, what);
    *name = m->experts ? "moe" : m->gated ? "llama" : "gpt2";
    return LS_OK;
}

/* Layers of each piece where the ends have one less. */
static void split(const ls_llm *m, const ls_layout *l, ls_text *t)
{
    const int64_t pieces = l->p * l->v, each = (m->layers + l->fewer) / pieces;
    ls_text_add(t, "  split: [");
    for (int64_t i = 0; i < pieces; i++)
        ls_text_add(t, "%s%lld", i ? ", " : "", (long long)(each - (i == 0 || i == pieces - 1)));
    ls_text_add(t, "]\n");
}

ls_status ls_layout_recipe(const ls_layout_query *q, const ls_layout *l, const char *cluster, ls_text *t)
{
    const ls_llm *m = &q->model;
    const ls_pipe_config pipe = { .schedule = ls_pipe_form_name(l->form) };
    const char *name = NULL;
    char plan[200];
    LS_TRY(runnable(m, &name));
    if (l->p > 1 && !(ls_recipe_schedules() >> l->form & 1u))
        return ls_fail(LS_UNSUPPORTED, "the runtime has no schedule %s: plan with --schedules "
            "gpipe,1f1b,interleaved,zb-h1,zb-h2,zb-v",
                       ls_pipe_form_name(l->form));
    if (l->p > 1 && ls_pipe_splits(&pipe) && l->zero >= 2)
        return ls_fail(LS_UNSUPPORTED, "ZeRO %d reduces gradients in each backward, and those of schedule %s are in "
                       "two halves, so the runtime does not have both: plan with --zero 1, or with "
                       "--schedules gpipe,1f1b,interleaved", l->zero, ls_pipe_form_name(l->form));
    const bool uneven = l->p > 1 && l->fewer;
    if (uneven && l->p * l->v > 32)
        return ls_fail(LS_UNSUPPORTED, "pipeline.split has at most 32 pieces, and the plan has %lld",
            (long long)(l->p * l->v));
    ls_text_add(t, "# Written by `lockstep plan`: %s on %s.\n# %s\n", m->name, q->topo->name,
                ls_layout_text(l, plan, sizeof plan));
    ls_text_add(t, "#\n# Run it:      lockstep train THIS --nproc-per-node %lld\n# Data:        --data.name, --data.path, "
                "--data.tokenizer\n# Simulate it: lockstep sim THIS %s\n\n",
                (long long)q->world, cluster);
    ls_text_add(t, "model:\n  name: %s\n  n_layer: %lld\n  n_head: %lld\n", name, (long long)m->layers,
        (long long)m->heads);
    if (m->gated && m->kv_heads) ls_text_add(t, "  n_kv_head: %lld\n", (long long)m->kv_heads);
    ls_text_add(t, "  d_model: %lld\n", (long long)m->hidden);
    if (!m->experts) ls_text_add(t, "  d_ff: %lld\n", (long long)(m->ffn ? m->ffn : 4 * m->hidden));
    ls_text_add(t, "  vocab_size: %lld\n  seq_len: %lld\n  tied: %s\n", (long long)m->vocab, (long long)m->seq,
                m->tied ? "true" : "false");
    if (m->experts)
        ls_text_add(t, "  n_experts: %lld\n  top_k: %lld\n  d_expert: %lld\n", (long long)m->experts,
            (long long)m->topk,
                    (long long)m->expert_ffn);
    ls_text_add(t, "\ntrain:\n  steps: 10\n  global_batch: %lld\n  micro_batch: %lld\n  dtype: bf16\n",
        (long long)q->batch,
                (long long)l->micro);
    if (l->kept != LS_KEEP_ALL) ls_text_add(t, "  recompute: %s\n", ls_kept_name(l->kept));
    ls_text_add(t, "\noptim:\n  name: adamw\n\nparallel:\n  dp: %lld\n  tp: %lld\n  pp: %lld\n  cp: %lld\n",
                (long long)(l->d / (m->experts ? l->e : 1)), (long long)l->t, (long long)l->p, (long long)l->c);
    if (m->experts) ls_text_add(t, "  ep: %lld\n", (long long)l->e);
    if (l->t > 1) ls_text_add(t, "  sp: true\n");
    if (l->zero > 0 && l->d > 1) ls_text_add(t, "\nzero:\n  stage: %d\n", l->zero);
    if (l->p > 1) {
        ls_text_add(t, "\npipeline:\n  schedule: %s\n", ls_pipe_form_name(l->form));
        if (l->v > 1) ls_text_add(t, "  chunks: %lld\n", (long long)l->v);
        if (uneven) split(m, l, t);
    }
    return ls_text_status(t);
}
