/* cost.h -- what moving and adding cost on a machine, in a few numbers.
 *
 * `lockstep calibrate` measures them and keeps them in a file (docs/formats.md);
 * where there is none, a preset stands in. sim.h times schedules by them.
 */
#ifndef LS_COLL_COST_H
#define LS_COLL_COST_H
#include <stdbool.h>
#include <stddef.h>
#include "base/text.h"
#include "lockstep/status.h"

/* How a message travels between two ranks. */
typedef enum ls_level {
    LS_LEVEL_MEMORY,   /* one host: read where it lies */
    LS_LEVEL_LOOPBACK, /* one host: through sockets */
    LS_LEVEL_NETWORK,  /* between hosts */
    LS_LEVELS
} ls_level;
const char *ls_level_name(ls_level l); /* "memory" */
/* How messages travel between ranks of one host by a transport, as comm.transport names it ("" is the default). */
ls_level ls_level_within(const char *transport);

typedef struct ls_link_cost {
    double alpha_ns; /* of a message: from offering it until it can be used, its bytes apart */
    double gap_ns;   /* of that, what keeps the sender from the next one (LogP's o or g) */
    double beta_ns;  /* of a byte: moved while the other direction moves as much; in memory: copied */
} ls_link_cost;

/* Where mapped memory has two ways to do a thing, how many bytes it takes for the second to be the faster one. It
 * depends on how fast lines go from core to core, and on the caches. LS_COST_NEVER: at no size. */
typedef struct ls_switch_points {
    double sum_in_place;    /* a reduce_scatter is summed where its vectors lie, not through slots: above so many; */
    double copy_in_place;   /* all_gather and all_to_all, likewise */
    double past_cache;      /* stores into results go past the caches: from so many that all ranks touch together */
    double mail_string;     /* a short vector from or to a root is put by the processor's own string instruction */
    double stage_past_cache; /* a piece of a private vector is put into its slot past the caches */
    double attach;           /* private memory is read in its owner's process, if it can be: bytes from rank to rank */
} ls_switch_points;
#define LS_SWITCH_POINTS 6
#define LS_COST_NEVER 1e12
const char *ls_switch_name(int i);                             /* its key in the file */
double *ls_switch_point(ls_switch_points *s, int i);

typedef struct ls_cost {
    ls_link_cost link[LS_LEVELS];
    double gamma_ns; /* of a byte: added to another vector */
    double poke_ns;  /* until a rank that shares its core with others looks at its messages again */
    ls_switch_points in_memory;
} ls_cost;

extern const ls_cost ls_cost_preset; /* of an ordinary server of the 2020s, on a 10 Gbit/s network */

/* alpha + beta x: the least squares of relative errors over n measurements, neither below 0. `worst`: the greatest
 * |error| of them, relative to what was measured. n >= 2, different x, y > 0. */
void ls_cost_fit(const double *x, const double *y, int n, double *alpha, double *beta, double *worst);

/* As a file of JSON, and back. What a file leaves out keeps the preset's value. LS_BAD_FILE names `name`,
 * the key, what it holds and what is expected. */
void ls_cost_print_json(const ls_cost *c, const char *host, ls_text *out);
ls_status ls_cost_read_json(const char *name, const char *text, size_t n, ls_cost *out);

/* Where the calibration is kept: $LOCKSTEP_CALIBRATION, else lockstep/calibration.json in $XDG_CACHE_HOME or
 * ~/.cache. False where there is no such place, or the variable says `none`. */
bool ls_cost_path(char *path, size_t n);
/* The calibration there, or the preset where there is none. A file that is broken: LS_BAD_FILE when the variable
 * names it; in the usual place a warning, and the preset. `from`: where the numbers are from, for people. */
ls_status ls_cost_load(ls_cost *out, char *from, size_t n);

#endif
