// Looks up bytes in a table of sixteen, and 16 bits in larger ones, by the instructions of the
// target.
#ifndef HEARTH_LOOKUP_H
#define HEARTH_LOOKUP_H

#include "isa/intrinsics.h"
#include "isa/vector.h"

enum { TABLE_LANES = 64 };

// Sixty-four values of a table by their numbers, 0 to 15.
typedef uint8_t Numbers __attribute__((vector_size(TABLE_LANES)));

// Values of a table with `offset` added.
INLINE Numbers look_up(Numbers numbers, const int8_t *table, int offset) {
    Numbers values;
    i8x16 sixteen;
    __builtin_memcpy(&sixteen, table, sizeof sixteen);
    sixteen += (int8_t)offset;
#if defined(__AVX512BW__)
    __m512i repeated = _mm512_broadcast_i32x4((__m128i)sixteen);
    values = (Numbers)_mm512_shuffle_epi8(repeated, (__m512i)numbers);
#elif defined(__AVX2__)
    __m256i halves[2], both = _mm256_broadcastsi128_si256((__m128i)sixteen);
    __builtin_memcpy(halves, &numbers, sizeof halves);
    for (int i = 0; i < 2; i++) halves[i] = _mm256_shuffle_epi8(both, halves[i]);
    __builtin_memcpy(&values, halves, sizeof values);
#elif defined(__ARM_NEON)
    uint8x16_t quarters[4];
    __builtin_memcpy(quarters, &numbers, sizeof quarters);
    for (int i = 0; i < 4; i++) quarters[i] = vqtbl1q_u8((uint8x16_t)sixteen, quarters[i]);
    __builtin_memcpy(&values, quarters, sizeof values);
#else
    for (int i = 0; i < TABLE_LANES; i++) values[i] = (uint8_t)sixteen[numbers[i]];
#endif
    return values;
}

// Gathers are slow on AMD's Zen, whose CPUs with AVX-512 have VBMI and no AMX.
#if defined(__AVX512F__) && (!defined(__AVX512VBMI__) || defined(__AMX_INT8__))
#define HAS_GATHER
// The lower or, if `half` is 1, the upper half of entries of 64 bits, by their numbers.
INLINE u32x16 gather(u32x16 numbers, const uint64_t *entries, int half) {
    return (u32x16)_mm512_i32gather_epi32((__m512i)numbers, (const int *)entries + half, 8);
}
#endif

#if defined(__AVX512VBMI__)
#define HAS_LOOK_UP_MANY
// Larger tables are looked up faster in memory, by gathers or copies.
enum { MAX_LOOK_UP = 1024 };

// Bytes of a table of `count`, a power of two from 256 on, by their numbers: `upper` has the bits
// above the lowest eight.
INLINE Numbers look_up_many(Numbers numbers, Numbers upper, const uint8_t *table, int count) {
    enum { MAX_FOUND = MAX_LOOK_UP / 128 };
    __m512i found[MAX_FOUND];
    UNROLL
    for (int i = 0; i < count / 128; i++)
        found[i] = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + i * 128), (__m512i)numbers,
                                            _mm512_loadu_si512(table + i * 128 + 64));
    UNROLL
    for (int level = 0; level < 3; level++) {
        int results = count >> (level + 8);
        __mmask64 is_set =
            level == 0
                ? _mm512_movepi8_mask((__m512i)numbers)
                : _mm512_test_epi8_mask((__m512i)upper, _mm512_set1_epi8((char)(1 << (level - 1))));
        UNROLL
        for (int i = 0; i < MAX_FOUND / 2; i++)
            if (i < results)
                found[i] = _mm512_mask_blend_epi8(is_set, found[2 * i], found[2 * i + 1]);
    }
    return (Numbers)found[0];
}
#endif

#endif
