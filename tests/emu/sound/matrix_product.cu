// launch: 1 32 1024
// 16 x 16 by 16 x 8 through ldmatrix and mma, in both shapes of mma, against sums of products.
QN_DEV float a_value(int row, int k)
{
    return (float)((row * 7 + k * 3) % 11 - 5);
}
QN_DEV float b_value(int k, int column)
{
    return (float)((k * 5 + column * 2) % 13 - 6) * 0.25f;
}

extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    half_t *a = qn_shared<half_t>(0), *b = a + 256; // a [16][16], b [16][8] and [8][16] (transposed)
    half_t *bt = b + 128;
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        a[i] = float_to_half(a_value(i / 16, i % 16));
    }
    for (int i = lane; i < 128; i += 32) {
        b[i] = bt[i % 8 * 16 + i / 8] = float_to_half(b_value(i / 8, i % 8));
    }
    __syncwarp();
    u32 fa[4], fb[4], fbt[4];
    ptx_ldmatrix_x4(fa, a + lane % 16 * 16 + lane / 16 * 8);
    ptx_ldmatrix_x4_trans(fb, b + lane % 16 * 8);
    ptx_ldmatrix_x4(fbt, bt + lane % 8 * 16 + lane / 8 % 2 * 8);
    float d[4] = {1.0f, 2.0f, 3.0f, 4.0f}, e[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    ptx_mma_f16(d, fa, fb);
    ptx_mma_f16_k8(e, fa, fbt[0]);
    ptx_mma_f16_k8(e, fa + 2, fbt[1]);
    bool right = fb[0] == fbt[0] && fb[1] == fbt[1];
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float due = (float)(i + 1);
        for (int k = 0; k < 16; k++) {
            due += a_value(row, k) * b_value(k, column);
        }
        right = right && d[i] == due && e[i] == due;
    }
    right = __all_sync(0xffffffffu, right);
    if (lane == 0) {
        out[0] = right;
    }
}
