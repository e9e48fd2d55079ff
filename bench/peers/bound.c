/* bound.c -- what one core and all of them can do at most: the rates behind the rooflines of bench/roofline.py.
 *
 *   bound [--most BYTES]            prints `what,bytes,cores,value`, the best of many tries each:
 *   load      ns    of reading a cache line that another core has written last
 *   pull      GB/s  per core, of reading what another core has just written, alone or while that one reads, too
 *   read, write, copy  GB/s  per core, of a core's own memory of so many bytes; copy counts bytes read and written
 *   f32, bf16 GFLOP/s  of all cores together, of multiply-adds between registers (bf16: AVX-512's or AMX's, if there)
 *
 * These are bounds for what a library does with memory, because nothing else is done: no waiting, no second operand, no
 * call; each number is the greatest over instructions, directions and tries.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CORES = 64, TRIES = 30, LINES = 512, LINE = 64, PAGE = 4096 };
typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));

static int core_of[MAX_CORES], cores, with; /* with: how many run this phase */
static size_t most = (size_t)128 << 20;
static _Atomic uint32_t arrived;
static char *memory[MAX_CORES]; /* each core's own: `most` bytes, and as many again to copy to */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(void)
{
    const uint32_t n = (uint32_t)with, mine = atomic_fetch_add(&arrived, 1), until = (mine / n + 1) * n;
    for (int looks = 0; (int32_t)(atomic_load(&arrived) - until) < 0; looks++)
        if (looks > 20000) sched_yield();
        else __builtin_ia32_pause();
}

/* --- memory -------------------------------------------------------------------------------------- */

static void sum(const char *p, size_t n, int backwards, size_t ahead)
{
    vec a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    for (size_t i = 0; i + 256 <= n; i += 256) {
        const char *q = p + (backwards ? n - 256 - i : i);
        if (ahead) {
            __builtin_prefetch(q + ahead);
            __builtin_prefetch(q + ahead + 64);
            __builtin_prefetch(q + ahead + 128);
            __builtin_prefetch(q + ahead + 192);
        }
        a += *(const vec *)q;
        b += *(const vec *)(q + 64);
        c += *(const vec *)(q + 128);
        d += *(const vec *)(q + 192);
    }
    a += b + (c + d);
    __asm__ volatile("" ::"m"(a));
}

static void fill(char *p, size_t n, int stream, int backwards)
{
    const vec v = { 1, 2, 3 };
    for (size_t i = 0; i + 64 <= n; i += 64) {
        char *q = p + (backwards ? n - 64 - i : i);
#ifdef __AVX512F__
        if (stream) {
            _mm512_stream_ps((float *)q, (__m512)v);
            continue;
        }
#else
        (void)stream;
#endif
        *(vec *)q = v;
    }
    if (stream) _mm_sfence();
    __asm__ volatile("" ::: "memory");
}

static void copy(char *to, const char *from, size_t n, int stream)
{
    for (size_t i = 0; i + 64 <= n; i += 64) {
        const vec v = *(const vec *)(from + i);
#ifdef __AVX512F__
        if (stream) {
            _mm512_stream_ps((float *)(to + i), (__m512)v);
            continue;
        }
#else
        (void)stream;
#endif
        *(vec *)(to + i) = v;
    }
    if (stream) _mm_sfence();
    __asm__ volatile("" ::: "memory");
}

/* Greatest bytes a second of a core, over the ways and the tries. */
static double rate(int me, const char *what, size_t n)
{
    double best = 0;
    const size_t enough = 65536;
    const int times = n < enough ? (int)(enough / n) : 1, tries = n >= (size_t)16 << 20 ? 4 : TRIES;
    for (int k = 0; k < tries * 2; k++) {
        const int way = k >= tries; /* stores past the caches come last: they empty them */
        meet();
        const double t = now_s();
        for (int i = 0; i < times; i++) {
            if (*what == 'r') sum(memory[me], n, (k >> 1) & 1, 0);
            else if (*what == 'w') fill(memory[me], n, way, k & 1);
            else copy(memory[me] + most, memory[me], n, way);
        }
        const double r = (double)n * times * (*what == 'c' ? 2 : 1) / (now_s() - t);
        if (r > best) best = r;
    }
    return best;
}

/* The same of what the next core has just written; once while it reads, and once while it waits. */
static double pull(int me, size_t n)
{
    double best = 0;
    static const size_t ahead[] = { 0, 512, 1024, 4096 };
    const char *theirs = memory[(me + 1) % with];
    for (int k = 0; k < TRIES * 4; k++) {
        fill(memory[me], n, 0, 0);
        meet();
        if (me == 0 || k & 4) {
            const double t = now_s();
            sum(theirs, n, k >> 3 & 1, ahead[k & 3]);
            const double r = (double)n / (now_s() - t);
            if (r > best) best = r;
        }
        meet();
    }
    return best;
}

/* Nanoseconds of a load whose line the other core has written last: a chain through lines of pages that no prefetcher
 * follows. */
static double load(int me)
{
    double best = 1e9;
    char *lines = memory[0];
    for (int k = 0; k < TRIES; k++) {
        if (me == 1)
            for (size_t i = 0; i < LINES; i++) {
                const size_t at = i * 167 % LINES, next = (i + 1) * 167 % LINES;
                *(char **)(lines + at * (PAGE + LINE)) = lines + next * (PAGE + LINE);
            }
        meet();
        if (me == 0) {
            char *volatile p = lines;
            const double t = now_s();
            char *q = p;
            for (int i = 0; i < LINES; i++) q = *(char **)q;
            p = q;
            const double ns = 1e9 * (now_s() - t) / LINES;
            if (ns < best) best = ns;
        }
        meet();
    }
    return best;
}

