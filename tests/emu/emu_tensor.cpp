// emu_tensor.cpp: barriers in shared memory and copies of boxes of tensors (sm_90).
//
// A barrier's 64 bits: arrivals a phase needs (16), arrivals still due (16), parity of the phase that runs
// (1), from bit 40 the bytes still due. A copy arrives when a thread waits for its barrier, the latest time
// at which the card may do it: who reads without waiting finds it in flight.
#include <cstring>

#include "emu_internal.h"

namespace
{

constexpr uint32_t max_waits = 1u << 20;

struct barrier {
    uint32_t count, due, parity;
    int32_t bytes;
};

barrier get(const void *at, emu_site site)
{
    uint64_t v;
    const unsigned char *p = (const unsigned char *)at;
    if ((uintptr_t)at % 8 || p < emu_m.block->shared || p + 8 > emu_m.block->shared + emu_m.launch->shared) {
        emu_fail("bounds", site, "%s: a barrier at %p, not in shared memory", emu_who(), at);
    }
    memcpy(&v, at, sizeof v);
    const barrier b = {(uint32_t)(v & 0xffff), (uint32_t)(v >> 16 & 0xffff), (uint32_t)(v >> 32 & 1),
                       (int32_t)(v >> 40)};
    if (b.count == 0 || b.count > 1024 || b.due > b.count) {
        emu_fail("uninitialised", site, "%s: a barrier at %p that was not started", emu_who(), at);
    }
    return b;
}

void put(void *at, barrier b)
{
    if (b.due == 0 && b.bytes == 0) { // the phase is complete
        b.due = b.count;
        b.parity ^= 1;
        emu_m.block->epoch++;
    }
    const uint64_t v = b.count | (uint64_t)b.due << 16 | (uint64_t)b.parity << 32 | (uint64_t)b.bytes << 40;
    memcpy(at, &v, sizeof v);
}

// Copies whose barrier this is arrive.
void land(const void *at, emu_site site)
{
    std::vector<emu_box> &boxes = emu_m.block->boxes;
    for (size_t i = 0; i < boxes.size();) {
        if (boxes[i].barrier != at) {
            i++;
            continue;
        }
        for (const emu_copy &c : boxes[i].rows) {
            emu_async_end(c.to, c.from, 16, true);
        }
        barrier b = get(at, site);
        b.bytes -= boxes[i].bytes;
        put(const_cast<void *>(at), b);
        boxes.erase(boxes.begin() + (ptrdiff_t)i);
    }
}

} // namespace

void emu_mbarrier_init(void *at, uint32_t count, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    emu_access(at, 8, EMU_WRITE, site);
    const uint64_t v = count | (uint64_t)count << 16;
    memcpy(at, &v, sizeof v);
}

void emu_mbarrier_arrive(void *at, uint32_t expect, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    barrier b = get(at, site);
    if (b.due == 0) {
        emu_fail("barrier", site, "%s arrives at a barrier whose %u arrivals were all there", emu_who(),
                 b.count);
    }
    b.bytes += (int32_t)expect;
    b.due--;
    put(at, b);
    emu_wait(EMU_READY, site); // any thread may go on
}

void emu_mbarrier_wait(void *at, uint32_t parity, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    for (uint32_t i = 0; get(at, site).parity == (parity & 1); i++) {
        land(at, site);
        if (get(at, site).parity != (parity & 1)) {
            return;
        }
        if (i == max_waits) {
            emu_fail("deadlock", site, "%s waits for a phase that nobody completes", emu_who());
        }
        emu_wait(EMU_READY, site);
    }
}

void emu_tensor_load(void *shared, const void *map, void *at, const int c[4], const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    emu_tensor_map m;
    emu_access(map, sizeof m, EMU_READ, site);
    memcpy(&m, map, sizeof m);
    unsigned char *to = (unsigned char *)shared;
    if ((uintptr_t)(to - emu_m.block->shared) % 1024 || m.box[0] != 64) {
        emu_fail("misaligned", site, "%s: a box of rows of %u values to %p: 64 values, 1024 bytes are due",
                 emu_who(), m.box[0], shared);
    }
    emu_box box = {at, 0, {}};
    size_t row = 0;
    for (uint32_t k3 = 0; k3 < m.box[3]; k3++) {
        for (uint32_t k2 = 0; k2 < m.box[2]; k2++) {
            for (uint32_t k1 = 0; k1 < m.box[1]; k1++, row++) {
                const uint64_t x1 = (uint64_t)(c[1] + (int)k1), x2 = (uint64_t)(c[2] + (int)k2),
                               x3 = (uint64_t)(c[3] + (int)k3);
                const bool row_there = x1 < m.dims[1] && x2 < m.dims[2] && x3 < m.dims[3];
                for (uint32_t chunk = 0; chunk < 8; chunk++) {
                    // Past the end of a row comes zero, as past all others: rows are whole pieces of 16
                    // bytes.
                    const bool there = row_there && (uint64_t)c[0] + 8 * chunk < m.dims[0];
                    unsigned char *dst = to + row * 128 + (chunk ^ row % 8) * 16;
                    const void *src = (const void *)(m.base + x1 * m.strides[0] + x2 * m.strides[1] +
                                                     x3 * m.strides[2] + 2 * (uint64_t)c[0] + 16 * chunk);
                    if (there) {
                        emu_access(src, 16, EMU_READ, site);
                    }
                    emu_async_begin(dst, 16, site);
                    box.rows.push_back(emu_copy{dst, there ? (const unsigned char *)src : nullptr});
                }
            }
        }
    }
    box.bytes = (int32_t)(row * 128);
    emu_m.block->boxes.push_back(box);
    emu_wait(EMU_READY, site);
}

void emu_bulk_load(void *shared, const void *from, void *at, uint32_t bytes, const char *file, int line)
{
    const emu_site site = {file, line, nullptr};
    if ((uintptr_t)shared % 16 || (uintptr_t)from % 16 || bytes % 16) {
        emu_fail("misaligned", site, "%s: %u bytes from %p to %p: pieces of 16 bytes are due", emu_who(),
                 bytes, from, shared);
    }
    emu_box box = {at, (int32_t)bytes, {}};
    for (uint32_t i = 0; i < bytes; i += 16) {
        unsigned char *to = (unsigned char *)shared + i;
        const unsigned char *src = (const unsigned char *)from + i;
        emu_access(src, 16, EMU_READ, site);
        emu_async_begin(to, 16, site);
        box.rows.push_back(emu_copy{to, src});
    }
    emu_m.block->boxes.push_back(box);
    emu_wait(EMU_READY, site);
}
