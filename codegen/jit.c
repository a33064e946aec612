#include "codegen/jit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/threads.h"
#include "codegen/compile.h"
#include "codegen/kernel_files.h"

enum { COMPILE_STACK = 16 << 20, SPEC_MAX = 150 };

struct qn_jit {
    qn_jit_opts opts;
    qn_kernel_files files;
    qn_blob key_head; /* of the key: what all programs share but the headers */
    qn_cache *cache;  /* NULL: memory only */
    int n_kernel, cap_kernel;
    qn_kernel **kernels;
    bool sealed;
    pthread_mutex_t lock; /* callbacks, and what follows */
    bool store_failed;    /* warned, and nothing more is stored */
    _Atomic int compiles;
};

static void say(qn_jit *jit, int level, const char *line)
{
    if (jit->opts.log) {
        jit->opts.log(jit->opts.user, level, line);
    }
}

static int build_key_head(qn_jit *jit, qn_err *err)
{
    char arch_flag[48];
    const char *flags[QN_FLAGS_MAX];
    FILE *f = open_memstream(&jit->key_head.data, &jit->key_head.size);
    if (!f) {
        return qn_fail(err, "out of memory");
    }
    fprintf(f, "format %d\nnvrtc %d.%d\narch %s\n", QN_CACHE_FORMAT, jit->opts.nvrtc->major,
            jit->opts.nvrtc->minor, jit->opts.arch.name);
    qn_compile_flags(&jit->opts.arch, arch_flag, flags);
    for (int i = 0; flags[i]; i++) {
        fprintf(f, "flag %s\n", flags[i]);
    }
    return fclose(f) == 0 ? 0 : qn_fail(err, "out of memory");
}

/* Every text stands behind its name and length, so that no two sets of texts make the same key. */
static int build_key(const qn_jit *jit, const char *source, qn_blob *key, qn_err *err)
{
    const char *names[QN_HEADERS_MAX], *texts[QN_HEADERS_MAX];
    int n = qn_kernel_files_of(&jit->files, source, names, texts);
    FILE *f = open_memstream(&key->data, &key->size);
    if (!f) {
        return qn_fail(err, "out of memory");
    }
    fwrite(jit->key_head.data, 1, jit->key_head.size, f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "file %s %zu\n%s", names[i], strlen(texts[i]), texts[i]);
    }
    fprintf(f, "source %zu\n%s", strlen(source), source);
    return fclose(f) == 0 ? 0 : qn_fail(err, "out of memory");
}

int qn_jit_new(qn_jit **out, const qn_jit_opts *opts, qn_err *err)
{
    *out = NULL;
    qn_jit *jit = calloc(1, sizeof *jit);
    if (!jit) {
        return qn_fail(err, "out of memory");
    }
    jit->opts = *opts;
    pthread_mutex_init(&jit->lock, NULL);
    int rc = qn_kernel_files_load(&jit->files, opts->kernel_src, err);
    rc = rc ? rc : build_key_head(jit, err);
    if (rc == 0 && opts->cache_dir) {
        jit->cache = qn_cache_open(opts->cache_dir);
        rc = jit->cache ? 0 : qn_fail(err, "out of memory");
    }
    jit->opts.cache_dir = jit->opts.kernel_src = NULL; /* the caller's */
    if (rc != 0) {
        qn_jit_free(jit);
        return -1;
    }
    *out = jit;
    return 0;
}

void qn_jit_free(qn_jit *jit)
{
    if (!jit) {
        return;
    }
    for (int i = 0; i < jit->n_kernel; i++) {
        qn_kernel_clear(jit->kernels[i]);
        free(jit->kernels[i]);
    }
    free(jit->kernels);
    free(jit->key_head.data);
    qn_kernel_files_free(&jit->files);
    qn_cache_close(jit->cache);
    pthread_mutex_destroy(&jit->lock);
    free(jit);
}

void qn_jit_seal(qn_jit *jit)
{
    jit->sealed = true;
}

int qn_jit_compiles(const qn_jit *jit)
{
    return atomic_load(&jit->compiles);
}

const qn_arch *qn_jit_arch(const qn_jit *jit)
{
    return &jit->opts.arch;
}

const char *qn_jit_file(const qn_jit *jit, const char *name)
{
    return qn_kernel_files_find(&jit->files, name);
}

static int add_kernel(qn_jit *jit, qn_kernel *k, qn_err *err)
{
    if (jit->n_kernel == jit->cap_kernel) {
        int cap = jit->cap_kernel ? 2 * jit->cap_kernel : 32;
        qn_kernel **more = realloc(jit->kernels, (size_t)cap * sizeof *more);
        if (!more) {
            return qn_fail(err, "out of memory");
        }
        jit->kernels = more;
        jit->cap_kernel = cap;
    }
    jit->kernels[jit->n_kernel++] = k;
    return 0;
}

