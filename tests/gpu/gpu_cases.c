/* gpu_cases.c: what the GPU tests cannot see through the command line (replay of graphs against direct
 * launches, device memory over many tokens and resets), and many command lines in one process.
 *
 *     gpu_cases parity MODEL N_TOKENS          greedy ids and logits with and without the graph; captures are
 *                                              counted
 *     gpu_cases flat MODEL N_TOKENS N_RESETS   device and host memory after N_TOKENS in all
 *     gpu_cases many cuda|cpu DIR              each line of stdin is a JSON array, the arguments of a quern
 *                                              command; its stdout and stderr are DIR/out and DIR/err, and a
 *                                              line {"status": N, "seconds": S} tells of its end
 *
 * Prints one JSON object; exit 1 where a case fails, 2 for a usage error or where there is no GPU; many: 3
 * where a command has left the device unusable for its process ("lost" in its line says why). */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/load.h"

enum { PROMPT = 19, COMPARED_LOGITS = 64 };

static int fail(const char *what)
{
    fprintf(stderr, "gpu_cases: %s\n", what);
    return 2;
}

static int open_session(quern_session **s, const quern_model *m, bool no_graph, quern_error *err)
{
    const quern_session_params p = {.backend = QUERN_BACKEND_CUDA, .n_ubatch = 64, .no_graph = no_graph};
    return quern_session_new(s, m, &p, err);
}

static void prompt(int32_t *ids, int n_vocab)
{
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = (int32_t)(((unsigned)i * 2654435761u >> 8) % (unsigned)n_vocab);
    }
}

/* Puts the choices behind each other. */
static bool keep(void *user, int32_t id)
{
    int32_t **next = user;
    *(*next)++ = id;
    return false;
}

// Prompt, a few tokens chosen on the host with their logits kept, then n - 64 by the executor's own loop.
static int decode(quern_session *s, int n, int32_t *ids, float *logits, quern_error *err)
{
    int n_vocab = quern_model_n_vocab(s->m);
    int32_t first[PROMPT];
    prompt(first, n_vocab);
    for (int i = 0; i < 3; i++) { // the third prompt is a graph's
        if (quern_session_truncate(s, 0, err) || quern_session_append(s, first, PROMPT, false, err)) {
            return -1;
        }
    }
    int host = n < COMPARED_LOGITS ? n : COMPARED_LOGITS;
    for (int i = 0; i < host; i++) {
        const float *row = quern_session_logits(s, -1);
        ids[i] = 0;
        for (int k = 1; k < n_vocab; k++) {
            ids[i] = row[k] > row[ids[i]] ? k : ids[i];
        }
        if (logits) {
            memcpy(logits + (size_t)i * (size_t)n_vocab, row, sizeof *row * (size_t)n_vocab);
        }
        if (i + 1 < host && quern_session_append(s, &ids[i], 1, false, err)) {
            return -1;
        }
    }
    if (n == host) {
        return 0;
    }
    int32_t *next = ids + host;
    qn_loop_row row = {.token = ids[host - 1],
                       .n = n - host,
                       .how = {.repeat_penalty = 1, .top_p = 1},
                       .history = quern_session_tokens(s),
                       .take = keep,
                       .user = &next};
    return s->exec->loop(s->exec, &row, 1, qn_engine_err(err)) == 0 && row.n_done == row.n ? 0 : -1;
}

static int parity(const quern_model *m, int n, quern_error *err)
{
    size_t n_vocab = (size_t)quern_model_n_vocab(m);
    int32_t *ids[2] = {calloc((size_t)n, 4), calloc((size_t)n, 4)};
    float *logits[2] = {calloc(n_vocab * COMPARED_LOGITS, 4), calloc(n_vocab * COMPARED_LOGITS, 4)};
    qn_exec_stats stats[2] = {{0}};
    int rc = ids[0] && ids[1] && logits[0] && logits[1] ? 0 : -1;
    for (int k = 0; k < 2 && rc == 0; k++) {
        quern_session *s = NULL;
        rc = open_session(&s, m, k == 1, err) || decode(s, n, ids[k], logits[k], err) ? -1 : 0;
        if (s) {
            stats[k] = s->exec->stats;
        }
        quern_session_free(s);
    }
    if (rc) {
        return fail(err->text);
    }
    int differ = -1;
    for (int i = n - 1; i >= 0; i--) {
        differ = ids[0][i] != ids[1][i] ? i : differ;
    }
    bool same = memcmp(logits[0], logits[1], n_vocab * COMPARED_LOGITS * sizeof(float)) == 0;
    bool ok = differ < 0 && same && stats[0].captures >= 1 && stats[0].captures <= 5 &&
              !stats[0].graph_off[0] && stats[1].captures == 0 && !stats[0].prompt_graph_off[0] &&
              stats[0].prompt_replays == 1 && stats[1].prompt_replays == 0;
    printf("{\"ok\": %s, \"tokens\": %d, \"first_difference\": %d, \"logits_equal\": %s, \"captures\": %d, "
           "\"graph_off\": \"%s\", \"prompt_graph_off\": \"%s\"}\n",
           ok ? "true" : "false", n, differ, same ? "true" : "false", stats[0].captures, stats[0].graph_off,
           stats[0].prompt_graph_off);
    for (int k = 0; k < 2; k++) {
        free(ids[k]);
        free(logits[k]);
    }
    return ok ? 0 : 1;
}

static long host_kib(void)
{
    long kib = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return kib;
}

