/* transport_shm from the inside: both ends of its pipes in one thread, so that every interleaving of send, sent, view
 * and take can be had, against a model that knows what must come out; and buffers are overwritten the moment that
 * they are the sender's again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "net/transports.h"
#include "net/world.h"

#define RANKS 3
#define CHANNELS 4

/* A world as far as the transport looks at it: arenas that all map, a page. */
typedef struct host {
    ls_world_page *page;
    ls_world w[RANKS];
    ls_transport *t[RANKS];
} host;

static const ls_transport_ops *const shm = &ls_transport_shm;

static void set_up(host *h, size_t arena_bytes)
{
    memset(h, 0, sizeof *h);
    h->page = calloc(1, ls_page_bytes(RANKS));
    assert_non_null(h->page);
    ls_page_format(h->page, RANKS, 1);
    ls_arena *arena[RANKS];
    for (int r = 0; r < RANKS; r++) assert_int_equal(ls_arena_create(arena_bytes, true, NULL, &arena[r]), LS_OK);
    for (int r = 0; r < RANKS; r++) {
        ls_world *w = &h->w[r];
        *w = (ls_world){
            .rank = r, .size = RANKS, .local_rank = r, .local_size = RANKS, .page = h->page, .arena = arena[r]
        };
        assert_int_equal(ls_world_make_room(w), LS_OK);
        for (int q = 0; q < RANKS; q++) {
            w->peer_base[q] = ls_arena_base(arena[q]);
            w->peer_bytes[q] = ls_arena_size(arena[q]);
        }
        assert_int_equal(shm->open(w, &h->t[r]), LS_OK);
    }
}

static void tear_down(host *h)
{
    for (int r = 0; r < RANKS; r++) shm->close(h->t[r]);
    for (int r = 0; r < RANKS; r++) ls_arena_destroy(h->w[r].arena);
    for (int r = 0; r < RANKS; r++) ls_world_free_room(&h->w[r]);
    free(h->page);
}

/* Rank 0's to rank 1, channel 0, by its directory. */
static char *pipe_of(const host *h)
{
    char *base = h->w[0].peer_base[0];
    const uint64_t row = ((const uint64_t *)(void *)base)[1];
    return base + *(const uint64_t *)(void *)(base + row);
}

/* These loops go over each byte of valid messages: AddressSanitizer would spend half of the suite's time in them. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

UNCHECKED static inline unsigned char byte_of(uint32_t id, size_t at)
{
    return (unsigned char)(id * 37u + (uint32_t)at * 11u + (uint32_t)(at >> 8));
}

UNCHECKED static void write_bytes(char *p, size_t n, uint32_t id)
{
    for (size_t i = 0; i < n; i++) p[i] = (char)byte_of(id, i);
}

/* The first byte of p that is not the message's, which has it `at` bytes later; n: all are. */
UNCHECKED static size_t first_wrong(const char *p, size_t n, uint32_t id, size_t at)
{
    size_t i = 0;
    while (i < n && (unsigned char)p[i] == byte_of(id, at + i)) i++;
    return i;
}

/* --- one message after the other ----------------------------------------------------------------------------- */

/* Everything that can be read of a message of n bytes; false when not all of it is here. */
static bool read_all(host *h, int to, int from, int channel, size_t n, uint32_t id, size_t *at)
{
    ls_msg m;
    ls_status st;
    while ((st = shm->view(h->t[to], from, channel, &m)) == LS_OK) {
        assert_int_equal(m.sig, id);
        assert_true(m.n <= n - *at);
        if (n > 0) assert_true(m.n > 0);
        assert_int_equal(first_wrong(m.p, m.n, id, *at), m.n);
        assert_int_equal(shm->take(h->t[to], from, channel, m.n), LS_OK);
        *at += m.n;
        if (*at == n) return true;
    }
    assert_int_equal(st, LS_AGAIN);
    return false;
}

