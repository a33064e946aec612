// persistent_begin.cuh: what stands before the programs of a persistent kernel (persistent.cu). One launch
// runs a list of phases; a phase is what a launch of its own would be: a program, a grid, arguments. Each
// program is included in a namespace of its own, and its kernel is a function here. In it
//   blockIdx, gridDim  are those of the phase: a block of the launch does every n-th block of it
//   __syncthreads      takes in the threads of the phase only
//   ptx_grid_wait      waits until all blocks of the phase before have ended
//   qn_shared          begins behind what the persistent kernel keeps for itself
// defines: qn_phase, qn_own, qn_self, qn_caller, qn_block_sync, qn_block_of_launch, qn_blocks_of_launch
#undef QN_ENTRY
#define QN_ENTRY(...) static __device__ __noinline__ void
#include "planes.cuh"

// runtime/cuda/lower.h: qn_cuda_phase.
struct alignas(16) qn_phase {
    i32 program, threads;
    u32 grid[3], n_block;
    u32 before; // blocks of the launch that work in the phase before
    u32 reserved;
    u64 args[24];
};

struct qn_xyz {
    u32 x, y, z;
};

// What a warp's threads ask for while they run a block of a phase.
struct alignas(16) qn_own {
    qn_xyz block;
    u32 threads;
    qn_xyz grid;
    u32 target;         // value of the counter when the phase before has ended
    const u32 *counter; // nullptr: nothing to wait for
    u64 reserved;
};

enum {
    QN_PHASE_LINES = sizeof(qn_phase) / 16,
    QN_OWN_AT = 2 * sizeof(qn_phase),
    QN_PERSISTENT_SHARED = 1280, // runtime/cuda/lower.h
    QN_COUNTER_STEP = 16         // words from one counter to the next
};

QN_DEV void qn_block_sync()
{
    __syncthreads();
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
    return qn_shared<qn_own>(QN_OWN_AT) + threadIdx.x / 32;
}

// A parameter out of a word. Pointers are to global memory; the compiler must be told, as it knows of a
// kernel's.
template <class T> struct qn_arg {
    static __device__ __forceinline__ T of(u64 v)
    {
        return (T)v;
    }
};
template <class T> struct qn_arg<T *> {
    static __device__ __forceinline__ T *of(u64 v)
    {
        return (T *)ptx_global_pointer(v);
    }
};

// Calls a function with its arguments taken from words.
template <int... I> struct qn_ints {
};
template <int N, int... I> struct qn_count : qn_count<N - 1, N - 1, I...> {
};
template <int... I> struct qn_count<0, I...> {
    using type = qn_ints<I...>;
};
template <auto F> struct qn_caller;
template <class... A, void (*F)(A...)> struct qn_caller<F> {
    template <int... I> static __device__ __forceinline__ void run(const u64 *args, qn_ints<I...>)
    {
        F(qn_arg<A>::of(args[I])...);
    }
    static __device__ __forceinline__ void call(const u64 *args)
    {
        run(args, typename qn_count<sizeof...(A)>::type());
    }
};

#undef blockIdx
#undef gridDim
#undef __syncthreads
#define blockIdx        (qn_self()->block)
#define gridDim         (qn_self()->grid)
#define __syncthreads() ptx_named_barrier(1, QN_THREADS)

namespace persistent
{

// The functions that follow stand before the global ones of the same names.
QN_DEV void ptx_grid_launch()
{
}

QN_DEV void ptx_grid_wait()
{
    const qn_own *own = qn_self();
    if (own->counter) {
        if (threadIdx.x == 0) {
            while ((i32)(ptx_load_acquire(own->counter) - own->target) < 0) {
            }
        }
        ptx_named_barrier(1, own->threads);
    }
}

template <class T> QN_DEV T *qn_shared(int byte_offset)
{
    return ::qn_shared<T>(QN_PERSISTENT_SHARED + byte_offset);
}

} // namespace persistent
