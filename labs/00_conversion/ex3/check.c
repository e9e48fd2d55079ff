/* check.c -- exercise 3 of lab 00: a converted script under `lockstep run --lint`, on 1, 2 and 4 ranks beside the
 * script that was not converted, and after a rank was killed.
 *
 * This program is what `lockstep run` starts, too: `check script FOLDER [kill]` is one rank of a job.
 */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/lockstep.h"

/* The script as it is given, under other names: what the converted one has to be equal to. */
#define epochs_in  given_epochs_in
#define run        given_run
#define script     given_script
#define train      given_train
#include "00_conversion/ex3/task.c"
#undef epochs_in
#undef run
#undef script
#undef train

typedef given_run run;
ls_status train(ls_world *world, void *arg); /* task.c of the reader */
ls_status script(run *r);

enum { RANKS = 4, SHAPES = 120, EPOCHS = 4, KILLED_AFTER = 1, PATH = 4096 };

static const run job = { .samples = 64, .in = 8, .classes = 4, .batch = 16, .epochs = EPOCHS, .seed = 5 };

/* --- a rank of a job ------------------------------------------------------------------------------------------- */

static char folder[PATH]; /* of the job's files */
static bool kills;

static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

/* Appends a line to a file of the folder. */
static void note(const char *name, const char *text)
{
    char path[PATH + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "a");
    if (!f) return;
    fprintf(f, "%s\n", text);
    fclose(f);
}

static void after_epoch(const run *r, int epoch)
{
    char text[16];
    (void)r;
    snprintf(text, sizeof text, "%d", epoch);
    if (number_of("RANK") == 0) note("epochs", text);
    if (!kills || number_of("RANK") != 1 || number_of("TORCHELASTIC_RESTART_COUNT") > 0 || epoch != KILLED_AFTER) return;
    note("killed", text);
    raise(SIGKILL);
}

static int rank_main(const char *where, bool with_kill)
{
    char file[PATH + 16], text[64];
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(file, sizeof file, "%s/model", folder);
    kills = with_kill;
    run r = job;
    r.file = file;
    r.after_epoch = after_epoch;
    const ls_status st = script(&r);
    if (st < 0) fprintf(stderr, "error[%s]: %s\n", ls_status_word(st), ls_last_error());
    snprintf(text, sizeof text, "%.17g", r.loss);
    if (st == LS_OK && number_of("RANK") == 0) note("loss", text);
    return ls_status_exit_code(st);
}

/* --- jobs ------------------------------------------------------------------------------------------------------- */

/* The program lockstep, beside the library that this one is linked with. */
static bool find_lockstep(char *path, size_t n)
{
    static const char *const where[] = { "lockstep", "../bin/lockstep", "../../bin/lockstep" };
    Dl_info lib;
    if (!dladdr((void *)(uintptr_t)ls_version, &lib) || !strrchr(lib.dli_fname, '/')) return false;
    const int dir = (int)(strrchr(lib.dli_fname, '/') - lib.dli_fname);
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        snprintf(path, n, "%.*s/%s", dir, lib.dli_fname, where[i]);
        if (access(path, X_OK) == 0) return true;
    }
    return false;
}

