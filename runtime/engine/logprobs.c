/* logprobs.c: probabilities of a row of logits. */
#include <math.h>
#include <stdlib.h>

#include "engine/engine.h"

/* Is a before b: likelier, or of equals the lower id? */
static bool before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Puts `id` into top[0..n), which is in order and has room for `cap`; returns the new n. */
static int insert(const float *logits, quern_logprob *top, int n, int cap, int32_t id)
{
    if (n == cap && (n == 0 || !before(logits, id, top[n - 1].token))) {
        return n;
    }
    int at = n < cap ? n : n - 1;
    for (; at > 0 && before(logits, id, top[at - 1].token); at--) {
        top[at] = top[at - 1];
    }
    top[at].token = id;
    return n < cap ? n + 1 : n;
}

int quern_logprobs(const float *logits, int n_vocab, int32_t token, float *chosen, quern_logprob *top,
                   int n_top, quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    int n = 0;
    double sum = 0;
    if (n_vocab < 1 || n_top < 0 || n_top > n_vocab) {
        return qn_fail(err, "%d log-probabilities of a vocabulary of %d", n_top, n_vocab);
    }
    if (chosen != NULL && (token < 0 || token >= n_vocab)) {
        return qn_fail(err, "token %d is outside the vocabulary of %d", token, n_vocab);
    }
    float most = logits[0];
    for (int32_t i = 0; i < n_vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) {
            return qn_fail(err, "the logit of token %d is %s", i, isnan(logits[i]) ? "NaN" : "infinite");
        }
        most = logits[i] > most ? logits[i] : most;
        n = insert(logits, top, n, n_top, i);
    }
    if (most == -INFINITY) {
        return qn_fail(err, "no token is possible: all logits are minus infinity");
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)logits[i] - most);
    }
    double norm = log(sum); /* of the logits less the largest one */
    for (int i = 0; i < n; i++) {
        top[i].logprob = (float)((double)logits[top[i].token] - most - norm);
    }
    if (chosen != NULL) {
        *chosen = (float)((double)logits[token] - most - norm);
    }
    return 0;
}
