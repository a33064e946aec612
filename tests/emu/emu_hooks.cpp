// emu_hooks.cpp: what the compiler calls in instrumented kernels: before each memory access
// (-fsanitize=thread) and after a failed arithmetic or alignment check (-fsanitize=alignment,...). No
// sanitizer runtime is linked; these take its place.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "emu_internal.h"

extern "C" char __executable_start;

uint32_t emu_pc_offset(const void *pc)
{
    return pc ? (uint32_t)((const char *)pc - &__executable_start) : 0;
}

// Asks addr2line, which comes with every compiler; only for messages.
void emu_find_line(const void *pc, char *file, size_t size, int *line)
{
    file[0] = '\0';
    *line = 0;
    char command[128], text[512];
    snprintf(command, sizeof command, "addr2line -e /proc/%ld/exe 0x%zx 2>/dev/null", (long)getpid(),
             (size_t)((const char *)pc - &__executable_start) - 1);
    FILE *p = popen(command, "r");
    if (!p) {
        return;
    }
    if (fgets(text, sizeof text, p)) {
        char *colon = strrchr(text, ':');
        if (colon && text[0] != '?') {
            *colon = '\0';
            snprintf(file, size, "%s", text);
            *line = atoi(colon + 1);
        }
    }
    pclose(p);
}

static inline void hook(void *p, size_t bytes, emu_kind kind, void *pc)
{
    if (emu_m.fiber) {
        emu_access(p, bytes, kind, emu_site{nullptr, 0, pc});
    }
}

static inline void volatile_hook(void *p, size_t bytes, emu_kind kind, void *pc)
{
    if (emu_m.fiber) {
        emu_yield(emu_site{nullptr, 0, pc});
        emu_sync_acquire(p);
        emu_access(p, bytes, kind, emu_site{nullptr, 0, pc});
    }
}

#define PC __builtin_return_address(0)
#define HOOKS(n)                                                                                             \
    void __tsan_read##n(void *p)                                                                             \
    {                                                                                                        \
        hook(p, n, EMU_READ, PC);                                                                            \
    }                                                                                                        \
    void __tsan_write##n(void *p)                                                                            \
    {                                                                                                        \
        hook(p, n, EMU_WRITE, PC);                                                                           \
    }                                                                                                        \
    void __tsan_unaligned_read##n(void *p)                                                                   \
    {                                                                                                        \
        hook(p, n, EMU_READ, PC);                                                                            \
    }                                                                                                        \
    void __tsan_unaligned_write##n(void *p)                                                                  \
    {                                                                                                        \
        hook(p, n, EMU_WRITE, PC);                                                                           \
    }                                                                                                        \
    void __tsan_volatile_read##n(void *p)                                                                    \
    {                                                                                                        \
        volatile_hook(p, n, EMU_READ, PC);                                                                   \
    }                                                                                                        \
    void __tsan_volatile_write##n(void *p)                                                                   \
    {                                                                                                        \
        volatile_hook(p, n, EMU_WRITE, PC);                                                                  \
    }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *p, size_t n)
{
    hook(p, n, EMU_READ, PC);
}
void __tsan_write_range(void *p, size_t n)
{
    hook(p, n, EMU_WRITE, PC);
}
void __tsan_init()
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit()
{
}

// The checks' data begins with the place in the source.
struct place {
    const char *file;
    uint32_t line, column;
};

#define ARITHMETIC(name, what)                                                                               \
    void __ubsan_handle_##name(const place *at, void *, void *)                                              \
    {                                                                                                        \
        emu_fail("arithmetic", emu_site{at->file, (int)at->line, nullptr}, "%s: %s", emu_who(), what);       \
    }
ARITHMETIC(add_overflow, "a signed sum overflows")
ARITHMETIC(sub_overflow, "a signed difference overflows")
ARITHMETIC(mul_overflow, "a signed product overflows")
ARITHMETIC(divrem_overflow, "a division by zero or that overflows")
ARITHMETIC(shift_out_of_bounds, "a shift by more than the width, or of a negative number")
ARITHMETIC(out_of_bounds, "an index beyond an array's end")

void __ubsan_handle_negate_overflow(const place *at, void *)
{
    emu_fail("arithmetic", emu_site{at->file, (int)at->line, nullptr}, "%s: a signed negation overflows",
             emu_who());
}
void __ubsan_handle_type_mismatch_v1(const place *at, void *p)
{
    emu_fail("misaligned", emu_site{at->file, (int)at->line, nullptr},
             "%s: the address %p does not suit its type", emu_who(), p);
}
}