/* Runs a job on four ranks; what it printed. Its exit status, or -1. */
static int job_on_ranks(const char *flags, const char *more, char *said, size_t n)
{
    char lockstep[PATH], self[PATH] = "", command[4 * PATH];
    if (!find_lockstep(lockstep, sizeof lockstep) || readlink("/proc/self/exe", self, sizeof self - 1) < 0) return -1;
    snprintf(command, sizeof command, "'%s' run --nproc-per-node %d %s -- '%s' script '%s'%s 2>&1", lockstep, RANKS, flags, self,
             folder, more);
    FILE *p = popen(command, "r");
    const size_t got = p ? fread(said, 1, n - 1, p) : 0;
    said[got] = 0;
    const int status = p ? pclose(p) : -1;
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The bytes of a file of the folder; empty: there is none. */
static void read_note(const char *name, char *text, size_t n)
{
    char path[PATH + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    text[f ? fread(text, 1, n - 1, f) : 0] = 0;
    if (f) fclose(f);
}

static void forget(void)
{
    static const char *const names[] = { "epochs", "killed", "loss", "model" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH + 16];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
}

static int red(const char *what, const char *expected, const char *found, const char *idea)
{
    printf("%s\n  expected  %s\n  found     %s\n  idea      %s\n", what, expected, found, idea);
    return 1;
}

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

static double given_loss(run r)
{
    r.file = NULL;
    return given_train(NULL, &r) == LS_OK ? r.loss : (double)NAN;
}

/* --- the three parts ---------------------------------------------------------------------------------------------- */

static int check_calls(void)
{
    static const struct { const char *rule, *idea; } ideas[] = {
        { "group", "a rank has to join the job: ls_world_run joins, calls train and leaves" },
        { "wrapper", "no wrapper: ranks average no gradients, and each trains a model of its own" },
        { "sampler", "every rank reads the same samples: the sampler has to know the ranks and this one" },
        { "set_epoch", "a sampler that is not told the epoch gives the same order again" },
        { "save", "four ranks write one file: one of them is enough, and the others wait until it is there" },
        { "all_reduce", "gradients are averaged twice: the wrapper does it in backward" },
    };
    char said[8192];
    const int status = job_on_ranks("--lint --json", "", said, sizeof said);
    const char *finding = strstr(said, "\"findings\": [{");
    forget();
    for (size_t i = 0; finding && i < sizeof ideas / sizeof *ideas; i++) {
        char rule[64];
        snprintf(rule, sizeof rule, "\"rule\": \"%s\"", ideas[i].rule);
        if (strstr(finding, rule)) return red("lockstep run --nproc-per-node 4 --lint", "no finding", ideas[i].rule, ideas[i].idea);
    }
    if (status == 0) return 0;
    printf("%s\n", said);
    return red("lockstep run --nproc-per-node 4 --lint", "exit status 0", "another one", "the message above says why the job failed");
}

typedef struct ranks {
    run r;
    double loss[RANKS];
} ranks;

static void no_epoch(const run *r, int epoch) { (void)r, (void)epoch; }

static ls_status one_rank(ls_world *w, void *arg)
{
    ranks *all = arg;
    run mine = all->r;
    LS_TRY(train(w, &mine));
    all->loss[ls_world_rank(w)] = mine.loss;
    return LS_OK;
}

static int check_losses(check *c)
{
    for (int shape = 0; shape < SHAPES; shape++) {
        run r = { .in = check_between(c, 2, 12), .classes = check_between(c, 2, 8), .batch = 4 * check_between(c, 1, 6),
                  .epochs = check_between(c, 1, 3), .seed = check_random(c) % 1000, .after_epoch = no_epoch };
        r.samples = r.batch * check_between(c, 1, 4);
        const double expected = given_loss(r);
        for (int size = 1; size <= RANKS; size *= 2) {
            ranks all = { .r = r };
            const ls_status st = ls_world_threads(size, NULL, one_rank, &all);
            int wrong = st < 0 ? 0 : size;
            for (int k = size - 1; st == LS_OK && k >= 0; k--)
                if (!close_to(all.loss[k], expected)) wrong = k;
            if (wrong == size) continue;
            printf("shape %d of %d: %d samples, batch %d, %d epochs, seed %d, %d ranks\n", shape + 1, SHAPES, r.samples, r.batch,
                   r.epochs, (int)r.seed, size);
            if (st < 0) printf("  found     %s\n  idea      the message says what failed; on one rank the script worked\n", ls_last_error());
            else
                printf("  expected  loss %.9g, as on one rank\n  found     loss %.9g on rank %d\n  idea      %s\n", expected,
                       all.loss[wrong], wrong,
                       size == 1 ? "on one rank nothing changes: model, loss and optimizer stay as they were"
                                 : "`batch` counts the samples of all ranks: each rank reads its part");
            return 1;
        }
    }
    return 0;
}

static int check_resume(void)
{
    char said[8192], epochs[256], killed[32], loss[64], all[64] = "", found[192];
    run undisturbed = job;
    undisturbed.after_epoch = no_epoch;
    const double expected = given_loss(undisturbed);
    const int status = job_on_ranks("--max-restarts 1", " kill", said, sizeof said);
    read_note("epochs", epochs, sizeof epochs);
    read_note("killed", killed, sizeof killed);
    read_note("loss", loss, sizeof loss);
    forget();
    const char *const what = "a job of 4 ranks, of which rank 1 is killed after epoch 1; lockstep run --max-restarts 1";
    if (!*killed) return red(what, "after_epoch called on rank 1", "no call", "call after_epoch on every rank, after each epoch");
    if (status != 0) {
        printf("%s\n", said);
        return red(what, "exit status 0", "another one", "the message above says why the second start failed");
    }
    for (char *p = strtok(epochs, "\n"); p; p = strtok(NULL, "\n"))
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", p);
    snprintf(found, sizeof found, "epochs%s", all);
    if (strstr(all, " 0") != strrchr(all, '0') - 1)
        return red(what, "epochs 0 1 2 3, or one of them twice", found,
                   "the second start trains from epoch 0: if there is a file, load it, and go on with the epoch after it");
    if (close_to(atof(loss), expected)) return 0;
    snprintf(found, sizeof found, "loss %.17g, epochs%s", atof(loss), all);
    snprintf(said, sizeof said, "loss %.17g", expected);
    return red(what, said, found, "the second start has to begin with the weights of the file, and with the epoch that follows them");
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "script") == 0) return rank_main(argv[2], argc > 3);
    setenv("OMP_NUM_THREADS", "1", 1);
    check c = { .state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 };
    if (readlink("/proc/self/exe", folder, sizeof folder - 1) < 0 || !strrchr(folder, '/')) return 2;
    *strrchr(folder, '/') = 0;
    if (check_calls() || check_losses(&c) || check_resume()) return 1;
    return check_green(SHAPES);
}
