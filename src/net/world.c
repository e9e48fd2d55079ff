/* world.c -- joining: who am I, where is the store, which memory do we share. */
#include "net/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/attach.h"

#define DEFAULT_ARENA ((size_t)16 << 20)
#define DEFAULT_JOIN_NS 60000000000ull
#define DEFAULT_COLL_NS 30000000000ull
#define SPEECH_NS 500000000u /* of the rank that says why a job ends, before mpirun ends it */
#define LONGEST_NS (1ull << 60) /* decades: added to the clock it does not wrap */

/* All zero where the job has none. */
static ls_status read_secret(const ls_job_env *j, uint8_t secret[LS_SECRET_BYTES])
{
    memset(secret, 0, LS_SECRET_BYTES);
    if (j->secret_fd >= 0) return ls_secret_read_fd(j->secret_fd, secret);
    return j->secret_file ? ls_secret_read(j->secret_file, secret) : LS_OK;
}

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

/* --- pieces of joining -------------------------------------------------------- */

static ls_status new_page(int nranks, ls_world_page **page, int *fd)
{
    const ls_env *env = ls_env_get();
    size_t n = ls_page_bytes(nranks);
    *fd = env->memfd("lockstep-page", n);
    *page = *fd >= 0 ? env->map_shared(*fd, n, true) : NULL;
    if (!*page) {
        if (*fd >= 0) env->close_fd(*fd);
        return ls_fail(LS_NO_MEMORY, "no shared memory for the world page (%zu KiB)", n >> 10);
    }
    ls_page_format(*page, nranks, 1);
    return LS_OK;
}

static ls_status map_page(ls_world *w, int fd)
{
    const ls_env *env = ls_env_get();
    int64_t n = env->fd_size(fd);
    w->page_bytes = ls_page_bytes(w->size);
    if (n < (int64_t)w->page_bytes)
        return ls_fail(LS_PROTOCOL, "the world page has %lld bytes, expected %zu", (long long)n, w->page_bytes);
    w->page = env->map_shared(fd, w->page_bytes, true);
    if (!w->page) return ls_fail(LS_NO_MEMORY, "the world page cannot be mapped (%zu KiB)", w->page_bytes >> 10);
    return ls_page_check(w->page, w->page_bytes, w->size);
}

ls_status ls_world_aborted(ls_world *w)
{
    char text[LS_ERROR_BYTES];
    ls_status s = LS_ABORTED;
    int rank = -1;
    bool known = ls_page_cause(w->page, &rank, &s, text, sizeof text);
    LS_FENCE_RELEASE(); /* our buffers are the caller's again: as in ls_page_blame */
    if (!known) return ls_fail(LS_ABORTED, "the job was aborted");
    /* these are everybody's: all sides report them as what they are */
    bool shared = s == LS_COLL_MISMATCH || s == LS_JOIN_TIMEOUT;
    return ls_fail(rank == w->rank || shared ? s : LS_ABORTED, "%s", text);
}

ls_status ls_world_verdict(ls_world *w, ls_status s)
{
    char text[LS_ERROR_BYTES];
    ls_status cause;
    int rank;
    if (s != LS_ABORTED || !w->by_hand || !ls_page_cause(w->page, &rank, &cause, text, sizeof text)) return s;
    return cause == LS_RANK_DIED && w->rank == (rank == 0 ? 1 : 0) ? ls_fail(cause, "%s", text) : s;
}

ls_status ls_world_check_server(ls_world *w)
{
    if (!w->host_store || w->server || w->threads || !ls_store_is_gone(w->host_store)) return LS_OK;
    ls_rank_slot *first = &w->page->rank[w->host_first];
    if (!w->by_hand) {
        ls_page_abort(w->page, LS_ABORT_BY_LAUNCHER, LS_ABORTED, "the launcher has ended");
    } else {
        if (atomic_load_explicit(&first->state, memory_order_acquire) == LS_RANK_DONE) return LS_OK;
        ls_page_died(w->page, w->host_first, atomic_load_explicit(&first->pid, memory_order_relaxed));
    }
    return ls_world_aborted(w);
}

