/* store.h -- rendezvous: a small key-value server that the ranks of a job meet at.
 *
 * A state machine without a thread of its own: the launcher drives it from its
 * event loop, a job without a launcher from one thread of rank 0. It listens on
 * an abstract Unix socket, where the user id decides and then the job's secret, and,
 * if told, on a TCP port, behind the door (meet/door.h).
 *
 * A job on several hosts has one store on each: the ranks of a host meet at theirs,
 * for memory and descriptors, and all of them at node 0's, over TCP. There, too, each
 * other host's agent (meet/agent.h) tells every 100 ms what its ranks do.
 */
#ifndef LS_MEET_STORE_H
#define LS_MEET_STORE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/env.h"
#include "base/rank_set.h"
#include "lockstep/status.h"
#include "meet/door.h"
#include "meet/page.h"
#include "meet/secret.h"

#define LS_STORE_KEY_MAX 128
#define LS_STORE_VALUE_MAX 65536
#define LS_STORE_STRANGERS LS_DOOR_STRANGERS /* unauthenticated connections at once */
#define LS_STORE_HELLO_NS LS_DOOR_NS         /* time to say hello */
#define LS_STORE_HOST_BYTES 64
/* A host not heard of for so long is gone, unless the launcher was told another time. A connection that closes is
 * noticed at once, so this is for hosts and networks that stop without a word; a launcher that is stopped for a moment,
 * or has no core for itself for one, must not end the job. */
#define LS_STORE_SILENT_NS 5000000000ull
#define LS_STORE_GENERATION 1u            /* of a job that was never restarted */

_Static_assert(LS_SECRET_BYTES == LS_NOISE_KEY_BYTES, "a secret is a key to derive keys from");

typedef struct ls_store ls_store;

typedef struct ls_store_config {
    const char *unix_name; /* abstract name */
    const char *tcp_addr;  /* numeric; NULL: 127.0.0.1. Any other needs a secret: else LS_AUTH_FAILED */
    int tcp_port;          /* also listen on this port; 0: no, -1: any free one */
    uint8_t secret[LS_SECRET_BYTES];
    bool no_secret;        /* ranks started by hand: the user id alone decides, tcp admits nobody */
    uint8_t job[LS_DOOR_JOB_BYTES]; /* its name: ls_door_job */
    uint32_t generation;   /* ranks of another one are refused; 0: LS_STORE_GENERATION */
    int nnodes;            /* hosts that agents come from; 0: nobody counts them */
    uint64_t silent_ns;    /* silence after which a host is gone; 0: LS_STORE_SILENT_NS */
    int nranks;            /* 0: not known yet (ls_store_begin) */
    int page_fd;           /* handed to every rank on a Unix socket; borrowed; -1: none */
    ls_world_page *page;   /* borrowed; a rank's lost connection aborts through it when watch_ranks */
    bool watch_ranks;      /* nobody else sees the ranks die (no launcher) */
} ls_store_config;

/* Listens. LS_PORT_BUSY names the port and its holder. */
ls_status ls_store_create(const ls_store_config *c, ls_store **out);
void ls_store_destroy(ls_store *s);
int ls_store_port(const ls_store *s); /* the bound TCP port; 0: none */
/* How many ranks there are, where that was not known; the page is borrowed. From here on a silent agent is gone.
 * LS_NO_MEMORY */
ls_status ls_store_begin(ls_store *s, int nranks, ls_world_page *page, int page_fd);
/* From the serving side: sets a key (LS_NO_MEMORY), and looks at one (NULL: not set; borrowed until the next step). */
ls_status ls_store_put(ls_store *s, const char *key, const void *value, size_t n);
const void *ls_store_look(ls_store *s, const char *key, size_t *n);
/* What is said of a host that was silent for so long, into buf. */
const char *ls_store_silence(uint64_t silent_ns, char *buf, size_t n);
/* Ranks that came over the Unix socket: those of this host. */
const ls_rank_set *ls_store_local(const ls_store *s);
/* Agents that have come and have not said goodbye; and of them, those that know of the job's cause by now. */
int ls_store_agents(const ls_store *s);
/* Nodes that came when the job had begun without them, and want to be in its next generation. */
int ls_store_waiting(const ls_store *s);
/* Before the job begins: it begins without this node, even if it has come. */
void ls_store_exclude(ls_store *s, int node);
int ls_store_agents_told(const ls_store *s);

