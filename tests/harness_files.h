/* harness_files.h -- folders and whole files for tests. A test with make_folder and remove_folder around it has a
 * folder of its own: *state is its path. */
#ifndef LS_TEST_HARNESS_FILES_H
#define LS_TEST_HARNESS_FILES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <dirent.h>

static inline int make_folder(void **state)
{
    const char *in = getenv("TMPDIR");
    char *dir = malloc(200);
    assert_non_null(dir);
    snprintf(dir, 200, "%.150s/lockstep-test-XXXXXX", in && *in ? in : "/tmp");
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static inline int remove_folder(void **state)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    assert_int_equal(system(command), 0);
    free(*state);
    return 0;
}

/* A path in the test's folder. */
static inline const char *inside(void **state, const char *name, char path[256])
{
    snprintf(path, 256, "%s/%.64s", (char *)*state, name);
    return path;
}

/* How many names a folder has. */
static inline int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

/* All bytes of a file, with room for one more; the caller frees them. */
static inline unsigned char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *p = malloc(*n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static inline void spill(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

#endif
