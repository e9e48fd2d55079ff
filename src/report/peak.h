/* peak.h -- how fast this machine multiplies matrices, which is what a model's speed is compared with (mfu.h).
 *
 * The rate of this library's own products (gemm.h) on large square matrices, per thread, by type and number of
 * threads. It is measured once and cached: by `lockstep doctor --peak`, or by the first run that asks for it.
 */
#ifndef LS_REPORT_PEAK_H
#define LS_REPORT_PEAK_H
#include "base/text.h"
#include "lockstep/dtype.h"

#define LS_PEAK_ROWS 16

typedef struct ls_peak_row {
    ls_dtype dtype; /* of the factors; sums are f32 */
    int threads;    /* that multiplied together */
    double gflops;  /* 1e9 operations per second and thread */
} ls_peak_row;

typedef struct ls_peaks {
    char host[256]; /* where they were measured */
    int n;
    ls_peak_row row[LS_PEAK_ROWS];
} ls_peaks;

/* Products with so many threads for about so many seconds: the best of them counts, per thread. The number of
 * threads is afterwards as it was. LS_UNSUPPORTED: no products of that type. */
ls_status ls_peak_measure(ls_dtype dtype, int threads, double seconds, double *gflops);

/* f32 and bf16, as far as there are products of them, with one thread and with one per core; for about so many seconds
 * each. */
ls_status ls_peak_measure_all(double seconds, ls_peaks *out);

/* peak_memory.c: what so many threads together read and write per second, x += y over memory that is larger than most
 * caches, for about so many seconds: the best pass counts. The number of threads is afterwards as it was.
 * LS_NO_MEMORY. */
ls_status ls_peak_memory(int threads, double seconds, double *bytes_per_s);

/* $LOCKSTEP_PEAK, else lockstep/peak.json in $XDG_CACHE_HOME or ~/.cache; as ls_file_cached. */
bool ls_peak_path(char *path, size_t n);
/* As a file of JSON (docs/formats.md), and back. LS_BAD_FILE names `name`, the key and what is expected. */
void ls_peak_print_json(const ls_peaks *p, ls_text *out);
ls_status ls_peak_read_json(const char *name, const char *text, size_t n, ls_peaks *out);
/* Writes the file, and its folder where it is missing. LS_IO. */
ls_status ls_peak_keep(const ls_peaks *p, const char *path);

/* The peak of a rank of so many threads. */
typedef struct ls_peak {
    double gflops;  /* all its threads together; 0: not known */
    char text[320]; /* per thread, type, threads, and the file; or why it is not known */
} ls_peak;

/* From the file, if it was measured on this host, for this type and number of threads; else measured now, in some
 * tenths of a second, and added to the file. Where it cannot be kept, gflops is 0 and text says why. LS_BAD_FILE,
 * LS_IO: the file that the variable names is broken or cannot be read. */
ls_status ls_peak_find(ls_dtype dtype, int threads, ls_peak *out);

#endif
