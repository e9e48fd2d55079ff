/* Random programs of collectives and messages among 2 to 8 ranks, with something going wrong at a random place: a rank
 * is killed, stops, or its messages are lost, repeated, changed, held back. Whatever it is: nobody hangs, every
 * survivor that fails says the same, their buffers are theirs again, nothing is left open. What is said to be right is
 * right.
 *
 * Thirty runs; LOCKSTEP_RUNS of them from LOCKSTEP_SEED on where these are set: tests/long_faults_*.sh are 500.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"
#include "net/world.h"
#include "harness.h"

#define MS 1000000ull
#define MOST_RANKS 8
#define MOST 40000       /* floats of a vector */
#define STEPS 40
#define DEADLINE_NS (700 * MS)
#define HANG_S 60

typedef enum fate { KILL, STALL, DROP, REPEAT, CORRUPT, GARBAGE, DELAY, KILL_AT_STEP, STOP_AT_STEP, FATES } fate;
static const char *const fault_name[] = { "kill", "stall", "drop", "repeat", "corrupt", "garbage", "delay=200us" };

typedef struct finding {
    ls_status status;
    int steps;
    char text[LS_ERROR_BYTES];
} finding;

typedef struct scenario {
    unsigned seed;
    int size, victim, nth; /* nth: message, or step */
    fate fate;
    bool threads, by_thread;
    const char *transport;
    char plan[64];
} scenario;

/* In memory that all processes share. */
typedef struct outcome {
    bool over;
    ls_rank_report report;
    int nfds_before, nfds_after, nmaps;
    finding rank[MOST_RANKS];
} outcome;

typedef struct run {
    const scenario *s;
    outcome *o;
} run;

static uint32_t draw(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*rng >> 33) % n;
}

/* --- the program: the same on every rank ------------------------------------------------------------------------ */

typedef struct memory {
    float *x, *y; /* registered, or not */
    float *registered[2], *private[2];
} memory;

static float brought(int rank, int step, size_t i) { return (float)(rank + 1 + step % 5 + (int)(i % 7)); }

static ls_status expect(const scenario *s, bool right, const char *what, int step)
{
    /* a changed payload is not noticed where no checksum travels with it */
    if (right || s->fate == CORRUPT || s->fate == GARBAGE) return LS_OK;
    return ls_fail(LS_INTERNAL, "step %d: %s is wrong, and said to be right", step, what);
}

/* Right and left neighbour, in one batch or by blocking calls. */
static ls_status pass_on(const scenario *s, ls_group *g, const memory *m, size_t count, bool batch, int step)
{
    int n = ls_group_size(g), rank = ls_group_rank(g), right = (rank + 1) % n, left = (rank + n - 1) % n;
    if (n == 1) return LS_OK;
    for (size_t i = 0; i < count; i++) m->x[i] = brought(rank, step, i);
    if (batch) {
        ls_p2p op[2] = { { .send = m->x, .count = count, .dtype = LS_F32, .peer = right },
                         { .recv = m->y, .count = count, .dtype = LS_F32, .peer = left } };
        LS_TRY(ls_p2p_batch(g, op, 2));
    } else {
        if (rank % 2) LS_TRY(ls_recv(g, m->y, count, LS_F32, left));
        LS_TRY(ls_send(g, m->x, count, LS_F32, right));
        if (rank % 2 == 0) LS_TRY(ls_recv(g, m->y, count, LS_F32, left));
    }
    for (size_t i = 0; i < count; i++) LS_TRY(expect(s, m->y[i] == brought(left, step, i), "a message", step));
    return LS_OK;
}

static ls_status collective(const scenario *s, ls_group *g, const memory *m, ls_coll coll, size_t count, int root,
                            int step)
{
    int n = ls_group_size(g), rank = ls_group_rank(g);
    if (coll == LS_ALL_TO_ALL) count -= count % (size_t)n;
    ls_range own;
    LS_TRY(ls_shard_range(count, rank, n, &own));
    for (size_t i = 0; i < count; i++) m->x[i] = brought(rank, step, i);
    ls_coll_args a = { .coll = coll, .out = m->x, .count = count, .dtype = LS_F32, .root = root };
    if (coll == LS_GATHER && rank != root) a.in = m->x + own.first, a.out = NULL;
    if (coll == LS_SCATTER && rank == root) a.in = m->x, a.out = NULL;
    if (coll == LS_ALL_TO_ALL || (coll == LS_ALL_REDUCE && step % 2)) a.in = m->x, a.out = m->y;
    ls_work *work;
    LS_TRY(ls_coll_start(g, &a, &work));
    LS_TRY(ls_work_wait(work));
    const float *out = a.out;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < n; r++) sum += brought(r, step, i);
        if (coll == LS_ALL_REDUCE) LS_TRY(expect(s, out[i] == sum, "a sum", step));
        if (coll == LS_BROADCAST) LS_TRY(expect(s, out[i] == brought(root, step, i), "a broadcast", step));
        if (coll == LS_REDUCE && rank == root) LS_TRY(expect(s, out[i] == sum, "a reduce", step));
    }
    return LS_OK;
}

