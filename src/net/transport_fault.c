/* transport_fault.c -- another transport with faults on purpose: "fault:shm", "fault:tcp".
 *
 * A list with commas says which, after the name ("fault:tcp,delay=200us@1") or in the environment variable
 * LOCKSTEP_FAULT, or in both:
 *
 *   rate=50MB/s@0-1 the link between ranks 0 and 1 carries so many bytes per second, each way (slow_link.h)
 *   delay=200us@1   rank 1 waits so long before each message it sends
 *   stall@1:5       rank 1's 5th message and all later ones never leave
 *   drop@1:5        rank 1's 5th message is lost, the later ones are not
 *   repeat@1:5      rank 1's 5th message is sent twice
 *   corrupt@1:5     one bit of rank 1's 5th message that has a payload is flipped
 *   garbage@1:5     other bytes, with another signature, come in place of rank 1's 5th message
 *   kill@1:5        rank 1 ends by SIGKILL in place of sending its 5th message
 *
 * Without @RANK every rank does it (a rate: every pair of ranks has a link of this rate), without :NTH from the first
 * message on (drop, repeat, corrupt, garbage and kill: at the first). Messages are counted per rank, from 1, from the
 * opening of the world.
 */
#include <signal.h> /* names of signals only */
#include <stdlib.h>
#include <string.h>

#include "net/slow_link.h"
#include "net/transports.h"
#include "net/world.h"

#define MAX_FAULTS 8
#define AFTER_NAME "the list after the transport's name"

typedef enum fault_kind { RATE, DELAY, STALL, DROP, REPEAT, CORRUPT, GARBAGE, KILL, KINDS } fault_kind;

static const char *const kind_name[KINDS] = { "rate", "delay", "stall", "drop", "repeat", "corrupt", "garbage", "kill" };

typedef struct fault {
    fault_kind kind;
    int rank, other;   /* -1: all; other: of a rate, the rank at the other end */
    uint64_t nth;
    uint64_t amount;   /* ns of a delay, bytes per second of a rate */
} fault;

struct ls_transport {
    ls_world *w;
    const ls_transport_ops *ops;
    ls_transport *inner;
    fault fault[MAX_FAULTS]; /* those of this rank, and all rates */
    int n;
    ls_slow_link **link; /* owned, [size]: NULL where messages go at once; NULL: everywhere */
    uint64_t sends, payloads; /* messages so far; those that are not empty */
    char *copy[MAX_FAULTS]; /* owned: changed messages, read in place until the end */
    int ncopies;
};

/* --- the plan ----------------------------------------------------------------------------- */

static bool read_number(const char **p, uint64_t *out)
{
    if (**p < '0' || **p > '9') return false;
    char *end;
    *out = strtoull(*p, &end, 10);
    *p = end;
    return true;
}

typedef struct unit { const char *name; uint64_t factor; } unit;

static const unit times[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 }, { NULL, 0 } };
static const unit rates[] = { { "B/s", 1 }, { "kB/s", 1000 }, { "MB/s", 1000000 }, { "GB/s", 1000000000 },
                              { "KiB/s", 1u << 10 }, { "MiB/s", 1u << 20 }, { "GiB/s", 1u << 30 }, { NULL, 0 } };

/* "=200us": no more than fits. */
static bool read_amount(const char **p, const unit *u, uint64_t *out)
{
    if (*(*p)++ != '=' || !read_number(p, out)) return false;
    while (u->name && strncmp(*p, u->name, strlen(u->name)) != 0) u++;
    if (!u->name || *out > (uint64_t)INT64_MAX / u->factor) return false;
    *out *= u->factor;
    *p += strlen(u->name);
    return true;
}

static bool read_rank(const char **p, int *out)
{
    uint64_t v;
    ++*p; /* over @ or - */
    if (!read_number(p, &v) || v >= LS_WORLD_MOST_RANKS) return false;
    *out = (int)v;
    return true;
}

