/* quern perplexity: how well a model predicts a text, by the rules of llama.cpp's tool. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/load.h"

enum { DEFAULT_CHUNK = 512 };

typedef struct ppl_args {
    qn_model_args model;
    const char *file;
    int n_chunks;
    bool json;
} ppl_args;

/* Sums over the scored tokens. */
typedef struct ppl_sums {
    double nll, nll2;
    size_t n;
} ppl_sums;

static const qn_opt ppl_opts[] = {
    {"-f, --file", "FILE", "The text; - is stdin.", QN_OPT_STR, offsetof(ppl_args, file)},
    {"--chunks", "N", "Score the first N chunks. Default: all.", QN_OPT_INT, offsetof(ppl_args, n_chunks), 1,
     1 << 30},
    {"--json", NULL, "Print one JSON object instead.", QN_OPT_FLAG, offsetof(ppl_args, json)},
    {0},
};

/* -ln of the probability that `logits` [n] give to `id`. */
static double token_nll(const float *logits, int n, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    for (int i = 0; i < n; i++) {
        sum += exp(logits[i] - max);
    }
    return log(sum) - (logits[id] - max);
}

static double perplexity(const ppl_sums *s)
{
    return exp(s->nll / (double)s->n);
}

/* Standard error of the mean of ln p, carried through exp. */
static double perplexity_error(const ppl_sums *s)
{
    double n = (double)s->n, mean = s->nll / n, var = s->nll2 / n - mean * mean;
    return var > 0 && s->n > 1 ? sqrt(var / (n - 1)) * perplexity(s) : 0;
}

/* Predictions made at positions n/2 .. n-2 of the chunk are scored: each had at least half a chunk to go by.
 */
static int score_chunk(quern_session *s, const int32_t *ids, int n, ppl_sums *sums)
{
    quern_error err;
    int half = n / 2; /* the first half's logits are not looked at, so they are not computed */
    if (quern_session_truncate(s, 0, &err) != 0 ||
        quern_session_append(s, ids, (size_t)half, false, &err) != 0 ||
        quern_session_append(s, ids + half, (size_t)(n - half), true, &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    for (int i = half; i < n - 1; i++) {
        double nll = token_nll(quern_session_logits(s, i - half), s->m->model->n_vocab, ids[i + 1]);
        sums->nll += nll;
        sums->nll2 += nll * nll;
        sums->n++;
    }
    return 0;
}

static int print_result(const ppl_args *a, const ppl_sums *s, size_t n_chunks, int n)
{
    if (!a->json) {
        printf("PPL = %.4f +/- %.5f over %zu tokens in %zu chunks of %d\n", perplexity(s),
               perplexity_error(s), s->n, n_chunks, n);
        return QN_EXIT_OK;
    }
    json_t *o = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "model", qn_json_str(a->model.path));
    bad |= qn_json_set(o, "perplexity", qn_json_real(perplexity(s)));
    bad |= qn_json_set(o, "error", qn_json_real(perplexity_error(s)));
    bad |= qn_json_set(o, "mean_nll", qn_json_real(s->nll / (double)s->n));
    bad |= qn_json_set(o, "n_scored", json_integer((json_int_t)s->n));
    bad |= qn_json_set(o, "n_chunks", json_integer((json_int_t)n_chunks));
    bad |= qn_json_set(o, "n_ctx", json_integer(n));
    bad |= qn_json_set(o, "exact", json_boolean(a->model.exact));
    return qn_json_print(qn_json_whole(o, bad), JSON_COMPACT);
}

static int score(const ppl_args *a, qn_loaded *l, int32_t *ids, size_t n_ids)
{
    int n = quern_session_n_ctx(l->session);
    size_t n_chunks = n_ids / (size_t)n;
    int32_t bos = qn_tokenizer_add_bos(l->model->tok) ? qn_tokenizer_role(l->model->tok, QN_ROLE_BOS) : -1;
    ppl_sums sums = {0};
    if (n_chunks == 0) {
        return qn_cli_error("%s has %zu tokens, one chunk needs %d; a smaller -c makes smaller chunks",
                            a->file, n_ids, n);
    }
    n_chunks = a->n_chunks > 0 && (size_t)a->n_chunks < n_chunks ? (size_t)a->n_chunks : n_chunks;
    double start = qn_seconds();
    for (size_t c = 0; c < n_chunks; c++) {
        int32_t *chunk = ids + c * (size_t)n;
        chunk[0] = bos >= 0 ? bos : chunk[0];
        if (score_chunk(l->session, chunk, n, &sums) != 0) {
            return QN_EXIT_ERROR;
        }
        qn_cli_note("chunk %zu of %zu: PPL %.4f", c + 1, n_chunks, perplexity(&sums));
    }
    double t = qn_seconds() - start;
    qn_cli_note("%zu tokens in %.1f s, %.2f t/s", n_chunks * (size_t)n, t,
                (double)(n_chunks * (size_t)n) / t);
    return print_result(a, &sums, n_chunks, n);
}

static int run_loaded(const ppl_args *a, qn_loaded *l, const char *text, size_t len)
{
    quern_error err;
    int32_t *ids;
    size_t n;
    if (quern_session_n_ctx(l->session) < 4) {
        return qn_cli_error("a chunk of %d tokens leaves nothing to score", quern_session_n_ctx(l->session));
    }
    if (quern_tokenize(l->model, text, len, true, false, &ids, &n, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    int rc = score(a, l, ids, n);
    free(ids);
    return rc;
}

int qn_cmd_perplexity(int argc, char **argv)
{
    ppl_args a = {.model = qn_model_args_defaults};
    const qn_opt_group groups[] = {
        {"Perplexity", ppl_opts, &a}, qn_load_group(&a.model), qn_backend_group(&a.model), qn_common_group};
    const qn_usage usage = {
        "perplexity",
        "MODEL -f FILE [options]",
        "Perplexity of a text in disjoint chunks of -c tokens (default 512). Each chunk begins with the "
        "model's "
        "begin-of-text token where it asks for one; the second half of each is scored, as llama.cpp does.",
        groups,
        sizeof groups / sizeof *groups,
        1};
    const char *positional[1];
    qn_loaded l = {0};
    char *text = NULL;
    size_t len;
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "perplexity", positional[0]);
    if (rc < 0 && a.file == NULL) {
        rc = qn_cli_usage_error("perplexity", "no text: give -f FILE");
    }
    if (rc < 0) {
        a.model.n_ctx = a.model.n_ctx < 0 ? DEFAULT_CHUNK : a.model.n_ctx;
        rc = qn_cli_read_file(a.file, &text, &len) == 0 &&
                     qn_cli_load(&l, &a.model, QN_LOAD_SESSION | QN_LOAD_TEXT) == 0
                 ? run_loaded(&a, &l, text, len)
                 : QN_EXIT_ERROR;
    }
    qn_loaded_free(&l);
    free(text);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
