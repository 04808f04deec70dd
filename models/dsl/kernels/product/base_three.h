// Digits in base 3, as models/dsl/base_three.py packs them.
#ifndef HEARTH_BASE_THREE_H
#define HEARTH_BASE_THREE_H

#include "product/grid.h"

// Bytes of a group that have a digit of each of five quads, and numbers of three digits.
enum { FIVE = 5, LOW_BYTES = 32, HIGH_BYTES = 8, DIGIT_BYTES = 64 + LOW_BYTES + HIGH_BYTES };

typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef uint64_t u64x8 __attribute__((vector_size(64)));

// The first digit of each fraction x / 256. The fractions become the rest, times three.
INLINE Bytes next_digits(Bytes *fractions) {
    Bytes x = *fractions;
    *fractions = x + x + x;
    return -(Bytes)(x > 85) - (Bytes)(x > 170);
}

#define JOINED_HALVES                                                                             \
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, \
        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,   \
        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63

// The quads of a group.
INLINE void set_digits(Bytes quads[QUADS], const uint8_t *from) {
    Bytes fractions;
    u8x32 low;
    uint64_t high;
    __builtin_memcpy(&fractions, from, sizeof fractions);
    __builtin_memcpy(&low, from + sizeof fractions, sizeof low);
    __builtin_memcpy(&high, from + sizeof fractions + sizeof low, sizeof high);
    UNROLL
    for (int i = 0; i < FIVE; i++) quads[i] = next_digits(&fractions);
    Bytes numbers = __builtin_shufflevector(low & 15, low >> 4, JOINED_HALVES);
    // Byte i of `high` has the fifth bits of numbers i, i + 8, ...
    const u64x8 each = (u64x8){1, 2, 4, 8, 16, 32, 64, 128} * 0x0101010101010101u;
    numbers |= (Bytes)(((Bytes)(each & high)) != 0) & 16;
    // The smallest x with x / 256 of at least number / 27.
    fractions = (numbers << 3) + numbers + ((numbers + 1) >> 1);
    UNROLL
    for (int i = FIVE; i < QUADS; i++) quads[i] = next_digits(&fractions);
}

#endif