/* One program of a call. */
struct work {
    qn_jit *jit;
    const char *symbol;
    qn_blob key;
    qn_kernel *k; /* with name and source; owned until the jit has it */
    bool todo, done;
    qn_err err;
};

/* The entry's name, fit for any file system. */
static void entry_name(const qn_jit_program *p, const qn_blob *key, char name[QN_ENTRY_NAME_MAX])
{
    char digest[17];
    qn_cache_digest(key->data, key->size, digest);
    snprintf(name, QN_ENTRY_NAME_MAX, "%.40s-%.*s-%s", p->op, SPEC_MAX, p->spec, digest);
    for (char *c = name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!plain && (c == name || !strchr("_.+-", *c))) {
            *c = '_';
        }
    }
}

/* A kernel of this name and source that the jit already has. */
static qn_kernel *have(const qn_jit *jit, const char *name, const char *source)
{
    for (int i = 0; i < jit->n_kernel; i++) {
        if (strcmp(jit->kernels[i]->name, name) == 0 && strcmp(jit->kernels[i]->source.data, source) == 0) {
            return jit->kernels[i];
        }
    }
    return NULL;
}

static int check_symbol(const struct work *w, qn_err *err)
{
    if (w->symbol && !qn_kernel_find(w->k, w->symbol)) {
        return qn_fail(err, "the kernel function %s is not in it", w->symbol);
    }
    return 0;
}

static void disable_store(qn_jit *jit, const char *why)
{
    char line[QN_ERR_MAX + 100];
    pthread_mutex_lock(&jit->lock);
    if (!jit->store_failed) {
        jit->store_failed = true;
        snprintf(line, sizeof line, "kernel cache: %s; kernels stay in memory, for this run only", why);
        say(jit, 0, line);
    }
    pthread_mutex_unlock(&jit->lock);
}

static void store(qn_jit *jit, const qn_kernel *k, const qn_blob *key)
{
    pthread_mutex_lock(&jit->lock);
    bool skip = !jit->cache || jit->store_failed;
    pthread_mutex_unlock(&jit->lock);
    qn_err why;
    if (!skip && qn_cache_store(jit->cache, k, key, &why) != 0) {
        disable_store(jit, why.text);
    }
}

/* NVRTC's log, line by line: all of it at level 0, or the compiler's remarks (not ptxas's figures) at
 * level 1. */
