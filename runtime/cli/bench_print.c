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

static void json_test(qn_json_out *o, const quern_session *s, const char *path, const qn_bench_test *t)
{
    qn_model_facts f;
    double mean, sd, gb, tflop;
    qn_model_facts_get(s->m->model->gguf, &f);
    qn_json_open(o, '{');
    qn_json_add_str(o, "build_version", quern_version());
    qn_json_add_str(o, "model_filename", path);
    qn_json_add_str(o, "model_type", s->m->model->arch);
    qn_json_add_str(o, "model_quant", f.main_type);
    qn_json_add_uint(o, "model_size", f.tensor_bytes);
    qn_json_add_uint(o, "model_n_params", f.n_params);
    qn_json_add_str(o, "backends", s->exec->name);
    qn_json_add_bool(o, "exact", s->exec->opts.exact);
    qn_json_add_int(o, "n_threads", s->exec->opts.n_threads);
    qn_json_add_int(o, "n_ubatch", s->exec->opts.n_ubatch);
    qn_json_add_int(o, "n_prompt", t->gen ? 0 : t->n);
    qn_json_add_int(o, "n_gen", t->gen ? t->n : 0);
    qn_json_add_int(o, "n_depth", t->depth);
    qn_bench_statistics(t, false, &mean, &sd);
    qn_json_add_double(o, "avg_ns", round(1e9 * mean));
    qn_json_add_double(o, "stddev_ns", round(1e9 * sd));
    qn_bench_statistics(t, true, &mean, &sd);
    qn_json_add_double(o, "avg_ts", mean);
    qn_json_add_double(o, "stddev_ts", sd);
    rates(s, t, &gb, &tflop);
    qn_json_add_double(o, "gb_per_second", gb);
    qn_json_add_double(o, "tflop_per_second", tflop);
    qn_json_add_open(o, "samples_ns", '[');
    for (int r = 0; r < t->repeats; r++) {
        qn_json_double(o, round(1e9 * t->seconds[r]));
    }
    qn_json_close(o, ']');
    qn_json_add_open(o, "samples_ts", '[');
    for (int r = 0; r < t->repeats; r++) {
        qn_json_double(o, t->n / t->seconds[r]);
    }
    qn_json_close(o, ']');
    qn_startup_json(o, &s->exec->stats);
    qn_json_close(o, '}');
}

void qn_bench_json(qn_json_out *o, const quern_session *s, const char *path, const qn_bench_test *tests,
                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_test(o, s, path, &tests[i]);
    }
}
