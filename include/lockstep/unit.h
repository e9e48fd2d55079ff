/* unit.h -- units: the pieces of a model that are computed, recomputed, gathered, staged, timed and planned as one.
 *
 *   GPT-2     "embedding", "h.0" .. "h.11", "head"      a head is the last norm and the matrix that gives logits
 *             "h.3.attention", "h.3.mlp"                 in place of "h.3", where a stage ends inside the layer
 *
 * A unit owns a run of the model's parameters; its forward finds them by their positions in the unit. A parameter that
 * several units use (an embedding that is the head's matrix, too) belongs to the root. It is needed from its first use
 * in forward to its last in backward; a unit's own parameters are needed only while the unit is computed.
 */
#ifndef LS_UNIT_H
#define LS_UNIT_H
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- what forward needs beside x -------------------------------------------------- */

/* What dropout depends on. */
typedef struct ls_draw {
    uint64_t seed, step; /* of the run; the optimizer step */
    uint64_t sample;     /* the micro-batch's first sample: its place in the step, over all ranks */
} ls_draw;

/* Where the tokens of x stand in their sequences: x[:, t] at place first + t. */
typedef struct ls_positions {
    int64_t first;
    bool causal; /* a token sees itself and the tokens before it, not those after it */
} ls_positions;

/* What a loss was made of. */
typedef struct ls_loss_sums {
    double sum;      /* of the losses of the counted labels */
    int64_t counted; /* labels; all but those to be ignored */
    int64_t correct; /* rows whose largest logit is at the label; -1: not looked at */
} ls_loss_sums;

/* What the last unit gives. */
typedef enum ls_output {
    LS_OUTPUT_LOGITS,      /* all of them: [N, classes] or [B, T, V] */
    LS_OUTPUT_LAST_LOGITS, /* language models: those after the last token of each sequence, [B, V]; no gradient */
    LS_OUTPUT_LOSS,        /* ls_model_loss: one number */
} ls_output;

struct ls_place; /* place.h */

/* One pass of a micro-batch through a model, or through some of its units. Zeros, params and at.causal are a pass
 * of training that asks for logits. */
typedef struct ls_pass {
    const ls_params *params; /* that the units' indices are of */
    const struct ls_place *place; /* which part of each layer is computed here */
    ls_draw draw;
    ls_positions at;
    ls_kv *kv;          /* keys and values of the tokens before x; those of x are added. NULL: none are kept */
    ls_output output;
    ls_tensor *labels;  /* for a loss */
    ls_loss_sums *sums; /* for a loss; may be NULL. It must stay until backward is over (ls_model_loss) */
} ls_pass;

/* --- a unit ----------------------------------------------------------------------- */

#define LS_UNIT_NAME 32
#define LS_UNIT_SKIPPED (-2) /* a position that the unit's forward does not read: the other half of a layer does */
#define LS_UNIT_ROOT "root" /* in reports, the owner of parameters that several units use; no unit may have this name */

typedef struct ls_unit ls_unit;

/* y from x. It takes from outside only x, its parameters and leaves without a gradient, and gives the same result each
 * time it is called with the same x and pass: a unit may be recomputed in backward. */
typedef ls_tensor *(*ls_unit_fn)(const ls_unit *u, ls_tape *t, ls_tensor *x, const ls_pass *pass);

/* What a unit does. */
typedef struct ls_unit_class {
    ls_unit_fn forward;
    int nparams;    /* that forward reads, by position; 0: it has none */
    bool recompute; /* its activations may be dropped and recomputed (ls_block) */
} ls_unit_class;

