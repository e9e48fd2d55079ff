/* probe.c -- what the claims of lab 10 need of the library beside `lockstep train`: each word prints one JSON object.
 *
 *   setup [alone|leave]            setup_ddp in 4 forked processes (alone: of worlds of one; leave: cleanup_ddp before
 *                                  the second call)
 *   cleanup [leak]                 descriptors, threads and shared mappings of a process before setup_ddp and after
 *   sampler N RANKS [shuffle|drop] the samples of each rank, and the batches of 32 of rank 0
 *   train RANKS EPOCHS [WORD]      train_ddp in processes; WORD: frozen (learning rate 0), no-set-epoch, no-shuffle,
 *                                  widths (called with widths in place of a model and data), frozen-even (learning rate
 *                                  0, and 992 samples: whole batches on one rank)
 *   torch RANKS [RANKS]            ten epochs beside what PyTorch prints on so many ranks, 1, 2 or 4 (or on others)
 *   launch EPOCHS [drop]           lines that the starter prints (drop: it is not told how many epochs)
 *   start [bare]                   replicas with values of their own, after ls_ddp_create
 *   save [fresh|plain]             a saved model in a single process (fresh: not loaded; plain: saved without a prefix)
 *   ring RANKS [ALGORITHM]         bytes that an all_reduce of 13,440 floats moves per rank
 *   demo [sum]                     examples/demo_ddp_concepts, and what it has computed (sum: gradients are added)
 */
#include <dirent.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

int starter_main(int argc, char **argv);
#define main starter_main
#include "starter.c" /* its functions are what is tested */
#undef main

/* --- setup, cleanup ------------------------------------------------------------------------------------------ */

static ls_status sums(float *sum)
{
    LS_TRY(ls_all_reduce(ls_world_group(job.world), sum, sum, 1, LS_F32, LS_SUM));
    return ls_barrier(ls_world_group(job.world));
}

static ls_status sets_up(int rank, const task *t, finding *f)
{
    const bool alone = strcmp(t->word, "alone") == 0;
    f->sum = (float)(rank + 1);
    LS_TRY(alone ? setup_ddp(0, 1) : setup_ddp(rank, t->size));
    LS_TRY(sums(&f->sum));
    if (strcmp(t->word, "leave") == 0) cleanup_ddp();
    f->refused = setup_ddp(rank, t->size) == LS_INVALID;
    if (!alone) LS_TRY(ls_barrier(ls_world_group(job.world)));
    cleanup_ddp();
    return LS_OK;
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 3; /* "." and "..", and of descriptors the folder's own */
}

/* Descriptors, threads, mappings that have a shared memory file. */
static void count(int *kinds)
{
    char line[4096];
    kinds[0] = entries("/proc/self/fd");
    kinds[1] = entries("/proc/self/task") + 1;
    kinds[2] = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) kinds[2] += strstr(line, "/memfd:") || strstr(line, "/dev/shm/");
    if (maps) fclose(maps);
}

static ls_status cleans_up(int rank, const task *t, finding *f)
{
    for (int i = 0; i < 2; i++) { /* what the first time opens for good is counted before the second */
        count(f->before);
        f->sum = 1;
        LS_TRY(setup_ddp(rank, t->size));
        LS_TRY(sums(&f->sum));
        if (i == 0 || strcmp(t->word, "leak") != 0) cleanup_ddp();
    }
    count(f->after);
    for (int i = 0; i < 100 && f->after[1] > f->before[1]; i++) {
        usleep(1000); /* a thread that has been joined leaves /proc a little later */
        count(f->after);
    }
    f->counted = true;
    for (int i = 0; i < 5000 && !(t->f[0].counted && t->f[1].counted); i++)
        usleep(1000); /* with leak both are members still, and neither may end while the other is in a barrier */
    return LS_OK;
}

/* --- training ------------------------------------------------------------------------------------------------ */

