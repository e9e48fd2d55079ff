/* row_run.c -- a row's configuration as a run, or a collective: what it does not state has the value that its software
 * has by default. */
#include <stdlib.h>
#include <string.h>

#include "plan/row_run.h"

bool ls_among(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = words; n > 0 && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

static ls_status form_of(const ls_row *r, ls_pipe_form *out)
{
    static const struct { const char *name; ls_pipe_form form; } forms[] = {
        { "", LS_PIPE_1F1B }, { "none", LS_PIPE_1F1B }, { "any", LS_PIPE_1F1B }, { "1f1b", LS_PIPE_1F1B }, { "gpipe",
            LS_PIPE_GPIPE },
        { "interleaved-1f1b", LS_PIPE_INTERLEAVED }, { "zb-h1", LS_PIPE_ZB_H1 }, { "zb-1p", LS_PIPE_ZB_H1 },
        { "zb-h2", LS_PIPE_ZB_H2 }, { "zb-2p", LS_PIPE_ZB_V }, { "zb-v", LS_PIPE_ZB_V }, { "dualpipe",
            LS_PIPE_DUALPIPE },
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(r->schedule, forms[i].name) == 0) {
            *out = forms[i].form;
            return LS_OK;
        }
    return ls_fail(LS_UNSUPPORTED, "schedule '%s' has no closed form here", r->schedule);
}

ls_status ls_row_run(const ls_row *r, ls_run *o)
{
    *o = (ls_run){ .m = r->m, .device = ls_device_sheet_find(r->gpu), .per_node = r->per_node ? r->per_node : 8,
                   .n = r->n };
    const struct { const char *name; int64_t v; } need[] = {
        { "layers", r->m.layers }, { "hidden", r->m.hidden }, { "heads", r->m.heads }, { "seq", r->m.seq },
        { "n_gpus", r->n }, { "global_batch", r->batch },
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (need[i].v <= 0) return ls_fail(LS_UNSUPPORTED, "%s is not stated", need[i].name);
    if (!o->device) return ls_fail(LS_UNSUPPORTED, "no data sheet for device '%s'", r->gpu);
    o->t = r->t ? r->t : 1, o->p = r->p ? r->p : 1, o->v = r->v ? r->v : 1, o->c = r->c ? r->c : 1, o->e = r->e ?
        r->e : 1;
    if (!o->m.vocab) o->m.vocab = 50257;
    if (o->t > 1 << 20 || o->p > 1 << 20 || o->c > 1 << 20 || o->e > 1 << 20 || o->v > 1 << 20)
        return ls_fail(LS_UNSUPPORTED, "tp, pp, cp, ep or vpp is above 1048576");
    const int64_t rest = o->t * o->p * o->c;
    if (o->n % rest != 0 || (r->d && r->d * rest != o->n))
        return ls_fail(LS_UNSUPPORTED, "tp %lld x pp %lld x cp %lld x dp %lld are not %lld devices", (long long)o->t,
                       (long long)o->p, (long long)o->c, (long long)r->d, (long long)o->n);
    if (!r->t && !r->p && o->n > 1) return ls_fail(LS_UNSUPPORTED, "tp and pp are not stated");
    o->d = o->n / rest;
    o->batch = r->batch;
    o->micro = r->micro ? r->micro : 1;
    /* torchtitan divides the sequences of a rank into as many micro-batches as pp has ranks. */
    if (strcmp(r->family, "torchtitan") == 0 && !r->micro && o->p > 1) o->micro = o->batch / (o->d * o->p);
    if (o->micro < 1) o->micro = 1;
    if (o->micro * o->d > o->batch) o->micro = o->batch / o->d > 0 ? o->batch / o->d : 1;
    LS_TRY(ls_llm_check(&o->m));
    LS_TRY(form_of(r, &o->form));
    if (o->p > 1 && o->v > 1 && o->form == LS_PIPE_1F1B) o->form = LS_PIPE_INTERLEAVED;
    const bool ends = ls_row_notes(r, "first and last stage hold one layer fewer");
    const bool zb = strncmp(r->family, "zb", 2) == 0;
    o->embedding_layers = ends || zb || ls_row_notes(r, "embeddings counted as a layer") ? 2 : 0;
    if (o->form == LS_PIPE_INTERLEAVED && o->v == 1) {
        o->v = zb ? (o->m.layers + 2) / o->p : 2;
        if (o->v < 1) return ls_fail(LS_UNSUPPORTED, "%lld layers are too few for pp %lld", (long long)o->m.layers,
                                     (long long)o->p);
    }
    /* Stages of equal blocks, of which the first and the last have one layer fewer: for example 126 in 16. */
    const int64_t blocks = o->p * o->v;
    if (o->p > 1 && o->m.layers % blocks != 0 && (o->m.layers + 2) % blocks == 0) o->embedding_layers = 2;
    o->zero = r->zero >= 0 ? (int)r->zero : 1;
    const char *dt = r->dtype;
    o->bits = strstr(dt, "fp4") ? 4 : strstr(dt, "fp8") ? 8 : 16;
    o->grad_bytes = strcmp(r->family, "bloom") == 0 && strcmp(dt, "bf16") == 0 ? 4 : r->zero >= 3 ? 4 : 2;
    o->kept = strcmp(r->recompute, "full") == 0 ? LS_KEEP_INPUTS : strncmp(r->recompute, "selective", 9) == 0 ?
        LS_KEEP_SELECTIVE : LS_KEEP_ALL;
    static const char of_2023[] =
        "mosaic torchtitan nemo-fp8 nemo-longseq bridge mcore-h100 moezoo llama3 deepseek misc llmc";
    o->flash = ls_among(of_2023, r->family);
    o->whole_sums = strcmp(r->family, "bloom") == 0;
    o->late_sums = ls_row_notes(r, "no gradient bucketing");
    /* Interleaved stages overlap messages with computation since the spring of 2023 (NVIDIA/apex#1616, Megatron-LM). */
    static const char blocking[] = "ptdp ptdp-text ptdp-zero3 mlm-jan2021 korth zb zb-v zb-small zb-optsync zb-bubble";
    const bool baseline = ls_row_notes(r, "Megatron-LM baseline");
    o->waits_per_chunk = o->form == LS_PIPE_INTERLEAVED && (baseline || ls_among(blocking, r->family));
    o->one_end = ls_row_notes(r, "optimizer step after an all-reduce over the pipeline");
    /* Rows measured after BLOOM's nodes were mended state that they are 1 to 5 % faster than earlier ones. */
    if (o->whole_sums && !ls_row_notes(r, "after the node PCIe/NUMA fix")) o->slowdown = .03;
    /* vTrain's single node: its rows state full recomputation, with which the products that a hidden size of 2048 has
     * more than 1024 would run at 91 % of the device's peak. Its vocabulary of 50257 is padded only with tp of 2
     * and more. */
    const bool node = strcmp(r->family, "vtrain-single") == 0;
    if (node) o->kept = LS_KEEP_ALL;
    o->unaligned = node && o->t == 1 && o->m.vocab % 8 != 0;
    o->eager = ls_row_notes(r, "eager");
    o->clamped = r->name && strstr(r->name, "OSS");
    o->compiled = strcmp(r->family, "torchtitan") == 0 && !o->eager;
    o->per_op = strcmp(r->recompute, "selective-op") == 0;
    o->async_tensor = ls_row_notes(r, "async TP");
    o->row_scaled = strstr(dt, "rowwise") != NULL;
    /* DeepSeek's products in 8 bits have a scale per 128 values, and latent attention is recomputed (arXiv 2412.19437,
     * sections 3.2.3 and 3.3.2). */
    const bool deepseek = strcmp(r->family, "deepseek") == 0;
    o->blocks = strstr(dt, "mx") || (deepseek && o->bits == 8);
    o->latent_again = deepseek && o->m.kv_rank > 0;
    /* Where routing is not forced to balance, the slowest rank has more tokens than the mean, as in memory. */
    if (o->m.experts && o->e > 1 && (deepseek || ls_row_notes(r, "natural routing"))) o->m.load = 1.2;
    o->unbalanced = strcmp(r->family, "torchtitan") == 0;
    o->gathers_narrow = strcmp(r->family, "torchtitan") == 0 && o->bits < 16 && !o->row_scaled;
    const char *release = strstr(r->source, "release ");
    o->unfused = !release || strtod(release + 8, NULL) < 26.06;
    o->paired = deepseek && o->form == LS_PIPE_DUALPIPE;
    const bool megascale = strncmp(r->family, "megascale", 9) == 0;
    if (megascale && !*r->recompute) o->kept = LS_KEEP_SELECTIVE;
    o->sequence_parallel = strstr(r->recompute, "+sp") || megascale || ls_row_notes(r, "equence parallel") ||
                           (o->flash && o->t > 1);
    return LS_OK;
}

ls_status ls_row_coll(const ls_row *r, ls_coll_run *o)
{
    static const struct { const char *metric; ls_coll coll; } all[] = {
        { "allreduce_busbw", LS_ALL_REDUCE }, { "allreduce_time_us", LS_ALL_REDUCE },
        { "allgather_busbw", LS_ALL_GATHER }, { "reducescatter_busbw", LS_REDUCE_SCATTER },
    };
    const double bytes = ls_row_noted(r, "message ", 0);
    size_t i = 0;
    while (i < 4 && strcmp(r->metric, all[i].metric) != 0) i++;
    if (i == 4) return ls_fail(LS_UNSUPPORTED, "'%s' is not predicted", r->metric);
    if (bytes <= 0) return ls_fail(LS_UNSUPPORTED, "the note states no 'message N bytes'");
    if (r->n < 2) return ls_fail(LS_UNSUPPORTED, "n_gpus is %lld; expected 2 or more", (long long)r->n);
    if (!ls_coll_in_node(r->gpu, r->per_node, all[i].coll, r->n, !ls_row_notes(r, "NVLS off"), o))
        return ls_fail(LS_UNSUPPORTED, "no collectives were measured on device '%s'", r->gpu);
    if (o->class == LS_COLL_B200 && r->per_node && r->n > r->per_node) o->class = LS_COLL_B200_NET, o->rings = 1;
    o->bytes = bytes;
    return LS_OK;
}

double ls_coll_value(const ls_row *r, const ls_coll_run *run, double seconds)
{
    return strcmp(r->metric, "allreduce_time_us") == 0 ? 1e6 * seconds : 1e-9 * run->bytes * run->factor / seconds;
}

double ls_coll_measured(const ls_row *r, const ls_coll_run *run)
{
    return strcmp(r->metric, "allreduce_time_us") == 0 ? 1e-6 * r->value : 1e-9 * run->bytes * run->factor / r->value;
}
