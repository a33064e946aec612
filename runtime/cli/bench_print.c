#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/model_facts.h"
#include "cli/startup.h"
#include "codegen/cost.h"
#include "engine/memory.h"

const char *qn_bench_name(const qn_bench_test *t, char text[48])
{
    int used = snprintf(text, 48, "%s%d", t->gen ? "tg" : "pp", t->n);
    if (t->depth > 0) {
        snprintf(text + used, (size_t)(48 - used), " @ d%d", t->depth);
    }
    return text;
}

static double value(const qn_bench_test *t, int r, bool per_second)
{
    return per_second ? t->n / t->seconds[r] : t->seconds[r];
}

void qn_bench_statistics(const qn_bench_test *t, bool per_second, double *mean, double *sd)
{
    double sum = 0, sum2 = 0;
    for (int r = 0; r < t->repeats; r++) {
        sum += value(t, r, per_second);
    }
    *mean = sum / t->repeats;
    for (int r = 0; r < t->repeats; r++) {
        double d = value(t, r, per_second) - *mean;
        sum2 += d * d;
    }
    *sd = t->repeats > 1 ? sqrt(sum2 / (t->repeats - 1)) : 0;
}

/* GB/s of a generation (weights and KV cache, which each token reads) and TFLOP/s of either. */
static void rates(const quern_session *s, const qn_bench_test *t, double *gb, double *tflop)
{
    const qn_plans *p = s->m->plans;
    double seconds, sd;
    qn_bench_statistics(t, false, &seconds, &sd);
    qn_cost c = qn_plan_cost(t->gen ? &p->decode : &p->prefill, t->n, t->depth, 1);
    *tflop = 1e-12 * c.flop / seconds;
    *gb = 0;
    for (int i = 0; t->gen && i < t->n; i++) {
        *gb += 1e-9 * qn_plan_cost(&p->decode, 1, t->depth + i, 1).bytes / seconds;
    }
}

void qn_bench_table(const quern_session *s, const qn_bench_test *tests, size_t n, bool header)
{
    qn_model_facts f;
    char size[24], test[48];
    qn_model_facts_get(s->m->model->gguf, &f);
    if (header) {
        printf("| %-22s | %10s | %10s | %-7s | %7s | %14s | %20s | %14s |\n", "model", "size", "params",
               "backend", "threads", "test", "t/s", "rate");
        printf("| %.22s | %.9s: | %.9s: | %.7s | %.6s: | %.13s: | %.19s: | %.13s: |\n",
               "------------------------------", "----------", "----------", "----------", "-------",
               "---------------", "--------------------", "--------------");
    }
    for (size_t i = 0; i < n; i++) {
        double mean, sd, gb, tflop;
        char model[64], rate[64], other[32];
        qn_bench_statistics(&tests[i], true, &mean, &sd);
        rates(s, &tests[i], &gb, &tflop);
        snprintf(model, sizeof model, "%.40s %.20s", s->m->model->arch, f.main_type);
        snprintf(rate, sizeof rate, "%.2f ± %.2f", mean, sd);
        snprintf(other, sizeof other, "%.4g %s", tests[i].gen ? gb : tflop,
                 tests[i].gen ? "GB/s" : "TFLOP/s");
        /* "±" has two bytes in one column. */
        printf("| %-22s | %10s | %8.2f M | %-7s | %7d | %14s | %21s | %14s |\n", model,
               qn_memory_text(f.tensor_bytes, size), 1e-6 * (double)f.n_params, s->exec->name,
               s->exec->opts.n_threads, qn_bench_name(&tests[i], test), rate, other);
    }
}

/* A CSV field in quotes. */
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text != 0; text++) {
        if (*text == '"') {
            putchar('"');
        }
        putchar(*text);
    }
    putchar('"');
}

