// persistent.cu: a list of phases in one launch, all of whose blocks are on the card at once. Behind
// persistent_begin.cuh and the programs; run_phase(program, own, words) is generated. A phase's blocks start
// as soon as this block's part of the phase before has ended, and load what does not hang on others before
// they wait for those (ptx_grid_wait). counters: word 0: launches so far, word 1: zero; then of each phase,
// QN_COUNTER_STEP words apart, how often a block of the launch has ended its part of it, over all launches.
// grid: (blocks of the launch); block: QN_THREADS, the last warp of which brings weights where there is a
// ring (ring.cuh); shared: QN_PERSISTENT_SHARED, what the phase with the largest need has, the ring.
// bring(job, number, lane, program, own, words) is generated.
constexpr bool qn_rings = QN_RING_BYTES > 0;

// 32 lanes fetch the descriptor of phase k to `slot`.
QN_DEV void qn_fetch_lanes(qn_phase *slot, int lane, const qn_phase *phases, i64 n_phase, int k)
{
    if (k < n_phase && lane >= 0 && lane < QN_PHASE_LINES) {
        ptx_copy_async16((u8 *)slot + 16 * lane, (const u8 *)&phases[k] + 16 * lane, true);
    }
    ptx_copy_commit();
}

// For those who do phases: by their last warp.
QN_DEV void qn_fetch_phase(const qn_phase *phases, i64 n_phase, int k)
{
    const int lane = (int)ptx_thread_here() - (QN_LAUNCH_THREADS - 32);
    qn_fetch_lanes(qn_phase_slot(k & 1), lane, phases, n_phase, k);
}

constexpr int qn_ring_slots = ring_slots(QN_RING_BYTES);

// Descriptors for the ring's writer, which is ahead of the others.
QN_DEV qn_phase *qn_writer_slot(int k)
{
    static_assert(RING_PHASES + 2 * sizeof(qn_phase) <= RING_HEAD, "the slots lie behind them");
    return (qn_phase *)(persistent::qn_ring() + RING_PHASES) + k;
}

// The weights of phase k, by the warp behind those that do phases. What goes on from one phase to the next
// stands in shared memory, as nothing is handed on between turns of the loop.
QN_DEV void qn_bring_phase(const qn_phase *phases, i64 n_phase, const persistent::words_of_launch &words,
                           int k)
{
    const int lane = (int)ptx_thread_here() - QN_LAUNCH_THREADS;
    ptx_copy_wait<0>();
    __syncwarp();
    qn_fetch_lanes(qn_writer_slot((k + 1) & 1), lane, phases, n_phase, k + 1);
    const qn_phase *p = qn_writer_slot(k & 1);
    if (qn_block_of_launch() < p->n_block) {
        u8 *ring = persistent::qn_ring();
        ring_head *h = (ring_head *)ring;
        ring_writer w = h->writer;
        ring_job job;
#pragma unroll 1
        for (int i = 0; persistent::bring(job, i, lane, p->program, p->own, words); i++) {
            ring_bring(ring, w, job, (u32)k, lane, qn_ring_slots);
        }
        __syncwarp();
        if (lane == 0) {
            h->writer = w;
        }
    }
    __syncwarp();
}

QN_DEV void qn_begin_ring(const qn_phase *phases, i64 n_phase)
{
    const int lane = (int)ptx_thread_here() - QN_LAUNCH_THREADS;
    ring_head *h = (ring_head *)persistent::qn_ring();
    if (lane >= 0) {
        qn_fetch_lanes(qn_writer_slot(0), lane, phases, n_phase, 0);
    }
    if (lane == 0) {
        for (int i = 0; i < qn_ring_slots; i++) {
            ptx_barrier_init(&h->full[i], 1);
            ptx_barrier_init(&h->empty[i], RING_READERS);
        }
        h->first = h->next = 0;
        h->sent = 0;
        h->writer = ring_writer{};
        ptx_barrier_init_fence();
        ptx_fence_async();
    }
    ptx_named_barrier(3, QN_THREADS);
}

// Phase k: this block's part of it, if it has one.
QN_DEV void qn_do_phase(const qn_phase *phases, i64 n_phase, u32 *counters,
                        const persistent::words_of_launch &words, int k)
{
    const qn_phase *p = qn_phase_slot(k & 1);
    const u32 n_block = p->n_block, blocks = qn_blocks_of_launch(), launch = qn_self()->launch;
    const bool works = qn_block_of_launch() < n_block;
    qn_fetch_phase(phases, n_phase, k + 1);
    if (works) {
        if (threadIdx.x == p->waiter) {
            qn_own *own = qn_self();
            own->counter = k > 0 ? counters + QN_COUNTER_STEP * k : counters + 1; // word 1 stays 0
            own->target = k > 0 ? (launch + 1) * p->before : 0;
        }
        persistent::run_phase(p->program, p->own, words);
        if (qn_rings && threadIdx.x == 0) {
            ring_head *h = (ring_head *)persistent::qn_ring();
            h->first = h->next; // all have read it: they met behind their products
        }
    }
    ptx_copy_wait<0>();
    qn_block_sync(); // the next descriptor is there, for all; this block's part is done
    if (threadIdx.x == QN_LAUNCH_THREADS - 32 && works) {
        u32 *counter = counters + QN_COUNTER_STEP * (k + 1);
        if (k < n_phase - 1) {
            ptx_add_release(counter, 1);
        } else if (ptx_add_acq_rel(counter, 1) + 1 == (launch + 1) * min(n_block, blocks)) {
            counters[0] = launch + 1; // every block that waits for something has read it
        }
    }
    if (qn_rings && threadIdx.x == QN_LAUNCH_THREADS - 32) {
        ptx_note(&((ring_head *)persistent::qn_ring())->sent, (u32)k + 1);
    }
}

extern "C" __global__ void __launch_bounds__(QN_THREADS, 1)
    QN_KERNEL(const qn_phase *phases, i64 n_phase, u32 *counters,
              const __grid_constant__ persistent::words_of_launch words)
{
    if (qn_rings) {
        qn_begin_ring(phases, n_phase);
    }
    if (ptx_thread_here() == 0) {
        qn_self()->launch = counters[0];
    }
    if (ptx_thread_here() < QN_LAUNCH_THREADS) {
        qn_fetch_phase(phases, n_phase, 0);
        ptx_copy_wait<0>();
        qn_block_sync();
    }
    ptx_hidden_for(k, n_phase, {
        if (qn_rings && ptx_thread_here() >= QN_LAUNCH_THREADS) {
            qn_bring_phase(phases, n_phase, words, (int)k);
        } else {
            qn_do_phase(phases, n_phase, counters, words, (int)k);
        }
    });
}
