/* nodes.c -- the launchers of a job meet: how many ranks each has, and who is rank 0.
 *
 * Node 0's launcher serves the job's store over TCP, behind the door; the others come as agents
 * (meet/agent.h), say how many ranks they have, and wait until all have. Ranks are numbered by node. A job on
 * one machine has none of this: only its own page and store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/impl.h"

#define JOIN_NS 60000000000ull
#define LAST_CALL_NS 30000000000ull  /* for further nodes, once there are enough: torchrun's */
#define AGAIN_CALL_NS 3000000000ull  /* the same of a later generation: those that are left know when to come */
#define GRANT_NS 60000000000ull      /* for node 0 to say who is in, at least */

const char *ls_job_host(const ls_job *j, int rank)
{
    int end = 0;
    for (int i = 0; i < j->nnodes; i++) {
        end += (int)j->node[i].nproc;
        if (rank < end) return j->node[i].host;
    }
    return NULL;
}

/* --- what every job has ----------------------------------------------------------------------- */

static ls_status make_page(ls_job *j) { return ls_page_create(j->world, j->gens->number, &j->page, &j->page_fd); }

/* Made here on one machine, read from the file on several; handed down in a memory file. */
static ls_status make_secret(ls_job *j)
{
    const ls_env *env = ls_env_get();
    if (j->nnodes == 1) env->random(j->secret, sizeof j->secret);
    else if (j->o->secret_file) LS_TRY(ls_secret_read(j->o->secret_file, j->secret));
    else
        return ls_fail(LS_AUTH_FAILED, "a job of %d nodes needs a secret, the same file on each: make one with `lockstep "
                                       "secret new FILE`, copy it to the others, and give --secret-file FILE",
                       j->nnodes);
    j->secret_fd = env->memfd("lockstep-secret", sizeof j->secret);
    if (j->secret_fd < 0 || env->write(j->secret_fd, j->secret, sizeof j->secret) != (ssize_t)sizeof j->secret)
        return ls_fail(LS_NO_MEMORY, "no memory file for the job's secret");
    return LS_OK;
}

/* The store of this machine: a Unix socket, and for node 0 of several a port. */
static ls_status make_store(ls_job *j, int nranks)
{
    uint64_t r[2];
    ls_env_get()->random(r, sizeof r);
    snprintf(j->store_name, sizeof j->store_name, "lockstep-%016llx%016llx", (unsigned long long)r[0],
             (unsigned long long)r[1]);
    ls_store_config c = { .unix_name = j->store_name, .generation = j->gens->number, .nranks = nranks,
                          .page_fd = j->page_fd, .page = j->page,
                          .silent_ns = j->o->node_timeout_ns };
    memcpy(c.secret, j->secret, sizeof c.secret);
    memcpy(c.job, j->job, sizeof c.job);
    if (j->nnodes > 1 && j->o->node_rank == 0) {
        c.nnodes = j->nnodes;
        c.tcp_addr = j->listen;
        c.tcp_port = j->o->port;
    }
    ls_status st = ls_store_create(&c, &j->store);
    ls_secret_wipe(c.secret, sizeof c.secret);
    ls_secret_wipe(j->secret, sizeof j->secret); /* the store has it, and the ranks' memory file */
    return st;
}

/* --- several machines --------------------------------------------------------------------------- */

static ls_status introduce(ls_job *j, ls_job_node *mine)
{
    const ls_env *env = ls_env_get();
    *mine = (ls_job_node){ .nproc = (uint32_t)j->o->nproc, .pid = env->pid(), .generation = j->gens->number,
                           .restarts = (uint32_t)j->gens->restarts };
    if (env->hostname(mine->host, sizeof mine->host) < 0) snprintf(mine->host, sizeof mine->host, "?");
    if (j->o->node_rank > 0) return LS_OK;
    int port = env->free_port();
    if (port < 0) return ls_fail(LS_SYSTEM, "no free port for the ranks' own rendezvous: %s", strerror(-port));
    mine->master_port = (uint32_t)port;
    return LS_OK;
}

/* What is said of node i. */
static ls_status take_node(ls_job *j, int i, const ls_job_node *said)
{
    ls_job_node *o = &j->node[i];
    *o = *said;
    if (o->nproc < 1 || o->nproc > LS_HOST_MOST_RANKS || o->master_port > 65535) {
        *o = (ls_job_node){ 0 };
        return ls_fail(LS_PROTOCOL, "node %d introduced itself wrongly: do all nodes run the same build?", i);
    }
    o->host[sizeof o->host - 1] = 0;
    ls_text_printable(o->host);
    return LS_OK;
}