/* Mean loss over the data, by a model that belongs to no group. */
static ls_status loss_of(ls_model *m, const ls_dataset *d, double *out)
{
    const int64_t n = (int64_t)d->n, xdim[2] = { n, IN };
    ls_tape *tape;
    LS_TRY(ls_tape_create(ls_model_tape_bytes(m, n), NULL, NULL, &tape));
    ls_tensor *x = ls_tape_input(tape, LS_F32, 2, xdim, (void *)(uintptr_t)d->x),
              *y = ls_tape_input(tape, LS_I64, 1, &n, (void *)(uintptr_t)d->label),
              *loss = ls_softmax_cross_entropy(tape, ls_model_forward(m, tape, x), y, NULL, NULL);
    if (loss) *out = (double)*(float *)loss->data;
    const ls_status st = loss ? LS_OK : ls_tape_status(tape);
    ls_tape_destroy(tape);
    return st;
}

/* The other form of train_ddp that is in use: it gets the widths of the layers, and builds model and data itself. */
static ls_status train_widths(int rank, int world_size, int64_t d_in, int64_t d_hidden, int64_t d_out, int epochs,
                              ls_model **trained)
{
    const int64_t widths[3] = { d_in, d_hidden, d_out };
    ls_model_config model_class = mlp;
    ls_dataset data;
    model_class.dims = widths;
    LS_TRY(ls_dataset_synthetic(0, SAMPLES, (size_t)d_in, d_out, &data));
    const ls_status st = train_ddp(rank, world_size, &model_class, &data, epochs, NULL, trained);
    ls_dataset_free(&data);
    return st;
}

static ls_status trains(int rank, const task *t, finding *f)
{
    ls_dataset data = { 0 };
    ls_model *m = NULL;
    const size_t samples = strcmp(t->word, "frozen-even") == 0 ? 31 * BATCH : SAMPLES;
    if (strncmp(t->word, "frozen", 6) == 0) job.lr = 0;
    job.no_set_epoch = strstr(t->word, "no-set-epoch") != NULL;
    job.no_shuffle = strstr(t->word, "no-shuffle") != NULL;
    ls_status st = ls_dataset_synthetic(0, samples, IN, 10, &data);
    const bool widths = st == LS_OK && strcmp(t->word, "widths") == 0;
    if (widths) st = train_widths(rank, t->size, IN, 128, 10, t->epochs, &m);
    else if (st == LS_OK) st = train_ddp(rank, t->size, &mlp, &data, t->epochs, t->out, &m);
    if (st == LS_OK) st = loss_of(m, &data, &f->whole);
    if (st == LS_OK) st = ls_params_digest(&m->params, f->digest);
    memcpy(f->loss, job.loss, sizeof f->loss);
    memcpy(f->order, job.order, sizeof f->order);
    ls_model_destroy(m);
    ls_dataset_free(&data);
    return st;
}

/* PyTorch 1.13 on gloo with one thread prints these for seed 1234 on 1, 2 and 4 ranks. */
static int units_from_torch(const finding *f, int ranks)
{
    static const double printed[3][10] = {
        { 2.3274, 2.2430, 2.1936, 2.1454, 2.0926, 2.0403, 1.9896, 1.9318, 1.8693, 1.8177 },
        { 2.3246, 2.2557, 2.2221, 2.1937, 2.1492, 2.1171, 2.0812, 2.0095, 1.9835, 1.9624 },
        { 2.3328, 2.2870, 2.2501, 2.2187, 2.1835, 2.1636, 2.1501, 2.1227, 2.0776, 2.0804 },
    };
    long most = 0;
    for (int e = 0; e < 10; e++) {
        const long units = labs(lround(1e4 * f->loss[e]) - lround(1e4 * printed[ranks / 2][e]));
        if (units > most) most = units;
    }
    return (int)most;
}

static ls_status plain_model(ls_model **out)
{
    LS_TRY(ls_model_create(&mlp, out));
    LS_TRY(ls_arena_create(2 * ls_params_nbytes(&(*out)->params) + 65536, false, NULL, &(*out)->arena));
    LS_TRY(ls_params_bind(&(*out)->params, (*out)->arena, NULL));
    return ls_model_init(*out, &mlp);
}