/* Until every rank has said hello. */
static ls_status wait_for_all(ls_world *w, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    uint64_t nap = 100000;
    for (;;) {
        char missing[256];
        LS_TRY(ls_store_ask_missing(w->store, missing, sizeof missing, deadline_ns + 1000000000u));
        if (!missing[0]) return LS_OK;
        if (env->mono_ns() >= deadline_ns) {
            int n = 1;
            for (const char *p = missing; *p; p++) n += *p == ',';
            return ls_fail(LS_JOIN_TIMEOUT,
                           "%d of %d ranks joined within %.1f s, missing rank%s %s: start %s, or check WORLD_SIZE",
                           w->size - n, w->size, (double)w->opts.join_timeout_ns * 1e-9, n > 1 ? "s" : "", missing,
                           n > 1 ? "them" : "it");
        }
        env->wait(NULL, 0, NULL, 0, env->mono_ns() + nap);
        if (nap < 10000000) nap += nap / 2;
    }
}

static ls_status share_arenas(ls_world *w, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    LS_TRY(ls_arena_create(w->opts.arena_bytes, true, &w->ledger, &w->arena));
    w->peer_base[w->rank] = ls_arena_base(w->arena);
    w->peer_bytes[w->rank] = ls_arena_size(w->arena);
    if (w->size == 1) return LS_OK;

    char key[32];
    snprintf(key, sizeof key, "arena/%d", w->rank);
    LS_TRY(ls_store_set_fd(w->host_store, key, ls_arena_fd(w->arena), deadline_ns));
    for (int r = 0; r < w->size; r++) {
        if (r == w->rank || !ls_world_is_local(w, r)) continue;
        int fd;
        snprintf(key, sizeof key, "arena/%d", r);
        LS_TRY(ls_store_get_fd(w->host_store, key, &fd, deadline_ns));
        int64_t n = env->fd_size(fd);
        char *p = n > 0 ? env->map_shared(fd, (size_t)n, true) : NULL;
        env->close_fd(fd);
        if (!p)
            return ls_fail(LS_NO_MEMORY, "rank %d cannot map rank %d's arena of %lld bytes", w->rank, r, (long long)n);
        w->peer_base[r] = p;
        w->peer_bytes[r] = (size_t)n;
    }
    return LS_OK;
}

static int waiter_fds(void *arg, int *fds, int max)
{
    ls_world *w = arg;
    return w->tops && w->tops->fds ? w->tops->fds(w->tp, fds, max) : 0;
}

static ls_status finish_open(ls_world *w)
{
    const ls_env *env = ls_env_get();
    ls_rank_slot *slot = &w->page->rank[w->rank];
    int cpus;
    LS_TRY(ls_world_cores(w, &cpus));
    w->cpus = cpus;
    int runnable = w->local_size * (w->opts.progress == LS_PROGRESS_THREAD ? 2 : 1);
    w->waiter = (ls_waiter){ .abort_word = &w->page->abort_by, .parked = &slot->parked, .may_spin = cpus >= runnable,
                             .fds = waiter_fds, .fds_arg = w };
    w->generation = w->page->generation;
    atomic_store_explicit(&slot->pid, env->pid(), memory_order_relaxed);
    atomic_store_explicit(&slot->beat_ns, env->mono_ns(), memory_order_relaxed);
    ls_attach_offer(w);
    atomic_store_explicit(&slot->state, LS_RANK_RUNNING, memory_order_release);
    LS_TRY(ls_tracer_create(&slot->box, &w->tracer));

    if (!w->opts.transport) w->opts.transport = w->size == 1 ? "self" : w->nnodes == 1 ? "shm" : "mixed";
    const char *name = w->opts.transport;
    w->tops = ls_transport_find(name);
    if (!w->tops)
        return ls_fail(LS_BAD_CONFIG, "no transport named '%s': expected shm, tcp, mixed, self or fault:<one of them>",
                       name);
    const char *innermost = strrchr(name, ':') ? strrchr(name, ':') + 1 : name;
    if (w->opts.wire_bf16 && w->size > 1 && strcmp(innermost, "tcp") != 0 && strcmp(innermost, "mixed") != 0)
        return ls_fail(LS_BAD_CONFIG,
                       "comm.wire: bf16 is for connections between nodes, and transport '%s' has none: use mixed or "
                       "tcp, or comm.wire: f32",
                       name);
    w->waiter.wire = w->tops->fds != NULL;
    ls_status st = w->tops->open(w, &w->tp);
    ls_secret_wipe(w->link_key, sizeof w->link_key); /* every link that there will be has its keys */
    return st;
}

