// query_tile.cuh: queries as attention_tma.cu copies them: a tile is 128 rows of a head, f16, in blocks of 64
// dimensions of which the 16-byte pieces of a row lie as the tensor cores read them (piece c of row r at
// c ^ (r % 8)), behind them a factor a row. Tiles of all heads lie side by side, then those of the next 128
// rows. defines: query_power, query_tile_rows, query_tile_bytes, query_factor_at, query_piece_at
#pragma once

#include "types.cuh"

constexpr int query_tile_rows = 128;

// For heads of a multiple of 64 dimensions.
QN_DEV constexpr int query_factor_at(int dim)
{
    return query_tile_rows * dim * 2;
}

QN_DEV constexpr int query_tile_bytes(int dim)
{
    return query_factor_at(dim) + query_tile_rows * 4;
}

// Bytes from a tile's start to dimensions 8 c .. 8 c + 7 of row r; of a tile of fewer rows where `rows`.
QN_DEV int query_piece_at(int r, int c, int rows = query_tile_rows)
{
    return c / 8 * (rows * 128) + r * 128 + ((c % 8) ^ (r % 8)) * 16;
}

// The power of two that brings values up to `top` into [2^14, 2^15): none leaves f16's range; *up: its
// inverse.
QN_DEV float query_power(float top, float *up)
{
    int e = (int)((__float_as_uint(top) >> 23) & 0xff) - 127 - 14;
    e = top == 0.0f ? 0 : e < -100 ? -100 : e;
    *up = __uint_as_float((u32)(127 + e) << 23);
    return __uint_as_float((u32)(127 - e) << 23);
}
