// caught: arithmetic
// launch: 1 8 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float v[6];
    for (int i = 0; i < 6; i++) {
        v[i] = in[i + threadIdx.x];
    }
    out[threadIdx.x] = v[threadIdx.x]; // <- here
}
