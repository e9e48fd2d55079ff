/* The exercise's own functions, from inside: examples/train_ddp.c is compiled in, its main under another name. Ranks
 * are forked here, as mp.spawn does, and know nothing but the arguments of setup_ddp. R4, R88 ... are the rows of the
 * list of requirements that a test answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/env.h"

int example_main(int argc, char **argv);
#define main example_main
#include "../examples/train_ddp.c"
#undef main

#define MOST 4
#define MASK 16 /* 1,024 CPUs */
#define OUT "test_train_ddp.safetensors"

static const options small = { .d_in = 8, .d_hidden = 16, .d_out = 4, .epochs = 2, .batch = 32, .lr = 1e-3,
                               .transport = "shm", .out = OUT };

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static ls_status reduce(void)
{
    float one = 1;
    return ls_all_reduce(ls_world_group(job.world), NULL, &one, 1, LS_F32, LS_SUM);
}

static bool exists(const char *path)
{
    ls_file_info info;
    return ls_env_get()->info(path, &info) == 0 && info.type == LS_FILE_REGULAR;
}

/* --- forked ranks ------------------------------------------------------------------------------ */

/* What a rank found, in memory that the test shares with it. */
typedef struct finding {
    ls_status status;
    char text[512];
    float sum;
    uint64_t before[MASK], inside[MASK], after[MASK]; /* CPUs */
    int cpus;
    char digest[33], loaded[33];
    float value[1024];
    double loss;
    bool file; /* its own --out is there */
} finding;

typedef ls_status (*rank_fn)(int rank, int size, const options *o, finding *f);

/* fn on `size` forked ranks that meet at a free port; the caller unmaps what comes back. */
static finding *fork_ranks(int size, const options *o, rank_fn fn)
{
    finding *all = mmap(NULL, MOST * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[MOST];
    options mine = *o;
    assert_true(all != MAP_FAILED);
    mine.port = ls_env_get()->free_port();
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        all[r].status = LS_RANK_DIED;
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] > 0) continue;
        job.o = &mine;
        all[r].status = fn(r, size, &mine, &all[r]);
        snprintf(all[r].text, sizeof all[r].text, "%s", ls_last_error());
        _exit(0);
    }
    for (int r = 0; r < size; r++) assert_int_equal(waitpid(pid[r], NULL, 0), pid[r]);
    return all;
}

static void all_succeed(const finding *f, int size)
{
    for (int r = 0; r < size; r++)
        if (f[r].status != LS_OK) fail_msg("rank %d of %d: %d %s", r, size, (int)f[r].status, f[r].text);
}

static void forget(finding *f) { munmap(f, MOST * sizeof *f); }

/* --- setup_ddp and cleanup_ddp --------------------------------------------------------------------- */

static ls_status sets_up(int rank, int size, const options *o, finding *f)
{
    const ls_env *env = ls_env_get();
    (void)o;
    f->cpus = env->cpus();
    f->sum = (float)(rank + 1);
    env->cpu_mask(f->before, MASK);
    LS_TRY(setup_ddp(rank, size));
    if (ls_world_rank(job.world) != rank || ls_world_size(job.world) != size) return ls_fail(LS_INTERNAL, "another place");
    env->cpu_mask(f->inside, MASK);
    LS_TRY(ls_all_reduce(ls_world_group(job.world), &f->sum, &f->sum, 1, LS_F32, LS_SUM));
    LS_TRY(ls_barrier(ls_world_group(job.world)));
    if (setup_ddp(rank, size) != LS_INVALID) return ls_fail(LS_INTERNAL, "a second setup_ddp: %s", ls_last_error());
    LS_TRY(ls_barrier(ls_world_group(job.world))); /* the first one still holds */
    cleanup_ddp();
    env->cpu_mask(f->after, MASK);
    if (ls_barrier(ls_world_group(job.world)) != LS_INVALID) return ls_fail(LS_INTERNAL, "a barrier after cleanup_ddp");
    LS_TRY(setup_ddp(rank, size)); /* again, in the same process */
    LS_TRY(ls_barrier(ls_world_group(job.world)));
    cleanup_ddp();
    return LS_OK;
}

