/* pin.c -- puts a rank on its cores (pin.h), then becomes the command. It stands between a launcher and its ranks.
 *
 *   pin THREADS COMMAND...          the rank is RANK of the environment, or what Open MPI or MPICH's hydra calls it
 */
#include "pin.h"

int main(int argc, char **argv)
{
    static const char *const names[] = { "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK" };
    const char *rank = NULL;
    if (argc < 3 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: pin THREADS COMMAND...\n");
        return 64;
    }
    for (size_t i = 0; !rank && i < sizeof names / sizeof *names; i++) rank = getenv(names[i]);
    pin_rank(rank ? atoi(rank) : 0, atoi(argv[1]));
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
