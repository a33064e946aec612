// persistent.cu: a list of phases in one launch, all of whose blocks are on the card at once. Behind
// persistent_begin.cuh and the programs; run_phase(program, own, words) is generated. A phase's blocks start
// as soon as this block's part of the phase before has ended, and load what does not hang on others before
// they wait for those (ptx_grid_wait). counters: word 0: launches so far, word 1: zero; then of each phase,
// QN_COUNTER_STEP words apart, how often a block of the launch has ended its part of it, over all launches.
// grid: (blocks of the launch); block: QN_THREADS; shared: QN_PERSISTENT_SHARED and what the phase with the
// largest need has. Lanes of the last warp fetch the descriptor of a phase.
QN_DEV void qn_fetch_phase(const qn_phase *phases, i64 n_phase, int k)
{
    const int lane = (int)ptx_thread_here() - (QN_THREADS - 32);
    if (k < n_phase && lane >= 0 && lane < QN_PHASE_LINES) {
        ptx_copy_async16((u8 *)qn_phase_slot(k & 1) + 16 * lane, (const u8 *)&phases[k] + 16 * lane, true);
    }
    ptx_copy_commit();
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
        if (threadIdx.x == 0) {
            qn_own *own = qn_self();
            own->counter = k > 0 ? counters + QN_COUNTER_STEP * k : counters + 1; // word 1 stays 0
            own->target = k > 0 ? (launch + 1) * p->before : 0;
        }
        persistent::run_phase(p->program, p->own, words);
    }
    ptx_copy_wait<0>();
    qn_block_sync(); // the next descriptor is there, for all; this block's part is done
    if (threadIdx.x == 0 && works) {
        u32 *counter = counters + QN_COUNTER_STEP * (k + 1);
        if (k < n_phase - 1) {
            ptx_add_release(counter, 1);
        } else if (ptx_add_acq_rel(counter, 1) + 1 == (launch + 1) * min(n_block, blocks)) {
            counters[0] = launch + 1; // every block that waits for something has read it
        }
    }
}

extern "C" __global__ void __launch_bounds__(QN_THREADS, 1)
    QN_KERNEL(const qn_phase *phases, i64 n_phase, u32 *counters,
              const __grid_constant__ persistent::words_of_launch words)
{
    if (ptx_thread_here() == 0) {
        qn_self()->launch = counters[0];
    }
    qn_fetch_phase(phases, n_phase, 0);
    ptx_copy_wait<0>();
    qn_block_sync();
    ptx_hidden_for(k, n_phase, qn_do_phase(phases, n_phase, counters, words, (int)k););
}
