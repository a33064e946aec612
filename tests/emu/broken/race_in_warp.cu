// caught: race
// launch: 1 32 128
// Lanes of a warp need __syncwarp between a write and another lane's read.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    s[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    const float v = s[threadIdx.x ^ 1]; // <- here
    s[threadIdx.x] = v + 1.0f;          // <- here
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 2];
}
