/* doctor.h -- lockstep doctor from the inside: the facts, and the two ways to print them.
 *
 *   doctor_look.c  reads them from the system
 *   cmd_doctor.c   prints them for people
 *   doctor_json.c  prints them as one JSON object
 */
#ifndef LS_CLI_DOCTOR_H
#define LS_CLI_DOCTOR_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/utsname.h>

#include "base/text.h"
#include "report/peak.h"

enum { LS_DOCTOR_INSTRUCTIONS = 4, LS_DOCTOR_CACHES = 3, LS_DOCTOR_LIMITS = 5 };

/* A resource limit of this process. */
typedef struct ls_doctor_limit {
    const char *name;      /* "locked memory" */
    const char *key;       /* "locked_memory_bytes": in JSON, where values are not divided */
    const char *unit_name; /* " KiB", for people */
    uint64_t unit, value;
    bool known, unlimited;
} ls_doctor_limit;

typedef struct ls_doctor {
    struct utsname system; /* sysname "": unknown */
    char processor[128];   /* "": unknown */
    struct {
        const char *name; /* "AVX2" */
        bool here;
    } instructions[LS_DOCTOR_INSTRUCTIONS];
    int cores_usable;  /* affinity and cgroup */
    long cores_online;
    int sockets, cores, threads; /* that this process may run on; 0: unknown */
    struct {
        const char *name;
        long bytes; /* 0: unknown */
    } cache[LS_DOCTOR_CACHES];
    int numa_nodes;    /* 0: unknown */
    uint64_t available_bytes; /* MemAvailable and cgroup */
    long page_bytes;
    int memfd_errno; /* 0: a sealed memfd works */
    ls_doctor_limit limit[LS_DOCTOR_LIMITS];
    int peer_errno;  /* of process_vm_readv of this process; 0: it works */
    int yama;        /* ptrace_scope; 0 where there is no Yama */
} ls_doctor;

void ls_doctor_look(ls_doctor *out);

/* The rates of products that are saved, and the file. LS_AGAIN: not measured yet. */
ls_status ls_doctor_peaks(char *path, size_t n, ls_peaks *out);

/* --- doctor_json.c */
/* Adds an object with all of it. */
void ls_doctor_print_json(const ls_doctor *d, ls_text *out);
/* Adds an object with the saved rates: what --peak prints. */
void ls_doctor_peaks_json(ls_text *out);

#endif
