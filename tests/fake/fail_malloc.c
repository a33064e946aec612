// fail_malloc.c: preloaded, lets the allocation number FAIL_AT fail and all those after it up to FAIL_TO
// (default: that one); 0: none. FAIL_REPORT: a file that gets the number of allocations when the process
// ends. For glibc.
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static atomic_long count;
static long first = -1, last;

// The environment is read without allocating, once the process has one.
static int fails(void)
{
    if (first < 0) {
        const char *at = getenv("FAIL_AT"), *to = getenv("FAIL_TO");
        first = at ? strtol(at, NULL, 10) : 0;
        last = to ? strtol(to, NULL, 10) : first;
    }
    long k = ++count;
    int yes = first > 0 && k >= first && k <= last;
    errno = yes ? ENOMEM : errno;
    return yes;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAIL_REPORT");
    long n = count;
    first = 0;
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", n);
        fclose(f);
    }
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    *p = fails() ? NULL : __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}
