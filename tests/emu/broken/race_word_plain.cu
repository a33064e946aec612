// caught: race
// launch: 3 32 0 cooperative
// A plain store may go in halves: what waits for the word could see one of them.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u64 *words = (u64 *)(out + 64), v[2];
    if (threadIdx.x == 0) {
        words[blockIdx.x] = (u64)1 << 32 | __float_as_uint(in[blockIdx.x]); // <- here
    }
    do {
        ptx_load_words(v, words + 2 * (threadIdx.x % 2)); // <- here
    } while (v[0] >> 32 != 1);
}
