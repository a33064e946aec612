// emu_warp.cpp: operations of a warp: shuffles, votes, reductions, matrix products; and cp.async, which a
// thread waits for.
#include <cstdio>
#include <cstring>

#include "base/half.h"
#include "emu_internal.h"

uint64_t emu_warp_op(const char *name, emu_warp_fn fn, uint32_t mask, uint64_t in, int aux, const char *file,
                     int line)
{
    emu_block *b = emu_m.block;
    emu_fiber *f = emu_m.fiber;
    const int lane = f->tid % 32;
    emu_warp *w = &b->warps[(size_t)f->tid / 32];
    const emu_site site = {file, line, nullptr};
    f->site = site;
    if (!(mask >> lane & 1u)) {
        emu_fail("mask", site, "%s: %s: the mask 0x%08x lacks its own lane %d", emu_who(), name, mask, lane);
    }
    if (mask & ~w->exists) {
        emu_fail("mask", site, "%s: %s: the mask 0x%08x names lanes beyond the block's %d threads", emu_who(),
                 name, mask, b->n_thread);
    }
    if (mask & w->exited) {
        emu_fail("mask", site, "%s: %s: the mask 0x%08x names lane %d, which has left the kernel", emu_who(),
                 name, mask, __builtin_ctz(mask & w->exited));
    }
    emu_pending *p = nullptr;
    for (emu_pending &o : w->pending) {
        if (o.mask == mask) {
            p = &o;
        }
    }
    for (size_t i = 0; !p && i < w->pending.size(); i++) {
        p = w->pending[i].mask == 0 ? &w->pending[i] : nullptr;
    }
    if (!p) {
        w->pending.emplace_back();
        p = &w->pending.back();
        p->mask = 0;
    }
    if (p->mask == 0) {
        *p = emu_pending{name, fn, mask, 0, site, {}, {}, {}};
    }
    if (p->fn != fn) {
        emu_fail("mask", site, "%s: %s, while other lanes of the mask 0x%08x are in %s at %s:%d", emu_who(),
                 name, mask, p->name, p->site.file, p->site.line);
    }
    p->in[lane] = in;
    p->aux[lane] = aux;
    p->arrived |= 1u << lane;
    if (p->arrived != mask) {
        emu_wait(EMU_IN_WARP_OP, site);
        return f->result;
    }
    p->fn(mask, p->in, p->aux, p->out);
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1u) {
            const int tid = f->tid / 32 * 32 + i;
            b->fibers[(size_t)tid].result = p->out[i];
            emu_wake(b, tid);
        }
    }
    p->mask = 0;
    return f->result;
}

void emu_warp_exit(emu_block *b, int tid)
{
    emu_warp *w = &b->warps[(size_t)tid / 32];
    const uint32_t bit = 1u << (tid % 32);
    w->exited |= bit;
    for (emu_pending &p : w->pending) {
        if (p.mask & bit) {
            emu_fail("mask", p.site, "%s: the mask 0x%08x names lane %d, which leaves the kernel (%s)",
                     p.name, p.mask, tid % 32, emu_who());
        }
    }
}

// The lane whose value lane i of a shuffle gets; itself where the source lies outside its segment.
template <class F>
static void shuffle(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out, F source)
{
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1u)) {
            continue;
        }
        const int width = aux[i] >> 16, arg = aux[i] & 0xffff, base = i & ~(width - 1);
        int from = source(i - base, arg);
        from = from < 0 || from >= width ? i : base + from;
        if (!(mask >> from & 1u)) {
            emu_fail("mask", emu_m.fiber->site,
                     "a shuffle of mask 0x%08x: lane %d reads lane %d, which is not in the mask", mask, i,
                     from);
        }
        out[i] = in[from];
    }
}

void emu_shfl_idx(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out)
{
    for (int i = 0; i < 32; i++) {
        const int width = aux[i] >> 16, from = width ? (i & ~(width - 1)) + (aux[i] & (width - 1)) : i;
        if (!(mask >> i & 1u)) {
            continue;
        }
        if (!(mask >> from & 1u)) {
            emu_fail("mask", emu_m.fiber->site,
                     "a shuffle of mask 0x%08x: lane %d reads lane %d, which is not in the mask", mask, i,
                     from);
        }
        out[i] = in[from];
    }
}