static void carries_every_size(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0,     1,     15,    16,    31,    32,    33,       47,
                                    48,    49,    63,    64,    65,    4095,  4096,     4097,
                                    16383, 16384, 16385, 65535, 65536, 65537, 1u << 20, (1u << 20) + 1 };
    host h;
    set_up(&h, 4u << 20);
    void *registered;
    assert_int_equal(ls_arena_alloc(h.w[0].arena, (1u << 20) + 64, LS_MEM_DATA, &registered), LS_OK);
    char *private = malloc((1u << 20) + 64);
    uint32_t id = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int place = 0; place < 4; place++) { /* odd: not aligned */
            char *p = (place & 2 ? private : (char *)registered) + (place & 1);
            uint64_t ticket;
            write_bytes(p, sizes[i], ++id);
            ls_msg m = { p, sizes[i], id };
            assert_int_equal(shm->send(h.t[0], 1, 0, &m, &ticket), LS_OK);
            size_t at = 0;
            while (!read_all(&h, 1, 0, 0, sizes[i], id, &at)) (void)shm->sent(h.t[0], 1, 0);
            assert_true(shm->sent(h.t[0], 1, 0) >= ticket);
            ls_msg none;
            assert_int_equal(shm->view(h.t[1], 0, 0, &none), LS_AGAIN);
        }
    free(private);
    tear_down(&h);
}

/* One direction is filled until it takes no more; the others do not notice. */
static void channels_do_not_block_each_other(void **state)
{
    (void)state;
    host h;
    set_up(&h, 4u << 20);
    static char big[200000];
    uint64_t ticket;
    int taken = 0;
    ls_msg m = { big, sizeof big, 7 }, small = { "x", 1, 8 }, seen;
    while (shm->send(h.t[0], 1, 0, &m, &ticket) == LS_OK) assert_true(++taken < 1000);
    for (int channel = 1; channel < CHANNELS; channel++) {
        assert_int_equal(shm->send(h.t[0], 1, channel, &small, &ticket), LS_OK);
        assert_int_equal(shm->view(h.t[1], 0, channel, &seen), LS_OK);
        assert_int_equal(seen.sig, 8);
        assert_int_equal(shm->take(h.t[1], 0, channel, 1), LS_OK);
    }
    assert_int_equal(shm->send(h.t[0], 2, 0, &small, &ticket), LS_OK); /* to another rank */
    assert_int_equal(shm->view(h.t[2], 0, 0, &seen), LS_OK);
    assert_int_equal(shm->send(h.t[1], 0, 0, &small, &ticket), LS_OK); /* and back */
    assert_int_equal(shm->view(h.t[0], 1, 0, &seen), LS_OK);
    tear_down(&h);
}

/* --- against a model --------------------------------------------------------------------------------------------- */

#define IN_FLIGHT 200
#define MOST 70000

typedef struct letter {
    char *p;          /* its buffer, from its start */
    size_t n;
    uint32_t id;
    uint64_t ticket;
    bool released;
} letter;

/* One ordered pair and channel. */
typedef struct stream {
    letter letter[IN_FLIGHT]; /* a ring: [taken, given) */
    uint32_t taken, released, given;
    size_t at;                /* bytes of the oldest that are read */
    uint64_t sent;
} stream;

typedef struct model {
    host h;
    stream s[RANKS][RANKS][CHANNELS];
    char *registered[RANKS], *private; /* [slots] of MOST bytes */
    uint64_t rng;
    uint32_t id;
    uint64_t bytes;
    int mix; /* which sizes */
} model;

static uint32_t draw(model *x, uint32_t n)
{
    x->rng ^= x->rng << 13;
    x->rng ^= x->rng >> 7;
    x->rng ^= x->rng << 17;
    return (uint32_t)(x->rng >> 11) % n;
}

static size_t draw_size(model *x)
{
    static const size_t edges[] = { 0, 1, 32, 33, 48, 49, 4096, 4097, 16384, 16385, 32768, 65536 };
    switch (x->mix) {
    case 0: return draw(x, 100);                                  /* all of them small */
    case 1: return 33 + draw(x, 20000);                           /* pieces of every length */
    case 2: return draw(x, 4) ? draw(x, 200) : draw(x, MOST);
    default: return edges[draw(x, sizeof edges / sizeof *edges)];
    }
}

#define SLOTS 24

