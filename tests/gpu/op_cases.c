/* op_cases: the cases of the emulated op tests (tests/emu), and large ones (op_large.c), on a card: each
 * kernel compiled for it and launched there, against its reference function. Several processes share the
 * cases; one whose kernel harms the card is replaced, and the case has failed. See --help, and
 * docs/gpu-tests.md. */
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "card.h"
#include "cuda/exec.h"
#include "emu_ops.h"
#include "op_large.h"

enum { MAX_JOBS = 64, MAX_CASES = 16384, MAX_OPS = 32, MAX_TEMPLATES = 128, NAME = 200, LOST = 3 };

typedef struct options {
    const char *op, *word, *way, *cache, *shapes, *json;
    int variant, every, jobs;
    double seconds;
    bool large_only, no_large, list;
} options;

/* What a process has seen of an op; slot MAX_OPS - 1 of none. Ops are numbered as in emu_case_ops, large
 * cases count as their op's. */
typedef struct tally {
    int cases, large, runs, failed;
    double seconds, slowest;     /* of all, and of the case that took longest */
    double nmse, share, element; /* of the run that comes nearest to its tolerance */
    char worst[NAME], slow[NAME];
} tally;

typedef struct process {
    tally ops[MAX_OPS];
    char running[NAME], templates[MAX_TEMPLATES][40];
    int n_template;
    card_counts counts;
    card_info info;
    double open_seconds;
} process;

static struct shared {
    atomic_int claimed[MAX_CASES];
    atomic_int failures;
    int in_all[MAX_OPS], wanted[MAX_OPS];
    process of[MAX_JOBS];
} * all;

typedef struct runner {
    const options *o;
    process *me;
    ops_runner ops;
    int op, number; /* of the case, among all */
    bool large, counting;
    bool mine; /* the case that comes next was claimed */
    double end;
    int variant; /* the best of the card */
} runner;

