/* Slurm's host and task lists: what they mean, what is refused, and that no bytes break the parser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "meet/hostlist.h"

typedef char host[LS_HOST_MAX_NAME + 1];

/* The names with blanks between them, or "!" and the reason. */
static const char *expanded(const char *text, int max, char *buf, size_t n)
{
    static host names[64];
    int count;
    buf[0] = 0;
    if (ls_hostlist_expand(text, names, max, &count) != LS_OK) {
        snprintf(buf, n, "!%s", ls_last_error());
        return buf;
    }
    for (int i = 0; i < count; i++) snprintf(buf + strlen(buf), n - strlen(buf), "%s%s", i ? " " : "", names[i]);
    return buf;
}

static void expands_what_slurm_writes(void **state)
{
    (void)state;
    static const struct { const char *text, *means; } row[] = {
        { "login", "login" },
        { "node[01-03,7]", "node01 node02 node03 node7" },
        { "node[8-11]", "node8 node9 node10 node11" },
        { "node[08-11],login", "node08 node09 node10 node11 login" },
        { "a,b.example.org,c-1", "a b.example.org c-1" },
        { "rack[1-2]n[1-2]x", "rack1n1x rack1n2x rack2n1x rack2n2x" },
        { "n[5],m[0,2-3]", "n5 m0 m2 m3" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char buf[512];
        assert_string_equal(expanded(row[i].text, 64, buf, sizeof buf), row[i].means);
    }
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *text, *why; } row[] = {
        { "", "empty name" },
        { "a,,b", "empty name" },
        { "a,", "empty name" },
        { "node[1-3", "not closed" },
        { "node[3-1]", "runs backwards" },
        { "node[]", "no number" },
        { "node[1,]", "no number" },
        { "node[1-]", "without an end" },
        { "node[x]", "no number" },
        { "node[1;2]", "something else" },
        { "no de", "no host name has" },
        { "node]", "no host name has" },
        { "$(reboot)", "no host name has" },
        { "n[1]n[1]n[1]n[1]n[1]", "too many brackets" },
        { "n[1-65]", "more than 64 host names" },
        { "n[0-999999999]", "more than 64 host names" },
        { "n[0-9999999999]", "without an end" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char buf[600];
        expanded(row[i].text, 64, buf, sizeof buf);
        if (buf[0] != '!' || !strstr(buf, row[i].why)) fail_msg("'%s' gives %s", row[i].text, buf);
    }
}

static void takes_the_most_and_not_one_more(void **state)
{
    (void)state;
    host names[64];
    int n;
    assert_int_equal(ls_hostlist_expand("n[1-64]", names, 64, &n), LS_OK);
    assert_int_equal(n, 64);
    assert_string_equal(names[63], "n64");
    assert_int_equal(ls_hostlist_expand("n[1]n[1]n[1]n[1]", names, 64, &n), LS_OK);

    char name[LS_HOST_MAX_NAME + 2];
    memset(name, 'a', sizeof name);
    name[LS_HOST_MAX_NAME + 1] = 0;
    assert_int_equal(ls_hostlist_expand(name, names, 64, &n), LS_INVALID);
    name[LS_HOST_MAX_NAME] = 0;
    assert_int_equal(ls_hostlist_expand(name, names, 64, &n), LS_OK);

    /* one host by a number repeated until the list is as long as it may be: too many hosts, not too long a list */
    char *text = malloc(LS_HOST_MAX_LIST + 2);
    memset(text, '1', LS_HOST_MAX_LIST + 1);
    text[LS_HOST_MAX_LIST + 1] = 0;
    assert_int_equal(ls_hostlist_expand(text, names, 64, &n), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "at most"));
    text[LS_HOST_MAX_LIST] = 0;
    assert_int_equal(ls_hostlist_expand(text, names, 64, &n), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "too long"));
    free(text);
}

static void expands_tasks_per_node(void **state)
{
    (void)state;
    static const struct { const char *text; int n, count[5]; } row[] = {
        { "4", 1, { 4 } }, { "2(x3),1", 4, { 2, 2, 2, 1 } }, { "1,3(x2)", 3, { 1, 3, 3 } }, { "65536", 1, { 65536 } },
    };
    static const char *const wrong[] = { "", "0", "2(x0)", "2(x", "2(3)", "2,", ",2", "x", "65537", "2(x3)1", "-1", "1(x6)",
                                         "2(x2),3(x4)", "12345678901" };
    int out[5], n;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_tasklist_expand(row[i].text, out, 5, &n), LS_OK);
        assert_int_equal(n, row[i].n);
        assert_memory_equal(out, row[i].count, (size_t)n * sizeof *out);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (ls_tasklist_expand(wrong[i], out, 5, &n) != LS_INVALID) fail_msg("'%s' is accepted", wrong[i]);
}

/* A fuzzer in small: mutants of good lists either expand within the bounds or are refused with a reason. */
static void survives_any_bytes(void **state)
{
    (void)state;
    static const char *const seeds[] = { "node[01-03,7],login", "rack[1-2]n[1-2]x,b", "2(x3),1", "n[5],m[0,2-3]" };
    static const char alphabet[] = "[]()-,x0123456789an.\x01\xff";
    uint64_t r = 0x9e3779b97f4a7c15ull;
    host names[8];
    int out[8], accepted = 0;
    for (int i = 0; i < 200000; i++) {
        char text[32] = { 0 };
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        strcpy(text, seeds[r >> 62]);
        for (uint64_t changes = 1 + (r >> 56 & 3); changes > 0; changes--) {
            r = r * 6364136223846793005ull + 1442695040888963407ull;
            text[(r >> 33) % strlen(text)] = alphabet[(r >> 40) % (sizeof alphabet - 1)];
        }
        int n = -1;
        ls_status st = ls_hostlist_expand(text, names, 8, &n);
        assert_true(st == LS_OK || st == LS_INVALID);
        assert_true(n >= 0 && n <= 8);
        accepted += st == LS_OK;
        for (int k = 0; k < n; k++) assert_true(strlen(names[k]) > 0 && strspn(names[k], "[](),") == 0);
        st = ls_tasklist_expand(text, out, 8, &n);
        assert_true(st == LS_OK || st == LS_INVALID);
        assert_true(n >= 0 && n <= 8);
    }
    assert_true(accepted > 1000); /* the mutants are not all nonsense */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expands_what_slurm_writes), cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(takes_the_most_and_not_one_more), cmocka_unit_test(expands_tasks_per_node),
        cmocka_unit_test(survives_any_bytes),
    };
    return cmocka_run_group_tests_name("hostlist", tests, NULL, NULL);
}