static void say_log(qn_jit *jit, int level, char *log)
{
    char *rest = NULL;
    pthread_mutex_lock(&jit->lock);
    for (char *line = log ? strtok_r(log, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        if (level == 0 || strncmp(line, "ptxas", 5) != 0) {
            say(jit, level, line);
        }
    }
    pthread_mutex_unlock(&jit->lock);
}

static int compile_one(qn_jit *jit, struct work *w)
{
    char file[QN_ENTRY_NAME_MAX], *log = NULL;
    snprintf(file, sizeof file, "%s", w->k->name);
    size_t n = strlen(file);
    if (n > 17) {
        snprintf(file + n - 17, sizeof file - n + 17, ".cu"); /* the digest tells a reader nothing */
    }
    atomic_fetch_add(&jit->compiles, 1);
    int rc = qn_compile(jit->opts.nvrtc, &jit->opts.arch, &jit->files, file, w->k->source.data, w->k, &log,
                        &w->err);
    rc = rc ? rc : check_symbol(w, &w->err);
    if (rc == 0) {
        store(jit, w->k, &w->key);
    } else {
        qn_fail_prefix(&w->err, "%s", w->k->name);
    }
    say_log(jit, rc ? 0 : 1, log);
    free(log);
    return rc;
}

/* What the threads of one call share. */
struct batch {
    qn_jit *jit;
    struct work *works;
    int n, n_todo, n_cached, n_done;
    _Atomic int next;
    _Atomic bool failed;
};

static void report(struct batch *b, const qn_kernel *k)
{
    qn_jit *jit = b->jit;
    pthread_mutex_lock(&jit->lock);
    b->n_done += k ? 1 : 0;
    qn_jit_progress p = {
        .done = b->n_done, .total = b->n_todo, .cached = b->n_cached, .kept = jit->cache != NULL};
    p.kept = p.kept && !jit->store_failed;
    p.name = k ? k->name : NULL;
    p.seconds = k ? k->seconds : 0;
    if (jit->opts.progress) {
        jit->opts.progress(jit->opts.user, &p);
    }
    pthread_mutex_unlock(&jit->lock);
}

static void *compile_thread(void *arg)
{
    struct batch *b = arg;
    while (!atomic_load(&b->failed)) {
        int i = atomic_fetch_add(&b->next, 1);
        if (i >= b->n) {
            break;
        }
        struct work *w = &b->works[i];
        if (!w->todo) {
            continue;
        }
        if (compile_one(b->jit, w) != 0) {
            atomic_store(&b->failed, true);
            break;
        }
        w->done = true;
        report(b, w->k);
    }
    return NULL;
}

static void run_threads(struct batch *b)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    pthread_attr_t attr;
    int want = b->jit->opts.n_threads > 0 ? b->jit->opts.n_threads : qn_cpu_count(), n = 0;
    want = want > b->n_todo ? b->n_todo : want;
    want = want > MOST ? MOST : want;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, COMPILE_STACK);
    while (n < want && pthread_create(&threads[n], &attr, compile_thread, b) == 0) {
        n++;
    }
    pthread_attr_destroy(&attr);
    if (n == 0) {
        compile_thread(b);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* What a look-up of many entries found wrong, told in one line. */
struct damage {
    int n;
    qn_err first;
    qn_err unreadable;
};

static void look_up(qn_jit *jit, struct work *w, struct damage *d)
{
    qn_err why;
    qn_kernel got = {0};
    int rc = qn_cache_load(jit->cache, w->k->name, &w->key, &got, &why);
    if (rc == 1 &&
        (strcmp(got.source.data, w->k->source.data) != 0 || strcmp(got.arch, jit->opts.arch.name) != 0)) {
        rc = qn_fail(&why, "%s: kernel.cu or the architecture is not the key's", w->k->name);
    }
    if (rc == 1 && w->symbol && !qn_kernel_find(&got, w->symbol)) {
        rc = qn_fail(&why, "%s: the kernel function %s is not in it", w->k->name, w->symbol);
    }
    if (rc == 1 && !jit->opts.arch.ptx_only && got.cubin.size == 0) {
        rc = qn_fail(&why, "%s: there is no cubin in it", w->k->name);
    }
    if (rc == 1) {
        qn_kernel_clear(w->k);
        *w->k = got;
        w->todo = false;
        return;
    }
    qn_kernel_clear(&got);
    if (rc < 0) {
        qn_err drop;
        if (d->n++ == 0) {
            d->first = why;
        }
        qn_cache_drop(jit->cache, w->k->name, &drop); /* where that fails, the store that follows says why */
    } else if (why.text[0]) {
        d->unreadable = why;
    }
}

static void tell_damage(qn_jit *jit, const struct damage *d)
{
    char line[QN_ERR_MAX + 200];
    if (d->n) {
        snprintf(line, sizeof line, "kernel cache: %s: %d damaged entr%s dropped, compiling again (%s)",
                 qn_cache_dir(jit->cache), d->n, d->n == 1 ? "y" : "ies", d->first.text);
        pthread_mutex_lock(&jit->lock);
        say(jit, 0, line);
        pthread_mutex_unlock(&jit->lock);
    }
    if (d->unreadable.text[0]) {
        disable_store(jit, d->unreadable.text);
    }
}

/* Name, key and a kernel to fill for every program that the jit does not have yet. */
static int prepare(qn_jit *jit, const qn_jit_program *programs, int n, struct work *works,
                   const qn_kernel **kernels, qn_err *err)
{
    for (int i = 0; i < n; i++) {
        struct work *w = &works[i];
        char name[QN_ENTRY_NAME_MAX];
        w->jit = jit;
        w->symbol = programs[i].symbol;
        if (build_key(jit, programs[i].source, &w->key, err) != 0) {
            return -1;
        }
        entry_name(&programs[i], &w->key, name);
        kernels[i] = have(jit, name, programs[i].source);
        if (kernels[i]) {
            continue;
        }
        w->k = calloc(1, sizeof *w->k);
        if (!w->k || !(w->k->source.data = strdup(programs[i].source))) {
            return qn_fail(err, "out of memory");
        }
        w->k->source.size = strlen(programs[i].source);
        memcpy(w->k->name, name, sizeof name);
        w->todo = true;
        for (int j = 0; j < i; j++) {
            if (works[j].todo && strcmp(works[j].k->name, name) == 0 &&
                strcmp(works[j].k->source.data, programs[i].source) == 0) {
                w->todo = false; /* the same again: compiled once, found below */
            }
        }
    }
    return 0;
}

/* Kernels that are whole go to the jit; equal programs share one. */
static int adopt(qn_jit *jit, struct work *works, int n, const qn_kernel **kernels, qn_err *err)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        struct work *w = &works[i];
        if (!w->k) {
            continue;
        }
        kernels[i] = have(jit, w->k->name, w->k->source.data);
        if (!kernels[i] && (w->done || w->k->cached)) {
            rc = add_kernel(jit, w->k, err);
            kernels[i] = rc == 0 ? w->k : NULL;
            w->k = rc == 0 ? NULL : w->k;
        }
    }
    return rc;
}

