/* transport_fault.c -- another transport with faults on purpose: "fault:shm", "fault:tcp".
 *
 * The environment variable LOCKSTEP_FAULT says which, as a list with commas:
 *
 *   delay=200us@1   rank 1 waits so long before each message it sends
 *   stall@1:5       rank 1's 5th message and all later ones never leave
 *   drop@1:5        rank 1's 5th message is lost, the later ones are not
 *   repeat@1:5      rank 1's 5th message is sent twice
 *   corrupt@1:5     one bit of rank 1's 5th message that has a payload is flipped
 *   garbage@1:5     other bytes, with another signature, come in place of rank 1's 5th message
 *   kill@1:5        rank 1 ends by SIGKILL in place of sending its 5th message
 *
 * Without @RANK every rank does it, without :NTH from the first message on
 * (drop, repeat, corrupt, garbage and kill: at the first). Messages are counted per rank,
 * from 1, from the opening of the world.
 */
#include <signal.h> /* names of signals only */
#include <stdlib.h>
#include <string.h>

#include "net/transports.h"
#include "net/world.h"

#define MAX_FAULTS 8

typedef enum fault_kind { DELAY, STALL, DROP, REPEAT, CORRUPT, GARBAGE, KILL, KINDS } fault_kind;

static const char *const kind_name[KINDS] = { "delay", "stall", "drop", "repeat", "corrupt", "garbage",
                                              "kill" };

typedef struct fault {
    fault_kind kind;
    int rank;          /* -1: all */
    uint64_t nth;
    uint64_t ns;       /* of a delay */
} fault;

struct ls_transport {
    ls_world *w;
    const ls_transport_ops *ops;
    ls_transport *inner;
    fault fault[MAX_FAULTS]; /* those of this rank */
    int n;
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

static bool read_delay(const char **p, uint64_t *ns)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } row[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
    if (*(*p)++ != '=' || !read_number(p, ns)) return false;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        size_t n = strlen(row[i].unit);
        if (strncmp(*p, row[i].unit, n) != 0) continue;
        *ns *= row[i].ns;
        *p += n;
        return true;
    }
    return false;
}

/* One fault at *p, which moves behind it. */
static bool read_fault(const char **p, fault *f)
{
    uint64_t v;
    *f = (fault){ .rank = -1, .nth = 1, .kind = DELAY };
    while (f->kind < KINDS && strncmp(*p, kind_name[f->kind], strlen(kind_name[f->kind])) != 0) f->kind++;
    if (f->kind == KINDS) return false;
    *p += strlen(kind_name[f->kind]);
    if (f->kind == DELAY && !read_delay(p, &f->ns)) return false;
    if (**p == '@') {
        ++*p;
        if (!read_number(p, &v) || v >= LS_WORLD_MOST_RANKS) return false;
        f->rank = (int)v;
    }
    if (**p == ':') {
        ++*p;
        if (!read_number(p, &f->nth) || f->nth == 0) return false;
    }
    return **p == 0 || **p == ',';
}

static ls_status read_plan(ls_transport *t)
{
    const char *text = ls_env_get()->getenv("LOCKSTEP_FAULT"), *p = text;
    while (p && *p) {
        fault f;
        if (t->n == MAX_FAULTS || !read_fault(&p, &f))
            return ls_fail(LS_BAD_CONFIG,
                           "LOCKSTEP_FAULT is '%s': expected at most %d of delay=TIME, stall, drop, repeat, corrupt, "
                           "garbage, kill, each with @RANK:NTH, as delay=200us@1,kill@0:5",
                           text, MAX_FAULTS);
        if (f.rank < 0 || f.rank == t->w->rank) t->fault[t->n++] = f;
        if (*p == ',') p++;
    }
    return LS_OK;
}

/* --- the transport -------------------------------------------------------------------------- */

static void close_fault(ls_transport *t)
{
    if (!t) return;
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
    ls_status st = read_plan(t);
    if (st == LS_OK) st = t->ops->open(w, &t->inner);
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

static ls_status send_fault(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    const ls_env *env = ls_env_get();
    uint64_t nth = t->sends + 1, payload = t->payloads + (m->n > 0);
    ls_msg msg = *m;
    bool stalled = false, dropped = false, repeated = false;
    for (int i = 0; i < t->n; i++) {
        const fault *f = &t->fault[i];
        if (f->kind == DELAY && nth >= f->nth)
            for (uint64_t until = env->mono_ns() + f->ns; env->mono_ns() < until;) env->wait(NULL, 0, NULL, 0, until);
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
    else st = t->ops->send(t->inner, peer, channel, &msg, ticket);
    if (repeated && st == LS_OK) (void)t->ops->send(t->inner, peer, channel, &msg, ticket); /* if there is room */
    if (st == LS_OK) {
        t->sends = nth;
        t->payloads = payload;
    }
    return st;
}

static uint64_t sent_fault(ls_transport *t, int peer, int channel) { return t->ops->sent(t->inner, peer, channel); }

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

static ls_status progress_fault(ls_transport *t) { return t->ops->progress ? t->ops->progress(t->inner) : LS_OK; }

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