static void do_send(model *x, int from, int to, int channel)
{
    stream *s = &x->s[from][to][channel];
    if (s->given - s->taken == IN_FLIGHT) return;
    letter *l = &s->letter[s->given % IN_FLIGHT];
    size_t n = draw_size(x);
    char *p = malloc(n + 1);
    assert_non_null(p);
    bool registered = draw(x, 3) == 0;
    if (registered) { /* its own slots; one per letter in flight at most */
        uint32_t slot = draw(x, SLOTS);
        char *q = x->registered[from] + (size_t)slot * MOST;
        for (int t = 0; t < RANKS && registered; t++)
            for (int c = 0; c < CHANNELS && registered; c++) {
                const stream *other = &x->s[from][t][c];
                for (uint32_t i = other->taken; i != other->given && registered; i++)
                    registered = other->letter[i % IN_FLIGHT].p != q;
                for (uint32_t i = other->released; (int32_t)(other->taken - i) > 0 && registered; i++)
                    registered = other->letter[i % IN_FLIGHT].p != q;
            }
        if (registered) {
            free(p);
            p = q;
        }
    }
    write_bytes(p, n, ++x->id);
    ls_msg m = { p, n, x->id };
    uint64_t ticket;
    ls_status st = shm->send(x->h.t[from], to, channel, &m, &ticket);
    if (st == LS_OK) {
        *l = (letter){ .p = p, .n = n, .id = x->id, .ticket = ticket };
        s->given++;
        return;
    }
    assert_int_equal(st, LS_AGAIN);
    if (!registered) free(p);
}

static bool is_registered(const model *x, int from, const char *p)
{
    return p >= x->registered[from] && p < x->registered[from] + (size_t)SLOTS * MOST;
}

/* Buffers whose tickets are reached get other bytes at once: a receiver that still needs them would notice. */
static void do_sent(model *x, int from, int to, int channel)
{
    stream *s = &x->s[from][to][channel];
    uint64_t sent = shm->sent(x->h.t[from], to, channel);
    assert_true(sent >= s->sent);
    s->sent = sent;
    for (; s->released != s->given && s->letter[s->released % IN_FLIGHT].ticket <= sent; s->released++) {
        letter *l = &s->letter[s->released % IN_FLIGHT];
        memset(l->p, 0xdd, l->n);
        if (!is_registered(x, from, l->p)) free(l->p);
        l->p = NULL;
    }
    if (s->released != s->given) assert_true(s->letter[s->released % IN_FLIGHT].ticket > sent);
}

static void do_view(model *x, int from, int to, int channel)
{
    stream *s = &x->s[from][to][channel];
    ls_msg m;
    ls_status st = shm->view(x->h.t[to], from, channel, &m);
    if (st == LS_AGAIN) return;
    assert_int_equal(st, LS_OK);
    assert_true(s->given != s->taken);
    letter *l = &s->letter[s->taken % IN_FLIGHT];
    if (m.sig != l->id)
        fail_msg("rank %d to %d, channel %d: message %llu comes, expected %u", from, to, channel,
                 (unsigned long long)m.sig, l->id);
    assert_true(m.n <= l->n - s->at);
    assert_true(m.n > 0 || l->n == 0);
    if (m.n < l->n - s->at) assert_int_equal(m.n % 16, 0);
    const size_t i = first_wrong(m.p, m.n, l->id, s->at);
    if (i < m.n)
        fail_msg("rank %d to %d, channel %d, message %u of %zu bytes: byte %zu is %02x, expected %02x", from, to,
                 channel, l->id, l->n, s->at + i, ((const unsigned char *)m.p)[i], byte_of(l->id, s->at + i));
    size_t n = draw(x, 3) ? m.n : draw(x, (uint32_t)m.n / 16 + 1) * 16;
    if (n > m.n) n = m.n;
    if (n == 0 && m.n > 0) return; /* only looked */
    assert_int_equal(shm->take(x->h.t[to], from, channel, n), LS_OK);
    s->at += n;
    x->bytes += n;
    if (s->at < l->n) return;
    s->at = 0;
    s->taken++;
}

static void set_up_model(model *x, uint64_t seed, int mix)
{
    memset(x, 0, sizeof *x);
    x->rng = seed * 0x9e3779b97f4a7c15ull + 1;
    x->mix = mix;
    set_up(&x->h, 8u << 20);
    for (int r = 0; r < RANKS; r++) {
        void *p;
        assert_int_equal(ls_arena_alloc(x->h.w[r].arena, (size_t)SLOTS * MOST, LS_MEM_DATA, &p), LS_OK);
        x->registered[r] = p;
    }
}

static bool all_through(const model *x)
{
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++)
            for (int c = 0; c < CHANNELS; c++) {
                const stream *s = &x->s[from][to][c];
                if (s->taken != s->given || s->released != s->given) return false;
            }
    return true;
}

