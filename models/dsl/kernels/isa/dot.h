// Sixteen rows of weights times one row of int8 activations, four columns at a time.
//
// Only this folder and product/tiles.h compute with intrinsics. Sums are exact in i32, so every
// instruction set gives the same integers. Each has DOT_OFFSET and dot_quad, which
// lora/adapter_terms.h uses, and one of two contracts with product.h. x are the int8 activations of
// a group: part p begins at x + p * GROUP.
//
// 1. x86 and plain C: a group's quads are unpacked to registers first (matrix.h).
//      dot_quad(sums, quad, x)                       weights are -128 to 127; sums start at
//                                                    -DOT_OFFSET times the sum of the activations
//      dot_bytes(sums, quad, x)                      the same, DOT_OFFSET is already added
//      dot_small(sums, parts, quads, count, x, bits) weights of 2 to 7 bits, 0 to 127;
//                                                    `count` quads times each of `parts` parts of x
//      dot_pairs(sums, pairs, x)                     x and weights are two columns of int16; only
//                                                    called if HAS_PAIRS is 1
// 2. ARM, which has too few registers for a group: DOT_RUNS is defined, and a Run points to quads:
//    stored ones of 4, 5 or 8 bits, which are unpacked while they are multiplied, or unpacked ones.
//      dot_run(dots, parts, run, x, starts)          each part's sums, from starts[part] on
//      dot_low(dots, parts, run, x, starts)          the same for the lower four bits of 12
//      dot_wide(dots, parts, integers, group, x, starts)  a group of 12 bits
#ifndef HEARTH_DOT_H
#define HEARTH_DOT_H

#include "isa/intrinsics.h"
#include "product/matrix.h"

// The int8 parts of a rounded activation: two for 16 bits, one for 8 bits.
#ifndef ACTIVATION_BITS
#define ACTIVATION_BITS 16
#endif
enum { PARTS = ACTIVATION_BITS / 8, MAX_PARTS = 2 };

// Whether the CPU also multiplies sixteen rows of activations at once (tiles.h).
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
#define TILES 1
#else
#define TILES 0
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#if TILES
#define DOT_NAME "amx"
#else
#define DOT_NAME "avx512vnni"
#endif
// vpdpbusd takes one side unsigned: 128 is added to the weights of dot_quad.
#define DOT_OFFSET 128
INLINE i32x16 dot_bytes(i32x16 sums, Quad quad, const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return (i32x16)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)quad, _mm512_set1_epi32(four));
}
INLINE i32x16 dot_quad(i32x16 sums, Quad quad, const int8_t *x) {
    return dot_bytes(sums, quad ^ (int8_t)-128, x);
}
#define HAS_PAIRS 1
INLINE i32x16 dot_pairs(i32x16 sums, Quad pairs, const int8_t *x) {
    int32_t two;
    __builtin_memcpy(&two, x, sizeof two);
    return (i32x16)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)pairs, _mm512_set1_epi32(two));
}

#elif defined(__AVXVNNI__)
#define DOT_NAME "avxvnni"
// As with AVX-512, in two halves.
#define DOT_OFFSET 128
INLINE i32x16 dot_bytes(i32x16 sums, Quad quad, const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    __m256i halves[2], w[2], repeated = _mm256_set1_epi32(four);
    __builtin_memcpy(halves, &sums, 64);
    __builtin_memcpy(w, &quad, 64);
    for (int i = 0; i < 2; i++) halves[i] = _mm256_dpbusd_avx_epi32(halves[i], w[i], repeated);
    __builtin_memcpy(&sums, halves, 64);
    return sums;
}
INLINE i32x16 dot_quad(i32x16 sums, Quad quad, const int8_t *x) {
    return dot_bytes(sums, quad ^ (int8_t)-128, x);
}
#define ADD_PAIRS _mm256_dpwssd_avx_epi32

