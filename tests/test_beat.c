/* beats: what one host tells of its ranks stands in the other's page; nothing of ranks that are not its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "meet/beat.h"

#define RANKS 4

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

static ls_world_page *new_page(void)
{
    ls_world_page *p = calloc(1, ls_page_bytes(RANKS));
    assert_non_null(p);
    ls_page_format(p, RANKS, 1);
    return p;
}

/* Rank 2 in step 7, in a collective whose label is its third string. */
static void fill(ls_world_page *p)
{
    ls_rank_slot *slot = &p->rank[2];
    ls_coll_desc d = { .generation = 1, .group = 0, .seq = 9, .coll = LS_ALL_REDUCE, .count = 100, .label = 3 };
    strcpy(slot->box.string[3], "bucket 5");
    slot->pid = 4711;
    slot->step = 7;
    slot->beat_ns = 9000;
    ls_page_enter(slot, &d);
    slot->in_coll = LS_IN_COLL;
    slot->waits_for = ls_page_waits_for(0, 9);
    slot->state = LS_RANK_RUNNING;
    slot->flow[0].seq = 9;
    ls_page_sent(p, 2, 0, LS_PAGE_MESSAGES)[3] = 5;
    ls_page_sent(p, 2, 0, 1)[3] = 6;
    slot->flow[0].waits[1] = ls_flow_wait(1, false, true, 2);
}