/* Streams are busy in phases, so that some run full and some dry. */
static void run_model(model *x, int steps)
{
    int busy_from = 0, busy_to = 1, busy_channel = 0, lean = 1;
    for (int i = 0; i < steps; i++) {
        if (draw(x, 400) == 0) {
            busy_from = (int)draw(x, RANKS);
            busy_to = (busy_from + 1 + (int)draw(x, RANKS - 1)) % RANKS;
            busy_channel = (int)draw(x, CHANNELS);
            lean = (int)draw(x, 3);
        }
        int from = busy_from, to = busy_to, channel = busy_channel;
        if (draw(x, 4) == 0) {
            from = (int)draw(x, RANKS);
            to = (from + 1 + (int)draw(x, RANKS - 1)) % RANKS;
            channel = (int)draw(x, CHANNELS);
        }
        uint32_t what = draw(x, 10);
        if (lean == 0 && what > 4) what = 0; /* mostly sends */
        if (lean == 2 && what < 3) what = 5; /* mostly reads */
        if (what < 3) do_send(x, from, to, channel);
        else if (what < 4) do_sent(x, from, to, channel);
        else if (what < 9) do_view(x, from, to, channel);
        else (void)shm->progress(x->h.t[from]);
    }
    for (int i = 0; !all_through(x); i++) { /* what is under way arrives, in time */
        assert_true(i < 100000);
        for (int from = 0; from < RANKS; from++)
            for (int to = 0; to < RANKS; to++)
                for (int c = 0; c < CHANNELS && from != to; c++) {
                    do_view(x, from, to, c);
                    do_sent(x, from, to, c);
                }
    }
}

static void agrees_with_a_model(void **state)
{
    (void)state;
    int rounds = getenv("LOCKSTEP_TEST_LONG") ? 40 : 4;
    for (int mix = 0; mix < 4; mix++)
        for (int round = 0; round < rounds; round++) {
            static model x;
            set_up_model(&x, (uint64_t)(mix * 1000 + round + 1), mix);
            run_model(&x, 60000);
            assert_true(x.id > 1000);
            tear_down(&x.h);
        }
}

/* The counters of pieces, and of the bounce ring's bytes with them, pass 2^32 and 2^31 in the middle. */
static void counters_wrap(void **state)
{
    (void)state;
    static const uint32_t first[] = { 0u - 1u, 0u - 300u, 0x80000000u - 300u, 0x04000000u - 100u };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        static model x;
        set_up_model(&x, i + 77, (int)i);
        for (int r = 0; r < RANKS; r++) ls_shm_count_from(x.h.t[r], first[i]);
        run_model(&x, 30000);
        tear_down(&x.h);
    }
}

