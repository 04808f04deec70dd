// Looks up bytes in a table of sixteen, by the instructions of the target.
#ifndef HEARTH_LOOKUP_H
#define HEARTH_LOOKUP_H

#include "isa/vector.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { TABLE_LANES = 64 };

// Sixty-four values of a table by their numbers, 0 to 15.
typedef uint8_t Numbers __attribute__((vector_size(TABLE_LANES)));

INLINE Numbers look_up(Numbers numbers, const int8_t *table) {
    Numbers values;
#if defined(__AVX512BW__)
    __m128i sixteen = _mm_loadu_si128((const __m128i *)table);
    values = (Numbers)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(sixteen), (__m512i)numbers);
#elif defined(__AVX2__)
    __m256i halves[2], both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    __builtin_memcpy(halves, &numbers, sizeof halves);
    for (int i = 0; i < 2; i++) halves[i] = _mm256_shuffle_epi8(both, halves[i]);
    __builtin_memcpy(&values, halves, sizeof values);
#elif defined(__ARM_NEON)
    uint8x16_t quarters[4], sixteen = vreinterpretq_u8_s8(vld1q_s8(table));
    __builtin_memcpy(quarters, &numbers, sizeof quarters);
    for (int i = 0; i < 4; i++) quarters[i] = vqtbl1q_u8(sixteen, quarters[i]);
    __builtin_memcpy(&values, quarters, sizeof values);
#else
    for (int i = 0; i < TABLE_LANES; i++) values[i] = (uint8_t)table[numbers[i]];
#endif
    return values;
}

#endif
