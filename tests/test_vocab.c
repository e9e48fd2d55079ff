/* vocab: tokens by id and by bytes; no two may be the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "data/vocab.h"

static void finds_every_token_by_its_bytes(void **state)
{
    (void)state;
    enum { N = 5000 };
    ls_vocab v = { 0 };
    char text[16];
    for (uint32_t i = 0; i < N; i++) { /* in another order than the ids */
        const uint32_t id = (i * 1237u) % N;
        assert_int_equal(ls_vocab_add(&v, id, text, (size_t)snprintf(text, sizeof text, "t%u", id)), LS_OK);
    }
    assert_int_equal(v.n, N);
    for (uint32_t id = 0; id < N; id++)
        assert_int_equal(ls_vocab_find(&v, text, (size_t)snprintf(text, sizeof text, "t%u", id)), id);
    assert_int_equal(ls_vocab_find(&v, "t5000", 5), LS_NO_TOKEN);
    assert_int_equal(ls_vocab_find(&v, "t500", 3), 50); /* the length counts */
    ls_vocab_free(&v);
}

static void refuses_what_would_be_ambiguous(void **state)
{
    (void)state;
    ls_vocab v = { 0 };
    static char long_token[LS_TOKENIZER_MAX_TOKEN + 1];
    assert_int_equal(ls_vocab_add(&v, 1, "ab", 2), LS_OK);
    assert_int_equal(ls_vocab_add(&v, 2, "ab", 2), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "tokens 1 and 2 are the same bytes"));
    assert_int_equal(ls_vocab_find(&v, "ab", 2), 1);
    assert_int_equal(ls_vocab_add(&v, 1, "cd", 2), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "two tokens have the id 1"));
    assert_int_equal(ls_vocab_add(&v, 3, "", 0), LS_INVALID);
    assert_int_equal(ls_vocab_add(&v, 3, long_token, sizeof long_token), LS_INVALID);
    assert_int_equal(ls_vocab_add(&v, 3, long_token, sizeof long_token - 1), LS_OK);
    assert_int_equal(ls_vocab_add(&v, LS_TOKENIZER_MAX_TOKENS, "x", 1), LS_INVALID);
    ls_vocab_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_token_by_its_bytes),
        cmocka_unit_test(refuses_what_would_be_ambiguous),
    };
    return cmocka_run_group_tests_name("vocab", tests, NULL, NULL);
}