/* --- arithmetic ---------------------------------------------------------------------------------- */

#define ROUNDS 200000

/* A vector of the processor, and as many as it takes to hide the latency of two multiply-adds per cycle. All stay in
 * registers. */
#if defined(__AVX512F__)
typedef vec lanes;
enum { SUMS = 16 };
#else
typedef float lanes __attribute__((vector_size(32)));
enum { SUMS = 12 };
#endif

static double f32_flops(void)
{
    lanes a[SUMS] = { { 0 } };
    const lanes x = { 1.0f }, y = { 0.5f };
    const double t = now_s();
    for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 16
        for (int c = 0; c < SUMS; c++) a[c] = a[c] * x + y;
        __asm__ volatile("");
    }
    const double s = now_s() - t;
    for (int c = 0; c < SUMS; c++) __asm__ volatile("" ::"m"(a[c]));
    return 2.0 * (double)(sizeof(lanes) / sizeof(float)) * SUMS * ROUNDS / s;
}

static double bf16_flops(void)
{
    double best = 0;
#ifdef __AVX512BF16__
    enum { CHAINS = 16 };
    __m512 a[CHAINS];
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    for (int c = 0; c < CHAINS; c++) a[c] = _mm512_setzero_ps();
    double t = now_s();
    for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) a[c] = _mm512_dpbf16_ps(a[c], x, x);
        __asm__ volatile("");
    }
    best = 2.0 * 32 * CHAINS * ROUNDS / (now_s() - t);
    for (int c = 0; c < CHAINS; c++) __asm__ volatile("" ::"m"(a[c]));
#endif
#ifdef __AMX_BF16__
    if (syscall(SYS_arch_prctl, 0x1023, 18) == 0) { /* ARCH_REQ_XCOMP_PERM of the tiles' data */
        static const struct { uint8_t palette, row, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; } shape = {
            .palette = 1, .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 }
        };
        _tile_loadconfig(&shape);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        _tile_zero(6);
        _tile_zero(7);
        const double began = now_s();
        for (int r = 0; r < ROUNDS / 10; r++) {
            _tile_dpbf16ps(0, 6, 7);
            _tile_dpbf16ps(1, 6, 7);
            _tile_dpbf16ps(2, 6, 7);
            _tile_dpbf16ps(3, 6, 7);
        }
        const double tiles = 2.0 * 16 * 16 * 32 * 4 * (ROUNDS / 10) / (now_s() - began);
        _tile_release();
        if (tiles > best) best = tiles;
    }
#endif
    return best;
}

/* --- phases -------------------------------------------------------------------------------------- */

typedef struct phase {
    const char *what;
    size_t bytes;
    double value[MAX_CORES];
} phase;

static phase now;

static void *one(void *arg)
{
    const int me = (int)(intptr_t)arg;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((size_t)core_of[me], &own);
    (void)sched_setaffinity(0, sizeof own, &own);
    double v = 0;
    meet();
    switch (*now.what) {
    case 'l': v = load(me); break;
    case 'p': v = pull(me, now.bytes) * 1e-9; break;
    case 'f':
    case 'b':
        for (int k = 0; k < 5; k++) {
            const double r = (*now.what == 'f' ? f32_flops() : bf16_flops()) * 1e-9;
            if (r > v) v = r;
        }
        break;
    default: v = rate(me, now.what, now.bytes) * 1e-9; break;
    }
    now.value[me] = v;
    return NULL;
}

static double measure(const char *what, size_t bytes, int n)
{
    pthread_t thread[MAX_CORES];
    double all = 0;
    now.what = what, now.bytes = bytes, with = n;
    atomic_store(&arrived, 0);
    for (int i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, one, (void *)(intptr_t)i) != 0) exit(71);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    const int sums = *what == 'f' || *what == 'b';
    for (int i = 0; i < n; i++)
        if (sums) all += now.value[i];
        else if (*what == 'l') all = now.value[0];
        else if (now.value[i] > all) all = now.value[i];
    printf("%s,%zu,%d,%.4f\n", what, bytes, n, all);
    fflush(stdout);
    return all;
}

int main(int argc, char **argv)
{
    cpu_set_t all;
    if (argc == 3 && strcmp(argv[1], "--most") == 0) most = strtoull(argv[2], NULL, 10);
    else if (argc != 1) {
        fprintf(stderr, "usage: bound [--most BYTES]\n");
        return 64;
    }
    if (most < (size_t)LINES * (PAGE + LINE)) most = (size_t)LINES * (PAGE + LINE);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return 71;
    for (int c = 0; c < CPU_SETSIZE && cores < MAX_CORES; c++)
        if (CPU_ISSET((size_t)c, &all)) core_of[cores++] = c;
    for (int c = 0; c < cores; c++) {
        memory[c] = mmap(NULL, 2 * most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory[c] == MAP_FAILED) return 71;
        madvise(memory[c], 2 * most, MADV_HUGEPAGE);
        memset(memory[c], 1, 2 * most);
    }
    printf("what,bytes,cores,value\n");
    if (cores > 1) measure("load", LINE, 2);
    for (size_t b = 4096; cores > 1 && b <= most && b <= (size_t)64 << 20; b *= 4) measure("pull", b, 2);
    static const char *const kinds[] = { "read", "write", "copy" };
    for (int k = 0; k < 3; k++)
        for (size_t b = 4096; b <= most; b *= b < 16384 ? 2 : 4) {
            measure(kinds[k], b, 1);
            if (cores > 1) measure(kinds[k], b, cores);
        }
    for (int n = 1; n <= cores; n += n < cores ? cores - 1 : 1) {
        measure("f32", 0, n);
        measure("bf16", 0, n);
    }
    return 0;
}
