/* log.c: what goes to stderr and into the log file. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/opts.h"
#include "model/yaml.h"

int qn_cli_verbosity;

static FILE *log_file;
static const char *log_path;
static bool log_failed; /* which was said */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned topics;
static bool transient; /* a line of progress stands on the terminal */

static const char *const topic_names[] = {"options", "engine", "prompt", "chunks", "tokens"};
_Static_assert(sizeof topic_names / sizeof *topic_names == QN_DEBUG_COUNT, "a name for each topic");

void qn_cli_log_reset(void)
{
    qn_cli_verbosity = 0;
    topics = 0;
    log_failed = transient = false;
}

bool qn_cli_on_terminal(void)
{
    return qn_cli_verbosity >= 0 && isatty(STDERR_FILENO);
}

void qn_cli_progress_end(void)
{
    if (transient) {
        fputs("\r\033[K", stderr);
        transient = false;
    }
}

void qn_cli_progress(const char *fmt, ...)
{
    if (!qn_cli_on_terminal()) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, ap);
    fflush(stderr);
    va_end(ap);
    transient = true;
}

static void say_log_failed(int why)
{
    qn_cli_error("--log-file %s: %s; nothing more is written there", log_path,
                 why != 0 ? strerror(why) : "cannot be written");
}

/* Once the log is locked: ends it. errno of what went wrong, here or (`why`) before; 0: nothing. */
static int end_log(int why)
{
    errno = 0;
    why = fclose(log_file) != 0 && why == 0 ? errno : why;
    log_failed = log_failed || why != 0;
    log_file = NULL;
    return why;
}

static void write_log(const char *prefix, const char *text)
{
    struct timeval now;
    struct tm t;
    char when[32];
    int why = 0;
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &t);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t);
    pthread_mutex_lock(&log_lock);
    errno = 0;
    if (log_file != NULL &&
        fprintf(log_file, "%s.%03d %s%s\n", when, (int)(now.tv_usec / 1000), prefix, text) < 0) {
        why = end_log(errno != 0 ? errno : EIO);
    }
    pthread_mutex_unlock(&log_lock);
    if (why != 0) {
        say_log_failed(why);
    }
}

bool qn_cli_log_close(void)
{
    pthread_mutex_lock(&log_lock);
    int why = log_file != NULL ? end_log(0) : 0;
    pthread_mutex_unlock(&log_lock);
    if (why != 0) {
        say_log_failed(why);
    }
    return !log_failed;
}

/* One line, whole: stderr has no buffer. */
static void write_line(bool to_stderr, const char *prefix, const char *fmt, va_list ap)
{
    char *text;
    if (vasprintf(&text, fmt, ap) < 0) {
        return;
    }
    if (to_stderr) {
        qn_cli_progress_end();
        fprintf(stderr, "quern: %s%s\n", prefix, text);
    }
    if (log_file != NULL) {
        write_log(prefix, text);
    }
    free(text);
}

bool qn_cli_wants(int level)
{
    return level <= qn_cli_verbosity || log_file != NULL;
}

int qn_cli_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(true, "error: ", fmt, ap);
    va_end(ap);
    return QN_EXIT_ERROR;
}

void qn_cli_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(qn_cli_verbosity >= 0, "", fmt, ap);
    va_end(ap);
}

void qn_cli_detail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(qn_cli_verbosity >= 1, "", fmt, ap);
    va_end(ap);
}

bool qn_cli_debugs(qn_debug topic)
{
    return (topics >> topic & 1) != 0;
}

void qn_cli_debug(qn_debug topic, const char *fmt, ...)
{
    if (qn_cli_debugs(topic)) {
        char prefix[32];
        va_list ap;
        va_start(ap, fmt);
        snprintf(prefix, sizeof prefix, "[%s] ", topic_names[topic]);
        write_line(qn_cli_verbosity >= 0, prefix, fmt, ap);
        va_end(ap);
    }
}

int qn_cli_log_open(const char *path)
{
    if (path == NULL || log_file != NULL) {
        return -1;
    }
    log_file = fopen(path, "a");
    log_path = path;
    if (log_file == NULL) {
        return qn_cli_error("--log-file %s: %s", path, strerror(errno));
    }
    setvbuf(log_file, NULL, _IOLBF, 0); /* what is written is there even where the process is killed */
    return -1;
}

int qn_cli_debug_set(const char *command, const char *list)
{
    for (const char *p = list; p != NULL && *p != '\0';) {
        char name[32];
        size_t len = strcspn(p, ","), i = 0;
        snprintf(name, sizeof name, "%.*s", (int)len, p);
        while (i < QN_DEBUG_COUNT && strcmp(name, topic_names[i]) != 0) {
            i++;
        }
        if (i == QN_DEBUG_COUNT && strcmp(name, "all") != 0) {
            const char *near = qn_nearest(name, topic_names, QN_DEBUG_COUNT);
            return qn_cli_usage_error(
                command, "--debug: '%s' is none of options, engine, prompt, chunks, tokens, all%s%s%s", name,
                near != NULL ? " (did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?)" : "");
        }
        topics |= i == QN_DEBUG_COUNT ? (1u << QN_DEBUG_COUNT) - 1 : 1u << i;
        p += len + (p[len] == ',');
    }
    return -1;
}
