/* harness_ckpt.h -- a small model, a file of it, and a folder of its own for each test. */
#ifndef LS_TEST_HARNESS_CKPT_H
#define LS_TEST_HARNESS_CKPT_H
#include "harness_files.h"
#include "lockstep/ckpt.h"

typedef struct fixture {
    char dir[64], path[96];
    ls_params ps;
} fixture;

static inline void add_param(ls_params *ps, const char *name, int ndim, const int64_t *dim, float first)
{
    assert_int_equal(ls_params_add(ps, name, ndim, dim), LS_OK);
    ls_tensor *t = &ps->item[ps->n - 1].t;
    float *x = malloc(ls_tensor_nbytes(t));
    assert_non_null(x);
    for (int64_t i = 0; i < ls_tensor_count(t); i++) x[i] = first + 0.37f * (float)i;
    t->data = x;
}

static inline void free_params(ls_params *ps)
{
    for (int i = 0; i < ps->n; i++) free(ps->item[i].t.data);
    ls_params_free(ps);
}

static inline void small_mlp(ls_params *ps, const char *prefix, float first)
{
    char name[LS_NAME_BYTES];
    static const struct { const char *name; int ndim; int64_t dim[2]; } row[] = {
        { "0.weight", 2, { 3, 5 } }, { "0.bias", 1, { 3 } }, { "2.weight", 2, { 2, 3 } }, { "2.bias", 1, { 2 } },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, row[i].name);
        add_param(ps, name, row[i].ndim, row[i].dim, first + (float)i);
    }
}

static inline int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->dir, "/tmp/lockstep-test-ckpt-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/model.safetensors", f->dir);
    small_mlp(&f->ps, "", 1.0f);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    free_params(&f->ps);
    free(f);
    return 0;
}

/* A file with this JSON header and n zero bytes of data. */
static inline void spill_header(const char *path, const char *json, size_t n)
{
    uint64_t size = strlen(json);
    unsigned char *p = calloc(1, 8 + size + n);
    assert_non_null(p);
    memcpy(p, &size, 8);
    memcpy(p + 8, json, size);
    spill(path, p, 8 + size + n);
    free(p);
}

static inline ls_status open_and_verify(const char *path)
{
    ls_ckpt *c;
    ls_status st = ls_ckpt_open(path, &c);
    if (st == LS_OK) st = ls_ckpt_verify(c);
    ls_ckpt_close(c);
    return st;
}

static inline bool same_values(const ls_params *a, const ls_params *b)
{
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->item[i].t.data, b->item[i].t.data, ls_tensor_nbytes(&a->item[i].t)) != 0) return false;
    return true;
}

#define assert_error_has(text)                                                                   \
    do {                                                                                         \
        if (!strstr(ls_last_error(), text)) fail_msg("'%s' lacks '%s'", ls_last_error(), text);  \
    } while (0)

#define CKPT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
