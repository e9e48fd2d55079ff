/* wait.c -- spin, yield, park: the only waiting loop in the project. */
#include "base/wait.h"

#include "base/compiler.h"

#define SPIN_ABORT_TURNS 64    /* how often a spinning rank looks at the abort word */
#define SPIN_CLOCK_TURNS 1024  /* and at the clock */
#define YIELD_CLOCK_TURNS 16   /* a yield may cost another process's whole time slice */
#define YIELD_MIN_TURNS 64     /* yields before the first nap */
#define WIRE_SPIN_TURNS 32u    /* the same where a turn is system calls */
#define NAP_NS 1000000u        /* bounds the cost of a lost wake-up */
#define DEBUGGER_NS 1000000000u
#define MAX_FDS 256

static bool aborted(const ls_waiter *w)
{
    /* relaxed: the cause is read later, behind its own flag */
    return w->abort_word && atomic_load_explicit(w->abort_word, memory_order_relaxed) != 0;
}

/* Whether the deadline has passed. It pauses while a debugger holds this process. */
static bool late(const ls_env *env, uint64_t now, uint64_t *deadline_ns)
{
    if (now < *deadline_ns) return false;
    if (!env->traced(env->pid())) return true;
    *deadline_ns = now + DEBUGGER_NS;
    return false;
}

static uint64_t moves(const ls_waiter *w) { return w->moved ? *w->moved : 0; }

/* Sleeps once. What was ready or moved before anybody could see us parked is looked
 * for again in between: that answer is returned, without sleep if there is one. */
static ls_status nap(const ls_env *env, const ls_waiter *w, ls_status (*ready)(void *arg), void *arg, uint64_t until)
{
    /* seq_cst: our mark is out before ready() looks. The waker's side is cheaper
     * (it may miss the mark), which costs one nap and nothing else. */
    if (w->parked) atomic_store_explicit(w->parked, 1, memory_order_seq_cst);
    uint64_t before = moves(w);
    ls_status st = ready(arg);
    if (st == LS_AGAIN && moves(w) == before && !aborted(w)) {
        int fd[MAX_FDS];
        ls_pollfd poll[MAX_FDS];
        int n = w->fds ? w->fds(w->fds_arg, fd, MAX_FDS) : 0;
        for (int i = 0; i < n; i++) poll[i] = (ls_pollfd){ .fd = fd[i], .events = LS_POLL_IN };
        env->wait((const uint32_t *)(const void *)w->parked, 1, poll, n, until);
    }
    if (w->parked) atomic_store_explicit(w->parked, 0, memory_order_relaxed);
    return st;
}

ls_status ls_wait(const ls_waiter *w, ls_status (*ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    ls_status st;

    unsigned spins = w->may_spin ? env->spin_turns : 0;
    uint64_t yield_ns = w->wire ? LS_WAIT_WIRE_YIELD_NS : LS_WAIT_YIELD_NS;
    if (w->wire && spins > WIRE_SPIN_TURNS) spins = WIRE_SPIN_TURNS;
    for (unsigned turn = 1; turn <= spins; turn++) {
        if ((st = ready(arg)) != LS_AGAIN) return st;
        if (turn % SPIN_ABORT_TURNS == 0 && aborted(w)) return LS_ABORTED;
        if (turn % SPIN_CLOCK_TURNS == 0 && late(env, env->mono_ns(), &deadline_ns)) return LS_RANK_HUNG;
        ls_cpu_relax();
    }

    for (;;) {
        uint64_t since = 0, seen = moves(w); /* when we began to yield, or something moved last */
        for (unsigned turn = 0;; turn++) {
            if ((st = ready(arg)) != LS_AGAIN) return st;
            if (aborted(w)) return LS_ABORTED;
            if (turn % YIELD_CLOCK_TURNS == 0) {
                uint64_t now = env->mono_ns();
                if (turn == 0 || moves(w) != seen) since = now;
                seen = moves(w);
                if (late(env, now, &deadline_ns)) return LS_RANK_HUNG;
                if (turn >= YIELD_MIN_TURNS && now - since >= yield_ns) break;
            }
            env->yield();
        }

        seen = moves(w);
        while (moves(w) == seen) {
            uint64_t now = env->mono_ns();
            if (aborted(w)) return LS_ABORTED;
            if (late(env, now, &deadline_ns)) return LS_RANK_HUNG;
            uint64_t until = deadline_ns - now > NAP_NS ? now + NAP_NS : deadline_ns;
            if ((st = nap(env, w, ready, arg, until)) != LS_AGAIN) return st;
        }
    }
}
