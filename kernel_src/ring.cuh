// ring.cuh: weights on their way through shared memory, in a persistent kernel (persistent.cu). A warp of its
// own, the ring's writer, copies the rows that the block's phases will multiply, in that order and as far
// ahead as there is room: so memory is at work while a phase still waits. A stage is some consecutive rows of
// one type, laid out as a tensor of so many rows (planes.cuh); stage k of a launch is in slot k modulo their
// number. A slot has two barriers: `full` completes when a stage's bytes are there, `empty` when all warps
// that read it have. Few stages are under way at a time, though there is room for more, and fewer yet for
// phases behind the one that the block is in: a signal waits for them.
// defines: ring_head, ring_writer, ring_job, ring_bring, ring_plane, ring_wait, ring_done, ring_rows,
// ring_slots, qn_ring, qn_ring_bytes
#pragma once
#include "planes.cuh"

enum {
    RING_SLOT = 20736,  // bytes: 9 rows of 4096 values in 4 bits, 3 of 12,288, 6 or 2 in 6 bits
    RING_MOST = 12,     // slots
    RING_UNDER_WAY = 3, // stages of the phase that the block is in
    RING_AHEAD = 2,     // of one behind it
    RING_READERS = 32,  // more than the warps of a block
    RING_PLANES = 4,    // of a tensor
    RING_PHASES = 512,  // where the writer's descriptors begin, two of them
    RING_HEAD = 1024
};

// The writer's state: the slot of its next stage, and of the first that may be under way; how often it came
// round to them, modulo 2; stages that may be under way.
struct ring_writer {
    u32 slot, turn, landing, landing_turn, under_way;
};

// The ring's first bytes.
struct ring_head {
    u64 full[RING_MOST], empty[RING_MOST];
    u32 first, next; // stages before this phase, and before the one behind it
    u32 sent; // phases that the block is done with: how far it is, the writer's lanes need not agree on
    ring_writer writer;
};
static_assert(sizeof(ring_head) <= RING_PHASES, "the writer's descriptors lie behind it");

// What a block brings in a phase: rows [first, last) of `bytes` bytes, `rows` of them a stage, each read by
// so many warps. What one lane of the writer copies of them: row r >> shift of a plane, if it is one of
// [begin, end), is at from + (r >> shift) * width, and the first of a stage goes to `to` of it.
struct ring_job {
    int first, last, rows, bytes, readers, shift;
    const u8 *from;
    int width, begin, end, to;
};

// A program without a ring. The persistent kernel's functions stand before these.
constexpr int qn_ring_bytes = 0;
QN_DEV u8 *qn_ring()
{
    return nullptr;
}

__device__ __forceinline__ constexpr int ring_slots(int ring_bytes)
{
    const int n = (ring_bytes - RING_HEAD) / RING_SLOT;
    return n < RING_MOST ? n : RING_MOST;
}

// Rows of a stage: at most the rows that a block does at a time, a multiple of `step`. 0: rows of such a type
// and length do not come through the ring.
__device__ __forceinline__ constexpr int ring_rows(plane_row b, int at_a_time, int step, int ring_bytes)
{
    const int fit = b.all() > 0 ? RING_SLOT / b.all() : 0, most = fit < at_a_time ? fit : at_a_time;
    const bool copied = (b.q | b.h | b.s | b.d) % 16 == 0; // by bulk copies
    return copied && ring_slots(ring_bytes) > RING_UNDER_WAY ? most / step * step : 0;
}

// The lane's plane is number `plane` of a tensor of n_rows rows, of which row 0 is row `begin` of the job; in
// a stage they stand from row `to` on. ROWS: of a stage.
template <int DT, int ROWS>
QN_DEV void ring_plane(ring_job &j, int plane, const u8 *w, i64 n_rows, int n_in, int begin, int end, int to)
{
    const plane_row b = plane_row_of<DT>(n_in);
    const plane_ptr p = row_planes<DT>(w, n_rows, n_in, 0), s = row_planes<DT>(nullptr, ROWS, n_in, to);
    j.width = plane == 0 ? b.q : plane == 1 ? b.h : plane == 2 ? b.s : b.d;
    j.from = (plane == 0 ? p.q : plane == 1 ? p.h : plane == 2 ? p.s : p.d) - (i64)begin * j.width;
    j.to = (int)(i64)(plane == 0 ? s.q : plane == 1 ? s.h : plane == 2 ? s.s : s.d);
    j.begin = begin;
    j.end = j.width > 0 ? end : begin;
}

// The job's stages, by all lanes of the writer.
QN_DEV void ring_bring(u8 *ring, ring_writer &r, const ring_job &j, u32 phase, int lane, u32 slots)
{
    ring_head *h = (ring_head *)ring;
#pragma unroll 1
    for (int row = j.first; row < j.last; row += j.rows) {
        const int n = min(j.rows, j.last - row), top = row >> j.shift;
        const u32 most = ptx_peek(&h->sent) < phase ? RING_AHEAD : RING_UNDER_WAY;
        while (r.under_way >= most) {
            ptx_barrier_wait(&h->full[r.landing], r.landing_turn);
            r.landing_turn ^= r.landing == slots - 1;
            r.landing = r.landing == slots - 1 ? 0 : r.landing + 1;
            r.under_way--;
        }
        ptx_barrier_wait(&h->empty[r.slot], r.turn ^ 1);
        if (lane == 0) {
            ptx_barrier_arrive_many(&h->empty[r.slot], (u32)(RING_READERS - n * j.readers));
            ptx_barrier_expect(&h->full[r.slot], (u32)(n * j.bytes));
        }
        __syncwarp();
        const int a = max(top, j.begin), b = min((row + n) >> j.shift, j.end);
        if (a < b) {
            ptx_bulk_load_once(ring + RING_HEAD + r.slot * RING_SLOT + j.to + (a - top) * j.width,
                               j.from + (i64)a * j.width, &h->full[r.slot], (u32)((b - a) * j.width));
        }
        r.turn ^= r.slot == slots - 1;
        r.slot = r.slot == slots - 1 ? 0 : r.slot + 1;
        r.under_way++;
    }
}

// Where stage k stands, once it is there.
QN_DEV const u8 *ring_wait(u8 *ring, u32 k, u32 slots)
{
    ptx_barrier_wait(&((ring_head *)ring)->full[k % slots], k / slots & 1);
    return ring + RING_HEAD + k % slots * RING_SLOT;
}

// The warp has read what it wants of stage k.
QN_DEV void ring_done(u8 *ring, u32 k, u32 slots)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx_barrier_arrive(&((ring_head *)ring)->empty[k % slots]);
    }
}
