// no_library.c: preloaded, makes libraries missing: dlopen finds none whose name begins with a word of
// NO_LIBRARY (words behind colons). For glibc.
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int is_missing(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    for (const char *word = getenv("NO_LIBRARY"); word && *word;) {
        size_t len = strcspn(word, ":");
        if (len > 0 && strncmp(name, word, len) == 0) {
            return 1;
        }
        word += len + (word[len] == ':');
    }
    return 0;
}

void *dlopen(const char *file, int mode)
{
    void *(*real)(const char *, int);
    void *next = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&real, &next, sizeof real);
    return file && is_missing(file) ? NULL : real(file, mode);
}
