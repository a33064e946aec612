#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static const int held[] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
enum { N_HELD = sizeof held / sizeof *held };
static struct sigaction before[N_HELD];

static volatile sig_atomic_t interrupted;
static int ends[2] = {-1, -1};

static void on_signal(int sig)
{
    int saved = errno;
    const unsigned char byte = (unsigned char)sig;
    if (sig == SIGINT) {
        interrupted = 1;
    }
    /* A full pipe has enough to wake the reader. */
    ssize_t n = write(ends[1], &byte, 1);
    (void)n;
    errno = saved;
}

int qn_signals_start(void)
{
    if (ends[0] < 0 && pipe(ends) != 0) {
        qn_cli_error("no pipe for signals: %s", strerror(errno));
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    }
    const struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    qn_signals_clear();
    sigaction(SIGINT, &act, NULL);
    return 0;
}

bool qn_signals_interrupted(void)
{
    return interrupted != 0;
}

void qn_signals_clear(void)
{
    while (qn_signals_take() != 0) {
    }
    interrupted = 0;
}

int qn_signals_fd(void)
{
    return ends[0];
}

int qn_signals_take(void)
{
    unsigned char sig;
    return read(ends[0], &sig, 1) == 1 ? sig : 0;
}

void qn_signals_hold(bool on)
{
    const struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (int i = 0; i < N_HELD; i++) {
        if (!on) {
            sigaction(held[i], &before[i], NULL);
            continue;
        }
        sigaction(held[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) { /* as under nohup */
            sigaction(held[i], &act, NULL);
        }
    }
}

void qn_signals_raise(int sig)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction old;
    sigaction(sig, &usual, &old);
    kill(getpid(), sig); /* the process, as the sender meant it */
    sigaction(sig, &old, NULL);
}
