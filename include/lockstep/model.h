/* model.h -- models: parameters and a formula. */
#ifndef LS_MODEL_H
#define LS_MODEL_H
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_model ls_model;

/* What a model is built from. */
typedef struct ls_model_config {
    const char *name;    /* "mlp" */
    const int64_t *dims; /* mlp: [in, hidden..., classes], at least 2 */
    int ndims;
    const char *activation; /* mlp: "relu" (default, NULL) or "gelu" */
    ls_init init;
    uint64_t seed;
} ls_model_config;

/* A kind of model: one file, one of these, one line in registry.c. */
typedef struct ls_model_class {
    const char *name;
    const char *summary;
    /* Registers parameters; no memory for values yet. */
    ls_status (*create)(const ls_model_config *c, ls_model *m);
    /* Sets initial values after binding. */
    ls_status (*init)(ls_model *m, const ls_model_config *c);
    /* Shape and type of the x for `batch` rows; returns its number of dimensions. */
    int (*input)(const ls_model *m, int64_t batch, ls_dtype *dtype, int64_t dim[LS_MAX_DIMS]);
    /* x -> logits [N, classes]. */
    ls_tensor *(*forward)(ls_model *m, ls_tape *t, ls_tensor *x);
    void (*destroy)(ls_model *m);
} ls_model_class;
extern const ls_model_class *const ls_model_classes[]; /* NULL-ended */
const ls_model_class *ls_model_class_find(const char *name);

struct ls_model {
    const ls_model_class *cls;
    ls_params params;
    void *state; /* owned by the class */
};

/* Registers the parameters; bind them (ls_params_bind), then ls_model_init.
 * LS_BAD_CONFIG names the value that is wrong. */
ls_status ls_model_create(const ls_model_config *c, ls_model **out);
ls_status ls_model_init(ls_model *m, const ls_model_config *c);
ls_tensor *ls_model_forward(ls_model *m, ls_tape *t, ls_tensor *x);
void ls_model_destroy(ls_model *m); /* NULL is fine; arenas are the caller's */

/* Bytes of tape slab that one forward, softmax_cross_entropy and backward of `batch` rows
 * take with all gradients wanted; 0 after a failure (ls_last_error). Exact: it is a dry run. */
size_t ls_model_tape_bytes(const ls_model *m, int64_t batch);

#ifdef __cplusplus
}
#endif
#endif
