/* signals.h: signals for a command that goes on after them. A handler only takes note, so that whoever waits
 * or computes can look when it suits; any thread may get the signal. */
#ifndef QN_CLI_SIGNALS_H
#define QN_CLI_SIGNALS_H

#include <stdbool.h>

/* From here on Ctrl-C is only noted. 0, or -1 after printing the error. */
int qn_signals_start(void);

/* Has Ctrl-C come since the last qn_signals_clear? */
bool qn_signals_interrupted(void);
void qn_signals_clear(void);

/* A descriptor that becomes readable when a noted signal comes, and the signal that came; 0: none. */
int qn_signals_fd(void);
int qn_signals_take(void);

/* on: signals that end or stop the process, or that change the terminal, are noted too; off: they do again
 * what they did. For as long as the terminal is not in its usual mode. */
void qn_signals_hold(bool on);

/* Lets a signal that was held do what it does by default. Returns where the process was stopped and goes on.
 */
void qn_signals_raise(int sig);

#endif