/* One fault at *p, which moves behind it. */
static bool read_fault(const char **p, fault *f)
{
    *f = (fault){ .rank = -1, .other = -1, .nth = 1, .kind = RATE };
    while (f->kind < KINDS && strncmp(*p, kind_name[f->kind], strlen(kind_name[f->kind])) != 0) f->kind++;
    if (f->kind == KINDS) return false;
    *p += strlen(kind_name[f->kind]);
    if (f->kind == DELAY && !read_amount(p, times, &f->amount)) return false;
    if (f->kind == RATE && (!read_amount(p, rates, &f->amount) || f->amount == 0)) return false;
    if (**p == '@' && !read_rank(p, &f->rank)) return false;
    if (f->kind == RATE && **p == '-' && (f->rank < 0 || !read_rank(p, &f->other) || f->other == f->rank)) return false;
    if (**p == ':' && f->kind != RATE) {
        ++*p;
        if (!read_number(p, &f->nth) || f->nth == 0) return false;
    }
    return **p == 0 || **p == ',';
}

/* All faults of a text, which `where` names; NULL has none. */
static ls_status read_faults(const char *where, const char *text, fault out[MAX_FAULTS], int *n)
{
    const char *p = text;
    while (p && *p) {
        if (*n == MAX_FAULTS || !read_fault(&p, &out[*n]))
            return ls_fail(LS_BAD_CONFIG,
                           "%s is '%s': expected at most %d of rate=SPEED, delay=TIME, stall, drop, repeat, corrupt, "
                           "garbage, kill, each with @RANK:NTH, or a rate with @RANK-RANK, as delay=200us@1,kill@0:5 or "
                           "rate=50MB/s@0-1",
                           where, text, MAX_FAULTS);
        ++*n;
        if (*p == ',') p++;
    }
    return LS_OK;
}

/* Behind "fault:tcp," */
static const char *faults_of(const char *name)
{
    const char *comma = strchr(name, ',');
    return comma ? comma + 1 : NULL;
}

ls_status ls_fault_check(const char *name)
{
    fault all[MAX_FAULTS];
    int n = 0;
    return read_faults(AFTER_NAME, faults_of(name), all, &n);
}

static bool is_of_link(const fault *f, int a, int b)
{
    if (f->kind != RATE) return false;
    if (f->other < 0) return f->rank < 0 || f->rank == a || f->rank == b;
    return (f->rank == a && f->other == b) || (f->rank == b && f->other == a);
}

uint64_t ls_fault_rate(const char *name, int a, int b)
{
    fault all[MAX_FAULTS];
    int n = 0;
    if (strncmp(name, "fault:", 6) != 0 || read_faults(AFTER_NAME, faults_of(name), all, &n) < 0) return 0;
    for (int i = 0; i < n; i++)
        if (is_of_link(&all[i], a, b)) return all[i].amount;
    return 0;
}

/* Of several rates for a link, the first one holds. */
static ls_status make_links(ls_transport *t, const fault *f)
{
    const int me = t->w->rank, size = t->w->size;
    if (!t->link && !(t->link = calloc((size_t)size, sizeof *t->link))) return ls_fail(LS_NO_MEMORY, "%d slow links", size);
    for (int r = 0; r < size; r++) {
        if (r != me && !t->link[r] && is_of_link(f, me, r))
            LS_TRY(ls_slow_link_create(t->ops, t->inner, r, f->amount, &t->link[r]));
    }
    return LS_OK;
}

/* What this rank does; of rates all. */
static ls_status read_plan(ls_transport *t)
{
    fault all[MAX_FAULTS];
    int n = 0;
    LS_TRY(read_faults(AFTER_NAME, faults_of(t->w->opts.transport), all, &n));
    LS_TRY(read_faults("LOCKSTEP_FAULT", ls_env_get()->getenv("LOCKSTEP_FAULT"), all, &n));
    for (int i = 0; i < n; i++)
        if (all[i].kind == RATE || all[i].rank < 0 || all[i].rank == t->w->rank) t->fault[t->n++] = all[i];
    return LS_OK;
}

/* --- the transport -------------------------------------------------------------------------- */

static void close_fault(ls_transport *t)
{
    if (!t) return;
    for (int r = 0; t->link && r < t->w->size; r++) ls_slow_link_destroy(t->link[r]);
    free(t->link);
    if (t->inner) t->ops->close(t->inner);
    for (int i = 0; i < t->ncopies; i++) free(t->copy[i]);
    free(t);
}

static ls_status open_fault(ls_world *w, ls_transport **out)
{
    *out = NULL;
    ls_transport *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "fault transport");
    t->w = w;
    t->ops = w->inner; /* ls_transport_check has seen it */
    ls_status st = read_plan(t); /* before peers wait for us */
    if (st == LS_OK) st = t->ops->open(w, &t->inner);
    for (int i = 0; i < t->n && st == LS_OK; i++)
        if (t->fault[i].kind == RATE) st = make_links(t, &t->fault[i]);
    if (st < 0) {
        close_fault(t);
        return st;
    }
    *out = t;
    return LS_OK;
}

