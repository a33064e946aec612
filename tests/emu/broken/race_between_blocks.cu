// caught: race
// launch: 4 32 0
// Every block adds to the same place.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    if (blockIdx.x == 0) {
        out[threadIdx.x] = in[threadIdx.x]; // <- here
    } else {
        out[threadIdx.x] = in[threadIdx.x] + 1.0f; // <- here
    }
}
