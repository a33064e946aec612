// emu_run.cpp: fibers, blocks, barriers, and the order in which threads run.
//
// A thread runs until it waits (barrier, warp-wide operation) or ends; then a warp and a lane are drawn among
// those that can run. The order depends on the launch's seed only, so that a failure repeats.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "emu_internal.h"
#ifndef __x86_64__
#include <ucontext.h>
#endif

emu_machine emu_m;
emu_builtins emu_builtin;

namespace
{

constexpr size_t stack_bytes = 128 << 10, guard_bytes = 4096;
constexpr uint64_t max_switches = 400u << 20; // of one launch: a kernel that never ends
constexpr uint32_t max_spins =
    1u << 20; // atomic and volatile accesses of a thread that nothing else can answer

uint64_t random_state;
uint64_t switches;
uint32_t spins;
uint32_t next_seq = 1;
std::vector<unsigned char *> free_stacks, free_shared;
std::vector<emu_cell *> free_cells;
constexpr size_t max_shared = 232 << 10;

uint32_t draw(uint32_t n) // splitmix64
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ z >> 31) >> 32) * n >> 32);
}

void *map_memory(size_t bytes)
{
    void *p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "emu: no memory for %zu bytes\n", bytes);
        abort();
    }
    return p;
}

template <class T> T *take(std::vector<T *> &pool, size_t bytes)
{
    if (!pool.empty()) {
        T *p = pool.back();
        pool.pop_back();
        return p;
    }
    return (T *)map_memory(bytes);
}

void fiber_main()
{
    const emu_launch *l = emu_m.launch;
    uint64_t args[32]; // on this fiber's stack, where the kernel may read it
    memcpy(args, l->args, sizeof(uint64_t) * (size_t)l->n_arg);
    l->program->call(args);
    emu_fiber *f = emu_m.fiber;
    emu_block *b = emu_m.block;
    const emu_named *due = nullptr; // a named barrier that this thread is due at
    for (const emu_named &n : b->named) {
        due = n.n > 0 && f->tid < n.n_thread ? &n : due;
    }
    if (b->n_waiting || due) {
        emu_fail("barrier", b->n_waiting ? b->barrier : due->site,
                 "%s leaves the kernel while %d threads wait at the barrier", emu_who(),
                 b->n_waiting + b->n_named);
    }
    if (!f->product_groups.empty() || !f->open_products.empty()) {
        const emu_product &p = f->product_groups.empty() ? f->open_products[0] : f->product_groups[0][0];
        emu_fail("async", emu_site{p.file, p.line, nullptr},
                 "%s leaves the kernel with a product it never waited for", emu_who());
    }
    f->state = EMU_EXITED;
    b->n_exited++;
    emu_warp_exit(b, f->tid);
    emu_wait(EMU_EXITED, emu_site{"", 0, nullptr});
    abort();
}

#ifdef __x86_64__
void *scheduler_sp;

extern "C" void emu_switch(void **save, void *load);
asm(".text\n.globl emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_switch,.-emu_switch\n");

void prepare(emu_fiber *f)
{
    void **top =
        (void **)f->stack_end - 1; // entry sees the stack as after a call: 8 bytes off a multiple of 16
    top[0] = nullptr;
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) {
        *--top = nullptr;
    }
    f->sp = top;
}

void run_fiber(emu_fiber *f)
{
    emu_switch(&scheduler_sp, f->sp);
}

void leave_fiber(emu_fiber *f)
{
    emu_switch(&f->sp, scheduler_sp);
}
#else
ucontext_t scheduler_context;

void prepare(emu_fiber *f)
{
    ucontext_t *c = (ucontext_t *)f->stack; // at the far end of the stack
    getcontext(c);
    c->uc_stack.ss_sp = f->stack + sizeof *c;
    c->uc_stack.ss_size = (size_t)(f->stack_end - f->stack) - sizeof *c;
    c->uc_link = nullptr;
    makecontext(c, fiber_main, 0);
    f->sp = c;
}

void run_fiber(emu_fiber *f)
{
    swapcontext(&scheduler_context, (ucontext_t *)f->sp);
}

void leave_fiber(emu_fiber *f)
{
    swapcontext((ucontext_t *)f->sp, &scheduler_context);
}
#endif

