// launch: 1 32 8192
// Loads and stores whose lanes lie side by side, apart, or at one address. Behind `traffic:` stands what a
// line takes: accesses of the warp, sectors of 32 bytes (of global memory), passes of 128 bytes
// (emu_traffic.c).
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    const int lane = threadIdx.x;
    const u32x4 *wide = (const u32x4 *)in;
    float sum = in[lane];           // traffic: 1 4 1
    sum += in[8 * lane];            // traffic: 1 32 8
    sum += in[0];                   // traffic: 1 1 1
    const u32x4 a = wide[lane];     // traffic: 1 16 4
    const u32x4 b = wide[4 * lane]; // traffic: 1 32 16
    s[lane] = sum;                  // traffic: 1 0 1
    s[64 + 32 * lane] = sum;        // traffic: 1 0 32
    s[64 + 33 * lane] = sum;        // traffic: 1 0 1
    float back = 0.0f;
    for (int i = 0; i < 3; i++) {
        back += s[64 + 33 * (lane ^ i)]; // traffic: 3 0 3
        __syncwarp();
    }
    if (lane < 8) {
        out[512 + lane] = back; // traffic: 1 1 1
    }
    const int same = __all_sync(0xffffffffu, a.x == wide[lane].x && b.w == wide[4 * lane].w && sum >= 0.0f);
    if (lane == 0) {
        out[0] = same ? 1.0f : 0.0f;
    }
}
