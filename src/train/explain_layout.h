/* explain_layout.h -- a plan, rank by rank: where each rank is on the mesh, which groups it has, what a step calls in
 * them, and how much memory it takes.
 *
 * All of it comes from dry worlds (train/dry.h): the calls of the run itself, whose collectives are recorded. A run
 * saves what its ranks have counted (train/comm_log.h), group by group, and both must be equal to the byte.
 */
#ifndef LS_TRAIN_EXPLAIN_LAYOUT_H
#define LS_TRAIN_EXPLAIN_LAYOUT_H
#include "base/text.h"
#include "train/comm_log.h"
#include "train/memory.h"

#define LS_EXPLAIN_WHAT 32

/* Collectives of one kind that a rank calls in one of its groups per step, for one purpose. */
typedef struct ls_explain_calls {
    int group;                  /* its index in ls_explain_rank.group */
    ls_coll coll;
    char what[LS_EXPLAIN_WHAT]; /* "bucket", "enter", "keys and values": their label without a number */
    uint64_t calls, bytes;      /* bytes: of the whole vectors, together */
    uint64_t moved;             /* by this rank; of rows to experts the most that there can be */
} ls_explain_calls;

typedef struct ls_explain_group {
    char text[64];              /* "tp 0-1" */
    char role[96];              /* "tp, gradients": which groups of the mesh it is */
    int size, nodes;
    struct { uint64_t calls, moved; } dry[LS_COLLS], real[LS_COLLS]; /* real: counted by a run */
} ls_explain_group;

/* Elements of parameters: of the whole model, of the parts that are here, and those that this rank's optimizer
 * updates. */
typedef struct ls_explain_elements {
    uint64_t whole, here, own;
} ls_explain_elements;

/* A parameter: the part that is here, of the whole tensor. */
typedef struct ls_explain_param {
    char name[LS_NAME_BYTES];
    int ndim;
    int64_t here[LS_MAX_DIMS], whole[LS_MAX_DIMS];
} ls_explain_param;

typedef struct ls_explain_rank {
    int coord[LS_AXES];
    ls_memory_plan plan;
    ls_explain_elements dense, experts; /* experts: of parameters that expert parallelism divides */
    ls_explain_group group[LS_COMM_GROUPS];
    int ngroups;
    ls_explain_calls *calls;    /* owned: [ncalls], group by group, in the order of the first of them */
    int ncalls, cap;
    ls_explain_param *params;   /* owned: [nparams], in the model's order */
    int nparams;
} ls_explain_rank;

/* The pipeline of a plan, by a replay of its schedule. */
typedef struct ls_explain_pipe {
    const char *schedule;       /* the configuration's */
    int ranks, stages, micro_batches; /* ranks: along the axis pp; 0: one stage */
    int *stage_rank;            /* owned, as all here: [stages] the place along pp that a stage is on */
    double *cost;               /* [3 * stages] operations of a micro-batch: forward, backward of input, of weights */
    int *alive;                 /* [ranks] micro-batches that a rank stores, each of one chunk, at most at a time */
    double *idle;               /* [ranks] part of the step, with these operations */
    double bubble, equal;       /* of all ranks' time: with these operations, and with stages that take equally long */
} ls_explain_pipe;

typedef struct ls_explain_layout {
    int size, nnodes;
    int *node;                  /* owned: [size] the node of each rank */
    ls_plan plan;               /* its texts are the configuration's */
    uint64_t parameters;        /* of the whole model */
    int64_t batch, micro;       /* samples of a step, of all ranks; of a micro-batch on one rank */
    int64_t tokens;             /* of a sample; 0: of features */
    bool overlaps;              /* ddp.overlap */
    double *layers;             /* owned: [stages] layers of each pipeline stage; NULL: there is one */
    int stages;
    ls_explain_pipe pipe;
    ls_explain_rank *rank;      /* owned: [size] */
    int64_t step;               /* of a run whose counters are in `real`; 0: none */
} ls_explain_layout;

/* `nodes` of equally many consecutive ranks, or, if `node` is not NULL, node[r] for rank r. LS_BAD_CONFIG and
 * LS_UNSUPPORTED: a run would be refused, or its bytes are not known beforehand (ls_traffic_is_known). `out` is to be
 * freed also after a failure. */
ls_status ls_explain_layout_make(const ls_train_config *c, const ls_model_config *mc, int size, int nodes,
                                 const int *node, ls_explain_layout *out);
void ls_explain_layout_free(ls_explain_layout *l); /* zeros are fine */

/* Whether bytes of this kind depend on what a model routes: a dry world has the most that there can be. */
static inline bool ls_explain_varies(const ls_explain_layout *l, ls_coll c)
{
    return c == LS_ALL_TO_ALL && l->plan.size[LS_AXIS_EP] > 1;
}

/* --- explain_layout_print.c --------------------------------------------------------------------------------------- */

/* Axes, ranks, groups, collectives of a step and memory, from the point of view of `rank`. */
void ls_explain_layout_text(const ls_explain_layout *l, int rank, ls_text *out);
/* The same of all ranks: "axes": .., "groups": .., "ranks": [..], without braces around it. */
void ls_explain_layout_json(const ls_explain_layout *l, ls_text *out);
/* Nodes that the ranks which differ from `rank` along one axis alone are on. */
int ls_explain_crosses(const ls_explain_layout *l, int rank, ls_axis axis);

/* --- explain_path.c ----------------------------------------------------------------------------------------------- */

/* Fills *out in if the plan has several stages and it is zeros; `here`: the place of any rank. To be freed also after a
 * failure. */
ls_status ls_explain_pipe_make(const ls_plan *p, const ls_model_config *mc, const ls_place *here, ls_explain_pipe *out);
void ls_explain_pipe_free(ls_explain_pipe *p);
/* Whether the rank waits for such calls: no computation is beside them. */
bool ls_explain_is_exposed(const ls_explain_layout *l, const ls_explain_rank *r, const ls_explain_calls *k);
/* The pipeline, and what is on the critical path of a rank's step. */
void ls_explain_path_text(const ls_explain_layout *l, int rank, ls_text *out);
void ls_explain_path_json(const ls_explain_layout *l, ls_text *out);

/* --- explain_words.c ---------------------------------------------------------------------------------------------- */

/* The axis that calls like these are for: dp for gradients and new values, whatever axes their ranks differ along.
 * LS_AXES: the step itself, such as the norm. */
int ls_explain_axis(const ls_explain_calls *k);
/* When calls like these happen, and what they can overlap with: "after backward: exposed". */
const char *ls_explain_when(const ls_explain_layout *l, const ls_explain_rank *r, const ls_explain_calls *k);
/* What an axis divides, in words: "samples", "heads, width of the mlp, vocabulary"; inputs or model state. */
const char *ls_explain_divides(const ls_explain_layout *l, ls_axis axis, bool inputs, char *buf, size_t n);
/* "tp 2 x dp 2", the fastest axis first; "one rank". */
const char *ls_explain_axes(const ls_explain_layout *l, char *buf, size_t n);

#endif