std::unique_ptr<emu_block> make_block(const emu_launch *l, uint32_t index)
{
    auto b = std::make_unique<emu_block>();
    b->x = index % l->grid[0];
    b->y = index / l->grid[0] % l->grid[1];
    b->z = index / l->grid[0] / l->grid[1];
    b->seq = next_seq++;
    b->n_thread = (int)l->threads;
    b->shared = take(free_shared, max_shared + 2 * EMU_SLACK) + EMU_SLACK;
    memset(b->shared, 0xff, l->shared);
    b->shared_cells = take(free_cells, max_shared * sizeof(emu_cell));
    b->fibers.resize(l->threads);
    b->warps.resize((l->threads + 31) / 32);
    for (uint32_t t = 0; t < l->threads; t++) {
        emu_fiber *f = &b->fibers[t];
        if (free_stacks.empty()) {
            unsigned char *p = (unsigned char *)map_memory(guard_bytes + stack_bytes);
            mprotect(p, guard_bytes, PROT_NONE);
            free_stacks.push_back(p + guard_bytes);
        }
        f->stack = free_stacks.back();
        free_stacks.pop_back();
        f->stack_end = f->stack + stack_bytes;
        f->tid = (int)t;
        b->warps[t / 32].exists |= 1u << (t % 32);
        prepare(f);
    }
    for (emu_warp &w : b->warps) {
        w.ready = w.exists;
    }
    emu_m.counts.blocks++;
    emu_m.counts.threads += l->threads;
    return b;
}

void drop_block(emu_block *b)
{
    free_shared.push_back(b->shared - EMU_SLACK);
    free_cells.push_back(b->shared_cells);
    for (emu_fiber &f : b->fibers) {
        free_stacks.push_back(f.stack);
    }
}

void enter(emu_block *b, emu_fiber *f)
{
    const emu_launch *l = emu_m.launch;
    emu_builtin = emu_builtins{{(unsigned)f->tid, 0, 0},
                               {b->x, b->y, b->z},
                               {l->threads, 1, 1},
                               {l->grid[0], l->grid[1], l->grid[2]}};
    emu_m.block = b;
    emu_m.fiber = f;
    spins = 0;
    run_fiber(f);
    emu_m.block = nullptr;
    emu_m.fiber = nullptr;
}

// Nothing can run, but not all threads have ended.
void deadlock(emu_block *b)
{
    for (emu_warp &w : b->warps) {
        for (emu_pending &p : w.pending) {
            if (p.mask == 0) {
                continue;
            }
            const int lane = __builtin_ctz(p.mask & ~p.arrived),
                      tid = (int)(&w - b->warps.data()) * 32 + lane;
            const emu_site at = b->fibers[(size_t)tid].site;
            emu_fail("mask", p.site,
                     "%s in block (%u, %u, %u): the mask 0x%08x names lane %d of warp %d, which waits at "
                     "%s:%d",
                     p.name, b->x, b->y, b->z, p.mask, lane, tid / 32, at.file ? at.file : "?", at.line);
            return;
        }
    }
    emu_fail("deadlock", emu_site{"", 0, nullptr},
             "block (%u, %u, %u): %d threads wait at a barrier for ever", b->x, b->y, b->z,
             b->n_waiting + b->n_named);
}

bool run_warp(emu_block *b, emu_warp *w)
{
    const uint32_t first = draw(32), todo = w->ready;
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t lane = (first + i) % 32;
        if (todo >> lane & w->ready >> lane & 1u) {
            enter(b, &b->fibers[(size_t)(w - b->warps.data()) * 32 + lane]);
            if (emu_m.failed) {
                return false;
            }
        }
    }
    return true;
}

// Runs some warp that is ready; false: there is none, or a check failed.
bool step_block(emu_block *b)
{
    const size_t n = b->warps.size(), first = n > 1 ? draw((uint32_t)n) : 0;
    for (size_t i = 0; i < n; i++) {
        emu_warp *w = &b->warps[(first + i) % n];
        if (w->ready) {
            return run_warp(b, w);
        }
    }
    return false;
}

bool ended(const emu_block *b)
{
    return b->n_exited == b->n_thread;
}

