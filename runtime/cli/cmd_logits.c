/* quern logits: float32 logits (or one step's output) of every position of a file of token ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/commands.h"
#include "cli/load.h"

typedef struct logits_args {
    qn_model_args model;
    const char *tokens, *output, *stop_after;
    int mode; /* index in `modes` */
    bool check, json;
} logits_args;

static const char *const modes[] = {"batch", "per-token", "decode", NULL};
enum { MODE_BATCH, MODE_PER_TOKEN, MODE_DECODE };

static const qn_opt logits_opts[] = {
    {"--tokens", "FILE", "Token ids: little-endian int32, no header; - is stdin.", QN_OPT_STR,
     offsetof(logits_args, tokens)},
    {"-o, --output", "FILE", "Where the rows go. Default: stdout, unless that is a terminal.", QN_OPT_STR,
     offsetof(logits_args, output)},
    {"--mode", "NAME",
     "batch: the prefill plan in chunks of -ub, at most 64; per-token: the prefill plan one token at a time; "
     "decode: the "
     "decode "
     "plan. Default: batch.",
     QN_OPT_CHOICE, offsetof(logits_args, mode), 0, 0, modes},
    {"--stop-after", "STEP", "Write the first output of this step (a name or index of 'quern plan') instead.",
     QN_OPT_STR, offsetof(logits_args, stop_after)},
    {"--check", NULL,
     "Instead of writing logits, compare every step with the exact reference function on its own inputs; "
     "status "
     "1 where one is beyond its tolerance.",
     QN_OPT_FLAG, offsetof(logits_args, check)},
    {"--json", NULL, "The table of --check as JSON.", QN_OPT_FLAG, offsetof(logits_args, json)},
    {0},
};

/* What is written for each chunk. */
typedef struct job {
    const logits_args *a;
    quern_session *s;
    const qn_plan *plan;
    const qn_step *step; /* NULL: logits */
    float *rows;         /* logits of a chunk */
    float *step_rows;    /* the step's output of a chunk */
    FILE *out;
    size_t n_rows; /* written so far */
} job;

static int read_tokens(const char *path, int32_t **ids, size_t *n)
{
    char *data;
    size_t size;
    if (qn_cli_read_file(path, &data, &size) != 0) {
        return -1;
    }
    if (size == 0 || size % 4 != 0) {
        qn_cli_error("%s: %zu bytes are not a list of int32 ids", path, size);
        free(data);
        return -1;
    }
    *n = size / 4;
    *ids =
        (int32_t *)data; /* malloc's alignment serves; values are host order on every little-endian machine */
    return 0;
}

static int find_step(job *j)
{
    const char *name = j->a->stop_after;
    if (name == NULL) {
        return 0;
    }
    char *end;
    long index = strtol(name, &end, 10);
    int i = *name != 0 && *end == 0 ? (int)(index >= 0 && index < j->plan->n_step ? index : -1)
                                    : qn_plan_find(j->plan, name);
    if (i < 0) {
        qn_cli_error("--stop-after %s: the plan has no such step (0..%d, or a name of 'quern plan')", name,
                     j->plan->n_step - 1);
        return -1;
    }
    j->step = &j->plan->steps[i];
    return 0;
}

/* The step's first output; what works in place names its input. */
static qn_view step_view(const qn_step *step)
{
    return step->out[0].buf >= 0 ? step->out[0] : step->in[0];
}

static int write_rows(job *j, const float *rows, size_t n, size_t width)
{
    if (fwrite(rows, width * sizeof *rows, n, j->out) != n) {
        qn_cli_error("%s: %s", j->a->output != NULL ? j->a->output : "stdout", strerror(errno));
        return -1;
    }
    j->n_rows += n;
    return 0;
}

