/* door: two ends of a handshake over sockets, and a relay between them that may change a byte. What one end says of
 * itself (job, role, generation, key, version) must be what the other expects. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "meet/door.h"

#define CONFIRMATION_AT LS_DOOR_HELLO_BYTES /* of what the initiator says */

typedef struct ends {
    ls_door_head head;                 /* the initiator's */
    uint8_t job[2][LS_DOOR_JOB_BYTES]; /* the initiator's, the acceptor's */
    uint8_t psk[2][LS_NOISE_KEY_BYTES];
    ls_door_role role;                 /* that the acceptor expects */
    uint32_t generation;
    int flip[2];                       /* the byte that is changed of what either end says; -1: none */
    int asked;                         /* how often the acceptor's key was asked for */
} ends;

static ends good(void)
{
    ends e = { .head = { .role = LS_DOOR_RANK, .generation = 7, .from = 1, .to = 2 },
               .role = LS_DOOR_RANK, .generation = 7, .flip = { -1, -1 } };
    for (int i = 0; i < 2; i++) {
        memset(e.job[i], 5, sizeof e.job[i]);
        memset(e.psk[i], 9, sizeof e.psk[i]);
    }
    return e;
}

static bool give_key(void *arg, const ls_door_head *head, uint8_t psk[LS_NOISE_KEY_BYTES])
{
    ends *e = arg;
    e->asked++;
    memcpy(psk, e->psk[1], LS_NOISE_KEY_BYTES);
    return head->from == 1;
}

/* Hands on what has come on `from`; *said counts it. */
static void hand_on(int from, int to, int flip, int *said)
{
    uint8_t b;
    while (recv(from, &b, 1, MSG_DONTWAIT) == 1) {
        if ((*said)++ == flip) b ^= 0x40;
        (void)send(to, &b, 1, MSG_NOSIGNAL);
    }
}

typedef struct outcome {
    ls_status initiator, acceptor;
} outcome;

/* Until both ends have decided, or wait for the other. */
static outcome meet(ends *e)
{
    int left[2], right[2], said[2] = { 0, 0 };
    ls_door a, b;
    outcome o = { LS_AGAIN, LS_AGAIN };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, left), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, right), 0);
    ls_door_connect(&a, &e->head, e->job[0], e->psk[0]);
    ls_door_accept(&b, e->role, e->generation, e->job[1], give_key, e);
    for (int turn = 0; turn < 20; turn++) {
        if (o.initiator == LS_AGAIN) o.initiator = ls_door_step(&a, left[0]);
        hand_on(left[1], right[0], e->flip[0], &said[0]);
        if (o.acceptor == LS_AGAIN) o.acceptor = ls_door_step(&b, right[1]);
        hand_on(right[0], left[1], e->flip[1], &said[1]);
    }
    if (o.initiator == LS_OK && o.acceptor == LS_OK) {
        char text[6] = "";
        assert_int_equal(ls_door_send(&a, left[0], "hello", 6), 6);
        hand_on(left[1], right[0], -1, &said[0]);
        assert_int_equal(ls_door_recv(&b, right[1], text, sizeof text), 6);
        assert_string_equal(text, "hello");
    }
    ls_door_close(&a);
    ls_door_close(&b);
    for (int i = 0; i < 2; i++) {
        close(left[i]);
        close(right[i]);
    }
    return o;
}

static void opens_where_both_ends_mean_the_same(void **state)
{
    (void)state;
    ends e = good();
    const outcome o = meet(&e);
    assert_int_equal(o.initiator, LS_OK);
    assert_int_equal(o.acceptor, LS_OK);
    assert_int_equal(e.asked, 1);
}

/* The acceptor refuses; a difference in the head is seen before a key is asked for. */
static void refuses_whoever_says_something_else(void **state)
{
    (void)state;
    static const char *const what[] = { "an older generation", "a newer one", "another role", "an unexpected rank",
                                        "another job", "another key" };
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        ends e = good();
        if (i == 0) e.head.generation = 6;
        if (i == 1) e.head.generation = 8;
        if (i == 2) e.head.role = LS_DOOR_STORE;
        if (i == 3) e.head.from = 3;
        if (i == 4) e.job[0][15] ^= 1;
        if (i == 5) e.psk[0][31] ^= 1;
        const outcome o = meet(&e);
        if (o.acceptor != LS_AUTH_FAILED || o.initiator == LS_OK)
            fail_msg("%s: acceptor %d, initiator %d", what[i], (int)o.acceptor, (int)o.initiator);
        if (e.asked != (i >= 3)) fail_msg("%s: a key was asked for %d times", what[i], e.asked);
    }
}

/* Every byte that passes is covered: the head and hello of both ends, and the confirmation. */
static void notices_every_byte_that_was_changed(void **state)
{
    (void)state;
    const int says[2] = { LS_DOOR_HELLO_BYTES + LS_AEAD_TAG_BYTES, LS_DOOR_HELLO_BYTES };
    for (int end = 0; end < 2; end++)
        for (int at = 0; at < says[end]; at++) {
            ends e = good();
            e.flip[end] = at;
            const outcome o = meet(&e);
            const bool confirmation = end == 0 && at >= (int)CONFIRMATION_AT; /* the initiator waits for nothing more */
            if (o.acceptor == LS_OK || (o.initiator == LS_OK && !confirmation))
                fail_msg("byte %d of the %s: acceptor %d, initiator %d", at, end ? "acceptor" : "initiator", (int)o.acceptor,
                         (int)o.initiator);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_where_both_ends_mean_the_same),
        cmocka_unit_test(refuses_whoever_says_something_else),
        cmocka_unit_test(notices_every_byte_that_was_changed),
    };
    return cmocka_run_group_tests_name("door", tests, NULL, NULL);
}
