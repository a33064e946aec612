/* emu_traffic FILE.cu: runs a kernel of sound/ once and holds the counts of its lines against those that
 * stand behind "// traffic:" there: accesses of warps, sectors, passes. */
#include <stdio.h>
#include <string.h>

#include "emu.h"

enum { VALUES = 1024, MAX_LINES = 64 };

typedef struct count {
    uint64_t accesses, sectors, passes;
    bool due, found;
} count;

static count lines[MAX_LINES + 1];

static int read_due(const char *path)
{
    char line[512];
    int n = 0;
    FILE *in = fopen(path, "r");
    for (int number = 1; in && number <= MAX_LINES && fgets(line, sizeof line, in); number++) {
        const char *at = strstr(line, "// traffic: ");
        unsigned a, s, p;
        if (at && sscanf(at, "// traffic: %u %u %u", &a, &s, &p) == 3) {
            lines[number] = (count){a, s, p, true, false};
            n++;
        }
    }
    if (in) {
        fclose(in);
    }
    return n;
}

static void compare(const emu_traffic *t, void *ctx)
{
    int *failed = ctx;
    count *c = t->line > 0 && t->line <= MAX_LINES ? &lines[t->line] : NULL;
    if (strcmp(t->file, "strides.cu") != 0 || !c || !c->due) {
        return;
    }
    uint64_t sectors = t->shared ? 0 : t->sectors;
    c->found = true;
    if (t->accesses != c->accesses || sectors != c->sectors || t->passes != c->passes ||
        t->least_passes > t->passes || t->least_sectors > t->sectors) {
        printf("FAILED strides.cu:%d: %llu accesses, %llu sectors, %llu passes\n", t->line,
               (unsigned long long)t->accesses, (unsigned long long)sectors, (unsigned long long)t->passes);
        ++*failed;
    }
}

int main(int argc, char **argv)
{
    int n = 0, failed = 0, due = argc == 2 ? read_due(argv[1]) : 0;
    const emu_program *p = emu_programs(&n);
    while (n > 0 && strcmp(p->name, "strides") != 0) {
        p++;
        n--;
    }
    if (due == 0 || n == 0) {
        printf("FAILED: no counts, or the kernel is not built\n");
        return 1;
    }
    emu_report r = {""};
    float *in = emu_alloc("in", sizeof(float) * VALUES, EMU_READ_ONLY);
    float *out = emu_alloc("out", sizeof(float) * VALUES, 0);
    uint64_t args[3] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out, VALUES};
    emu_launch l = {.program = p, .grid = {1, 1, 1}, .threads = 32, .shared = 8192, .args = args, .n_arg = 3};
    emu_traffic_on();
    if (emu_run(&l, &r) != 0) {
        printf("FAILED %s\n", r.text);
        return 1;
    }
    emu_traffic_each(compare, &failed);
    for (int i = 0; i <= MAX_LINES; i++) {
        if (lines[i].due && !lines[i].found) {
            printf("FAILED strides.cu:%d: nothing counted\n", i);
            failed++;
        }
    }
    printf("%d lines, %d failed\n", due, failed);
    return failed != 0;
}
