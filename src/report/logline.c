/* logline.c -- a step as a line of text, in the formats that tools for training logs read.
 *
 * The texts between the numbers, and the widths and digits of the numbers, are those of torchtitan 0.2
 * (components/metrics.py), Megatron-LM (training_log), llm.c (train_gpt2.cu) and nanoGPT (train.py), because
 * people have regular expressions for them.
 */
#include "report/logline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/say.h"

/* Colours as torchtitan has them: SGR codes, two of them 24 bit. */
enum { RED, GREEN, ORANGE, TURQUOISE, BLUE, CYAN, MAGENTA, RESET };
static const char *const sgr[] = {
    "\x1b[31m", "\x1b[32m", "\x1b[38;2;180;60;0m", "\x1b[38;2;54;234;195m", "\x1b[34m", "\x1b[36m",
    "\x1b[35m", "\x1b[39m"
};

/* The first unit, which is torchtitan's, or the next smaller ones until there is a tenth of one. */
typedef struct unit {
    const char *name;
    double size;
} unit;

static const unit *fitting(const unit *u, double v)
{
    while (u[1].name && v < 0.1 * u->size) u++;
    return u;
}

/* What a terminal of v->columns has space for in two of its lines. */
typedef struct extras {
    const ls_log_values *v;
    ls_text *out;
    size_t used; /* columns */
} extras;

static void extra(extras *x, const char *text)
{
    const size_t n = strlen(text), most = 2 * (size_t)x->v->columns;
    if (most > 0 && x->used + n > most) return;
    ls_text_addn(x->out, text, n);
    x->used += n;
}

static void torchtitan(const ls_log_values *v, bool colour, ls_text *out)
{
    static const unit bytes[] = { { "GiB", 1u << 30 }, { "MiB", 1u << 20 }, { "KiB", 1u << 10 }, { NULL, 0.0 } };
    static const unit flops[] = { { "tflops", 1e12 }, { "gflops", 1e9 }, { "mflops", 1e6 }, { NULL, 0.0 } };
    const unit *b = fitting(bytes, v->memory_bytes), *f = fitting(flops, v->flops);
    char number[3][64], text[96], eta[32];
    const char *c[RESET + 1];
    size_t escapes = 0, before = out->n;
    for (int i = 0; i <= RESET; i++) c[i] = colour ? sgr[i] : "";
    ls_number_text(rint(v->rate / v->ranks), 0, number[0], sizeof number[0]);
    ls_number_text(v->flops / f->size, 2, number[1], sizeof number[1]);
    ls_number_text(rint(v->rate), 0, number[2], sizeof number[2]);
    ls_text_add(out, "%sstep: %2lld  %sloss: %8.5f  %sgrad_norm: %7.4f  ", c[RED], (long long)v->step, c[GREEN],
                v->loss, c[ORANGE], v->grad_norm);
    ls_text_add(out, "%smemory: %5.2f%s(%.2f%%)  %stps: %s  %s%s: %s", c[TURQUOISE], v->memory_bytes / b->size, b->name,
                100.0 * v->memory_share, c[BLUE], number[0], c[CYAN], f->name, number[1]);
    if (!isnan(v->mfu)) ls_text_add(out, "  %smfu: %.2f%%", c[MAGENTA], 100.0 * v->mfu);
    ls_text_add(out, "%s", c[RESET]);
    for (int i = 0; i <= RESET; i++) escapes += i == MAGENTA && isnan(v->mfu) ? 0 : strlen(c[i]);
    extras x = { .v = v, .out = out, .used = out->n - before - escapes };
    snprintf(text, sizeof text, "  %s: %s", v->tokens ? "tok/s" : "samples/s", number[2]);
    extra(&x, text);
    snprintf(text, sizeof text, "  exposed: %.1f%%", 100.0 * v->exposed);
    extra(&x, text);
    snprintf(text, sizeof text, "  lr: %.2e", v->lr);
    extra(&x, text);
    if (v->loss_scale > 0.0) {
        snprintf(text, sizeof text, "  scale: %g  skipped: %lld", v->loss_scale, (long long)v->skipped);
        extra(&x, text);
    }
    snprintf(text, sizeof text, "  ETA: %s", ls_eta_text(v->eta_s, eta, sizeof eta));
    extra(&x, text);
}

static void torchtitan_eval(const ls_log_eval *e, bool colour, ls_text *out)
{
    ls_text_add(out, "%svalidate step: %2lld  %sloss: %7.4f%s  perplexity: %.2f", colour ? "\x1b[33m" : "", (long long)e->step,
                colour ? sgr[GREEN] : "", e->loss, colour ? sgr[RESET] : "", e->perplexity);
}

static void megatron(const ls_log_values *v, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, " iteration %8lld/%8lld | consumed samples: %12lld | elapsed time per iteration (ms): %.1f |",
                (long long)v->step, (long long)v->steps, (long long)v->samples, 1e3 * v->step_s);
    ls_text_add(out, " throughput per GPU (TFLOP/s/GPU): %.1f | learning rate: %.6E | global batch size: %5lld |",
                1e-12 * v->flops, v->lr, (long long)v->global_batch);
    /* a loss that is not finite ends the run */
    ls_text_add(out,
                " lm loss: %.6E | loss scale: %.1f | grad norm: %.3f | number of skipped iterations: %3lld |"
                " number of nan iterations: %3d |",
                v->loss, v->loss_scale > 0.0 ? v->loss_scale : 1.0, v->grad_norm, (long long)v->skipped, 0);
}

static void megatron_eval(const ls_log_eval *e, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, " validation loss at iteration %lld | lm loss value: %.6E | lm loss PPL: %.6E | ", (long long)e->step,
                e->loss, e->perplexity);
}

/* Both print -100 % where they do not know the device's peak. */
static double percent(double mfu) { return isnan(mfu) ? -100.0 : 100.0 * mfu; }

static void nanogpt(const ls_log_values *v, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, "iter %lld: loss %.4f, time %.2fms, mfu %.2f%%", (long long)v->step - 1, v->loss, 1e3 * v->step_s,
                percent(v->mfu));
}

/* nanoGPT evaluates on parts of both files; the loss of training is the newest step's here. */
static void nanogpt_eval(const ls_log_eval *e, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, "step %lld: train loss %.4f, val loss %.4f", (long long)e->step, e->train_loss, e->loss);
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

static void llmc_eval(const ls_log_eval *e, bool colour, ls_text *out)
{
    (void)colour;
    ls_text_add(out, "val loss %f", e->loss);
}

const ls_log_format ls_log_formats[] = {
    { "torchtitan", torchtitan, torchtitan_eval }, { "megatron", megatron, megatron_eval },
    { "nanogpt", nanogpt, nanogpt_eval },          { "llmc", llmc, llmc_eval },
    { NULL, NULL, NULL },
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
