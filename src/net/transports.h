/* transports.h -- transports that others are made of. Each is a file; registry.c lists them. */
#ifndef LS_NET_TRANSPORTS_H
#define LS_NET_TRANSPORTS_H
#include "base/rank_set.h"
#include "lockstep/transport.h"

extern const ls_transport_ops ls_transport_shm;
extern const ls_transport_ops ls_transport_tcp;
extern const ls_transport_ops ls_transport_fault; /* never alone: "fault:shm" */
/* LS_BAD_CONFIG: the faults after its name ("fault:shm,delay=1ms@0") have a mistake. */
ls_status ls_fault_check(const char *name);
/* Bytes per second of the link between ranks a and b, each way, as the name says ("fault:tcp,rate=50MB/s@0-1"); 0: the
 * name limits no rate. */
uint64_t ls_fault_rate(const char *name, int a, int b);

/* The keys that frames over connections read, for ls_transport_ops.keys. */
#define LS_FRAME_KEYS "comm.wire", "comm.check"

/* The same transports for some of the ranks: tcp with those of the set `with` (that of everyone
 * in it has us), shm with those of this host. */
ls_status ls_transport_tcp_open(ls_world *w, const ls_rank_set *with, ls_transport **out);
ls_status ls_transport_shm_open(ls_world *w, ls_transport **out);

/* shm copies messages of up to this many bytes, even from memory that the receiver could read. The sender of a longer
 * one waits until the receiver has read it. */
#define LS_EAGER_BYTES ((size_t)4096)

/* What shm takes of a rank's arena, one after the other as they are needed: a directory of the ranks that it sends to,
 * for each of them a row of channels, for each channel in use a pipe. */
size_t ls_shm_directory_bytes(int size);
size_t ls_shm_row_bytes(void);
size_t ls_shm_pipe_bytes(void);

/* For tests of transport_shm: where pipes made from now on begin to count their pieces. */
void ls_shm_count_from(ls_transport *t, uint32_t first);

#endif
