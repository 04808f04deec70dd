// A matrix of integers in groups, as models/dsl/packing.py stores it.
//
// Knows how a group of columns becomes quads; nothing of what they are multiplied with.
#ifndef HEARTH_GROUPED_H
#define HEARTH_GROUPED_H

#include "vector.h"

// Sixteen rows, which are LANES; columns of a group, and of a quad; quads of a group.
enum { ROWS = 16, GROUP = 32, QUAD = 4, QUADS = GROUP / QUAD };

// Four columns of each of sixteen rows, row after row.
typedef int8_t Quad __attribute__((vector_size(QUAD * ROWS)));
// Two quads' upper or lower halves: quad i in the low four bits of byte vector i, quad i + 4 in the
// high ones.
typedef uint8_t Halves __attribute__((vector_size(QUAD * ROWS)));

// Where the integers of a matrix are. Those of 8 bits are signed, and whole or in halves, of which
// the lower may be left out. Those of 4 to 6 bits are unsigned: four bits in `low` and the fifth in
// `high`; of 6 bits two in `low`, which may be left out, and four in `high`. Those of 12 bits are
// signed: the upper eight in `whole`, four in `low`. Those of 2 bits, in `low`, are the lower part
// of 6 bits.
typedef struct {
    int bits;
    const int8_t *whole;
    const uint8_t *upper, *lower;
    const uint8_t *low, *high;
    size_t last;  // the last group that the call reads, or 0 if it does not read them in order
} Integers;

// Groups that are fetched ahead, half as many of whole integers of 8 bits. A mapped file has small
// pages, at whose ends a CPU's own fetching stops; and one that multiplies many rows with a group
// comes late to the next. Measured on Zen 4. Behind the call's last group nothing is fetched:
// another thread reads it.
#if defined(__x86_64__)
enum { AHEAD = 16 };
#else
enum { AHEAD = 32 };
#endif

// The integer that stands for 0. Those of 12 bits count from the middle of their lower four, so
// that the upper eight alone are the nearest multiples of 16.
INLINE int zero_of(int bits, int has_minimum) {
    if (has_minimum || bits == 8) return 0;
    return bits == 12 ? 8 : 1 << (bits - 1);
}

INLINE void fetch_lines(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)from + at, 0, NEAREST);
}

// Fetches the bytes of a later group than `group` of an array that has `bytes` in each.
INLINE void fetch_group(const void *array, size_t bytes, size_t group, size_t last) {
    size_t ahead = bytes == GROUP * ROWS ? AHEAD / 2 : AHEAD;
    if (last) fetch_lines((const char *)array + least(group + ahead, last) * bytes, bytes);
}

// The quads of a group of four bits, which are moved up: 0 to 15 for none.
INLINE void unpack_four(Halves quads[QUADS], const uint8_t *four, int up, size_t group,
                        size_t last) {
    fetch_group(four, GROUP * ROWS / 2, group, last);
    four += group * GROUP * ROWS / 2;
    for (int i = 0; i < QUADS / 2; i++) {
        Halves two;
        uint8_t mask = (uint8_t)(0x0F << up);
        __builtin_memcpy(&two, four + i * sizeof two, sizeof two);
        quads[i] = (two << up) & mask, quads[i + QUADS / 2] = (two >> (4 - up)) & mask;
    }
}

// The quads of a group's lower four bits: 0 to 15.
INLINE void unpack_low(Halves quads[QUADS], Integers from, size_t group) {
    unpack_four(quads, from.low, 0, group, from.last);
}

// Adds one or two bits of each quad, moved up. A byte has one bit of all eight, or two of four.
INLINE void add_bits(Halves quads[QUADS], const uint8_t *planes, int bits, int up, size_t group,
                     size_t last) {
    int in_byte = 8 / bits, count = QUADS / in_byte;
    fetch_group(planes, count * sizeof(Halves), group, last);
    planes += group * sizeof(Halves) * count;
    for (int i = 0; i < QUADS; i++) {
        Halves plane;
        __builtin_memcpy(&plane, planes + i / in_byte * sizeof plane, sizeof plane);
        int left = up - i % in_byte * bits, mask = ((1 << bits) - 1) << up;
        quads[i] |= (left < 0 ? plane >> -left : plane << left) & (uint8_t)mask;
    }
}

// The quads of a group of integers of 2 to 6 bits: 0 to 63. Without their lowest two bits, those of
// 6 are the middle of what they may be.
INLINE void unpack_small(Quad quads[QUADS], Integers from, size_t group) {
    Halves whole[QUADS] = {};
    if (from.bits == 2) {
        add_bits(whole, from.low, 2, 0, group, from.last);
    } else if (from.bits == 6) {
        unpack_four(whole, from.high, 2, group, from.last);
        if (from.low) add_bits(whole, from.low, 2, 0, group, from.last);
        for (int i = 0; i < QUADS && !from.low; i++) whole[i] |= 2;
    } else {
        unpack_low(whole, from, group);
        if (from.bits == 5) add_bits(whole, from.high, 1, 4, group, from.last);
    }
    for (int i = 0; i < QUADS; i++) quads[i] = (Quad)whole[i];
}

// The quads of the group that has this number: of 12 bits, those of the upper eight. Without the
// lower halves they are the middle of what they may be.
INLINE void unpack(Quad quads[QUADS], Integers from, size_t group) {
    if (from.bits < 8) {
        unpack_small(quads, from, group);
        return;
    }
    if (from.whole) {
        const int8_t *at = from.whole + group * GROUP * ROWS;
        fetch_group(from.whole, GROUP * ROWS, group, from.last);
        for (int i = 0; i < QUADS; i++)
            __builtin_memcpy(&quads[i], at + i * sizeof(Quad), sizeof(Quad));
        return;
    }
    const uint8_t *upper = from.upper + group * GROUP * ROWS / 2;
    fetch_group(from.upper, GROUP * ROWS / 2, group, from.last);
    for (int i = 0; i < QUADS / 2; i++) {
        Halves two, low;
        __builtin_memcpy(&two, upper + i * sizeof two, sizeof two);
        Halves first = two << 4, second = two & 0xF0;
        if (from.lower) {
            const uint8_t *lower = from.lower + group * GROUP * ROWS / 2;
            __builtin_memcpy(&low, lower + i * sizeof low, sizeof low);
            first |= low & 0x0F, second |= low >> 4;
        } else {
            first |= 0x08, second |= 0x08;
        }
        quads[i] = (Quad)first, quads[i + QUADS / 2] = (Quad)second;
    }
}

#endif
