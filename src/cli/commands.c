/* commands.c -- the list of commands. */
#include "cli/cli.h"

const ls_cmd *const ls_cmds[] = {
    &ls_cmd_run,    &ls_cmd_train,  &ls_cmd_explain,  &ls_cmd_bench,  &ls_cmd_calibrate,  &ls_cmd_tune,
    &ls_cmd_topo,   &ls_cmd_plan,   &ls_cmd_sim,      &ls_cmd_coll,   &ls_cmd_pipeline,   &ls_cmd_data,
    &ls_cmd_ckpt,   &ls_cmd_export, &ls_cmd_import,   &ls_cmd_generate, &ls_cmd_lab,      &ls_cmd_figure,
    &ls_cmd_secret, &ls_cmd_doctor, &ls_cmd_help,     &ls_cmd_completion, NULL,
};
