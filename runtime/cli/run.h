/* run.h: what the files of `quern run` share: a prompt with how to answer it, and the answer. */
#ifndef QN_CLI_RUN_H
#define QN_CLI_RUN_H

#include "cli/json.h"
#include "cli/load.h"
#include "cli/prompt.h"
#include "cli/sampling.h"
#include "cli/turn.h"

enum { QN_RUN_TEXT, QN_RUN_JSON, QN_RUN_JSONL };

/* One prompt. Those of a file begin with the options' values. */
typedef struct qn_request {
    json_t *id;  /* what the file calls it, or its number; NULL: the only one, from the command line */
    size_t line; /* of the file; 0: not from a file */
    char *text;  /* malloc'ed; NULL: `fault` says why it cannot be answered */
    size_t len;
    qn_err fault;
    quern_sampler_params sampling;
    int answer; /* which of several to the same prompt, from 1; 0: the only one */
    int n_predict;
    int n_logprobs; /* of the likeliest tokens, for each; -1: none */
    int ignore_eos, special;
    char **stop; /* [n_stop], malloc'ed each */
    size_t n_stop;
} qn_request;

/* Frees what it points to. */
void qn_request_clear(qn_request *r);
/* Copies stop strings, escapes resolved where `escape`. 0, or -1: out of memory. */
int qn_request_set_stops(qn_request *r, const char *const *items, size_t n, bool escape);

/* Requests of `quern run --prompts FILE`: a line each, text (escapes as in -p) or, where the first line
 * begins with
 * "{", JSON objects with "prompt" and more. A line that cannot be understood becomes a request with a fault.
 * `like`: what the options say. -1: go on, else the exit status. */
int qn_requests_read(const char *path, const qn_request *like, bool escape, qn_request **out, size_t *n);

/* Log-probabilities of one token. */
typedef struct qn_token_probs {
    int32_t id;
    float logprob;
    const quern_logprob *top; /* [n_top] */
    int n_top;
} qn_token_probs;

typedef struct qn_answer {
    int32_t *ids;              /* of the prompt, [n_prompt], malloc'ed */
    size_t n_prompt, n_reused; /* of its beginning, held already */
    quern_generate_result r;
    qn_token_probs *probs; /* [r.n_generated]; NULL: not asked for */
    quern_logprob *tops;
    size_t probs_cap;
    double first, prompt; /* seconds: from the start to the first token; for the prompt */
} qn_answer;

void qn_answer_clear(qn_answer *a);

/* How answers go out. */
typedef struct qn_run_output {
    int form; /* QN_RUN_* */
    bool stream, several;
    const qn_model_args *args;
    const qn_loaded *loaded;
    const qn_turn *turn; /* what prompts are put into; NULL: they are completed as they are */
    double start;        /* of the command, on qn_seconds' clock */
} qn_run_output;

/* Ids of a request's prompt, malloc'ed; shown on stderr where asked for. */
int qn_run_prompt_ids(const quern_model *m, const qn_turn *turn, const qn_request *r, bool show,
                      int32_t **ids, size_t *n, qn_err *err);

/* Answers a request in the session, streaming where `out` says so. fresh: nothing that the session holds is
 * used again. Errors are printed. Returns the exit status; `answer` is to be cleared in any case. */
int qn_run_answer(const qn_run_output *out, const qn_request *r, bool fresh, bool show_prompt,
                  qn_answer *answer);

/* Catches Ctrl-C: the first one ends the answer under way, or the program where there is none. */
void qn_run_catch_interrupts(void);

/* run_print.c. Pieces of a stream, JSON lines and text (index: of the token); the whole answer, as the form
 * says; a request that failed. Each returns 0, or the errno of a write that failed (-1 where it is not
 * known). */
int qn_run_print_token(const qn_run_output *out, const qn_request *r, const qn_answer *a, size_t index,
                       int32_t token, const char *text, size_t len);
int qn_run_print_text(const char *text, size_t len);
int qn_run_print_whole(const qn_run_output *out, const qn_request *r, const qn_answer *a);
int qn_run_print_fault(const qn_run_output *out, const qn_request *r, const char *text);
/* Times and counts, log-probabilities in text form: on stderr. */
void qn_run_report(const qn_run_output *out, const qn_request *r, const qn_answer *a);

#endif