static void R4_forked_ranks_form_the_group_from_arguments(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++) {
        finding *f = fork_ranks(size, &small, sets_up);
        all_succeed(f, size);
        for (int r = 0; r < size; r++) assert_int_equal((int)f[r].sum, size * (size + 1) / 2);
        forget(f);
    }
}

/* While the group lasts, each rank has an equal part of the cores for itself; with more ranks than cores, all. */
static void R4_each_rank_is_bound_to_cores_of_its_own(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        finding *f = fork_ranks(size, &small, sets_up);
        all_succeed(f, size);
        for (int r = 0; r < size; r++) {
            int n = 0;
            uint64_t all = 0;
            for (int i = 0; i < MASK; i++) {
                n += __builtin_popcountll(f[r].inside[i]);
                all |= f[r].before[i] & ~f[r].after[i];
                assert_int_equal(f[r].inside[i] & ~f[r].before[i], 0);
                for (int q = 0; q < r && f->cpus >= size; q++) assert_int_equal(f[r].inside[i] & f[q].inside[i], 0);
                if (f->cpus < size) assert_int_equal(f[r].inside[i], f[r].before[i]);
            }
            assert_int_equal(all, 0); /* cleanup_ddp gives them back */
            if (f->cpus >= size) assert_int_equal(n, f->cpus / size);
        }
        forget(f);
    }
}

static void refuses_a_second_setup(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(setup_ddp(0, 1), LS_OK);
    assert_int_equal(reduce(), LS_OK);
    assert_int_equal(setup_ddp(0, 1), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "setup_ddp was called twice: call cleanup_ddp first"));
    assert_int_equal(reduce(), LS_OK); /* the first one still holds */
    cleanup_ddp();
}

static void leaves_nothing_behind_after_cleanup(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(setup_ddp(0, 1), LS_OK);
    cleanup_ddp(); /* the first time may open what stays open for good */
    int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(setup_ddp(0, 1), LS_OK);
        assert_int_equal(reduce(), LS_OK);
        cleanup_ddp();
        assert_int_equal(entries("/proc/self/fd"), files);
        assert_int_equal(entries("/proc/self/task"), threads);
    }
    cleanup_ddp(); /* once more does no harm */
}

static void refuses_collectives_before_setup_and_after_cleanup(void **state)
{
    (void)state;
    job.o = &small;
    assert_int_equal(reduce(), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "call ls_world_join first"));
    assert_int_equal(setup_ddp(0, 1), LS_OK);
    cleanup_ddp();
    assert_int_equal(reduce(), LS_INVALID);
}

/* An environment that says another place is an error that names both; one that says the same is taken. */
static ls_status in_an_environment(int rank, int size, const options *o, finding *f)
{
    (void)f;
    char text[16];
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "4", 1);
    const ls_status st = setup_ddp(rank, size);
    if (st != LS_CONFIG_MISMATCH || !strstr(ls_last_error(), "rank 0 of 2") || !strstr(ls_last_error(), "rank 1 of 4"))
        return ls_fail(LS_INTERNAL, "%d: %s", (int)st, ls_last_error());
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(text, sizeof text, "%d", (int)o->port);
    setenv("MASTER_PORT", text, 1);
    LS_TRY(setup_ddp(0, 1));
    cleanup_ddp();
    return LS_OK;
}

static void R4_an_environment_that_contradicts_is_named(void **state)
{
    (void)state;
    finding *f = mmap(NULL, MOST * sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f != MAP_FAILED);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        job.o = &small;
        f->status = in_an_environment(0, 2, &(options){ .port = ls_env_get()->free_port() }, f);
        snprintf(f->text, sizeof f->text, "%s", ls_last_error());
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    all_succeed(f, 1);
    forget(f);
}

/* --- the port ------------------------------------------------------------------------------------ */

static ls_status takes_the_port_of_the_environment(int rank, int size, const options *o, finding *f)
{
    char text[16];
    options mine = *o;
    snprintf(text, sizeof text, "%d", (int)o->port);
    setenv("MASTER_PORT", text, 1);
    mine.port = 12355; /* somebody listens there */
    job.o = &mine;
    LS_TRY(setup_ddp(rank, size));
    f->sum = 1;
    const ls_status st = ls_all_reduce(ls_world_group(job.world), &f->sum, &f->sum, 1, LS_F32, LS_SUM);
    cleanup_ddp();
    return st;
}

