// emu_memory.cpp: device memory, its bounds, and who wrote and read each byte.
//
// Every byte of shared memory and of writable device memory has a shadow cell with stamps of its last write
// and of two reads. A stamp says which block (counted over all launches), after how many barriers of the
// block and __syncwarps of the warp, and which thread. Two accesses by different threads, one of them a
// write, race unless a barrier stands between them, or a __syncwarp of their common warp, or (between blocks)
// a fence and an atomic that the other has seen.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "emu_internal.h"

extern "C" char __executable_start, _end;

namespace
{

constexpr size_t arena_bytes = 256u << 20, page = 256;

struct region {
    std::string name;
    unsigned char *start, *end;
    int flags;
};

std::vector<region> regions(1); // 0: none
unsigned char *arena, *arena_top;
emu_cell *cells;
uint32_t *owner; // region by page; unowned pages: the region below, so that messages can name it
std::map<const void *, std::vector<emu_release>> releases;

// Stamps: 28 bits of block, 12 of barriers, 13 of __syncwarps, 11 of thread; 0: never, 1: the host.
uint64_t stamp_now()
{
    const emu_block *b = emu_m.block;
    const uint32_t tid = (uint32_t)emu_m.fiber->tid;
    return (uint64_t)b->seq << 36 | (uint64_t)(b->epoch & 0xfff) << 24 |
           (b->warps[tid / 32].epoch & 0x1fff) << 11 | tid;
}

uint32_t seq_of(uint64_t s)
{
    return (uint32_t)(s >> 36);
}

int tid_of(uint64_t s)
{
    return (int)(s & 0x7ff);
}

// Can the access of stamp s be at the same time as one now?
bool concurrent(uint64_t s)
{
    const emu_block *b = emu_m.block;
    const uint32_t seq = seq_of(s);
    if (seq < emu_m.first_seq) {
        return false;
    }
    const int tid = tid_of(s);
    const uint32_t epoch = (uint32_t)(s >> 24) & 0xfff, warp_epoch = (uint32_t)(s >> 11) & 0x1fff;
    if (seq != b->seq) {
        for (const emu_release &k : b->known) {
            const bool warp = tid / 32 == k.tid / 32 && warp_epoch < k.warp_epoch;
            if (k.seq == seq && (epoch < k.epoch || (epoch == k.epoch && (tid == k.tid || warp)))) {
                return false;
            }
        }
        return true;
    }
    if (epoch != (b->epoch & 0xfff) || tid == emu_m.fiber->tid) {
        return false;
    }
    const bool same_warp = tid / 32 == emu_m.fiber->tid / 32;
    return !same_warp || warp_epoch == (b->warps[(size_t)tid / 32].epoch & 0x1fff);
}

const char *kind_name(emu_kind k)
{
    return k == EMU_READ ? "reads" : k == EMU_WRITE ? "writes" : "updates";
}

void race(const char *where, const void *p, emu_kind kind, emu_site site, uint64_t other, const char *did,
          uint32_t pc)
{
    char file[256] = "", at[300] = "";
    int line = 0;
    if (pc) { // an access of the compiler's, not of a function of the emulator
        emu_find_line(&__executable_start + pc, file, sizeof file, &line);
        const char *base = strrchr(file, '/');
        snprintf(at, sizeof at, " at %s:%d", base ? base + 1 : file, line);
    }
    emu_fail("race", site, "%s %s %s (%p), which thread %d of %s %s%s with nothing between them", emu_who(),
             kind_name(kind), where, p, tid_of(other),
             seq_of(other) == emu_m.block->seq ? "this block" : "another block", did, at);
}

void touch_cell(emu_cell *c, const char *where, const void *p, emu_kind kind, emu_site site, uint32_t pc)
{
    const uint64_t now = stamp_now();
    if (c->flags & EMU_CELL_ASYNC) {
        emu_fail("async", site, "%s %s %s (%p), into which an async copy is in flight", emu_who(),
                 kind_name(kind), where, p);
    }
    const bool atomics = kind == EMU_ATOMIC && c->flags & EMU_CELL_ATOMIC;
    if (c->write && !atomics && c->write != now && concurrent(c->write)) {
        race(where, p, kind, site, c->write, c->flags & EMU_CELL_ATOMIC ? "updated" : "wrote", c->write_pc);
    }
    if (kind == EMU_READ) {
        const int slot =
            c->read[0] == 0 || tid_of(c->read[0]) == tid_of(now) || !concurrent(c->read[0]) ? 0 : 1;
        c->read[slot] = now;
        c->read_pc[slot] = pc;
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (c->read[i] && concurrent(c->read[i])) {
            race(where, p, kind, site, c->read[i], "read", c->read_pc[i]);
        }
        c->read[i] = 0;
    }
    c->write = now;
    c->write_pc = pc;
    c->flags = kind == EMU_ATOMIC ? c->flags | EMU_CELL_ATOMIC : c->flags & ~(uint32_t)EMU_CELL_ATOMIC;
}

void touch_shared(const unsigned char *p, size_t bytes, emu_kind kind, emu_site site)
{
    emu_block *b = emu_m.block;
    const ptrdiff_t at = p - b->shared;
    if (at < 0 || (size_t)at + bytes > emu_m.launch->shared) {
        emu_fail("bounds", site, "%s %s %zu bytes at %td of %u bytes of shared memory", emu_who(),
                 kind_name(kind), bytes, at, emu_m.launch->shared);
    }
    const uint32_t pc = emu_pc_offset(site.pc);
    for (size_t i = 0; i < bytes; i++) {
        emu_cell *c = &b->shared_cells[(size_t)at + i];
        const bool written = seq_of(c->write) == b->seq;
        if (!written) {
            *c = emu_cell{};
        }
        if (kind != EMU_WRITE && !written) {
            emu_fail("uninitialised", site, "%s %s shared memory at byte %zu, which nothing has written",
                     emu_who(), kind_name(kind), (size_t)at + i);
        }
        touch_cell(c, "shared memory", p + i, kind, site, pc);
        if (kind != EMU_READ) {
            c->flags = (c->flags & EMU_CELL_ATOMIC) | emu_m.fiber->fences << 8;
        }
    }
}

region *region_at(const void *p)
{
    const size_t at = (size_t)((const unsigned char *)p - arena) / page;
    return &regions[owner[at]];
}

void touch_global(const unsigned char *p, size_t bytes, emu_kind kind, emu_site site)
{
    region *r = region_at(p);
    if (p < r->start || p + bytes > r->end) {
        emu_fail("bounds", site, "%s %s %zu bytes at %td of '%s', which has %td bytes", emu_who(),
                 kind_name(kind), bytes, p - r->start, r->name.c_str(), r->end - r->start);
    }
    if (r->flags & EMU_READ_ONLY) {
        if (kind != EMU_READ) {
            emu_fail("bounds", site, "%s %s '%s', which is for reading only", emu_who(), kind_name(kind),
                     r->name.c_str());
        }
        return;
    }
    const bool settled = kind == EMU_READ && r->flags & EMU_SETTLED;
    if (emu_m.launch->dependent && !emu_m.fiber->waited && !settled) {
        emu_fail("dependency", site, "%s %s '%s' before it has waited for the launch before (ptx_grid_wait)",
                 emu_who(), kind_name(kind), r->name.c_str());
    }
    const uint32_t pc = emu_pc_offset(site.pc);
    if (kind == EMU_WRITE) {
        emu_m.fiber->fenced = false;
    }
    for (size_t i = 0; i < bytes; i++) {
        emu_cell *c = &cells[p + i - arena];
        if (kind != EMU_WRITE && r->flags & EMU_UNWRITTEN && c->write == 0) {
            emu_fail("uninitialised", site, "%s %s byte %td of '%s', which nothing has written", emu_who(),
                     kind_name(kind), p + i - r->start, r->name.c_str());
        }
        touch_cell(c, r->name.c_str(), p + i, kind, site, pc);
    }
}

void *reserve(size_t bytes)
{
    void *p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "emu: no address space for %zu bytes\n", bytes);
        abort();
    }
    return p;
}