void emu_shfl_xor(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out)
{
    shuffle(mask, in, aux, out, [](int i, int d) { return i ^ d; });
}

void emu_shfl_up(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out)
{
    shuffle(mask, in, aux, out, [](int i, int d) { return i - d; });
}

void emu_shfl_down(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out)
{
    shuffle(mask, in, aux, out, [](int i, int d) { return i + d; });
}

void emu_ballot(uint32_t mask, const uint64_t *in, const int *, uint64_t *out)
{
    uint32_t votes = 0;
    for (int i = 0; i < 32; i++) {
        votes |= (mask >> i & 1u) && in[i] ? 1u << i : 0u;
    }
    for (int i = 0; i < 32; i++) {
        out[i] = votes;
    }
}

void emu_sync_warp(uint32_t, const uint64_t *, const int *, uint64_t *)
{
    emu_m.block->warps[(size_t)emu_m.fiber->tid / 32].epoch++;
}

static uint64_t combine(int op, uint64_t a, uint64_t b)
{
    const int32_t x = (int32_t)a, y = (int32_t)b;
    switch (op) {
    case EMU_ADD:
        return a + b;
    case EMU_MIN:
        return (uint32_t)(x < y ? x : y);
    case EMU_MAX:
        return (uint32_t)(x > y ? x : y);
    case EMU_UMIN:
        return a < b ? a : b;
    case EMU_UMAX:
        return a > b ? a : b;
    case EMU_AND:
        return a & b;
    case EMU_OR:
        return a | b;
    case EMU_XOR:
        return a ^ b;
    default:
        return b; // exchange
    }
}

void emu_reduce(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out)
{
    bool first = true;
    uint64_t all = 0;
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1u) {
            all = first ? in[i] : combine(aux[i], all, in[i]);
            first = false;
        }
    }
    for (int i = 0; i < 32; i++) {
        out[i] = (uint32_t)all;
    }
}

static float half_at(const uint32_t *words, int i, bool bf16)
{
    const uint16_t bits = (uint16_t)(words[i / 2] >> (16 * (i % 2)));
    return bf16 ? qn_bf16_to_f32(bits) : qn_f16_to_f32(bits);
}

// Fragments as the PTX manual lays them out: of a lane with group g = lane / 4 and t = lane % 4, a has rows g
// and g + 8, columns 2t.. (and 2t + 8..), b has column g, rows 2t.. (and 2t + 8..), d has rows g and g + 8,
// columns 2t and 2t + 1.
void emu_mma_f16(uint32_t, const uint64_t *in, const int *, uint64_t *)
{
    float a[16][16], b[16][8];
    const int k = ((const emu_mma *)(uintptr_t)in[0])->k;
    for (int lane = 0; lane < 32; lane++) {
        const emu_mma *m = (const emu_mma *)(uintptr_t)in[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < k / 2; i++) { // halves of a: two a register
            a[g + 8 * (i / 2 % 2)][2 * t + i % 2 + 8 * (i / 4)] = half_at(m->a, i, m->bf16);
        }
        for (int i = 0; i < k / 4; i++) {
            b[2 * t + i % 2 + 8 * (i / 2)][g] = half_at(m->b, i, m->bf16);
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        const emu_mma *m = (const emu_mma *)(uintptr_t)in[lane];
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            double sum = (double)m->d[i];
            for (int j = 0; j < k; j++) {
                sum += (double)a[row][j] * (double)b[j][column];
            }
            m->d[i] = (float)sum;
        }
    }
}