/* Epochs that rank 0 of the starter, beside this program, says it has trained. */
static ls_status launch(const char *epochs, bool drop, int *lines)
{
    char path[4096], line[256];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    int pipes[2];
    if (n < 6 || pipe(pipes) != 0) return ls_fail(LS_SYSTEM, "the starter cannot be started");
    path[n - 6] = 0; /* without "_probe" */
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], 1);
        execl(path, path, "4", drop ? NULL : epochs, NULL);
        _exit(127);
    }
    close(pipes[1]);
    FILE *said = fdopen(pipes[0], "r");
    while (said && fgets(line, sizeof line, said)) *lines += strncmp(line, "Epoch ", 6) == 0;
    if (said) fclose(said);
    int end = -1;
    if (pid < 0 || waitpid(pid, &end, 0) != pid || end != 0) return ls_fail(LS_SYSTEM, "%s failed", path);
    return LS_OK;
}

/* How many of the names of net = nn.Sequential(..) the file has. */
static int names_in(const char *path)
{
    static const char *const names[] = { "\"net.0.weight\"", "\"net.0.bias\"", "\"net.2.weight\"", "\"net.2.bias\"" };
    char head[4096] = { 0 };
    int n = 0;
    FILE *file = fopen(path, "rb");
    const size_t got = file ? fread(head, 1, sizeof head - 1, file) : 0;
    if (file) fclose(file);
    for (size_t i = 0; got > 8 && i < 4; i++) n += strstr(head + 8, names[i]) != NULL; /* 8: the length of the header */
    return n;
}

static ls_status save(task *t, double *loaded, int *names)
{
    char path[4096];
    ls_dataset data = { 0 };
    ls_model *m = NULL;
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/lockstep-script-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) return ls_fail(LS_IO, "making %s: set TMPDIR to a folder that you may write in", path);
    close(fd);
    t->out = path;
    ls_status st = fork_ranks(t, trains);
    if (st == LS_OK) st = ls_dataset_synthetic(0, SAMPLES, IN, 10, &data);
    if (st == LS_OK) st = plain_model(&m);
    if (st == LS_OK && strcmp(t->word, "fresh") != 0) st = ls_ckpt_load(path, &m->params, false);
    if (st == LS_OK) st = loss_of(m, &data, loaded);
    if (st == LS_OK && strcmp(t->word, "plain") == 0) st = ls_ckpt_save(path, &m->params, NULL);
    *names = names_in(path);
    ls_model_destroy(m);
    ls_dataset_free(&data);
    (void)unlink(path);
    return st;
}

/* --- the words ------------------------------------------------------------------------------------------------ */

/* Whether the last of n arguments after a word is one of the words that may stand there. */
static bool accepted(const char *word, int n, const char *last)
{
    static const struct { const char *word; int least; const char *more; } words[] = {
        { "setup", 0, "alone leave" }, { "cleanup", 0, "leak" }, { "sampler", 2, "shuffle drop" },
        { "start", 0, "bare" }, { "train", 2, "frozen-even no-set-epoch no-shuffle widths" }, { "torch", 1, "1 2 4" },
        { "launch", 1, "drop" }, { "save", 0, "fresh plain" }, { "ring", 1, "master" }, { "demo", 0, "sum" },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0)
            return n == words[i].least || (n == words[i].least + 1 && strstr(words[i].more, last));
    return false;
}

