/* check.c -- exercise 3 of lab 10: the four functions, one by one, in processes and with random models and data. */
#include "check.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/lockstep.h"
#include "reference.h"

extern _Thread_local ls_world *world; /* task.c, like the functions */
ls_status setup_ddp(int rank, int world_size);
void cleanup_ddp(void);
ls_status train_ddp(int rank, int world_size, const ls_model_config *model_class, const ls_dataset *data, int epochs,
                    double *loss, ls_model **trained);
ls_status launch_distributed(int world_size, int (*train)(int rank, int world_size));

enum { JOINS = 10, TRAININGS = 20, LAUNCHES = 70, SHAPES = JOINS + TRAININGS + LAUNCHES, RANKS = 3 };

/* What ranks tell, in memory that all share. The first idea stays. */
typedef struct board {
    _Atomic int told;
    _Atomic bool wrong; /* some rank has other weights or losses than the reference */
    char found[300];
    const char *idea; /* a constant of this program, which all ranks are copies of */
    _Atomic unsigned seen[RANKS];
    _Atomic int pid[RANKS];
    int fail;
} board;

static board *b;

static int red(const char *idea, const char *found)
{
    if (atomic_fetch_add(&b->told, 1) > 0) return 1;
    b->idea = idea;
    snprintf(b->found, sizeof b->found, "%s", found);
    return 1;
}

static bool choose_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t n = sizeof a;
    char text[16];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0;
    if (found) found = getsockname(fd, (struct sockaddr *)&a, &n) == 0;
    if (fd >= 0) close(fd);
    snprintf(text, sizeof text, "%d", ntohs(a.sin_port));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", text, 1);
    return found;
}

/* Runs fn on processes; when one of them ends otherwise than with 0, the others may wait for it: they are killed. */
static bool on_ranks(int size, int (*fn)(check c, int rank, int size), check c)
{
    pid_t pid[RANKS];
    int end, bad = 0;
    for (int r = 0; r < size; r++) {
        pid[r] = fork();
        if (pid[r] == 0) _exit(fn(c, r, size));
        if (pid[r] < 0) return red("processes cannot be started", "fork failed"), false;
    }
    for (int left = size; left > 0; left--) {
        const pid_t who = wait(&end);
        for (int r = 0; r < size; r++) {
            if (pid[r] == who) pid[r] = 0;
            if (bad == 0 && end != 0 && pid[r] > 0) usleep(500000), kill(pid[r], SIGKILL);
        }
        bad |= end;
    }
    if (bad != 0 && b->told == 0) red("run it under a debugger, or print ls_last_error() where it fails", "a rank was ended by a signal");
    return b->told == 0;
}

/* --- setup_ddp, cleanup_ddp ------------------------------------------------------------------------------------- */

static int joins(check c, int rank, int size)
{
    for (int i = 0; i < JOINS; i++) {
        float sum = (float)check_between(&c, 1, 1000), want = sum * (float)size;
        const ls_status st = setup_ddp(rank, size);
        if (st != LS_OK && i > 0) return red("after cleanup_ddp this process can join again", "setup_ddp fails the second time");
        if (st != LS_OK) return red("setup_ddp joins by ls_world_join: its options have rank and size", "setup_ddp fails");
        ls_world *mine = world;
        if (!mine) return red("the world that was joined stays in `world`, where the other functions find it", "world is NULL after setup_ddp");
        if (ls_world_rank(mine) != rank || ls_world_size(mine) != size)
            return red("rank and world_size go into the options of ls_world_join", "a world of another size, or another rank");
        if (setup_ddp(rank, size) != LS_INVALID || world != mine)
            return red("a second setup_ddp would lose the first group: refuse it", "setup_ddp in a group: not LS_INVALID");
        if (ls_all_reduce(ls_world_group(mine), &sum, &sum, 1, LS_F32, LS_SUM) != LS_OK || sum != want)
            return red("the group of all ranks has to work", "an all_reduce fails after setup_ddp");
        cleanup_ddp();
        if (world) return red("a handle of a group that was left leads nowhere: set it to NULL", "world is not NULL after cleanup_ddp");
        cleanup_ddp();
    }
    return 0;
}

/* --- train_ddp ---------------------------------------------------------------------------------------------------- */

static const char *why(const shape *s, int rank, int size, const result *found)
{
    static const struct { int lacks; const char *idea; } of[] = {
        { NO_WRAPPER, "ranks train alone: the wrapper averages their gradients, and makes their first values equal" },
        { NO_SET_EPOCH, "each epoch has the order of the first: the sampler is not told which epoch begins" },
        { NO_SAMPLER, "each rank reads all samples: the loader needs the sampler" },
        { NO_SHUFFLE, "the samples are in the order of the file: the sampler shuffles" },
    };
    const char *idea = "compare with train_ddp in labs/10_script/starter.c, line by line";
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        result r;
        const ls_status st = reference(s, rank, size, of[i].lacks, NULL, NULL, &r);
        if (st == LS_OK && strcmp(r.digest, found->digest) == 0) idea = of[i].idea;
    }
    return idea;
}