bool run_blocks(std::vector<std::unique_ptr<emu_block>> &blocks)
{
    size_t left = blocks.size();
    while (left > 0) {
        bool any = false;
        const size_t n = blocks.size(), first = n > 1 ? draw((uint32_t)n) : 0;
        for (size_t i = 0; i < n && !any; i++) {
            emu_block *b = blocks[(first + i) % n].get();
            if (!ended(b)) {
                any = step_block(b);
                left -= any && ended(b);
            }
            if (emu_m.failed) {
                return false;
            }
        }
        if (!any) {
            for (auto &b : blocks) {
                if (!ended(b.get())) {
                    deadlock(b.get());
                    return false;
                }
            }
        }
    }
    return true;
}

bool check_launch(const emu_launch *l)
{
    const uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    if (l->threads < 1 || l->threads > 1024 || blocks < 1 || blocks > 1u << 20 || l->grid[1] > 65535 ||
        l->grid[2] > 65535 || l->shared > 227 << 10 || l->n_arg > 32) {
        emu_fail("launch", emu_site{"", 0, nullptr},
                 "%s: %u x %u x %u blocks of %u threads with %u bytes of shared memory", l->program->name,
                 l->grid[0], l->grid[1], l->grid[2], l->threads, l->shared);
        return false;
    }
    return true;
}

} // namespace

void emu_wait(emu_state state, emu_site site)
{
    emu_fiber *f = emu_m.fiber;
    emu_block *b = emu_m.block;
    f->state = state;
    f->site = site;
    if (state != EMU_READY) {
        b->warps[(size_t)f->tid / 32].ready &= ~(1u << (f->tid % 32));
    }
    if (++switches > max_switches) {
        emu_fail("deadlock", site, "%s: no end after %llu switches of threads", emu_who(),
                 (unsigned long long)max_switches);
    }
    leave_fiber(f);
}

void emu_wake(emu_block *b, int tid)
{
    b->fibers[(size_t)tid].state = EMU_READY;
    b->warps[(size_t)tid / 32].ready |= 1u << (tid % 32);
}

void emu_yield(emu_site site)
{
    if (emu_m.launch->cooperative) {
        emu_wait(EMU_READY, site);
    } else if (++spins > max_spins) {
        emu_fail("deadlock", site,
                 "%s waits for something that no running thread will do (the launch is not cooperative)",
                 emu_who());
    }
}

int emu_barrier_count(int predicate, const char *file, int line)
{
    emu_block *b = emu_m.block;
    const emu_site site = {file, line, nullptr};
    static int total; // of the barrier that is being gathered
    if (b->n_exited) {
        emu_fail("barrier", site, "%s waits at the barrier, but %d threads have left the kernel", emu_who(),
                 b->n_exited);
    }
    if (b->n_waiting == 0) {
        b->barrier = site;
    } else if (b->barrier.line != line || strcmp(b->barrier.file, file) != 0) {
        emu_fail("barrier", site, "%s waits at this barrier, %d other threads at that of %s:%d", emu_who(),
                 b->n_waiting, b->barrier.file, b->barrier.line);
    }
    b->n_waiting++;
    emu_fiber *f = emu_m.fiber;
    f->result = predicate != 0;
    if (b->n_waiting < b->n_thread) {
        emu_wait(EMU_AT_BARRIER, site);
        return (int)f->result;
    }
    total = 0;
    for (emu_fiber &o : b->fibers) {
        total += (int)o.result;
    }
    for (emu_fiber &o : b->fibers) {
        o.result = (uint64_t)total;
        emu_wake(b, o.tid);
    }
    b->n_waiting = 0;
    b->epoch++;
    emu_wait(EMU_READY, site); // any thread may be the first to go on
    return (int)f->result;
}

