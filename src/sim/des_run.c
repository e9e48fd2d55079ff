/* des_run.c -- before and after a simulation. */
#include <math.h>
#include <stdlib.h>

#include "base/env.h"
#include "sim/des_impl.h"

static ls_status check(const ls_des_model *m)
{
    if (m->n < 1 || m->n > LS_DES_MOST_PROCESSES || m->ncosts > LS_DES_MOST_COSTS)
        return ls_fail(LS_INVALID, "a simulation of %u processes and %u costs: expected 1 to %u, and at most %u",
                       m->n, m->ncosts,
                       LS_DES_MOST_PROCESSES, LS_DES_MOST_COSTS);
    for (uint32_t i = 0; i < m->ncosts; i++)
        if (!(m->cost[i] >= 0) || !isfinite(m->cost[i]))
            return ls_fail(LS_INVALID, "cost %u is %g: expected 0 or more", i, m->cost[i]);
    for (uint32_t i = 0; m->pace && i < m->n; i++)
        if (!(m->pace[i] >= 0) || !isfinite(m->pace[i]))
            return ls_fail(LS_INVALID, "process %u takes %g times as long: expected 0 or more", i, m->pace[i]);
    for (uint32_t i = 0; m->wake_s && i < m->n; i++)
        if (!(m->wake_s[i] >= 0) || !isfinite(m->wake_s[i]) || !(m->idle_s > 0))
            return ls_fail(LS_INVALID, "process %u takes %g s to wake after %g s: expected 0 or more, after more than 0", i, m->wake_s[i],
                           m->idle_s);
    for (uint32_t i = 0; i < m->ngroups; i++)
        if (m->members[i] < 1) return ls_fail(LS_INVALID, "group %u has no members", i);
    if (m->log2_stride < 0 || m->log2_stride > 16)
        return ls_fail(LS_INVALID, "a stride of 2^%d: expected an exponent of 0 to 16", m->log2_stride);
    if (!(m->jitter >= 0 && m->jitter <= 1)) return ls_fail(LS_INVALID, "a jitter of %g: expected 0 to 1", m->jitter);
    if (!(m->cores >= 0) || !isfinite(m->cores) || (m->cores > 0 && m->net.sharing != LS_DES_FIFO))
        return ls_fail(LS_INVALID, "%g cores are shared: expected 0 or more, and above 0 only links that serve messages in "
                       "turn", m->cores);
    for (uint32_t i = 0; m->core && i < m->n; i++)
        if (!(m->cores >= 1 && m->cores == floor(m->cores) && m->core[i] < m->cores))
            return ls_fail(LS_INVALID, "process %u is on core %u of %g: expected a whole number of cores, and one of them",
                           i, m->core[i], m->cores);
    if (!(m->poll >= 0) || !isfinite(m->poll) || (m->poll > 0 && !m->core))
        return ls_fail(LS_INVALID, "a process that polls gets %g of what one that computes gets: expected 0 or more, and above 0 "
                       "only on cores of their own", m->poll);
    if (!(m->idle_s >= 0)) return ls_fail(LS_INVALID, "a core is idle for %g s: expected 0 or more", m->idle_s);
    return LS_OK;
}

static uint32_t places(const ls_des_model *m)
{
    uint32_t most = 0;
    if (!m->place) return m->n;
    for (uint32_t i = 0; i < m->n; i++) most = m->place[i] > most ? m->place[i] : most;
    return most + 1;
}

/* Mapped, in large pages where there are any. */
static bool is_large(const ls_des_model *m) { return m->n >= 1u << 16; }

static ls_status begin(sim *x)
{
    const ls_des_model *m = x->m;
    const bool in_turn = m->net.sharing != LS_DES_FREE;
    LS_TRY(ls_des_links_create(&m->net, places(m), &x->links));
    x->p = is_large(m) ? ls_env_get()->map_private((size_t)m->n * sizeof *x->p)
                       : aligned_alloc(64, (size_t)m->n * sizeof *x->p);
    x->group = malloc(((size_t)m->ngroups + 1) * sizeof *x->group);
    x->ready = in_turn ? NULL : calloc((size_t)m->n / 64 + 1, sizeof *x->ready);
    x->stack = in_turn ? malloc((size_t)m->n * sizeof *x->stack) : NULL;
    if (!x->p || !x->group || !(in_turn ? (void *)x->stack : (void *)x->ready))
        return ls_fail(LS_NO_MEMORY, "%u processes", m->n);
    if (in_turn) LS_TRY(ls_des_queue_create(m->n, &x->queue));
    LS_TRY(ls_des_cores_create(m->cores, m->core, m->n, m->idle_s, m->poll, &x->cores));
    for (uint32_t i = 0; i < m->ngroups; i++) x->group[i] = (meeting){ .left = m->members[i], .first = LS_DES_NONE };
    for (uint32_t i = 0; i < m->n; i++) {
        const uint32_t p = in_turn ? m->n - 1 - i : i; /* the stack gives them back in their order */
        x->p[i] = (process){ .op = m->program[i], .later = LS_DES_NONE };
        resume(x, p, in_turn);
    }
    x->flat = m->net.sharing != LS_DES_FAIR && !m->net.topo && !m->place && m->net.nfailures == 0;
    x->latency = m->net.latency_s;
    x->gap = m->net.gap * m->net.latency_s;
    x->pace = 1.0 / m->net.bytes_per_s;
    return LS_OK;
}

static ls_status end(const sim *x, ls_des_result *out)
{
    static const char *const what[] = { "its end", "work", "a message to leave", "a message",
                                        "the others of its group" };
    out->end_s = 0;
    out->events = 0;
    out->messages = x->messages;
    for (uint32_t i = 0; i < x->m->n; i++) {
        const process *q = &x->p[i];
        if (q->op->kind != LS_DES_END)
            return ls_fail(LS_INTERNAL, "process %u waits at operation %u for %s (%u) forever", i, index_of(x, i),
                           what[q->op->kind],
                           q->waits ? (uint32_t)((q->waits - 1) >> 12) : (uint32_t)q->op->who);
        out->end_s = q->t > out->end_s ? q->t : out->end_s;
        out->events += index_of(x, i);
        if (out->ends_s) out->ends_s[i] = q->t;
    }
    return LS_OK;
}

ls_status ls_des_run(const ls_des_model *m, ls_des_result *out)
{
    sim x = { .m = m, .spare = LS_DES_NONE };
    ls_status st = check(m);
    if (st == LS_OK) st = begin(&x);
    if (st == LS_OK) {
        ls_des_go(&x);
        st = x.st;
    }
    if (st == LS_OK) st = end(&x, out);
    if (x.p && is_large(m)) ls_env_get()->unmap(x.p, (size_t)m->n * sizeof *x.p);
    else free(x.p);
    free(x.group);
    free(x.early);
    free(x.ready);
    free(x.stack);
    ls_des_queue_free(&x.queue);
    ls_des_cores_free(&x.cores);
    ls_des_links_free(&x.links);
    return st;
}
