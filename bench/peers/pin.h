/* pin.h -- gives a rank its cores, for every contestant in the same way: thread t of rank r runs on core
 * r * threads + t of those that may be used, counted round where there are more of them than cores.
 *
 * BENCH_PIN=free leaves everybody on all cores.
 *
 * A rank notes its cores in the file $BENCH_PINS, one line each: `RANK CORE,CORE...`. bench/rules.py reads them, and
 * a program whose ranks are not there, or elsewhere, is not counted. bench/pin.py is the same in Python. */
#ifndef PIN_H
#define PIN_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the calling thread, before it starts others. */
static inline void pin_rank(int rank, int threads)
{
    cpu_set_t all, own;
    int core[CPU_SETSIZE], n = 0;
    char line[256];
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET((size_t)c, &all)) core[n++] = c;
    if (n == 0) return;
    CPU_ZERO(&own);
    const char *how = getenv("BENCH_PIN");
    if (how && strcmp(how, "free") == 0) own = all;
    else
        for (int t = 0; t < threads; t++) CPU_SET((size_t)core[(rank * threads + t) % n], &own);
    (void)sched_setaffinity(0, sizeof own, &own);
    const char *path = getenv("BENCH_PINS");
    if (!path || sched_getaffinity(0, sizeof own, &own) != 0) return; /* what is noted is what the system says */
    int at = snprintf(line, sizeof line, "%d", rank);
    char between = ' ';
    for (int c = 0; c < CPU_SETSIZE && at < (int)sizeof line - 8; c++)
        if (CPU_ISSET((size_t)c, &own)) at += snprintf(line + at, sizeof line - (size_t)at, "%c%d", between, c), between = ',';
    line[at++] = '\n';
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (fd < 0) return;
    if (write(fd, line, (size_t)at) != at) perror(path);
    close(fd);
}

#endif
