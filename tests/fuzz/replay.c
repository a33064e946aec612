/* replay DIR: runs a fuzz target once over each file of DIR, in name order. An empty or missing DIR fails. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *dir, const char *name)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) {
        fprintf(stderr, "replay: path too long: %s/%s\n", dir, name);
        return -1;
    }
    FILE *f = fopen(path, "rb");
    long size = -1;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        size = ftell(f);
    }
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0) {
        perror(path);
        if (f) {
            fclose(f);
        }
        return -1;
    }
    /* Exactly `size` bytes, so that the sanitizer sees a read past the end. */
    uint8_t *data = malloc((size_t)size ? (size_t)size : 1);
    size_t got = data ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    if (!data || got != (size_t)size) {
        fprintf(stderr, "replay: cannot read %s\n", path);
        free(data);
        return -1;
    }
    printf("%s\n", name); /* the last line names the culprit of a crash */
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: replay DIR\n");
        return 2;
    }
    struct dirent **names;
    int n = scandir(argv[1], &names, visible, alphasort);
    if (n <= 0) {
        fprintf(stderr, "replay: %s: no corpus there\n", argv[1]);
        return 1;
    }
    int rc = 0;
    for (int i = 0; i < n; i++) {
        rc |= run_file(argv[1], names[i]->d_name);
        free(names[i]);
    }
    free(names);
    printf("%d inputs\n", n);
    return rc ? 1 : 0;
}
