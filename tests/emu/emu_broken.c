/* emu_broken FILE.cu...: kernels with one fault each (broken/) must be caught: by the kind that their first
 * line names, in the line that is marked; kernels without (sound/) must run clean and leave 1 in out[0]. With
 * several seeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

enum { VALUES = 1024, SEEDS = 5, MAX_HERE = 8 };

typedef struct fixture {
    char name[64], kind[32];
    unsigned blocks, threads, shared;
    bool cooperative, dependent;
    int here[MAX_HERE], n_here; /* marked lines */
} fixture;

static int read_fixture(const char *path, fixture *f)
{
    char line[512], word[32] = "";
    memset(f, 0, sizeof *f);
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    snprintf(f->name, sizeof f->name, "%.*s", (int)strcspn(base, "."), base);
    FILE *in = fopen(path, "r");
    if (!in) {
        return -1;
    }
    for (int number = 1; fgets(line, sizeof line, in); number++) {
        sscanf(line, "// caught: %31s", f->kind);
        if (sscanf(line, "// launch: %u %u %u %31s", &f->blocks, &f->threads, &f->shared, word) >= 3) {
            f->cooperative = strcmp(word, "cooperative") == 0;
            f->dependent = strcmp(word, "dependent") == 0;
        }
        if (strstr(line, "// <- here") && f->n_here < MAX_HERE) {
            f->here[f->n_here++] = number;
        }
    }
    fclose(in);
    return f->threads ? 0 : -1;
}

static const emu_program *find(const char *name)
{
    int n;
    const emu_program *p = emu_programs(&n);
    for (int i = 0; i < n; i++) {
        if (strcmp(p[i].name, name) == 0) {
            return &p[i];
        }
    }
    return NULL;
}

static bool is_here(const fixture *f, const emu_report *r)
{
    const char *base = strrchr(r->file, '/') ? strrchr(r->file, '/') + 1 : r->file;
    bool file = strncmp(base, f->name, strlen(f->name)) == 0, line = f->n_here == 0 && r->line == 0;
    file = file || f->n_here == 0; /* faults of a kernel as a whole */
    for (int i = 0; i < f->n_here; i++) {
        line = line || f->here[i] == r->line;
    }
    return file && line;
}

static bool run_seed(const fixture *f, uint64_t seed, bool print)
{
    emu_report r = {""};
    float *in = emu_alloc("in", sizeof(float) * VALUES, EMU_READ_ONLY);
    float *out = emu_alloc("out", sizeof(float) * VALUES, EMU_UNWRITTEN);
    for (int i = 0; i < VALUES; i++) {
        in[i] = (float)i;
    }
    memset(out, 0, sizeof(float) * VALUES / 2);
    emu_written(out, sizeof(float) * VALUES / 2, &r);
    uint64_t args[3] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out, VALUES};
    emu_launch l = {.program = find(f->name),
                    .grid = {f->blocks, 1, 1},
                    .threads = f->threads,
                    .shared = f->shared,
                    .cooperative = f->cooperative,
                    .dependent = f->dependent,
                    .seed = seed,
                    .args = args,
                    .n_arg = 3};
    if (!l.program) {
        printf("FAILED %s: not built\n", f->name);
        return false;
    }
    int rc = emu_run(&l, &r);
    bool right =
        f->kind[0] ? rc != 0 && strcmp(r.kind, f->kind) == 0 && is_here(f, &r) : rc == 0 && out[0] == 1.0f;
    if (!right || print) {
        printf("%s %s: %s\n", right ? "      " : "FAILED", f->name, rc ? r.text : "nothing found");
    }
    if (!right && rc == 0 && !f->kind[0]) {
        printf("       out[0] is %g\n", (double)out[0]);
    }
    emu_reset();
    return right;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        fixture f;
        if (read_fixture(argv[i], &f)) {
            printf("FAILED %s: no '// launch:' line\n", argv[i]);
            failed++;
            continue;
        }
        bool right = true;
        for (uint64_t seed = 0; seed < SEEDS && right; seed++) {
            right = run_seed(&f, seed, seed == 0);
        }
        failed += !right;
    }
    printf("%d kernels, %d failed\n", argc - 1, failed);
    return failed || argc < 2;
}
