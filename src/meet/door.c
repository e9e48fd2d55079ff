/* door.c -- the handshake on a non-blocking socket, and the sealed stream after it. */
#include "meet/door.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"

/* An initiator goes WRITE, READ, CONFIRM; an acceptor READ, WRITE, CONFIRM. */
enum stage { WRITE, READ, REFUSE, CONFIRM, OPEN, SHUT };

#define NLENGTH sizeof(uint32_t)
#define SEALED(n) (NLENGTH + (n) + LS_AEAD_TAG_BYTES)

void ls_door_derive(const uint8_t key[LS_NOISE_KEY_BYTES], const char *what, uint32_t a, uint32_t b,
                    uint8_t out[LS_NOISE_KEY_BYTES])
{
    crypto_generichash_blake2b_state s;
    uint32_t number[2] = { a, b };
    crypto_generichash_blake2b_init(&s, key, LS_NOISE_KEY_BYTES, LS_NOISE_KEY_BYTES);
    crypto_generichash_blake2b_update(&s, (const uint8_t *)what, strlen(what) + 1);
    crypto_generichash_blake2b_update(&s, (const uint8_t *)number, sizeof number);
    crypto_generichash_blake2b_final(&s, out, LS_NOISE_KEY_BYTES);
    sodium_memzero(&s, sizeof s);
}

void ls_door_job(const char *run_id, uint8_t job[LS_DOOR_JOB_BYTES])
{
    crypto_generichash_blake2b(job, LS_DOOR_JOB_BYTES, (const uint8_t *)run_id, strlen(run_id), NULL, 0);
}

/* --- the handshake ------------------------------------------------------------------------------ */

static void begin_noise(ls_door *d, const uint8_t psk[LS_NOISE_KEY_BYTES])
{
    uint8_t prologue[sizeof d->head + LS_DOOR_JOB_BYTES], e[LS_NOISE_KEY_BYTES];
    memcpy(prologue, &d->head, sizeof d->head);
    memcpy(prologue + sizeof d->head, d->job, LS_DOOR_JOB_BYTES);
    ls_env_get()->random(e, sizeof e);
    ls_noise_init(&d->noise, d->initiator, psk, e, prologue, sizeof prologue);
    sodium_memzero(e, sizeof e);
}

/* An acceptor's head says the same from its side. */
static ls_door_head answer_to(const ls_door_head *h)
{
    ls_door_head head = *h;
    head.from = h->to;
    head.to = h->from;
    return head;
}

/* Our head and our message into buf. */
static void write_hello(ls_door *d)
{
    ls_door_head head = d->initiator ? d->head : answer_to(&d->head);
    memcpy(d->buf, &head, sizeof head);
    LS_ASSERT(ls_noise_write(&d->noise, NULL, 0, d->buf + sizeof head));
    d->at = 0;
    d->n = sizeof d->buf;
}

void ls_door_connect(ls_door *d, const ls_door_head *head, const uint8_t job[LS_DOOR_JOB_BYTES],
                     const uint8_t psk[LS_NOISE_KEY_BYTES])
{
    *d = (ls_door){ .initiator = true, .stage = WRITE, .head = *head };
    d->head.magic = LS_DOOR_MAGIC;
    d->head.version = LS_DOOR_VERSION;
    memcpy(d->job, job, LS_DOOR_JOB_BYTES);
    begin_noise(d, psk);
    write_hello(d);
}

void ls_door_accept(ls_door *d, ls_door_role role, uint32_t generation, const uint8_t job[LS_DOOR_JOB_BYTES],
                    ls_door_key_fn key, void *arg)
{
    *d = (ls_door){ .stage = READ, .key = key, .key_arg = arg,
                    .head = { .magic = LS_DOOR_MAGIC, .version = LS_DOOR_VERSION, .role = (uint16_t)role,
                              .generation = generation } };
    memcpy(d->job, job, LS_DOOR_JOB_BYTES);
}

static ls_status refused(void)
{
    return ls_fail(LS_AUTH_FAILED, "the other end could not prove that it belongs to this job, or found no proof in what "
                                   "we said");
}

/* Sends what is left of buf. */
static ls_status send_rest(ls_door *d, int fd)
{
    while (d->at < d->n) {
        ssize_t k = ls_env_get()->send(fd, d->buf + d->at, d->n - d->at);
        if (k == -EAGAIN) return LS_AGAIN;
        if (k < 0) return ls_fail(LS_PEER_RESET, "the connection ended in the middle of the handshake (%s)",
                                  strerror((int)-k));
        d->at += (size_t)k;
    }
    return LS_OK;
}

/* Reads up to n bytes of buf. */
static ls_status read_up_to(ls_door *d, int fd, size_t n)
{
    while (d->have < n) {
        ssize_t k = ls_env_get()->recv(fd, d->buf + d->have, n - d->have);
        if (k == -EAGAIN) return LS_AGAIN;
        if (k == 0) return refused(); /* it has read what we said, and closed */
        if (k < 0)
            return ls_fail(LS_PEER_RESET, "the connection ended in the middle of the handshake (%s)", strerror((int)-k));
        d->have += (size_t)k;
    }
    return LS_OK;
}


