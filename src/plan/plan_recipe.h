/* plan_recipe.h -- a layout as a recipe of `lockstep train`. */
#ifndef LS_PLAN_RECIPE_H
#define LS_PLAN_RECIPE_H
#include "base/text.h"
#include "lockstep/plan.h"

/* Schedules that the runtime has and that have a closed form: ls_layout_query.schedules for layouts that it can run. */
unsigned ls_recipe_schedules(void);
/* YAML: the model's sizes, the layout, the batch; `cluster`: what `lockstep sim` is to be told of the cluster, as
 * "--topology h100-8". LS_UNSUPPORTED: the runtime has no such model (window, latent
 * attention, multi-token prediction, heads of another size, experts with dense layers or shared ones) or schedule. */
ls_status ls_layout_recipe(const ls_layout_query *q, const ls_layout *l, const char *cluster, ls_text *out);

#endif
