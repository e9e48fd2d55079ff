/* attach.c -- whether ranks of a host can read one another's private memory, and reading it. */
#include "net/attach.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

void ls_attach_offer(ls_world *w)
{
    const ls_env *env = ls_env_get();
    ls_rank_slot *slot = &w->page->rank[w->rank];
    if (!w->by_hand && !w->threads) (void)env->let_read(env->parent_pid()); /* no Yama: no need */
    env->random(w->proof, sizeof w->proof);
    memcpy(slot->proof, w->proof, sizeof slot->proof);
    slot->proof_at = (uint64_t)(uintptr_t)w->proof;
}

/* Why a read failed, in this thread's error. */
static LS_COLD ls_status refused(int rank, int pid, uint64_t address, size_t n, int error)
{
    static const struct {
        int error;
        ls_status st;
        const char *why;
    } row[] = {
        { ENOSYS, LS_UNSUPPORTED, "this system has no process_vm_readv" },
        { EPERM, LS_SYSTEM, "the system does not allow it (ptrace_scope, or a container's seccomp)" },
        { ESRCH, LS_PEER_RESET, "its process has ended" },
        { EFAULT, LS_PROTOCOL, "they are not mapped: a vector must stay until its collective is over" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].error == error)
            return ls_fail(row[i].st, "reading %zu bytes of rank %d (pid %d) at 0x%llx: %s", n, rank, pid,
                           (unsigned long long)address, row[i].why);
    return ls_fail(LS_SYSTEM, "reading %zu bytes of rank %d (pid %d) at 0x%llx: %s", n, rank, pid,
                   (unsigned long long)address, strerror(error));
}

ls_status ls_attach_read(ls_world *w, int rank, uint64_t address, void *to, size_t n)
{
    const int pid = atomic_load_explicit(&w->page->rank[rank].pid, memory_order_relaxed);
    const int r = ls_env_get()->read_process(pid, address, to, n);
    if (LS_LIKELY(r == 0)) return LS_OK;
    /* who gives the job up takes its vectors back: that is no fault of its own */
    if (atomic_load_explicit(&w->page->abort_by, memory_order_acquire)) return ls_world_aborted(w);
    return refused(rank, pid, address, n, -r);
}

/* The ranks of this host whose proofs we can read, a bit each. */
static uint64_t readable(ls_world *w)
{
    uint64_t can = 0;
    for (int r = 0; r < w->size; r++) {
        uint64_t proof[LS_ATTACH_PROOF];
        const ls_rank_slot *slot = &w->page->rank[r];
        if (!ls_world_is_local(w, r)) continue;
        ls_status st = r == w->rank ? LS_OK : ls_attach_read(w, r, slot->proof_at, proof, sizeof proof);
        if (st == LS_OK && r != w->rank && memcmp(proof, slot->proof, sizeof proof) != 0) /* another pid namespace */
            st = ls_fail(LS_PROTOCOL, "rank %d's process number is another process here", r);
        if (st == LS_OK) can |= 1ull << r;
        else ls_log(LS_LOG_INFO, "private memory of rank %d goes through copies: %s", r, ls_last_error());
    }
    return can;
}

ls_status ls_attach_meet(ls_world *w)
{
    if (w->size == 1 || !w->tops->is_mapped) return LS_OK; /* no peers, or a transport without shared memory */
    uint64_t can = readable(w);
    return ls_world_exchange(w, "reads", &can, sizeof can, w->reads);
}