static ls_status never(void *arg)
{
    (void)arg;
    return LS_AGAIN;
}

/* What the plan of the fault transport cannot do: whatever moves bytes, this rank does not come to its step. */
static ls_status meet_fate(ls_world *w, const scenario *s, int step)
{
    if (ls_world_rank(w) != s->victim || step != s->nth) return LS_OK;
    if (s->fate == KILL_AT_STEP) kill(getpid(), SIGKILL);
    if (s->fate != STOP_AT_STEP) return LS_OK;
    ls_waiter waiter = { .abort_word = w->waiter.abort_word };
    ls_status st = ls_wait(&waiter, never, NULL, ls_env_get()->mono_ns() + 30000 * MS);
    return st == LS_ABORTED ? ls_world_aborted(w) : ls_fail(LS_INTERNAL, "nobody missed rank %d", s->victim);
}

static ls_status program(ls_world *w, const scenario *s, const memory *m, finding *f)
{
    static const size_t counts[] = { 0, 1, 9, 300, 1100, 9000, MOST };
    ls_group *part;
    uint64_t rng = s->seed;
    LS_TRY(ls_group_split(ls_world_group(w), ls_world_rank(w) % 2, &part));
    for (int step = 0; step < STEPS; step++) {
        ls_coll coll = (ls_coll)draw(&rng, LS_BARRIER + 3);
        size_t count = counts[draw(&rng, sizeof counts / sizeof *counts)];
        bool split = draw(&rng, 4) == 0, registered = draw(&rng, 2);
        memory here = *m;
        here.x = registered ? m->registered[0] : m->private[0];
        here.y = registered ? m->registered[1] : m->private[1];
        ls_group *g = split ? part : ls_world_group(w);
        uint32_t root = draw(&rng, MOST_RANKS);
        f->steps = step;
        LS_TRY(meet_fate(w, s, step));
        ls_status st = coll > LS_BARRIER ? pass_on(s, g, &here, count, coll > LS_SENDRECV, step)
                                         : collective(s, g, &here, coll, count, (int)root % ls_group_size(g), step);
        if (st < 0) return st; /* groups go with the world */
    }
    ls_group_destroy(part);
    return ls_barrier(ls_world_group(w));
}

static ls_status one_rank(ls_world *w, void *arg)
{
    const run *x = arg;
    finding *f = &x->o->rank[ls_world_rank(w)];
    memory m = { 0 };
    for (int i = 0; i < 2; i++) {
        void *p;
        LS_TRY(ls_alloc(w, MOST * sizeof(float), LS_MEM_DATA, &p));
        m.registered[i] = p;
        m.private[i] = calloc(MOST, sizeof(float));
        LS_EXPECT(m.private[i], "no memory for a test");
    }
    f->status = program(w, x->s, &m, f);
    snprintf(f->text, sizeof f->text, "%s", f->status < 0 ? ls_last_error() : "");
    if (f->status == LS_INTERNAL) fprintf(stderr, "seed %u: rank %d: %s\n", x->s->seed, ls_world_rank(w), f->text);
    for (int i = 0; i < 2; i++) { /* they are ours again */
        memset(m.registered[i], 0x11, MOST * sizeof(float));
        memset(m.private[i], 0x22, MOST * sizeof(float));
    }
    if (f->status < 0) usleep(2000);
    for (int i = 0; i < 2; i++) {
        const unsigned char *p = (const unsigned char *)m.private[i];
        for (size_t k = 0; k < MOST * sizeof(float); k++)
            if (p[k] != 0x22) f->status = ls_fail(LS_INTERNAL, "a private buffer is written after the failure");
        free(m.private[i]);
    }
    return f->status;
}

/* --- one run ---------------------------------------------------------------------------------------------------------
 */

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static int count_maps(void)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, "memfd:lockstep") != NULL;
    if (f) fclose(f);
    return n;
}

static scenario choose(unsigned seed)
{
    static const char *const transports[] = { "fault:shm", "fault:tcp", "shm", "tcp" };
    uint64_t rng = seed * 2654435761u + 1;
    scenario s = { .seed = seed, .size = 2 + (int)draw(&rng, MOST_RANKS - 1) };
    s.fate = (fate)draw(&rng, FATES);
    s.threads = s.fate != KILL && s.fate != KILL_AT_STEP && draw(&rng, 2);
    s.by_thread = draw(&rng, 4) == 0;
    s.victim = (int)draw(&rng, (uint32_t)s.size);
    bool at_step = s.fate >= KILL_AT_STEP;
    s.transport = transports[draw(&rng, 2) + (at_step ? 2 : 0)];
    s.nth = at_step ? (int)draw(&rng, STEPS) : 1 + (int)draw(&rng, 60);
    if (!at_step) snprintf(s.plan, sizeof s.plan, "%s@%d:%d", fault_name[s.fate], s.victim, s.nth);
    return s;
}