static int first_error(const struct batch *b, qn_err *err)
{
    for (int i = 0; i < b->n; i++) {
        if (b->works[i].todo && !b->works[i].done && b->works[i].err.text[0]) {
            *err = b->works[i].err;
            return -1;
        }
    }
    return qn_fail(err, "kernels were not compiled");
}

static int compile_missing(struct batch *b, qn_err *err)
{
    qn_jit *jit = b->jit;
    struct damage d = {0};
    for (int i = 0; i < b->n; i++) {
        struct work *w = &b->works[i];
        if (w->todo && jit->cache) {
            look_up(jit, w, &d);
        }
        b->n_todo += w->todo;
        b->n_cached += !w->todo;
    }
    tell_damage(jit, &d);
    if (b->n_todo == 0) {
        return 0;
    }
    if (jit->sealed) {
        return qn_fail(err, "%d kernels would be compiled after loading", b->n_todo);
    }
    report(b, NULL);
    run_threads(b);
    return atomic_load(&b->failed) ? first_error(b, err) : 0;
}

int qn_jit_compile_all(qn_jit *jit, const qn_jit_program *programs, int n, const qn_kernel **kernels,
                       qn_err *err)
{
    struct work *works = qn_calloc((size_t)n, sizeof *works);
    if (!works) {
        return qn_fail(err, "out of memory");
    }
    struct batch b = {.jit = jit, .works = works, .n = n};
    int rc = prepare(jit, programs, n, works, kernels, err);
    rc = rc ? rc : compile_missing(&b, err);
    qn_err adopted;
    int rc_adopt = adopt(jit, works, n, kernels, &adopted);
    for (int i = 0; i < n; i++) {
        if (works[i].k) {
            qn_kernel_clear(works[i].k);
            free(works[i].k);
        }
        free(works[i].key.data);
        if (rc == 0 && rc_adopt == 0 &&
            (!kernels[i] || (works[i].symbol && !qn_kernel_find(kernels[i], works[i].symbol)))) {
            rc = qn_fail(err, "%s-%s: the kernel function %s is missing after compiling", programs[i].op,
                         programs[i].spec, works[i].symbol ? works[i].symbol : "");
        }
    }
    free(works);
    if (rc == 0 && rc_adopt != 0) {
        *err = adopted;
        rc = -1;
    }
    return rc;
}

int qn_jit_replace(qn_jit *jit, const qn_kernel **kernel, const char *why, qn_err *err)
{
    int at = 0;
    while (at < jit->n_kernel && jit->kernels[at] != *kernel) {
        at++;
    }
    if (at == jit->n_kernel || !jit->kernels[at]->cached) {
        return qn_fail(err, "%s: just compiled for %s by NVRTC %d.%d, and refused: %s", (*kernel)->name,
                       jit->opts.arch.name, jit->opts.nvrtc->major, jit->opts.nvrtc->minor, why);
    }
    if (jit->sealed) {
        return qn_fail(err, "%s would be compiled after loading: %s", (*kernel)->name, why);
    }
    qn_kernel *old = jit->kernels[at];
    struct work w = {.jit = jit, .todo = true, .k = calloc(1, sizeof *w.k)};
    if (!w.k || build_key(jit, old->source.data, &w.key, err) != 0) {
        free(w.k);
        return qn_fail(err, "out of memory");
    }
    memcpy(w.k->name, old->name, sizeof w.k->name);
    w.k->source = old->source; /* moved */
    old->source = (qn_blob){0};
    struct damage d = {.n = 1};
    qn_err drop;
    qn_fail(&d.first, "%s: the driver refuses it: %s", old->name, why);
    if (jit->cache) {
        qn_cache_drop(jit->cache, old->name, &drop);
        tell_damage(jit, &d);
    }
    qn_kernel_clear(old);
    free(old);
    jit->kernels[at] = w.k;
    *kernel = w.k;
    int rc = compile_one(jit, &w);
    if (rc != 0) {
        *err = w.err;
    }
    free(w.key.data);
    return rc;
}
