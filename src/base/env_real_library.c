/* env_real_library.c -- the real env's shared libraries: plugins, and what others have loaded. */
#include "base/env_real.h"

#include <dlfcn.h>
#include <stdio.h>

/* Global: an MPI library loads parts of itself that look for the rest of it. Never unloaded: those parts have threads
 * and handlers of their own. */
void *ls_real_library(const char *path, char *why, size_t n)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        const char *text = dlerror();
        snprintf(why, n, "%s", text ? text : "unknown reason");
    }
    return library;
}

void *ls_real_symbol(void *library, const char *name) { return dlsym(library ? library : RTLD_DEFAULT, name); }