/* A receiver believes nothing that it reads: what does not lie in the sender's arena is a failure. */
static void refuses_bytes_outside_of_the_arena(void **state)
{
    (void)state;
    static const struct { uint32_t here;
        uint64_t n, offset;
    } row[] = {
        { UINT32_MAX, 100, 4ull << 20 }, { UINT32_MAX, 100, UINT64_MAX },   { UINT32_MAX, 8ull << 20, 0 },
        { UINT32_MAX, 0, 64 },           { UINT32_MAX, 1ull << 62, 64 },    { 49, 49, UINT64_MAX - 10 },
        { 49, 49, 64 },                  { UINT32_MAX - 1, 100, 64 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        host h;
        set_up(&h, 4u << 20);
        uint64_t ticket;
        ls_msg m = { "hello", 5, 1 }, seen;
        assert_int_equal(shm->send(h.t[0], 1, 0, &m, &ticket), LS_OK);
        char *cell = pipe_of(&h) + 128; /* the first: behind the acknowledgement and the count */
        memcpy(cell + 4, &row[i].here, sizeof row[i].here);
        memcpy(cell + 16, &row[i].offset, sizeof row[i].offset);
        memcpy(cell + 24, &row[i].n, sizeof row[i].n);
        assert_int_equal(shm->view(h.t[1], 0, 0, &seen), LS_PROTOCOL);
        assert_non_null(strstr(ls_last_error(), "rank 0 offers"));
        tear_down(&h);
    }
}

/* --- large messages, copied by both sides ------------------------------------------------------------------------- */

#define SHARED ((size_t)1 << 20) /* from this on */
#define BLOCK ((size_t)128 << 10)
#define CLAIM (128 + 64 * 64)    /* of a pipe: behind the acknowledgement, the count and the cells; then where it belongs */

typedef struct large {
    host h;
    char *from, *to;
    size_t n, got;
    uint64_t ticket;
    char *pipe;
} large;

/* Rank 0 has sent n bytes that lie at from + odd; nobody has copied any of them. */
static void send_large(large *x, size_t n, size_t odd)
{
    void *p[2];
    set_up(&x->h, n + ((size_t)4 << 20));
    for (int r = 0; r < 2; r++) assert_int_equal(ls_arena_alloc(x->h.w[r].arena, n + 128, LS_MEM_DATA, &p[r]), LS_OK);
    x->from = (char *)p[0] + odd;
    x->to = (char *)p[1] + 64 + 2 * odd;
    x->n = n;
    x->got = 0;
    memset(p[1], 0x5a, n + 128);
    write_bytes(x->from, n, 9);
    ls_msg m = { x->from, n, 9 }, seen;
    assert_int_equal(shm->help(x->h.t[0], 1, 0), LS_AGAIN);
    assert_int_equal(shm->send(x->h.t[0], 1, 0, &m, &x->ticket), LS_OK);
    assert_int_equal(shm->help(x->h.t[0], 1, 0), LS_AGAIN); /* nobody has said where it belongs */
    assert_int_equal(shm->view(x->h.t[1], 0, 0, &seen), LS_OK);
    assert_int_equal(seen.n, n);
    x->pipe = pipe_of(&x->h);
}

static void is_through(large *x)
{
    ls_msg none;
    assert_int_equal(x->got, x->n);
    for (size_t i = 0; i < x->n; i++)
        if ((unsigned char)x->to[i] != byte_of(9, i)) fail_msg("%zu bytes: byte %zu is %d", x->n, i, x->to[i]);
    assert_int_equal(x->to[-1], 0x5a);
    assert_int_equal(x->to[x->n], 0x5a);
    assert_int_equal(shm->help(x->h.t[0], 1, 0), LS_AGAIN);
    assert_int_equal(shm->view(x->h.t[1], 0, 0, &none), LS_AGAIN);
    assert_true(shm->sent(x->h.t[0], 1, 0) >= x->ticket);
    assert_int_equal(shm->help(x->h.t[0], 1, 0), LS_AGAIN);
}

static void both_sides_copy_a_large_message(void **state)
{
    (void)state;
    static const size_t sizes[] = { SHARED, SHARED + 1, 2 * SHARED - 77, 17 * SHARED + 5 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int helps = 0; helps < 4; helps++) { /* never; after each block of the receiver; twice; with all */
            static large x;
            send_large(&x, sizes[i], i % 3);
            size_t pulled = 0, helped = 0;
            ls_status st;
            while ((st = shm->pull(x.h.t[1], 0, 0, x.to, &x.got)) == LS_AGAIN) {
                pulled++;
                assert_true(x.got < x.n);
                assert_true(shm->sent(x.h.t[0], 1, 0) < x.ticket);
                for (int k = 0; k < helps || helps == 3; k++) {
                    if (shm->help(x.h.t[0], 1, 0) != LS_OK) break;
                    helped++;
                }
                assert_true(pulled <= x.n / BLOCK + 1);
            }
            assert_int_equal(st, LS_OK);
            assert_true((helps > 0) == (helped > 0));
            is_through(&x);
            tear_down(&x.h);
        }
}

static void reads_alone_what_cannot_be_copied_by_both(void **state)
{
    (void)state;
    static large x;
    char *private = malloc(SHARED);
    send_large(&x, SHARED, 0);
    assert_int_equal(shm->pull(x.h.t[1], 0, 0, private, &x.got), LS_UNSUPPORTED);
    assert_int_equal(shm->help(x.h.t[0], 1, 0), LS_AGAIN);
    size_t at = 0;
    assert_true(read_all(&x.h, 1, 0, 0, SHARED, 9, &at));
    tear_down(&x.h);
    send_large(&x, SHARED - 1, 0);
    assert_int_equal(shm->pull(x.h.t[1], 0, 0, x.to, &x.got), LS_UNSUPPORTED);
    tear_down(&x.h);
    free(private);
}

/* A sender that stops in the middle of a block is waited for; one is not fooled by what it reads. */
static void a_block_that_is_taken_is_waited_for(void **state)
{
    (void)state;
    static large x;
    send_large(&x, SHARED, 0);
    assert_int_equal(shm->pull(x.h.t[1], 0, 0, x.to, &x.got), LS_AGAIN);
    ++*(uint32_t *)(void *)(x.pipe + CLAIM); /* the sender takes a block */
    for (int i = 0; i < 100; i++) assert_int_equal(shm->pull(x.h.t[1], 0, 0, x.to, &x.got), LS_AGAIN);
    assert_true(x.got < x.n);
    assert_true(shm->sent(x.h.t[0], 1, 0) < x.ticket);
    tear_down(&x.h);
    send_large(&x, SHARED, 0);
    assert_int_equal(shm->pull(x.h.t[1], 0, 0, x.to, &x.got), LS_AGAIN);
    *(uint64_t *)(void *)(x.pipe + CLAIM + 8) = 5ull << 20; /* where it belongs */
    assert_int_equal(shm->help(x.h.t[0], 1, 0), LS_PROTOCOL);
    assert_non_null(strstr(ls_last_error(), "rank 1 wants a message outside its arena"));
    tear_down(&x.h);
}

/* --- both ends at once -------------------------------------------------------------------------------------------- */

#define FLOOD 20000

typedef struct flood {
    host *h;
    int rank;
    uint64_t bytes;
} flood;

static size_t flood_size(uint32_t i)
{
    static const size_t sizes[] = { 8, 0, 48, 49, 700, 4096, 5000, 20000, 3, 64 };
    return sizes[(i * 7u) % 10];
}

/* Sends and receives as fast as it can; nothing but what the transport orders is ordered. */
static void flood_rank(void *arg)
{
    flood *f = arg;
    ls_transport *t = f->h->t[f->rank];
    int peer = 1 - f->rank;
    char *p = f->h->w[f->rank].peer_base[f->rank] + (1u << 20), *private = malloc(32 << 10);
    char *at[2] = { p, private };
    uint64_t held[2] = { 0 }; /* the ticket that a buffer waits for */
    uint32_t out = 0, in = 0;
    size_t got = 0;
    while (private &&
           (out < FLOOD || in < FLOOD || shm->sent(t, peer, 0) < held[0] || shm->sent(t, peer, 0) < held[1])) {
        int which = (int)(out & 1);
        uint32_t before = out + in;
        if (out < FLOOD && shm->sent(t, peer, 0) >= held[which]) {
            write_bytes(at[which], flood_size(out), out);
            ls_msg m = { at[which], flood_size(out), out };
            if (shm->send(t, peer, 0, &m, &held[which]) == LS_OK) out++;
        }
        ls_msg m;
        if (in < FLOOD && shm->view(t, peer, 0, &m) == LS_OK) {
            size_t n = flood_size(in);
            if (m.sig != in || m.n > n - got) break;
            if (first_wrong(m.p, m.n, in, got) < m.n) goto done;
            (void)shm->take(t, peer, 0, m.n);
            got += m.n;
            f->bytes += m.n;
            if (got == n) in++, got = 0;
        }
        if (out + in == before) ls_env_get()->yield();
    }
done:
    free(private);
}

static void both_ends_may_run_at_once(void **state)
{
    (void)state;
    host h;
    set_up(&h, 4u << 20);
    for (int r = 0; r < 2; r++) {
        void *p;
        assert_int_equal(ls_arena_alloc(h.w[r].arena, (2u << 20) - (128u << 10), LS_MEM_DATA, &p), LS_OK);
        ls_shm_count_from(h.t[r], 0u - 10000u);
    }
    flood f[2] = { { .h = &h, .rank = 0 }, { .h = &h, .rank = 1 } };
    void *thread;
    assert_int_equal(ls_env_get()->thread_start(flood_rank, &f[1], &thread), 0);
    flood_rank(&f[0]);
    ls_env_get()->thread_join(thread);
    uint64_t want = 0;
    for (uint32_t i = 0; i < FLOOD; i++) want += flood_size(i);
    for (int r = 0; r < 2; r++) assert_int_equal(f[r].bytes, want);
    tear_down(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_every_size),
        cmocka_unit_test(channels_do_not_block_each_other),
        cmocka_unit_test(agrees_with_a_model),
        cmocka_unit_test(counters_wrap),
        cmocka_unit_test(refuses_bytes_outside_of_the_arena),
        cmocka_unit_test(both_sides_copy_a_large_message),
        cmocka_unit_test(reads_alone_what_cannot_be_copied_by_both),
        cmocka_unit_test(a_block_that_is_taken_is_waited_for),
        cmocka_unit_test(both_ends_may_run_at_once),
    };
    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
