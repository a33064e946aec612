/* progress.h: how far loading and long prompts are, on stderr: a line that is written over on a terminal, a
 * plain line now and then elsewhere. Nothing of what is quick. */
#ifndef QN_CLI_PROGRESS_H
#define QN_CLI_PROGRESS_H

#include "engine/engine.h"

/* Before a session is loaded. */
void qn_progress_loading_begin(void);
/* quern_loading_fn. */
void qn_progress_loading(void *user, int what, uint64_t done, uint64_t total);

typedef struct qn_prompt_progress {
    double start, shown; /* qn_seconds; shown: the last line */
    int done;            /* tokens complete at the last call */
    double chunk;        /* when that chunk began */
    bool (*go_on)(void); /* false stops the prompt; may be NULL, as it is at first */
} qn_prompt_progress;

/* Tells of the prompts that the session processes until qn_progress_prompt_end. --debug chunks: each chunk.
 */
void qn_progress_prompt(qn_prompt_progress *p, quern_session *s);
/* n: tokens processed, or -1 where that failed. */
void qn_progress_prompt_end(qn_prompt_progress *p, quern_session *s, int n);

#endif