static int trains(check c, int rank, int size)
{
    for (int i = 0; i < TRAININGS; i++) {
        char text[300];
        result found = { 0 }, right = { 0 };
        ls_dataset data = { 0 };
        ls_model *m = NULL;
        const shape s = { .in = check_between(&c, 2, 8), .hidden = check_between(&c, 2, 12),
                          .out = check_between(&c, 2, 5), .samples = check_between(&c, 9, 30),
                          .seed = check_random(&c) % 100000, .epochs = 3 };
        const int64_t dims[3] = { s.in, s.hidden, s.out };
        const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX,
                                     .seed = s.seed + (uint64_t)rank };
        ls_status st = ls_dataset_synthetic(s.seed, (size_t)s.samples, (size_t)s.in, s.out, &data);
        if (st == LS_OK) st = train_ddp(rank, size, &mc, &data, s.epochs, found.loss, &m);
        if (st == LS_OK && !m) return red("the caller wants the trained model", "*trained is NULL after train_ddp");
        if (st < 0) {
            snprintf(text, sizeof text, "train_ddp fails: %.250s", ls_last_error());
            return red("begin with what works without an epoch: join, model, wrapper, leave", text);
        }
        if (world) return red("train_ddp leaves the group that it has joined", "world is not NULL after train_ddp");
        st = ls_params_digest(&m->params, found.digest);
        if (st == LS_OK) st = reference(&s, rank, size, 0, &found, &b->wrong, &right);
        if (st < 0) return red("the check itself fails", ls_last_error());
        ls_model_destroy(m);
        ls_dataset_free(&data);
        if (!b->wrong) continue;
        const char *idea = why(&s, rank, size, &found); /* all ranks take part */
        if (are_equal(&s, &found, &right)) return 1;
        snprintf(text, sizeof text,
                 "rank %d of %d, model %d-%d-%d, %d samples: weights %.8s and last loss %.6f, expected %.8s and %.6f", rank,
                 size, s.in, s.hidden, s.out, s.samples, found.digest, found.loss[s.epochs - 1], right.digest,
                 right.loss[s.epochs - 1]);
        return red(strcmp(found.digest, right.digest) == 0 ? "the loss of an epoch is the mean of this rank's batches" : idea, text);
    }
    return 0;
}

/* --- launch_distributed ---------------------------------------------------------------------------------------- */

static int rank_main(int rank, int size)
{
    if (rank < 0 || rank >= size || size > RANKS) return 1;
    atomic_fetch_add(&b->seen[rank], 1);
    b->pid[rank] = (int)getpid();
    if (rank > 0) usleep(2000); /* who does not wait for all sees this */
    atomic_fetch_add(&b->seen[rank], 1);
    return rank == b->fail ? 3 : 0;
}

static bool launches(check *c)
{
    for (int i = 0; i < LAUNCHES; i++) {
        const int size = check_between(c, 1, RANKS), me = (int)getpid();
        for (int r = 0; r < RANKS; r++) {
            b->seen[r] = 0;
            b->pid[r] = 0;
        }
        b->fail = check_between(c, 0, 1) ? check_between(c, 0, size - 1) : -1;
        const ls_status st = launch_distributed(size, rank_main), want = b->fail < 0 ? LS_OK : LS_RANK_DIED;
        if ((int)getpid() != me) _exit(red("a rank ends with _exit, and does not return from launch_distributed", "two processes return"));
        for (int r = 0; r < size; r++) {
            if (b->seen[r] == 1 || (b->seen[r] == 0 && (usleep(200000), b->seen[r] > 0)))
                return red("wait for all ranks, and not only for the first that ends", "a rank is running still"), false;
            if (b->seen[r] == 0) return red("each rank has a process, which calls train(r, world_size)", "a rank was not started"), false;
            if (b->seen[r] > 2) return red("each rank is one process", "a rank was started twice"), false;
            for (int q = 0; q < r; q++)
                if (b->pid[q] == b->pid[r]) return red("ranks are processes, and not calls one after the other", "two ranks in one process"), false;
            if (b->pid[r] == me) return red("ranks are processes besides this one", "a rank in the process that launches"), false;
        }
        if (st == want) continue;
        if (want == LS_OK) return red("LS_OK if all ranks ended with 0", "no rank failed, and the result is not LS_OK"), false;
        return red("a rank ended with 3: look at the exit status of each", "a rank failed, and the result is not LS_RANK_DIED"), false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const char *const part[] = { "setup_ddp and cleanup_ddp", "train_ddp", "launch_distributed" };
    check c = check_begin(argc, argv);
    b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED || !choose_port()) return printf("no memory, or no port of 127.0.0.1 is free\n"), 1;
    int good = on_ranks(check_between(&c, 2, RANKS), joins, c);
    if (good) printf("  right     %s, %d times\n", part[0], JOINS);
    if (good && choose_port() && on_ranks(2, trains, c)) printf("  right     %s, %d times\n", part[good++], TRAININGS);
    if (good == 2 && launches(&c)) printf("  right     %s, %d times\n", part[good++], LAUNCHES);
    if (good == 3) return check_green(SHAPES);
    printf("%s\n  expected  what the comment above the function says\n  found     %s\n  idea      %s\n", part[good], b->found, b->idea ? b->idea : "?");
    return 1;
}