#elif defined(__AVX2__)
#define DOT_NAME "avx2"
#define DOT_OFFSET 0
#define dot_bytes dot_quad
// vpmaddubsw takes one side unsigned: signs of weights go to the activations. No activation is
// -128, so that no pair of products overflows 16 bits.
INLINE i32x16 dot_quad(i32x16 sums, Quad quad, const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    __m256i halves[2], w[2], repeated = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
    __builtin_memcpy(halves, &sums, 64);
    __builtin_memcpy(w, &quad, 64);
    for (int i = 0; i < 2; i++) {
        __m256i pairs =
            _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(repeated, w[i]));
        halves[i] = _mm256_add_epi32(halves[i], _mm256_madd_epi16(pairs, ones));
    }
    __builtin_memcpy(&sums, halves, 64);
    return sums;
}
#define ADD_PAIRS(sums, x, y) _mm256_add_epi32(sums, _mm256_madd_epi16(x, y))
// Products with small weights are added in 16 bits as long as they fit: eight quads of 4 bits,
// since 8 * 2 * 15 * 127 is less than 2^15, four of 5 bits, two of 6 and one of 7. All parts share
// the loads of a quad.
#define IN_PAIRS 1
INLINE void dot_small(i32x16 *sums, int parts, const Quad *quads, int count, const int8_t *x,
                      int bits) {
    int fitting = bits <= 4 ? 8 : 1 << (7 - bits);
    __m256i pairs[MAX_PARTS][2], ones = _mm256_set1_epi16(1);
    UNROLL
    for (int quad = 0; quad < count; quad++) {
        __m256i w[2], halves[2];
        __builtin_memcpy(w, &quads[quad], 64);
        UNROLL
        for (int part = 0; part < parts; part++) {
            int32_t four;
            __builtin_memcpy(&four, x + part * GROUP + quad * QUAD, 4);
            for (int i = 0; i < 2; i++) {
                __m256i more = _mm256_maddubs_epi16(w[i], _mm256_set1_epi32(four));
                pairs[part][i] = quad % fitting ? _mm256_add_epi16(pairs[part][i], more) : more;
            }
            if ((quad + 1) % fitting && quad + 1 < count) continue;
            __builtin_memcpy(halves, &sums[part], 64);
            for (int i = 0; i < 2; i++)
                halves[i] = _mm256_add_epi32(halves[i], _mm256_madd_epi16(pairs[part][i], ones));
            __builtin_memcpy(&sums[part], halves, 64);
        }
    }
}

#elif defined(__ARM_NEON)
#define DOT_RUNS
#include "isa/dot_arm.h"

#else
#define DOT_NAME "portable"
#define DOT_OFFSET 0
#define dot_bytes dot_quad
INLINE i32x16 dot_quad(i32x16 sums, Quad quad, const int8_t *x) {
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < QUAD; i++) sums[row] += quad[QUAD * row + i] * x[i];
    return sums;
}
#endif

#ifdef ADD_PAIRS
#define HAS_PAIRS 1
INLINE i32x16 dot_pairs(i32x16 sums, Quad pairs, const int8_t *x) {
    int32_t two;
    __builtin_memcpy(&two, x, sizeof two);
    __m256i halves[2], w[2], repeated = _mm256_set1_epi32(two);
    __builtin_memcpy(halves, &sums, 64);
    __builtin_memcpy(w, &pairs, 64);
    for (int i = 0; i < 2; i++) halves[i] = ADD_PAIRS(halves[i], w[i], repeated);
    __builtin_memcpy(&sums, halves, 64);
    return sums;
}
#elif !defined(HAS_PAIRS)
#define HAS_PAIRS 0
#define dot_pairs dot_bytes
#endif

#if !defined(DOT_RUNS) && !defined(IN_PAIRS)
#define IN_PAIRS 0
INLINE void dot_small(i32x16 *sums, int parts, const Quad *quads, int count, const int8_t *x,
                      int bits) {
    (void)bits;
    for (int part = 0; part < parts; part++)
        for (int i = 0; i < count; i++)
            sums[part] = dot_bytes(sums[part], quads[i], x + part * GROUP + i * QUAD);
}
#endif

// For the baker, which reads it in the object (baker/compiler/kernel_objects.py).
static const char dot_name[] __attribute__((used)) = "hearth dot: " DOT_NAME;

#endif
