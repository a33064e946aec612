#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/model_facts.h"
#include "cli/sampling.h"
#include "cli/startup.h"
#include "codegen/cost.h"
#include "engine/memory.h"

bool qn_bench_draws(const quern_sampler_params *p)
{
    return p->temperature > 0 || (p->repeat_penalty != 1 && p->repeat_last_n != 0);
}

/* How the tokens of a generation came about. */
static const char *sampler_text(const qn_bench_test *t, char text[160])
{
    return !t->gen ? "" : qn_bench_draws(t->sampler) ? qn_sampling_text(t->sampler, text) : "greedy";
}

static const char *sampled_by(const qn_bench_test *t)
{
    return !t->gen ? "" : t->by_device ? "device" : qn_bench_draws(t->sampler) ? "host" : "given tokens";
}

const char *qn_bench_name(const qn_bench_test *t, char text[48])
{
    int used = snprintf(text, 48, "%s%d", t->gen ? "tg" : "pp", t->n);
    if (t->n_seq > 1) {
        used += snprintf(text + used, (size_t)(48 - used), " x%d", t->n_seq);
    }
    if (t->depth > 0) {
        snprintf(text + used, (size_t)(48 - used), " @ d%d", t->depth);
    }
    return text;
}

static double value(const qn_bench_test *t, int r, bool per_second)
{
    return per_second ? (double)t->n * t->n_seq / t->seconds[r] : t->seconds[r];
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Middle of the sorted values; where memory is short, the first one. */
static double median(const qn_bench_test *t, bool per_second)
{
    double *v = malloc(sizeof *v * (size_t)t->repeats), m = value(t, 0, per_second);
    if (v != NULL) {
        for (int r = 0; r < t->repeats; r++) {
            v[r] = value(t, r, per_second);
        }
        qsort(v, (size_t)t->repeats, sizeof *v, ascending);
        m = (v[t->repeats / 2] + v[(t->repeats - 1) / 2]) / 2;
    }
    free(v);
    return m;
}

void qn_bench_statistics(const qn_bench_test *t, bool per_second, qn_bench_numbers *out)
{
    double sum = 0, sum2 = 0;
    for (int r = 0; r < t->repeats; r++) {
        sum += value(t, r, per_second);
    }
    out->mean = sum / t->repeats;
    for (int r = 0; r < t->repeats; r++) {
        double d = value(t, r, per_second) - out->mean;
        sum2 += d * d;
    }
    out->sd = t->repeats > 1 ? sqrt(sum2 / (t->repeats - 1)) : 0;
    out->median = median(t, per_second);
}

/* What a measurement comes to beside its limit. */
typedef struct rates {
    double gb, tflop;             /* a second; gb: of generation */
    double limit_gb, limit_tflop; /* 0: not measured */
    double share;                 /* of the limit that counts for the test; 0: not known */
} rates;

/* The arithmetic that a prompt's products are done in. */
static double limit_ops(const qn_bench_test *t, const char *main_type)
{
    const qn_exec_opts *o = &t->s->exec->opts;
    bool is_float =
        strcmp(main_type, "f32") == 0 || strcmp(main_type, "f16") == 0 || strcmp(main_type, "bf16") == 0;
    return o->cuda ? t->limits->f16 : o->exact || is_float ? t->limits->f32 : t->limits->int8;
}

/* Generation reads the weights once a token of all sequences, and each one's KV cache; either does
 * arithmetic. */
static void get_rates(const qn_bench_test *t, const char *main_type, rates *r)
{
    const qn_plans *p = t->s->m->plans;
    const qn_plan *plan = t->gen ? &p->decode : &p->prefill;
    qn_bench_numbers seconds;
    double weights = 0, bytes = 0;
    qn_bench_statistics(t, false, &seconds);
    for (int i = 0; i < p->decode.n_step; i++) {
        weights += (double)qn_step_weight_bytes(&p->decode.steps[i]);
    }
    for (int i = 0; t->gen && i < t->n; i++) {
        bytes += weights + t->n_seq * (qn_plan_cost(&p->decode, 1, t->depth + i, 1).bytes - weights);
    }
    double flop = t->n_seq * qn_plan_cost(plan, t->n, t->depth, t->gen ? t->n : 1).flop;
    *r = (rates){.gb = 1e-9 * bytes / seconds.mean,
                 .tflop = 1e-12 * flop / seconds.mean,
                 .limit_gb = 1e-9 * t->limits->read,
                 .limit_tflop = 1e-12 * limit_ops(t, main_type)};
    double limit = t->gen ? r->limit_gb : r->limit_tflop;
    r->share = limit > 0 ? (t->gen ? r->gb : r->tflop) / limit : 0;
}

void qn_bench_table(const qn_bench_test *t, bool header)
{
    const qn_exec_opts *o = &t->s->exec->opts;
    qn_model_facts f;
    qn_bench_numbers ts;
    rates r;
    char size[24], test[48], model[64], rate[64], other[32], share[16] = "";
    qn_model_facts_get(t->s->m->model->gguf, &f);
    if (header) {
        printf("| %-22s | %10s | %10s | %-7s | %7s | %6s | %16s | %20s | %16s | %8s |\n", "model", "size",
               "params", "backend", "threads", "ubatch", "test", "t/s", "rate", "of limit");
        printf("| %.22s | %.9s: | %.9s: | %.7s | %.6s: | %.5s: | %.15s: | %.19s: | %.15s: | %.7s: |\n",
               "------------------------------", "----------", "----------", "----------", "-------",
               "------", "----------------", "--------------------", "----------------", "--------");
    }
    qn_bench_statistics(t, true, &ts);
    get_rates(t, f.main_type, &r);
    snprintf(model, sizeof model, "%.40s %.20s", t->s->m->model->arch, f.main_type);
    snprintf(rate, sizeof rate, "%.2f ± %.2f", ts.mean, ts.sd);
    double value = t->gen ? r.gb : r.tflop; /* at most 8 characters, which the column has room for */
    snprintf(other, sizeof other, value < 1e-3 ? "%.3g %s" : "%.4g %s", value, t->gen ? "GB/s" : "TFLOP/s");
    if (r.share > 0) {
        snprintf(share, sizeof share, "%.0f %%", 100 * r.share);
    }
    /* "±" has two bytes in one column. */
    printf("| %-22s | %10s | %8.2f M | %-7s | %7d | %6d | %16s | %21s | %16s | %8s |\n", model,
           qn_memory_text(f.tensor_bytes, size), 1e-6 * (double)f.n_params, t->s->exec->name, o->n_threads,
           o->n_ubatch, qn_bench_name(t, test), rate, other, share);
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

void qn_bench_csv(const qn_bench_test *t, bool header)
{
    const qn_exec_opts *o = &t->s->exec->opts;
    qn_model_facts f;
    qn_bench_numbers s, ts;
    rates r;
    char sampler[160];
    qn_model_facts_get(t->s->m->model->gguf, &f);
    if (header) {
        puts("build_version,model_filename,model_type,model_quant,model_size,model_n_params,backends,n_"
             "threads,"
             "n_batch,n_ubatch,n_prompt,n_gen,n_depth,n_pl,avg_ns,stddev_ns,median_ns,avg_ts,stddev_ts,"
             "median_ts,"
             "gb_per_second,tflop_per_second,limit_gb_per_second,limit_tflop_per_second,share_of_limit,"
             "sampler,"
             "sampled_by");
    }
    qn_bench_statistics(t, false, &s);
    qn_bench_statistics(t, true, &ts);
    get_rates(t, f.main_type, &r);
    printf("\"%s\",", quern_version());
    print_quoted(t->path);
    printf(",\"%s\",\"%s\",%llu,%llu,\"%s\",%d,%d,%d,%d,%d,%d,%d,", t->s->m->model->arch, f.main_type,
           (unsigned long long)f.tensor_bytes, (unsigned long long)f.n_params, t->s->exec->name, o->n_threads,
           t->n_batch, o->n_ubatch, t->gen ? 0 : t->n, t->gen ? t->n : 0, t->depth, t->n_seq);
    printf("%.0f,%.0f,%.0f,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,\"%s\",\"%s\"\n", 1e9 * s.mean, 1e9 * s.sd,
           1e9 * s.median, ts.mean, ts.sd, ts.median, r.gb, r.tflop, r.limit_gb, r.limit_tflop, r.share,
           sampler_text(t, sampler), sampled_by(t));
}

static int set_numbers(json_t *o, const qn_bench_test *t)
{
    json_t *ns = json_array(), *ts = json_array();
    qn_bench_numbers s;
    qn_bench_statistics(t, false, &s);
    int bad = qn_json_set(o, "avg_ns", json_integer(llround(1e9 * s.mean)));
    bad |= qn_json_set(o, "stddev_ns", json_integer(llround(1e9 * s.sd)));
    bad |= qn_json_set(o, "median_ns", json_integer(llround(1e9 * s.median)));
    qn_bench_statistics(t, true, &s);
    bad |= qn_json_set(o, "avg_ts", qn_json_real(s.mean));
    bad |= qn_json_set(o, "stddev_ts", qn_json_real(s.sd));
    bad |= qn_json_set(o, "median_ts", qn_json_real(s.median));
    for (int r = 0; r < t->repeats; r++) {
        bad |= json_array_append_new(ns, json_integer(llround(1e9 * t->seconds[r])));
        bad |= json_array_append_new(ts, qn_json_real(value(t, r, true)));
    }
    bad |= qn_json_set(o, "samples_ns", ns);
    return bad | qn_json_set(o, "samples_ts", ts);
}

/* A number that was measured, or null. */
static json_t *known(double v)
{
    return v > 0 ? qn_json_real(v) : json_null();
}

json_t *qn_bench_json(const qn_bench_test *t)
{
    const qn_exec_opts *opts = &t->s->exec->opts;
    qn_model_facts f;
    rates r;
    char now[32], sampler[160];
    time_t clock = time(NULL);
    struct tm utc;
    json_t *o = json_object();
    int bad = 0;
    qn_model_facts_get(t->s->m->model->gguf, &f);
    get_rates(t, f.main_type, &r);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&clock, &utc));
    bad |= qn_json_set(o, "build_version", qn_json_str(quern_version()));
    bad |= qn_json_set(o, "device", qn_json_str(t->limits->device));
    bad |= qn_json_set(o, "driver", qn_json_str(t->limits->driver));
    bad |= qn_json_set(o, "backends", qn_json_str(t->s->exec->name));
    bad |= qn_json_set(o, "model_filename", qn_json_str(t->path));
    bad |= qn_json_set(o, "model_type", qn_json_str(t->s->m->model->arch));
    bad |= qn_json_set(o, "model_quant", qn_json_str(f.main_type));
    bad |= qn_json_set(o, "model_size", json_integer((json_int_t)f.tensor_bytes));
    bad |= qn_json_set(o, "model_n_params", json_integer((json_int_t)f.n_params));
    bad |= qn_json_set(o, "exact", json_boolean(opts->exact));
    bad |= qn_json_set(o, "n_threads", json_integer(opts->n_threads));
    bad |= qn_json_set(o, "n_batch", json_integer(t->n_batch));
    bad |= qn_json_set(o, "n_ubatch", json_integer(opts->n_ubatch));
    bad |= qn_json_set(o, "n_prompt", json_integer(t->gen ? 0 : t->n));
    bad |= qn_json_set(o, "n_gen", json_integer(t->gen ? t->n : 0));
    bad |= qn_json_set(o, "n_depth", json_integer(t->depth));
    bad |= qn_json_set(o, "n_pl", json_integer(t->n_seq));
    bad |= qn_json_set(o, "sampler", qn_json_str(sampler_text(t, sampler)));
    bad |= qn_json_set(o, "sampled_by", qn_json_str(sampled_by(t)));
    bad |= qn_json_set(o, "test_time", qn_json_str(now));
    bad |= set_numbers(o, t);
    bad |= qn_json_set(o, "gb_per_second", qn_json_real(r.gb));
    bad |= qn_json_set(o, "tflop_per_second", qn_json_real(r.tflop));
    bad |= qn_json_set(o, "limit_gb_per_second", known(r.limit_gb));
    bad |= qn_json_set(o, "limit_tflop_per_second", known(r.limit_tflop));
    bad |= qn_json_set(o, "share_of_limit", known(r.share));
    bad |= qn_startup_json(o, &t->s->exec->stats);
    return qn_json_whole(o, bad);
}