/* A flipped bit, or nothing that m was; each fault does it once. */
static ls_status change(ls_transport *t, fault_kind kind, ls_msg *m)
{
    if (t->ncopies == MAX_FAULTS) return LS_OK;
    char *p = malloc(m->n + 1);
    if (!p) return ls_fail(LS_NO_MEMORY, "a message of %zu bytes to change", m->n);
    t->copy[t->ncopies++] = p;
    if (m->n > 0) memcpy(p, m->p, m->n);
    if (kind == CORRUPT) {
        p[m->n / 2] ^= 0x10;
    } else {
        ls_env_get()->random(p, m->n);
        m->sig = ~m->sig;
    }
    m->p = p;
    return LS_OK;
}

/* To the link of that peer, or to the transport below. */
static ls_status pass_on(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    if (t->link && t->link[peer]) return ls_slow_link_send(t->link[peer], channel, m, ticket);
    return t->ops->send(t->inner, peer, channel, m, ticket);
}

static ls_status send_fault(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    const ls_env *env = ls_env_get();
    uint64_t nth = t->sends + 1, payload = t->payloads + (m->n > 0);
    ls_msg msg = *m;
    bool stalled = false, dropped = false, repeated = false;
    for (int i = 0; i < t->n; i++) {
        const fault *f = &t->fault[i];
        if (f->kind == DELAY && nth >= f->nth)
            for (uint64_t until = env->mono_ns() + f->amount; env->mono_ns() < until;)
                env->wait(NULL, 0, NULL, 0, until);
        if (f->kind == KILL && nth == f->nth) env->kill(env->pid(), SIGKILL);
        if (f->kind == CORRUPT && m->n > 0 && payload == f->nth) LS_TRY(change(t, CORRUPT, &msg));
        if (f->kind == GARBAGE && nth == f->nth) LS_TRY(change(t, GARBAGE, &msg));
        stalled = stalled || (f->kind == STALL && nth >= f->nth);
        dropped = dropped || (f->kind == DROP && nth == f->nth);
        repeated = repeated || (f->kind == REPEAT && nth == f->nth);
    }
    ls_status st = LS_OK;
    if (stalled) *ticket = UINT64_MAX; /* never reached */
    else if (dropped) *ticket = 0;     /* reached already */
    else st = pass_on(t, peer, channel, &msg, ticket);
    /* if there is room */
    if (repeated && st == LS_OK) (void)pass_on(t, peer, channel, &msg, ticket);
    if (st == LS_OK) {
        t->sends = nth;
        t->payloads = payload;
    }
    return st;
}

static uint64_t sent_fault(ls_transport *t, int peer, int channel)
{
    if (t->link && t->link[peer]) return ls_slow_link_sent(t->link[peer], channel);
    return t->ops->sent(t->inner, peer, channel);
}

static ls_status view_fault(ls_transport *t, int peer, int channel, ls_msg *m)
{
    return t->ops->view(t->inner, peer, channel, m);
}

static ls_status take_fault(ls_transport *t, int peer, int channel, size_t n)
{
    return t->ops->take(t->inner, peer, channel, n);
}

static ls_status reserve_fault(ls_transport *t, int peer, int channel)
{
    return t->ops->reserve ? t->ops->reserve(t->inner, peer, channel) : LS_OK;
}

static ls_status progress_fault(ls_transport *t)
{
    for (int r = 0; t->link && r < t->w->size; r++)
        if (t->link[r]) LS_TRY(ls_slow_link_progress(t->link[r]));
    return t->ops->progress ? t->ops->progress(t->inner) : LS_OK;
}

static int fds_fault(ls_transport *t, int *fds, int max) { return t->ops->fds ? t->ops->fds(t->inner, fds, max) : 0; }

const ls_transport_ops ls_transport_fault = {
    .name = "fault",
    .open = open_fault,
    .close = close_fault,
    .send = send_fault,
    .sent = sent_fault,
    .view = view_fault,
    .take = take_fault,
    .reserve = reserve_fault,
    .progress = progress_fault,
    .fds = fds_fault,
};