static bool is_op(const char *name, size_t n)
{
    for (const char *const *op = emu_case_ops(); *op; op++) {
        if (strlen(*op) == n && memcmp(*op, name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Are all of "a,b" ops? */
static bool are_ops(const char *names)
{
    while (*names) {
        const size_t n = strcspn(names, ",");
        if (!is_op(names, n)) {
            return false;
        }
        names += n + (names[n] == ',');
    }
    return true;
}

/* Is an op among those asked for ("a,b"; NULL: all are)? */
static bool is_asked(const options *o, const char *op)
{
    const size_t n = strlen(op);
    for (const char *at = o->op; at && (at = strstr(at, op)) != NULL; at++) {
        if ((at == o->op || at[-1] == ',') && (at[n] == ',' || at[n] == '\0')) {
            return true;
        }
    }
    return o->op == NULL;
}

static void note(runner *r, const emu_case *c, int way, const ops_result *o)
{
    tally *t = &r->me->ops[r->op];
    const ops_error *e = &o->error;
    const double share = e->bad ? 1e30 : e->nmse / o->tolerance;
    t->runs++;
    if (o->failed) {
        char line[2000];
        t->failed++;
        atomic_fetch_add(&all->failures, 1);
        int n = snprintf(line, sizeof line,
                         "FAILED %s, %s %s: %s NMSE %.2e (at most %.0e), worst element %.2e%s\n", c->name,
                         ops_ways[way].name, qn_variant_name(c->variant), o->rc ? o->err.text : "", e->nmse,
                         o->tolerance, e->element, e->bad ? ", not finite" : "");
        if (n > 0 && write(STDOUT_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0) {
            _exit(1);
        }
    }
    if (share >= t->share) {
        t->share = share;
        t->nmse = e->nmse;
        t->element = e->element;
        snprintf(t->worst, sizeof t->worst, "%s, %s %s", c->name, ops_ways[way].name,
                 qn_variant_name(c->variant));
    }
}

static bool is_wanted(const options *o, const emu_case *c, int number, bool large, bool first)
{
    return (!o->word || strstr(c->name, o->word)) && (!o->variant || o->variant == c->variant) &&
           (large || first || number % o->every == 0);
}

/* Claims the case that is built next, so that others are built without their values. */
static void look_ahead(runner *r)
{
    int unclaimed = 0;
    r->mine = r->number < MAX_CASES && qn_cuda_seconds() < r->end &&
              atomic_compare_exchange_strong(&all->claimed[r->number], &unclaimed, 1);
    emu_cases_empty(!r->mine);
}

/* Is this process to run the case? Its number counts all there are. */
static bool take_case(void *user, const emu_case *c)
{
    runner *r = user;
    const options *o = r->o;
    const int number = r->number++;
    if (number >= MAX_CASES) {
        if (number == MAX_CASES && r->counting) {
            printf("FAILED: there are more than %d cases\n", MAX_CASES);
            atomic_fetch_add(&all->failures, 1);
        }
        return false;
    }
    if (r->counting) { /* the parent, before there are others: the first of an op is always wanted */
        const bool want = is_wanted(o, c, number, r->large, all->wanted[r->op] == 0);
        all->in_all[r->op]++;
        all->wanted[r->op] += want;
        atomic_store(&all->claimed[number], !want);
        if (want && o->list) {
            printf("%s %s\n", c->name, qn_variant_name(c->variant));
        }
        return false;
    }
    return r->mine && c->variant <= r->variant;
}

static int run_ways(void *user, emu_case *c)
{
    runner *r = user;
    tally *t = &r->me->ops[r->op];
    const double begin = qn_cuda_seconds();
    r->ops.n_seen = 0;
    t->cases++;
    t->large += r->large;
    for (int i = 0; i < OPS_WAYS; i++) {
        ops_result out;
        if (!ops_has_way(c, i) || (r->o->way && strcmp(r->o->way, ops_ways[i].name) != 0)) {
            continue;
        }
        snprintf(r->me->running, NAME, "%s, %s %s", c->name, ops_ways[i].name, qn_variant_name(c->variant));
        if (ops_run(&r->ops, c, i, &out) == 0) {
            note(r, c, i, &out);
        }
        if (card_is_lost()) {
            return LOST;
        }
    }
    r->me->running[0] = '\0';
    const double seconds = qn_cuda_seconds() - begin;
    t->seconds += seconds;
    if (seconds > t->slowest) {
        t->slowest = seconds;
        snprintf(t->slow, NAME, "%s %s", c->name, qn_variant_name(c->variant));
    }
    return 0;
}

static int run_case(void *user, emu_case *c)
{
    runner *r = user;
    int rc = take_case(r, c) ? run_ways(r, c) : 0;
    if (!r->counting && rc == 0) {
        look_ahead(r);
    }
    return rc;
}

/* Large ones are built where they were taken only. */
static bool take_large(void *user, const emu_case *c)
{
    runner *r = user;
    if (!r->counting) {
        look_ahead(r);
        emu_cases_empty(false);
    }
    return take_case(r, c);
}

/* All cases in their order: the large ones, which take long, first. */
static int each_case(runner *r)
{
    const char *const *ops = emu_case_ops();
    int rc = 0, i = 0;
    while (ops[i]) {
        i++;
    }
    r->number = 0;
    r->large = true;
    while (i-- > 0 && rc == 0 && !r->o->no_large) { /* from the last on: attention takes longest */
        r->op = i;
        rc = is_asked(r->o, ops[i]) ? op_large_cases(ops[i], take_large, run_ways, r) : 0;
    }
    r->large = false;
    i = 0;
    if (r->counting) { /* what names say may hang on the values drawn before */
        emu_cases_empty(!r->o->word && !r->o->list);
    } else {
        look_ahead(r);
    }
    for (const char *const *op = emu_case_ops(); *op && rc == 0 && !r->o->large_only; op++, i++) {
        r->op = i;
        rc = is_asked(r->o, *op) ? emu_cases(*op, run_case, r) : 0;
    }
    return rc;
}

static void on_template(void *user, const char *name)
{
    process *p = user;
    for (int i = 0; i < p->n_template; i++) {
        if (strcmp(p->templates[i], name) == 0) {
            return;
        }
    }
    if (p->n_template < MAX_TEMPLATES) {
        snprintf(p->templates[p->n_template++], sizeof p->templates[0], "%s", name);
    }
}

static int work(const options *o, process *me, double end)
{
    qn_err err;
    card_info info;
    const double start = qn_cuda_seconds();
    if (card_open(o->cache, &info, &err)) {
        fprintf(stderr, "op_cases: %s\n", err.text);
        return 2;
    }
    card_on_program(on_template, me);
    me->info = info;
    me->open_seconds = qn_cuda_seconds() - start;
    runner r = {.o = o, .me = me, .end = end, .variant = info.variant};
    r.ops.emu.find = card_find;
    r.ops.emu.product = card_product;
    r.ops.emu.multiprocessors = info.multiprocessors;
    int rc = each_case(&r);
    const card_counts n = card_totals();
    me->counts.launches += n.launches;
    me->counts.products += n.products;
    me->counts.programs += n.programs;
    me->counts.compiled += n.compiled;
    me->counts.compile_seconds += n.compile_seconds;
    if (!card_is_lost()) {
        card_close();
    }
    return rc;
}

static pid_t start(const options *o, int slot, double end)
{
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        _exit(work(o, &all->of[slot], end));
    }
    return p;
}

/* A process that did not end well leaves its case as a failure, and another goes on in its place. */
static int wait_for_all(const options *o, double end)
{
    pid_t pids[MAX_JOBS];
    int left = o->jobs, replaced = 0, rc = 0;
    for (int i = 0; i < o->jobs; i++) {
        pids[i] = start(o, i, end);
    }
    while (left > 0) {
        int status, slot = 0;
        pid_t p = wait(&status);
        if (p < 0) {
            return -1;
        }
        while (slot < o->jobs - 1 && pids[slot] != p) {
            slot++;
        }
        process *of = &all->of[slot];
        const bool lost = WIFEXITED(status) && WEXITSTATUS(status) == LOST;
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && !lost) {
            rc = WEXITSTATUS(status);
        }
        if (lost || WIFSIGNALED(status)) {
            if (!lost) {
                printf("FAILED %s: the process was ended by signal %d\n", of->running, WTERMSIG(status));
                atomic_fetch_add(&all->failures, 1);
            }
            of->running[0] = '\0';
            if (replaced++ < 16) {
                pids[slot] = start(o, slot, end);
                continue;
            }
            rc = 1;
        }
        left--;
    }
    return rc;
}

static tally sum_of(int op, int jobs)
{
    tally s = {0};
    for (int i = 0; i < jobs; i++) {
        const tally *t = &all->of[i].ops[op];
        s.cases += t->cases;
        s.large += t->large;
        s.runs += t->runs;
        s.failed += t->failed;
        s.seconds += t->seconds;
        if (t->slowest > s.slowest) {
            s.slowest = t->slowest;
            memcpy(s.slow, t->slow, NAME);
        }
        if (t->runs && t->share >= s.share) {
            s.share = t->share;
            s.nmse = t->nmse;
            s.element = t->element;
            memcpy(s.worst, t->worst, NAME);
        }
    }
    return s;
}

static json_t *template_names(int jobs)
{
    json_t *names = json_object();
    for (int i = 0; i < jobs; i++) {
        for (int k = 0; k < all->of[i].n_template; k++) {
            json_object_set_new(names, all->of[i].templates[k], json_true());
        }
    }
    json_t *list = json_array();
    const char *name;
    json_t *value;
    json_object_foreach(names, name, value)
    {
        json_array_append_new(list, json_string(name));
    }
    json_decref(names);
    return list;
}

/* The table; an op of which nothing ran is a failure where all were asked for. Returns failures. */
static int tell(const options *o, double seconds)
{
    json_t *ops = json_array();
    int i = 0, cases = 0, runs = 0, of = 0, failed = atomic_load(&all->failures);
    double opened = 0;
    card_counts n = {0};
    card_info info = {.name = ""};
    for (int k = 0; k < o->jobs; k++) {
        n.launches += all->of[k].counts.launches;
        n.products += all->of[k].counts.products;
        n.programs += all->of[k].counts.programs;
        n.compiled += all->of[k].counts.compiled;
        n.compile_seconds += all->of[k].counts.compile_seconds;
        info = all->of[k].info.name[0] ? all->of[k].info : info;
        opened = all->of[k].open_seconds > opened ? all->of[k].open_seconds : opened;
    }
    printf("%-10s %12s %6s %6s %6s %9s %9s  %s\n", "op", "cases", "large", "runs", "failed", "NMSE",
           "element", "(of the run nearest to its tolerance)");
    for (const char *const *op = emu_case_ops(); *op; op++, i++) {
        if (!is_asked(o, *op)) {
            continue;
        }
        tally t = sum_of(i, o->jobs);
        char share[32];
        snprintf(share, sizeof share, "%d/%d", t.cases, all->in_all[i]);
        printf("%-10s %12s %6d %6d %6d %9.2e %9.2e  %s\n", *op, share, t.large, t.runs, t.failed, t.nmse,
               t.element, t.worst);
        if (t.runs == 0 && !o->word && !o->variant && !o->way && !o->large_only) {
            printf("FAILED %s: no case of it ran\n", *op);
            failed++;
        }
        cases += t.cases;
        runs += t.runs;
        of += all->in_all[i];
        json_array_append_new(
            ops, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:s, s:f, s:f, s:s}", "op", *op,
                           "cases", t.cases, "of", all->in_all[i], "large", t.large, "runs", t.runs, "failed",
                           t.failed, "nmse", t.nmse, "share", t.share, "element", t.element, "worst", t.worst,
                           "seconds", t.seconds, "slowest_seconds", t.slowest, "slowest", t.slow));
    }
    json_t *j =
        json_pack("{s:b, s:s, s:s, s:i, s:s, s:i, s:i, s:i, s:i, s:f, s:I, s:I, s:I, s:I, s:f, s:o, s:o}",
                  "ok", failed == 0, "card", info.name, "arch", info.arch, "driver", info.driver, "nvrtc",
                  info.nvrtc, "cases", cases, "of", of, "runs", runs, "failed", failed, "seconds", seconds,
                  "launches", (json_int_t)n.launches, "products", (json_int_t)n.products, "programs",
                  (json_int_t)n.programs, "compiled", (json_int_t)n.compiled, "compile_seconds",
                  n.compile_seconds, "templates", template_names(o->jobs), "ops", ops);
    printf(
        "%s, %s, NVRTC %s: %d of %d cases, %d runs, %d failed; %ld launches, %ld products, %ld programs (%ld "
        "compiled, %.0f s of a core) in %.1f s, %.1f s of them until the card was open\n",
        info.name, info.arch, info.nvrtc, cases, of, runs, failed, n.launches, n.products, n.programs,
        n.compiled, n.compile_seconds, seconds, opened);
    if (o->json && (!j || json_dump_file(j, o->json, JSON_INDENT(1)))) {
        fprintf(stderr, "op_cases: cannot write %s\n", o->json);
        failed++;
    }
    json_decref(j);
    return failed;
}

static const char usage[] =
    "usage: op_cases [OPTION...]\n"
    "Kernels on the card against their reference functions, over the cases of the emulated tests and large "
    "ones.\n"
    "  --every N        every Nth of the emulated tests' cases (default 4), and each op's first\n"
    "  --all            all of them\n"
    "  --large          only the large cases; --no-large: none of them\n"
    "  --op NAMES       of some ops (\"norm,mul\"); --word TEXT: whose name holds it; --variant "
    "sm75|sm80|sm90a; --way NAME\n"
    "  --seconds S      no case is begun after this time\n"
    "  --jobs N         processes at a time (default: CPUs, at most 64)\n"
    "  --cache DIR      compiled kernels are kept there (default: not kept)\n"
    "  --shapes DIR     the folder shape_models of the build (default: the build's)\n"
    "  --json FILE      the results\n"
    "  --list           names of the chosen cases; needs no card\n";

enum {
    OPT_EVERY = 256,
    OPT_ALL,
    OPT_LARGE,
    OPT_NO_LARGE,
    OPT_OP,
    OPT_WORD,
    OPT_VARIANT,
    OPT_WAY,
    OPT_SECONDS,
    OPT_JOBS,
    OPT_CACHE,
    OPT_SHAPES,
    OPT_JSON,
    OPT_LIST,
    OPT_HELP
};

static int bad_usage(const char *what)
{
    fprintf(stderr, "op_cases: %s\n%s", what, usage);
    return 2;
}

/* 1: done; 2: wrong. */
static int read_options(options *o, int argc, char **argv)
{
    static const struct option table[] = {
        {"every", 1, NULL, OPT_EVERY},     {"all", 0, NULL, OPT_ALL},
        {"large", 0, NULL, OPT_LARGE},     {"no-large", 0, NULL, OPT_NO_LARGE},
        {"op", 1, NULL, OPT_OP},           {"word", 1, NULL, OPT_WORD},
        {"variant", 1, NULL, OPT_VARIANT}, {"way", 1, NULL, OPT_WAY},
        {"seconds", 1, NULL, OPT_SECONDS}, {"jobs", 1, NULL, OPT_JOBS},
        {"cache", 1, NULL, OPT_CACHE},     {"shapes", 1, NULL, OPT_SHAPES},
        {"json", 1, NULL, OPT_JSON},       {"list", 0, NULL, OPT_LIST},
        {"help", 0, NULL, OPT_HELP},       {NULL, 0, NULL, 0},
    };
    const qn_arch any = {.name = "sm_90a", .cc = 90, .variant = QN_VARIANT_SM90A};
    qn_err err;
    int c;
    while ((c = getopt_long(argc, argv, "h", table, NULL)) >= 0) {
        switch (c) {
        case OPT_EVERY:
            o->every = atoi(optarg);
            break;
        case OPT_ALL:
            o->every = 1;
            break;
        case OPT_LARGE:
            o->large_only = true;
            break;
        case OPT_NO_LARGE:
            o->no_large = true;
            break;
        case OPT_OP:
            o->op = optarg;
            break;
        case OPT_WORD:
            o->word = optarg;
            break;
        case OPT_VARIANT:
            if (qn_variant_by_name(&o->variant, &any, optarg, &err)) {
                return bad_usage(err.text);
            }
            break;
        case OPT_WAY:
            o->way = optarg;
            break;
        case OPT_SECONDS:
            o->seconds = atof(optarg);
            break;
        case OPT_JOBS:
            o->jobs = atoi(optarg);
            break;
        case OPT_CACHE:
            o->cache = optarg;
            break;
        case OPT_SHAPES:
            o->shapes = optarg;
            break;
        case OPT_JSON:
            o->json = optarg;
            break;
        case OPT_LIST:
            o->list = true;
            break;
        case 'h':
        case OPT_HELP:
            fputs(usage, stdout);
            return 1;
        default:
            return bad_usage("see the options");
        }
    }
    if (optind != argc || o->every < 1 || o->jobs < 1 || o->jobs > MAX_JOBS || !(o->seconds > 0)) {
        return bad_usage("a number is out of its range, or there is an argument that is no option");
    }
    return o->op && !are_ops(o->op) ? bad_usage("there is no such op") : 0;
}

int main(int argc, char **argv)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    options o = {.every = 4, .jobs = cpus < 1 ? 1 : cpus > MAX_JOBS ? MAX_JOBS : (int)cpus, .seconds = 1e9};
    const double begin = qn_cuda_seconds();
    int rc = read_options(&o, argc, argv);
    if (rc) {
        return rc == 1 ? 0 : rc;
    }
    if (o.shapes) {
        emu_set_shapes(o.shapes);
    }
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        perror("op_cases");
        return 2;
    }
    runner count = {.o = &o, .me = &all->of[0], .counting = true};
    if (each_case(&count)) {
        return 1;
    }
    if (o.list) {
        return count.number == 0;
    }
    printf("%d cases there are, counted in %.1f s\n", count.number, qn_cuda_seconds() - begin);
    rc = wait_for_all(&o, begin + o.seconds);
    if (rc == 2) {
        return 2;
    }
    return tell(&o, qn_cuda_seconds() - begin) || rc ? 1 : 0;
}