static void fill_defaults(ls_world *w, const ls_world_opts *opts)
{
    w->opts = opts ? *opts : (ls_world_opts){ 0 };
    const char *asked = w->opts.transport;
    if (w->size == 1 && (!asked || strncmp(asked, "fault", 5) != 0)) w->opts.transport = "self";
    if (!w->opts.arena_bytes) w->opts.arena_bytes = DEFAULT_ARENA;
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

/* Where rank 0's store is to be found over TCP. */
static ls_status find_node0(const ls_job_env *j, char addr[LS_ADDRESS_BYTES], int *port)
{
    char host[256];
    *port = j->port;
    if (!j->rendezvous) return ls_address_resolve(j->addr, addr);
    LS_TRY(ls_address_parse(j->rendezvous, host, sizeof host, port));
    return ls_address_resolve(host, addr);
}

/* Our own address and the one to listen on. Loopback and nothing else unless the job has several hosts. */
static ls_status find_address(ls_world *w, const ls_job_env *j, bool secret, const char *addr0)
{
    const char *told = w->opts.listen ? w->opts.listen : j->listen;
    const char *own = j->address ? j->address : addr0;
    if (!j->address && j->node > 0) /* as node 0 sees us */
        if (ls_env_get()->local_addr(ls_store_client_fd(w->store), w->address, LS_ADDRESS_BYTES) == 0) own = w->address;
    memmove(w->address, own, strlen(own) + 1);
    if (told) LS_TRY(ls_address_resolve(told, w->listen));
    else memcpy(w->listen, w->address, sizeof w->listen);
    return ls_address_check(w->listen, secret);
}

/* The first rank of a host without a launcher: makes its page, whose descriptor the store hands out, and its store. */
static ls_status serve(ls_world *w, const ls_job_env *j, const ls_store_caller *node0, uint64_t deadline_ns,
                       int *page_fd)
{
    int none = -1;
    ls_store_client *link = NULL;
    char text[LS_ADDRESS_BYTES + 16] = "";
    if (j->several && j->node > 0) {
        ls_store_caller agent = *node0;
        agent.agent = true;
        agent.rank = j->node;
        agent.size = 0;
        agent.key = NULL;
        LS_TRY(ls_store_connect(&agent, deadline_ns, &link, &none));
        snprintf(text, sizeof text, "%s, port %d", node0->tcp_addr, node0->tcp_port);
    }
    ls_status st = new_page(w->size, &w->page, page_fd);
    if (st < 0) {
        ls_store_disconnect(link);
        return st;
    }
    w->page_bytes = ls_page_bytes(w->size);
    const char *told = w->opts.listen ? w->opts.listen : j->listen;
    char listen[LS_ADDRESS_BYTES] = "127.0.0.1";
    ls_store_config c = { .unix_name = j->meeting, .no_secret = !j->secret_file, .nranks = w->size, .page_fd = *page_fd,
                          .page = w->page, .watch_ranks = true };
    memcpy(c.secret, node0->secret, sizeof c.secret);
    memcpy(c.job, node0->job, sizeof c.job);
    bool port = ls_job_has_port(j) && !j->several;
    if (port) c.tcp_port = j->port; /* a second job with this MASTER_PORT is kept out */
    if (j->several && j->node == 0) {
        c.tcp_port = j->port;
        c.tcp_addr = listen;
        memcpy(listen, node0->tcp_addr, sizeof listen);
        if (told) st = ls_address_resolve(told, listen);
    }
    if (st == LS_OK) st = ls_store_serve(&c, link, text, &w->server);
    else ls_store_disconnect(link);
    ls_secret_wipe(c.secret, sizeof c.secret);
    return st;
}

/* Who is on whose host: hosts are numbered by their lowest rank. */
static ls_status meet(ls_world *w)
{
    struct place {
        uint8_t host[sizeof w->page->host];
        int32_t local_rank;
    } mine = { .local_rank = w->local_rank }, all[LS_MAX_RANKS];
    memcpy(mine.host, w->page->host, sizeof mine.host);
    LS_TRY(ls_world_exchange(w, "host", &mine, sizeof mine, all));
    w->nnodes = 0;
    for (int r = 0; r < w->size; r++) {
        int q = 0;
        while (memcmp(all[q].host, all[r].host, sizeof mine.host) != 0) q++;
        w->node[r] = q == r ? w->nnodes++ : w->node[q];
    }
    int here = 0;
    for (int r = 0; r < w->size; r++) {
        if (!ls_world_is_local(w, r)) continue;
        here++;
        if (all[r].local_rank == 0) w->host_first = r;
    }
    if (here != w->local_size)
        return ls_fail(LS_CONFIG_MISMATCH, "%d ranks came on this node, but LOCAL_WORLD_SIZE is %d", here, w->local_size);
    return LS_OK;
}

static ls_status join_others(ls_world *w, const ls_job_env *j, const uint8_t secret[LS_SECRET_BYTES],
                             uint64_t deadline_ns, int *page_fd)
{
    const ls_env *env = ls_env_get();
    char addr0[LS_ADDRESS_BYTES] = "127.0.0.1";
    ls_store_caller who = { .secret = secret, .job = w->job, .rank = w->rank, .size = w->size };
    bool several = j->several || j->rendezvous;
    int fd = -1, none = -1;
    if (several && !(j->store && !j->rendezvous)) LS_TRY(find_node0(j, addr0, &who.tcp_port));
    who.tcp_addr = addr0;
    if (j->by_hand && w->local_rank == 0) LS_TRY(serve(w, j, &who, deadline_ns, page_fd));

    ls_store_caller here = who;
    here.unix_name = j->by_hand ? j->meeting : j->store;
    bool elsewhere = j->rendezvous || (j->by_hand && several && j->node > 0);
    here.key = elsewhere ? NULL : w->link_key;
    ls_status st = ls_store_connect(&here, deadline_ns, &w->host_store, &fd);
    if (st == LS_OK && !w->page) st = fd >= 0 ? map_page(w, fd) : ls_fail(LS_PROTOCOL, "the store sent no world page");
    if (fd >= 0) env->close_fd(fd);
    if (st < 0) return st;
    ls_store_watch(w->host_store, &w->page->abort_by);
    w->store = w->host_store;
    if (elsewhere) {
        who.key = w->link_key;
        w->store = NULL;
        LS_TRY(ls_store_connect(&who, deadline_ns, &w->store, &none));
        ls_store_watch(w->store, &w->page->abort_by);
    }
    LS_TRY(find_address(w, j, j->secret_fd >= 0 || j->secret_file, addr0));
    LS_TRY(wait_for_all(w, deadline_ns));
    if (several || j->several) LS_TRY(meet(w));
    return share_arenas(w, deadline_ns);
}

static ls_status join(ls_world *w, const ls_job_env *j)
{
    const ls_env *env = ls_env_get();
    uint64_t deadline = env->mono_ns() + w->opts.join_timeout_ns;
    const char *listen = w->opts.listen ? w->opts.listen : j->listen;
    if (listen) { /* said before anything is opened */
        char addr[LS_ADDRESS_BYTES];
        LS_TRY(ls_address_resolve(listen, addr));
        LS_TRY(ls_address_check(addr, j->secret_fd >= 0 || j->secret_file));
    }
    if (w->size == 1 && !j->store) {
        int page_fd = -1;
        ls_status st = new_page(1, &w->page, &page_fd);
        w->page_bytes = ls_page_bytes(1);
        if (page_fd >= 0) env->close_fd(page_fd);
        return st < 0 ? st : share_arenas(w, deadline);
    }
    uint8_t *secret = env->map_secret(LS_SECRET_BYTES);
    if (!secret) return ls_fail(LS_NO_MEMORY, "the job's secret");
    ls_door_job(j->run_id, w->job);
    int page_fd = -1;
    ls_status st = read_secret(j, secret);
    if (st == LS_OK) st = join_others(w, j, secret, deadline, &page_fd);
    ls_secret_wipe(secret, LS_SECRET_BYTES);
    env->unmap(secret, LS_SECRET_BYTES);
    if (page_fd >= 0) env->close_fd(page_fd); /* every rank of this host has it */
    return st;
}

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
    fill_defaults(w, opts);
    read_log_level();
    ls_context_get()->rank = w->rank;
    if (j.source != LS_JOB_ALONE)
        ls_log(LS_LOG_INFO, "rank %d of %d from %s%s%s", j.rank, j.size, w->source_text,
               j.by_hand ? "; the ranks meet at the Unix socket " : "", j.by_hand ? j.meeting : "");
    ls_status st = join(w, &j);
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
    w->source_text = "the program: ranks are threads";
    w->page = h->page;
    fill_defaults(w, opts);
    ls_context_get()->rank = rank;
    w->arena = h->arena[rank];
    for (int r = 0; r < h->size; r++) {
        w->peer_base[r] = ls_arena_base(h->arena[r]);
        w->peer_bytes[r] = ls_arena_size(h->arena[r]);
    }
    uint64_t deadline = env->mono_ns() + w->opts.join_timeout_ns;
    int fd = -1;
    ls_status st = LS_OK;
    ls_store_caller who = { .unix_name = h->store_name, .secret = h->secret, .rank = rank, .size = h->size,
                            .key = w->link_key };
    if (h->size > 1) st = ls_store_connect(&who, deadline, &w->store, &fd);
    w->host_store = w->store;
    memcpy(w->address, "127.0.0.1", sizeof "127.0.0.1");
    memcpy(w->listen, w->address, sizeof "127.0.0.1");
    if (fd >= 0) env->close_fd(fd);
    if (st == LS_OK && h->size > 1) {
        ls_store_watch(w->store, &w->page->abort_by);
        st = wait_for_all(w, deadline);
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
    if (!w->threads) {
        for (int r = 0; r < w->size; r++)
            if (r != w->rank && w->peer_base[r]) env->unmap(w->peer_base[r], w->peer_bytes[r]);
        ls_arena_destroy(w->arena);
        if (w->page) env->unmap(w->page, w->page_bytes);
    }
    ls_context_get()->rank = -1;
    ls_secret_wipe(w->link_key, sizeof w->link_key);
    free(w);
}

/* --- small things ---------------------------------------------------------------- */

int ls_world_rank(const ls_world *w) { return w->rank; }
int ls_world_size(const ls_world *w) { return w->size; }
int ls_world_local_rank(const ls_world *w) { return w->local_rank; }
int ls_world_local_size(const ls_world *w) { return w->local_size; }
const char *ls_world_source(const ls_world *w) { return w->source_text; }
ls_group *ls_world_group(ls_world *w) { return w ? w->group : NULL; }
ls_tracer *ls_world_tracer(ls_world *w) { return w->tracer; }
ls_ledger *ls_world_ledger(ls_world *w) { return &w->ledger; }
const char *ls_world_transport(const ls_world *w) { return w->opts.transport; }

void ls_world_at(ls_world *w, uint32_t step, uint16_t micro_batch)
{
    ls_rank_slot *slot = &w->page->rank[w->rank];
    atomic_store_explicit(&slot->step, step, memory_order_relaxed);
    atomic_store_explicit(&slot->micro_batch, micro_batch, memory_order_relaxed);
    ls_tracer_at(w->tracer, step, micro_batch);
}

ls_status ls_world_abort(ls_world *w, ls_status s)
{
    char text[LS_ERROR_BYTES];
    snprintf(text, sizeof text, "rank %d: %s", w->rank, ls_last_error());
    if (s != LS_ABORTED) ls_page_abort(w->page, 1 + (uint32_t)w->rank, s, text);
    w->failed = true;
    return s;
}

ls_status ls_alloc(ls_world *w, size_t nbytes, ls_mem_kind kind, void **out)
{
    ls_status st = ls_arena_alloc(w->arena, nbytes, kind, out);
    return st < 0 ? ls_while(st, "rank %d allocating registered memory (arena_bytes of ls_world_opts sets the size)",
                             w->rank)
                  : st;
}

ls_status ls_world_exchange(ls_world *w, const char *key, const void *mine, size_t n, void *all)
{
    if (w->size == 1) {
        memcpy(all, mine, n);
        return LS_OK;
    }
    uint64_t deadline = ls_env_get()->mono_ns() + w->opts.join_timeout_ns;
    char name[LS_STORE_KEY_MAX];
    snprintf(name, sizeof name, "%s/%d", key, w->rank);
    LS_TRY(ls_store_set(w->store, name, mine, n, deadline));
    for (int r = 0; r < w->size; r++) {
        size_t got = n;
        snprintf(name, sizeof name, "%s/%d", key, r);
        LS_TRY(ls_store_get(w->store, name, (char *)all + (size_t)r * n, &got, deadline));
        if (got != n) return ls_fail(LS_PROTOCOL, "rank %d provided %zu bytes for '%s', expected %zu", r, got, key, n);
    }
    return LS_OK;
}

ls_status ls_world_trace_export(ls_world *w, uint32_t first_step, uint32_t last_step, const char *path)
{
    const ls_blackbox *box[LS_MAX_RANKS];
    for (int r = 0; r < w->size; r++) box[r] = ls_world_is_local(w, r) ? &w->page->rank[r].box : NULL;
    return ls_trace_export(box, w->size, first_step, last_step, path);
}
