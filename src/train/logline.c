/* logline.c -- a step as a line of text, in the formats that tools for training logs read.
 *
 * The texts between the numbers, and the widths and digits of the numbers, are those of torchtitan 0.2
 * (components/metrics.py), Megatron-LM (training_log), llm.c (train_gpt2.cu) and nanoGPT (train.py), because
 * people have regular expressions for them.
 */
#include "train/logline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/say.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

/* Colours as torchtitan has them: SGR codes, two of them 24 bit. */
enum { RED, GREEN, ORANGE, TURQUOISE, BLUE, CYAN, MAGENTA, RESET };
static const char *const sgr[] = {
    "\x1b[31m", "\x1b[32m", "\x1b[38;2;180;60;0m", "\x1b[38;2;54;234;195m", "\x1b[34m", "\x1b[36m",
    "\x1b[35m", "\x1b[39m"
};

/* Python's {:,.Nf}: 1234567.891 -> "1,234,567.89" with two digits. */
static const char *commas(double v, int digits, char *buf, size_t n)
{
    char plain[64];
    if (!isfinite(v) || fabs(v) >= 1e30) {
        snprintf(buf, n, "%g", v);
        return buf;
    }
    snprintf(plain, sizeof plain, "%.*f", digits, v);
    size_t whole = strcspn(plain, "."), at = 0;
    for (size_t i = 0; plain[i] && at + 2 < n; i++) {
        buf[at++] = plain[i];
        size_t left = i < whole ? whole - i - 1 : 0; /* digits of the whole part that follow */
        if (left > 0 && left % 3 == 0 && plain[i] != '-') buf[at++] = ',';
    }
    buf[at] = 0;
    return buf;
}

static void torchtitan(const ls_log_values *v, bool colour, ls_text *out)
{
    char tps[48], tflops[48], rate[48], eta[32], mfu[32] = "N/A";
    const char *c[RESET + 1];
    for (int i = 0; i <= RESET; i++) c[i] = colour ? sgr[i] : "";
    if (!isnan(v->mfu)) snprintf(mfu, sizeof mfu, "%.2f%%", 100.0 * v->mfu);
    commas(rint(v->rate / v->ranks), 0, tps, sizeof tps);
    commas(v->flops * 1e-12, 2, tflops, sizeof tflops);
    commas(rint(v->rate), 0, rate, sizeof rate);
    ls_text_add(out, "%sstep: %2lld  %sloss: %8.5f  %sgrad_norm: %7.4f  ", c[RED], (long long)v->step, c[GREEN],
                v->loss, c[ORANGE], v->grad_norm);
    ls_text_add(out, "%smemory: %5.2fGiB(%.2f%%)  %stps: %s  %stflops: %s  %smfu: %s%s", c[TURQUOISE],
                v->memory_bytes / GIB, 100.0 * v->memory_share, c[BLUE], tps, c[CYAN], tflops, c[MAGENTA], mfu,
                c[RESET]);
    ls_text_add(out, "  %s: %s  exposed: %.1f%%  lr: %.2e  ETA: %s", v->tokens ? "tok/s" : "samples/s", rate,
                100.0 * v->exposed, v->lr, ls_eta_text(v->eta_s, eta, sizeof eta));
}

static void megatron(const ls_log_values *v, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, " iteration %8lld/%8lld | consumed samples: %12lld | elapsed time per iteration (ms): %.1f |",
                (long long)v->step, (long long)v->steps, (long long)v->samples, 1e3 * v->step_s);
    ls_text_add(out, " throughput per GPU (TFLOP/s/GPU): %.1f | learning rate: %.6E | global batch size: %5lld |",
                1e-12 * v->flops, v->lr, (long long)v->global_batch);
    /* f32 and bf16 need no loss scale; a step that is not finite ends the run */
    ls_text_add(out,
                " lm loss: %.6E | loss scale: 1.0 | grad norm: %.3f | number of skipped iterations: %3d |"
                " number of nan iterations: %3d |",
                v->loss, v->grad_norm, 0, 0);
}

/* Both print -100 % where they do not know the device's peak. */
static double percent(double mfu) { return isnan(mfu) ? -100.0 : 100.0 * mfu; }

static void nanogpt(const ls_log_values *v, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, "iter %lld: loss %.4f, time %.2fms, mfu %.2f%%", (long long)v->step - 1, v->loss, 1e3 * v->step_s,
                percent(v->mfu));
}

/* What printf makes of %+.2f, but for the sign of a NAN, which is "+nan" there. */
static const char *z_text(double z, char *buf, size_t n)
{
    if (isnan(z))
        snprintf(buf, n, "+nan");
    else
        snprintf(buf, n, "%+.2f", z);
    return buf;
}

static void llmc(const ls_log_values *v, bool colour, ls_text *out)
{
    char a[32], b[32];
    (void)colour;
    ls_text_add(out,
                "step %4lld/%lld | loss %7.6f (%sz)| norm %6.4f (%sz)| lr %.2e | %.2f ms | %.1f%% %s MFU | %.0f tok/s",
                (long long)v->step, (long long)v->steps, v->loss, z_text(v->loss_z, a, sizeof a), v->grad_norm,
                z_text(v->grad_norm_z, b, sizeof b), v->lr, 1e3 * v->step_s, percent(v->mfu), v->dtype, v->rate);
}

const ls_log_format ls_log_formats[] = {
    { "torchtitan", torchtitan }, { "megatron", megatron }, { "nanogpt", nanogpt }, { "llmc", llmc }, { NULL, NULL },
};

const ls_log_format *ls_log_format_find(const char *name)
{
    const ls_log_format *f = ls_log_formats;
    while (f->name && strcmp(f->name, name) != 0) f++;
    return f->name ? f : NULL;
}

double ls_log_window_add(ls_log_window *w, double v)
{
    double sum = 0.0, squares = 0.0;
    w->value[w->count++ % LS_LOG_WINDOW] = v;
    if (w->count < LS_LOG_WINDOW) return (double)NAN;
    for (int i = 0; i < LS_LOG_WINDOW; i++) sum += w->value[i];
    double mean = sum / LS_LOG_WINDOW;
    for (int i = 0; i < LS_LOG_WINDOW; i++) squares += (w->value[i] - mean) * (w->value[i] - mean);
    double deviation = sqrt(squares / LS_LOG_WINDOW);
    return deviation > 0.0 ? (v - mean) / deviation : 0.0;
}