// Bytes: a has columns 4t.. (and 4t + 16..), b rows 4t.. (and 4t + 16..); d as above.
void emu_mma_s8(uint32_t, const uint64_t *in, const int *, uint64_t *)
{
    int16_t a[16][32];
    int8_t b[32][8];
    const int k = ((const emu_mma_bytes *)(uintptr_t)in[0])->k;
    for (int lane = 0; lane < 32; lane++) {
        const emu_mma_bytes *m = (const emu_mma_bytes *)(uintptr_t)in[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < k / 2; i++) { // bytes of a: four a register
            const uint8_t byte = (uint8_t)(m->a[i / 4] >> (8 * (i % 4)));
            a[g + 8 * (i / 4 % 2)][4 * t + i % 4 + 16 * (i / 8)] =
                m->no_sign ? (int16_t)byte : (int16_t)(int8_t)byte;
        }
        for (int i = 0; i < k / 4; i++) {
            b[4 * t + i % 4 + 16 * (i / 4)][g] = (int8_t)(m->b[i / 4] >> (8 * (i % 4)));
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        const emu_mma_bytes *m = (const emu_mma_bytes *)(uintptr_t)in[lane];
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            for (int j = 0; j < k; j++) {
                m->d[i] += a[row][j] * b[j][column];
            }
        }
    }
}

// Lane l gets of matrix m the values 2 * (l % 4) and the next of row l / 4; transposed: of column l / 4.
void emu_ldmatrix(uint32_t, const uint64_t *in, const int *, uint64_t *)
{
    const emu_matrices *of[32];
    emu_fiber *self = emu_m.fiber;
    for (int lane = 0; lane < 32; lane++) {
        of[lane] = (const emu_matrices *)(uintptr_t)in[lane];
        const emu_site site = {of[lane]->file, of[lane]->line, nullptr};
        if ((uintptr_t)of[lane]->row % 16) {
            emu_fail("misaligned", site, "ldmatrix: the row of lane %d is not at a multiple of 16 bytes",
                     lane);
        }
        emu_m.fiber = &emu_m.block->fibers[(size_t)(self->tid / 32 * 32 + lane)];
        emu_access(of[lane]->row, 16, EMU_READ, site);
    }
    emu_m.fiber = self;
    for (int lane = 0; lane < 32; lane++) {
        for (int m = 0; m < 4; m++) {
            uint32_t word = 0;
            for (int half = 0; half < 2; half++) {
                const int i = 2 * (lane % 4) + half, row = of[lane]->trans ? i : lane / 4,
                          column = of[lane]->trans ? lane / 4 : i;
                uint16_t v;
                memcpy(&v, (const unsigned char *)of[m * 8 + row]->row + 2 * column, sizeof v);
                word |= (uint32_t)v << (16 * half);
            }
            of[lane]->r[m] = word;
        }
    }
}

// Lane l gets values 2 * (l % 4) and the next of column l / 4.
void emu_movmatrix(uint32_t, const uint64_t *in, const int *, uint64_t *out)
{
    for (int lane = 0; lane < 32; lane++) {
        const int column = lane / 4;
        out[lane] = 0;
        for (int half = 0; half < 2; half++) {
            const int row = 2 * (lane % 4) + half;
            const uint64_t v = in[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
            out[lane] |= v << (16 * half);
        }
    }
}

uint64_t emu_atomic(void *p, emu_type type, int op, uint64_t operand, uint64_t compare, const char *file,
                    int line)
{
    const size_t bytes = type == EMU_U64 ? 8 : 4;
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)p % bytes) {
        emu_fail("misaligned", site, "%s: an atomic of %zu bytes at %p", emu_who(), bytes, p);
    }
    emu_yield(site);
    emu_access(p, bytes, EMU_ATOMIC, site);
    emu_sync_release(p);
    emu_sync_acquire(p);
    uint64_t old = 0, now;
    memcpy(&old, p, bytes);
    if (op == EMU_CAS) {
        now = old == compare ? operand : old;
    } else if (type == EMU_F32) {
        const float sum = qn_f32_from_bits((uint32_t)old) + qn_f32_from_bits((uint32_t)operand);
        now = op == EMU_ADD ? qn_f32_bits(sum) : operand;
    } else {
        now = combine(op, old, operand);
    }
    memcpy(p, &now, bytes);
    return old;
}

uint32_t emu_load_relaxed(const uint32_t *p, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)p % sizeof *p) {
        emu_fail("misaligned", site, "%s: a load of 4 bytes at %p", emu_who(), (const void *)p);
    }
    emu_yield(site);
    emu_access(p, sizeof *p, EMU_ATOMIC, site);
    return *p;
}