static ls_status nodes_late(const ls_job *j, uint64_t waited_ns)
{
    ls_text who = { 0 };
    int n = 0;
    for (int i = 0; i < j->nnodes; i++) {
        if (j->node[i].nproc) continue;
        ls_text_add(&who, "%s%d", n ? ", " : "", i);
        n++;
    }
    ls_status st = ls_fail(LS_JOIN_TIMEOUT, "%d of %d nodes joined within %.1f s, missing node%s %s: start %s with the same "
                                            "flags and its own --node-rank, or check --nnodes",
                           j->nnodes - n, j->nnodes, (double)waited_ns * 1e-9, n > 1 ? "s" : "", ls_text_str(&who),
                           n > 1 ? "them" : "it");
    ls_text_free(&who);
    return st;
}

/* Those that have introduced themselves since the last look. */
static ls_status look_who_came(ls_job *j, int *missing)
{
    for (int i = 0; i < j->nnodes; i++) {
        char key[32];
        size_t n;
        ls_job_node said;
        snprintf(key, sizeof key, "node/%d", i);
        const void *value = j->node[i].nproc ? NULL : ls_store_look(j->store, key, &n);
        if (!value) continue;
        if (n != sizeof said) return ls_fail(LS_PROTOCOL, "node %d introduced itself wrongly: do all nodes run the same build?", i);
        memcpy(&said, value, sizeof said);
        LS_TRY(take_node(j, i, &said));
        --*missing;
    }
    return LS_OK;
}

/* The job begins with those that are here: they hear who that is. */
static ls_status close_list(ls_job *j)
{
    for (int i = 1; i < j->nnodes; i++)
        if (!j->node[i].nproc) ls_store_exclude(j->store, i);
    return ls_store_put(j->store, "nodes", j->node, (size_t)j->nnodes * sizeof *j->node);
}

/* As node 0: serves until every node has introduced itself, or enough of them have and no other came for a while. */
static ls_status gather(ls_job *j, const ls_job_node *mine, uint64_t since_ns, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    const ls_launch_opts *o = j->o;
    const int spare = o->least_nnodes ? j->nnodes - o->least_nnodes : 0;
    const uint64_t last_call = o->last_call_ns ? o->last_call_ns : j->gens->number > 1 ? AGAIN_CALL_NS : LAST_CALL_NS;
    int missing = j->nnodes, before = missing;
    uint64_t enough_ns = 0;
    LS_TRY(make_store(j, 0));
    LS_TRY(ls_store_put(j->store, "node/0", mine, sizeof *mine));
    for (;;) {
        LS_TRY(ls_store_step(j->store, env->mono_ns()));
        LS_TRY(look_who_came(j, &missing));
        const uint64_t now = env->mono_ns();
        if (missing < before) enough_ns = now + last_call;
        before = missing;
        if (missing == 0 || (missing <= spare && now >= enough_ns)) return close_list(j);
        if (now >= deadline_ns && missing > spare) return nodes_late(j, now - since_ns);
        int n;
        ls_pollfd *fds = ls_store_fds(j->store, 0, &n);
        env->wait(NULL, 0, fds, n, now + 50000000u);
    }
}

/* Who is in the job, from node 0; LS_AGAIN: it has begun without this node. */
static ls_status read_list(ls_job *j, ls_store_client *link, uint64_t since_ns, uint64_t deadline_ns)
{
    ls_job_node *all = calloc((size_t)j->nnodes, sizeof *all);
    size_t n = (size_t)j->nnodes * sizeof *all;
    if (!all) return ls_fail(LS_NO_MEMORY, "a list of %d nodes", j->nnodes);
    ls_status st = ls_store_get(link, "nodes", all, &n, deadline_ns);
    if (st == LS_JOIN_TIMEOUT)
        st = ls_fail(LS_JOIN_TIMEOUT, "node 0 (%s) waits for other nodes, after %.1f s: its launcher says which are missing", j->node0,
                     (double)(ls_env_get()->mono_ns() - since_ns) * 1e-9);
    if (st == LS_PEER_RESET) st = LS_AGAIN; /* or it has ended: the next try tells */
    if (st == LS_OK && n != (size_t)j->nnodes * sizeof *all)
        st = ls_fail(LS_PROTOCOL, "node 0 told of %zu bytes of nodes: do all nodes run the same build, with the same --nnodes?", n);
    if (st == LS_OK && !all[j->o->node_rank].nproc) st = LS_AGAIN;
    for (int i = 0; st == LS_OK && i < j->nnodes; i++)
        if (all[i].nproc) st = take_node(j, i, &all[i]);
    free(all);
    return st;
}

