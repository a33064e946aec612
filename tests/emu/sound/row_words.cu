// launch: 5 32 0 cooperative
// Blocks hand each other a word each, which holds a value beside the number of the turn.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u64 *words = (u64 *)(out + 64), v[2];
    const int at = 2 * (threadIdx.x % 3);
    if (threadIdx.x == 0) {
        ptx_store_word(words + blockIdx.x, (u64)1 << 32 | __float_as_uint(in[blockIdx.x]));
    }
    do {
        ptx_load_words(v, words + at);
    } while (v[0] >> 32 != 1 || (at + 1 < 5 && v[1] >> 32 != 1));
    const float pair = __uint_as_float((u32)v[0]) + (at + 1 < 5 ? __uint_as_float((u32)v[1]) : 0.0f);
    const float sum = warp_sum(threadIdx.x < 3 ? pair : 0.0f);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        out[0] = sum == 10.0f;
    }
}