// Named barriers are each for the first n_thread threads of a block. Whoever comes to one from elsewhere in
// the program than those that wait there, or with another number of threads, is an error.
void emu_named_barrier(int id, int n_thread, const char *file, int line)
{
    emu_block *b = emu_m.block;
    const emu_site site = {file, line, nullptr};
    emu_fiber *f = emu_m.fiber;
    if (id < 1 || id >= EMU_NAMED || n_thread < 32 || n_thread % 32 != 0 || n_thread > b->n_thread) {
        emu_fail("barrier", site, "%s: barrier %d of %d threads in a block of %d", emu_who(), id, n_thread,
                 b->n_thread);
    }
    if (f->tid >= n_thread) {
        emu_fail("barrier", site, "%s waits at a barrier of %d threads", emu_who(), n_thread);
    }
    emu_named *at = &b->named[id];
    if (at->n == 0) {
        at->site = site;
        at->n_thread = n_thread;
    } else if (at->site.line != line || strcmp(at->site.file, file) != 0 || at->n_thread != n_thread) {
        emu_fail("barrier", site, "%s waits at this barrier, %d other threads at that of %s:%d", emu_who(),
                 at->n, at->site.file, at->site.line);
    }
    b->n_named++;
    if (++at->n < n_thread) {
        f->at_named = id;
        emu_wait(EMU_AT_BARRIER, site);
        return;
    }
    for (emu_fiber &o : b->fibers) {
        if (o.at_named == id) {
            o.at_named = 0;
            emu_wake(b, o.tid);
        }
    }
    b->n_named -= at->n;
    at->n = 0;
    b->epoch++;
    emu_wait(EMU_READY, site); // any thread may be the first to go on
}

void emu_barrier(const char *file, int line)
{
    emu_barrier_count(0, file, line);
}

const char *emu_who()
{
    static char text[80];
    if (!emu_m.block) {
        return "the host";
    }
    snprintf(text, sizeof text, "thread %d of block (%u, %u, %u)", emu_m.fiber->tid, emu_m.block->x,
             emu_m.block->y, emu_m.block->z);
    return text;
}

void emu_fail(const char *kind, emu_site site, const char *fmt, ...)
{
    emu_report *r = emu_m.report;
    if (!emu_m.failed && r) {
        memset(r, 0, sizeof *r);
        snprintf(r->kind, sizeof r->kind, "%s", kind);
        if (site.file) {
            snprintf(r->file, sizeof r->file, "%s", site.file);
            r->line = site.line;
        } else {
            emu_find_line(site.pc, r->file, sizeof r->file, &r->line);
        }
        int at = snprintf(r->text, sizeof r->text, "%s:%d: %s: ", r->file, r->line, kind);
        va_list args;
        va_start(args, fmt);
        vsnprintf(r->text + at, sizeof r->text - (size_t)at, fmt, args);
        va_end(args);
        if (emu_m.launch) {
            size_t used = strlen(r->text);
            snprintf(r->text + used, sizeof r->text - used, " [%s, seed %llu]", emu_m.launch->program->name,
                     (unsigned long long)emu_m.launch->seed);
        }
    }
    emu_m.failed = true;
    if (emu_m.fiber) {
        leave_fiber(emu_m.fiber); // for good
    }
}

void *emu_shared(int byte_offset)
{
    return emu_m.block->shared + byte_offset;
}

static std::vector<emu_program> &program_table()
{
    static std::vector<emu_program> table; // before main: there when the first shard adds to it
    return table;
}

bool emu_add_programs(const emu_program *table)
{
    for (; table->name[0]; table++) {
        program_table().push_back(*table);
    }
    return true;
}

const emu_program *emu_programs(int *n)
{
    *n = (int)program_table().size();
    return program_table().data();
}

emu_counts emu_totals(void)
{
    return emu_m.counts;
}

int emu_run(const emu_launch *l, emu_report *report)
{
    emu_m.launch = l;
    emu_m.report = report;
    emu_m.failed = emu_m.waited = false;
    emu_m.first_seq = next_seq;
    emu_m.counts.launches++;
    random_state = l->seed;
    switches = 0;
    emu_sync_reset();
    bool ok = check_launch(l);
    const uint32_t n = ok ? l->grid[0] * l->grid[1] * l->grid[2] : 0;
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n; i > 1; i--) {
        std::swap(order[i - 1], order[draw(i)]);
    }
    for (uint32_t i = 0; i < n && ok;) {
        std::vector<std::unique_ptr<emu_block>> blocks;
        do {
            blocks.push_back(make_block(l, order[i++]));
        } while (l->cooperative && i < n);
        ok = run_blocks(blocks);
        for (auto &b : blocks) {
            drop_block(b.get());
        }
    }
    if (ok && l->dependent && !emu_m.waited) {
        emu_fail("dependency", emu_site{"", 0, nullptr},
                 "%s ends without ptx_grid_wait: the launch after this one may start "
                 "before the one before it has ended",
                 l->program->name);
        ok = false;
    }
    emu_traffic_end();
    emu_m.launch = nullptr;
    emu_m.report = nullptr;
    return ok ? 0 : -1;
}
