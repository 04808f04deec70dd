// What dot.h offers, by NEON: alone, with dot products (ARMv8.2), or with products of matrices
// (i8mm).
//
// A vector has four columns of each of four rows: a quarter of a quad.
#ifndef HEARTH_DOT_ARM_H
#define HEARTH_DOT_ARM_H

#include "isa/intrinsics.h"
#include "product/matrix.h"

#define DOT_OFFSET 0

enum { QUARTERS = 4, QUARTER = sizeof(Quad) / QUARTERS };

// Quads of a group from `first` on: integers of four or five bits in the arrays where they are
// stored, others as quads.
typedef struct {
    int first, count, bits;
    const int8_t *quads;
    const uint8_t *low, *high;
} Run;

// A run of a group, whose quads are unpacked. Integers of four, five and eight bits are read where
// they are stored: registers do not hold a whole group.
INLINE Run run_of(const Quad *quads, int first, int count, Integers from, size_t group) {
    size_t at = group * GROUP * ROWS;
    Run run = {first, count, from.bits, (const int8_t *)quads, 0, 0};
    const int8_t *stored = stored_quads(from);
    if (from.bits == 8 && stored) run.quads = stored + at;
    if (from.values) return run;
    if (from.bits == 4 || from.bits == 5) run.low = from.planes[0].bytes + at / 2;
    if (from.bits == 5) run.high = from.planes[1].bytes + at / 8;
    return run;
}

// A quarter of four bits of the quads that are in the same bytes: the upper ones, or the lower.
INLINE uint8x16_t four_bits(uint8x16_t two, int is_upper) {
    return is_upper ? vshrq_n_u8(two, 4) : vandq_u8(two, vdupq_n_u8(15));
}

// A quarter of a quad of the group.
INLINE int8x16_t quarter_of(const Run *run, int quad, int quarter) {
    int at = quarter * QUARTER;
    if (!run->low) return vld1q_s8(run->quads + quad * sizeof(Quad) + at);
    uint8x16_t two = vld1q_u8(run->low + quad % (QUADS / 2) * sizeof(Quad) + at);
    uint8x16_t whole = four_bits(two, quad >= QUADS / 2);
    if (run->high) {
        uint8x16_t bits = vld1q_u8(run->high + at);  // bit i is the fifth one of quad i
        bits = quad < 4 ? bits << (4 - quad) : bits >> (quad - 4);
        whole = vbslq_u8(vdupq_n_u8(16), bits, whole);
    }
    return vreinterpretq_s8_u8(whole);
}

// Four columns of x, four times.
INLINE int8x16_t repeat(const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    int8x16_t repeated = vreinterpretq_s8_s32(vdupq_n_s32(four));
    // Hides that both halves are equal: clang would multiply with the lower one only, and move
    // the upper halves of the weights for that.
    __asm__("" : "+w"(repeated));
    return repeated;
}

INLINE i32x16 whole_of(const int32x4_t quarters[QUARTERS]) {
    i32x16 whole;
    __builtin_memcpy(&whole, quarters, sizeof whole);
    return whole;
}

#if defined(__ARM_FEATURE_DOTPROD)

INLINE i32x16 dot_quad(i32x16 sums, Quad quad, const int8_t *x) {
    int8x16_t repeated = repeat(x), w[QUARTERS];
    int32x4_t quarters[QUARTERS];
    __builtin_memcpy(quarters, &sums, sizeof quarters);
    __builtin_memcpy(w, &quad, sizeof w);
    UNROLL
    for (int i = 0; i < QUARTERS; i++) quarters[i] = vdotq_s32(quarters[i], w[i], repeated);
    return whole_of(quarters);
}

