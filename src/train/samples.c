/* samples.c -- what a language model writes while it learns: a few words from rank 0 now and then.
 *
 * The other ranks wait for rank 0 in the next step's collectives, so a sample ends, wherever it is, before
 * they could take it for lost.
 */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "train/trainer.h"

#define SHARE       4 /* a sample takes at most one part in so many of comm.timeout */
#define TEMPERATURE 0.8
#define TOP_K       200 /* both as lockstep generate has them */
#define LINE        500 /* bytes; longer ones are broken */

ls_status ls_samples_open(ls_trainer *t)
{
    if (!t->par.mesh.speaks || t->c->train.sample_every == 0 || t->feed.tokens == 0) return LS_OK;
    if (!t->source.opened)
        return ls_fail(LS_BAD_CONFIG,
                       "train.sample_every is %lld, but there is no tokenizer to write text with: set data.tokenizer",
                       (long long)t->c->train.sample_every);
    if (*t->source.no_prompt)
        ls_log(LS_LOG_WARN, "train.sample_prompt '%s' is left out, since the tokenizer cannot encode it (%s): samples begin after an "
               "end-of-text token", t->c->train.sample_prompt, t->source.no_prompt);
    const size_t nbytes = ls_memory_samples(t->c, &t->par);
    void *p = NULL;
    if (nbytes) LS_TRY(ls_arena_alloc(t->arena, nbytes, LS_MEM_PARAM, &p));
    t->sample_values = p;
    if (ls_parallel_divides(&t->par)) LS_TRY(ls_model_create(&t->mc, &t->sample_model));
    return ls_decoder_create(t->sample_model ? t->sample_model : t->par.model, ls_world_ledger(t->w), &t->decoder);
}

bool ls_samples_due(const ls_trainer *t)
{
    const int64_t every = t->c->train.sample_every;
    return every > 0 && t->feed.tokens > 0 && (t->step == t->steps || t->step % every == 0);
}

typedef struct page {
    ls_text text;
    uint64_t deadline_ns;
    bool late;
} page;

/* A model's text must not steer a terminal: control characters become '?', but for the ends of lines. */
static void add(ls_text *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        const bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* U+0080 to U+009F */
        const bool control = (c < 0x20 && c != '\n') || c == 0x7f || c1;
        ls_text_addn(out, control ? "?" : &text[i], 1);
        i += c1;
    }
}

static ls_status keep(void *arg, const char *text, size_t n)
{
    page *p = arg;
    add(&p->text, text, n);
    LS_TRY(ls_text_status(&p->text));
    p->late = ls_env_get()->mono_ns() > p->deadline_ns;
    return p->late ? ls_fail(LS_INTERRUPTED, "a sample takes too long") : LS_OK;
}

/* Bytes of the line that p begins, without its end; of a long one whole characters. */
static size_t line_bytes(const char *p)
{
    size_t n = strcspn(p, "\n");
    if (n < LINE) return n;
    for (n = LINE; ((unsigned char)p[n] & 0xc0) == 0x80; n--) {} /* the text is UTF-8 */
    return n;
}

/* Line by line, so that nobody takes them for the log's. */
static void say(ls_trainer *t, page *p)
{
    if (p->late) ls_text_add(&p->text, " ...");
    ls_bar_clear(&t->bar);
    ls_say("sample at step %lld:", (long long)t->step);
    const char *at = ls_text_str(&p->text);
    do {
        char line[LINE + 1];
        const size_t n = line_bytes(at);
        memcpy(line, at, n);
        line[n] = 0;
        ls_say("| %s", line);
        at += n + (at[n] == '\n');
    } while (*at);
}

static ls_status write_sample(ls_trainer *t)
{
    const ls_train_config *c = t->c;
    const char *prompt = t->source.prompt;
    page p = { .deadline_ns = ls_env_get()->mono_ns() + c->comm.timeout / SHARE };
    const ls_generate_opts o = {
        .sample = { .temperature = TEMPERATURE,
                    .top_k = TOP_K,
                    .top_p = 1.0,
                    .seed = (uint64_t)c->train.seed + (uint64_t)t->step },
        .tokens = c->train.sample_tokens,
        .stop = ls_tokenizer_end_of_text(t->source.opened),
    };
    add(&p.text, prompt, strlen(prompt));
    ls_status st = ls_decoder_rewind(t->decoder, 0); /* the weights are others than they were */
    if (st == LS_OK) st = ls_generate_text(t->decoder, t->source.opened, prompt, strlen(prompt), &o, keep, &p, NULL);
    if (st == LS_INTERRUPTED && p.late) st = LS_OK;
    if (st == LS_OK) say(t, &p);
    ls_text_free(&p.text);
    return st < 0 ? ls_while(st, "writing the sample of step %lld", (long long)t->step) : LS_OK;
}

/* Where ranks divide layers, rank 0 has the values of a whole model for the time of the sample. */
static ls_status put_together(ls_trainer *t)
{
    const ls_values values = ls_parallel_values(&t->par);
    const ls_params *ps = &t->par.model->params;
    char *at = t->sample_values;
    for (int i = 0; i < ls_params_total(ps); i++) {
        const float *v;
        const ls_param *here = ls_params_at(ps, i);
        LS_TRY(values.whole(values.arg, here, &v));
        if (!at) continue; /* another rank writes the sample */
        ls_param *p = ls_params_find(&t->sample_model->params, here->name);
        const size_t nbytes = ls_tensor_nbytes(&p->t);
        p->t.data = memcpy(at, v, nbytes);
        at += (nbytes + LS_MEMORY_UNIT - 1) / LS_MEMORY_UNIT * LS_MEMORY_UNIT;
    }
    return LS_OK;
}

/* The decoder reads f32 values. If ranks store only their own rows of them, all ranks put one parameter after another
 * together (ls_ddp_values). The parameters point to the result for the time of the sample; `lent` marks them. */
static ls_status borrow(ls_trainer *t, bool *lent)
{
    const ls_values values = ls_ddp_values(t->par.ddp);
    const bool stay = ls_ddp_values_stay(t->par.ddp);
    ls_params *ps = &t->par.model->params;
    char *at = t->sample_values;
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const size_t nbytes = ls_tensor_nbytes(&p->t);
        const float *v;
        if (p->t.data) continue;
        LS_TRY(values.whole(values.arg, p, &v));
        if (!stay && !at) continue; /* another rank writes the sample */
        p->t.data = stay ? (void *)(uintptr_t)v : memcpy(at, v, nbytes);
        lent[i] = true;
        if (at) at += (nbytes + LS_MEMORY_UNIT - 1) / LS_MEMORY_UNIT * LS_MEMORY_UNIT;
    }
    return LS_OK;
}

ls_status ls_samples_say(ls_trainer *t)
{
    ls_params *ps = &t->par.model->params;
    bool *lent = calloc((size_t)ps->n + 1, sizeof *lent);
    if (!lent) return ls_fail(LS_NO_MEMORY, "a list of %d parameters", ps->n);
    ls_status st = ls_parallel_divides(&t->par) ? put_together(t) : borrow(t, lent);
    if (st == LS_OK && t->par.mesh.speaks) st = write_sample(t);
    for (int i = 0; i < ps->n; i++)
        if (lent[i]) ps->item[i].t.data = NULL;
    free(lent);
    return st;
}
