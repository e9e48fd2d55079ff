/* open.c -- opening a world and closing it: who am I, and over which transport. rendezvous.c finds the other ranks. */
#include "net/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/attach.h"

#define DEFAULT_JOIN_NS 60000000000ull
#define DEFAULT_COLL_NS 30000000000ull
#define SPEECH_NS 500000000u /* of the rank that says why a job ends, before mpirun ends it */
#define LONGEST_NS (1ull << 60) /* decades: added to the clock it does not wrap */

ls_status ls_world_join_failed(ls_world *w, ls_status s)
{
    char text[LS_ERROR_BYTES];
    w->failed = true;
    if (!w->page) return s;
    if (atomic_load_explicit(&w->page->abort_by, memory_order_acquire)) return ls_world_aborted(w);
    if (s == LS_JOIN_TIMEOUT) snprintf(text, sizeof text, "%s", ls_last_error()); /* says who is missing: not us */
    else snprintf(text, sizeof text, "rank %d: %s", w->rank, ls_last_error());
    ls_page_abort(w->page, 1 + (uint32_t)w->rank, s, text);
    return s;
}

/* None while the transport opens, which may wait, too. */
static int waiter_fds(void *arg, int *fds, int max)
{
    ls_world *w = arg;
    return w->tp && w->tops->fds ? w->tops->fds(w->tp, fds, max) : 0;
}

static ls_status finish_open(ls_world *w)
{
    const ls_env *env = ls_env_get();
    ls_rank_slot *slot = &w->page->rank[w->rank];
    int cpus;
    LS_TRY(ls_world_cores(w, &cpus));
    w->cpus = cpus;
    w->waiter = (ls_waiter){ .abort_word = &w->page->abort_by, .parked = &slot->parked,
                             .may_spin = ls_world_has_cores(w), .fds = waiter_fds, .fds_arg = w };
    w->generation = w->page->generation;
    atomic_store_explicit(&slot->pid, env->pid(), memory_order_relaxed);
    atomic_store_explicit(&slot->beat_ns, env->mono_ns(), memory_order_relaxed);
    ls_attach_offer(w);
    atomic_store_explicit(&slot->state, LS_RANK_RUNNING, memory_order_release);
    LS_TRY(ls_tracer_create(&slot->box, &w->tracer));

    if (!w->opts.transport) w->opts.transport = w->size == 1 ? "self" : w->nnodes == 1 ? "shm" : "mixed";
    const char *name = w->opts.transport;
    LS_TRY(ls_transport_check(name));
    w->tops = ls_transport_find(name);
    const char *colon = strchr(name, ':');
    w->inner = colon ? ls_transport_find(colon + 1) : NULL;
    if (w->opts.wire_bf16 && w->size > 1) LS_TRY(ls_transport_check_wire(name));
    w->waiter.wire = w->tops->fds != NULL;
    ls_status st = w->tops->open(w, &w->tp);
    ls_secret_wipe(w->link_key, sizeof w->link_key); /* every link that there will be has its keys */
    return st;
}

void ls_world_fill_defaults(ls_world *w, const ls_world_opts *opts)
{
    w->opts = opts ? *opts : (ls_world_opts){ 0 };
    const char *asked = w->opts.transport;
    if (w->size == 1 && (!asked || strncmp(asked, "fault", 5) != 0)) w->opts.transport = "self";
    if (!w->opts.arena_bytes) w->opts.arena_bytes = LS_WORLD_ARENA_BYTES;
    if (!w->opts.join_timeout_ns) w->opts.join_timeout_ns = DEFAULT_JOIN_NS;
    if (!w->opts.coll_timeout_ns) w->opts.coll_timeout_ns = DEFAULT_COLL_NS;
    if (w->opts.join_timeout_ns > LONGEST_NS) w->opts.join_timeout_ns = LONGEST_NS;
    if (w->opts.coll_timeout_ns > LONGEST_NS) w->opts.coll_timeout_ns = LONGEST_NS;
}

static void read_log_level(void)
{
    const char *level = ls_env_get()->getenv("LOCKSTEP_DEBUG");
    if (level && strcmp(level, "info") == 0) ls_context_get()->log_level = LS_LOG_INFO;
    if (level && strcmp(level, "debug") == 0) ls_context_get()->log_level = LS_LOG_DEBUG;
}

/* --- the two ways in ------------------------------------------------------------ */

ls_status ls_world_open(const ls_world_opts *opts, ls_world **out)
{
    *out = NULL;
    ls_job_env j;
    ls_job_args a = { 0 };
    if (opts) a = (ls_job_args){ opts->rank, opts->size, opts->master_addr, opts->master_port };
    LS_TRY(ls_job_env_read_with(&a, &j));
    ls_world *w = calloc(1, sizeof *w);
    if (!w) return ls_fail(LS_NO_MEMORY, "a world");
    w->rank = j.rank;
    w->size = j.size;
    w->local_rank = j.size == 1 ? 0 : j.local_rank;
    w->local_size = j.size == 1 ? 1 : j.local_size;
    w->nnodes = 1;
    w->by_hand = j.by_hand;
    w->source = j.source;
    w->source_text = ls_job_source_text(&j);
    ls_world_fill_defaults(w, opts);
    read_log_level();
    ls_context_get()->rank = w->rank;
    if (j.source != LS_JOB_ALONE)
        ls_log(LS_LOG_INFO, "rank %d of %d from %s%s%s", j.rank, j.size, w->source_text,
               j.by_hand ? "; the ranks meet at the Unix socket " : "", j.by_hand ? j.meeting : "");
    ls_status st = ls_world_make_room(w);
    if (st == LS_OK) st = ls_world_rendezvous(w, &j);
    if (st == LS_OK) st = finish_open(w);
    if (st < 0) {
        st = ls_world_join_failed(w, st);
        ls_world_close(w);
        return st;
    }
    *out = w;
    return LS_OK;
}

