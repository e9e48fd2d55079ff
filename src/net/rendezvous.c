/* rendezvous.c -- how a process meets the other ranks of its job: the store, its host's page, who is on which host, and
 * the arenas that they share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/open.h"

/* All zero where the job has none. */
static ls_status read_secret(const ls_job_env *j, uint8_t secret[LS_SECRET_BYTES])
{
    memset(secret, 0, LS_SECRET_BYTES);
    if (j->secret_fd >= 0) return ls_secret_read_fd(j->secret_fd, secret);
    return j->secret_file ? ls_secret_read(j->secret_file, secret) : LS_OK;
}

#define SHORT_NAP_NS 100000u
#define LONG_NAP_NS  100000000u
#define NAP_PART     10 /* of the time that it has waited: a rank that predicts first must not be disturbed for seconds */

ls_status ls_world_wait_for_all(ls_world *w, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    const uint64_t began = env->mono_ns();
    for (;;) {
        char missing[256];
        int n;
        LS_TRY(ls_store_ask_missing(w->store, missing, sizeof missing, &n, deadline_ns + 1000000000u));
        if (n == 0) return LS_OK;
        const uint64_t now = env->mono_ns(), part = (now - began) / NAP_PART;
        const uint64_t nap = part < SHORT_NAP_NS ? SHORT_NAP_NS : part < LONG_NAP_NS ? part : LONG_NAP_NS;
        if (now >= deadline_ns)
            return ls_fail(LS_JOIN_TIMEOUT,
                           "%d of %d ranks joined within %.1f s, missing rank%s %s: start %s, or check WORLD_SIZE",
                           w->size - n, w->size, (double)w->opts.join_timeout_ns * 1e-9, n > 1 ? "s" : "", missing,
                           n > 1 ? "them" : "it");
        env->wait(NULL, 0, NULL, 0, now + nap < deadline_ns ? now + nap : deadline_ns);
    }
}

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
    ls_status st = ls_page_create(w->size, LS_STORE_GENERATION, &w->page, page_fd);
    if (st < 0) {
        ls_store_disconnect(link);
        return st;
    }
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

typedef struct place {
    uint8_t host[sizeof ((ls_world_page *)0)->host];
    int32_t local_rank;
} place;

/* Who is on whose host: hosts are numbered by their lowest rank. */
static ls_status take_places(ls_world *w, const place *all)
{
    w->nnodes = 0;
    for (int r = 0; r < w->size; r++) {
        int q = r > 0 && memcmp(all[r - 1].host, all[r].host, sizeof all->host) == 0 ? r - 1 : 0; /* mostly */
        while (memcmp(all[q].host, all[r].host, sizeof all->host) != 0) q++;
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

static ls_status meet(ls_world *w)
{
    place mine = { .local_rank = w->local_rank }, *all = calloc((size_t)w->size, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "where %d ranks are", w->size);
    memcpy(mine.host, w->page->host, sizeof mine.host);
    ls_status st = ls_world_exchange(w, "host", &mine, sizeof mine, all);
    if (st == LS_OK) st = take_places(w, all);
    free(all);
    return st;
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
    if (st == LS_OK && !w->page)
        st = fd >= 0 ? ls_page_map(fd, w->size, &w->page) : ls_fail(LS_PROTOCOL, "the store sent no world page");
    if (fd >= 0) env->close_fd(fd);
    if (st < 0) return st;
    ls_store_watch(w->host_store, &w->page->abort_by);
    w->store = w->host_store;
    if (elsewhere) {
        who.key = w->link_key;
        who.generation = w->page->generation;
        w->store = NULL;
        LS_TRY(ls_store_connect(&who, deadline_ns, &w->store, &none));
        ls_store_watch(w->store, &w->page->abort_by);
    }
    LS_TRY(find_address(w, j, j->secret_fd >= 0 || j->secret_file, addr0));
    LS_TRY(ls_world_wait_for_all(w, deadline_ns));
    if (several || j->several) LS_TRY(meet(w));
    return ls_world_share_arenas(w, deadline_ns);
}

ls_status ls_world_rendezvous(ls_world *w, const ls_job_env *j)
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
        ls_status st = ls_page_create(1, LS_STORE_GENERATION, &w->page, &page_fd);
        if (page_fd >= 0) env->close_fd(page_fd);
        return st < 0 ? st : ls_world_share_arenas(w, deadline);
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
