/* harness_port.c -- a loopback port that is free now. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

int ls_test_free_port(void);
int ls_test_free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, n) != 0 || getsockname(fd, (struct sockaddr *)&a, &n) != 0) a.sin_port = 0;
    close(fd);
    return ntohs(a.sin_port);
}