/* The port is 12355; where it is taken the error says who has it; MASTER_PORT is another. */
static void R9_ranks_meet_at_port_12355_unless_the_environment_says(void **state)
{
    (void)state;
    options def;
    ls_opts *opts;
    int bound;
    assert_int_equal(ls_opts_create(table, sizeof table / sizeof *table, &def, &opts), LS_OK);
    assert_int_equal(def.port, 12355);
    const int fd = ls_env_get()->listen_tcp("127.0.0.1", 12355, &bound); /* or another program has it */
    job.o = &def;
    assert_int_equal(setup_ddp(0, 2), LS_PORT_BUSY);
    if (!strstr(ls_last_error(), "12355") || !strstr(ls_last_error(), "held by")) fail_msg("%s", ls_last_error());
    finding *f = fork_ranks(2, &small, takes_the_port_of_the_environment);
    all_succeed(f, 2);
    for (int r = 0; r < 2; r++) assert_int_equal((int)f[r].sum, 2);
    forget(f);
    ls_opts_destroy(opts);
    if (fd >= 0) ls_env_get()->close_fd(fd);
}

/* --- train_ddp ------------------------------------------------------------------------------------- */

static const int64_t dims[3] = { 8, 16, 4 };
static const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_TORCH };

/* Mean loss over the data, by a model that belongs to no group. */
static ls_status loss_of(ls_model *m, const ls_dataset *d, double *out)
{
    const int64_t xdim[2] = { (int64_t)d->n, (int64_t)d->features };
    const int64_t n = (int64_t)d->n;
    ls_tape *tape;
    LS_TRY(ls_tape_create(ls_model_tape_bytes(m, n), NULL, NULL, &tape));
    ls_tensor *x = ls_tape_input(tape, LS_F32, 2, xdim, (void *)(uintptr_t)d->x),
              *y = ls_tape_input(tape, LS_I64, 1, &n, (void *)(uintptr_t)d->label),
              *loss = ls_softmax_cross_entropy(tape, ls_model_forward(m, tape, x), y, NULL, NULL);
    if (loss) *out = (double)*(float *)loss->data;
    ls_tape_destroy(tape);
    return loss ? LS_OK : ls_fail(LS_INTERNAL, "the returned model computes nothing");
}

static ls_status copy_values(const ls_model *m, finding *f)
{
    size_t at = 0;
    for (int i = 0; i < m->params.n; i++) {
        const size_t n = (size_t)ls_tensor_count(&m->params.item[i].t);
        if (at + n > sizeof f->value / sizeof *f->value) return ls_fail(LS_INTERNAL, "the test has no place for the values");
        memcpy(f->value + at, m->params.item[i].t.data, n * sizeof *f->value);
        at += n;
    }
    return LS_OK;
}

/* Trains, leaves the group, and uses the model. Ranks have initial values and files of their own. */
static ls_status trains(int rank, int size, const options *o, finding *f)
{
    char out[64];
    options mine = *o;
    ls_model_config own = mlp;
    ls_dataset data;
    ls_model *m = NULL, *loaded = NULL;
    snprintf(out, sizeof out, "%s.%d", OUT, rank);
    mine.out = out;
    job.o = &mine;
    own.seed = (uint64_t)rank;
    LS_TRY(ls_dataset_synthetic(0, 101, (size_t)o->d_in, o->d_out, &data));
    ls_status st = train_ddp(rank, size, &own, &data, 2, &m);
    f->file = exists(out);
    if (st == LS_OK && job.world) st = ls_fail(LS_INTERNAL, "train_ddp has left the group standing");
    if (st == LS_OK) st = ls_params_digest(&m->params, f->digest);
    if (st == LS_OK) st = copy_values(m, f);
    if (st == LS_OK) st = loss_of(m, &data, &f->loss);
    if (st == LS_OK) st = ls_model_create(&mlp, &loaded);
    if (st == LS_OK) st = ls_arena_create(1 << 16, false, NULL, &loaded->arena);
    if (st == LS_OK) st = ls_params_bind(&loaded->params, loaded->arena, NULL);
    if (st == LS_OK) st = ls_ckpt_load(OUT ".0", &loaded->params, false); /* every rank finds rank 0's file */
    if (st == LS_OK) st = ls_params_digest(&loaded->params, f->loaded);
    ls_model_destroy(loaded);
    ls_model_destroy(m);
    ls_dataset_free(&data);
    return st;
}

