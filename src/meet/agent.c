/* agent.c -- one request at a time, without ever waiting for it. */
#include "meet/agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet/beat.h"
#include "meet/store_wire.h"

#define BEAT_NS 100000000ull
#define KEY "beat"
#define KEY_BYTES (sizeof KEY - 1)

struct ls_agent {
    ls_store_client *c;    /* owned */
    ls_world_page *page;   /* borrowed */
    const ls_store *local; /* borrowed */
    char node0[80];
    size_t most;           /* bytes of a beat */
    char *out, *in;        /* owned: the request on its way, and the reply */
    size_t nout, at, nin;
    bool asked;            /* a reply is owed */
    bool tells;            /* the request on its way has the cause */
    bool settled, gone;
    uint64_t sent_ns, step_ns, heard_ns, silent_ns;
};

static void release(ls_agent *a)
{
    if (!a) return;
    free(a->out);
    free(a->in);
    free(a);
}

ls_status ls_agent_create(ls_store_client *c, ls_world_page *page, const ls_store *local, const char *node0,
                          uint64_t silent_ns, ls_agent **out)
{
    ls_agent *a = *out = calloc(1, sizeof *a);
    const size_t most = ls_beat_most_bytes(page->nranks);
    if (a) {
        a->most = most;
        a->out = malloc(sizeof(store_request) + KEY_BYTES + most);
        a->in = malloc(sizeof(store_reply) + most);
    }
    if (!a || !a->out || !a->in) {
        release(a);
        *out = NULL;
        ls_store_disconnect(c);
        return ls_fail(LS_NO_MEMORY, "the link to node 0 (heartbeats of %u ranks)", page->nranks);
    }
    a->c = c;
    a->page = page;
    a->local = local;
    a->silent_ns = silent_ns ? silent_ns : LS_STORE_SILENT_NS;
    a->heard_ns = ls_env_get()->mono_ns();
    snprintf(a->node0, sizeof a->node0, "%s", node0);
    return LS_OK;
}

int ls_agent_fd(const ls_agent *a) { return a->gone ? -1 : a->c->fd; }

bool ls_agent_settled(const ls_agent *a) { return a->settled || a->gone; }

static bool has_cause(const ls_agent *a) { return atomic_load_explicit(&a->page->abort_by, memory_order_acquire) != 0; }

static void node0_gone(ls_agent *a, const char *how)
{
    char text[LS_ERROR_BYTES];
    a->gone = true;
    snprintf(text, sizeof text, "node 0 (%s) is gone: %s", a->node0, how);
    ls_page_abort(a->page, LS_ABORT_BY_LAUNCHER, LS_PEER_SILENT, text);
}

static void ask(ls_agent *a, uint64_t now_ns)
{
    a->tells = has_cause(a);
    const ls_beat_of ours = { ls_store_local(a->local), false };
    size_t n = ls_beat_write(a->page, ours, now_ns, a->out + sizeof(store_request) + KEY_BYTES);
    store_request q = { .op = STORE_BEAT, .nkey = KEY_BYTES, .nvalue = (uint32_t)n };
    memcpy(a->out, &q, sizeof q);
    memcpy(a->out + sizeof q, KEY, KEY_BYTES);
    a->nout = sizeof q + KEY_BYTES + n;
    a->at = a->nin = 0;
    a->asked = true;
    a->sent_ns = now_ns;
}

static bool say(ls_agent *a)
{
    while (a->at < a->nout) {
        ssize_t k = ls_door_send(&a->c->door, a->c->fd, a->out + a->at, a->nout - a->at);
        if (k == -EAGAIN) return true;
        if (k < 0) return false;
        a->at += (size_t)k;
    }
    int r = ls_door_flush(&a->c->door, a->c->fd);
    return r == 0 || r == -EAGAIN;
}

/* False: the connection has ended, or has brought what is no reply. */
static bool hear(ls_agent *a, uint64_t now_ns)
{
    while (a->asked) {
        store_reply r = { 0 };
        size_t want = sizeof r;
        if (a->nin >= sizeof r) {
            memcpy(&r, a->in, sizeof r);
            if (r.status != LS_OK || r.nvalue > a->most || r.has_fd) return false;
            want += r.nvalue;
        }
        if (a->nin >= sizeof r && a->nin == want) {
            a->asked = false;
            a->heard_ns = now_ns;
            const ls_beat_of others = { ls_store_local(a->local), true };
            if (r.nvalue && !ls_beat_read(a->page, others, a->in + sizeof r, r.nvalue, now_ns, NULL)) return false;
            a->settled = a->settled || a->tells;
            return true;
        }
        ssize_t k = ls_door_recv(&a->c->door, a->c->fd, a->in + a->nin, want - a->nin);
        if (k == -EAGAIN) return true;
        if (k <= 0) return false;
        a->nin += (size_t)k;
    }
    return true;
}

uint64_t ls_agent_step(ls_agent *a, uint64_t now_ns)
{
    if (a->gone) return UINT64_MAX;
    uint64_t absent = a->step_ns ? now_ns - a->step_ns : 0; /* we ourselves: no silence of node 0's */
    if (absent > a->silent_ns / 4) a->heard_ns += absent;
    a->step_ns = now_ns;
    if (!say(a) || !hear(a, now_ns)) {
        node0_gone(a, "its connection closed: its launcher has ended, or the node");
        return UINT64_MAX;
    }
    bool urgent = has_cause(a) && !a->tells;
    if (!a->asked && (urgent || now_ns - a->sent_ns >= BEAT_NS)) {
        ask(a, now_ns);
        (void)say(a); /* a failure shows at the next step */
    }
    if (a->asked && now_ns > a->heard_ns && now_ns - a->heard_ns >= a->silent_ns + BEAT_NS) {
        char how[160];
        node0_gone(a, ls_store_silence(a->silent_ns, how, sizeof how));
        return UINT64_MAX;
    }
    return a->at < a->nout ? now_ns + 10000000u : a->sent_ns + BEAT_NS;
}

void ls_agent_leave(ls_agent *a, uint64_t deadline_ns)
{
    if (!a) return;
    const ls_env *env = ls_env_get();
    while (!a->gone && (a->asked || a->at < a->nout) && env->mono_ns() < deadline_ns) {
        ls_pollfd fd = { .fd = a->c->fd, .events = LS_POLL_IN };
        env->wait(NULL, 0, &fd, 1, env->mono_ns() + 10000000u);
        if (!say(a) || !hear(a, env->mono_ns())) break;
    }
    if (!a->gone && !a->asked) (void)ls_store_bye(a->c);
    ls_store_disconnect(a->c);
    release(a);
}