int host_range(const void *p, size_t bytes, emu_report *report, const char *what, bool write)
{
    const unsigned char *at = (const unsigned char *)p;
    const bool inside = arena && at >= arena && at < arena + arena_bytes;
    region *r = inside ? region_at(p) : &regions[0];
    if (!inside || at < r->start || at + bytes > r->end) {
        memset(report, 0, sizeof *report);
        snprintf(report->kind, sizeof report->kind, "bounds");
        snprintf(report->text, sizeof report->text,
                 "bounds: the host %s %zu bytes at %td of '%s', which has %td bytes", what, bytes,
                 inside ? at - r->start : 0, inside ? r->name.c_str() : "no buffer", r->end - r->start);
        return -1;
    }
    for (size_t i = 0; r->flags & EMU_UNWRITTEN && i < bytes; i++) {
        emu_cell *c = &cells[at + i - arena];
        if (write) {
            *c = emu_cell{};
            c->write = 1;
        } else if (c->write == 0) {
            memset(report, 0, sizeof *report);
            snprintf(report->kind, sizeof report->kind, "uninitialised");
            snprintf(report->text, sizeof report->text,
                     "uninitialised: the host %s byte %td of '%s', which nothing has written", what,
                     at + i - r->start, r->name.c_str());
            return -1;
        }
    }
    return 0;
}

} // namespace