static ls_status other_version(unsigned theirs)
{
    return ls_fail(LS_VERSION_MISMATCH, "the other end speaks version %u of the handshake, this one version %u: run "
                                        "the same build everywhere", theirs, LS_DOOR_VERSION);
}

/* The acceptor's look at the initiator's head, once the whole hello is there. */
static ls_status read_head(ls_door *d, int fd)
{
    ls_door_head h;
    size_t magic = d->have < sizeof h.magic ? sizeof h.magic - d->have : 0;
    if (magic > 0) { /* who says something else is not kept any longer */
        ls_status st = read_up_to(d, fd, sizeof h.magic);
        if (memcmp(d->buf, &d->head.magic, d->have < sizeof h.magic ? d->have : sizeof h.magic) != 0) return refused();
        if (st != LS_OK) return st;
    }
    ls_status st = read_up_to(d, fd, sizeof d->buf);
    if (st != LS_OK) return st;
    memcpy(&h, d->buf, sizeof h);
    if (h.version != LS_DOOR_VERSION) { /* tell ours, and that is all: closing with unread bytes would take it back */
        memcpy(d->buf, &d->head, sizeof d->head);
        d->at = 0;
        d->n = sizeof d->head;
        d->stage = REFUSE;
        return LS_OK;
    }
    const bool unknown = h.role == LS_DOOR_STORE && h.generation == LS_DOOR_ANY_GENERATION;
    return h.role == d->head.role && (unknown || h.generation == d->head.generation) ? LS_OK : refused();
}

static ls_status accept_hello(ls_door *d, int fd)
{
    uint8_t psk[LS_NOISE_KEY_BYTES], none;
    ls_status st = read_head(d, fd);
    if (st != LS_OK || d->stage == REFUSE) return st;
    memcpy(&d->head, d->buf, sizeof d->head);
    if (!d->key(d->key_arg, &d->head, psk)) return refused();
    begin_noise(d, psk);
    sodium_memzero(psk, sizeof psk);
    if (!ls_noise_read(&d->noise, d->buf + sizeof d->head, LS_NOISE_MESSAGE_BYTES, &none)) return refused();
    write_hello(d);
    d->stage = WRITE;
    return LS_OK;
}

static ls_status read_answer(ls_door *d, int fd)
{
    ls_door_head h, want = answer_to(&d->head);
    uint8_t none;
    ls_status st = read_up_to(d, fd, sizeof h);
    if (st != LS_OK) return st;
    memcpy(&h, d->buf, sizeof h);
    if (h.magic != LS_DOOR_MAGIC) return refused();
    if (h.version != LS_DOOR_VERSION) return other_version(h.version);
    if (memcmp(&h, &want, sizeof h) != 0) return refused();
    if ((st = read_up_to(d, fd, sizeof d->buf)) != LS_OK) return st;
    if (!ls_noise_read(&d->noise, d->buf + sizeof h, LS_NOISE_MESSAGE_BYTES, &none)) return refused();
    ls_noise_split(&d->noise, &d->seal, &d->open);
    LS_ASSERT(ls_aead_seal(&d->seal, NULL, 0, NULL, 0, d->buf));
    d->at = 0;
    d->n = LS_AEAD_TAG_BYTES;
    d->stage = CONFIRM;
    return LS_OK;
}

static ls_status read_confirmation(ls_door *d, int fd)
{
    uint8_t none;
    ls_status st = read_up_to(d, fd, LS_AEAD_TAG_BYTES);
    if (st != LS_OK) return st;
    if (!ls_aead_open(&d->open, NULL, 0, d->buf, LS_AEAD_TAG_BYTES, &none)) return refused();
    d->stage = OPEN;
    return LS_OK;
}

/* One stage. */
static ls_status move(ls_door *d, int fd)
{
    ls_status st;
    switch (d->stage) {
    case WRITE:
        if ((st = send_rest(d, fd)) != LS_OK) return st;
        d->have = 0;
        if (d->initiator) {
            d->stage = READ;
        } else {
            ls_noise_split(&d->noise, &d->seal, &d->open);
            d->stage = CONFIRM;
        }
        return LS_OK;
    case READ: return d->initiator ? read_answer(d, fd) : accept_hello(d, fd);
    case REFUSE: return (st = send_rest(d, fd)) != LS_OK ? st : refused();
    case CONFIRM:
        if (!d->initiator) return read_confirmation(d, fd);
        if ((st = send_rest(d, fd)) == LS_OK) d->stage = OPEN;
        return st;
    default: return ls_fail(LS_PEER_RESET, "the handshake has already failed");
    }
}

