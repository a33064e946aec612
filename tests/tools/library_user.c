/* A program that knows nothing of quern but its header: completes argv[2] with the model argv[1]. */
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const quern_error *err)
{
    fprintf(stderr, "%s\n", err->text);
    return 1;
}

int main(int argc, char **argv)
{
    quern_error err;
    quern_model *model;
    quern_session *session;
    quern_sampler *sampler;
    quern_sampler_params greedy = quern_sampler_defaults();
    quern_generate_params params = {.n_predict = 16};
    quern_generate_result result;
    int32_t *ids;
    size_t n;
    if (argc != 3) {
        return 2;
    }
    greedy.temperature = 0;
    if (quern_model_load(&model, argv[1], NULL, &err) != 0 ||
        quern_session_new(&session, model, NULL, &err) != 0 ||
        quern_sampler_new(&sampler, &greedy, &err) != 0 ||
        quern_tokenize(model, argv[2], strlen(argv[2]), true, true, &ids, &n, &err) != 0 ||
        quern_session_append(session, ids, n, false, &err) != 0 ||
        quern_generate(session, sampler, &params, &result, &err) != 0) {
        return fail(&err);
    }
    puts(result.text);
    quern_generate_result_free(&result);
    free(ids);
    quern_sampler_free(sampler);
    quern_session_free(session);
    quern_model_free(model);
    return 0;
}
