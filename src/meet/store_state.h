/* store_state.h -- the state of the rendezvous store: for store.c (connections, silence) and store_request.c (requests,
 * keys). */
#ifndef LS_MEET_STORE_STATE_H
#define LS_MEET_STORE_STATE_H
#include "meet/store.h"
#include "meet/store_wire.h"

#define FIRST_BEAT_NS 5000000000ull /* an agent has pages to make before it tells anything */

enum stage { HELLO, REQUEST, BODY, DESCRIPTOR };

typedef struct conn {
    int fd;
    bool unix_socket, waiting, bye;
    ls_door door;         /* tcp */
    char from[46];        /* address of a tcp connection */
    int rank;             /* -1 until its hello is accepted; the node of an agent */
    bool agent;
    bool put_off;         /* one of the job's, which comes too early or too late */
    uint64_t deadline_ns; /* of the hello */
    enum stage stage;
    char *in;             /* owned, of nin bytes */
    size_t nin, have;
    char *out;            /* owned: a reply on its way; NULL: none */
    size_t nout, at;
    const char *body;     /* borrowed: nbody bytes that follow it; NULL: none */
    size_t nbody;
    int out_fd;           /* sent after it; borrowed from the table; -1: none */
    bool close_after;
} conn;

typedef struct entry {
    char key[LS_STORE_KEY_MAX + 1];
    void *value;          /* owned */
    size_t n;
    int fd;               /* owned; -1: a plain value */
} entry;

/* What all ranks tell one another: ls_store_exchange. */
typedef struct exchange {
    char key[LS_STORE_KEY_MAX + 1];
    char *all;            /* owned: [nranks][n] */
    size_t n;
    ls_rank_set told;     /* owned: those who have said theirs */
    int ntold;
    struct exchange *next;
} exchange;

/* Another host, as its agent tells. */
typedef struct node {
    bool here, left, told; /* told: it knows of the job's cause */
    bool waits;            /* it came when the job had begun without it */
    int32_t pid;           /* of the agent */
    char host[LS_STORE_HOST_BYTES];
    uint64_t beat_ns;      /* when it was heard of last */
} node;

struct ls_store {
    ls_store_config c;
    uint8_t psk[LS_NOISE_KEY_BYTES]; /* of the door */
    uint8_t key[LS_NOISE_KEY_BYTES]; /* that the job's links derive theirs from */
    int listen_unix, listen_tcp, port;
    conn *conn;                /* owned, secret memory: doors have keys */
    int nconns, conn_cap;
    ls_pollfd *fds;            /* owned: of the last ls_store_fds */
    int fds_cap;
    entry *entry;              /* owned */
    int nentries, cap;
    exchange *exchange;        /* owned, a list */
    int32_t *pid;              /* owned, [nranks]: of the ranks that said hello; 0: not yet */
    ls_rank_set left, local;   /* ranks that said goodbye; that came over the Unix socket */
    node *node;                /* owned, [nnodes] */
    int nnodes;
    bool begun;                /* with the nodes that had come: ls_store_begin */
    uint64_t step_ns;          /* when we last looked */
    uint64_t rejected;
};

/* Reads what is there and acts on it. False: the connection is over. */
bool ls_store_read_requests(ls_store *s, conn *c);

/* Sends as much of the reply as the socket takes. False: the connection is over. */
bool ls_store_flush(conn *c);

/* Bytes of a connection, decrypted; -EAGAIN: there are none yet. */
ssize_t ls_store_recv(conn *c, void *p, size_t n);

#endif