void qn_bench_csv(const quern_session *s, const char *path, const qn_bench_test *tests, size_t n, bool header)
{
    qn_model_facts f;
    qn_model_facts_get(s->m->model->gguf, &f);
    if (header) {
        puts("build_version,model_filename,model_type,model_quant,model_size,model_n_params,backends,n_"
             "threads,"
             "n_ubatch,n_prompt,n_gen,n_depth,avg_ns,stddev_ns,avg_ts,stddev_ts,gb_per_second,tflop_per_"
             "second");
    }
    for (size_t i = 0; i < n; i++) {
        const qn_bench_test *t = &tests[i];
        double ns, ns_sd, ts, ts_sd, gb, tflop;
        qn_bench_statistics(t, false, &ns, &ns_sd);
        qn_bench_statistics(t, true, &ts, &ts_sd);
        rates(s, t, &gb, &tflop);
        printf("\"%s\",", quern_version());
        print_quoted(path);
        printf(",\"%s\",\"%s\",%llu,%llu,\"%s\",%d,%d,%d,%d,%d,%.0f,%.0f,%.6g,%.6g,%.6g,%.6g\n",
               s->m->model->arch, f.main_type, (unsigned long long)f.tensor_bytes,
               (unsigned long long)f.n_params, s->exec->name, s->exec->opts.n_threads, s->exec->opts.n_ubatch,
               t->gen ? 0 : t->n, t->gen ? t->n : 0, t->depth, 1e9 * ns, 1e9 * ns_sd, ts, ts_sd, gb, tflop);
    }
}

static json_t *json_test(const quern_session *s, const char *path, const qn_bench_test *t)
{
    qn_model_facts f;
    double mean, sd, gb, tflop;
    json_t *o = json_object(), *ns = json_array(), *ts = json_array();
    int bad = 0;
    qn_model_facts_get(s->m->model->gguf, &f);
    bad |= qn_json_set(o, "build_version", qn_json_str(quern_version()));
    bad |= qn_json_set(o, "model_filename", qn_json_str(path));
    bad |= qn_json_set(o, "model_type", qn_json_str(s->m->model->arch));
    bad |= qn_json_set(o, "model_quant", qn_json_str(f.main_type));
    bad |= qn_json_set(o, "model_size", json_integer((json_int_t)f.tensor_bytes));
    bad |= qn_json_set(o, "model_n_params", json_integer((json_int_t)f.n_params));
    bad |= qn_json_set(o, "backends", qn_json_str(s->exec->name));
    bad |= qn_json_set(o, "exact", json_boolean(s->exec->opts.exact));
    bad |= qn_json_set(o, "n_threads", json_integer(s->exec->opts.n_threads));
    bad |= qn_json_set(o, "n_ubatch", json_integer(s->exec->opts.n_ubatch));
    bad |= qn_json_set(o, "n_prompt", json_integer(t->gen ? 0 : t->n));
    bad |= qn_json_set(o, "n_gen", json_integer(t->gen ? t->n : 0));
    bad |= qn_json_set(o, "n_depth", json_integer(t->depth));
    qn_bench_statistics(t, false, &mean, &sd);
    bad |= qn_json_set(o, "avg_ns", json_integer(llround(1e9 * mean)));
    bad |= qn_json_set(o, "stddev_ns", json_integer(llround(1e9 * sd)));
    qn_bench_statistics(t, true, &mean, &sd);
    bad |= qn_json_set(o, "avg_ts", qn_json_real(mean));
    bad |= qn_json_set(o, "stddev_ts", qn_json_real(sd));
    rates(s, t, &gb, &tflop);
    bad |= qn_json_set(o, "gb_per_second", qn_json_real(gb));
    bad |= qn_json_set(o, "tflop_per_second", qn_json_real(tflop));
    for (int r = 0; r < t->repeats; r++) {
        bad |= json_array_append_new(ns, json_integer(llround(1e9 * t->seconds[r])));
        bad |= json_array_append_new(ts, qn_json_real(t->n / t->seconds[r]));
    }
    bad |= qn_json_set(o, "samples_ns", ns);
    bad |= qn_json_set(o, "samples_ts", ts);
    bad |= qn_startup_json(o, &s->exec->stats);
    return qn_json_whole(o, bad);
}

int qn_bench_json(json_t *array, const quern_session *s, const char *path, const qn_bench_test *tests,
                  size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= json_array_append_new(array, json_test(s, path, &tests[i]));
    }
    return bad;
}
