/* snapshot_copy.c -- each rank's files of a snapshot to the next node.
 *
 * Rank i of a node sends to rank i modulo the number of ranks on the next node. All move in rounds: in each a rank
 * sends the next piece of its files and receives the next one of every rank that sends to it, all at once, so that no
 * order can deadlock. Sizes are in the manifest, which all ranks have; so each knows when it is through.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/commit.h"
#include "base/env.h"
#include "ckpt/bytes.h"
#include "ckpt/snapshot.h"

#define PIECE ((size_t)4 << 20)

/* The files of one rank, one after another, on their way. */
typedef struct stream {
    int rank, file;    /* whose; which of them */
    uint64_t at;       /* of the file */
    char *buffer;      /* owned, as the next two: a piece */
    int fd;            /* of the sender's file; -1 */
    ls_commit *out;    /* the receiver's; NULL */
} stream;

typedef struct copying {
    const ls_snapshots *n;
    const ls_saving *v;
    stream *s;         /* owned: [count], the first is what this rank sends */
    int count, next;   /* and the rank of the next node that gets it */
    ls_status failed;  /* what this rank could not do; the pieces move on all the same */
} copying;

/* --- who ------------------------------------------------------------------------------------------ */

static int ranks_on(const ls_group *g, int node)
{
    int count = 0;
    for (int r = 0; r < ls_group_size(g); r++) count += ls_group_node(g, r) == node;
    return count;
}

/* The k-th rank on a node. */
static int rank_on(const ls_group *g, int node, int k)
{
    for (int r = 0; r < ls_group_size(g); r++)
        if (ls_group_node(g, r) == node && k-- == 0) return r;
    return -1;
}

static int node_before(const ls_snapshots *n) { return (n->node + n->nodes - 1) % n->nodes; }

int ls_snapshot_senders(const ls_snapshots *n)
{
    const int there = n->nodes > 1 ? ranks_on(n->g, node_before(n)) : 0;
    int count = 0;
    for (int k = n->local; k < there; k += n->here) count++;
    return count;
}

static ls_status open_streams(copying *c)
{
    const ls_snapshots *n = c->n;
    const int after = (n->node + 1) % n->nodes;
    c->next = rank_on(n->g, after, n->local % ranks_on(n->g, after));
    c->count = 1 + ls_snapshot_senders(n);
    if (c->count > LS_P2P_BATCH)
        return ls_fail(LS_UNSUPPORTED, "%d ranks would send their snapshots to one: at most %d", c->count - 1,
                       LS_P2P_BATCH - 1);
    if (!(c->s = calloc((size_t)c->count, sizeof *c->s))) return ls_fail(LS_NO_MEMORY, "the files of %d ranks", c->count);
    for (int i = 0; i < c->count; i++) {
        c->s[i].rank = i == 0 ? ls_group_rank(n->g) : rank_on(n->g, node_before(n), n->local + (i - 1) * n->here);
        c->s[i].fd = -1;
        if (!(c->s[i].buffer = malloc(PIECE))) return ls_fail(LS_NO_MEMORY, "%zu bytes to send a snapshot", PIECE);
    }
    return LS_OK;
}

static void close_streams(copying *c)
{
    for (int i = 0; c->s && i < c->count; i++) {
        free(c->s[i].buffer);
        if (c->s[i].fd >= 0) ls_env_get()->close_fd(c->s[i].fd);
        ls_commit_destroy(c->s[i].out);
    }
    free(c->s);
}

/* --- what ------------------------------------------------------------------------------------------- */

/* Bytes of the stream's next piece, with its file's path; 0: there is none. */
static size_t next_piece(const copying *c, stream *s, char *path, size_t n)
{
    char name[128];
    for (; s->file < c->v->mine.n; s->file++, s->at = 0) {
        ls_shards_name(name, sizeof name, s->rank, s->file, c->v->mine.n);
        const ls_manifest_file *f = ls_manifest_find(&c->v->manifest, name);
        if (!f || s->at == f->sums.bytes) continue; /* a rank may have nothing to write */
        snprintf(path, n, "%s/%s", c->v->b.path, name);
        const uint64_t left = f->sums.bytes - s->at;
        return left < PIECE ? (size_t)left : PIECE;
    }
    return 0;
}

static bool is_last_piece(const copying *c, const stream *s, size_t nbytes)
{
    char name[128];
    ls_shards_name(name, sizeof name, s->rank, s->file, c->v->mine.n);
    return s->at + nbytes == ls_manifest_find(&c->v->manifest, name)->sums.bytes;
}

static ls_status read_piece(stream *s, const char *path, size_t nbytes)
{
    if (s->at == 0) {
        if (s->fd >= 0) ls_env_get()->close_fd(s->fd);
        LS_TRY(ls_ckpt_open_read(path, &s->fd));
    }
    return ls_ckpt_read_at(path, s->fd, s->buffer, nbytes, s->at);
}

static ls_status write_piece(stream *s, const char *path, size_t nbytes, bool last)
{
    if (s->at == 0) LS_TRY(ls_commit_create(path, &s->out));
    LS_TRY(ls_commit_write(s->out, s->buffer, nbytes));
    if (!last) return LS_OK;
    LS_TRY(ls_commit_finish(s->out));
    ls_commit_destroy(s->out);
    s->out = NULL;
    return LS_OK;
}

/* One piece of each stream; false: there was none left. */
static ls_status move_pieces(copying *c, bool *any)
{
    char path[LS_SAVE_PATH_BYTES + 160];
    ls_p2p op[LS_P2P_BATCH];
    stream *of[LS_P2P_BATCH];
    int count = 0;
    for (int i = 0; i < c->count; i++) {
        stream *s = &c->s[i];
        const size_t nbytes = next_piece(c, s, path, sizeof path);
        if (nbytes == 0) continue;
        if (i == 0 && c->failed == LS_OK) c->failed = read_piece(s, path, nbytes);
        of[count] = s;
        op[count++] = i == 0 ? (ls_p2p){ .send = s->buffer, .count = nbytes, .dtype = LS_U8, .peer = c->next }
                             : (ls_p2p){ .recv = s->buffer, .count = nbytes, .dtype = LS_U8, .peer = s->rank };
    }
    *any = count > 0;
    if (count == 0) return LS_OK;
    LS_TRY(ls_p2p_batch(c->n->g, op, count));
    for (int i = 0; i < count; i++) {
        stream *s = of[i];
        const bool last = is_last_piece(c, s, op[i].count);
        (void)next_piece(c, s, path, sizeof path);
        if (op[i].recv && c->failed == LS_OK) c->failed = write_piece(s, path, op[i].count, last);
        s->at += op[i].count;
    }
    return LS_OK;
}

ls_status ls_snapshot_copy(ls_snapshots *n, const ls_saving *v)
{
    copying c = { .n = n, .v = v };
    bool any = true;
    ls_status st = ls_state_agree(n->g, open_streams(&c), NULL); /* else some rank waits for pieces that never come */
    while (st == LS_OK && any) st = move_pieces(&c, &any);
    close_streams(&c);
    return st < 0 ? st : c.failed;
}
