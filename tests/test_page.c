/* the world page: a description that a rank was writing when it lost the processor is told to people, and held against
 * nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "net/beat.h"

#define RANKS 2

static const ls_coll_desc ninety_ninth = { .generation = 1, .seq = 99, .coll = LS_ALL_REDUCE, .count = 7 };

static ls_world_page *new_page(void)
{
    ls_world_page *p = calloc(1, ls_page_bytes(RANKS));
    assert_non_null(p);
    ls_page_format(p, RANKS, 1);
    return p;
}

/* Rank 1 has called #35 and is writing #99, which takes the place of #35: its first `words` words stand. */
static void half_write(ls_world_page *p, int words)
{
    ls_coll_desc old = ninety_ninth;
    uint64_t word[4];
    old.seq -= LS_PAGE_HISTORY;
    old.count = 0;
    ls_page_enter(&p->rank[1], &old);
    struct ls_desc_slot *ds = &p->rank[1].desc[ls_desc_index(0, ninety_ninth.seq)];
    ls_desc_pack(&ninety_ninth, word);
    ds->version++;
    for (int k = 0; k < words; k++) ds->word[k] = word[k];
}

static void half_a_description_is_not_compared(void **state)
{
    (void)state;
    ls_coll_desc d;
    for (int words = 0; words <= 4; words++) {
        ls_world_page *p = new_page();
        half_write(p, words);
        assert_false(ls_page_find_coll(p, 1, &ninety_ninth, &d));
        assert_false(ls_page_entered(p, 1, &ninety_ninth));
        assert_false(ls_page_last_coll(p, 1, &d));
        ls_page_enter(&p->rank[0], &ninety_ninth); /* a whole one is */
        assert_true(ls_page_find_coll(p, 0, &ninety_ninth, &d));
        assert_int_equal(d.count, 7);
        free(p);
    }
}

static void but_told_where_a_killed_rank_was(void **state)
{
    (void)state;
    char text[300];
    ls_coll_desc d;
    ls_world_page *p = new_page();
    half_write(p, 2);
    p->rank[1].in_coll = LS_IN_COLL;
    assert_true(ls_page_last_words(p, 1, &d));
    assert_non_null(strstr(ls_page_where(p, 1, text, sizeof text), "all_reduce #99"));
    assert_false(ls_page_last_words(p, 0, &d));
    free(p);
}

static void nor_handed_on_to_other_hosts(void **state)
{
    (void)state;
    static char beat[LS_BEAT_MAX_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    uint64_t told;
    ls_coll_desc d;
    there->rank[1].state = LS_RANK_RUNNING;
    half_write(there, 2);
    size_t n = ls_beat_write(there, 2, 10000, beat);
    assert_true(ls_beat_read(here, ~0ull, beat, n, 50000, &told));
    assert_int_equal(told, 2);
    assert_false(ls_page_last_words(here, 1, &d));
    free(there);
    free(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_a_description_is_not_compared),
        cmocka_unit_test(but_told_where_a_killed_rank_was),
        cmocka_unit_test(nor_handed_on_to_other_hosts),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
