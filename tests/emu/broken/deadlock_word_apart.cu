// caught: deadlock
// launch: 3 32 0
// Blocks that wait for each other's words need to be resident together.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u64 *words = (u64 *)(out + 64), v[2];
    if (threadIdx.x == 0) {
        ptx_store_word(words + blockIdx.x, (u64)1 << 32 | __float_as_uint(in[blockIdx.x]));
    }
    do {
        ptx_load_words(v, words + 2 * (threadIdx.x % 2)); // <- here
    } while (v[0] >> 32 != 1);
}
