/* slow_link: messages cross one after another at the link's rate, on a clock that the test moves; none is lost or
 * overwritten where the transport below does not send. */
#include "harness.h"

#include "base/context.h"
#include "net/slow_link.h"

#define MS 1000000ull
#define QUEUE 16 /* messages of a channel that the link holds, as in slow_link.c */

/* A transport that notes what it gets. */
struct ls_transport {
    int n;              /* messages handed over */
    const void *at[64]; /* each of them */
    int channel[64];
    bool sends;         /* what was handed over is sent at once; else not yet */
};

static ls_status note(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    assert_int_equal(peer, 1);
    assert_true(t->n < 64);
    t->at[t->n] = m->p;
    t->channel[t->n++] = channel;
    *ticket = (uint64_t)t->n; /* of all channels: the test sends on one where tickets matter */
    return LS_OK;
}

static uint64_t sent(ls_transport *t, int peer, int channel)
{
    (void)peer, (void)channel;
    return t->sends ? (uint64_t)t->n : 0;
}

static const ls_transport_ops ops = { .name = "note", .send = note, .sent = sent };

static uint64_t now_ns;
static uint64_t clock_ns(void) { return now_ns; }

static void one_message_after_another(void **state)
{
    (void)state;
    static const char byte[3000];
    ls_transport below = { .sends = true };
    ls_slow_link *l;
    uint64_t ticket;
    now_ns = 5 * MS;
    assert_int_equal(ls_slow_link_create(&ops, &below, 1, 1000000, &l), LS_OK); /* 1 MB/s: 1,000 bytes take 1 ms */
    assert_int_equal(ls_slow_link_send(l, 0, &(ls_msg){ .p = byte, .n = 1000 }, &ticket), LS_OK);
    assert_int_equal(ls_slow_link_send(l, 3, &(ls_msg){ .p = byte + 1, .n = 1000 }, &ticket), LS_OK);
    assert_int_equal(ls_slow_link_send(l, 0, &(ls_msg){ .p = byte + 2, .n = 2000 }, &ticket), LS_OK);
    assert_int_equal(ticket, 2); /* of channel 0 */
    static const struct { uint64_t at_ns; int crossed; } row[] = { /* due after 1, 2 and 4 ms */
        { 5 * MS, 0 }, { 6 * MS - 1, 0 }, { 6 * MS, 1 }, { 7 * MS - 1, 1 }, { 7 * MS, 2 }, { 9 * MS - 1, 2 }, { 9 * MS, 3 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        now_ns = row[i].at_ns;
        assert_int_equal(ls_slow_link_progress(l), LS_OK);
        assert_int_equal(below.n, row[i].crossed);
        assert_int_equal(ls_slow_link_sent(l, 0), (row[i].crossed > 0) + (row[i].crossed > 2));
        assert_int_equal(ls_slow_link_sent(l, 3), row[i].crossed > 1);
    }
    now_ns = 20 * MS; /* the link was idle: the next message does not wait for what is over, nor is it earlier */
    assert_int_equal(ls_slow_link_send(l, 0, &(ls_msg){ .p = byte, .n = 1000 }, &ticket), LS_OK);
    now_ns = 21 * MS - 1;
    assert_int_equal(ls_slow_link_sent(l, 0), 2);
    now_ns = 21 * MS;
    assert_int_equal(ls_slow_link_sent(l, 0), 3);
    ls_slow_link_destroy(l);
}

static void a_full_queue_takes_no_more(void **state)
{
    (void)state;
    static const char byte[40];
    ls_transport below = { .sends = false };
    ls_slow_link *l;
    uint64_t ticket = 0;
    now_ns = 0;
    assert_int_equal(ls_slow_link_create(&ops, &below, 1, 1000000000, &l), LS_OK);
    for (int i = 0; i < QUEUE; i++) {
        assert_int_equal(ls_slow_link_send(l, 2, &(ls_msg){ .p = byte + i, .n = 1 }, &ticket), LS_OK);
        assert_int_equal(ticket, i + 1);
    }
    assert_int_equal(ls_slow_link_send(l, 2, &(ls_msg){ .p = byte + QUEUE, .n = 1 }, &ticket), LS_AGAIN);
    now_ns = MS; /* all have crossed, but the transport below has sent none: their bytes may still be needed */
    assert_int_equal(ls_slow_link_send(l, 2, &(ls_msg){ .p = byte + QUEUE, .n = 1 }, &ticket), LS_AGAIN);
    assert_int_equal(below.n, QUEUE);
    assert_int_equal(ls_slow_link_sent(l, 2), 0);
    below.sends = true;
    for (int i = QUEUE; i < 40; i++) { /* places are used again */
        assert_int_equal(ls_slow_link_send(l, 2, &(ls_msg){ .p = byte + i, .n = 1 }, &ticket), LS_OK);
        now_ns += MS;
    }
    assert_int_equal(ls_slow_link_sent(l, 2), 40);
    for (int i = 0; i < 40; i++) assert_ptr_equal(below.at[i], byte + i);
    ls_slow_link_destroy(l);
}

int main(void)
{
    ls_env env = ls_env_real;
    env.mono_ns = clock_ns;
    ls_context context = { .env = &env, .rank = -1 }, *was = ls_context_swap(&context);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message_after_another),
        cmocka_unit_test(a_full_queue_takes_no_more),
    };
    const int failed = cmocka_run_group_tests_name("slow_link", tests, NULL, NULL);
    ls_context_swap(was);
    return failed;
}