void emu_store_relaxed(uint32_t *p, uint32_t v, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)p % sizeof *p) {
        emu_fail("misaligned", site, "%s: a store of 4 bytes at %p", emu_who(), (void *)p);
    }
    emu_yield(site);
    emu_access(p, sizeof *p, EMU_ATOMIC, site);
    *p = v;
}

uint32_t emu_load_acquire(const uint32_t *p, const char *file, int line)
{
    const uint32_t v = emu_load_relaxed(p, file, line);
    emu_sync_acquire(p);
    return v;
}

uint64_t emu_load_word(const uint64_t *p, size_t align, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)p % align) {
        emu_fail("misaligned", site, "%s: a load of %zu bytes at %p", emu_who(), align, (const void *)p);
    }
    emu_yield(site);
    emu_access(p, sizeof *p, EMU_ATOMIC, site);
    return *p;
}

void emu_store_word(uint64_t *p, uint64_t v, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)p % sizeof *p) {
        emu_fail("misaligned", site, "%s: a store of 8 bytes at %p", emu_who(), (void *)p);
    }
    emu_yield(site);
    emu_access(p, sizeof *p, EMU_ATOMIC, site);
    *p = v;
}

void emu_fence()
{
    emu_m.fiber->fenced = true;
}

void emu_grid_wait()
{
    emu_m.fiber->waited = emu_m.waited = true;
}

void emu_grid_launch(const char *file, int line)
{
    if (emu_m.launch->dependent && !emu_m.fiber->waited) {
        emu_fail("dependency", emu_site{file, line, nullptr},
                 "%s lets the launch after this one start before it has waited for the one before "
                 "(ptx_grid_wait): of what that writes the launch after would read what is not there yet",
                 emu_who());
    }
}

void emu_copy_async(void *shared, const void *global, bool valid, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)shared % 16 || (valid && (uintptr_t)global % 16)) {
        emu_fail("misaligned", site, "%s: cp.async of 16 bytes from %p to %p", emu_who(), global, shared);
    }
    if (valid) {
        emu_access(global, 16, EMU_READ, site);
    }
    emu_async_begin(shared, 16, site);
    emu_m.fiber->open_group.push_back(
        emu_copy{(unsigned char *)shared, valid ? (const unsigned char *)global : nullptr});
}

void emu_copy_commit()
{
    emu_fiber *f = emu_m.fiber;
    f->groups.push_back(f->open_group);
    f->open_group.clear();
}

void emu_copy_wait(int n_in_flight)
{
    emu_fiber *f = emu_m.fiber;
    while ((int)f->groups.size() > n_in_flight) {
        for (const emu_copy &c : f->groups.front()) {
            emu_async_end(c.to, c.from, 16, false);
        }
        f->groups.erase(f->groups.begin());
    }
}

void emu_product_fence()
{
    emu_m.fiber->product_fence = true;
}

void emu_product_start(const emu_product *p)
{
    if (!emu_m.fiber->product_fence) {
        emu_fail("async", emu_site{p->file, p->line, nullptr},
                 "%s starts a product without a fence for its registers (ptx_wgmma_fence) since it last "
                 "waited for products",
                 emu_who());
    }
    emu_m.fiber->open_products.push_back(*p);
}

void emu_product_commit()
{
    emu_fiber *f = emu_m.fiber;
    f->product_groups.push_back(f->open_products);
    f->open_products.clear();
}

void emu_product_wait(int n_in_flight)
{
    emu_fiber *f = emu_m.fiber;
    f->product_fence = false;
    while ((int)f->product_groups.size() > n_in_flight) {
        const std::vector<emu_product> group = f->product_groups.front();
        f->product_groups.erase(f->product_groups.begin());
        for (const emu_product &p : group) {
            const emu_product here = p; // on the fiber's stack, which kernels may read
            here.run(&here);
        }
    }
}

void emu_product_reads(const void *shared, size_t bytes, const char *file, int line)
{
    emu_check_fenced(shared, bytes, emu_site{file, line, nullptr});
}

void emu_fence_async()
{
    emu_m.fiber->fences++;
}

float emu_half_to_float(uint16_t h)
{
    return qn_f16_to_f32(h);
}

uint16_t emu_float_to_half(float f)
{
    return qn_f32_to_f16(f);
}
