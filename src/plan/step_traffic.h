/* step_traffic.h -- what the ranks of a configuration send each other in a training step, by axis of the mesh.
 *
 * A step of a dry world says it: the calls of a real rank, with their groups and bytes, one rank of each pipeline
 * stage. The other ranks of a stage are taken to call what that one calls, and experts to get equally many tokens.
 */
#ifndef LS_PLAN_STEP_TRAFFIC_H
#define LS_PLAN_STEP_TRAFFIC_H
#include "lockstep/mesh.h"
#include "train/config.h"
#include "train/dry.h"
#include "train/source.h"

#define LS_STEP_ROWS   32
#define LS_STEP_STAGES 64

/* How the members of a group exchange messages (LS_SENDRECV). */
typedef enum ls_neighbours {
    LS_TO_NEXT,   /* each to the next one, the last to the first */
    LS_TO_BOTH,   /* half to the next and half to the one before; at an end all to the one that there is */
    LS_TO_BOTH_ROUND /* the same in a circle: pipelines of which each rank has several stages */
} ls_neighbours;

/* Which ranks a group of the mesh has: those that differ along some axes, or a part of them. */
typedef struct ls_step_span {
    unsigned axes; /* bit a: ranks of a group differ along axis a */
    bool ends;     /* along pp only first and last stage, which share an embedding */
    int sets;      /* above 1: the ranks along `axes` are so many sets of consecutive ones (zero.hsdp), and a group is
                    * one of the sets; */
    bool across;   /* or has the rank at one place of each set */
} ls_step_span;

/* The layout of a collective's vector. Vectors of one length may be carried out in different ways. */
typedef struct ls_step_vector {
    int spans;   /* so many matrices, of whose rows each rank has a part (ls_coll_args.span); 0: one piece */
    double rows; /* of each, on average */
    bool counts; /* the parts of ranks have lengths of their own */
    bool apart;  /* input and output are different buffers */
} ls_step_vector;

/* Calls of one collective in groups that span the same axes. */
typedef struct ls_step_row {
    unsigned axes; /* bit a: ranks of a group differ along axis a */
    bool ends;     /* along pp only first and last stage, which share an embedding */
    ls_coll coll;
    ls_neighbours how; /* of LS_SENDRECV */
    double calls;      /* per rank and step, of the stage that has most */
    double bytes;      /* of all these calls together: whole vectors, or messages that a rank sends; likewise */
    double of_stage[LS_STEP_STAGES]; /* bytes of a rank of each stage; where a group has several stages, of its calls */
} ls_step_row;

typedef struct ls_step_traffic {
    int size[LS_AXES]; /* of the mesh */
    int order[LS_AXES]; /* the configuration's; all else is that of the usual order */
    int ranks;
    ls_step_row row[LS_STEP_ROWS]; /* most calls first */
    int n;
    double flops;  /* of a step, of all ranks, as MFU counts them (report/mfu.h) */
    double tokens; /* of a step, of all ranks; samples where there are no tokens: */
    const char *of; /* "tokens" or "samples" */
} ls_step_traffic;

/* For so many ranks. LS_BAD_CONFIG, LS_UNSUPPORTED: as a run refuses it; groups that are parts of an axis (zero.hsdp,
 * parallel.cp_ulysses); more than LS_STEP_STAGES pipeline stages. */
ls_status ls_step_traffic_of(const ls_train_config *c, int ranks, ls_step_traffic *out);

/* "tp", "dp x ep", "all": the axes of `mask` that have several ranks, into buf; returns buf. */
const char *ls_step_axes_text(const int size[LS_AXES], unsigned mask, char *buf, size_t n);

/* --- dry steps, for others who read them ------------------------------------------------------------ */

typedef struct ls_step_dry {
    ls_train_config c;       /* checked */
    ls_source source;
    ls_model_config mc, whole; /* whole: resolved */
    ls_plan plan;
    int ranks, local;
    int *node;               /* owned: [ranks] */
} ls_step_dry;

#define LS_STEP_SETTLED LS_TRAIN_DRY_SETTLED

/* The failures of ls_step_traffic_of. local: so many ranks follow one another on each node, and share its memory if
 * comm.transport does (LS_INVALID: not equally many; LS_UNSUPPORTED: more than LS_HOST_MOST_RANKS); 1: each rank is on
 * a node of its own, so that no collective is left out. in_order: ranks are
 * where parallel.order has them, which with parallel.placement auto the caller has chosen; else where they usually
 * are. To be ended also after a failure. */
ls_status ls_step_dry_begin(const ls_train_config *c, int ranks, int local, bool in_order, ls_step_dry *out);
void ls_step_dry_end(ls_step_dry *s);
/* A rank of a stage; ls_train_dry_close, also after a failure. */
ls_status ls_step_dry_open(const ls_step_dry *s, int stage, ls_train_dry *d);
/* So many steps, of which the last alone stays recorded. */
ls_status ls_step_dry_steps(const ls_step_dry *s, ls_train_dry *d, int steps);
/* flops, tokens and of, as in ls_step_traffic. */
void ls_step_dry_work(const ls_step_dry *s, double *flops, double *tokens, const char **of);
/* Along which axes the ranks of a group differ. LS_UNSUPPORTED: they are no such part of them. */
ls_status ls_step_span_of(const ls_group *g, const int size[LS_AXES], ls_mesh_order order, ls_step_span *out);
static inline bool ls_step_same_span(const ls_step_span *a, const ls_step_span *b)
{
    return a->axes == b->axes && a->ends == b->ends && a->sets == b->sets && a->across == b->across;
}
static inline bool ls_step_same_vector(const ls_step_vector *a, const ls_step_vector *b)
{
    return a->spans == b->spans && a->rows == b->rows && a->counts == b->counts && a->apart == b->apart;
}
/* "dp x ep", "pp ends", "dp parts" (each a group), "dp across" (such parts), into buf; returns buf. */
const char *ls_step_span_text(const int size[LS_AXES], const ls_step_span *s, char *buf, size_t n);
/* Bytes of a call's vector. Of an all_to_all with counts, what this rank has for all, with as much going out as
 * coming in: a dry world counts the rows of experts that may come in the worst case, on one of the two sides. */
double ls_step_vector_bytes(const ls_recorded *r);

#endif