/* As another node: goes to node 0. *link stays open. */
static ls_status go_there(ls_job *j, const ls_job_node *mine, const char *addr0, uint64_t since_ns,
                          uint64_t deadline_ns, ls_store_client **link)
{
    int fd = -1;
    char key[32];
    ls_store_caller who = { .tcp_addr = addr0, .tcp_port = j->o->port, .secret = j->secret, .job = j->job,
                            .agent = true, .again = j->gens->number > 1, .rank = j->o->node_rank, .size = j->nnodes };
    snprintf(key, sizeof key, "node/%d", j->o->node_rank);
    for (;;) {
        LS_TRY(ls_store_connect(&who, deadline_ns, link, &fd));
        /* a job that waits for nodes has its own limit, and one that is put off has waited longer */
        const uint64_t grant = ls_env_get()->mono_ns() + GRANT_NS, until = deadline_ns > grant ? deadline_ns : grant;
        ls_status st = ls_store_set(*link, key, mine, sizeof *mine, until);
        if (st == LS_OK) st = read_list(j, *link, since_ns, until);
        if (st == LS_PEER_RESET) st = LS_AGAIN;
        if (st == LS_OK) break;
        ls_store_disconnect(*link);
        *link = NULL;
        if (st < 0) return st;
        if (ls_env_get()->mono_ns() >= deadline_ns) deadline_ns = ls_env_get()->mono_ns() + GRANT_NS;
    }
    j->gens->number = j->node[0].generation;
    j->gens->restarts = (int)j->node[0].restarts;
    return LS_OK;
}

static ls_status meet_others(ls_job *j, ls_store_client **link)
{
    const ls_env *env = ls_env_get();
    const ls_launch_opts *o = j->o;
    ls_job_node mine;
    char addr0[LS_ADDRESS_BYTES], local[LS_ADDRESS_BYTES] = "";
    uint64_t now = env->mono_ns(), deadline = now + (o->join_timeout_ns ? o->join_timeout_ns : JOIN_NS);
    LS_TRY(ls_address_resolve(o->master_addr, addr0));
    snprintf(j->node0, sizeof j->node0, strchr(addr0, ':') ? "[%s]:%d" : "%s:%d", addr0, o->port);
    memcpy(j->address, addr0, sizeof j->address);
    memcpy(j->listen, addr0, sizeof j->listen);
    if (o->listen) LS_TRY(ls_address_resolve(o->listen, j->listen));
    if (o->local_addr) LS_TRY(ls_address_resolve(o->local_addr, local));
    if (o->node_rank == 0 && *local && strcmp(local, addr0) != 0 && !o->listen)
        return ls_fail(LS_USAGE, "node 0 listens on --master-addr %s only: to be reached at --local-addr %s, give it --listen %s or "
                                 "--listen 0.0.0.0", o->master_addr, o->local_addr, local);
    if (*local) memcpy(j->address, local, sizeof j->address);
    LS_TRY(introduce(j, &mine));
    if (o->node_rank == 0) {
        LS_TRY(gather(j, &mine, now, deadline));
    } else {
        LS_TRY(go_there(j, &mine, addr0, now, deadline, link));
        if (!*local && env->local_addr(ls_store_client_fd(*link), j->address, sizeof j->address) < 0)
            return ls_fail(LS_SYSTEM, "no address of this node on the way to %s", j->node0);
        if (!o->listen) memcpy(j->listen, j->address, sizeof j->listen);
    }
    j->world = j->nhere = 0;
    for (int i = 0; i < j->nnodes; i++) {
        if (i == o->node_rank) {
            j->first = j->world;
            j->group_rank = j->nhere;
        }
        j->world += (int)j->node[i].nproc;
        j->nhere += j->node[i].nproc > 0;
    }
    if (j->world > LS_WORLD_MOST_RANKS)
        return ls_fail(LS_USAGE, "%d ranks on %d nodes: a world has at most %d", j->world, j->nhere, LS_WORLD_MOST_RANKS);
    j->master_port = (int)j->node[0].master_port;
    return LS_OK;
}

ls_status ls_job_meet(ls_job *j)
{
    const ls_launch_opts *o = j->o;
    char listen[LS_ADDRESS_BYTES];
    if (o->listen) { /* said before anything is opened */
        LS_TRY(ls_address_resolve(o->listen, listen));
        LS_TRY(ls_address_check(listen, o->secret_file != NULL));
    }
    LS_TRY(make_secret(j));
    ls_door_job(j->run_id, j->job);
    j->world = o->nproc;
    j->nhere = 1;
    if (j->nnodes == 1) {
        LS_TRY(make_page(j));
        return make_store(j, j->world);
    }
    ls_store_client *link = NULL;
    ls_status st = meet_others(j, &link);
    if (st == LS_OK) st = make_page(j);
    if (st == LS_OK && !link) st = ls_store_begin(j->store, j->world, j->page, j->page_fd);
    else if (st == LS_OK) st = make_store(j, j->world);
    if (st == LS_OK && link) return ls_agent_create(link, j->page, j->store, j->node0, o->node_timeout_ns, &j->agent);
    if (st < 0) ls_store_disconnect(link);
    return st;
}