void *emu_alloc(const char *name, size_t bytes, int flags)
{
    if (!arena) {
        arena = arena_top = (unsigned char *)reserve(arena_bytes);
        cells = (emu_cell *)reserve(arena_bytes * sizeof(emu_cell));
        owner = (uint32_t *)reserve(arena_bytes / page * sizeof *owner);
    }
    const size_t slack = 64 * page, pages = (bytes + page - 1) / page;
    if ((size_t)(arena + arena_bytes - arena_top) < 2 * slack + pages * page) {
        return nullptr;
    }
    unsigned char *start = arena_top + slack;
    const size_t first = (size_t)(arena_top - arena) / page, last = first + 2 * slack / page + pages;
    for (size_t i = first; i < last; i++) {
        owner[i] = (uint32_t)regions.size();
    }
    regions.push_back(region{name, start, start + bytes, flags});
    arena_top = start + pages * page + slack;
    memset(start, flags & EMU_UNWRITTEN ? 0xff : 0, bytes);
    return start;
}

void emu_freeze(void *start)
{
    region_at(start)->flags = EMU_READ_ONLY;
}

void emu_reset(void)
{
    if (arena) {
        const size_t used = (size_t)(arena_top - arena);
        madvise(arena, used, MADV_DONTNEED);
        madvise(cells, used * sizeof *cells, MADV_DONTNEED);
        madvise(owner, arena_bytes / page * sizeof *owner, MADV_DONTNEED);
        arena_top = arena;
    }
    regions.resize(1);
}

int emu_written(const void *p, size_t bytes, emu_report *report)
{
    return host_range(p, bytes, report, "writes", true);
}

int emu_readable(const void *p, size_t bytes, emu_report *report)
{
    return host_range(p, bytes, report, "reads", false);
}

int emu_all_written(const void *p, size_t bytes, emu_report *report)
{
    return emu_readable(p, bytes, report);
}

int emu_prepare(const emu_program *, emu_report *)
{
    return 0;
}

int emu_settle(emu_report *)
{
    return 0;
}

int emu_write_map(void *to, const emu_tensor_map *map, emu_report *report)
{
    if (emu_written(to, sizeof *map, report)) {
        return -1;
    }
    memcpy(to, map, sizeof *map);
    return 0;
}

size_t emu_first_stored(const void *p, size_t bytes)
{
    const emu_cell *c = cells + ((const unsigned char *)p - arena);
    size_t i = 0;
    while (i < bytes && seq_of(c[i].write) == 0) {
        i++;
    }
    return i;
}