ls_status ls_door_step(ls_door *d, int fd)
{
    while (d->stage != OPEN) {
        ls_status st = move(d, fd);
        if (st < 0) d->stage = SHUT;
        if (st != LS_OK) return st;
    }
    return LS_OK;
}

bool ls_door_is_open(const ls_door *d) { return d->stage == OPEN; }
bool ls_door_has_proof(const ls_door *d) { return d->stage == WRITE || d->stage == CONFIRM || d->stage == OPEN; }
bool ls_door_writes(const ls_door *d) { return d->at < d->n || d->from < d->to; }
bool ls_door_holds(const ls_door *d) { return d->plain < d->nplain; }

/* --- the stream ----------------------------------------------------------------------------------- */

int ls_door_flush(ls_door *d, int fd)
{
    while (d->from < d->to) {
        ssize_t k = ls_env_get()->send(fd, d->out + d->from, d->to - d->from);
        if (k == -ENOBUFS || k == -ENOMEM) return -EAGAIN; /* the kernel has no room for now: the rest stays */
        if (k < 0) return (int)k;
        d->from += (size_t)k;
    }
    return 0;
}

ssize_t ls_door_send(ls_door *d, int fd, const void *p, size_t n)
{
    return ls_door_sendv(d, fd, &(ls_span){ (void *)(uintptr_t)p, n }, 1);
}

ssize_t ls_door_sendv(ls_door *d, int fd, const ls_span *from, int n)
{
    uint32_t k = 0;
    int r = ls_door_flush(d, fd);
    if (r < 0) return r;
    if (d->stage != OPEN) return -ENOTCONN;
    if (!d->out && !(d->out = malloc(SEALED(LS_DOOR_FRAME)))) return -ENOMEM;
    for (int i = 0; i < n && k < LS_DOOR_FRAME; i++) {
        uint32_t part = from[i].n < LS_DOOR_FRAME - k ? (uint32_t)from[i].n : LS_DOOR_FRAME - k;
        if (part > 0) memcpy(d->out + NLENGTH + k, from[i].p, part);
        k += part;
    }
    if (k == 0) return 0;
    memcpy(d->out, &k, NLENGTH);
    LS_ASSERT(ls_aead_seal(&d->seal, d->out, NLENGTH, d->out + NLENGTH, k, d->out + NLENGTH));
    d->from = 0;
    d->to = SEALED(k);
    r = ls_door_flush(d, fd);
    return r == 0 || r == -EAGAIN ? (ssize_t)k : r;
}

/* One whole frame, opened. 1, or what recv says. */
static ssize_t read_frame(ls_door *d, int fd)
{
    if (!d->in && !(d->in = malloc(SEALED(LS_DOOR_FRAME)))) return -ENOMEM;
    for (;;) {
        uint32_t n = 0;
        size_t want = NLENGTH;
        if (d->nin >= NLENGTH) {
            memcpy(&n, d->in, NLENGTH);
            if (n == 0 || n > LS_DOOR_FRAME) return -EBADMSG;
            want = SEALED(n);
        }
        if (n > 0 && d->nin == want) {
            d->nin = 0;
            uint8_t *sealed = d->in + NLENGTH;
            if (!ls_aead_open(&d->open, d->in, NLENGTH, sealed, want - NLENGTH, sealed)) return -EBADMSG;
            d->plain = 0;
            d->nplain = n;
            return 1;
        }
        ssize_t k = ls_env_get()->recv(fd, d->in + d->nin, want - d->nin);
        if (k <= 0) return k;
        d->nin += (size_t)k;
    }
}

ssize_t ls_door_recv(ls_door *d, int fd, void *p, size_t n)
{
    if (d->stage != OPEN) return -ENOTCONN;
    if (!ls_door_holds(d)) {
        ssize_t k = read_frame(d, fd);
        if (k <= 0) {
            if (k == -EBADMSG) d->stage = SHUT;
            return k;
        }
    }
    size_t k = d->nplain - d->plain < n ? d->nplain - d->plain : n;
    memcpy(p, d->in + NLENGTH + d->plain, k);
    d->plain += k;
    return (ssize_t)k;
}

/* What there is, up to the whole: a failure shows once everything before it was taken. */
ssize_t ls_door_recvv(ls_door *d, int fd, const ls_span *to, int n)
{
    size_t got = 0;
    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < to[i].n;) {
            ssize_t k = ls_door_recv(d, fd, (char *)to[i].p + at, to[i].n - at);
            if (k <= 0) return got > 0 ? (ssize_t)got : k;
            at += (size_t)k;
            got += (size_t)k;
        }
    return (ssize_t)got;
}

void ls_door_close(ls_door *d)
{
    if (d->in) sodium_memzero(d->in, SEALED(LS_DOOR_FRAME));
    free(d->in);
    free(d->out);
    sodium_memzero(d, sizeof *d);
    d->stage = SHUT;
}
