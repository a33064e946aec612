// persistent.cu: a list of phases in one launch, all of whose blocks are on the card at once. Behind
// persistent_begin.cuh and the programs; qn_run_phase(program, args) is generated. A phase's blocks start as
// soon as those of the phase before have ended, and load what does not hang on them before that
// (ptx_grid_wait). counters: word 0: launches so far; then of each phase, QN_COUNTER_STEP words apart, how
// often a block of the launch has ended its part of it, over all launches. grid: (blocks of the launch);
// block: QN_THREADS; shared: QN_PERSISTENT_SHARED and what the phase with the largest need has. Lanes of the
// last warp fetch the descriptor of a phase.
QN_DEV void qn_fetch_phase(const qn_phase *phases, i64 n_phase, int k)
{
    const int lane = (int)threadIdx.x - (QN_THREADS - 32);
    if (k < n_phase && lane >= 0 && lane < QN_PHASE_LINES) {
        ptx_copy_async16((u8 *)qn_phase_slot(k & 1) + 16 * lane, (const u8 *)&phases[k] + 16 * lane, true);
    }
    ptx_copy_commit();
}

// Every lane's descriptor lines have arrived, for all.
QN_DEV void qn_phase_arrived()
{
    ptx_copy_wait<0>();
    qn_block_sync();
}

// This block's share of phase k.
QN_DEV void qn_do_phase(const qn_phase *p, int k, u32 *counters, u32 launch)
{
    const u32 first = qn_block_of_launch(), step = qn_blocks_of_launch();
    for (u32 at = first; at < p->n_block; at += step) {
        if (threadIdx.x % 32 == 0) {
            qn_own *own = qn_self();
            own->block = qn_xyz{at % p->grid[0], at / p->grid[0] % p->grid[1], at / p->grid[0] / p->grid[1]};
            own->grid = qn_xyz{p->grid[0], p->grid[1], p->grid[2]};
            own->threads = p->threads;
            own->target = (launch + 1) * p->before;
            // Each time anew: a block of the phase that has nothing to do may end without a wait.
            own->counter = k > 0 ? counters + QN_COUNTER_STEP * k : nullptr;
        }
        __syncwarp();
        if ((i32)threadIdx.x < p->threads) {
            persistent::qn_run_phase(p->program, p->args);
        }
        qn_block_sync();
    }
}

extern "C" __global__ void __launch_bounds__(QN_THREADS, 1)
    QN_KERNEL(const qn_phase *phases, i64 n_phase, u32 *counters)
{
    const u32 launch = counters[0];
    qn_fetch_phase(phases, n_phase, 0);
    qn_phase_arrived();
    for (int k = 0; k < n_phase; k++) {
        const qn_phase *p = qn_phase_slot(k & 1);
        qn_fetch_phase(phases, n_phase, k + 1);
        qn_do_phase(p, k, counters, launch);
        if (threadIdx.x == 0 && qn_block_of_launch() < p->n_block) {
            const u32 active = min(p->n_block, qn_blocks_of_launch());
            __threadfence();
            const u32 ended = atomicAdd(counters + QN_COUNTER_STEP * (k + 1), 1u) + 1;
            if (k == n_phase - 1 && ended == (launch + 1) * active) {
                counters[0] = launch + 1; // every block that waits for something has read it
            }
        }
        qn_phase_arrived();
    }
}
