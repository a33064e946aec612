/* emu_limits: kernel_src/read_limit.cu reads every word of a buffer, once for each size, and nothing else:
 * the one word that differs shows in the sum of its block. */
#include <stdio.h>
#include <string.h>

#include "emu.h"

enum { THREADS = 64, BLOCKS = 3, STEP = THREADS * BLOCKS };

/* The value that the kernel writes down. */
static const uint32_t seen = 0x9e3779b9u;

static int check(const emu_program *p, int64_t n, int64_t at, uint64_t seed)
{
    emu_report report;
    emu_reset();
    uint32_t *words = emu_alloc("words", (size_t)n * 16, EMU_READ_ONLY),
             *sums = emu_alloc("sums", 4 * BLOCKS, 0);
    memset(words, 0, (size_t)n * 16);
    memset(sums, 0, 4 * BLOCKS);
    words[4 * at + (int64_t)(seed % 4)] = seen;
    const uint64_t args[] = {(uint64_t)(uintptr_t)words, (uint64_t)n, (uint64_t)(uintptr_t)sums};
    const emu_launch l = {
        .program = p, .grid = {BLOCKS, 1, 1}, .threads = THREADS, .seed = seed, .args = args, .n_arg = 3};
    if (emu_run(&l, &report) != 0) {
        fprintf(stderr, "%lld words: %s\n", (long long)n, report.text);
        return -1;
    }
    int64_t block = at % STEP / THREADS;
    for (int64_t b = 0; b < BLOCKS; b++) {
        if (sums[b] != (b == block ? seen : 0)) {
            fprintf(stderr, "%lld words: word %lld: block %lld has %08x\n", (long long)n, (long long)at,
                    (long long)b, sums[b]);
            return -1;
        }
    }
    return 0;
}

int main(void)
{
    static const int64_t sizes[] = {1, STEP - 1, STEP, 7 * STEP + 5, 8 * STEP, 8 * STEP + 1, 17 * STEP + 100};
    int n;
    const emu_program *p = emu_programs(&n);
    int bad = n != 1, runs = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int64_t at = 0; at < sizes[i]; at += sizes[i] < 100 ? 1 : 29) {
            bad |= check(p, sizes[i], at, (uint64_t)runs++);
        }
        bad |= check(p, sizes[i], sizes[i] - 1, (uint64_t)runs++);
    }
    printf("%d runs, %s\n", runs, bad ? "faults" : "all words are read");
    return bad != 0;
}
