/* mfu.c -- model FLOP utilisation by PaLM's definition. */
#include "report/mfu.h"

void ls_mfu_count(const ls_model_config *c, int64_t params, int64_t T, ls_mfu *out)
{
    const ls_model_class *cls = ls_model_class_find(c->name);
    ls_model_flops f = { 0 };
    if (cls) cls->flops(c, &f);
    *out = (ls_mfu){ .params = params, .tables = f.tables, .layers = f.layers, .heads = f.heads, .width = f.width,
                     .tokens = f.layers > 0 ? T : 0 };
    out->flops = 6.0 * (double)(params - out->tables) +
                 12.0 * (double)out->layers * (double)out->heads * (double)out->width * (double)out->tokens;
}

void ls_mfu_explain(const ls_mfu *m, int ranks, double peak_gflops, const char *peak_text, ls_text *out)
{
    const char *unit = m->tokens ? "token" : "sample";
    double products = 6.0 * (double)(m->params - m->tables), all = (double)ranks * peak_gflops;
    ls_text_add(out, "model FLOP utilisation (PaLM, appendix B) = F x %ss per second / peak\n\n", unit);
    ls_text_add(out, "N = %lld parameters in products", (long long)(m->params - m->tables));
    if (m->tables)
        ls_text_add(out, ": %lld, less %lld that are only looked up", (long long)m->params, (long long)m->tables);
    ls_text_add(out, "\n");
    if (m->tokens) {
        ls_text_add(out, "L = %lld layers, H = %lld heads of Q = %lld channels, T = %lld tokens per sequence\n",
                    (long long)m->layers, (long long)m->heads, (long long)m->width, (long long)m->tokens);
        ls_text_add(out, "F = 6 N + 12 L H Q T = %.4g + %.4g = %.4g operations per token, forward and backward\n",
                    products, m->flops - products, m->flops);
        ls_text_add(out,
                    "    the masked half of attention counts; what is computed twice to save memory counts once\n");
    } else
        ls_text_add(out, "F = 6 N = %.4g operations per sample, forward and backward\n", m->flops);
    ls_text_add(out, "peak = %d rank%s x %.1f GFLOP/s = %.1f GFLOP/s: %s\n", ranks, ranks == 1 ? "" : "s", peak_gflops,
                all, peak_text);
    ls_text_add(out, "100 %% would be %.0f %ss per second\n", all * 1e9 / m->flops, unit);
}
