/* the world page: a description that a rank was writing when it lost the processor is told to people, and held against
 * nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "meet/beat.h"

#define RANKS 2

#define MOST_BYTES                                                                                                     \
    (sizeof(ls_beat_head) + LS_ERROR_BYTES + LS_SAVED_PATH_BYTES +                                                     \
     RANKS * (sizeof(ls_beat_rank) + LS_BEAT_PEERS * sizeof(ls_beat_peer)))

/* The ranks whose bits are set. */
static ls_beat_of only(uint64_t bits)
{
    static uint64_t word;
    static ls_rank_set set = { &word, RANKS };
    word = bits & ((1u << RANKS) - 1);
    return (ls_beat_of){ &set, false };
}

static uint64_t told_word;
static ls_rank_set told = { &told_word, RANKS };

static const ls_coll_desc ninety_ninth = { .generation = 1, .seq = 99, .coll = LS_ALL_REDUCE, .count = 7 };

static ls_world_page *new_page(void)
{
    ls_world_page *p = calloc(1, ls_page_bytes(RANKS));
    assert_non_null(p);
    ls_page_format(p, RANKS, 1);
    return p;
}

/* Every rank counts what it sends, group by group and lane by lane, where nothing else is. */
static void what_is_sent_has_a_word_for_each_rank_group_lane_and_peer(void **state)
{
    (void)state;
    enum { MANY = 3, GROUPS = LS_PAGE_GROUPS, LANES = LS_PAGE_LANES + 1 };
    ls_world_page *p = calloc(1, ls_page_bytes(MANY));
    assert_non_null(p);
    ls_page_format(p, MANY, 1);
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t i = 0; i < MANY * GROUPS * LANES * MANY; i++) {
            const int peer = (int)(i % MANY), lane = (int)(i / MANY % LANES), rank = (int)(i / MANY / LANES / GROUPS);
            _Atomic uint32_t *at = &ls_page_sent(p, rank, i / MANY / LANES % GROUPS, lane)[peer];
            assert_true((char *)at >= (char *)&p->rank[MANY] && (char *)(at + 1) <= (char *)p + ls_page_bytes(MANY));
            if (turn == 0) *at = i + 1;
            else assert_int_equal(*at, i + 1);
        }
    for (int r = 0; r < MANY; r++) { /* behind them are the longer rings, one after the other */
        const char *first = (const char *)ls_page_events(p, r);
        const char *end = (const char *)(ls_page_events(p, r) + LS_BLACKBOX_MOST);
        assert_true(first >= (const char *)&ls_page_sent(p, MANY - 1, GROUPS - 1, LANES - 1)[MANY]);
        const char *next = (const char *)ls_page_events(p, r + 1);
        assert_true(end <= (r == MANY - 1 ? (const char *)p + ls_page_bytes(MANY) : next));
        assert_int_equal((uintptr_t)first % 64, (uintptr_t)p % 64);
    }
    free(p);
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

static void words_and_fields_are_the_same(void **state)
{
    (void)state;
    const ls_coll_desc d = { .generation = 0xf1f2f3f4u, .group = 0xe1e2e3e4u, .seq = 0xd1d2d3d4u, .coll = 0xc1,
                             .dtype = 0xb2, .op = 0xa3, .block = 0x94, .count = 0x8182838485868788ull,
                             .root = (int32_t)0xf7172737u, .label = 0x61626364u };
    static const uint64_t want[] = { 0xe1e2e3e4f1f2f3f4ull, 0x94a3b2c1d1d2d3d4ull, 0x8182838485868788ull,
                                     0x61626364f7172737ull };
    uint64_t word[4];
    ls_coll_desc back;
    ls_desc_pack(&d, word);
    assert_memory_equal(word, want, sizeof word);
    ls_desc_unpack(word, &back);
    assert_int_equal(back.generation, d.generation);
    assert_int_equal(back.group, d.group);
    assert_int_equal(back.seq, d.seq);
    assert_int_equal(back.coll, d.coll);
    assert_int_equal(back.dtype, d.dtype);
    assert_int_equal(back.op, d.op);
    assert_int_equal(back.block, d.block);
    assert_true(back.count == d.count);
    assert_int_equal(back.root, d.root);
    assert_int_equal(back.label, d.label);
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
    static char beat[MOST_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    ls_coll_desc d;
    there->rank[1].state = LS_RANK_RUNNING;
    half_write(there, 2);
    size_t n = ls_beat_write(there, only(2), 10000, beat);
    assert_true(ls_beat_read(here, only(~0ull), beat, n, 50000, &told));
    assert_int_equal(told_word, 2);
    assert_false(ls_page_last_words(here, 1, &d));
    free(there);
    free(here);
}

/* The slot names the groups of now: a description of another one must not borrow a name. */
static void a_group_is_named_by_its_own_name_alone(void **state)
{
    (void)state;
    static const struct {
        uint32_t group;
        const char *name, *says;
    } row[] = {
        { 7, "tp 0-1", "barrier #99 of tp 0-1" },
        { 8, "tp 0-1", "barrier #99 of another group" },
        { 7, "", "barrier #99 of another group" },
        { LS_GROUP_OTHER, "tp 0-1", "barrier #99 of another group" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[160];
        ls_world_page *p = new_page();
        const ls_coll_desc d = { .group = row[i].group, .seq = 99, .coll = LS_BARRIER, .block = 2 };
        ls_flow *f = &p->rank[1].flow[2];
        f->named = row[i].group == LS_GROUP_OTHER ? LS_GROUP_OTHER : 7;
        strcpy(f->name, row[i].name);
        assert_string_equal(ls_desc_text(&d, &p->rank[1], text, sizeof text), row[i].says);
        free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_fields_are_the_same),
        cmocka_unit_test(what_is_sent_has_a_word_for_each_rank_group_lane_and_peer),
        cmocka_unit_test(half_a_description_is_not_compared),
        cmocka_unit_test(but_told_where_a_killed_rank_was),
        cmocka_unit_test(nor_handed_on_to_other_hosts),
        cmocka_unit_test(a_group_is_named_by_its_own_name_alone),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
