/* main.c: the process of a command. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cli/cli.h"

/* A standard stream that the caller closed must not become the number of a file opened here: messages would
 * be written into it. Its place is taken in the direction that nothing uses, so that a write still fails. */
static void keep_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); /* the lowest free number */
        }
    }
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    return qn_cli_main(argc, argv);
}