static int run_chunk(job *j, const int32_t *ids, int n)
{
    qn_exec *e = j->s->exec;
    qn_err err;
    const qn_run r = {
        .tokens = ids,
        .n = n,
        .pos = e->length,
        .phase = j->plan->phase,
        .outputs = QN_OUT_ALL,
        .logits = j->rows,
        .stop_after = j->step != NULL ? (int)(j->step - j->plan->steps) : -1,
    };
    if (e->run(e, &r, &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    if (j->step == NULL) {
        return write_rows(j, j->rows, (size_t)n, (size_t)j->s->m->model->n_vocab);
    }
    qn_view v = step_view(j->step);
    if (e->read(e, v, 0, n, j->step_rows, &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    return write_rows(j, j->step_rows, (size_t)n, (size_t)v.width);
}

static int check_ids(const job *j, const int32_t *ids, size_t n)
{
    int n_vocab = j->s->m->model->n_vocab, n_ctx = j->s->exec->opts.n_ctx;
    if (n > (size_t)n_ctx) {
        qn_cli_error("%s holds %zu ids, the context %d; raise -c", j->a->tokens, n, n_ctx);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            qn_cli_error("%s: id %d at position %zu is outside the vocabulary of %d", j->a->tokens, ids[i], i,
                         n_vocab);
            return -1;
        }
    }
    return 0;
}

static int run_all(job *j, const int32_t *ids, size_t n)
{
    const qn_exec_opts *o = &j->s->exec->opts;
    int batch = o->n_outputs > 0 && o->n_outputs < o->n_ubatch ? o->n_outputs : o->n_ubatch;
    int chunk = j->a->mode == MODE_BATCH ? batch : 1;
    chunk = (size_t)chunk < n ? chunk : (int)n;
    size_t width = j->step != NULL ? (size_t)step_view(j->step).width : 1;
    j->rows = qn_calloc((size_t)chunk * sizeof *j->rows, (size_t)j->s->m->model->n_vocab);
    j->step_rows = qn_calloc((size_t)chunk * sizeof *j->step_rows, width);
    if (j->rows == NULL || j->step_rows == NULL) {
        qn_cli_error("out of memory for the logits of %d tokens", chunk);
        return -1;
    }
    for (size_t i = 0; i < n; i += (size_t)chunk) {
        if (run_chunk(j, ids + i, n - i < (size_t)chunk ? (int)(n - i) : chunk) != 0) {
            return -1;
        }
    }
    if (j->step != NULL) {
        qn_cli_note("%s: %zu x %zu float32", j->step->name, j->n_rows, width);
    }
    return 0;
}

static int run_loaded(const logits_args *a, quern_session *s, const int32_t *ids, size_t n)
{
    job j = {.a = a, .s = s, .out = stdout};
    j.plan = a->mode == MODE_DECODE ? &s->m->plans->decode : &s->m->plans->prefill;
    if (check_ids(&j, ids, n) != 0 || find_step(&j) != 0) {
        return QN_EXIT_ERROR;
    }
    if (a->output != NULL) {
        j.out = fopen(a->output, "wb");
        if (j.out == NULL) {
            return qn_cli_error("%s: %s", a->output, strerror(errno));
        }
    }
    int rc = run_all(&j, ids, n) == 0 ? QN_EXIT_OK : QN_EXIT_ERROR;
    if (j.out != stdout && fclose(j.out) != 0 && rc == QN_EXIT_OK) {
        rc = qn_cli_error("%s: %s", a->output, strerror(errno));
    }
    free(j.rows);
    free(j.step_rows);
    return rc;
}

static int check_loaded(const logits_args *a, quern_session *s, const int32_t *ids, size_t n)
{
    qn_checker c;
    job j = {.a = a, .s = s};
    int chunk = a->mode == MODE_BATCH ? s->exec->opts.n_ubatch : 1;
    if (check_ids(&j, ids, n) != 0 || qn_checker_open(&c, s) != 0) {
        return QN_EXIT_ERROR;
    }
    qn_phase phase = a->mode == MODE_DECODE ? QN_PHASE_DECODE : QN_PHASE_PREFILL;
    int rc = qn_checker_tokens(&c, ids, n, chunk, phase, NULL) == 0 ? qn_checker_report(&c, a->json)
                                                                    : QN_EXIT_ERROR;
    qn_checker_close(&c);
    return rc;
}

int qn_cmd_logits(int argc, char **argv)
{
    logits_args a = {.model = qn_model_args_defaults};
    const qn_opt_group groups[] = {
        {"Logits", logits_opts, &a}, qn_load_group(&a.model), qn_backend_group(&a.model), qn_common_group};
    const qn_usage usage = {
        "logits",
        "MODEL --tokens FILE [-o FILE] [options]",
        "Writes the float32 logits after each token of a file of ids: [n_tokens][n_vocab].",
        groups,
        sizeof groups / sizeof *groups,
        1};
    const char *positional[1];
    qn_loaded l = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "logits", positional[0]);
    if (rc < 0 && a.tokens == NULL) {
        rc = qn_cli_usage_error("logits", "no ids: give --tokens FILE");
    }
    if (rc < 0 && a.output == NULL && !a.check && isatty(STDOUT_FILENO)) {
        rc = qn_cli_usage_error("logits", "stdout is a terminal: give -o FILE");
    }
    a.model.no_fuse |= a.check || a.stop_after; /* outputs of steps are looked at */
    if (rc < 0) {
        rc = read_tokens(a.tokens, &ids, &n) == 0 && qn_cli_load(&l, &a.model, QN_LOAD_SESSION) == 0
                 ? (a.check ? check_loaded : run_loaded)(&a, l.session, ids, n)
                 : QN_EXIT_ERROR;
    }
    qn_loaded_free(&l);
    free(ids);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
