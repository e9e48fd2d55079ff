/* env_real_library.c -- the real env's shared libraries: plugins, and what others have loaded. */
#include "base/env_real.h"

#include <dlfcn.h>
#include <stdio.h>

/* Never unloaded: a library may have started threads and left handlers. */
void *ls_real_library(const char *path, bool shared, char *why, size_t n)
{
    void *library = dlopen(path, RTLD_NOW | (shared ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) {
        const char *text = dlerror();
        snprintf(why, n, "%s", text ? text : "unknown reason");
    }
    return library;
}

void *ls_real_symbol(void *library, const char *name) { return dlsym(library ? library : RTLD_DEFAULT, name); }