static void long_work_elsewhere_is_seen_as_it_is_there(void **state)
{
    (void)state;
    static char beat[MOST_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    ls_task t;
    fill(there);
    size_t n = ls_beat_write(there, only(4), 10000, beat);
    assert_true(ls_beat_read(here, only(~3ull), beat, n, 50000, &told));
    assert_false(ls_task_read(&here->rank[2].task, &t));
    assert_int_equal(t.since_ns, 0); /* there never was any */

    ls_task work = { .kind = LS_TASK_SAVING, .since_ns = 8000, .limit_ns = 3000, .file = "runs/a\x1b" };
    ls_task_write(&there->rank[2].task, &work);
    n = ls_beat_write(there, only(4), 10000, beat);
    assert_true(ls_beat_read(here, only(~3ull), beat, n, 50000, &told));
    assert_true(ls_task_read(&here->rank[2].task, &t));
    assert_int_equal(t.kind, LS_TASK_SAVING);
    assert_int_equal(t.since_ns, 48000);
    assert_int_equal(ls_task_left_ns(&t, 50000), 1000);
    assert_string_equal(t.file, "runs/a?");

    memset(work.file, 'x', 300);
    strcpy(work.file + 300, "/step-00000010");
    ls_task_write(&there->rank[2].task, &work);
    n = ls_beat_write(there, only(4), 10000, beat);
    assert_true(ls_beat_read(here, only(~3ull), beat, n, 50000, &told));
    assert_true(ls_task_read(&here->rank[2].task, &t));
    assert_int_equal(strncmp(t.file, "...xxx", 6), 0); /* its end tells most */
    assert_non_null(strstr(t.file, "xxx/step-00000010"));

    ls_task_write(&there->rank[2].task, &(ls_task){ .since_ns = 9500 });
    n = ls_beat_write(there, only(4), 10000, beat);
    assert_true(ls_beat_read(here, only(~3ull), beat, n, 50000, &told));
    assert_false(ls_task_read(&here->rank[2].task, &t));
    assert_int_equal(t.since_ns, 49500); /* when it ended */
    free(there);
    free(here);
}

static void a_rank_elsewhere_is_seen_as_it_is_there(void **state)
{
    (void)state;
    static char beat[MOST_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    char text[300], want[300];
    fill(there);
    size_t n = ls_beat_write(there, only(0xc), 10000, beat);
    assert_true(ls_beat_read(here, only(~3ull), beat, n, 50000, &told));
    assert_int_equal(told_word, 4); /* rank 3 has not joined */
    assert_int_equal(here->rank[2].state, LS_RANK_RUNNING);
    assert_int_equal(here->rank[2].pid, 4711);
    assert_int_equal(here->rank[2].beat_ns, 49000); /* as long ago, on our clock */
    assert_string_equal(ls_page_where(here, 2, text, sizeof text), ls_page_where(there, 2, want, sizeof want));
    assert_non_null(strstr(text, "bucket 5"));
    ls_coll_desc mine = { .group = 0, .seq = 9 }, theirs;
    assert_true(ls_page_find_coll(here, 2, &mine, &theirs));
    assert_int_equal(theirs.count, 100);
    const ls_flow *flow = &here->rank[2].flow[0];
    assert_int_equal(flow->seq, 9);
    assert_int_equal(ls_page_sent(here, 2, 0, LS_PAGE_MESSAGES)[3], 5);
    assert_int_equal(ls_page_sent(here, 2, 0, 1)[3], 6);
    assert_int_equal(ls_page_sent(here, 2, 0, 0)[3], 0);
    assert_int_equal(ls_page_sent(here, 2, 0, 1)[2], 0);
    assert_true(flow->waits[1] == ls_flow_wait(1, false, true, 2));
    assert_int_equal(here->rank[3].state, LS_RANK_STARTING);
    free(there);
    free(here);
}

/* What a rank has sent is told while there is room; where there is none its group is unknown, so that nobody takes a
 * message that was not told of for one that was not sent. */
static void too_many_peers_are_said_to_be_unknown(void **state)
{
    (void)state;
    enum { MANY = 3 * LS_BEAT_PEERS };
    ls_world_page *there = calloc(1, ls_page_bytes(MANY)), *here = calloc(1, ls_page_bytes(MANY));
    char *beat = malloc(ls_beat_most_bytes(MANY));
    ls_rank_set all;
    assert_true(there && here && beat);
    assert_int_equal(ls_rank_set_create(MANY, &all), LS_OK);
    ls_rank_set_add_all(&all);
    ls_page_format(there, MANY, 1);
    ls_page_format(here, MANY, 1);
    for (int r = 0; r < MANY; r++) { /* each has sent to all: thrice as much as there is room for */
        ls_coll_desc d = { .generation = 1, .group = 7, .seq = 9, .coll = LS_ALL_REDUCE, .count = 100 };
        ls_page_enter(&there->rank[r], &d);
        there->rank[r].state = LS_RANK_RUNNING;
        there->rank[r].flow[0].group = 7;
        for (int q = 0; q < MANY; q++) ls_page_sent(there, r, 0, 1)[q] = 1 + (uint32_t)q;
    }
    size_t n = ls_beat_write(there, (ls_beat_of){ &all, false }, 10000, beat);
    assert_true(n <= ls_beat_most_bytes(MANY));
    assert_true(ls_beat_read(here, (ls_beat_of){ &all, false }, beat, n, 50000, NULL));
    int known = 0;
    for (int r = 0; r < MANY; r++) {
        if (here->rank[r].flow[0].group != 7) continue;
        known++;
        for (int q = 0; q < MANY; q++) assert_int_equal(ls_page_sent(here, r, 0, 1)[q], 1 + q);
    }
    assert_int_equal(known, MANY / 3);
    assert_int_equal(here->rank[MANY - 1].state, LS_RANK_RUNNING); /* the rest is told of all */
    ls_rank_set_free(&all);
    free(beat);
    free(there);
    free(here);
}

static void a_checkpoint_elsewhere_is_known_here(void **state)
{
    (void)state;
    static char beat[MOST_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    ls_saved s;
    char path[LS_SAVED_PATH_BYTES], text[LS_SAVED_PATH_BYTES + 64];
    fill(there);
    ls_page_abort(there, 3, LS_RANK_DIED, "a sentence that stands before it");
    ls_saved_read(&here->saved, &s);
    assert_string_equal(ls_saved_text(&s, text, sizeof text), ""); /* a job that is no training */
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    static const char *const want[] = { "", "no checkpoint was saved", "the newest checkpoint of this run is a? b (step 12)",
                                        "the newest checkpoint of this run is xxx" };
    for (int i = 0; i < 4; i++) {
        if (i > 0) ls_saved_write(&there->saved, i == 1 ? NULL : i == 2 ? "a\x1b b" : path, 12);
        size_t n = ls_beat_write(there, only(~0ull), 10000, beat);
        assert_true(n <= sizeof beat);
        assert_true(ls_beat_read(here, only(~3ull), beat, n, 50000, &told)); /* rank 0 is here: it knows better */
        ls_saved_read(&here->saved, &s);
        assert_int_equal(s.state, i < 2 ? LS_SAVED_UNKNOWN : i == 2 ? LS_SAVED_NONE : LS_SAVED_ONE); /* as it was */
        assert_true(ls_beat_read(here, only(~2ull), beat, n, 50000, &told));
        assert_int_equal(here->rank[2].step, 7); /* what follows is where it was */
        ls_saved_read(&here->saved, &s);
        ls_saved_text(&s, text, sizeof text);
        if (strncmp(text, want[i], strlen(want[i])) != 0 || (i < 3 && strlen(text) != strlen(want[i]))) fail_msg("%s", text);
        if (i == 3) assert_string_equal(s.path, path);
    }
    free(there);
    free(here);
}

static void nobody_writes_into_the_slot_of_a_rank_that_is_here(void **state)
{
    (void)state;
    static char beat[MOST_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    fill(there);
    size_t n = ls_beat_write(there, only(~0ull), 10000, beat);
    assert_true(ls_beat_read(here, only(~4ull), beat, n, 50000, &told));
    assert_int_equal(here->rank[2].state, LS_RANK_STARTING);
    assert_int_equal(here->rank[2].step, 0);
    free(there);
    free(here);
}

static void the_first_cause_stays(void **state)
{
    (void)state;
    static char beat[MOST_BYTES];
    ls_world_page *there = new_page(), *here = new_page();
    char text[LS_ERROR_BYTES];
    ls_status s;
    int rank;
    assert_true(ls_page_blame(there, 3, 1, LS_RANK_HUNG, "rank 2 waited\x1b[31m for rank 1"));
    size_t n = ls_beat_write(there, only(0), 10000, beat);
    assert_true(ls_beat_read(here, only(~0ull), beat, n, 50000, &told));
    assert_true(ls_page_cause(here, &rank, &s, text, sizeof text));
    assert_int_equal(rank, 1);
    assert_int_equal(s, LS_RANK_HUNG);
    assert_string_equal(text, "rank 2 waited?[31m for rank 1"); /* and drives no terminal */
    free(there);
    there = new_page();
    ls_page_abort(there, LS_ABORT_BY_LAUNCHER, LS_PEER_SILENT, "another");
    n = ls_beat_write(there, only(0), 10000, beat);
    assert_true(ls_beat_read(here, only(~0ull), beat, n, 50000, &told));
    assert_true(ls_page_cause(here, &rank, &s, text, sizeof text));
    assert_int_equal(s, LS_RANK_HUNG);
    free(there);
    free(here);
}

static void what_is_no_beat_changes_nothing(void **state)
{
    (void)state;
    static char beat[MOST_BYTES + 1], bad[MOST_BYTES + 1];
    ls_world_page *there = new_page(), *here = new_page();
    fill(there);
    size_t n = ls_beat_write(there, only(~0ull), 10000, beat), rank_at = sizeof(ls_beat_head);
    for (size_t k = 0; k < n; k++) assert_false(ls_beat_read(here, only(~0ull), beat, k, 1, &told));
    assert_false(ls_beat_read(here, only(~0ull), beat, n + 1, 1, &told));
    struct { size_t at; uint32_t value; } row[] = {
        { offsetof(ls_beat_head, nranks), RANKS + 1 },
        { offsetof(ls_beat_head, count), RANKS + 1 },
        { offsetof(ls_beat_head, count), 2 },
        { offsetof(ls_beat_head, text), LS_ERROR_BYTES },
        { offsetof(ls_beat_head, saved), LS_SAVED_STATES },
        { offsetof(ls_beat_head, path), LS_SAVED_PATH_BYTES },
        { offsetof(ls_beat_head, path), 1 },
        { rank_at + offsetof(ls_beat_rank, rank), RANKS },
        { rank_at + offsetof(ls_beat_rank, state), LS_RANK_STOPPED + 1 },
        { rank_at + offsetof(ls_beat_rank, in_coll), LS_IN_MESSAGE + 1 },
        { rank_at + offsetof(ls_beat_rank, task), LS_TASK_KINDS },
        { rank_at + offsetof(ls_beat_rank, desc) + offsetof(ls_coll_desc, coll), (uint32_t)LS_PAGE_GROUPS << 24 },
        { rank_at + offsetof(ls_beat_rank, flow) + offsetof(ls_beat_flow, block), LS_PAGE_GROUPS },
        { rank_at + offsetof(ls_beat_rank, npeers), 0 },
        { rank_at + offsetof(ls_beat_rank, npeers), 2 },
        { rank_at + offsetof(ls_beat_rank, npeers), UINT32_MAX },
        { rank_at + sizeof(ls_beat_rank), RANKS }, /* its only peer */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        memcpy(bad, beat, n);
        memcpy(bad + row[i].at, &row[i].value, 4);
        assert_false(ls_beat_read(here, only(~0ull), bad, n, 1, &told));
    }
    /* A text, or a path, that fills its message to the byte: one byte less is accepted. */
    for (int which = 0; which < 2; which++)
        for (uint32_t over = 0; over < 2; over++) {
            const uint32_t len = (which ? (uint32_t)LS_SAVED_PATH_BYTES : (uint32_t)LS_ERROR_BYTES) - 1 + over;
            ls_beat_head h;
            memcpy(&h, beat, sizeof h);
            h.count = h.abort_by = 0;
            h.saved = LS_SAVED_NONE;
            h.text = which ? 0 : len;
            h.path = which ? len : 0;
            memset(bad, 'x', sizeof bad);
            memcpy(bad, &h, sizeof h);
            assert_int_equal(ls_beat_read(here, only(~0ull), bad, sizeof h + len, 1, &told), !over);
        }
    assert_int_equal(here->rank[2].state, LS_RANK_STARTING);
    free(there);
    free(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_elsewhere_is_seen_as_it_is_there),
        cmocka_unit_test(too_many_peers_are_said_to_be_unknown),
        cmocka_unit_test(long_work_elsewhere_is_seen_as_it_is_there),
        cmocka_unit_test(a_checkpoint_elsewhere_is_known_here),
        cmocka_unit_test(nobody_writes_into_the_slot_of_a_rank_that_is_here),
        cmocka_unit_test(the_first_cause_stays),
        cmocka_unit_test(what_is_no_beat_changes_nothing),
    };
    return cmocka_run_group_tests_name("beat", tests, NULL, NULL);
}