static void R6_R88_train_ddp_returns_the_same_trained_model_on_all_ranks(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++) {
        finding *f = fork_ranks(size, &small, trains);
        all_succeed(f, size);
        for (int r = 0; r < size; r++) {
            assert_memory_equal(f[r].value, f->value, sizeof f->value); /* to the bit */
            assert_string_equal(f[r].digest, f->digest);
            assert_true(f[r].loss > 0.5 && f[r].loss < 3 && !(f[r].loss < f->loss) && !(f[r].loss > f->loss));
        }
        assert_true(f->value[0] > 0 || f->value[0] < 0);
        forget(f);
        assert_int_equal(remove(OUT ".0"), 0);
    }
}

/* Each rank has a name of its own for the file: only rank 0's appears, whole, before any rank's train_ddp returns. */
static void R41_only_rank_0_writes_and_all_ranks_find_the_file(void **state)
{
    (void)state;
    char left[64]; /* by an earlier run that failed */
    for (int r = 0; r < MOST; r++) {
        snprintf(left, sizeof left, "%s.%d", OUT, r);
        (void)remove(left);
    }
    for (int size = 2; size <= MOST; size += 2) {
        finding *f = fork_ranks(size, &small, trains);
        all_succeed(f, size);
        for (int r = 0; r < size; r++) {
            assert_int_equal(f[r].file, r == 0);
            assert_string_equal(f[r].loaded, f->digest);
        }
        forget(f);
        assert_int_equal(remove(OUT ".0"), 0);
    }
}

static ls_status cannot_save(int rank, int size, const options *o, finding *f)
{
    options mine = *o;
    ls_dataset data;
    ls_model *m = NULL;
    (void)f;
    mine.out = "nowhere/at/all.safetensors";
    job.o = &mine;
    LS_TRY(ls_dataset_synthetic(0, 101, (size_t)o->d_in, o->d_out, &data));
    const ls_status st = train_ddp(rank, size, &mlp, &data, 1, &m);
    ls_dataset_free(&data);
    return m ? LS_INTERNAL : st;
}

static void a_file_that_cannot_be_saved_ends_every_rank(void **state)
{
    (void)state;
    finding *f = fork_ranks(3, &small, cannot_save);
    for (int r = 0; r < 3; r++)
        if (f[r].status >= 0 || !strstr(f[r].text, "nowhere/at/all.safetensors")) fail_msg("rank %d: %s", r, f[r].text);
    forget(f);
}

static void trains_twice_in_one_process(void **state)
{
    (void)state;
    ls_dataset data;
    job.o = &small;
    assert_int_equal(ls_dataset_synthetic(0, 100, (size_t)small.d_in, small.d_out, &data), LS_OK);
    for (int i = 0; i < 2; i++) {
        ls_model *m;
        assert_int_equal(train_ddp(0, 1, &mlp, &data, 1, &m), LS_OK);
        ls_model_destroy(m);
    }
    assert_null(job.world);
    ls_dataset_free(&data);
    assert_int_equal(remove(small.out), 0);
}

int main(void)
{
    static const char *const vars[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT" };
    for (size_t i = 0; i < sizeof vars / sizeof *vars; i++) unsetenv(vars[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(R4_forked_ranks_form_the_group_from_arguments),
        cmocka_unit_test(R4_each_rank_is_bound_to_cores_of_its_own),
        cmocka_unit_test(R4_an_environment_that_contradicts_is_named),
        cmocka_unit_test(refuses_a_second_setup),
        cmocka_unit_test(leaves_nothing_behind_after_cleanup),
        cmocka_unit_test(refuses_collectives_before_setup_and_after_cleanup),
        cmocka_unit_test(R9_ranks_meet_at_port_12355_unless_the_environment_says),
        cmocka_unit_test(R6_R88_train_ddp_returns_the_same_trained_model_on_all_ranks),
        cmocka_unit_test(R41_only_rank_0_writes_and_all_ranks_find_the_file),
        cmocka_unit_test(a_file_that_cannot_be_saved_ends_every_rank),
        cmocka_unit_test(trains_twice_in_one_process),
    };
    return cmocka_run_group_tests_name("train_ddp", tests, NULL, NULL);
}
