/* peer_gloo.cc -- Gloo's collectives over its tcp transport, measured as method.h says.
 *
 * More options:
 *   -A ring|bcube|hd   the algorithm of all_reduce; hd: halving-doubling, of the old interface
 *   -S 2               busy polling (hd and reduce_scatter)
 *   -R RANK -D FOLDER -I INTERFACE   one process per rank, each started by hand; they meet in FOLDER. RANK env: $RANK
 */
#include <fcntl.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "method.h"
#include "pin.h"

/* Where ranks tell one another their times: Gloo's own collectives cannot be used while pairs are polled. */
struct board {
    std::atomic<uint32_t> arrived[64];
    double value[64];
};

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<gloo::Algorithm> prepared;
static std::unique_ptr<gloo::transport::UnboundBuffer> to, from;
static std::string algorithm = "ring";
static board *shared;
static std::vector<uint16_t> narrow; /* -w bf16: what travels */

static void sum_bf16(void *to, const void *a, const void *b, size_t n)
{
    add_bf16(static_cast<uint16_t *>(to), static_cast<const uint16_t *>(a), static_cast<const uint16_t *>(b), n);
}

static void prepare(peer *p, size_t n)
{
    prepared.reset();
    if (p->o.bf16) narrow.resize(n);
    else if (p->o.collective == ALL_REDUCE && algorithm == "hd")
        prepared.reset(new gloo::AllreduceHalvingDoubling<float>(context, { p->out }, static_cast<int>(n)));
    if (p->o.collective == REDUCE_SCATTER) {
        std::vector<int> shares(static_cast<size_t>(p->o.ranks), static_cast<int>(n / static_cast<size_t>(p->o.ranks)));
        prepared.reset(new gloo::ReduceScatterHalvingDoubling<float>(context, { p->out }, static_cast<int>(n), shares));
    }
    if (p->o.collective == SENDRECV) {
        to = context->createUnboundBuffer(p->in, n * sizeof(float));
        from = context->createUnboundBuffer(p->out, n * sizeof(float));
    }
}

static void run(peer *p, size_t n)
{
    size_t share = n / static_cast<size_t>(p->o.ranks);
    if (prepared) return prepared->run();
    switch (p->o.collective) {
    case ALL_REDUCE: {
        gloo::AllreduceOptions o(context);
        using all_reduce = gloo::AllreduceOptions::Algorithm;
        o.setAlgorithm(algorithm == "bcube" ? all_reduce::BCUBE : all_reduce::RING);
        if (p->o.bf16) {
            to_bf16(narrow.data(), p->in, n);
            o.setOutput(narrow.data(), n);
            o.setReduceFunction(sum_bf16);
            allreduce(o);
            return from_bf16(p->out, narrow.data(), n);
        }
        if (!p->o.in_place) o.setInput(p->in, n);
        o.setOutput(p->out, n);
        void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
        o.setReduceFunction(sum);
        return allreduce(o);
    }
    case ALL_GATHER: {
        gloo::AllgatherOptions o(context);
        if (!p->o.in_place) o.setInput(p->in, share);
        o.setOutput(p->out, share * static_cast<size_t>(p->o.ranks));
        return allgather(o);
    }
    case BROADCAST: {
        gloo::BroadcastOptions o(context);
        o.setOutput(p->out, n);
        o.setRoot(0);
        return broadcast(o);
    }
    case ALL_TO_ALL: {
        gloo::AlltoallOptions o(context);
        o.setInput(p->in, n);
        o.setOutput(p->out, n);
        return alltoall(o);
    }
    case SENDRECV:
        if (p->rank == 0) to->send(1, 1), to->waitSend();
        from->recv(1 - p->rank, 1), from->waitRecv();
        if (p->rank == 1) to->send(0, 1), to->waitSend();
        return;
    default: {
        gloo::BarrierOptions o(context);
        return barrier(o);
    }
    }
}

static void meet(const peer *p)
{
    uint32_t now = shared->arrived[p->rank].fetch_add(1) + 1;
    for (int r = 0; r < p->o.ranks; r++)
        while (static_cast<int32_t>(shared->arrived[r].load() - now) < 0) sched_yield();
}

static double most(peer *p, double mine)
{
    shared->value[p->rank] = mine;
    meet(p);
    double all = shared->value[0];
    for (int r = 1; r < p->o.ranks; r++) all = shared->value[r] > all ? shared->value[r] : all;
    meet(p);
    return all;
}

static board *open_board(const std::string &folder)
{
    int fd = open((folder + "/board").c_str(), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(board)) < 0) perror("board"), exit(71);
    void *p = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) perror("board"), exit(71);
    close(fd);
    return static_cast<board *>(p);
}

int main(int argc, char **argv)
{
    peer p = {};
    p.o = peer_options(argc, argv, "gloo");
    p.prepare = prepare, p.run = run, p.most = most;
    bool poll = false, forks = true;
    std::string folder, interface;
    for (int i = 1; i + 1 < argc; i++) {
        std::string a = argv[i], v = argv[i + 1];
        if (a == "-A") algorithm = v;
        if (a == "-S") poll = v == "2";
        if (a == "-D") folder = v;
        if (a == "-I") interface = v;
        if (a == "-R") forks = false, p.rank = atoi(v == "env" && getenv("RANK") ? getenv("RANK") : v.c_str());
    }
    char name[] = "/tmp/gloo-XXXXXX";
    bool own = folder.empty();
    if (own) folder = mkdtemp(name) ? name : ".";
    shared = open_board(folder);
    for (int r = 1; forks && r < p.o.ranks; r++)
        if (fork() == 0) {
            p.rank = r;
            break;
        }
    pin_rank(p.rank, 1); /* before Gloo starts its threads */
    gloo::transport::tcp::attr at;
    if (interface.empty()) at.hostname = "localhost";
    else at.iface = interface;
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(at);
    gloo::rendezvous::FileStore store(folder);
    context = std::make_shared<gloo::rendezvous::Context>(p.rank, p.o.ranks);
    context->connectFullMesh(store, device);
    for (int r = 0; poll && r < p.o.ranks; r++)
        if (r != p.rank) context->getPair(r)->setSync(true, true);
    if (p.o.collective == BROADCAST || p.o.collective == REDUCE_SCATTER || algorithm == "hd") p.o.in_place = 1;
    p.out = static_cast<float *>(pages(peer_buffer_bytes(&p.o), 0));
    p.in = p.o.in_place ? p.out : static_cast<float *>(pages(peer_buffer_bytes(&p.o), 0));
    peer_header(&p);
    peer_rows(&p);
    most(&p, 0);
    if (p.rank || !forks) _exit(0);
    while (wait(nullptr) > 0) continue;
    if (own) {
        std::string command = "rm -rf '" + folder + "'";
        if (system(command.c_str()) != 0) return 71;
    }
    _exit(0);
}