// As `dot_run`, by dot products.
INLINE void dot_apart(i32x16 *dots, int parts, Run run, const int8_t *x, const int32_t *starts) {
    int32x4_t sums[MAX_PARTS][QUARTERS];
    UNROLL
    for (int part = 0; part < parts; part++) UNROLL
    for (int j = 0; j < QUARTERS; j++) sums[part][j] = vdupq_n_s32(starts[part]);
    UNROLL
    for (int i = 0; i < run.count; i += 4) UNROLL
    for (int part = 0; part < parts; part++) {
        int8x16_t sixteen = vld1q_s8(x + part * GROUP + i * QUAD);
        UNROLL
        for (int j = 0; j < QUARTERS; j++) {
            int32x4_t sum = sums[part][j];
            int quad = run.first + i;
            sum = vdotq_laneq_s32(sum, quarter_of(&run, quad, j), sixteen, 0);
            sum = vdotq_laneq_s32(sum, quarter_of(&run, quad + 1, j), sixteen, 1);
            sum = vdotq_laneq_s32(sum, quarter_of(&run, quad + 2, j), sixteen, 2);
            sum = vdotq_laneq_s32(sum, quarter_of(&run, quad + 3, j), sixteen, 3);
            sums[part][j] = sum;
        }
    }
    UNROLL
    for (int part = 0; part < parts; part++) dots[part] = whole_of(sums[part]);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

// Eight columns of each of two rows: of the quads from `quad`, rows from `2 * pair`. Four bits are
// unpacked after the rows of two vectors are beside each other.
INLINE int8x16_t pair_of(Run run, int quad, int pair) {
    int is_upper = quad >= QUADS / 2, is_packed = run.low && run.bits == 4;
    if (is_packed)
        run.quads = (const int8_t *)run.low, run.low = 0, quad -= is_upper ? QUADS / 2 : 0;
    int32x4_t a = vreinterpretq_s32_s8(quarter_of(&run, quad, pair / 2));
    int32x4_t b = vreinterpretq_s32_s8(quarter_of(&run, quad + 1, pair / 2));
    int8x16_t rows = vreinterpretq_s8_s32(pair % 2 ? vzip2q_s32(a, b) : vzip1q_s32(a, b));
    if (!is_packed) return rows;
    return vreinterpretq_s8_u8(four_bits(vreinterpretq_u8_s8(rows), is_upper));
}

// As `dot_run`, of both parts: an instruction multiplies eight columns of both with two rows of
// weights.
INLINE void dot_both(i32x16 *dots, Run run, const int8_t *x, const int32_t *starts) {
    int32x4_t sums[2 * QUARTERS], quarters[MAX_PARTS][QUARTERS];
    int32x4_t start = vcombine_s32(vdup_n_s32(starts[0]), vdup_n_s32(starts[1]));
    UNROLL
    for (int pair = 0; pair < 2 * QUARTERS; pair++) sums[pair] = start;
    UNROLL
    for (int i = 0; i < run.count; i += 2) {
        int8x16_t both = vcombine_s8(vld1_s8(x + i * QUAD), vld1_s8(x + GROUP + i * QUAD));
        UNROLL
        for (int pair = 0; pair < 2 * QUARTERS; pair++)
            sums[pair] = vmmlaq_s32(sums[pair], both, pair_of(run, run.first + i, pair));
    }
    UNROLL
    for (int j = 0; j < QUARTERS; j++) {
        int64x2_t a = vreinterpretq_s64_s32(sums[2 * j]),
                  b = vreinterpretq_s64_s32(sums[2 * j + 1]);
        quarters[0][j] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
        quarters[1][j] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
    }
    UNROLL
    for (int part = 0; part < MAX_PARTS; part++) dots[part] = whole_of(quarters[part]);
}

#define DOT_NAME "i8mm"
#define dot_low dot_run
INLINE void dot_run(i32x16 *dots, int parts, Run run, const int8_t *x, const int32_t *starts) {
    if (parts == MAX_PARTS)
        dot_both(dots, run, x, starts);
    else
        dot_apart(dots, parts, run, x, starts);
}

#else
#define DOT_NAME "dotprod"
#define dot_run dot_apart
#define dot_low dot_apart
#endif

#else
#define DOT_NAME "neon"
#define dot_low dot_apart

// Two rows of four columns, times activations or added to `sums`, in the lower and upper half of a
// quarter.
typedef struct {
    int16x8_t low, high;
} Products;

INLINE Products times(int8x16_t w, int8x16_t x) {
    return (Products){vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x)};
}

INLINE Products add_times(Products sums, int8x16_t w, int8x16_t x) {
    return (Products){vmlal_s8(sums.low, vget_low_s8(w), vget_low_s8(x)),
                      vmlal_high_s8(sums.high, w, x)};
}

// No activation is -128: two products fit into 16 bits, whatever the weights are.
INLINE i32x16 dot_quad(i32x16 sums, Quad quad, const int8_t *x) {
    int8x16_t repeated = repeat(x), w[QUARTERS];
    int32x4_t quarters[QUARTERS];
    __builtin_memcpy(quarters, &sums, sizeof quarters);
    __builtin_memcpy(w, &quad, sizeof w);
    UNROLL
    for (int i = 0; i < QUARTERS; i++) {
        Products products = times(w[i], repeated);
        quarters[i] = vpadalq_s16(quarters[i], vpaddq_s16(products.low, products.high));
    }
    return whole_of(quarters);
}

