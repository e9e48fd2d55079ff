/* attach.c -- whether ranks of a host can read one another's private memory, and reading it. */
#include "net/attach.h"

#include <errno.h>
#include <stdlib.h>
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

static bool reads_proof(ls_world *w, int r)
{
    uint64_t proof[LS_ATTACH_PROOF];
    const ls_rank_slot *slot = &w->page->rank[r];
    ls_status st = r == w->rank ? LS_OK : ls_attach_read(w, r, slot->proof_at, proof, sizeof proof);
    if (st == LS_OK && r != w->rank && memcmp(proof, slot->proof, sizeof proof) != 0) /* another pid namespace */
        st = ls_fail(LS_PROTOCOL, "rank %d's process number is another process here", r);
    if (st < 0) ls_log(LS_LOG_INFO, "private memory of rank %d goes through copies: %s", r, ls_last_error());
    return st == LS_OK;
}

/* What a rank tells the others: a bit for each rank of its host, in their order. */
typedef struct readable {
    uint64_t word[LS_HOST_MOST_RANKS / 64];
} readable;

static ls_status take(ls_world *w, const readable *all)
{
    w->reads = calloc((size_t)w->size, sizeof *w->reads);
    if (!w->reads) return ls_fail(LS_NO_MEMORY, "who reads whose memory, of %d ranks", w->size);
    for (int r = 0; r < w->size; r++) {
        if (!ls_world_is_local(w, r)) continue;
        LS_TRY(ls_rank_set_create(w->size, &w->reads[r]));
        for (int q = 0, i = 0; q < w->size; q++) {
            if (!ls_world_is_local(w, q)) continue;
            if (all[r].word[i / 64] >> (i % 64) & 1u) ls_rank_set_add(&w->reads[r], q);
            i++;
        }
    }
    return LS_OK;
}

ls_status ls_attach_meet(ls_world *w)
{
    if (w->size == 1 || !w->tops->is_mapped) return LS_OK; /* no peers, or a transport without shared memory */
    readable mine = { { 0 } }, *all = calloc((size_t)w->size, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "who reads whose memory, of %d ranks", w->size);
    for (int r = 0, i = 0; r < w->size; r++) {
        if (!ls_world_is_local(w, r)) continue;
        if (reads_proof(w, r)) mine.word[i / 64] |= 1ull << (i % 64);
        i++;
    }
    ls_status st = ls_world_exchange(w, "reads", &mine, sizeof mine, all);
    if (st == LS_OK) st = take(w, all);
    free(all);
    return st;
}