ls_status ls_world_open_thread(ls_thread_host *h, int rank, const ls_world_opts *opts, ls_world **out)
{
    const ls_env *env = ls_env_get();
    *out = NULL;
    ls_world *w = calloc(1, sizeof *w);
    if (!w) return ls_fail(LS_NO_MEMORY, "a world");
    w->rank = w->local_rank = rank;
    w->size = w->local_size = h->size;
    w->nnodes = 1;
    w->threads = true;
    w->source_text = h->processes ? "the program: ranks are copies of it" : "the program: ranks are threads";
    w->page = h->page;
    ls_world_fill_defaults(w, opts);
    ls_context_get()->rank = rank;
    w->arena = h->arena[rank];
    ls_arena_charge(w->arena, &w->ledger);
    if (!h->processes) ls_arena_may_grow(w->arena, NULL, NULL); /* peers look it up there */
    w->thread_arena = h->arena;
    ls_status st = ls_world_make_room(w);
    for (int r = 0; r < h->size && st == LS_OK; r++) {
        w->peer_base[r] = ls_arena_base(h->arena[r]);
        w->peer_bytes[r] = ls_arena_segment(h->arena[r], 0).size;
    }
    uint64_t deadline = env->mono_ns() + w->opts.join_timeout_ns;
    int fd = -1;
    ls_store_caller who = { .unix_name = h->store_name, .secret = h->secret, .rank = rank, .size = h->size,
                            .key = w->link_key };
    if (st == LS_OK && h->size > 1) st = ls_store_connect(&who, deadline, &w->store, &fd);
    w->host_store = w->store;
    memcpy(w->address, "127.0.0.1", sizeof "127.0.0.1");
    memcpy(w->listen, w->address, sizeof "127.0.0.1");
    if (fd >= 0) env->close_fd(fd);
    if (st == LS_OK && h->size > 1) {
        ls_store_watch(w->store, &w->page->abort_by);
        st = ls_world_wait_for_all(w, deadline);
    }
    if (st == LS_OK) st = finish_open(w);
    if (st < 0) {
        st = ls_world_join_failed(w, st);
        ls_world_close(w);
        return st;
    }
    *out = w;
    return LS_OK;
}

/* mpirun ends a job as soon as one rank has ended: who only follows a failure lets the rank that has something to say
 * about it end first. */
static void let_speak(const ls_world *w)
{
    const ls_env *env = ls_env_get();
    char text[LS_ERROR_BYTES];
    ls_status cause;
    int about;
    bool by_mpirun = w->source == LS_JOB_OPENMPI || w->source == LS_JOB_PMI || w->source == LS_JOB_SLURM;
    if (!w->failed || !by_mpirun || !w->page || !ls_page_cause(w->page, &about, &cause, text, sizeof text)) return;
    int speaker = (int)atomic_load_explicit(&w->page->abort_by, memory_order_acquire) - 1;
    if (cause == LS_RANK_DIED) speaker = about == 0 ? 1 : 0; /* ls_world_verdict */
    if (speaker < 0 || speaker >= w->size || speaker == w->rank || !ls_world_is_local(w, speaker)) return;
    int pid = atomic_load_explicit(&w->page->rank[speaker].pid, memory_order_relaxed);
    for (uint64_t now = env->mono_ns(), end = now + SPEECH_NS; now < end; now = env->mono_ns()) {
        char state = env->proc_state(pid);
        if (state == 0 || state == 'Z') return;
        env->wait(NULL, 0, NULL, 0, now + 10000000u);
    }
}

void ls_world_close(ls_world *w)
{
    if (!w) return;
    const ls_env *env = ls_env_get();
    let_speak(w);
    if (w->tp) w->tops->close(w->tp);
    ls_world_unbind(w);
    ls_tracer_destroy(w->tracer);
    if (w->page && w->store && !w->failed)
        atomic_store_explicit(&w->page->rank[w->rank].state, LS_RANK_DONE, memory_order_release);
    ls_store_client *stores[] = { w->store != w->host_store ? w->store : NULL, w->host_store };
    for (int i = 0; i < 2; i++) {
        if (stores[i] && !w->failed) ls_store_bye(stores[i]); /* best effort: the store may be gone already */
        ls_store_disconnect(stores[i]);
    }
    ls_store_serve_stop(w->server);
    if (w->threads) {
        ls_arena_charge(w->arena, NULL); /* it outlives the world: peers may read it still */
    } else {
        ls_world_unmap_peers(w);
        ls_arena_destroy(w->arena);
        ls_arena_destroy(w->elsewhere);
        if (w->page) env->unmap(w->page, ls_page_bytes(w->size));
    }
    if (!w->alone) ls_context_get()->rank = -1;
    ls_secret_wipe(w->link_key, sizeof w->link_key);
    ls_world_free_room(w);
    free(w);
}
