/* Programs that know nothing of quern but its header:
 *
 *     library_user complete MODEL PROMPT OUT   the answer, into a file; nothing is printed
 *     library_user threads MODEL               one model, sessions, samplers and tokenizing in threads at
 * once library_user errors MODEL                every function that can fail, failing; all is freed
 *     library_user borrowed MODEL              parameters and strings are gone after the call that took them
 *
 * MODEL is the lookup-table model (make_table_model.py). Exit status 0: as expected; else a line on stderr.
 */
#include <pthread.h>
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                               \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

typedef struct things {
    quern_model *model;
    quern_session *session;
    quern_sampler *sampler;
    int32_t *ids;
    size_t n;
    quern_generate_result result;
} things;

static void drop(things *t)
{
    quern_generate_result_free(&t->result);
    free(t->ids);
    quern_sampler_free(t->sampler);
    quern_session_free(t->session);
    quern_model_free(t->model);
}

static int answer(things *t, const quern_model *m, const char *prompt, quern_error *err)
{
    quern_sampler_params greedy = quern_sampler_defaults();
    quern_generate_params params = {.n_predict = 16};
    quern_session_params one = {.n_threads = 1, .backend = QUERN_BACKEND_CPU};
    greedy.temperature = 0;
    return quern_session_new(&t->session, m, &one, err) != 0 ||
                   quern_sampler_new(&t->sampler, &greedy, err) != 0 ||
                   quern_tokenize(m, prompt, strlen(prompt), true, true, &t->ids, &t->n, err) != 0 ||
                   quern_session_append(t->session, t->ids, t->n, false, err) != 0 ||
                   quern_generate(t->session, t->sampler, &params, &t->result, err) != 0
               ? -1
               : 0;
}

static int complete(const char *path, const char *prompt, const char *out)
{
    things t = {0};
    quern_error err = {""};
    FILE *f = fopen(out, "wb");
    if (f == NULL) {
        return 2;
    }
    int rc = quern_model_load(&t.model, path, NULL, &err) != 0 || answer(&t, t.model, prompt, &err) != 0;
    if (rc != 0) {
        fprintf(f, "error: %s", err.text);
    } else {
        fwrite(t.result.text, 1, t.result.text_len, f);
    }
    drop(&t);
    return fclose(f) == 0 ? rc : 2;
}

typedef struct worker {
    pthread_t thread;
    const char *path;
    const quern_model *model;
    int number, rc;
} worker;

static int work(const worker *w)
{
    static const struct {
        const char *prompt, *text;
    } cases[] = {{"A", " Hello world!"}, {"D", "abcSTOPde"}, {"H", "there"}};
    for (int i = 0; i < 20; i++) {
        things t = {0};
        quern_error err = {""};
        int k = (w->number + i) % 3;
        CHECK(answer(&t, w->model, cases[k].prompt, &err) == 0);
        CHECK(strcmp(t.result.text, cases[k].text) == 0);
        char *text = NULL;
        size_t len = 0;
        CHECK(quern_detokenize(w->model, t.result.tokens, t.result.n_generated, false, &text, &len, &err) ==
              0);
        CHECK(strncmp(text, cases[k].text, t.result.text_len) == 0);
        free(text);
        drop(&t);
        if (i % 5 == 0) { /* loading beside others that use another model */
            quern_model *own = NULL;
            CHECK(quern_model_load(&own, w->path, NULL, &err) == 0);
            CHECK(quern_model_load(&(quern_model *){NULL}, "/nonexistent", NULL, &err) == -1);
            quern_model_free(own);
        }
    }
    return 0;
}

static void *run_worker(void *arg)
{
    worker *w = arg;
    w->rc = work(w);
    return NULL;
}

static int threads(const char *path)
{
    enum { N = 6 };
    worker w[N];
    quern_error err = {""};
    quern_model *model = NULL;
    CHECK(quern_model_load(&model, path, NULL, &err) == 0);
    for (int i = 0; i < N; i++) {
        w[i] = (worker){.path = path, .model = model, .number = i, .rc = 1};
        CHECK(pthread_create(&w[i].thread, NULL, run_worker, &w[i]) == 0);
    }
    int rc = 0;
    for (int i = 0; i < N; i++) {
        pthread_join(w[i].thread, NULL);
        rc |= w[i].rc;
    }
    quern_model_free(model);
    return rc;
}

static int errors_of_sessions(const quern_model *m)
{
    quern_error err = {""};
    things t = {0};
    quern_session_params bad = {.n_threads = -1};
    quern_generate_params params = {.n_predict = -2};
    int32_t outside[2] = {1, 1 << 30}, many[100] = {0};
    CHECK(quern_session_new(&t.session, m, &bad, &err) == -1 && t.session == NULL && err.text[0]);
    bad = (quern_session_params){.backend = QUERN_BACKEND_CUDA, .exact = true};
    CHECK(quern_session_new(&t.session, m, &bad, &err) == -1 && t.session == NULL);
    CHECK(answer(&t, m, "A", &err) == 0);
    int held = quern_session_length(t.session);
    CHECK(quern_session_append(t.session, outside, 2, false, &err) == -1);
    CHECK(quern_session_append(t.session, many, 100, false, &err) == -1);
    CHECK(quern_session_truncate(t.session, 1000, &err) == -1 &&
          quern_session_truncate(t.session, -1, &err) == -1);
    CHECK(quern_session_select(t.session, 1, &err) == -1);
    CHECK(quern_session_update(t.session, many, 100, NULL, &err) == -1);
    CHECK(quern_session_length(t.session) == held); /* none of them changed it */
    quern_generate_result_free(&t.result);
    CHECK(quern_generate(t.session, t.sampler, &params, &t.result, &err) == -1 && t.result.text == NULL);
    CHECK(quern_session_truncate(t.session, 0, &err) == 0);
    params.n_predict = 1;
    CHECK(quern_generate(t.session, t.sampler, &params, &t.result, &err) == -1); /* nothing to go on from */
    CHECK(quern_session_append(t.session, t.ids, t.n, false, &err) == 0);        /* and still of use */
    CHECK(quern_generate(t.session, t.sampler, &params, &t.result, &err) == 0 &&
          !strcmp(t.result.text, " Hello"));
    drop(&t);
    return 0;
}