struct ls_unit {
    char name[LS_UNIT_NAME]; /* "h.3" */
    int number;              /* among the units of its kind: 3 */
    int first, nparams;      /* of ls_params: the parameters that belong to it alone, */
    int first_last, nlast;   /* and those of them that come after all units (ls_units_add_last) */
    int *position;           /* owned: [npositions], the index in ls_params of the parameter at each position; of a unit
                              * that is elsewhere the place in the whole model (ls_params_at); LS_UNIT_SKIPPED */
    int npositions;
    bool elsewhere;          /* other ranks compute it (ls_units_keep): it has no parameters here */
    const ls_unit_class *cls;
    const void *arg;         /* borrowed: sizes, and what else forward reads */
};

/* The units of a model, in the order in which forward computes them. */
typedef struct ls_units {
    ls_unit *item; /* owned */
    int n, cap;
    int nroot;     /* ls_params [0, nroot) belong to the root */
} ls_units;

/* --- describing a model: the root's parameters, then unit by unit -------------------- */

/* Begins the next unit; parameters that are added from here on belong to it. `cls` and `arg` are borrowed.
 * LS_INVALID: a name that is taken, too long or the root's, or the unit before lacks parameters that its forward
 * reads. */
ls_status ls_units_begin(ls_units *us, const char *name, int number, const ls_unit_class *cls, const void *arg);
/* Registers a parameter (ls_params_add) of the newest unit (ls_param.unit), at its next position; of the root before
 * the first unit.
 * LS_INVALID names the unit where the parameter is registered twice, or is more than its forward reads. */
ls_status ls_units_add(ls_units *us, ls_params *ps, const char *name, int ndim, const int64_t *dim);
/* The newest unit uses the root's parameter `name` at its next position. LS_INVALID: the root has none of that name. */
ls_status ls_units_share(ls_units *us, const ls_params *ps, const char *name);
/* Leaves the newest unit's next position for ls_units_add_last. */
ls_status ls_units_leave(ls_units *us);
/* The newest unit's forward does not read its next position (LS_UNIT_SKIPPED). */
ls_status ls_units_skip(ls_units *us);
/* Registers a parameter of unit `unit` at a position that was left, after the last unit: parameters that a wrapper of
 * their own keeps in step (ls_params.experts) lie together. Units in ascending order. */
ls_status ls_units_add_last(ls_units *us, ls_params *ps, int unit, int position, const char *name, int ndim,
                            const int64_t *dim);
/* After the last unit, and what comes last. LS_INVALID: no unit, one lacks parameters, or ps has some that no unit
 * knows. */
ls_status ls_units_end(const ls_units *us, const ls_params *ps);
void ls_units_free(ls_units *us);

/* --- a part of a model: a stage of a pipeline -------------------------------------------------- */

/* Units [units.first, units.first + units.count) and, filled in, which of ls_params belong to them: those of the root
 * that no stage before has, and the units' own; and of ls_params.experts. */
typedef struct ls_stage_part {
    ls_range units, params, experts;
} ls_stage_part;

/* After ls_units_end: only the units of stage[0 .. n) are computed here, n at least 1, in ascending order and without
 * overlap. Parameters that none of them reads go to ps->elsewhere; the others follow each other stage by stage, and
 * experts after all. Addresses of parameters change. LS_NO_MEMORY leaves all as it was. */
ls_status ls_units_keep(ls_units *us, ls_params *ps, ls_stage_part *stage, int n);
/* The parameter at `position` of a unit that may be elsewhere. */
static inline ls_param *ls_units_param(const ls_params *ps, const ls_unit *u, int position)
{
    return u->elsewhere ? ls_params_at(ps, u->position[position]) : &ps->item[u->position[position]];
}

/* --- computing ------------------------------------------------------------------------ */

/* The parameter at `position` of the unit. */
static inline ls_param *ls_unit_param(const ls_unit *u, const ls_pass *pass, int position)
{
    return &pass->params->item[u->position[position]];
}

/* x through the units [first, first + count): a stage, or with 0 and us->n the whole model. NULL after a failure. */
ls_tensor *ls_units_forward(const ls_units *us, int first, int count, ls_tape *t, ls_tensor *x, const ls_pass *pass);

#ifdef __cplusplus
}
#endif
#endif
