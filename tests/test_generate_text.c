/* Text from tokens: characters that are split between tokens arrive whole; what is no UTF-8 becomes U+FFFD. The model
 * is made by hand: it says one given sequence of bytes, whatever the prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/generate.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define T 32 /* longest sequence, and channels: each place has one of its own */
#define V 257
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

typedef struct fixture {
    ls_model *m;
    ls_arena *arena;
    ls_decoder *d;
    ls_tokenizer *bytes;
} fixture;

static float *values(const ls_model *m, const char *name)
{
    const ls_param *p = ls_params_find(&m->params, name);
    assert_non_null(p);
    return p->t.data;
}

/* All blocks add 0; place t has channel t alone; so after place t the model says text[t], beyond the text token 0. */
static fixture says(const char *text, size_t n)
{
    fixture f = { 0 };
    const ls_model_config c = { .name = "gpt2", .init = LS_INIT_PHILOX,
                                .lm = { .vocab_size = V, .seq_len = T, .n_layer = 1, .n_head = 1, .d_model = T } };
    assert_done(ls_model_create(&c, &f.m));
    assert_done(ls_arena_create(2 * ls_params_nbytes(&f.m->params) + 4096, false, NULL, &f.arena));
    assert_done(ls_params_bind(&f.m->params, f.arena, NULL));
    for (int i = 0; i < f.m->params.n; i++) {
        const ls_tensor *t = &f.m->params.item[i].t;
        memset(t->data, 0, ls_tensor_nbytes(t));
    }
    float *wpe = values(f.m, "transformer.wpe.weight"), *head = values(f.m, "lm_head.weight");
    float *norm = values(f.m, "transformer.ln_f.weight");
    for (size_t t = 0; t < T; t++) {
        wpe[t * T + t] = norm[t] = 1;
        if (t < n) head[(unsigned char)text[t] * (size_t)T + t] = 1;
    }
    assert_done(ls_decoder_create(f.m, NULL, &f.d));
    assert_done(ls_tokenizer_open("byte", &f.bytes));
    return f;
}

static void drop(fixture *f)
{
    ls_tokenizer_close(f->bytes);
    ls_decoder_destroy(f->d);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->arena);
}

/* What was written, a '|' behind each piece. */
typedef struct paper {
    char text[256];
    size_t n;
} paper;

static ls_status write_down(void *arg, const char *text, size_t n)
{
    paper *p = arg;
    if (n + 1 >= sizeof p->text - p->n) return ls_fail(LS_IO, "no more paper");
    memcpy(p->text + p->n, text, n);
    p->n += n;
    p->text[p->n++] = '|';
    return LS_OK;
}

static const ls_generate_opts greedy = { .sample = { .top_p = 1 }, .tokens = 1, .stop = -1 };

static void characters_arrive_whole(void **state)
{
    (void)state;
    static const struct { const char *made, *written; } row[] = {
        { "abc", "a|b|c|" },
        { "\xc3\xa9t\xe2\x82\xac\xf0\x9d\x84\x9e!", "\xc3\xa9|t|\xe2\x82\xac|\xf0\x9d\x84\x9e|!|" }, /* 2, 3, 4 bytes */
        { "\xff" "a\x80", "\xef\xbf\xbd|a|\xef\xbf\xbd|" },           /* no beginning of anything */
        { "\xe2\x82" "a", "\xef\xbf\xbd" "a|" },                       /* cut short by another */
        { "\xe2\xc3\xa9", "\xef\xbf\xbd|\xc3\xa9|" },
        { "a\xf0\x9d\x84", "a|\xef\xbf\xbd|" },                        /* by the end */
        { "\xf0\x9d", "\xef\xbf\xbd|" },
        { "\xc0\xaf", "\xef\xbf\xbd|\xef\xbf\xbd|" },                  /* overlong */
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd|" },  /* a surrogate: known with its second byte */
    };
    for (size_t r = 0; r < COUNT(row); r++) {
        char model[T] = "xyz"; /* what it says inside the prompt is not asked for */
        const size_t n = strlen(row[r].made);
        memcpy(model + 3, row[r].made, n);
        fixture f = says(model, 3 + n);
        paper p = { 0 };
        ls_generate_opts o = greedy;
        ls_generated out;
        o.tokens = (int64_t)n;
        assert_done(ls_generate_text(f.d, f.bytes, "1234", 4, &o, write_down, &p, &out));
        p.text[p.n] = 0;
        if (strcmp(p.text, row[r].written) != 0) fail_msg("row %zu: '%s', want '%s'", r, p.text, row[r].written);
        assert_int_equal(out.prompt, 4);
        assert_int_equal(out.made, n);
        drop(&f);
    }
}

static void without_a_prompt_a_document_begins(void **state)
{
    (void)state;
    fixture f = says("hello", 5);
    paper p = { 0 };
    ls_generated out;
    ls_generate_opts o = greedy;
    o.tokens = 5;
    assert_done(ls_generate_text(f.d, f.bytes, "", 0, &o, write_down, &p, &out));
    assert_memory_equal(p.text, "h|e|l|l|o|", 10);
    assert_int_equal(out.prompt, 1); /* the end of text before it */
    drop(&f);
}

static void special_tokens_in_a_prompt_are_tokens(void **state)
{
    (void)state;
    fixture f = says("..abc", 5);
    paper p = { 0 };
    ls_generated out;
    assert_done(ls_generate_text(f.d, f.bytes, "<|endoftext|>1\xff", 15, &greedy, write_down, &p, &out));
    assert_int_equal(out.prompt, 3); /* and a byte tokenizer takes any byte */
    assert_memory_equal(p.text, "a|", 2);
    drop(&f);
}

static void a_failure_of_the_writer_ends_it(void **state)
{
    (void)state;
    fixture f = says("abc", 3);
    paper p = { .n = sizeof p.text - 2 };
    assert_int_equal(ls_generate_text(f.d, f.bytes, "", 0, &greedy, write_down, &p, NULL), LS_IO);
    drop(&f);
}

/* Characters as tokens: one that is not UTF-8 is refused; ids that the tokenizer does not have are never drawn. */
static void a_smaller_tokenizer(void **state)
{
    (void)state;
    ls_tokenizer *t;
    assert_done(ls_tokenizer_open_chars("ab", 2, &t));
    fixture f = says("zzzz", 4); /* "z" is 122: no token of 3 has that id */
    paper p = { 0 };
    ls_generated out;
    ls_generate_opts o = greedy;
    o.tokens = 3;
    assert_done(ls_generate_text(f.d, t, "ab", 2, &o, write_down, &p, &out));
    assert_memory_equal(p.text, "a|a|a|", 6); /* all three are equally likely: the first of them */
    assert_int_equal(ls_generate_text(f.d, t, "ab\xff", 3, &o, write_down, &p, &out), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "while reading the prompt: "));
    assert_non_null(strstr(ls_last_error(), "UTF-8"));
    assert_int_equal(ls_generate_text(f.d, t, "abc", 3, &o, write_down, &p, &out), LS_INVALID);
    ls_tokenizer_close(t);
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_arrive_whole),
        cmocka_unit_test(without_a_prompt_a_document_begins),
        cmocka_unit_test(special_tokens_in_a_prompt_are_tokens),
        cmocka_unit_test(a_failure_of_the_writer_ends_it),
        cmocka_unit_test(a_smaller_tokenizer),
    };
    return cmocka_run_group_tests_name("generate_text", tests, NULL, NULL);
}