/* For an event loop: the *n descriptors to wait for now, borrowed until the next call, with room after them for `more`
 * of the caller's (NULL: no memory for them, and *n is 0); then, after a wait, moves everything that is ready. `now_ns`
 * enforces hello deadlines. */
ls_pollfd *ls_store_fds(ls_store *s, int more, int *n);
ls_status ls_store_step(ls_store *s, uint64_t now_ns);

/* Which ranks have not said hello yet: "2, 3, 7-9" into buf; their number. */
int ls_store_missing(const ls_store *s, char *buf, size_t n);
/* Ranks whose connection is open. */
int ls_store_connected(const ls_store *s);
/* Strangers dropped so far. */
uint64_t ls_store_rejected(const ls_store *s);

/* --- a rank's side ---------------------------------------------------------- */

typedef struct ls_store_client ls_store_client;

/* Who comes, and to whom. */
typedef struct ls_store_caller {
    const char *unix_name;   /* abstract; NULL: tcp_addr (numeric) and tcp_port */
    const char *tcp_addr;
    int tcp_port;
    const uint8_t *secret;   /* [LS_SECRET_BYTES] */
    const uint8_t *job;      /* [LS_DOOR_JOB_BYTES]; tcp only */
    uint32_t generation;     /* of a rank; 0: LS_STORE_GENERATION. An agent need not know it */
    bool agent;              /* then rank and size are a node's number and the number of nodes, 0: unknown */
    bool again;              /* it was let in before: a store that is closing may refuse it, so it tries again */
    int rank, size;
    uint8_t *key;            /* NULL, or [LS_NOISE_KEY_BYTES]: what the links of this job derive their keys from */
} ls_store_caller;

/* Connects (retrying until the deadline: ranks may come before the store; an agent that finds its job without it, as
 * long as that job lasts), says
 * hello, receives the page's descriptor (*page_fd, -1 over tcp; the caller closes).
 * LS_JOIN_TIMEOUT, LS_AUTH_FAILED, LS_CONFIG_MISMATCH (wrong world size, rank twice). */
ls_status ls_store_connect(const ls_store_caller *who, uint64_t deadline_ns, ls_store_client **out, int *page_fd);
void ls_store_disconnect(ls_store_client *c);
int ls_store_client_fd(const ls_store_client *c);
/* The connection has ended. Cheap, not free. */
bool ls_store_is_gone(ls_store_client *c);
/* From here on a wait for the store ends with LS_ABORTED when the word (borrowed) is not 0. */
void ls_store_watch(ls_store_client *c, const _Atomic uint32_t *abort_word);

ls_status ls_store_set(ls_store_client *c, const char *key, const void *value, size_t n, uint64_t deadline_ns);
/* Waits until the key is set. *n: capacity in, size out (LS_INVALID if larger).
 * LS_JOIN_TIMEOUT at the deadline; the connection is of no more use then. */
ls_status ls_store_get(ls_store_client *c, const char *key, void *value, size_t *n, uint64_t deadline_ns);
/* Every rank of the job calls this once for a key, each with n bytes, and all get everybody's, [size][n] at `all`, once
 * the last one has called. LS_PROTOCOL for a rank whose n is another one's. The deadline as for ls_store_get. */
ls_status ls_store_exchange(ls_store_client *c, const char *key, const void *mine, size_t n, int size, void *all,
                            uint64_t deadline_ns);
/* Descriptors, by key; Unix sockets only. The getter owns what it gets. */
ls_status ls_store_set_fd(ls_store_client *c, const char *key, int fd, uint64_t deadline_ns);
ls_status ls_store_get_fd(ls_store_client *c, const char *key, int *fd, uint64_t deadline_ns);
/* Which ranks have not joined: "2, 3" into buf, "" when all have; and how many. */
ls_status ls_store_ask_missing(ls_store_client *c, char *buf, size_t n, int *missing, uint64_t deadline_ns);
/* Says that the coming disconnect is in order. */
ls_status ls_store_bye(ls_store_client *c);

/* A store served by a thread of this process. node0: NULL, or this host's link to the store of node 0, which is taken
 * over, also on failure; text says where that is. */
struct ls_store_server;
ls_status ls_store_serve(const ls_store_config *c, ls_store_client *node0, const char *text,
                         struct ls_store_server **out);
void ls_store_serve_stop(struct ls_store_server *s); /* NULL is fine; waits up to 2 s for the ranks to leave */

#endif