static ls_status run(const char *word, int argc, char **argv, task *t)
{
    if (!accepted(word, argc - 2, argc > 2 ? argv[argc - 1] : ""))
        return ls_fail(LS_USAGE, "the first lines of labs/10_script/probe.c say which words are accepted");
    finding *f = t->f;
    const int second = argc > 3 ? atoi(argv[3]) : 0;
    double loaded = 0;
    int names = 0;
    const char *last = argc > 2 ? argv[argc - 1] : "";
    *t = (task){ .size = 4, .epochs = 3, .word = last, .model = &mlp, .f = f };
    if (strcmp(word, "setup") == 0) {
        LS_TRY(fork_ranks(t, sets_up));
        const double sum[4] = { (double)f[0].sum, (double)f[1].sum, (double)f[2].sum, (double)f[3].sum };
        printf("{");
        print_list("sums", sum, 4);
        printf(", \"refused\": %d}\n", f[0].refused + f[1].refused + f[2].refused + f[3].refused);
        return LS_OK;
    }
    if (strcmp(word, "cleanup") == 0) {
        t->size = 2;
        LS_TRY(fork_ranks(t, cleans_up));
        printf("{\"before\": [%d, %d, %d], \"after\": [%d, %d, %d]}\n", f->before[0], f->before[1], f->before[2],
               f->after[0], f->after[1], f->after[2]);
        return LS_OK;
    }
    if (strcmp(word, "start") == 0) {
        LS_TRY(ls_world_threads(4, NULL, starts, t));
        printf("{\"digests\": [\"%s\", \"%s\", \"%s\", \"%s\"]}\n", f[0].digest, f[1].digest, f[2].digest, f[3].digest);
        return LS_OK;
    }
    if (strcmp(word, "demo") == 0) return demo(last);
    if (strcmp(word, "save") == 0) {
        LS_TRY(save(t, &loaded, &names));
        printf("{\"trained\": %.9g, \"loaded\": %.9g, \"names\": %d}\n", f->whole, loaded, names);
        return LS_OK;
    }
    if (strcmp(word, "sampler") == 0 && argc > 3 && second >= 1 && second <= MOST_RANKS && atoi(argv[2]) >= second)
        return sampler(atoi(argv[2]), second, argc > 4 ? last : "");
    if (strcmp(word, "launch") == 0) {
        LS_TRY(launch(argv[2], argc > 3, &names));
        printf("{\"lines\": %d}\n", names);
        return LS_OK;
    }
    t->size = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(word, "sampler") == 0 || t->size < 1 || t->size > MOST_RANKS)
        return ls_fail(LS_USAGE, "expected 1 to 8 ranks, and for each a sample");
    if (strcmp(word, "ring") == 0) {
        const ls_world_opts o = { .algo = argc > 3 ? last : "ring" };
        unsigned long long most = 0;
        LS_TRY(ls_world_threads(t->size, &o, moves, t));
        for (int r = 0; r < t->size; r++) most = f[r].bytes > most ? f[r].bytes : most;
        printf("{\"bytes\": %llu, \"vector\": %zu}\n", most, VECTOR * sizeof(float));
        return LS_OK;
    }
    const bool torch = strcmp(word, "torch") == 0;
    const int beside = second && torch ? second : t->size;
    t->epochs = torch ? 10 : second;
    if (torch && beside != 1 && beside != 2 && beside != 4) return ls_fail(LS_USAGE, "expected 1, 2 or 4 ranks");
    if (t->epochs < 1 || t->epochs > MOST_EPOCHS) return ls_fail(LS_USAGE, "expected 1 to %d epochs", MOST_EPOCHS);
    t->word = argc > 4 ? last : "";
    LS_TRY(fork_ranks(t, trains));
    printf("{");
    print_list("losses", f->loss, t->epochs);
    if (torch) printf(", \"units\": %d", units_from_torch(f, beside));
    printf(", \"whole\": %.9g, \"orders\": [%u, %u]", f->whole, f->order[0], f->order[1]);
    for (int r = 0; r < t->size; r++) printf("%s\"%s\"", r ? ", " : ", \"digests\": [", f[r].digest);
    printf("]}\n");
    return LS_OK;
}

int main(int argc, char **argv)
{
    const size_t nbytes = MOST_RANKS * sizeof(finding);
    task t = { .f = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
    ls_status st = ls_fail(LS_NO_MEMORY, "findings of ranks");
    if (t.f != MAP_FAILED) st = run(argc > 1 ? argv[1] : "", argc, argv, &t);
    if (st < 0) fprintf(stderr, "probe: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