static int errors(const char *path)
{
    quern_error err = {""};
    quern_model *m = (quern_model *)&err;
    quern_sampler *sampler = (quern_sampler *)&err;
    quern_template *tmpl = NULL;
    quern_sampler_params bad = quern_sampler_defaults();
    quern_model_params params = {.n_ctx = -5};
    char *text = NULL;
    size_t len;
    CHECK(quern_model_load(&m, "/nonexistent/model.gguf", NULL, &err) == -1 && m == NULL);
    CHECK(strstr(err.text, "/nonexistent/model.gguf") && !strchr(err.text, '\n'));
    CHECK(quern_model_load(&m, path, &params, &err) == -1 && m == NULL);
    params = (quern_model_params){.config_dir = "/nonexistent"};
    CHECK(quern_model_load(&m, path, &params, &err) == -1 && m == NULL);
    bad.temperature = -1;
    CHECK(quern_sampler_new(&sampler, &bad, &err) == -1 && sampler == NULL);
    CHECK(quern_model_load(&m, path, NULL, &err) == 0);
    CHECK(quern_detokenize(m, (int32_t[]){-1}, 1, false, &text, &len, &err) == -1 && text == NULL);
    CHECK(quern_template_open(&tmpl, m, NULL, &err) == -1 && tmpl == NULL); /* the file has none */
    CHECK(quern_template_open(&tmpl, m, "no-such-template", &err) == -1 && tmpl == NULL);
    CHECK(quern_template_parse(&tmpl, m, "{% for %}", 9, "mine", &err) == -1 && tmpl == NULL);
    CHECK(strstr(err.text, "mine"));
    CHECK(errors_of_sessions(m) == 0);
    quern_model_free(m);
    quern_model_free(NULL);
    quern_session_free(NULL);
    quern_sampler_free(NULL);
    quern_template_free(NULL);
    quern_generate_result_free(&(quern_generate_result){0});
    return 0;
}

/* A copy that is gone (and overwritten) once it is freed. */
static char *copy(const char *s)
{
    char *p = malloc(strlen(s) + 1);
    return p ? strcpy(p, s) : NULL;
}

static int borrowed(const char *path)
{
    quern_error err = {""};
    things t = {0};
    char *name = copy(path), *cache = copy("none"), *variant = copy("sm80"), *stop = copy("STOP"),
         *prompt = copy("D");
    int32_t *end = malloc(sizeof *end);
    CHECK(name && cache && variant && stop && prompt && end);
    *end = 2;
    quern_model_params *mp = malloc(sizeof *mp);
    CHECK(mp != NULL);
    *mp = (quern_model_params){.end_tokens = end, .n_end_tokens = 1};
    CHECK(quern_model_load(&t.model, name, mp, &err) == 0);
    free(name);
    free(end);
    free(mp);
    quern_session_params *sp = malloc(sizeof *sp);
    CHECK(sp != NULL);
    *sp = (quern_session_params){.backend = QUERN_BACKEND_CPU, .cache = cache, .variant = variant};
    CHECK(quern_session_new(&t.session, t.model, sp, &err) == 0);
    free(sp);
    free(cache);
    free(variant);
    quern_sampler_params *sampling = malloc(sizeof *sampling);
    CHECK(sampling != NULL);
    *sampling = quern_sampler_defaults();
    sampling->temperature = 0;
    CHECK(quern_sampler_new(&t.sampler, sampling, &err) == 0);
    free(sampling);
    CHECK(quern_tokenize(t.model, prompt, 1, true, false, &t.ids, &t.n, &err) == 0);
    free(prompt);
    CHECK(quern_session_append(t.session, t.ids, t.n, false, &err) == 0);
    memset(t.ids, 0xff, t.n * sizeof *t.ids);
    const char *stops[] = {stop};
    quern_generate_params params = {.n_predict = -1, .stop = stops, .n_stop = 1};
    CHECK(quern_generate(t.session, t.sampler, &params, &t.result, &err) == 0);
    free(stop);
    CHECK(strcmp(t.result.text, "abc") == 0 && quern_is_end_token(t.model, 2) &&
          !quern_is_end_token(t.model, 3));
    CHECK(quern_session_append(t.session, (int32_t[]){1, 261}, 2, false, &err) == 0);
    drop(&t);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "complete") == 0) {
        return complete(argv[2], argv[3], argv[4]);
    }
    int (*const mode)(const char *) = argc != 3                          ? NULL
                                      : strcmp(argv[1], "threads") == 0  ? threads
                                      : strcmp(argv[1], "errors") == 0   ? errors
                                      : strcmp(argv[1], "borrowed") == 0 ? borrowed
                                                                         : NULL;
    return mode ? mode(argv[2]) : 2;
}