void emu_access(const void *pointer, size_t bytes, emu_kind kind, emu_site site)
{
    const unsigned char *p = (const unsigned char *)pointer;
    const emu_fiber *f = emu_m.fiber;
    if ((p >= f->stack && p < f->stack_end) ||
        (size_t)(p - (const unsigned char *)&emu_builtin) < sizeof emu_builtin) {
        return;
    }
    emu_m.counts.accesses++;
    const emu_block *b = emu_m.block;
    if (p >= b->shared - EMU_SLACK && p < b->shared + emu_m.launch->shared + EMU_SLACK) {
        touch_shared(p, bytes, kind, site);
        emu_traffic_note(p, bytes, true, kind == EMU_WRITE, site);
    } else if (arena && p >= arena && p < arena_top) {
        touch_global(p, bytes, kind, site);
        emu_traffic_note(p, bytes, false, kind == EMU_WRITE, site);
    } else if (kind != EMU_READ || p < (const unsigned char *)&__executable_start ||
               p >= (const unsigned char *)&_end) {
        emu_fail("bounds", site, "%s %s %zu bytes at %p, where no buffer is", emu_who(), kind_name(kind),
                 bytes, pointer);
    } // else: a constant of the program
}

void emu_async_begin(void *shared, size_t bytes, emu_site site)
{
    emu_block *b = emu_m.block;
    unsigned char *p = (unsigned char *)shared;
    touch_shared(p, bytes, EMU_WRITE, site);
    emu_traffic_note(p, bytes, true, true, site);
    for (size_t i = 0; i < bytes; i++) {
        b->shared_cells[(size_t)(p - b->shared) + i].flags |= EMU_CELL_ASYNC;
        p[i] = 0xff;
    }
}

void emu_async_end(void *shared, const void *from, size_t bytes, bool tensor)
{
    emu_block *b = emu_m.block;
    unsigned char *p = (unsigned char *)shared;
    for (size_t i = 0; i < bytes; i++) {
        emu_cell *c = &b->shared_cells[(size_t)(p - b->shared) + i];
        c->flags = (tensor ? EMU_CELL_TENSOR : 0) | emu_m.fiber->fences << 8;
        c->write = stamp_now();
        p[i] = from ? ((const unsigned char *)from)[i] : 0;
    }
}

void emu_check_fenced(const void *shared, size_t bytes, emu_site site)
{
    const emu_block *b = emu_m.block;
    for (size_t i = 0; i < bytes; i++) {
        const emu_cell *c = &b->shared_cells[(size_t)((const unsigned char *)shared - b->shared) + i];
        const emu_fiber *writer = &b->fibers[(size_t)tid_of(c->write)];
        if (!(c->flags & EMU_CELL_TENSOR) && writer->fences <= c->flags >> 8) {
            emu_fail("async", site,
                     "%s: a matrix product reads shared memory (%p) that thread %d wrote without a "
                     "fence (ptx_fence_async) since",
                     emu_who(), shared, writer->tid);
        }
    }
}

void emu_sync_reset()
{
    releases.clear();
}

void emu_sync_release(const void *at)
{
    emu_block *b = emu_m.block;
    if (emu_m.fiber->fenced) {
        std::vector<emu_release> &r = releases[at];
        const int tid = emu_m.fiber->tid;
        r.push_back(emu_release{b->seq, b->epoch, b->warps[(size_t)tid / 32].epoch & 0x1fff, tid});
        r.insert(r.end(), b->known.begin(), b->known.end());
    }
}

void emu_sync_acquire(const void *at)
{
    const auto found = releases.find(at);
    if (found == releases.end()) {
        return;
    }
    std::vector<emu_release> &known = emu_m.block->known;
    known = found->second; // holds all that was known: the release before copied it
    std::sort(known.begin(), known.end(), [](const emu_release &a, const emu_release &b) {
        return std::tie(a.seq, a.epoch, a.tid, a.warp_epoch) < std::tie(b.seq, b.epoch, b.tid, b.warp_epoch);
    });
    known.erase(std::unique(known.begin(), known.end(),
                            [](const emu_release &a, const emu_release &b) {
                                return a.seq == b.seq && a.epoch == b.epoch && a.tid == b.tid &&
                                       a.warp_epoch == b.warp_epoch;
                            }),
                known.end());
    found->second = known;
}