static int flat(const quern_model *m, int n, int resets, quern_error *err)
{
    quern_session *s = NULL;
    int per = n / (resets + 1);
    int32_t *ids = calloc((size_t)per + 1, sizeof *ids);
    uint64_t before = 0, after = 0;
    long host_before = 0;
    if (!ids || open_session(&s, m, false, err) || decode(s, per, ids, NULL, err)) { // warm
        return fail(err->text);
    }
    host_before = host_kib();
    int rc = qn_cuda_available(0, &before, qn_engine_err(err));
    for (int i = 0; i <= resets && rc == 0; i++) {
        rc = decode(s, per, ids, NULL, err);
    }
    rc = rc ? rc : qn_cuda_available(0, &after, qn_engine_err(err));
    if (rc) {
        return fail(err->text);
    }
    long grown_host = host_kib() - host_before;
    long long grown = (long long)before - (long long)after;
    int captures = s->exec->stats.captures;
    bool ok = grown <= 0 && grown_host < 4096 && captures <= 5;
    printf(
        "{\"ok\": %s, \"tokens\": %d, \"resets\": %d, \"device_bytes_grown\": %lld, \"host_kib_grown\": %ld, "
        "\"captures\": %d}\n",
        ok ? "true" : "false", per * (resets + 1), resets, grown, grown_host, captures);
    quern_session_free(s);
    free(ids);
    return ok ? 0 : 1;
}

static int open_stream(const char *dir, const char *name, int fd)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    int rc = file >= 0 && dup2(file, fd) >= 0 ? 0 : -1;
    if (file >= 0) {
        close(file);
    }
    return rc;
}

/* Runs the command of one line; -1: the line is no command. */
static int run_line(const char *line, char *dir, int *status)
{
    enum { MOST = 256 };
    char name[] = "quern", *argv[MOST + 2] = {name};
    json_t *words = json_loads(line, 0, NULL);
    size_t n = json_array_size(words);
    int rc =
        n > 0 && n <= MOST && open_stream(dir, "out", 1) == 0 && open_stream(dir, "err", 2) == 0 ? 0 : -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        argv[i + 1] = word ? strdup(word) : NULL; /* argp moves them */
        rc = argv[i + 1] ? 0 : -1;
    }
    char *kept[MOST + 2];
    memcpy(kept, argv, sizeof kept);
    if (rc == 0) {
        *status = qn_cli_main((int)n + 1, argv);
        clearerr(stdout);
    }
    for (size_t i = 1; i <= n && n <= MOST; i++) {
        free(kept[i]);
    }
    json_decref(words);
    return rc;
}

static int answer(FILE *to, int status, double seconds, const char *lost)
{
    json_t *o = json_pack("{s:i, s:f}", "status", status, "seconds", seconds);
    if (o && lost) {
        json_object_set_new(o, "lost", json_string(lost));
    }
    int rc = o ? json_dumpf(o, to, JSON_COMPACT) : -1;
    json_decref(o);
    return rc || fputc('\n', to) == EOF || fflush(to) ? -1 : 0;
}

/* The context stays for all commands: making one takes longer than a small model's whole run. */
static int many(bool cuda, char *dir)
{
    qn_err err;
    if (cuda && qn_cuda_hold(0, &err) != 0) {
        return fail(err.text);
    }
    int in = fcntl(0, F_DUPFD_CLOEXEC, 10), out = fcntl(1, F_DUPFD_CLOEXEC, 10);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FILE *from = in >= 0 ? fdopen(in, "r") : NULL, *to = out >= 0 ? fdopen(out, "w") : NULL;
    if (!from || !to || null < 0 || dup2(null, 0) < 0) {
        return fail(strerror(errno));
    }
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &cap, from) > 0) {
        int status = 0;
        uint64_t available;
        double start = qn_seconds();
        if (run_line(line, dir, &status)) {
            rc = fail("a line is no array of words, or its streams cannot be opened");
            break;
        }
        bool lost = cuda && status != 0 && qn_cuda_available(0, &available, &err) != 0;
        rc = answer(to, status, qn_seconds() - start, lost ? err.text : NULL) ? 1 : lost ? 3 : 0;
    }
    free(line);
    fclose(from);
    fclose(to);
    if (cuda) {
        qn_cuda_release(0);
    }
    return rc;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "many") == 0) {
        return many(strcmp(argv[2], "cuda") == 0, argv[3]);
    }
    quern_error err = {"out of memory"};
    quern_model *m;
    bool is_flat = argc == 5 && strcmp(argv[1], "flat") == 0;
    if (!is_flat && (argc != 4 || strcmp(argv[1], "parity") != 0)) {
        return fail(
            "usage: gpu_cases parity MODEL N_TOKENS | flat MODEL N_TOKENS N_RESETS | many cuda|cpu DIR");
    }
    int n = atoi(argv[3]), resets = is_flat ? atoi(argv[4]) : 0;
    if (n < 2 * COMPARED_LOGITS || resets < 0 || n / (resets + 1) < 2) {
        return fail("too few tokens");
    }
    const quern_model_params p = {.no_tokenizer = true, .n_ctx = n / (resets + 1) + PROMPT + 1};
    if (quern_model_load(&m, argv[2], &p, &err)) {
        return fail(err.text);
    }
    int rc = is_flat ? flat(m, n, resets, &err) : parity(m, n, &err);
    quern_model_free(m);
    return rc;
}