// As `dot_run`, of integers of 7 or 8 bits: two products are added in 16 bits. The loop stays one,
// so that its sums stay in registers.
INLINE void dot_large(i32x16 *dots, int parts, Run run, const int8_t *x, const int32_t *starts) {
    int32x4_t sums[MAX_PARTS][QUARTERS][2], quarters[QUARTERS];
    UNROLL
    for (int part = 0; part < parts; part++) UNROLL
    for (int j = 0; j < QUARTERS; j++) {
        // A row has two lanes: the start, and 0.
        sums[part][j][0] = vreinterpretq_s32_s64(vdupq_n_s64((uint32_t)starts[part]));
        sums[part][j][1] = sums[part][j][0];
    }
#pragma clang loop unroll(disable)
    for (int i = 0; i < run.count; i += 2, run.quads += 2 * sizeof(Quad), x += 2 * QUAD) {
        int8x16_t first[MAX_PARTS], second[MAX_PARTS];
        UNROLL
        for (int part = 0; part < parts; part++) {
            first[part] = repeat(x + part * GROUP);
            second[part] = repeat(x + part * GROUP + QUAD);
        }
        UNROLL
        for (int j = 0; j < QUARTERS; j++) UNROLL
        for (int part = 0; part < parts; part++) {
            Products products = times(quarter_of(&run, run.first, j), first[part]);
            products = add_times(products, quarter_of(&run, run.first + 1, j), second[part]);
            sums[part][j][0] = vpadalq_s16(sums[part][j][0], products.low);
            sums[part][j][1] = vpadalq_s16(sums[part][j][1], products.high);
        }
    }
    UNROLL
    for (int part = 0; part < parts; part++) {
        UNROLL
        for (int j = 0; j < QUARTERS; j++)
            quarters[j] = vpaddq_s32(sums[part][j][0], sums[part][j][1]);
        dots[part] = whole_of(quarters);
    }
}

// The sums in 16 bits of the products of all quads of a run with the parts of x. They fit: eight
// times 31 * 127 of five bits, four times 63 * 127 of six bits, whose runs have four quads.
INLINE void sum_products(Products sums[MAX_PARTS][QUARTERS], int parts, Run run, const int8_t *x) {
    UNROLL
    for (int i = 0; i < run.count; i++) {
        // The two quads that are in the same bytes follow each other.
        int quad = i % 2 * (run.count / 2) + i / 2;
        int8x16_t repeated[MAX_PARTS];
        UNROLL
        for (int part = 0; part < parts; part++)
            repeated[part] = repeat(x + part * GROUP + quad * QUAD);
        UNROLL
        for (int j = 0; j < QUARTERS; j++) {
            int8x16_t w = quarter_of(&run, run.first + quad, j);
            UNROLL
            for (int part = 0; part < parts; part++)
                sums[part][j] =
                    i ? add_times(sums[part][j], w, repeated[part]) : times(w, repeated[part]);
        }
    }
}

// As `dot_run`, of joined parts, whose sum is dots[1]. Sixteen products of a row, 15 * 127 each,
// fit into 16 bits.
INLINE void dot_joined(i32x16 *dots, Run run, const int8_t *x, const int32_t *starts) {
    Products sums[MAX_PARTS][QUARTERS];
    int32x4_t quarters[QUARTERS];
    sum_products(sums, MAX_PARTS, run, x);
    UNROLL
    for (int j = 0; j < QUARTERS; j++) {
        Products first = sums[0][j], second = sums[1][j];
        int32x4_t joined = vshlq_n_s32(vpaddlq_s16(vpaddq_s16(first.low, first.high)), 4);
        joined = vpadalq_s16(joined, vpaddq_s16(second.low, second.high));
        quarters[j] = vaddq_s32(joined, vdupq_n_s32(starts[0] * 16 + starts[1]));
    }
    dots[0] = (i32x16){};
    dots[1] = whole_of(quarters);
}

// As `dot_run`, of integers of 5 and 6 bits, or of the lower four of 12.
INLINE void dot_apart(i32x16 *dots, int parts, Run run, const int8_t *x, const int32_t *starts) {
    Products sums[MAX_PARTS][QUARTERS];
    int32x4_t quarters[QUARTERS];
    sum_products(sums, parts, run, x);
    UNROLL
    for (int part = 0; part < parts; part++) {
        UNROLL
        for (int j = 0; j < QUARTERS; j++) {
            Products one = sums[part][j];
            int32x4_t sum = vpaddq_s32(vpaddlq_s16(one.low), vpaddlq_s16(one.high));
            quarters[j] = vaddq_s32(sum, vdupq_n_s32(starts[part]));
        }
        dots[part] = whole_of(quarters);
    }
}

INLINE void dot_run(i32x16 *dots, int parts, Run run, const int8_t *x, const int32_t *starts) {
    if (run.bits > 6)
        dot_large(dots, parts, run, x, starts);
    else if (run.bits == 4 && parts == MAX_PARTS)
        dot_joined(dots, run, x, starts);
    else
        dot_apart(dots, parts, run, x, starts);
}
#endif

// As `dot_run`, of a group of integers of 12 bits.
INLINE void dot_wide(i32x16 *dots, int parts, Integers from, size_t group, const int8_t *x,
                     const int32_t *starts) {
    size_t at = group * GROUP * ROWS;
    Run upper = {.quads = stored_quads(from) + at, .count = QUADS, .bits = 8};
    Run lower = {.low = from.planes[0].bytes + at / 2, .count = QUADS, .bits = 4};
    const int32_t none[MAX_PARTS] = {0};
    i32x16 above[MAX_PARTS];
    dot_run(above, parts, upper, x, none);
    dot_low(dots, parts, lower, x, starts);
    UNROLL
    for (int part = 0; part < parts; part++) dots[part] += above[part] * 16;
}

#endif
