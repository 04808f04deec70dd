// Products of bf16, two columns of sixteen lanes at a time.
#ifndef HEARTH_BF16_H
#define HEARTH_BF16_H

#include "isa/intrinsics.h"
#include "isa/vector.h"

// Whether the CPU also multiplies sixteen rows at once.
#if defined(__AMX_BF16__) && defined(__AVX512F__)
#define BF16_TILES 1
#else
#define BF16_TILES 0
#endif

// 32 bf16: columns 2 i and 2 i + 1 are in lane i.
INLINE u32x16 load_pairs(const uint16_t *from) {
    u32x16 pairs;
    __builtin_memcpy(&pairs, from, sizeof pairs);
    return pairs;
}

// For each lane, adds the product of the second column, then of the first one.
#ifdef __AVX512BF16__
INLINE f32x16 dot_pairs(f32x16 sums, u32x16 x, u32x16 y) {
    return (f32x16)_mm512_dpbf16_ps((__m512)sums, (__m512bh)x, (__m512bh)y);
}
#else
INLINE f32x16 dot_pairs(f32x16 sums, u32x16 x, u32x16 y) {
    sums = fma16((f32x16)(x & 0xFFFF0000), (f32x16)(y & 0xFFFF0000), sums);
    return fma16((f32x16)(x << 16), (f32x16)(y << 16), sums);
}
#endif

#endif
