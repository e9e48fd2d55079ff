/* fuzz_door.c -- the door on arbitrary bytes, from both sides, before and behind it: it never opens to them, and
 * a stream takes nothing that was not sealed for it. */
#include "meet/door.h"

#include "../tests/fake_net.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const uint8_t psk[32] = { 1, 2, 3 }, job[LS_DOOR_JOB_BYTES] = { 4 };

static bool key(void *arg, const ls_door_head *h, uint8_t out[LS_NOISE_KEY_BYTES])
{
    (void)arg;
    memcpy(out, psk, sizeof psk);
    return h->from < 64;
}

/* Says bytes to one end. */
static void say(int fd, const uint8_t *p, size_t n) { (void)fake_send(fd, p, n < 8192 ? n : 8192); }

/* So many steps of the handshake, in turn. */
static void together(ls_door *a, int fa, ls_door *b, int fb, int turns)
{
    for (int i = 0; i < turns; i++) (void)ls_door_step(i % 2 ? b : a, i % 2 ? fb : fa);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 2) return 0;
    fake_begin();
    int listener = fake_listen_tcp("", 0, NULL), fa = fake_connect(true), fb = fake_accept(listener);
    ls_door a, b;
    ls_door_head head = { .role = LS_DOOR_RANK, .generation = 7, .from = 1, .to = 0 };
    ls_door_connect(&a, &head, job, psk);
    ls_door_accept(&b, LS_DOOR_RANK, 7, job, key, NULL);
    unsigned mode = p[0] % 4, at = p[1];
    p += 2;
    n -= 2;
    if (mode == 0) { /* a stranger at the acceptor's */
        say(fa, p, n);
        (void)ls_door_step(&b, fb);
        if (ls_door_is_open(&b)) abort();
    } else if (mode == 1) { /* and at the initiator's */
        (void)ls_door_step(&a, fa);
        say(fb, p, n);
        (void)ls_door_step(&a, fa);
        if (ls_door_is_open(&a)) abort();
    } else if (mode == 2) { /* in the middle: what one end says is changed by what p has where `at` is, and after */
        together(&a, fa, &b, fb, (int)(at & 3));
        fake_end *to = fake_of(at & 4 ? fa : fb);
        bool changed = false;
        size_t from = (at >> 3) * 3;
        for (size_t i = 0; i < n && from + i < to->n; i++) {
            changed = changed || p[i] != 0;
            to->in[from + i] ^= p[i];
        }
        together(&a, fa, &b, fb, 8);
        bool open = ls_door_is_open(&a) && ls_door_is_open(&b);
        if (open && changed) abort();
        if (!open && !changed) abort();
    } else { /* behind the door: bytes between sealed ones */
        uint8_t got[64];
        together(&a, fa, &b, fb, 8);
        if (!ls_door_is_open(&b) || ls_door_send(&a, fa, "hello", 5) != 5) abort();
        if (ls_door_recv(&b, fb, got, sizeof got) != 5 || memcmp(got, "hello", 5) != 0) abort();
        say(fa, p, n);
        for (ssize_t k; (k = ls_door_recv(&b, fb, got, sizeof got)) != -EAGAIN;) {
            if (k > 0) abort();
            if (k < 0) break;
        }
    }
    ls_door_close(&a);
    ls_door_close(&b);
    fake_close(fa);
    fake_close(fb);
    fake_close(listener);
    fake_end_net();
    return 0;
}
