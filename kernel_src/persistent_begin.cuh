// persistent_begin.cuh: what stands before the programs of a persistent kernel (persistent.cu). One launch
// runs a list of phases; a phase is what a launch of its own would be: a program, a grid, arguments. Each
// program is included in a namespace of its own, and its kernel is a function here, compiled into its place.
// In it
//   blockIdx, gridDim  are those of the phase: a block of the launch does every n-th block of it
//   __syncthreads      takes in the threads of the phase only
//   ptx_grid_wait      waits until all blocks of the phase before have ended
//   qn_shared          begins behind what the persistent kernel keeps for itself
// and `shape`, a qn_phase_shape, says grid and threads. QN_LAUNCH_THREADS: threads that do phases; where
// QN_RING_BYTES is not 0, a warp behind them brings weights (ring.cuh) to QN_RING_AT of shared memory.
// defines: qn_phase, qn_own, qn_self, qn_phase_shape, qn_passes, qn_any, qn_block_sync, qn_block_of_launch,
// qn_blocks_of_launch
#undef QN_ENTRY
#define QN_ENTRY(...) static __device__ __forceinline__ void
#include "ring.cuh"

// runtime/cuda/lower.h: qn_cuda_phase.
struct alignas(16) qn_phase {
    i32 program;
    u32 n_block;
    u32 before;  // blocks of the launch that work in the phase before
    u32 waiter;  // thread of a block that waits for them: the last warp's first, which has the fewest rows
    u64 own[28]; // its words
};

struct qn_xyz {
    u32 x, y, z;
};

// What a block waits for in a phase, and which pass over its blocks it is in.
struct alignas(16) qn_own {
    const u32 *counter;
    u32 target; // value of the counter when the phase before has ended
    u32 first;  // block of the phase that is this pass's first
    u32 launch; // launches before this one
};

enum {
    QN_PHASE_LINES = sizeof(qn_phase) / 16,
    QN_OWN_AT = 2 * sizeof(qn_phase),
    QN_PERSISTENT_SHARED = 512, // runtime/cuda/lower.h
    QN_COUNTER_STEP = 16        // words from one counter to the next
};

// All threads that do phases.
QN_DEV void qn_block_sync()
{
    ptx_named_barrier(2, QN_LAUNCH_THREADS);
}

QN_DEV u32 qn_block_of_launch()
{
    return blockIdx.x;
}

QN_DEV u32 qn_blocks_of_launch()
{
    return gridDim.x;
}

QN_DEV qn_phase *qn_phase_slot(int k)
{
    return qn_shared<qn_phase>(k * (int)sizeof(qn_phase));
}

QN_DEV qn_own *qn_self()
{
    return qn_shared<qn_own>(QN_OWN_AT);
}

// Grid and threads of a phase; PASSES: the grid may have more blocks than the launch.
template <u32 X, u32 Y, u32 Z, int THREADS, bool PASSES> struct qn_phase_shape {
    static constexpr int threads = THREADS;
    static constexpr u32 n_block = X * Y * Z;
    static constexpr bool passes = PASSES;

    static __device__ __forceinline__ qn_xyz block()
    {
        const u32 at = qn_block_of_launch() + (PASSES ? qn_self()->first : 0);
        return Y == 1 && Z == 1 ? qn_xyz{at, 0, 0} : qn_xyz{at % X, at / X % Y, at / X / Y};
    }
    static __device__ __forceinline__ qn_xyz grid()
    {
        return qn_xyz{X, Y, Z};
    }
    static __device__ __forceinline__ void wait()
    {
        if (threadIdx.x == THREADS - 32) {
            const qn_own *own = qn_self();
            const u32 *counter = own->counter;
            const u32 target = own->target;
            while ((i32)(ptx_load_relaxed(counter) - target) < 0) {
            }
            ptx_load_acquire(counter);
        }
        ptx_named_barrier(1, THREADS);
    }
};

// An argument out of a word. (That a pointer is to global memory is not said: what it would be good for is
// little, and NVRTC 13.0 takes minutes over rows that their lanes do not fill.)
struct qn_any {
    u64 v;

    template <class T> __device__ __forceinline__ operator T *() const
    {
        return (T *)v;
    }
    __device__ __forceinline__ operator i64() const
    {
        return (i64)v;
    }
};

// A block's way through its share of a phase, of which it has some.
template <class SHAPE> struct qn_passes {
    u32 first = 0;

    __device__ __forceinline__ qn_passes()
    {
        begin();
    }
    __device__ __forceinline__ bool more() const
    {
        return SHAPE::passes ? first + qn_block_of_launch() < SHAPE::n_block : first == 0;
    }
    // Does the block of the phase have this thread?
    __device__ __forceinline__ bool mine() const
    {
        return (int)threadIdx.x < SHAPE::threads;
    }
    __device__ __forceinline__ void next()
    {
        first += SHAPE::passes ? qn_blocks_of_launch() : 1;
        if (SHAPE::passes) {
            qn_block_sync();
            begin();
        }
    }
    __device__ __forceinline__ void begin() const
    {
        if (SHAPE::passes) {
            if (threadIdx.x == 0) {
                qn_self()->first = first;
            }
            qn_block_sync();
        }
    }
};

#undef blockIdx
#undef gridDim
#undef __syncthreads
#define blockIdx        (shape::block())
#define gridDim         (shape::grid())
#define __syncthreads() ptx_named_barrier(1, QN_THREADS)
#define ptx_grid_wait() shape::wait()

namespace persistent
{

// The functions that follow stand before the global ones of the same names.
QN_DEV void ptx_grid_launch()
{
}

template <class T> QN_DEV T *qn_shared(int byte_offset)
{
    return ::qn_shared<T>(QN_PERSISTENT_SHARED + byte_offset);
}

constexpr int qn_ring_bytes = QN_RING_BYTES;

QN_DEV u8 *qn_ring()
{
    return ::qn_shared<u8>(QN_RING_AT);
}

} // namespace persistent
