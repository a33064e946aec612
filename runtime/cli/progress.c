#include "cli/progress.h"

#include <pthread.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/load.h"
#include "engine/memory.h"

/* Seconds before the first line, between two on a terminal, between two elsewhere. */
static const double quiet_for = 0.5, redraw = 0.1, plain = 5;

/* Is a line due? `start` and `*shown` as in qn_prompt_progress. */
static bool due(double start, double *shown)
{
    double now = qn_seconds();
    bool terminal = qn_cli_on_terminal();
    if (now - start < (terminal ? quiet_for : plain) || now - *shown < (terminal ? redraw : plain)) {
        return false;
    }
    *shown = now;
    return true;
}

static struct loading {
    pthread_mutex_t lock;
    double start, shown;
    uint64_t done[3], total[3]; /* by QUERN_LOADING_* */
} loading = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void show_loading(const struct loading *l)
{
    const uint64_t *w = &l->done[QUERN_LOADING_WEIGHTS], *k = &l->done[QUERN_LOADING_KERNELS];
    const uint64_t *c = &l->done[QUERN_LOADING_CHOICES];
    if (l->total[QUERN_LOADING_CHOICES] > 0) { /* all the rest is done */
        (qn_cli_on_terminal() ? qn_cli_progress : qn_cli_note)(
            "loading: %d of %d choices of kernels measured", (int)*c, (int)l->total[QUERN_LOADING_CHOICES]);
        return;
    }
    char weights[80] = "", kernels[64] = "", sent[24], all[24];
    if (l->total[QUERN_LOADING_WEIGHTS] > 0) {
        snprintf(weights, sizeof weights, "%s of %s of weights sent", qn_memory_text(*w, sent),
                 qn_memory_text(l->total[QUERN_LOADING_WEIGHTS], all));
    }
    if (l->total[QUERN_LOADING_KERNELS] > 0) {
        snprintf(kernels, sizeof kernels, "%d of %d kernels compiled", (int)*k,
                 (int)l->total[QUERN_LOADING_KERNELS]);
    }
    const char *comma = weights[0] != '\0' && kernels[0] != '\0' ? ", " : "";
    (qn_cli_on_terminal() ? qn_cli_progress : qn_cli_note)("loading: %s%s%s", weights, comma, kernels);
}

void qn_progress_loading_begin(void)
{
    pthread_mutex_lock(&loading.lock);
    loading.start = loading.shown = 0;
    memset(loading.done, 0, sizeof loading.done);
    memset(loading.total, 0, sizeof loading.total);
    pthread_mutex_unlock(&loading.lock);
}

void qn_progress_loading(void *user, int what, uint64_t done, uint64_t total)
{
    (void)user;
    struct loading *l = &loading;
    pthread_mutex_lock(&l->lock);
    if (l->start == 0) {
        l->start = l->shown = qn_seconds();
    }
    l->done[what] = done;
    l->total[what] = total;
    if (due(l->start, &l->shown)) {
        show_loading(l);
    }
    pthread_mutex_unlock(&l->lock);
}

static bool on_prompt(void *user, int done, int total)
{
    qn_prompt_progress *p = user;
    double now = qn_seconds();
    if (done > p->done) {
        qn_cli_debug(QN_DEBUG_CHUNKS, "%d tokens, %d of %d done, %.1f ms", done - p->done, done, total,
                     1e3 * (now - p->chunk));
        p->chunk = now;
        p->done = done;
    }
    if (due(p->start, &p->shown)) {
        (qn_cli_on_terminal() ? qn_cli_progress : qn_cli_note)("prompt: %d of %d tokens, %.1f s", done, total,
                                                               now - p->start);
    }
    return p->go_on == NULL || p->go_on();
}

void qn_progress_prompt(qn_prompt_progress *p, quern_session *s)
{
    double now = qn_seconds();
    *p = (qn_prompt_progress){.start = now, .chunk = now};
    quern_session_on_progress(s, on_prompt, p);
}

void qn_progress_prompt_end(qn_prompt_progress *p, quern_session *s, int n)
{
    quern_session_on_progress(s, NULL, NULL);
    qn_cli_progress_end();
    if (n > p->done) {
        qn_cli_debug(QN_DEBUG_CHUNKS, "%d tokens, %d of %d done, %.1f ms", n - p->done, n, n,
                     1e3 * (qn_seconds() - p->chunk));
    }
}
