/* cmd_generate.c -- lockstep generate: a trained model writes. Text, or one object with --json, goes to stdout, all
 * else to stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "lockstep/generate.h"

typedef struct options {
    const char *prompt, *file, *tokenizer;
    int64_t tokens, top_k, seed;
    double temperature, top_p;
    bool stop_at_eot, echo, json, help;
} options;

static const ls_opt table[] = {
    { .name = "prompt", .type = LS_OPT_STRING, .offset = offsetof(options, prompt),
      .help = "text to continue; without it the model begins a document", .short_name = 'p' },
    { .name = "file", .type = LS_OPT_STRING, .offset = offsetof(options, file),
      .help = "the same from a file, all of it", .short_name = 'f' },
    { .name = "tokens", .type = LS_OPT_INT, .offset = offsetof(options, tokens), .def = "200", .range = "1..4294967295",
      .help = "tokens to make, at most", .short_name = 'n' },
    { .name = "temperature", .type = LS_OPT_DOUBLE, .offset = offsetof(options, temperature), .def = "0.8", .range = "0..1e12",
      .help = "0: always the likeliest token; 1: as the model says; more: bolder", .short_name = 't' },
    { .name = "top-k", .type = LS_OPT_INT, .offset = offsetof(options, top_k), .def = "200", .range = "0..16777216",
      .help = "draw from the k likeliest tokens; 0: from all" },
    { .name = "top-p", .type = LS_OPT_DOUBLE, .offset = offsetof(options, top_p), .def = "1", .range = "0..1",
      .help = "of those, from the fewest whose probabilities sum to p; more than 0" },
    { .name = "seed", .type = LS_OPT_INT, .offset = offsetof(options, seed), .def = "0", .range = "0..9223372036854775807",
      .help = "another one, another text; the same one, the same text", .short_name = 's' },
    { .name = "stop-at-eot", .type = LS_OPT_BOOL, .offset = offsetof(options, stop_at_eot), .def = "false",
      .help = "stop where the model ends a document" },
    { .name = "echo", .type = LS_OPT_BOOL, .offset = offsetof(options, echo), .def = "true",
      .help = "print the prompt in front" },
    { .name = "tokenizer", .type = LS_OPT_STRING, .offset = offsetof(options, tokenizer),
      .help = "gpt2, byte, char, a tokenizer.json or its folder (default: the one beside the weights)" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print one JSON object at the end: the text and the speed" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* Where text goes. */
typedef struct output {
    bool terminal;
    const char *prompt; /* what is still to be printed in front; NULL: nothing */
    size_t n;
    ls_text *json;      /* instead of standard output; NULL: there */
} output;

static ls_status gather(output *to, const char *text, size_t n)
{
    if (to->prompt) ls_text_addn(to->json, to->prompt, to->n);
    to->prompt = NULL;
    ls_text_addn(to->json, text, n);
    return ls_text_status(to->json);
}

/* A model's text must not steer a terminal: there, control characters become '?'. */
static void put(const output *to, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        const bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* U+0080 to U+009F */
        if (to->terminal && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c1)) {
            putchar('?');
            i += c1;
        } else {
            putchar(c);
        }
    }
}

static ls_status print(void *arg, const char *text, size_t n)
{
    output *to = arg;
    if (to->json) return gather(to, text, n);
    if (to->prompt) put(to, to->prompt, to->n);
    to->prompt = NULL;
    put(to, text, n);
    return fflush(stdout) == 0 ? LS_OK : ls_fail(LS_IO, "writing to standard output failed");
}

/* The first token comes of the prompt. */
static int64_t passes_of(const ls_generated *g) { return g->made - (g->stopped ? 0 : 1); }

static void say_speed(const ls_generated *g)
{
    const double s = 1e-9 * (double)g->ns, prompt_s = 1e-9 * (double)g->prompt_ns;
    const int64_t passes = passes_of(g);
    fprintf(stderr, "%lld token%s", (long long)g->made, g->made == 1 ? "" : "s");
    if (passes > 0 && s > 0) fprintf(stderr, " in %.2f s: %.1f tokens/s", s, (double)passes / s);
    fprintf(stderr, "; prompt: %lld in %.2f s", (long long)g->prompt, prompt_s);
    if (g->stopped) fprintf(stderr, "; the model ended there");
    if (g->slides)
        fprintf(stderr, "; the context window slid %lld time%s: its last half was recomputed", (long long)g->slides,
                g->slides == 1 ? "" : "s");
    fputc('\n', stderr);
}