static void carry_out(const scenario *s, outcome *o)
{
    ls_world_opts w = { .transport = s->transport, .arena_bytes = 12u << 20, .coll_timeout_ns = DEADLINE_NS,
                        .progress = s->by_thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
    run x = { s, o };
    if (s->plan[0]) setenv("LOCKSTEP_FAULT", s->plan, 1);
    o->nfds_before = count_fds();
    o->report = ls_test_ranks(s->threads ? LS_TEST_THREADS : LS_TEST_PROCESSES, s->size, &w, one_rank, &x);
    o->nfds_after = count_fds();
    o->nmaps = count_maps();
    o->over = true;
}

/* But for what each was doing meanwhile: "while splitting group world: ". */
static bool same_cause(const char *a, const char *b)
{
    for (const char *in = "while splitting group world: "; strncmp(a, in, strlen(in)) == 0;) a += strlen(in);
    for (const char *in = "while splitting group world: "; strncmp(b, in, strlen(in)) == 0;) b += strlen(in);
    return strcmp(a, b) == 0;
}

static void judge(const scenario *s, const outcome *o)
{
    char where[256];
    snprintf(where, sizeof where, "seed %u: %d %s over %s%s, %s at %d of rank %d", s->seed, s->size,
             s->threads ? "threads" : "processes", s->transport, s->by_thread ? ", progress thread" : "",
             s->plan[0] ? fault_name[s->fate] : s->fate == KILL_AT_STEP ? "killed" : "stopped", s->nth, s->victim);
    if (!o->over) fail_msg("%s: hangs, or crashes", where);
    const bool kills = s->fate == KILL || s->fate == KILL_AT_STEP;
    const finding *first = NULL;
    int failed = 0;
    for (int r = 0; r < s->size; r++) {
        const finding *f = &o->rank[r];
        if (kills && r == s->victim && f->status == LS_AGAIN) continue; /* dead */
        if (f->status == LS_AGAIN && o->report.not_joined >> r & 1u) { /* it was still joining when that happened */
            char victim[24];
            snprintf(victim, sizeof victim, "rank %d", s->victim);
            if (!strstr(o->report.join_text, victim)) fail_msg("%s: joining, rank %d is told '%s'", where, r, o->report.join_text);
            failed++;
            continue;
        }
        if (f->status == LS_AGAIN) fail_msg("%s: rank %d ended without a word", where, r);
        if (f->status == LS_OK) continue;
        failed++;
        bool known = f->status == LS_COLL_MISMATCH || f->status == LS_RANK_HUNG || f->status == LS_RANK_DIED ||
                     f->status == LS_PEER_RESET || f->status == LS_FRAME_CRC || f->status == LS_PROTOCOL ||
                     f->status == LS_ABORTED;
        if (!known) fail_msg("%s: rank %d fails with %s: %s", where, r, ls_status_word(f->status), f->text);
        if (!first) first = f;
        if (!same_cause(first->text, f->text)) fail_msg("%s: one says '%s', rank %d '%s'", where, first->text, r, f->text);
    }
    /* who was through with everything before it happened may be content; not so while others wait for the dead */
    if (s->fate == DELAY && failed) fail_msg("%s: a delay fails: %s", where, first->text);
    if (s->fate >= KILL_AT_STEP && failed < s->size - 1) fail_msg("%s: only %d ranks fail", where, failed);
    if (o->nfds_after != o->nfds_before) fail_msg("%s: %d descriptors are left open", where, o->nfds_after - o->nfds_before);
    if (o->nmaps) fail_msg("%s: %d shared memories stay mapped", where, o->nmaps);
}

/* In a process of its own, whose end can be waited for. */
static void one_run(unsigned seed, outcome *o)
{
    scenario s = choose(seed);
    memset(o, 0, sizeof *o);
    for (int r = 0; r < MOST_RANKS; r++) o->rank[r].status = LS_AGAIN;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0);
        carry_out(&s, o);
        _exit(0);
    }
    int status = 0;
    uint64_t end = ls_env_get()->mono_ns() + HANG_S * 1000 * MS;
    while (waitpid(pid, &status, WNOHANG) == 0 && ls_env_get()->mono_ns() < end) usleep(1000);
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    judge(&s, o);
}

static void whatever_happens_all_learn_it_and_nothing_is_left(void **state)
{
    (void)state;
    outcome *o = mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(o != MAP_FAILED);
    const char *from = getenv("LOCKSTEP_SEED"), *runs = getenv("LOCKSTEP_RUNS");
    unsigned first = from ? (unsigned)atoi(from) : 1, n = runs ? (unsigned)atoi(runs) : from ? 1 : 30;
    for (unsigned seed = first; seed < first + n; seed++) one_run(seed, o);
    munmap(o, sizeof *o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_all_learn_it_and_nothing_is_left),
    };
    return cmocka_run_group_tests_name("random_faults", tests, NULL, NULL);
}
