/* probe.h -- what the files of lab 02's probe share. */
#ifndef LS_LAB_SHARDING_PROBE_H
#define LS_LAB_SHARDING_PROBE_H
#include <stddef.h>

#include "lockstep/status.h"

/* The word limit: see probe.c. more[n]: further words of `lockstep train`. */
ls_status limit(const char *recipe, const char *text, const char *stage, long long more_bytes, char **more, int n);
/* A new folder in TMPDIR, whose path gets n bytes; and its end, with all that is in it. */
ls_status make_folder(char *dir, size_t n);
ls_status remove_folder(char *dir);

#endif