static ls_status print_json(const ls_generator *g, const ls_generated *made, const ls_text *text)
{
    const double s = 1e-9 * (double)made->ns;
    const int64_t passes = passes_of(made);
    ls_text out = { 0 };
    ls_text_add(&out, "{\"path\": ");
    ls_json_string(&out, g->path);
    ls_text_add(&out, ", \"model\": \"%s\", \"parameters\": %lld, \"context\": %zu,\n \"text\": ", g->config.model,
                (long long)ls_params_count(&g->model->params), ls_decoder_capacity(g->decoder));
    ls_json_bytes(&out, ls_text_str(text), text->n);
    ls_text_add(&out, ",\n \"tokens\": %lld, \"seconds\": ", (long long)made->made);
    ls_json_number(&out, s);
    ls_text_add(&out, ", \"tokens_per_s\": ");
    if (passes > 0 && s > 0) ls_json_number(&out, (double)passes / s);
    else ls_text_add(&out, "null");
    ls_text_add(&out, ", \"prompt_tokens\": %lld, \"prompt_seconds\": ", (long long)made->prompt);
    ls_json_number(&out, 1e-9 * (double)made->prompt_ns);
    ls_text_add(&out, ", \"stopped\": %s, \"slides\": %lld}\n", made->stopped ? "true" : "false", (long long)made->slides);
    return ls_cli_print(&out);
}

static ls_status generate(ls_generator *g, const options *o, const char *prompt, size_t n)
{
    const int64_t end = ls_tokenizer_end_of_text(g->tokenizer);
    const ls_generate_opts opts = {
        .sample = { .temperature = o->temperature, .top_k = o->top_k, .top_p = o->top_p, .seed = (uint64_t)o->seed },
        .tokens = o->tokens, .stop = o->stop_at_eot ? end : -1,
    };
    ls_generated made;
    ls_text text = { 0 };
    output to = { .terminal = ls_env_get()->isatty(1), .prompt = o->echo ? prompt : NULL, .n = n,
                  .json = o->json ? &text : NULL };
    if (o->stop_at_eot && end < 0)
        return ls_fail(LS_UNSUPPORTED, "--stop-at-eot: the tokenizer has no end of text");
    ls_status st = ls_generate_text(g->decoder, g->tokenizer, prompt, n, &opts, print, &to, &made);
    if (st == LS_OK && o->json) st = print_json(g, &made, &text);
    ls_text_free(&text);
    if (st < 0 || o->json) return st;
    LS_TRY(print(&to, "\n", 1));
    say_speed(&made);
    return LS_OK;
}

static ls_status open_and_generate(const char *path, const options *o)
{
    ls_generator g = { 0 };
    char *text = NULL;
    size_t n = o->prompt ? strlen(o->prompt) : 0;
    if (o->prompt && o->file) return ls_fail(LS_USAGE, "--prompt and --file: one of them");
    if (!(o->top_p > 0)) return ls_fail(LS_USAGE, "--top-p %g: expected more than 0, and at most 1", o->top_p);
    if (o->file) LS_TRY(ls_file_read(o->file, LS_TEXT_MAX_BYTES, &text, &n));
    ls_status st = ls_generator_open(path, o->tokenizer, &g);
    if (st == LS_OK) {
        if (!o->json)
            fprintf(stderr, "%s: %s with %lld parameters, context %zu\n", g.path, g.config.model,
                    (long long)ls_params_count(&g.model->params), ls_decoder_capacity(g.decoder));
        st = generate(&g, o, text ? text : o->prompt ? o->prompt : "", n);
    }
    ls_generator_close(&g);
    free(text);
    return st;
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_generate);
    else if (st == LS_OK && ls_opts_npositional(opts) != 1)
        st = ls_fail(LS_USAGE, "expected one run folder, checkpoint, or folder of Hugging Face's; --help shows an example");
    else if (st == LS_OK) st = open_and_generate(ls_opts_positional(opts, 0), &o);
    if (st < 0) code = ls_cli_fail("generate", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_generate = {
    .name = "generate",
    .summary = "write text with a trained language model",
    .usage = "lockstep generate RUN_DIR|CHECKPOINT|HF_DIR --prompt TEXT [options]",
    .example = "lockstep generate runs/gpt2-tiny --prompt 'My fellow citizens' --tokens 200 --temperature 0.8 --top-k 40\n"
               "  lockstep generate runs/gpt2-tiny --tokens 20 --json",
    LS_CMD_OPTS(table),
    .run = run,
};
