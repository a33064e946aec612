// caught: deadlock
// launch: 3 32 0 cooperative
// Each block waits for the others' words before it puts its own.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u64 *words = (u64 *)(out + 64), v[2];
    do {
        ptx_load_words(v, words + 2 * (threadIdx.x % 2)); // <- here
    } while (v[0] >> 32 != 1);
    if (threadIdx.x == 0) {
        ptx_store_word(words + blockIdx.x, (u64)1 << 32 | __float_as_uint(in[blockIdx.x]));
    }
}
